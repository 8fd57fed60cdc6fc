//! `llmsrv net`: what it takes to serve a network, in the order in which it is done by hand.

use std::process::ExitCode;

use llmsrv_host::{net, plan::Step};

use super::{background, examples, firewall, install_model, logs, service, status, stop, test};
use crate::{
    cli::{ApplyArgs, ExamplesArgs, InstallArgs, InstallModelArgs, LogsArgs, NetArgs, StatusArgs},
    context::Context,
    failure::{Code, Failure},
    steps::carry_out,
    term,
};

/// Does everything, or one of the other actions.
pub fn run(context: &Context, args: &NetArgs) -> Result<ExitCode, Failure> {
    let action = args.action;
    if action.status {
        return status::run(context, &StatusArgs { json: false });
    }
    if action.test {
        return test::checks(context, MODEL, false);
    }
    if action.examples {
        let examples = ExamplesArgs {
            words: Vec::new(),
            language: None,
            model: MODEL.to_owned(),
            json: false,
        };
        return examples::run(context, &examples).map(|()| ExitCode::SUCCESS);
    }
    if action.logs {
        let logs = LogsArgs {
            follow: true,
            lines: 100,
            since: None,
            user: args.user,
            json: false,
        };
        return logs::run(context, &logs);
    }
    if action.install_model {
        return get_model(context).map(|()| ExitCode::SUCCESS);
    }
    if action.stop {
        return stop_all(context, args).map(|()| ExitCode::SUCCESS);
    }
    everything(context, args)
}

/// Stops the service, and the server in the background if there is one.
fn stop_all(context: &Context, args: &NetArgs) -> Result<(), Failure> {
    let unit = service::find(args.user);
    let is_running = unit
        .as_ref()
        .is_some_and(llmsrv_host::systemd::Unit::is_active);
    if !is_running && !args.dry_run {
        // Says itself what it stopped, or that nothing runs.
        return stop::end(context);
    }
    let stop = unit.map(|unit| service::stop_step(unit.scope));
    let steps: Vec<Step> = stop
        .into_iter()
        .chain([background::end_step(context)])
        .collect();
    carry_out(context, manner(args), &steps)
}

fn everything(context: &Context, args: &NetArgs) -> Result<ExitCode, Failure> {
    let scope = service::scope(args.user);
    let quiet = context.global.quiet || args.dry_run;
    if llmsrv_host::is_root() && llmsrv_config::sudo_user().is_none() && !quiet {
        term::warning("this is root; the service itself will run as a user who is not");
    }
    if scope.is_there() {
        serve_by_systemd(context, args)?;
    } else {
        if !quiet {
            term::note("no systemd runs here: the server goes to the background");
        }
        let plan = background::plan_of_script(context, args.no_firewall)?;
        if !args.dry_run {
            background::check(context, &plan)?;
        }
        background::carry_out(context, manner(args), &plan)?;
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let status = test::checks(context, MODEL, false)?;
    // The server is of use without: what follows is said in any case.
    let model = if args.no_model {
        Ok(())
    } else {
        get_model(context)
    };
    say_where(context)?;
    model.map(|()| status)
}

fn serve_by_systemd(context: &Context, args: &NetArgs) -> Result<(), Failure> {
    let scope = service::scope(args.user);
    let host = &context.config().server.host;
    let install = InstallArgs {
        manner: manner(args),
        network: !host.is_loopback() && context.global.host.is_none(),
        every_origin: !host.is_loopback(),
        run_as: None,
    };
    let mut steps = vec![service::stop_step(scope), background::end_step(context)];
    if !args.no_firewall && !host.is_loopback() {
        steps.extend(firewall::allow_steps(host.port));
    }
    // Before anything is stopped it is clear whether the rest can be done.
    steps.extend(service::install_steps(context, &install)?);
    carry_out(context, manner(args), &steps)?;
    let start = [service::start_step(scope)];
    let Err(failure) = carry_out(context, manner(args), &start) else {
        return Ok(());
    };
    if failure.code == Code::Interrupted {
        return Err(failure);
    }
    term::warning(format_args!(
        "{failure}; the server goes to the background (`llmsrv logs` shows why)"
    ));
    // It would try again and again to take the port.
    let mut plan = vec![Step::run("stop the service", scope.verb("stop")).may_fail()];
    // The firewall is done.
    let started = background::plan_of_script(context, true)?;
    background::check(context, &started)?;
    plan.extend(started.steps);
    background::carry_out(
        context,
        manner(args),
        &background::Plan {
            steps: plan,
            ..started
        },
    )
}

/// Gets a model if there is none.
fn get_model(context: &Context) -> Result<(), Failure> {
    install_model::run(context, &InstallModelArgs::default())
}

/// Says how the server is reached, and by what it is run.
fn say_where(context: &Context) -> Result<(), Failure> {
    let host = &context.config().server.host;
    let local = host.url();
    let mut urls = vec![local.clone()];
    if !host.is_loopback() {
        let mut other = host.clone();
        urls.extend(net::addresses().into_iter().map(|address| {
            other.host = address.to_string();
            other.url()
        }));
    }
    urls.dedup();
    let url = urls.get(1).unwrap_or(&local);
    let strong = term::STRONG;
    term::line(format_args!("\n{strong}The server is reached at{strong:#}"))?;
    for url in &urls {
        term::line(format_args!("  {url}"))?;
    }
    term::line(format_args!(
        "{strong}Try{strong:#}\n  curl {url}/api/tags\n  curl {url}/api/generate -d \
         '{{\"model\": \"{MODEL}\", \"prompt\": \"Hello!\", \"stream\": false}}'\n  \
         OpenAI clients: base URL {url}/v1, any key; more with `llmsrv examples`"
    ))?;
    let port = host.port;
    term::line(format_args!(
        "{strong}Look after it{strong:#}\n  llmsrv status -p {port}\n  llmsrv logs -f\n  \
         llmsrv net --stop -p {port}"
    ))?;
    Ok(())
}

fn manner(args: &NetArgs) -> ApplyArgs {
    ApplyArgs {
        user: args.user,
        dry_run: args.dry_run,
        json: false,
    }
}

/// The model that stands for one of the others.
const MODEL: &str = "default";
