//! `llmsrv show`

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    cli::ShowArgs,
    connect::{Connection, runtime},
    context::Context,
    failure::Failure,
    local::Access,
    logging,
    overview::overview,
    term,
};

/// Prints what is known of a model, or one part of it.
pub fn run(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let shown: Value = runtime()?.block_on(async {
        let connection = Connection::open(context, Access::Look).await?;
        let request = json!({ "model": args.model, "verbose": args.verbose });
        let shown = connection.client.post("/api/show", &request).await;
        connection.close().await;
        Ok::<_, Failure>(shown.with_context(|| format!("cannot show {}", args.model))?)
    })?;
    if args.json {
        term::json(&shown)?;
        return Ok(());
    }
    let parts = [
        (args.modelfile, "modelfile"),
        (args.parameters, "parameters"),
        (args.template, "template"),
        (args.system, "system"),
        (args.license, "license"),
    ];
    match parts.iter().find(|(wanted, _)| *wanted) {
        Some((_, part)) => {
            let text = shown[part].as_str().unwrap_or_default();
            if text.is_empty() {
                term::note(format_args!("{} has no {part}", args.model));
            } else {
                term::line(text.trim_end_matches('\n'))?;
            }
        }
        None => term::line(overview(&shown, args.verbose))?,
    }
    Ok(())
}
