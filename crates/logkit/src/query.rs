//! Reading the database: filters, newest first.
//!
//! ```
//! use logkit::{DbSink, Durability, Entry, Level, Sink, query::{Filter, Reader}};
//!
//! # fn main() -> Result<(), logkit::SinkError> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("logs.db");
//! let call = |function: &'static str, level, ms| Entry {
//!     function_name: function.into(),
//!     level,
//!     duration_ms: Some(ms),
//!     ..Entry::default()
//! };
//! DbSink::open(&path, "logs", Durability::Buffered)?
//!     .write_batch(&[call("load", Level::Info, 2.0), call("save", Level::Error, 150.0)])?;
//!
//! let reader = Reader::open(&path, "logs")?;
//! let slow = Filter { slow_ms: Some(100.0), limit: Some(20), ..Filter::default() };
//! let rows = reader.rows(&slow)?;
//! assert_eq!(rows[0].entry.function_name, "save");
//!
//! let stats = reader.stats(&Filter::default())?;
//! assert_eq!((stats[0].calls, stats[0].p95_ms), (1, Some(2.0)));
//! assert_eq!((stats[1].errors, stats[1].total_ms), (1, 150.0));
//! # Ok(())
//! # }
//! ```

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{OpenFlags, ToSql, types::ValueRef};

use crate::{
    Entry, Level, SinkError, Timestamp, full_text,
    sinks::{db, open::Open},
};

/// Reads a database without ever changing it.
#[derive(Debug)]
pub struct Reader {
    connection: Open,
    path: PathBuf,
    table: String,
    /// The columns selected: those of ours that the table has.
    columns: Vec<&'static str>,
    /// The index of words is up to date.
    has_words: bool,
}

/// What rows are wanted; everything set must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// That level and no other.
    pub level: Option<Level>,
    /// Only ERROR and CRITICAL.
    pub errors: bool,
    /// Not before that moment.
    pub since: Option<Timestamp>,
    /// Before that moment.
    pub until: Option<Timestamp>,
    /// Part of the function's name, in any case. What others typed is read by [`search_text`].
    pub function: Option<String>,
    /// The environment, as it is spelled.
    pub environment: Option<String>,
    /// The module, exactly; commands keep their language there.
    pub module: Option<String>,
    /// The trace id, as it is spelled.
    pub trace_id: Option<String>,
    /// The version, as it is spelled.
    pub version: Option<String>,
    /// Part of any text of the entry, in any case. What others typed is read by [`search_text`].
    pub search: Option<String>,
    /// Words of the entry's texts, in any case, all of them: whole or their start, as the index of
    /// words has them ([`Reader::index_words`]), else any part of a text. What others typed is read by
    /// [`search_words`].
    pub words: Vec<String>,
    /// At least that many milliseconds.
    pub slow_ms: Option<f64>,
    /// Only rows with a smaller id.
    pub before_id: Option<i64>,
    /// Only rows that come after that one when the newest are first: the next page.
    pub page_after: Option<i64>,
    /// Only rows with a larger id: what is new.
    pub after_id: Option<i64>,
    /// At most that many rows; `None` = all.
    pub limit: Option<usize>,
}

/// Why something is not searched for: the database could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSearch {
    /// There are too many words.
    #[error("at most {MAX_WORDS} words can be searched for")]
    TooManyWords,
    /// The text is too long.
    #[error("at most {MAX_SEARCH_BYTES} bytes can be searched for")]
    TooLong,
    /// The text has a NUL, where texts of the database end.
    #[error("a NUL character cannot be searched for")]
    Nul,
}

/// Words that a search may have: each is a condition, or nine of them, and SQLite takes a thousand.
const MAX_WORDS: usize = 64;
/// Bytes that a search may have: SQLite takes patterns of 50,000, of which an escaped character is two.
const MAX_SEARCH_BYTES: usize = 1024;

/// What somebody typed, as [`Filter::words`].
///
/// # Errors
///
/// [`BadSearch`] if it is more than a person types.
pub fn search_words(text: &str) -> Result<Vec<String>, BadSearch> {
    let words: Vec<String> = search_text(text)?
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    if words.len() > MAX_WORDS {
        return Err(BadSearch::TooManyWords);
    }
    Ok(words)
}

/// What somebody typed, as [`Filter::search`] or [`Filter::function`].
///
/// # Errors
///
/// As [`search_words`], however many words it has.
pub fn search_text(text: &str) -> Result<String, BadSearch> {
    if text.contains('\0') {
        return Err(BadSearch::Nul);
    }
    if text.len() > MAX_SEARCH_BYTES {
        return Err(BadSearch::TooLong);
    }
    Ok(text.to_owned())
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of the row: 1 and up, in the order of writing, never used again.
    pub id: i64,
    /// The columns of the row.
    pub entry: Entry,
}

/// Counts of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionStats {
    /// Name of the function.
    pub function_name: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls at ERROR or above.
    pub errors: u64,
    /// Half of the calls took at most that many milliseconds; `None` if no call has a duration.
    pub p50_ms: Option<f64>,
    /// 95 of 100 calls took at most that many milliseconds.
    pub p95_ms: Option<f64>,
    /// 99 of 100 calls took at most that many milliseconds.
    pub p99_ms: Option<f64>,
    /// What all calls took together, in milliseconds.
    pub total_ms: f64,
}

impl Reader {
    /// Opens a database that exists. Waits up to five seconds for whoever has it locked.
    ///
    /// # Errors
    ///
    /// [`SinkError::BadTable`] for a name with anything but letters, digits and `_`;
    /// [`SinkError::Db`] if there is no such file or it is no database; [`SinkError::Other`] if it has
    /// no such table, or a table without any column of entries.
    pub fn open(path: impl AsRef<Path>, table: &str) -> Result<Reader, SinkError> {
        db::check_table(table)?;
        let path = path.as_ref().to_owned();
        let open = || -> rusqlite::Result<(Open, Vec<&'static str>)> {
            let connection = Open::new(
                &path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            connection.busy_timeout(Duration::from_secs(5))?;
            let present: Vec<String> = connection
                .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            let columns = db::all_columns()
                .filter(|column| present.iter().any(|name| name.eq_ignore_ascii_case(column)))
                .collect();
            Ok((connection, columns))
        };
        match open() {
            Ok((_, columns)) if columns.is_empty() => Err(SinkError::Other(format!(
                "{}: there is no table '{table}' of entries",
                path.display()
            ))),
            Ok((connection, columns)) => Ok(Reader {
                connection,
                path,
                table: table.to_owned(),
                columns,
                has_words: false,
            }),
            Err(source) => Err(SinkError::Db { path, source }),
        }
    }

    /// Brings the index of words up to date, which writes into the database and takes a while at the
    /// first time. Without it, or when it fails as in a folder one may not write to, words are looked
    /// for in every row.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the database cannot be written to, or another writer has it locked for
    /// longer than five seconds.
    pub fn index_words(&mut self) -> Result<(), SinkError> {
        full_text::update(&self.path, &self.table, &self.searched())
            .map_err(|source| self.error(source))?;
        self.has_words = true;
        Ok(())
    }

    /// Uses the index of words if the database has one, brought up to date as
    /// [`Reader::index_words`] does.
    pub fn use_words(&mut self) {
        let has_index = self.connection.query_row(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
            [full_text::index_of(&self.table)],
            |row| row.get::<_, i64>(0),
        );
        // Without it, or when it cannot be written, every row is looked at.
        self.has_words = matches!(has_index, Ok(1)) && self.index_words().is_ok();
    }

    fn searched(&self) -> Vec<&'static str> {
        let present = |column: &&'static str| self.columns.contains(column);
        SEARCHED.into_iter().filter(present).collect()
    }

    /// The rows, newest first, all at once: set a limit where there may be many.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the database cannot be read: it is damaged, or locked for longer than five
    /// seconds.
    pub fn rows(&self, filter: &Filter) -> Result<Vec<Row>, SinkError> {
        let mut rows = Vec::new();
        self.each(filter, Order::NewestFirst, |row| {
            rows.push(row);
            true
        })?;
        Ok(rows)
    }

    /// The rows, newest first, as long as `f` returns true.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`]; `f` may have seen rows already.
    pub fn each_newest(
        &self,
        filter: &Filter,
        f: impl FnMut(Row) -> bool,
    ) -> Result<(), SinkError> {
        self.each(filter, Order::NewestFirst, f)
    }

    /// The rows in the order they were written, as long as `f` returns true.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`]; `f` may have seen rows already.
    pub fn for_each(&self, filter: &Filter, f: impl FnMut(Row) -> bool) -> Result<(), SinkError> {
        self.each(filter, Order::AsWritten, f)
    }

    /// Rows written after that one, oldest first, at most `limit`; 0 is before the first.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`].
    pub fn after(&self, id: i64, limit: usize) -> Result<Vec<Row>, SinkError> {
        let mut rows = Vec::new();
        let filter = Filter {
            after_id: Some(id),
            limit: Some(limit),
            ..Filter::default()
        };
        self.for_each(&filter, |row| {
            rows.push(row);
            true
        })?;
        Ok(rows)
    }

    /// The row with that id; `None` if there is none, or it was deleted.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`].
    pub fn row(&self, id: i64) -> Result<Option<Row>, SinkError> {
        let filter = Filter {
            after_id: Some(id.saturating_sub(1)),
            before_id: id.checked_add(1),
            ..Filter::default()
        };
        Ok(self.rows(&filter)?.pop())
    }

    /// Largest id; 0 if the table is empty.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`].
    pub fn last_id(&self) -> Result<i64, SinkError> {
        self.connection
            .query_row(
                &format!("SELECT coalesce(max(id), 0) FROM \"{}\"", self.table),
                [],
                |row| row.get(0),
            )
            .map_err(|source| self.error(source))
    }

    /// How many rows match; the limit is not looked at.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`].
    pub fn count(&self, filter: &Filter) -> Result<u64, SinkError> {
        let (conditions, values) = self.conditions(filter);
        let sql = format!("SELECT count(*) FROM \"{}\"{conditions}", self.table);
        let count = self
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| {
                statement.query_row(rusqlite::params_from_iter(values), |row| {
                    row.get::<_, i64>(0)
                })
            })
            .map_err(|source| self.error(source))?;
        Ok(count as u64)
    }

    /// Counts of each function, most calls first; the filter's limit is that of the rows counted.
    ///
    /// # Errors
    ///
    /// As [`Reader::rows`].
    pub fn stats(&self, filter: &Filter) -> Result<Vec<FunctionStats>, SinkError> {
        let mut functions: std::collections::HashMap<String, (u64, u64, Vec<f64>)> =
            std::collections::HashMap::new();
        let (conditions, values) = self.conditions(filter);
        let limit = filter.limit.map_or(-1, |limit| limit as i64);
        let sql = format!(
            "SELECT function_name, level, duration_ms FROM \"{}\"{conditions} \
             ORDER BY id DESC LIMIT {limit}",
            self.table
        );
        let mut run = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                let name = text_of(row.get_ref(0)?);
                let is_error = Level::parse(&text_of(row.get_ref(1)?)).is_error();
                let (calls, errors, durations) = functions.entry(name).or_default();
                *calls += 1;
                *errors += u64::from(is_error);
                durations.extend(number_of(row.get_ref(2)?));
            }
            Ok(())
        };
        run().map_err(|source| self.error(source))?;
        let mut stats: Vec<FunctionStats> = functions
            .into_iter()
            .map(|(function_name, (calls, errors, mut durations))| {
                durations.sort_by(f64::total_cmp);
                let percentile = |percent: usize| {
                    let rank = (durations.len() * percent).div_ceil(100);
                    durations.get(rank.saturating_sub(1)).copied()
                };
                FunctionStats {
                    p50_ms: percentile(50),
                    p95_ms: percentile(95),
                    p99_ms: percentile(99),
                    total_ms: durations.iter().sum(),
                    function_name,
                    calls,
                    errors,
                }
            })
            .collect();
        stats.sort_by(|a, b| (b.calls, &a.function_name).cmp(&(a.calls, &b.function_name)));
        Ok(stats)
    }

    /// Runs a statement that only reads; gives names of columns and rows as text.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the statement is no SQL, names what the database does not have, or wants to
    /// write; else as [`Reader::rows`].
    pub fn sql(&self, statement: &str) -> Result<(Vec<String>, Vec<Vec<String>>), SinkError> {
        let run = || -> rusqlite::Result<(Vec<String>, Vec<Vec<String>>)> {
            let mut statement = self.connection.prepare(statement)?;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let mut rows = statement.query([])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(
                    (0..names.len())
                        .map(|idx| row.get_ref(idx).map(text_of))
                        .collect::<rusqlite::Result<_>>()?,
                );
            }
            Ok((names, found))
        };
        run().map_err(|source| self.error(source))
    }

    fn error(&self, source: rusqlite::Error) -> SinkError {
        SinkError::Db {
            path: self.path.clone(),
            source,
        }
    }

    fn each(
        &self,
        filter: &Filter,
        order: Order,
        mut f: impl FnMut(Row) -> bool,
    ) -> Result<(), SinkError> {
        let (conditions, values) = self.conditions(filter);
        let order = match order {
            // A page follows the ids it starts after; else the moment decides, also of entries that
            // came late.
            Order::NewestFirst if filter.before_id.is_none() => "timestamp DESC, id DESC",
            Order::NewestFirst => "id DESC",
            Order::AsWritten => "id",
        };
        let limit = filter.limit.map_or(-1, |limit| limit as i64);
        let sql = format!(
            "SELECT id, {} FROM \"{}\"{conditions} ORDER BY {order} LIMIT {limit}",
            self.columns.join(", "),
            self.table
        );
        let mut run = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(&sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                if !f(self.read(row)?) {
                    break;
                }
            }
            Ok(())
        };
        run().map_err(|source| self.error(source))
    }

    /// The WHERE clause with its values.
    fn conditions(&self, filter: &Filter) -> (String, Vec<Box<dyn ToSql>>) {
        let mut conditions: Vec<String> = Vec::new();
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        let mut add = |condition: &str, value: Box<dyn ToSql>| {
            conditions.push(condition.to_owned());
            values.push(value);
        };
        if let Some(level) = &filter.level {
            add("level = ?", Box::new(level.as_str().to_owned()));
        }
        if let Some(since) = filter.since {
            add("timestamp >= ?", Box::new(since.to_string()));
        }
        if let Some(until) = filter.until {
            add("timestamp < ?", Box::new(until.to_string()));
        }
        if let Some(function) = &filter.function {
            add("function_name LIKE ? ESCAPE '\\'", Box::new(like(function)));
        }
        for (column, wanted) in [
            ("environment = ?", &filter.environment),
            ("module = ?", &filter.module),
            // The second half is that of the partial index.
            ("trace_id = ? AND trace_id <> ''", &filter.trace_id),
            ("version = ?", &filter.version),
        ] {
            if let Some(wanted) = wanted {
                add(column, Box::new(wanted.clone()));
            }
        }
        if let Some(ms) = filter.slow_ms {
            add("duration_ms >= ?", Box::new(ms));
        }
        if let Some(id) = filter.before_id {
            add("id < ?", Box::new(id));
        }
        if let Some(id) = filter.after_id {
            add("id > ?", Box::new(id));
        }
        // What came after some row may have come after the index was made.
        let indexed = (self.has_words && !filter.words.is_empty() && filter.after_id.is_none())
            .then(|| full_text::query(&filter.words))
            .flatten();
        let scanned = match &indexed {
            Some(_) => &[],
            None => filter.words.as_slice(),
        };
        if let Some(query) = indexed {
            let index = full_text::index_of(&self.table);
            add(
                &format!("id IN (SELECT rowid FROM \"{index}\" WHERE \"{index}\" MATCH ?)"),
                Box::new(query),
            );
        }
        if let Some(id) = filter.page_after {
            let table = &self.table;
            // If the row is gone by now, its neighbour says where the page ended.
            conditions.push(format!(
                "(timestamp, id) < (coalesce((SELECT timestamp FROM \"{table}\" WHERE id = ?), \
                 (SELECT timestamp FROM \"{table}\" WHERE id < ? ORDER BY id DESC LIMIT 1)), ?)"
            ));
            values.extend(std::iter::repeat_with(|| Box::new(id) as Box<dyn ToSql>).take(3));
        }
        for search in filter.search.iter().chain(scanned) {
            let searched: Vec<String> = self
                .searched()
                .iter()
                .map(|column| format!("{column} LIKE ? ESCAPE '\\'"))
                .collect();
            values.extend(
                std::iter::repeat_with(|| Box::new(like(search)) as Box<dyn ToSql>)
                    .take(searched.len()),
            );
            conditions.push(format!("({})", searched.join(" OR ")));
        }
        if filter.errors {
            // The very words of the partial index.
            conditions.push("level IN ('ERROR', 'CRITICAL')".into());
        }
        let mut clause = String::new();
        for (idx, condition) in conditions.iter().enumerate() {
            clause.push_str(if idx == 0 { " WHERE " } else { " AND " });
            clause.push_str(condition);
        }
        (clause, values)
    }

    fn read(&self, row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
        let mut entry = Entry {
            timestamp: Timestamp::default(),
            ..Entry::default()
        };
        for (idx, column) in self.columns.iter().enumerate() {
            let value = row.get_ref(idx + 1)?;
            match *column {
                "timestamp" => {
                    entry.timestamp = text_of(value).parse().unwrap_or_default();
                }
                "level" => entry.level = Level::parse(&text_of(value)),
                "duration_ms" => entry.duration_ms = number_of(value),
                "extra" => {
                    if let Ok(extra) = serde_json::from_str(&text_of(value)) {
                        entry.extra = extra;
                    }
                }
                "span_id" => entry.span_id = text_of(value).parse().ok(),
                "parent_id" => entry.parent_id = text_of(value).parse().ok(),
                column => {
                    if let Some(text) = entry.text_mut(column) {
                        *text = text_of(value).into();
                    }
                }
            }
        }
        Ok(Row {
            id: row.get(0)?,
            entry,
        })
    }
}

#[derive(Clone, Copy)]
enum Order {
    NewestFirst,
    AsWritten,
}

/// Columns that a search looks into.
const SEARCHED: [&str; 9] = [
    "function_name",
    "module",
    "args",
    "kwargs",
    "return_value",
    "exception_type",
    "exception",
    "traceback",
    "extra",
];

/// A pattern which finds that text anywhere.
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

/// Other tools may store anything anywhere.
fn text_of(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

fn number_of(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        ValueRef::Text(bytes) => str::from_utf8(bytes).ok()?.parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}
