//! `llmsrv stop [MODEL]`

use std::time::Duration;

use anyhow::Context as _;
use llmsrv_host::instance::{self, Ended};

use crate::{
    cli::StopArgs,
    connect::{running, runtime},
    context::Context,
    failure::{Code, Failure},
    logging, term,
};

/// Unloads a model from the memory of the running server, or ends the server.
pub fn run(context: &Context, args: &StopArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    match &args.model {
        Some(model) => unload(context, model),
        None => end(context),
    }
}

fn unload(context: &Context, model: &str) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let client = running(context).await?;
        let unloaded = client.unload(model).await;
        unloaded.with_context(|| format!("cannot stop {model}"))?;
        say(context, format_args!("stopped {model}"));
        Ok(())
    })
}

/// Ends the server of this user on the configured port, or that of the machine.
pub fn end(context: &Context) -> Result<(), Failure> {
    let config = context.config();
    let host = &config.server.host;
    let Some(instance) = instance::find(&config.host.runtime_dir, host.port) else {
        let text = format!("no server of this user runs on port {}", host.port);
        return Err(Failure::new(Code::NotRunning, text)
            .hint("`llmsrv stop MODEL` unloads a model; -p names another port"));
    };
    let ended = instance.end(PATIENCE).map_err(|error| {
        Failure::from(error).context(format!("cannot stop the server at {}", instance.url))
    })?;
    let url = &instance.url;
    match ended {
        Ended::Asked => say(context, format_args!("stopped the server at {url}")),
        Ended::Killed => say(
            context,
            format_args!("killed the server at {url}, which did not end when asked to"),
        ),
    }
    Ok(())
}

fn say(context: &Context, text: impl std::fmt::Display) {
    if !context.global.quiet {
        term::note(text);
    }
}

/// How long running requests may take to finish.
const PATIENCE: Duration = Duration::from_secs(30);
