//! `llmsrv key`: works on the keys file itself, so it needs no server and no rights but those of
//! the file.

use jiff::Timestamp;
use llmsrv_config::keys::{KeyEntry, KeyFile, Role};
use rand::TryRngCore as _;
use serde_json::json;

use crate::{
    cli::{KeyAction, KeyArgs, RoleArg},
    context::Context,
    failure::Failure,
    format, term,
};

/// Makes, lists or removes keys.
pub fn run(context: &Context, args: KeyArgs) -> Result<(), Failure> {
    let path = &context.config().server.keys_file;
    let file = KeyFile::new(path);
    let quiet = context.global.quiet;
    match args.action {
        KeyAction::Add {
            name,
            role,
            json: as_json,
        } => {
            if name.trim().is_empty() {
                return Err(Failure::usage("a key needs a name"));
            }
            let key = new_key()?;
            let entry = KeyEntry {
                name,
                role: match role {
                    RoleArg::Infer => Role::Infer,
                    RoleArg::Manage => Role::Manage,
                    RoleArg::Admin => Role::Admin,
                },
                sha256: llmsrv_server::keys::digest(key.as_bytes()),
                created: Timestamp::from_second(Timestamp::now().as_second())?.to_string(),
            };
            let shown = json!({ "name": entry.name, "role": entry.role, "key": key });
            file.add(entry)?;
            if as_json {
                term::json(&shown)?;
                return Ok(());
            }
            term::line(&key)?;
            if !quiet {
                term::note("This is the only time the key is shown.");
            }
        }
        KeyAction::List { json: as_json } => list(&file, as_json)?,
        KeyAction::Off { json: as_json } => {
            let were_there = file.remove_all()?;
            if !context.config().server.api_keys.is_empty() {
                return Err(Failure::failed("LLMSRV_API_KEYS has keys as well")
                    .hint("unset it; `llmsrv config` says where it is set"));
            }
            if as_json {
                term::json(&json!({ "removed": were_there }))?;
            } else if !quiet {
                term::note(if were_there {
                    "No keys are wanted any more, once the server is started again: whoever \
                     reaches it can use the models."
                } else {
                    "There are no keys."
                });
            }
        }
        KeyAction::Rm {
            name,
            json: as_json,
        } => {
            let left = file.remove(&name).map_err(|error| {
                Failure::failed(error).hint("`llmsrv key list` shows the names")
            })?;
            if as_json {
                term::json(&json!({ "removed": name, "left": left }))?;
            } else if !quiet {
                term::note(format_args!("removed {name}"));
                if left == 0 {
                    term::note(
                        "No key is left: the server refuses every request until there is one. \
                         `llmsrv key off` serves without keys.",
                    );
                }
            }
        }
    }
    Ok(())
}

fn list(file: &KeyFile, as_json: bool) -> Result<(), Failure> {
    let entries = file.read()?;
    if as_json {
        let keys: Vec<_> = entries
            .iter()
            .flatten()
            .map(|entry| json!({"name": entry.name, "role": entry.role, "created": entry.created}))
            .collect();
        term::json(&json!({ "required": entries.is_some(), "keys": keys }))?;
        return Ok(());
    }
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = entries
        .iter()
        .flatten()
        .map(|entry| {
            let created = entry.created.parse();
            let created = created.map_or_else(|_| "-".to_owned(), |at| format::ago(at, now));
            vec![entry.name.clone(), entry.role.word().to_owned(), created]
        })
        .collect();
    term::line(term::table(&["NAME", "ROLE", "CREATED"], &rows))?;
    Ok(())
}

/// Makes a key that nobody can guess: 192 random bits, with a start that scanners for secrets and
/// people recognise.
fn new_key() -> Result<String, Failure> {
    let (mut start, mut end) = ([0; 16], [0; 8]);
    rand::rngs::OsRng.try_fill_bytes(&mut start)?;
    rand::rngs::OsRng.try_fill_bytes(&mut end)?;
    let (start, end) = (u128::from_ne_bytes(start), u64::from_ne_bytes(end));
    Ok(format!("llmsrv_{start:032x}{end:016x}"))
}
