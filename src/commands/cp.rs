//! `llmsrv cp`

use anyhow::Context as _;
use serde_json::json;

use crate::{
    cli::CpArgs,
    connect::{Connection, runtime},
    context::Context,
    failure::Failure,
    local::Access,
    logging, term,
};

/// Copies a model under a new name.
pub fn run(context: &Context, args: &CpArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    runtime()?.block_on(async {
        let connection = Connection::open(context, Access::Use).await?;
        let copied = connection
            .client
            .copy(&args.source, &args.destination)
            .await;
        connection.close().await;
        copied.with_context(|| format!("cannot copy {} to {}", args.source, args.destination))?;
        if args.json {
            term::json(&json!({ "source": args.source, "destination": args.destination }))?;
        } else if !context.global.quiet {
            term::note(format_args!(
                "copied {} to {}",
                args.source, args.destination
            ));
        }
        Ok(())
    })
}
