//! One logged call.

use std::{borrow::Cow, fmt, num::NonZeroU64, str::FromStr};

use serde_json::{Map, Value};

use crate::{Level, Timestamp};

/// Text of an entry; what the program knows before it runs is not copied.
pub type Text = Cow<'static, str>;

/// Defines [`Entry`] and all that goes over its columns from the one list of them. A column has a kind,
/// and a text what it is in an empty entry.
macro_rules! entry {
    ($($(#[$doc:meta])* $name:ident: $kind:ident $(= $empty:literal)?;)*) => {
        /// One logged call. All values are rendered text, already redacted and truncated.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Entry {
            $($(#[$doc])* pub $name: column!(type $kind),)*
            /// The call itself within its trace.
            pub span_id: Option<SpanId>,
            /// The call around it.
            pub parent_id: Option<SpanId>,
            /// Fields that have no column: those of the attribute, of the scope and of sinks.
            pub extra: Map<String, Value>,
        }

        impl Entry {
            /// The columns, in the order used everywhere.
            pub const COLUMNS: [&str; N_COLUMNS] = [$(stringify!($name)),*];

            /// An empty entry at 1970: for whoever sets the time.
            pub(crate) fn blank() -> Entry {
                Entry {
                    $($name: column!(empty $kind $($empty)?),)*
                    span_id: None,
                    parent_id: None,
                    extra: Map::new(),
                }
            }

            /// The columns with their values, in the order of [`Entry::COLUMNS`].
            pub fn columns(&self) -> [(&'static str, Column<'_>); N_COLUMNS] {
                [$((stringify!($name), column!(value $kind self.$name))),*]
            }

            /// Changes each text.
            pub(crate) fn for_each_text(&mut self, mut change: impl FnMut(&mut Text)) {
                $(column!(each $kind self.$name, change);)*
            }

            /// The text of that column, to be changed; `None` for the time, the level, the duration and
            /// names that are no column.
            pub fn text_mut(&mut self, column: &str) -> Option<&mut Text> {
                Some(match column {
                    $(stringify!($name) => column!(text $kind self.$name),)*
                    _ => return None,
                })
            }
        }

        const N_COLUMNS: usize = [$(stringify!($name)),*].len();
    };
}

/// What a kind of column is, and how it is got at.
macro_rules! column {
    (type time) => { Timestamp };
    (type level) => { Level };
    (type text) => { Text };
    (type number) => { Option<f64> };
    (empty time) => { Timestamp::default() };
    (empty level) => { Level::Info };
    (empty text $empty:literal) => { Cow::Borrowed($empty) };
    (empty number) => { None };
    (value time $value:expr) => { Column::Time($value) };
    (value level $value:expr) => { Column::Level(&$value) };
    (value text $value:expr) => { Column::Text(&$value) };
    (value number $value:expr) => { Column::Number($value) };
    (each text $value:expr, $change:ident) => { $change(&mut $value) };
    (each $other:ident $value:expr, $change:ident) => {};
    (text text $value:expr) => { &mut $value };
    (text $other:ident $value:expr) => { return None };
}

/// The value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Column<'a> {
    /// A moment.
    Time(Timestamp),
    /// A level.
    Level(&'a Level),
    /// Text.
    Text(&'a Text),
    /// A number that may be missing.
    Number(Option<f64>),
}

impl<'a> Column<'a> {
    /// It as text; a missing number is empty.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Column::Time(time) => time.to_string().into(),
            Column::Level(level) => level.as_str().into(),
            Column::Text(text) => (&**text).into(),
            Column::Number(number) => number.map_or_else(String::new, |it| it.to_string()).into(),
        }
    }
}

entry! {
    /// When the call began or the event happened.
    timestamp: time;
    /// How grave it is.
    level: level;
    /// Qualified name: `Type::method`, `Class.method`.
    function_name: text = "";
    /// Module of the function.
    module: text = "";
    /// The positional arguments: `(3, 7)`, `(1,)`, `()`.
    args: text = "()";
    /// The named arguments: `{'name': 'x'}`.
    kwargs: text = "{}";
    /// Type names joined by `, `.
    arg_types: text = "";
    /// Names and types: `{'name': 'str'}`.
    kwarg_types: text = "{}";
    /// What the call returned, or `None`.
    return_value: text = "None";
    /// Type of what the call returned.
    return_type: text = "";
    /// Message of the error.
    exception: text = "";
    /// Type of the error.
    exception_type: text = "";
    /// Place of the error in the source, or the stack that led to it.
    traceback: text = "";
    /// How long the call took, in milliseconds; `None` = not measured, or no call.
    duration_ms: number;
    /// Where the program ran: `production`, `docker`, `local`.
    environment: text = "";
    /// Trace the call belongs to.
    trace_id: text = "";
    /// Version of the program.
    version: text = "";
    /// What a model says about the error.
    llm_analysis: text = "";
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
}

impl Entry {
    /// The value of that column as text; a missing duration is empty. `None` for names that are no
    /// column.
    pub fn get(&self, column: &str) -> Option<Cow<'_, str>> {
        let mut columns = self.columns().into_iter();
        let (_, value) = columns.find(|(name, _)| *name == column)?;
        Some(value.text())
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
        for (name, value) in self.columns() {
            let value = match value {
                Column::Number(number) => number.map_or(Value::Null, Value::from),
                value => value.text().into(),
            };
            map.insert(name.into(), value);
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
        fn owned(value: Column<'_>) -> usize {
            match value {
                Column::Text(Cow::Owned(text)) => text.capacity(),
                _ => 0,
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
        let texts = self.columns().into_iter().map(|(_, value)| owned(value));
        size_of::<Entry>() + extra + texts.sum::<usize>()
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
