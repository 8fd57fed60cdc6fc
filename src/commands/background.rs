//! A server that goes on in the background, where no systemd starts it.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use llmsrv_config::Address;
use llmsrv_host::{
    background::{self, Program},
    follow,
    instance::{self, Instance},
    plan::Step,
};
use serde_json::Value;

use super::{firewall, is_open, listens, serve, service};
use crate::{
    cli::{ApplyArgs, GlobalArgs, ServeArgs},
    connect,
    context::Context,
    failure::{Code, Failure},
    local, logging, reload,
    steps::{self, Shown},
    term,
};

/// What is to be done, and where the server will log.
pub struct Plan {
    pub steps: Vec<Step>,
    pub log: PathBuf,
}

/// `llmsrv serve --background`
pub fn run(context: &Context, args: &ServeArgs, manner: ApplyArgs) -> Result<(), Failure> {
    // `service start` has begun it already.
    if args.background {
        logging::start(context.config(), logging::Style::Command)?;
    }
    let log = context.config().host.log_of(port(context));
    let plan = plan(context, args, Vec::new(), log)?;
    if !manner.dry_run {
        if let Some(running) = running(context).filter(|_| !args.restart) {
            return already(context, manner, &running);
        }
        check(context, &plan)?;
    }
    carry_out(context, manner, &plan)
}

/// Plans it as the script did that this program replaces: open to web pages of every origin, with a
/// log that everybody finds.
pub fn plan_of_script(context: &Context, no_firewall: bool) -> Result<Plan, Failure> {
    let config = context.config();
    let args = ServeArgs {
        no_firewall,
        ..ServeArgs::default()
    };
    let mut variables = Vec::new();
    if !config.server.host.is_loopback() && !context.is_set("LLMSRV_ORIGINS") {
        variables.push(("LLMSRV_ORIGINS".to_owned(), "*".to_owned()));
    }
    let mut log = config.host.log_of(port(context));
    // Where another user has that file already, it is the one of this user.
    if config.host.log_file.is_none() && background::is_usable(LOG_OF_SCRIPT.as_ref()) {
        log = LOG_OF_SCRIPT.into();
        variables.push(("LLMSRV_LOG_FILE".to_owned(), LOG_OF_SCRIPT.to_owned()));
    }
    plan(context, &args, variables, log)
}

/// Plans it: the running server stops, another one starts, the firewall lets it through, and it
/// must answer.
fn plan(
    context: &Context,
    args: &ServeArgs,
    mut variables: Vec<(String, String)>,
    log: PathBuf,
) -> Result<Plan, Failure> {
    let host = &context.config().server.host;
    if host.port == 0 {
        let text = "a server in the background needs a fixed port";
        return Err(Failure::usage(text).hint("name one with -p"));
    }
    variables.insert(0, ("LLMSRV_HOST".to_owned(), host.authority()));
    let program = Program {
        path: std::env::current_exe().context("this program does not know its own path")?,
        args: arguments(&context.global, args),
        variables,
        log: log.clone(),
    };
    let mut steps = vec![
        end_step(context),
        Step::start("start the server in the background", program),
    ];
    if !args.no_firewall && !host.is_loopback() {
        steps.extend(firewall::allow_steps(host.port));
    }
    let url = format!("{}/api/tags", host.url());
    steps.push(Step::answers("wait until it answers", url, ANSWER));
    Ok(Plan { steps, log })
}

/// Ends our own server on the port.
pub fn end_step(context: &Context) -> Step {
    let folder = context.config().host.runtime_dir.clone();
    Step::end("stop the running server", folder, port(context), END)
}

/// Makes sure that the new server can start, before the one that runs is stopped: whatever would
/// keep it from starting does so here.
pub fn check(context: &Context, plan: &Plan) -> Result<(), Failure> {
    let config = context.config();
    background::open_log(&plan.log)
        .with_context(|| format!("cannot use the log {}", plan.log.display()))?;
    let keys = local::keys(&config.server)?;
    reload::tls(&config.server)?;
    local::settings(config, keys)?;
    local::open_store(&config.server, local::Prune::No)?;
    if running(context).is_none() {
        // Nobody else may have the port.
        let free = async { serve::listen(&config.server.host).await.map(drop) };
        connect::runtime()?.block_on(free)?;
    }
    Ok(())
}

/// Says that a server runs already; it must be where one is wanted.
fn already(context: &Context, manner: ApplyArgs, running: &Instance) -> Result<(), Failure> {
    let (pid, at) = (running.pid, listens(running));
    if !is_bound_as(running, &context.config().server.host) {
        let text = format!("a server runs already, and listens on {at} (process {pid})");
        return Err(Failure::failed(text).hint("`llmsrv serve --background --restart` replaces it"));
    }
    if manner.json {
        return steps::carry_out(context, manner, &[]);
    }
    if !context.global.quiet {
        term::note(format_args!(
            "already running: a server listens on {at} (process {pid}); --restart replaces it"
        ));
    }
    Ok(())
}

fn is_bound_as(running: &Instance, wanted: &Address) -> bool {
    if wanted.is_loopback() {
        !is_open(running)
    } else if wanted.is_local() {
        running.is_bound_to_all()
    } else {
        running.bound == wanted.host
    }
}

fn running(context: &Context) -> Option<Instance> {
    instance::on_port(&context.config().host.runtime_dir, port(context))
}

fn port(context: &Context) -> u16 {
    context.config().server.host.port
}

/// Carries out such a plan.
pub fn carry_out(context: &Context, manner: ApplyArgs, plan: &Plan) -> Result<(), Failure> {
    let runtime = connect::runtime()?;
    // Whether it may be asked is another question: a server that refuses answers.
    let answers = |_: &str| {
        runtime.block_on(async {
            let client = connect::running(context)
                .await
                .map_err(|failure| failure.to_string())?;
            match client.get::<Value>("/api/tags").await {
                Ok(_) | Err(llmsrv_api::client::Error::Status { .. }) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    };
    let shown = if context.global.more > 0 {
        Shown::All
    } else {
        Shown::Failed
    };
    let (steps, log) = (&plan.steps, &plan.log);
    steps::carry_out_asking(context, manner, steps, shown, &answers).map_err(|failure| {
        if failure.code == Code::Failed && !manner.json {
            for line in follow::last(log, 10).unwrap_or_default() {
                term::note(format_args!("  {line}"));
            }
        }
        if failure.hint.is_none() {
            return failure.hint(format!("its log is {}", log.display()));
        }
        failure
    })?;
    if manner.dry_run || manner.json {
        return Ok(());
    }
    let Some(started) = running(context) else {
        return Ok(());
    };
    let at = listens(&started);
    if !context.global.quiet {
        term::note(format_args!(
            "a server listens on {at}\nits log is {}; `llmsrv stop -p {}` stops it",
            log.display(),
            started.port
        ));
    }
    if is_open(&started) && !has_keys(context) {
        service::warn_of_network(&at, None);
    }
    if llmsrv_host::is_root() && !context.global.quiet {
        term::warning("the server runs as root");
    }
    Ok(())
}

/// Tells whether requests will need keys.
fn has_keys(context: &Context) -> bool {
    local::keys(&context.config().server).is_ok_and(|keys| keys.are_required())
}

/// The command line of the server: what this one was told, except where to listen.
fn arguments(global: &GlobalArgs, args: &ServeArgs) -> Vec<String> {
    let mut line = vec!["serve".to_owned(), "--detached".to_owned()];
    let path = |path: &std::path::PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        path.to_string_lossy().into_owned()
    };
    let options = [
        ("--models", global.models.clone()),
        ("--config", global.config.as_ref().map(path)),
        ("--env-file", global.env_file.as_ref().map(path)),
        ("--preload", args.preload.clone()),
        ("--keep-alive", args.keep_alive.clone()),
        ("--parallel", args.parallel.clone()),
    ];
    let set = global
        .set
        .iter()
        .map(|value| ("--set", Some(value.clone())));
    for (flag, value) in options.into_iter().chain(set) {
        line.extend(value.map(|value| format!("{flag}={value}")));
    }
    line.extend((0..global.more).map(|_| "-v".to_owned()));
    line
}

/// The log of the script that this program replaces.
const LOG_OF_SCRIPT: &str = "/tmp/llmsrv.log";
/// How long a server may take to end, and another one to answer.
const END: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(5);
