//! `llmsrv cp`

use anyhow::Context as _;
use serde_json::json;

use crate::{
    cli::CpArgs, connect::Connection, context::Context, failure::Failure, local::Access, term,
};

/// Copies a model under a new name.
pub fn run(context: &Context, args: &CpArgs) -> Result<(), Failure> {
    let (source, destination) = (&args.source, &args.destination);
    Connection::with(context, Access::Use, async |connection| {
        let copied = connection.client.copy(source, destination).await;
        Ok(copied.with_context(|| format!("cannot copy {source} to {destination}"))?)
    })?;
    if args.json {
        term::json(&json!({ "source": source, "destination": destination }))?;
    } else if !context.global.quiet {
        term::note(format_args!("copied {source} to {destination}"));
    }
    Ok(())
}
