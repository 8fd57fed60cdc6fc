//! The SQLite database: one table, one transaction for each batch.

use std::{
    borrow::Cow,
    fs::OpenOptions,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::open::Open;
use crate::{Column, Durability, Entry, Level, Sink, SinkError, Timestamp, Update, files::private};

/// Version of the schema, in `PRAGMA user_version`; it only ever grows by additions.
pub(crate) const SCHEMA_VERSION: i64 = 1;
/// Columns beside those of [`Entry::COLUMNS`].
const MORE_COLUMNS: [&str; 3] = ["extra", "span_id", "parent_id"];
const PRUNE_EVERY: Duration = Duration::from_mins(1);
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes entries to a table of an SQLite database, which others may read meanwhile.
#[derive(Debug)]
pub struct DbSink {
    /// `None` after it was let go of.
    connection: Option<Open>,
    path: PathBuf,
    durability: Durability,
    insert: String,
    table: String,
    first_id: Option<i64>,
    retain: Option<Duration>,
    max_rows: Option<u64>,
    pruned_at: Instant,
}

impl DbSink {
    /// Opens or creates the database; tables written by other tools get the columns they lack. A new
    /// file can be read by its owner only.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use logkit::{DbSink, Durability, Entry, Sink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("logs.db");
    /// let month = Duration::from_secs(30 * 24 * 3600);
    /// let mut sink = DbSink::open(&path, "logs", Durability::Full)?
    ///     .retain(Some(month), Some(1_000_000));
    /// sink.write_batch(&[Entry::default()])?;
    /// assert_eq!(sink.first_id(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::BadTable`] for a name with anything but letters, digits and `_`;
    /// [`SinkError::Db`] if the file cannot be opened for writing, is no database, stays locked for
    /// five seconds, or was open when this process was forked.
    pub fn open(
        path: impl AsRef<Path>,
        table: &str,
        durability: Durability,
    ) -> Result<DbSink, SinkError> {
        check_table(table)?;
        let path = path.as_ref().to_owned();
        let connection = connect(&path, table, durability).map_err(|source| SinkError::Db {
            path: path.clone(),
            source,
        })?;
        let columns: Vec<&str> = all_columns().collect();
        let places = vec!["?"; columns.len()].join(",");
        Ok(DbSink {
            connection: Some(connection),
            path,
            durability,
            insert: format!(
                "INSERT INTO \"{table}\" ({}) VALUES ({places})",
                columns.join(",")
            ),
            table: table.to_owned(),
            first_id: None,
            retain: None,
            max_rows: None,
            pruned_at: Instant::now(),
        })
    }

    /// Deletes, once a minute, rows older than that and all but the newest `max_rows`.
    pub fn retain(mut self, age: Option<Duration>, max_rows: Option<u64>) -> DbSink {
        self.retain = age;
        self.max_rows = max_rows;
        self
    }

    /// Deletes rows older than that, and all but the newest `max_rows`; returns how many.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the database cannot be written to. Old rows may be gone already when the
    /// second deletion fails.
    pub fn prune(
        &mut self,
        before: Option<Timestamp>,
        max_rows: Option<u64>,
    ) -> Result<usize, SinkError> {
        let table = self.table.clone();
        let mut run = || -> rusqlite::Result<usize> {
            let connection = self.connected()?;
            let mut n_deleted = 0;
            if let Some(before) = before {
                n_deleted += connection.execute(
                    &format!("DELETE FROM \"{table}\" WHERE timestamp < ?"),
                    [before.to_string()],
                )?;
            }
            if let Some(max_rows) = max_rows {
                n_deleted += connection.execute(
                    &format!(
                        "DELETE FROM \"{table}\" WHERE id <= \
                         (SELECT id FROM \"{table}\" ORDER BY id DESC LIMIT 1 OFFSET ?)"
                    ),
                    [max_rows as i64],
                )?;
            }
            Ok(n_deleted)
        };
        run().map_err(|source| self.error(source))
    }

    /// Leaves the latest transactions in the file `-wal` beside the database when this sink is dropped,
    /// instead of copying them into it, which waits for the disk three times: for programs that write
    /// one entry and end. Whoever opens the database finds everything; the file stays small.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the database was let go of and cannot be opened again, or SQLite refuses
    /// the setting.
    pub fn leave_wal(mut self) -> Result<DbSink, SinkError> {
        // Each opening reads the whole file: when it has grown, the end of this sink empties it.
        const MOST_BYTES: u64 = 512 * 1024;
        let mut wal = self.path.clone().into_os_string();
        wal.push("-wal");
        let is_small = std::fs::metadata(wal).map_or(true, |facts| facts.len() < MOST_BYTES);
        let option = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        self.connected()
            .and_then(|connection| connection.set_db_config(option, is_small))
            .map_err(|source| self.error(source))?;
        Ok(self)
    }

    /// Gives the space of deleted rows back to the disk; takes as long as copying the database.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if somebody else has the database locked for longer than five seconds, or the
    /// disk has no room for the copy.
    pub fn vacuum(&mut self) -> Result<(), SinkError> {
        self.connected()
            .and_then(|connection| connection.execute_batch("VACUUM"))
            .map_err(|source| self.error(source))
    }

    fn error(&self, source: rusqlite::Error) -> SinkError {
        SinkError::Db {
            path: self.path.clone(),
            source,
        }
    }

    /// The connection, made anew if it was let go of.
    fn connected(&mut self) -> rusqlite::Result<&mut Open> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(connect(&self.path, &self.table, self.durability)?)),
        }
    }

    fn insert(&mut self, entries: &[Entry]) -> rusqlite::Result<Option<i64>> {
        self.connected()?;
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut first_id = None;
        {
            let mut statement = transaction.prepare_cached(&self.insert)?;
            for entry in entries {
                insert_one(&mut statement, entry)?;
                first_id.get_or_insert_with(|| transaction.last_insert_rowid());
            }
        }
        transaction.commit()?;
        Ok(first_id)
    }
}

impl Sink for DbSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.first_id = None;
        self.first_id = self.insert(entries).map_err(|source| self.error(source))?;
        let limited = self.retain.is_some() || self.max_rows.is_some();
        if limited && self.pruned_at.elapsed() >= PRUNE_EVERY {
            self.pruned_at = Instant::now();
            let before = self.retain.map(|age| {
                Timestamp::from_micros(Timestamp::now().micros() - age.as_micros() as i64)
            });
            // The batch is committed: what goes wrong now is no loss, and is tried again.
            let _ = self.prune(before, self.max_rows);
        }
        Ok(())
    }

    fn first_id(&self) -> Option<i64> {
        self.first_id
    }

    fn can_update(&self) -> bool {
        true
    }

    fn update(&mut self, id: i64, update: &Update) -> Result<bool, SinkError> {
        let extra = (!update.extra.is_empty())
            .then(|| serde_json::Value::Object(update.extra.clone()).to_string());
        let sql = format!(
            "UPDATE \"{}\" SET llm_analysis = coalesce(?1, llm_analysis), \
             extra = CASE WHEN ?2 IS NULL THEN extra \
             ELSE json_patch(coalesce(nullif(extra, ''), '{{}}'), ?2) END WHERE id = ?3",
            self.table
        );
        let n_changed = self
            .connected()
            .and_then(|connection| {
                let mut statement = connection.prepare_cached(&sql)?;
                statement.execute(params![update.llm_analysis.as_deref(), extra, id])
            })
            .map_err(|source| self.error(source))?;
        Ok(n_changed > 0)
    }

    fn release(&mut self) -> Result<(), SinkError> {
        self.connection = None;
        Ok(())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("db")
    }
}

/// All our columns but the id.
pub(crate) fn all_columns() -> impl Iterator<Item = &'static str> {
    Entry::COLUMNS.into_iter().chain(MORE_COLUMNS)
}

/// Names go into statements as they are, so nothing but a plain name is one.
pub(crate) fn check_table(table: &str) -> Result<(), SinkError> {
    let mut bytes = table.bytes();
    let starts_well = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if starts_well && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        Ok(())
    } else {
        Err(SinkError::BadTable(table.to_owned()))
    }
}

fn connect(path: &Path, table: &str, durability: Durability) -> rusqlite::Result<Open> {
    // SQLite would let others read it. The files beside it get the rights of this one.
    if path != Path::new(":memory:") && !path.as_os_str().is_empty() {
        let mut options = OpenOptions::new();
        // One that is there stays as it is; what else goes wrong is said below.
        let _ = private(options.write(true).create_new(true)).open(path);
    }
    let mut connection = Open::new(
        path,
        // Without SQLITE_OPEN_URI: a path is a path.
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Buffered | Durability::Crash | Durability::Sync => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    migrate(&connection, table)?;
    connection.claim();
    Ok(connection)
}

/// Creates what is missing; never changes or removes what is there.
fn migrate(connection: &Connection, table: &str) -> rusqlite::Result<()> {
    let definition = |column: &str| {
        let kind = if column == "duration_ms" {
            "REAL"
        } else {
            "TEXT"
        };
        format!("{column} {kind}")
    };
    let columns: Vec<String> = all_columns().map(definition).collect();
    // Two processes may open a new database at once: one transaction each.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let run = || -> rusqlite::Result<()> {
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS \"{table}\" \
             (id INTEGER PRIMARY KEY AUTOINCREMENT, {})",
            columns.join(", ")
        ))?;
        let present: Vec<String> = connection
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        for column in all_columns() {
            if !present.iter().any(|name| name.eq_ignore_ascii_case(column)) {
                let definition = definition(column);
                connection
                    .execute_batch(&format!("ALTER TABLE \"{table}\" ADD COLUMN {definition}"))?;
            }
        }
        connection.execute_batch(&format!(
            "CREATE INDEX IF NOT EXISTS \"{table}_timestamp\" ON \"{table}\" (timestamp);
             CREATE INDEX IF NOT EXISTS \"{table}_errors\" ON \"{table}\" (timestamp)
                 WHERE level IN ('{}', '{}');
             CREATE INDEX IF NOT EXISTS \"{table}_trace\" ON \"{table}\" (trace_id)
                 WHERE trace_id <> '';",
            Level::Error.as_str(),
            Level::Critical.as_str(),
        ))?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version < SCHEMA_VERSION {
            connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        Ok(())
    };
    let outcome = run();
    connection.execute_batch(if outcome.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    })?;
    outcome
}

fn insert_one(statement: &mut rusqlite::Statement<'_>, entry: &Entry) -> rusqlite::Result<()> {
    let mut at = 0;
    for (_, value) in entry.columns() {
        at += 1;
        match value {
            Column::Time(time) => time.with_iso(|text| statement.raw_bind_parameter(at, text))?,
            Column::Level(level) => statement.raw_bind_parameter(at, level.as_str())?,
            Column::Text(text) => statement.raw_bind_parameter(at, &**text)?,
            Column::Number(number) => statement.raw_bind_parameter(at, number)?,
        }
    }
    let mut bind = |text: &str| {
        at += 1;
        statement.raw_bind_parameter(at, text)
    };
    if entry.extra.is_empty() {
        bind("")?;
    } else {
        bind(&serde_json::to_string(&entry.extra).unwrap_or_default())?;
    }
    for id in [entry.span_id, entry.parent_id] {
        match id {
            Some(id) => bind(&id.to_string())?,
            None => bind("")?,
        }
    }
    statement.raw_execute()?;
    Ok(())
}
