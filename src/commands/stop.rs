//! `llmsrv stop [MODEL]`

use std::time::Duration;

use anyhow::Context as _;
use llmsrv_host::instance::{self, Ended};
use serde_json::json;

use crate::{
    cli::StopArgs,
    connect::{running, runtime},
    context::Context,
    failure::{Code, Failure},
    term,
};

/// Unloads a model from the memory of the running server, or ends the server.
pub fn run(context: &Context, args: &StopArgs) -> Result<(), Failure> {
    let (text, as_json) = if let Some(model) = &args.model {
        unload(context, model)?;
        (format!("stopped {model}"), json!({ "model": model }))
    } else {
        let (url, ended) = stop_server(context)?;
        let (text, is_killed) = stopped(&url, ended);
        (text, json!({ "url": url, "killed": is_killed }))
    };
    if args.json {
        term::json(&as_json)?;
    } else if !context.global.quiet {
        term::note(text);
    }
    Ok(())
}

fn unload(context: &Context, model: &str) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let client = running(context).await?;
        let unloaded = client.unload(model).await;
        Ok(unloaded.with_context(|| format!("cannot stop {model}"))?)
    })
}

/// Ends the server of this user on the configured port, or that of the machine.
pub fn end(context: &Context) -> Result<(), Failure> {
    let (url, ended) = stop_server(context)?;
    if !context.global.quiet {
        term::note(stopped(&url, ended).0);
    }
    Ok(())
}

fn stop_server(context: &Context) -> Result<(String, Ended), Failure> {
    let config = context.config();
    let host = &config.server.host;
    let Some(instance) = instance::find(&config.host.runtime_dir, host.port) else {
        let text = format!("no server of this user runs on port {}", host.port);
        return Err(Failure::new(Code::NotRunning, text)
            .hint("`llmsrv stop MODEL` unloads a model; -p names another port"));
    };
    let ended = instance.end(TIMEOUT).map_err(|error| {
        Failure::from(error).context(format!("cannot stop the server at {}", instance.url))
    })?;
    Ok((instance.url, ended))
}

/// Says how a server ended, and whether it had to be killed.
fn stopped(url: &str, ended: Ended) -> (String, bool) {
    match ended {
        Ended::Asked => (format!("stopped the server at {url}"), false),
        Ended::Killed => {
            let text = format!("killed the server at {url}, which did not end when asked to");
            (text, true)
        }
    }
}

/// How long running requests may take to finish.
const TIMEOUT: Duration = Duration::from_secs(30);
