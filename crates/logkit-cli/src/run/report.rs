//! The entry of a command.

use std::{borrow::Cow, os::unix::process::ExitStatusExt, sync::Arc, time::Duration};

use llmsrv_config::LogkitConfig;
use logkit::{Entry, Level, Redactor, Timestamp, repr};
use serde_json::{Map, Value};

use super::{
    child::{self, Plan},
    language,
    relay::Ended,
    span::Span,
};
use crate::args::RunArgs;

/// The module of all commands.
pub(crate) const MODULE: &str = "cli";
/// Characters of output that the result and the error have; `extra` has more.
const SHOWN: usize = 2000;

/// Characters of arguments that are kept: enough to type the command again.
const MOST_ARGUMENTS: usize = 64 * 1024;

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
    redactor: Option<Arc<Redactor>>,
    extra: Map<String, Value>,
    /// The time that the command had.
    timeout: Option<Duration>,
}

impl Report {
    /// Notes what is known before the command runs.
    pub(crate) fn new(args: &RunArgs, config: &LogkitConfig, plan: &Plan) -> Report {
        let redactor = config.redact.then(Redactor::shared);
        let language = language::language(&plan.command, child::find(plan));
        let environment = args
            .env
            .clone()
            .or_else(|| config.env.clone())
            .unwrap_or_else(|| "local".to_owned());
        let words: Vec<_> = plan
            .args
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let words = match &redactor {
            Some(redactor) => redactor.redact_command(&plan.command.to_string_lossy(), &words),
            None => words.into_iter().map(Cow::into_owned).collect(),
        };
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
        let kwargs = [("language", language), ("env", &environment)];
        let entry = Entry {
            function_name: command.into(),
            module: MODULE.into(),
            args: repr::truncate(&repr::repr_tuple(&words), MOST_ARGUMENTS).into(),
            kwargs: repr::repr_dict(kwargs).into(),
            arg_types: types.join(", ").into(),
            kwarg_types: "{'language': 'str', 'env': 'str'}".into(),
            environment: environment.into(),
            ..Entry::default()
        };
        Report {
            entry,
            redactor,
            extra,
            timeout: args.timeout,
        }
    }

    /// Adds when it began, how it went and how long it took.
    pub(crate) fn finish(
        self,
        outcome: Outcome,
        code: i32,
        timestamp: Timestamp,
        took: Duration,
        span: &Span,
    ) -> Entry {
        let mut entry = Entry {
            timestamp,
            trace_id: span.trace_id.clone().into(),
            version: span.version.clone().into(),
            span_id: Some(span.id),
            parent_id: span.parent_id,
            duration_ms: Some(took.as_secs_f64() * 1e3),
            ..self.entry
        };
        let mut extra = self.extra;
        let scrubbed = |text| scrubbed(self.redactor.as_deref(), text);
        entry.level = if code == 0 { Level::Info } else { Level::Error };
        entry.return_type = "NoneType".into();
        extra.insert("returncode".into(), code.into());
        match outcome {
            Outcome::NotStarted(kind, why) => {
                entry.exception_type = kind.into();
                entry.exception = capitalised(&scrubbed(why)).into();
            }
            Outcome::Ended(ended) => {
                let stdout = scrubbed(ended.stdout.text);
                let stderr = scrubbed(ended.stderr.text);
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
                    (
                        "truncated",
                        ended.stdout.truncated || ended.stderr.truncated,
                    ),
                    ("lossy", ended.stdout.lossy || ended.stderr.lossy),
                ];
                for (name, _) in facts.iter().filter(|(_, is_so)| *is_so) {
                    extra.insert((*name).into(), true.into());
                }
                if ended.stdout.truncated || ended.stderr.truncated {
                    extra.extend(bytes.map(|(name, bytes)| (name.to_owned(), bytes.into())));
                }
                if let Some(limit) = ended.timed_out.then_some(self.timeout).flatten() {
                    entry.exception_type = "TimeoutError".into();
                    let said = std::mem::take(&mut entry.exception);
                    let seconds = limit.as_secs_f64();
                    entry.exception = match said.trim_end() {
                        "" => format!("timed out after {seconds} s").into(),
                        said => format!("timed out after {seconds} s: {said}").into(),
                    };
                }
            }
        }
        entry.extra = extra;
        if let Some(redactor) = &self.redactor {
            redactor.redact_entry(&mut entry);
        }
        entry
    }
}

fn scrubbed(redactor: Option<&Redactor>, text: String) -> String {
    let clean = redactor.map(|redactor| redactor.redact_string(&text));
    match clean {
        Some(Cow::Owned(clean)) => clean,
        _ => text,
    }
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
