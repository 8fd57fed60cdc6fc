//! `llmsrv default`

use anyhow::Context as _;
use serde_json::json;

use crate::{
    cli::DefaultArgs,
    connect::Connection,
    context::Context,
    failure::Failure,
    known::{self, Known},
    local::Access,
    term,
};

/// Says which model is meant by `default`, or chooses another one.
pub fn run(context: &Context, args: &DefaultArgs) -> Result<(), Failure> {
    let access = match args.model {
        Some(_) => Access::Use,
        None => Access::Look,
    };
    let default = Connection::with(context, access, async |connection| {
        choose(connection, args.model.as_deref()).await
    })?;
    if args.json {
        term::json(&json!({ "default": default.name() }))?;
        return Ok(());
    }
    match &args.model {
        None => term::line(default.name())?,
        Some(_) if context.global.quiet => {}
        Some(model) => {
            term::note(format_args!("default is {}", default.name()));
            if let Some(remark) = default.remark() {
                term::note(remark);
            }
            let chosen = model.strip_suffix(":latest").unwrap_or(model);
            if !chosen.eq_ignore_ascii_case(default.name()) && !known::is_default(model) {
                term::warning(
                    "LLMSRV_DEFAULT_MODEL, a setting of the server, is stronger than this choice",
                );
            }
        }
    }
    Ok(())
}

async fn choose(connection: &Connection, model: Option<&str>) -> Result<Known, Failure> {
    let client = &connection.client;
    if let Some(model) = model {
        let chosen = client.copy(model, "default").await;
        chosen.with_context(|| format!("cannot make {model} the default"))?;
    }
    let known = Known::ask(client, "default").await;
    Ok(known.context("no model is the default")?)
}
