//! `llmsrv config`: every setting, its value and where it came from.

use llmsrv_config::{Origin, Redaction, Resolved, Status, Value, render};
use serde_json::json;

use crate::{
    cli::{ConfigAction, ConfigArgs, GlobalArgs},
    context::{self, Context},
    failure::Failure,
    term,
};

/// Prints settings, checks them, or says where they are.
pub fn run(global: GlobalArgs, args: &ConfigArgs) -> Result<(), Failure> {
    match args.action {
        // Must work however wrong the file is.
        Some(ConfigAction::Path) => {
            term::line(context::request(&global)?.settings_file().display())?;
        }
        Some(ConfigAction::Check { json: as_json }) => {
            let context = Context::load(global, Vec::new())?;
            let warnings = &context.loaded.warnings;
            if as_json {
                let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
                term::json(&json!({ "file": context.loaded.file, "warnings": warnings }))?;
                return Ok(());
            }
            let from = context.loaded.file.as_ref();
            let file = from.map_or_else(
                || "no settings file".to_owned(),
                |path| path.display().to_string(),
            );
            let verdict = if warnings.is_empty() {
                "no mistakes"
            } else {
                "no mistakes, but see the warnings"
            };
            term::line(format_args!("{verdict} ({file})"))?;
        }
        None => {
            let context = Context::load(global, Vec::new())?;
            let changed = |row: &&Resolved| !args.changed || row.origin != Origin::Default;
            let rows: Vec<&Resolved> = context.loaded.settings.iter().filter(changed).collect();
            if args.json {
                let settings: Vec<_> = rows.iter().map(|row| as_json(row)).collect();
                term::json(&json!({ "file": context.loaded.file, "settings": settings }))?;
            } else {
                let rows: Vec<Vec<String>> = rows.iter().map(|row| as_cells(row)).collect();
                term::line(term::table(&["SETTING", "VALUE", "ORIGIN"], &rows))?;
            }
        }
    }
    Ok(())
}

fn as_cells(row: &Resolved) -> Vec<String> {
    let setting = row.setting;
    let value = row.show();
    let value = if value.is_empty() {
        "-".to_owned()
    } else {
        value
    };
    let effect = match setting.status {
        Status::Active => "",
        Status::Ignored(_) => " (ignored)",
    };
    vec![
        setting.path().unwrap_or_else(|| setting.name.to_owned()),
        value,
        format!("{}{effect}", row.origin),
    ]
}

fn as_json(row: &Resolved) -> serde_json::Value {
    let setting = row.setting;
    let value = match (setting.secrecy, &row.value) {
        (_, Value::Unset) => json!(null),
        (Redaction::Open, Value::Switch(on)) => json!(on),
        (Redaction::Open, Value::Integer(number)) => json!(number),
        (Redaction::Open, Value::Bytes(bytes)) => json!(bytes),
        (Redaction::Open, Value::List(items)) => json!(items),
        _ => json!(row.show()),
    };
    json!({
        "name": setting.name,
        "aliases": setting.aliases,
        "key": setting.path(),
        "kind": render::kind_word(setting.kind),
        "value": value,
        "default": render::default_text(setting),
        "origin": row.origin.to_string(),
        "ignored": match setting.status {
            Status::Active => None,
            Status::Ignored(why) => Some(why),
        },
        "help": setting.help,
    })
}
