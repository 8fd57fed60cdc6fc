//! `llmsrv stop MODEL`

use anyhow::Context as _;

use crate::{
    cli::StopArgs,
    connect::{running, runtime},
    context::Context,
    failure::Failure,
    logging, term,
};

/// Unloads a model from the memory of the running server.
pub fn run(context: &Context, args: &StopArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    runtime()?.block_on(async {
        let client = running(context).await?;
        client
            .unload(&args.model)
            .await
            .with_context(|| format!("cannot stop {}", args.model))?;
        if !context.global.quiet {
            term::note(format_args!("stopped {}", args.model));
        }
        Ok(())
    })
}
