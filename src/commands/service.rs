//! `llmsrv service`: the unit of systemd, in steps.

mod install;
mod state;

use std::process::ExitCode;

use llmsrv_host::{
    plan::{Skip, Step},
    systemd::{self, Scope, Unit},
    unit::NAME,
};
use serde_json::json;

use self::{
    install::{check_manager, say_installed, uninstall, warn_if_open},
    state::lines,
};
pub use self::{
    install::{install_steps, warn_of_network},
    state::{in_words, json_of},
};
use super::{background, stop};
use crate::{
    cli::{ApplyArgs, InstallArgs, ServeArgs, ServiceAction, ServiceArgs},
    context::Context,
    failure::{Code, Failure},
    logging,
    steps::carry_out,
    term,
};

/// Does what was asked with the service.
pub fn run(context: &Context, args: &ServiceArgs) -> Result<ExitCode, Failure> {
    match &args.action {
        ServiceAction::Install(args) => {
            let steps = install_steps(context, args)?;
            carry_out(context, args.manner, &steps)?;
            say_installed(context, args);
            warn_if_open(context, args);
            Ok(())
        }
        ServiceAction::Uninstall {
            manner,
            no_firewall,
        } => uninstall(context, *manner, *no_firewall),
        ServiceAction::Status { user, json } => return status(*user, *json),
        ServiceAction::Start(manner) => verb(context, *manner, &START),
        ServiceAction::Stop(manner) => verb(context, *manner, &STOP),
        ServiceAction::Restart(manner) => verb(context, *manner, &RESTART),
        ServiceAction::Enable(manner) => verb(context, *manner, &ENABLE),
        ServiceAction::Disable(manner) => verb(context, *manner, &DISABLE),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// `llmsrv serve --install`
pub fn install_and_start(
    context: &Context,
    manner: ApplyArgs,
    network: bool,
) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let args = InstallArgs {
        manner,
        network,
        every_origin: false,
        run_as: None,
    };
    let mut steps = install_steps(context, &args)?;
    steps.push(start_step(scope(manner.user)));
    carry_out(context, manner, &steps).map_err(with_log_hint)?;
    say_installed(context, &args);
    warn_if_open(context, &args);
    Ok(())
}

/// Starts the service; one that runs with what it was told before is started again.
pub fn start_step(scope: Scope) -> Step {
    let is_active = scope.systemctl(&["is-active", "--quiet", NAME]);
    Step::run("start the service", scope.verb("restart")).skip(Skip::UnchangedAnd(is_active))
}

/// Stops the service if it runs.
pub fn stop_step(scope: Scope) -> Step {
    let is_active = scope.systemctl(&["is-active", "--quiet", NAME]);
    Step::run("stop the service", scope.verb("stop")).skip(Skip::Unless(is_active))
}

pub fn scope(user: bool) -> Scope {
    if user { Scope::User } else { Scope::System }
}

/// Something to do with the installed unit.
struct Verb {
    word: &'static str,
    title: &'static str,
    /// Query of systemctl which says whether it is so.
    query: Option<&'static str>,
    /// What the query says when there is nothing to do.
    done_if: bool,
}

const START: Verb = Verb {
    word: "start",
    title: "start the service",
    query: Some("is-active"),
    done_if: true,
};
const STOP: Verb = Verb {
    word: "stop",
    title: "stop the service",
    query: Some("is-active"),
    done_if: false,
};
const RESTART: Verb = Verb {
    word: "restart",
    title: "start the service again",
    query: None,
    done_if: false,
};
const ENABLE: Verb = Verb {
    word: "enable",
    title: "let it start with the machine",
    query: Some("is-enabled"),
    done_if: true,
};
const DISABLE: Verb = Verb {
    word: "disable",
    title: "do not start it with the machine any more",
    query: Some("is-enabled"),
    done_if: false,
};

fn verb(context: &Context, manner: ApplyArgs, verb: &Verb) -> Result<(), Failure> {
    let Some(unit) = find(manner.user) else {
        return without_unit(context, manner, verb);
    };
    let scope = unit.scope;
    let query = verb
        .query
        .map(|query| scope.systemctl(&[query, "--quiet", NAME]));
    let skip = match (query, verb.done_if) {
        (None, _) => Skip::Never,
        (Some(query), true) => Skip::If(query),
        (Some(query), false) => Skip::Unless(query),
    };
    let step = Step::run(verb.title, scope.verb(verb.word)).skip(skip);
    carry_out(context, manner, &[step]).map_err(|failure| match verb.word {
        "start" | "restart" => with_log_hint(failure),
        _ => failure,
    })
}

fn with_log_hint(failure: Failure) -> Failure {
    if failure.code == Code::Failed && failure.hint.is_none() {
        failure.hint("`llmsrv logs -n 20` shows why")
    } else {
        failure
    }
}

/// Without systemd the background takes the place of the service.
fn without_unit(context: &Context, manner: ApplyArgs, verb: &Verb) -> Result<(), Failure> {
    if scope(manner.user).is_there() {
        let user = if manner.user { " --user" } else { "" };
        return Err(
            Failure::new(Code::NoService, "the service is not installed")
                .hint(format!("install it: llmsrv service install{user}")),
        );
    }
    match verb.word {
        "start" | "restart" => {
            let args = ServeArgs {
                restart: verb.word == "restart",
                ..ServeArgs::default()
            };
            background::run(context, &args, manner)
        }
        "stop" if manner.dry_run => carry_out(context, manner, &[background::end_step(context)]),
        "stop" => stop::end(context),
        _ => check_manager(scope(manner.user)),
    }
}

/// Finds the unit: of the user where that was said, else that of the machine first.
pub fn find(user: bool) -> Option<Unit> {
    if user {
        Scope::User.unit()
    } else {
        systemd::find()
    }
}

fn status(user: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let unit = find(user);
    if as_json {
        term::json(
            &unit
                .as_ref()
                .map_or_else(|| json!({ "installed": false }), json_of),
        )?;
    }
    let Some(unit) = unit else {
        if !as_json {
            term::line("○ the service is not installed")?;
        }
        return Ok(ExitCode::from(Code::NoService as u8));
    };
    if !as_json {
        term::line(lines(&unit).join("\n"))?;
    }
    Ok(if unit.is_active() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(Code::NotRunning as u8)
    })
}
