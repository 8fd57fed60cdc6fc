//! One logged call.

use std::{borrow::Cow, fmt, num::NonZeroU64, str::FromStr};

use serde_json::{Map, Value};

use crate::{Level, Timestamp};

/// Text of an entry; what the program knows before it runs is not copied.
pub type Text = Cow<'static, str>;

/// One logged call. All values are rendered text, already redacted and truncated.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When the call began or the event happened.
    pub timestamp: Timestamp,
    /// How grave it is.
    pub level: Level,
    /// Qualified name: `Type::method`, `Class.method`.
    pub function_name: Text,
    /// Module of the function.
    pub module: Text,
    /// The positional arguments: `(3, 7)`, `(1,)`, `()`.
    pub args: Text,
    /// The named arguments: `{'name': 'x'}`.
    pub kwargs: Text,
    /// Type names joined by `, `.
    pub arg_types: Text,
    /// Names and types: `{'name': 'str'}`.
    pub kwarg_types: Text,
    /// What the call returned, or `None`.
    pub return_value: Text,
    /// Type of what the call returned.
    pub return_type: Text,
    /// Message of the error.
    pub exception: Text,
    /// Type of the error.
    pub exception_type: Text,
    /// Place of the error in the source, or the stack that led to it.
    pub traceback: Text,
    /// How long the call took, in milliseconds; `None` = not measured, or no call.
    pub duration_ms: Option<f64>,
    /// Where the program ran: `production`, `docker`, `local`.
    pub environment: Text,
    /// Trace the call belongs to.
    pub trace_id: Text,
    /// Version of the program.
    pub version: Text,
    /// What a model says about the error.
    pub llm_analysis: Text,
    /// The call itself within its trace.
    pub span_id: Option<SpanId>,
    /// The call around it.
    pub parent_id: Option<SpanId>,
    /// Fields that have no column: those of the attribute, of the scope and of sinks.
    pub extra: Map<String, Value>,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry {
            timestamp: Timestamp::now(),
            ..Entry::blank()
        }
    }
}

impl Entry {
    /// An empty entry of that moment.
    #[inline]
    pub fn at(timestamp: Timestamp) -> Entry {
        Entry {
            timestamp,
            ..Entry::blank()
        }
    }

    /// An empty entry at 1970: for whoever sets the time.
    pub(crate) fn blank() -> Entry {
        const EMPTY: Text = Cow::Borrowed("");
        Entry {
            timestamp: Timestamp::default(),
            level: Level::Info,
            function_name: EMPTY,
            module: EMPTY,
            args: Cow::Borrowed("()"),
            kwargs: Cow::Borrowed("{}"),
            arg_types: EMPTY,
            kwarg_types: Cow::Borrowed("{}"),
            return_value: Cow::Borrowed("None"),
            return_type: EMPTY,
            exception: EMPTY,
            exception_type: EMPTY,
            traceback: EMPTY,
            duration_ms: None,
            environment: EMPTY,
            trace_id: EMPTY,
            version: EMPTY,
            llm_analysis: EMPTY,
            span_id: None,
            parent_id: None,
            extra: Map::new(),
        }
    }
}

impl Entry {
    /// The columns, in the order used everywhere.
    pub const COLUMNS: [&str; 18] = [
        "timestamp",
        "level",
        "function_name",
        "module",
        "args",
        "kwargs",
        "arg_types",
        "kwarg_types",
        "return_value",
        "return_type",
        "exception",
        "exception_type",
        "traceback",
        "duration_ms",
        "environment",
        "trace_id",
        "version",
        "llm_analysis",
    ];

    /// The texts with the names of their columns: all columns but the time, the level and the
    /// duration.
    pub fn texts(&self) -> [(&'static str, &str); 15] {
        [
            ("function_name", &*self.function_name),
            ("module", &*self.module),
            ("args", &*self.args),
            ("kwargs", &*self.kwargs),
            ("arg_types", &*self.arg_types),
            ("kwarg_types", &*self.kwarg_types),
            ("return_value", &*self.return_value),
            ("return_type", &*self.return_type),
            ("exception", &*self.exception),
            ("exception_type", &*self.exception_type),
            ("traceback", &*self.traceback),
            ("environment", &*self.environment),
            ("trace_id", &*self.trace_id),
            ("version", &*self.version),
            ("llm_analysis", &*self.llm_analysis),
        ]
    }

    /// The text of that column, to be changed; `None` for the time, the level, the duration and
    /// names that are no column.
    pub fn text_mut(&mut self, column: &str) -> Option<&mut Text> {
        Some(match column {
            "function_name" => &mut self.function_name,
            "module" => &mut self.module,
            "args" => &mut self.args,
            "kwargs" => &mut self.kwargs,
            "arg_types" => &mut self.arg_types,
            "kwarg_types" => &mut self.kwarg_types,
            "return_value" => &mut self.return_value,
            "return_type" => &mut self.return_type,
            "exception" => &mut self.exception,
            "exception_type" => &mut self.exception_type,
            "traceback" => &mut self.traceback,
            "environment" => &mut self.environment,
            "trace_id" => &mut self.trace_id,
            "version" => &mut self.version,
            "llm_analysis" => &mut self.llm_analysis,
            _ => return None,
        })
    }

    /// The value of that column as text; a missing duration is empty. `None` for names that are no
    /// column.
    pub fn get(&self, column: &str) -> Option<Cow<'_, str>> {
        Some(match column {
            "timestamp" => self.timestamp.to_string().into(),
            "level" => self.level.as_str().into(),
            "duration_ms" => self
                .duration_ms
                .map_or_else(String::new, |ms| ms.to_string())
                .into(),
            _ => {
                let (_, text) = self.texts().into_iter().find(|(name, _)| *name == column)?;
                text.into()
            }
        })
    }

    /// What is beside the columns, span ids included.
    pub fn full_extra(&self) -> Map<String, Value> {
        let mut extra = self.extra.clone();
        for (name, id) in [("span_id", self.span_id), ("parent_id", self.parent_id)] {
            if let Some(id) = id {
                extra.insert(name.into(), id.to_string().into());
            }
        }
        extra
    }

    /// True if there is something beside the columns.
    pub fn has_extra(&self) -> bool {
        !self.extra.is_empty() || self.span_id.is_some() || self.parent_id.is_some()
    }

    /// The columns in order, then `extra` unless it is empty. All values are strings but
    /// `duration_ms`, a number or null.
    pub fn as_json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        for column in Entry::COLUMNS {
            let value = if column == "duration_ms" {
                self.duration_ms.map_or(Value::Null, Value::from)
            } else {
                self.get(column).map_or(Value::Null, Value::from)
            };
            map.insert(column.into(), value);
        }
        if self.has_extra() {
            map.insert("extra".into(), Value::Object(self.full_extra()));
        }
        map
    }

    /// Reads what [`Entry::as_json`] wrote. Missing columns get the values of an empty entry, and
    /// unknown keys go to `extra`; what has the wrong type is kept as its JSON text.
    pub fn from_json(map: Map<String, Value>) -> Entry {
        let mut entry = Entry::default();
        for (key, value) in map {
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("timestamp", Value::String(text)) => {
                    if let Ok(timestamp) = text.parse() {
                        entry.timestamp = timestamp;
                    }
                }
                ("level", Value::String(text)) => entry.level = Level::parse(&text),
                ("duration_ms", value) => entry.duration_ms = value.as_f64(),
                ("extra", Value::Object(extra)) => entry.set_full_extra(extra),
                (_, value) => match (entry.text_mut(&key), value) {
                    (Some(text), Value::String(value)) => *text = value.into(),
                    (Some(text), value) => *text = value.to_string().into(),
                    (None, value) => {
                        entry.extra.insert(key, value);
                    }
                },
            }
        }
        entry
    }

    /// Sets what [`Entry::full_extra`] gave: span ids and everything else.
    pub fn set_full_extra(&mut self, mut extra: Map<String, Value>) {
        for (name, id) in [
            ("span_id", &mut self.span_id),
            ("parent_id", &mut self.parent_id),
        ] {
            let parsed = extra
                .get(name)
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok());
            if parsed.is_some() {
                *id = parsed;
                extra.shift_remove(name);
            }
        }
        self.extra = extra;
    }

    /// Short keys, what is empty left out: for prompts.
    pub fn as_compact(&self) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |key: &str, text: &str, empty: &str| {
            if !text.is_empty() && text != empty {
                map.insert(key.into(), text.into());
            }
        };
        put("fn", &self.function_name, "");
        put("lvl", self.level.as_str(), "");
        put("mod", &self.module, "");
        put("a", &self.args, "()");
        put("kw", &self.kwargs, "{}");
        put("ret", &self.return_value, "None");
        put("rt", &self.return_type, "");
        put("err", &self.exception, "");
        put("et", &self.exception_type, "");
        if let Some(ms) = self.duration_ms {
            map.insert("ms".into(), ms.into());
        }
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                map.insert(key.into(), text.into());
            }
        };
        put("env", &self.environment);
        put("tid", &self.trace_id);
        map
    }

    /// Bytes of memory that the entry holds, about.
    pub fn size_bytes(&self) -> usize {
        /// A member of an object: its name, its hash and its place in the index.
        const MEMBER: usize = 48;
        fn owned(text: &Text) -> usize {
            match text {
                Cow::Borrowed(_) => 0,
                Cow::Owned(text) => text.capacity(),
            }
        }
        fn json(value: &Value) -> usize {
            size_of::<Value>()
                + match value {
                    Value::String(text) => text.capacity(),
                    Value::Array(values) => values.iter().map(json).sum(),
                    Value::Object(map) => map
                        .iter()
                        .map(|(key, value)| MEMBER + key.len() + json(value))
                        .sum(),
                    _ => 0,
                }
        }
        let extra: usize = self
            .extra
            .iter()
            .map(|(key, value)| MEMBER + key.len() + json(value))
            .sum();
        size_of::<Entry>()
            + extra
            + [
                &self.function_name,
                &self.module,
                &self.args,
                &self.kwargs,
                &self.arg_types,
                &self.kwarg_types,
                &self.return_value,
                &self.return_type,
                &self.exception,
                &self.exception_type,
                &self.traceback,
                &self.environment,
                &self.trace_id,
                &self.version,
                &self.llm_analysis,
            ]
            .into_iter()
            .map(owned)
            .sum::<usize>()
    }
}

/// Id of a call within its trace: 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(pub NonZeroU64);

impl SpanId {
    /// That id; 0 is none.
    pub fn new(id: u64) -> Option<SpanId> {
        NonZeroU64::new(id).map(SpanId)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for SpanId {
    type Err = ();

    fn from_str(text: &str) -> Result<SpanId, ()> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u64::from_str_radix(text, 16).ok())
            .flatten()
            .and_then(NonZeroU64::new)
            .map(SpanId)
            .ok_or(())
    }
}
