//! `llmsrv version`

use serde_json::json;

use crate::{
    cli::VersionArgs,
    connect::{running, runtime},
    context::Context,
    failure::Failure,
    logging, term,
};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints the versions of this program and of the running server, if one runs.
pub fn run(context: &Context, args: &VersionArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let url = context.config().server.host.url();
    let server = runtime()?.block_on(async { running(context).await.ok()?.version().await.ok() });
    if args.json {
        term::json(&json!({ "version": VERSION, "server": server, "server_url": url }))?;
    } else {
        term::line(format_args!("llmsrv {VERSION}"))?;
        match server {
            Some(version) => term::line(format_args!("server {version} at {url}"))?,
            None => term::line(format_args!("no server runs at {url}"))?,
        }
    }
    Ok(())
}
