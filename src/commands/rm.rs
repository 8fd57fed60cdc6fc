//! `llmsrv rm`

use serde_json::json;

use crate::{
    cli::RmArgs,
    connect::{Connection, runtime},
    context::Context,
    failure::{Code, Failure},
    local::Access,
    logging, term,
};

/// Removes models. One that cannot be removed does not keep the others.
pub fn run(context: &Context, args: &RmArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    runtime()?.block_on(async {
        let connection = Connection::open(context, Access::Use).await?;
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
        connection.close().await;
        if args.json {
            term::json(&json!({ "removed": removed }))?;
        } else if !context.global.quiet {
            for model in removed {
                term::note(format_args!("removed {model}"));
            }
        }
        let several = failures.len() > 1;
        match failures.pop() {
            None => Ok(()),
            Some(failure) if !several => Err(failure),
            Some(last) => {
                failures.push(last);
                let lines: Vec<String> = failures
                    .iter()
                    .map(|failure| format!("\n  {failure}"))
                    .collect();
                Err(Failure::new(
                    Code::Failed,
                    format!("{} models remain:{}", lines.len(), lines.concat()),
                ))
            }
        }
    })
}
