//! `llmsrv rm`

use serde_json::json;

use crate::{
    cli::RmArgs, connect::Connection, context::Context, failure::Failure, local::Access, term,
};

/// Removes models. One that cannot be removed does not keep the others.
pub fn run(context: &Context, args: &RmArgs) -> Result<(), Failure> {
    Connection::with(context, Access::Use, async |connection| {
        let (mut removed, mut failures) = (Vec::new(), Vec::new());
        for model in &args.names {
            // A model in memory would keep its files; none is in memory of a server just started.
            if !connection.is_local() {
                let _ = connection.client.unload(model).await;
            }
            match connection.client.delete(model).await {
                Ok(()) => removed.push(model),
                Err(error) => failures.push(Failure::from(
                    anyhow::Error::new(error).context(format!("cannot remove {model}")),
                )),
            }
        }
        if args.json {
            term::json(&json!({ "removed": removed }))?;
        } else if !context.global.quiet {
            for model in removed {
                term::note(format_args!("removed {model}"));
            }
        }
        Failure::together(failures, "models remain")
    })
}
