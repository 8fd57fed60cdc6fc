//! `logkit completions`, and what is offered while typing.

use std::{collections::BTreeSet, ffi::OsStr};

use clap_complete::{CompletionCandidate, env::Shells};
use llmsrv_config::{Inputs, Request};
use logkit::query::{Filter, Reader};

use crate::{failure::Failure, render};

/// Newest entries that are looked at for names; a shell asks at every key.
const RECENT: usize = 2000;

/// Prints the script that makes a shell of this name ask this program what can follow.
pub(crate) fn script(shell: &str) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell)
        .ok_or_else(|| Failure::Other(format!("no completions are known for {shell}")))?;
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "logkit", "logkit", "logkit", &mut script)?;
    render::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(())
}

/// Returns the functions of the usual database whose name starts with what is typed.
pub(crate) fn functions(typed: &OsStr) -> Vec<CompletionCandidate> {
    values(typed, |entry| entry.function_name.into_owned())
}

/// Returns the environments of the usual database.
pub(crate) fn environments(typed: &OsStr) -> Vec<CompletionCandidate> {
    values(typed, |entry| entry.environment.into_owned())
}

/// Returns the traces of the usual database.
pub(crate) fn traces(typed: &OsStr) -> Vec<CompletionCandidate> {
    values(typed, |entry| entry.trace_id.into_owned())
}

fn values(typed: &OsStr, of: impl Fn(logkit::Entry) -> String) -> Vec<CompletionCandidate> {
    // What is wrong is reported by commands, not while typing.
    let rows = Inputs::from_process(Request::default())
        .and_then(|inputs| llmsrv_config::load(&inputs))
        .ok()
        .map(|loaded| loaded.config.logkit.db)
        .filter(|path| path.exists())
        .and_then(|path| Reader::open(path, "logs").ok())
        .and_then(|reader| {
            let recent = Filter {
                limit: Some(RECENT),
                ..Filter::default()
            };
            reader.rows(&recent).ok()
        });
    let (Some(typed), Some(rows)) = (typed.to_str(), rows) else {
        return Vec::new();
    };
    let names: BTreeSet<String> = rows.into_iter().map(|row| of(row.entry)).collect();
    names
        .into_iter()
        .filter(|name| !name.is_empty() && name.starts_with(typed))
        .map(CompletionCandidate::new)
        .collect()
}
