//! A call as services speak of it, and the entry that the database holds: both directions.

use std::{borrow::Cow, fmt::Write as _};

use logkit::{Entry, Level, Redactor, Timestamp, query::Row, repr};
use serde_json::{Map, Value};

/// What a request wants to be stored.
pub(crate) enum Logged {
    /// A call of a command or function.
    Call(Box<Call>),
    /// An entry that a logger made.
    Full(Box<Full>),
}

/// A call of a command or function.
pub(crate) struct Call {
    pub(crate) cmd: String,
    pub(crate) args: Vec<Value>,
    pub(crate) language: String,
    pub(crate) env: String,
    pub(crate) level: Level,
    pub(crate) duration_ms: f64,
    pub(crate) output: Option<String>,
    /// Empty if there was none.
    pub(crate) error: String,
    pub(crate) trace_id: String,
    pub(crate) version: String,
    pub(crate) timestamp: Option<Timestamp>,
    /// Instead of `cmd`.
    pub(crate) function_name: Option<String>,
    /// Instead of the language.
    pub(crate) module: Option<String>,
    pub(crate) extra: Map<String, Value>,
}

/// An entry that a logger made, by its columns; checked.
pub(crate) struct Full(pub(crate) Map<String, Value>);

impl Logged {
    /// The entry, and what its reply repeats: the command and the language.
    pub(crate) fn into_entry(self, redactor: Option<&Redactor>) -> (Entry, String, String) {
        match self {
            Logged::Call(mut call) => {
                call.blank(redactor);
                let (cmd, language) = (call.cmd.clone(), call.language.clone());
                (call.into_entry(), cmd, language)
            }
            Logged::Full(full) => {
                let entry = full.into_entry();
                let names = (entry.function_name.to_string(), entry.module.to_string());
                (entry, names.0, names.1)
            }
        }
    }
}

/// Reads a moment; a `+` that became a blank in an address is one again.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let (date, zone) = text.trim().rsplit_once(' ')?;
        format!("{date}+{zone}").parse().ok()
    })
}

impl Full {
    fn into_entry(self) -> Entry {
        let mut map = self.0;
        if let Some(Value::Array(args)) = map.get("args") {
            let text = tuple(args);
            map.insert("args".into(), text.into());
        }
        if let Some(text) = map.get("timestamp").and_then(Value::as_str) {
            let moment = moment(text).unwrap_or_else(Timestamp::now);
            map.insert("timestamp".into(), moment.to_string().into());
        }
        let mut entry = Entry::from_json(map);
        entry.exception = cut(entry.exception.into_owned()).into();
        entry
    }
}

impl Call {
    /// Blanks arguments that follow the name of a secret: `--token x`. Secrets within texts are
    /// found later, in the entry.
    pub(crate) fn blank(&mut self, redactor: Option<&Redactor>) {
        let Some(redactor) = redactor else {
            return;
        };
        let texts: Vec<Cow<'_, str>> = self
            .args
            .iter()
            .map(|arg| match arg {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                other => Cow::Owned(other.to_string()),
            })
            .collect();
        let blanked = redactor.redact_command(&self.cmd, &texts);
        let changed: Vec<bool> = texts.iter().zip(&blanked).map(|(a, b)| a != b).collect();
        for ((arg, text), changed) in self.args.iter_mut().zip(blanked).zip(changed) {
            if changed {
                *arg = text.into();
            }
        }
    }

    /// The entry of a call (`docs/contracts/logkit.md` 7): the command is the function, the language
    /// the module.
    pub(crate) fn into_entry(self) -> Entry {
        let kwargs = repr::repr_dict([("language", &self.language), ("env", &self.env)]);
        self.with_kwargs(kwargs)
    }

    /// As [`Call::into_entry`], with the rest of what was said among the named arguments.
    pub(crate) fn into_entry_with_extra(self) -> Entry {
        let base = [("language", &self.language), ("env", &self.env)];
        let base = base.map(|(key, value)| (key, value.as_str()));
        let extra = self.extra.iter().map(|(key, value)| {
            let text = value.as_str().unwrap_or_default();
            (key.as_str(), text)
        });
        let kwargs = repr::repr_dict(base.into_iter().chain(extra));
        self.with_kwargs(kwargs)
    }

    fn with_kwargs(self, kwargs: String) -> Entry {
        let mut entry = Entry {
            level: self.level,
            args: tuple(&self.args).into(),
            kwargs: kwargs.into(),
            function_name: self.function_name.unwrap_or(self.cmd).into(),
            module: self.module.unwrap_or(self.language).into(),
            duration_ms: Some(self.duration_ms),
            environment: self.env.into(),
            trace_id: self.trace_id.into(),
            version: self.version.into(),
            ..Entry::default()
        };
        if let Some(timestamp) = self.timestamp {
            entry.timestamp = timestamp;
        }
        if let Some(output) = self.output {
            entry.return_value = repr::repr_str(&output).into();
        }
        if !self.error.is_empty() {
            entry.exception = cut(self.error).into();
            entry.exception_type = "RemoteError".into();
        }
        if !self.extra.is_empty() {
            entry.set_full_extra(self.extra);
        }
        entry
    }
}

fn tuple(args: &[Value]) -> String {
    if args.is_empty() {
        return "()".into();
    }
    let items: Vec<String> = args.iter().map(repr::repr_json).collect();
    repr::repr_items(&items)
}

/// Messages of errors are kept up to 64 KiB.
pub(crate) fn cut(mut message: String) -> String {
    const LIMIT: usize = 64 << 10;
    if message.len() > LIMIT {
        let n_before = message.chars().count();
        message.truncate(message.floor_char_boundary(LIMIT));
        let n_cut = n_before - message.chars().count();
        let _ = write!(message, "... [truncated {n_cut} chars]");
    }
    message
}

/// The arguments of an entry, those that are texts without their quotes. What cannot be taken
/// apart is one argument.
pub(crate) fn args_of(entry: &Entry) -> Vec<String> {
    repr::parse_tuple(&entry.args).unwrap_or_else(|| vec![entry.args.to_string()])
}

/// What a call gave: a text without its quotes, nothing for `None`.
pub(crate) fn output_of(entry: &Entry) -> String {
    if entry.return_value == "None" {
        return String::new();
    }
    repr::parse_str(&entry.return_value).unwrap_or_else(|| entry.return_value.to_string())
}

/// A row as HTTP shows it: all columns.
pub(crate) fn row_json(row: &Row) -> Value {
    let entry = &row.entry;
    let mut map = Map::with_capacity(Entry::COLUMNS.len() + 4);
    map.insert("id".into(), row.id.into());
    for (name, value) in entry.as_json() {
        if name != "extra" {
            map.insert(name, value);
        }
    }
    map.insert("extra".into(), Value::Object(entry.extra.clone()));
    for (name, id) in [("span_id", entry.span_id), ("parent_id", entry.parent_id)] {
        let text = id.map(|id| id.to_string()).unwrap_or_default();
        map.insert(name.into(), text.into());
    }
    Value::Object(map)
}
