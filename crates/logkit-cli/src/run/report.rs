//! The entry of a command.

use std::{borrow::Cow, ffi::OsStr, time::Duration};

use llmsrv_config::LogkitConfig;
use logkit::{Entry, Level, Redactor, repr};
use serde_json::{Map, Value};

use super::{
    child::{self, Plan},
    language,
    relay::Ended,
};
use crate::args::RunArgs;

/// The module of all commands.
pub(crate) const MODULE: &str = "cli";
/// Characters of output that the result and the error have; `extra` has more.
const SHOWN: usize = 2000;

/// How it went.
pub(crate) enum Outcome {
    /// It ran.
    Ended(Ended),
    /// It did not: type and text of the error.
    NotStarted(&'static str, String),
}

/// What becomes the entry.
pub(crate) struct Report {
    entry: Entry,
    redactor: Option<Redactor>,
    extra: Map<String, Value>,
}

impl Report {
    /// Notes what is known before the command runs.
    pub(crate) fn new(args: &RunArgs, config: &LogkitConfig, plan: &Plan) -> Report {
        let redactor = config.redact.then(Redactor::default);
        let language = language::language(&plan.command, child::find(plan));
        let environment = args
            .env
            .clone()
            .or_else(|| config.environment.clone())
            .unwrap_or_else(|| "local".to_owned());
        let words = redacted(&plan.args, redactor.as_ref());
        let command = plan.command.to_string_lossy().into_owned();
        let mut extra = Map::new();
        let line = std::iter::once(&command).chain(&words);
        let line: Vec<&str> = line.map(String::as_str).collect();
        extra.insert("cmd".into(), line.join(" ").into());
        extra.insert("language".into(), language.into());
        let cwd = match &plan.cwd {
            Some(cwd) => cwd.canonicalize(),
            None => std::env::current_dir(),
        };
        if let Ok(cwd) = cwd {
            extra.insert("cwd".into(), cwd.to_string_lossy().into());
        }
        let types = vec!["str"; words.len()];
        let kwargs = [
            ("language", repr::repr_str(language)),
            ("env", repr::repr_str(&environment)),
        ];
        let entry = Entry {
            function_name: command.into(),
            module: MODULE.into(),
            args: repr::repr_tuple(&words.iter().map(|word| repr::repr_str(word)).collect::<Vec<_>>()).into(),
            kwargs: repr::repr_dict(&kwargs).into(),
            arg_types: types.join(", ").into(),
            kwarg_types: "{'language': 'str', 'env': 'str'}".into(),
            environment: environment.into(),
            ..Entry::default()
        };
        Report {
            entry,
            redactor,
            extra,
        }
    }

    /// Adds how it went.
    pub(crate) fn finish(&mut self, outcome: Outcome, code: i32, took: Duration) -> Entry {
        let mut entry = std::mem::take(&mut self.entry);
        let mut extra = std::mem::take(&mut self.extra);
        entry.level = if code == 0 { Level::Info } else { Level::Error };
        entry.duration_ms = Some(took.as_secs_f64() * 1e3);
        entry.return_type = "NoneType".into();
        extra.insert("returncode".into(), code.into());
        match outcome {
            Outcome::NotStarted(kind, why) => {
                entry.exception_type = kind.into();
                entry.exception = capitalised(&self.scrubbed(why)).into();
            }
            Outcome::Ended(ended) => {
                use std::os::unix::process::ExitStatusExt;
                let stdout = self.scrubbed(ended.stdout.text);
                let stderr = self.scrubbed(ended.stderr.text);
                if !stdout.is_empty() {
                    entry.return_value = repr::repr_str(first(&stdout)).into();
                    entry.return_type = "str".into();
                }
                if code != 0 {
                    entry.exception_type = "ProcessError".into();
                    entry.exception = first(&stderr).to_owned().into();
                }
                if let Some(signal) = ended.status.signal() {
                    extra.insert("signal".into(), signal.into());
                }
                let bytes = [
                    ("stdout_bytes", ended.stdout.total_bytes),
                    ("stderr_bytes", ended.stderr.total_bytes),
                ];
                extra.insert("stdout".into(), stdout.into());
                extra.insert("stderr".into(), stderr.into());
                let facts = [
                    ("timed_out", ended.timed_out),
                    ("truncated", ended.stdout.truncated || ended.stderr.truncated),
                    ("lossy", ended.stdout.lossy || ended.stderr.lossy),
                ];
                for (name, _) in facts.iter().filter(|(_, is_so)| *is_so) {
                    extra.insert((*name).into(), true.into());
                }
                if ended.stdout.truncated || ended.stderr.truncated {
                    extra.extend(bytes.map(|(name, bytes)| (name.to_owned(), bytes.into())));
                }
                if ended.timed_out {
                    entry.exception_type = "TimeoutError".into();
                }
            }
        }
        entry.extra = extra;
        entry
    }

    fn scrubbed(&self, text: String) -> String {
        match &self.redactor {
            Some(redactor) => match redactor.text(&text) {
                Cow::Borrowed(_) => text,
                Cow::Owned(clean) => clean,
            },
            None => text,
        }
    }
}

/// Returns the arguments as text, secrets blanked: those in one word, `--token=x`, and those that
/// follow their name, `--token x`.
fn redacted(args: &[std::ffi::OsString], redactor: Option<&Redactor>) -> Vec<String> {
    let words = args.iter().map(|word| lossy(word));
    let Some(redactor) = redactor else {
        return words.map(Cow::into_owned).collect();
    };
    let mut follows_name = false;
    words
        .map(|word| {
            let name = word.strip_prefix('-').map(|name| name.trim_start_matches('-'));
            let is_option = name.is_some();
            if follows_name && !is_option {
                follows_name = false;
                return logkit::REDACTED.to_owned();
            }
            follows_name =
                name.is_some_and(|name| !name.contains('=') && redactor.is_sensitive_key(name));
            redactor.text(&word).into_owned()
        })
        .collect()
}

fn lossy(word: &OsStr) -> Cow<'_, str> {
    word.to_string_lossy()
}

fn first(text: &str) -> &str {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
