//! A server that goes on in the background, where no systemd starts it.

use std::time::Duration;

use anyhow::Context as _;
use llmsrv_config::Address;
use llmsrv_host::{background::Program, follow, plan::Step};
use serde_json::Value;

use super::{firewall, service};
use crate::{
    cli::{GlobalArgs, MannerArgs, ServeArgs},
    connect,
    context::Context,
    failure::{Code, Failure},
    logging, steps, term,
};

/// `llmsrv serve --background`
pub fn run(context: &Context, args: &ServeArgs, manner: MannerArgs) -> Result<(), Failure> {
    // `service start` has begun it already.
    if args.background {
        logging::start(context.config(), logging::Style::Command)?;
    }
    let plan = plan(context, args, args.no_firewall)?;
    carry_out(context, manner, &plan)
}

/// Plans it: the server that runs ends, another one starts, the firewall lets it through, and it
/// must answer.
pub fn plan(context: &Context, args: &ServeArgs, no_firewall: bool) -> Result<Vec<Step>, Failure> {
    let host = address(context);
    if host.port == 0 {
        let text = "a server in the background needs a fixed port";
        return Err(Failure::new(Code::Usage, text).hint("name one with -p"));
    }
    let mut variables = vec![("LLMSRV_HOST".to_owned(), host.authority())];
    if !host.is_loopback() && !context.is_set("LLMSRV_ORIGINS") {
        variables.push(("LLMSRV_ORIGINS".to_owned(), "*".to_owned()));
    }
    let program = Program {
        path: std::env::current_exe().context("this program does not know its own path")?,
        args: arguments(&context.global, args),
        variables,
        log: context.config().host.log_file.clone(),
    };
    let mut steps = vec![
        end_step(context),
        Step::start("start the server in the background", program),
    ];
    if !no_firewall && !host.is_loopback() {
        steps.extend(firewall::allow_steps(host.port));
    }
    let url = format!("{}/api/tags", host.url());
    steps.push(Step::answers("wait until it answers", url, ANSWER));
    Ok(steps)
}

/// Ends our own server on the port.
pub fn end_step(context: &Context) -> Step {
    let config = context.config();
    let (folder, port) = (&config.host.runtime_dir, config.server.host.port);
    Step::end("end the server that runs", folder.clone(), port, END)
}

/// Carries out such a plan.
pub fn carry_out(context: &Context, manner: MannerArgs, plan: &[Step]) -> Result<(), Failure> {
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
    let log = &context.config().host.log_file;
    steps::carry_out_asking(context, manner, plan, &answers).map_err(|failure| {
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
    if manner.dry_run || manner.json || context.global.quiet {
        return Ok(());
    }
    let host = address(context);
    term::note(format_args!(
        "a server listens on {}; its log is {}; `llmsrv stop -p {}` ends it",
        host.url(),
        log.display(),
        host.port
    ));
    if !host.is_loopback() && !has_keys(context) {
        service::warn_of_network(None);
    }
    if llmsrv_host::is_root() {
        term::warning("the server runs as root");
    }
    Ok(())
}

/// Tells whether requests will need keys.
fn has_keys(context: &Context) -> bool {
    crate::local::keys(&context.config().server).is_ok_and(|keys| keys.are_required())
}

/// Where it listens: everywhere, unless somebody has set an address.
pub fn address(context: &Context) -> Address {
    let mut host = context.config().server.host.clone();
    if !context.is_set("LLMSRV_HOST") {
        "0.0.0.0".clone_into(&mut host.host);
    }
    host
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

/// How long a server may take to end, and another one to answer.
const END: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(5);
