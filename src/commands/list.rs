//! `llmsrv list`

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::ListArgs, connect::Connection, context::Context, failure::Failure, format, local::Access,
    term,
};

/// Prints the models, newest first.
pub fn run(context: &Context, args: &ListArgs) -> Result<(), Failure> {
    let prefix = args.prefix.as_deref().unwrap_or_default().to_lowercase();
    let mut listed: Value = Connection::with(context, Access::Look, async |connection| {
        Ok(connection.client.get("/api/tags").await?)
    })?;
    if let Some(models) = listed["models"].as_array_mut() {
        models.retain(|model| {
            model["name"]
                .as_str()
                .unwrap_or_default()
                .to_lowercase()
                .starts_with(&prefix)
        });
    }
    if args.json {
        term::json(&listed)?;
        return Ok(());
    }
    let listed: Listed = serde_json::from_value(listed)?;
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = listed
        .models
        .iter()
        .map(|model| {
            let id = model.digest.chars().take(12).collect();
            let modified = model
                .modified_at
                .parse()
                .map_or_else(|_| "-".to_owned(), |at| format::ago(at, now));
            vec![model.name.clone(), id, format::size(model.size), modified]
        })
        .collect();
    term::line(term::table(&["NAME", "ID", "SIZE", "MODIFIED"], &rows))?;
    Ok(())
}

/// What is printed of the answer; a server of another kind may leave fields out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Listed {
    models: Vec<Model>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    name: String,
    digest: String,
    size: u64,
    modified_at: String,
}
