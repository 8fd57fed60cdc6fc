//! `llmsrv list`

use serde_json::Value;

use crate::{
    cli::ListArgs, connect::Connection, context::Context, failure::Failure, known::keep_named,
    local::Access, overview, term,
};

/// Prints the models, newest first.
pub fn run(context: &Context, args: &ListArgs) -> Result<(), Failure> {
    let mut listed: Value = Connection::with(context, Access::Look, async |connection| {
        Ok(connection.client.get("/api/tags").await?)
    })?;
    keep_named(&mut listed, args.prefix.as_deref().unwrap_or_default());
    if args.json {
        term::json(&listed)?;
    } else {
        term::line(overview::list(listed)?)?;
    }
    Ok(())
}
