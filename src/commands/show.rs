//! `llmsrv show`

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::{
    cli::ShowArgs, connect::Connection, context::Context, failure::Failure, local::Access,
    overview::overview, term,
};

/// Prints what is known of a model, or one part of it.
pub fn run(context: &Context, args: &ShowArgs) -> Result<(), Failure> {
    let shown: Value = Connection::with(context, Access::Look, async |connection| {
        let request = json!({ "model": args.model, "verbose": args.verbose });
        let shown = connection.client.post("/api/show", &request).await;
        Ok(shown.with_context(|| format!("cannot show {}", args.model))?)
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
