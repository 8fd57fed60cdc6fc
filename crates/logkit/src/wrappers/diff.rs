//! Tells when the same call gives something else in another version of the program.

use std::{borrow::Cow, collections::HashMap};

use crate::{Entry, Sink, SinkError, Which};

/// Compares each call with the last one of the same function and arguments; if the version and the
/// outcome differ, `extra` gets `version_diff`, `prev_version` and `prev_return`. With a store the
/// comparison goes on after a restart.
pub struct DiffTracker {
    delegate: Box<dyn Sink>,
    known: HashMap<String, Last>,
    max_keys: usize,
    /// Counts calls, to know which were used least recently.
    clock: u64,
    #[cfg(feature = "db")]
    store: Option<store::Store>,
}

/// What is remembered of a function's last call with some arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Last {
    version: String,
    outcome: String,
    used: u64,
}

/// Calls that are remembered.
const MAX_KEYS: usize = 10_000;

impl DiffTracker {
    /// Remembers in memory only.
    pub fn new(delegate: Box<dyn Sink>) -> DiffTracker {
        DiffTracker {
            delegate,
            known: HashMap::new(),
            max_keys: MAX_KEYS,
            clock: 0,
            #[cfg(feature = "db")]
            store: None,
        }
    }

    /// Remembers in the table `logkit_diff` of that database, such as the one the entries go to.
    ///
    /// # Errors
    ///
    /// [`SinkError::Db`] if the database cannot be opened or the table cannot be made.
    #[cfg(feature = "db")]
    pub fn with_store(
        delegate: Box<dyn Sink>,
        path: impl AsRef<std::path::Path>,
    ) -> Result<DiffTracker, SinkError> {
        Ok(DiffTracker {
            store: Some(store::Store::open(path.as_ref())?),
            ..DiffTracker::new(delegate)
        })
    }

    /// Remembers that many calls: those used last.
    pub fn max_keys(mut self, max_keys: usize) -> DiffTracker {
        self.max_keys = max_keys.max(1);
        self
    }

    /// The difference to the call before, if there is one; remembers this call.
    fn look_at(&mut self, entry: &Entry) -> Option<Last> {
        if entry.version.is_empty() {
            return None;
        }
        let key = key(entry);
        self.clock += 1;
        let this = Last {
            version: entry.version.to_string(),
            outcome: outcome(entry),
            used: self.clock,
        };
        #[cfg(feature = "db")]
        if let Some(store) = &mut self.store
            && !self.known.contains_key(&key)
            && let Some(last) = store.load(&key)
        {
            self.known.insert(key.clone(), last);
        }
        #[cfg(feature = "db")]
        if let Some(store) = &mut self.store
            && self
                .known
                .get(&key)
                .is_none_or(|last| (&last.version, &last.outcome) != (&this.version, &this.outcome))
        {
            store.changed(&key, &this);
        }
        let before = self.known.insert(key, this.clone());
        if self.known.len() > self.max_keys {
            self.forget();
        }
        before.filter(|before| before.version != this.version && before.outcome != this.outcome)
    }

    /// The entries with the differences that were found.
    fn compared<'a>(&mut self, entries: &'a [Entry]) -> Cow<'a, [Entry]> {
        let mut compared = Cow::Borrowed(entries);
        for (idx, entry) in entries.iter().enumerate() {
            let Some(before) = self.look_at(entry) else {
                continue;
            };
            let entry = &mut compared.to_mut()[idx];
            let text = format!(
                "DIFF: {}({}) {}→{} vs {}→{}",
                entry.function_name,
                entry.args,
                before.version,
                before.outcome,
                entry.version,
                outcome(entry)
            );
            entry.extra.insert("version_diff".into(), text.into());
            entry
                .extra
                .insert("prev_version".into(), before.version.into());
            entry
                .extra
                .insert("prev_return".into(), before.outcome.into());
        }
        #[cfg(feature = "db")]
        if let Some(store) = &mut self.store {
            // A history that cannot be kept costs no entry.
            store.save(self.max_keys);
        }
        compared
    }

    /// Forgets a tenth of the calls, those used least recently, so that this is rare.
    fn forget(&mut self) {
        let mut used: Vec<u64> = self.known.values().map(|last| last.used).collect();
        used.sort_unstable();
        let n_kept = (self.max_keys - self.max_keys / 10).max(1);
        let oldest_kept = used[used.len() - n_kept];
        self.known.retain(|_, last| last.used >= oldest_kept);
    }
}

impl Sink for DiffTracker {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        let compared = match which {
            Which::All | Which::Unless(_) => self.compared(entries),
            // They were compared before they were held back.
            Which::Held => Cow::Borrowed(entries),
        };
        self.delegate.write_which(&compared, which)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.delegate)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.delegate)
    }

    fn release(&mut self) -> Result<(), SinkError> {
        #[cfg(feature = "db")]
        if let Some(store) = &mut self.store {
            store.release();
        }
        self.delegate.release()
    }
}

/// What came of a call.
fn outcome(entry: &Entry) -> String {
    if entry.exception_type.is_empty() && entry.exception.is_empty() {
        entry.return_value.to_string()
    } else {
        format!("!{}", entry.exception_type)
    }
}

/// The function with its arguments. Addresses differ from run to run and are masked.
fn key(entry: &Entry) -> String {
    let mut key = format!("{}\n", entry.function_name);
    for text in [&entry.args, &entry.kwargs] {
        let mut parts = text.split(" at 0x");
        key.push_str(parts.next().unwrap_or_default());
        for part in parts {
            key.push_str(" at 0x");
            key.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
        }
        key.push('\n');
    }
    key
}

#[cfg(feature = "db")]
mod store {
    use std::{
        path::{Path, PathBuf},
        time::Duration,
    };

    use rusqlite::{OpenFlags, OptionalExtension, params};

    use super::Last;
    use crate::{SinkError, sinks::open::Open};

    pub(super) struct Store {
        path: PathBuf,
        /// `None` after it was let go of.
        connection: Option<Open>,
        changes: Vec<(String, Last)>,
    }

    impl Store {
        pub(super) fn open(path: &Path) -> Result<Store, SinkError> {
            let mut store = Store {
                path: path.to_owned(),
                connection: None,
                changes: Vec::new(),
            };
            match store.connected() {
                Ok(_) => Ok(store),
                Err(source) => Err(SinkError::Db {
                    path: store.path,
                    source,
                }),
            }
        }

        pub(super) fn release(&mut self) {
            self.connection = None;
        }

        /// The connection, made anew if it was let go of.
        fn connected(&mut self) -> rusqlite::Result<&mut Open> {
            let path = &self.path;
            let open = || -> rusqlite::Result<Open> {
                let mut connection = Open::new(path, OpenFlags::default())?;
                connection.busy_timeout(Duration::from_secs(5))?;
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.pragma_update(None, "synchronous", "NORMAL")?;
                connection.execute_batch(
                    "CREATE TABLE IF NOT EXISTS logkit_diff
                     (key TEXT PRIMARY KEY, version TEXT, outcome TEXT)",
                )?;
                connection.claim();
                Ok(connection)
            };
            match &mut self.connection {
                Some(connection) => Ok(connection),
                none => Ok(none.insert(open()?)),
            }
        }

        pub(super) fn load(&mut self, key: &str) -> Option<Last> {
            self.connected()
                .and_then(|connection| {
                    let mut statement = connection
                        .prepare_cached("SELECT version, outcome FROM logkit_diff WHERE key = ?")?;
                    statement
                        .query_row([key], |row| {
                            Ok(Last {
                                version: row.get(0)?,
                                outcome: row.get(1)?,
                                used: 0,
                            })
                        })
                        .optional()
                })
                .ok()
                .flatten()
        }

        pub(super) fn changed(&mut self, key: &str, last: &Last) {
            self.changes.push((key.to_owned(), last.clone()));
        }

        /// Keeps the changes, in one transaction; the table is bounded too: a row that changes
        /// gets a new row number, so the smallest numbers are the oldest.
        pub(super) fn save(&mut self, max_keys: usize) {
            let changes = std::mem::take(&mut self.changes);
            if changes.is_empty() {
                return;
            }
            let mut run = || -> rusqlite::Result<()> {
                let transaction = self.connected()?.unchecked_transaction()?;
                let mut insert = transaction.prepare_cached(
                    "INSERT OR REPLACE INTO logkit_diff (key, version, outcome) VALUES (?, ?, ?)",
                )?;
                for (key, last) in &changes {
                    insert.execute(params![key, last.version, last.outcome])?;
                }
                drop(insert);
                transaction.execute(
                    "DELETE FROM logkit_diff WHERE rowid <=
                     (SELECT max(rowid) FROM logkit_diff) - ?",
                    [max_keys as i64],
                )?;
                transaction.commit()
            };
            if let Err(error) = run() {
                crate::notice(&format!("logkit_diff: {error}"));
            }
        }
    }
}
