//! The table of entries in a PostgreSQL database.

use std::{borrow::Cow, error::Error, fmt, path::PathBuf, time::Duration};

use postgres::{Client, Config, NoTls, config::SslMode, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;
use url::Url;

use crate::{
    Entry, Sink, SinkError,
    net::outbox::{Courier, DeliveryCounts, Failure, Limits, Outbox, hand_on_to_outbox},
    sinks::db::{all_columns, check_table},
};

/// Writes entries to a table like that of [`crate::DbSink`], which is created if there is none; a
/// column that lacks is added.
///
/// A thread of its own connects and writes. At most 20,000 entries or 32 MiB wait; the oldest go
/// when there is no room. A server that is away is asked again and again.
#[derive(Debug)]
pub struct PostgresSink {
    outbox: Outbox<Rows>,
}

impl PostgresSink {
    /// Writes to `postgres://user:password@host/database?table=logs`; connects at the first entry.
    ///
    /// With `sslmode=require`, or `verify-full` which is the same here, the connection is encrypted and
    /// the server has a certificate that the system trusts or that is in the PEM file
    /// `sslrootcert=FILE`. Otherwise it is not encrypted: for servers on this machine.
    ///
    /// ```no_run
    /// use logkit::{Logger, PostgresSink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// let sink = PostgresSink::new("postgres://ann@db.example.com/calls?sslmode=require")?;
    /// let logger = Logger::builder().sink(sink).build();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::BadTable`] for a table's name with anything but letters, digits and `_`;
    /// [`SinkError::Other`] if the address or one of its options is wrong, or the certificates cannot
    /// be read.
    pub fn new(url: &str) -> Result<PostgresSink, SinkError> {
        let bad = |why: &str| SinkError::Other(format!("the database cannot be used: {why}"));
        let mut url = Url::parse(url.trim())
            .map_err(|_| bad("write postgres://user:password@host/database"))?;
        let mut table = "logs".to_owned();
        let mut roots = None;
        let mut encrypted = false;
        let mut rest = Vec::new();
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("table", _) => table = value.into_owned(),
                ("sslrootcert", _) => roots = Some(PathBuf::from(&*value)),
                ("sslmode", "require" | "verify-ca" | "verify-full") => encrypted = true,
                _ => rest.push((name.into_owned(), value.into_owned())),
            }
        }
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        check_table(&table)?;
        let mut config: Config = url
            .as_str()
            .parse()
            .map_err(|error: postgres::Error| bad(&describe(&error)))?;
        let tls = if encrypted {
            let trusted = llmsrv_tls::client(roots.as_deref())
                .map_err(|error| bad(&format!("its certificates: {error}")))?;
            Some(MakeRustlsConnect::new(trusted))
        } else {
            None
        };
        config
            .ssl_mode(if encrypted {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .connect_timeout(TIMEOUT)
            .tcp_user_timeout(TIMEOUT)
            .application_name("logkit");
        Ok(PostgresSink {
            outbox: Outbox::new(
                Rows {
                    config,
                    tls,
                    insert: insert(&table),
                    table,
                    client: None,
                },
                Limits {
                    timeout: TIMEOUT,
                    ..Limits::default()
                },
            ),
        })
    }

    /// Counts of entries written and lost.
    pub fn counts(&self) -> DeliveryCounts {
        self.outbox.counts()
    }
}

impl Sink for PostgresSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.outbox.push(
            entries
                .iter()
                .map(|entry| (entry.clone(), entry.size_bytes())),
        )
    }

    hand_on_to_outbox!();

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("postgres")
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes batches, each in one statement.
struct Rows {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    table: String,
    insert: String,
    client: Option<Client>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration holds a password.
        f.debug_struct("Rows")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Courier for Rows {
    type Item = Entry;

    fn deliver(&mut self, entries: &[Entry], timeout: Duration) -> Result<(), Failure> {
        self.write(entries, timeout).map_err(|error| {
            let why = describe(&error);
            // The server said it: it is there, and may say it again.
            if error.as_db_error().is_some() {
                Failure::Later { why, after: None }
            } else {
                self.client = None;
                Failure::Away { why, after: None }
            }
        })
    }
}

impl Rows {
    fn write(&mut self, entries: &[Entry], timeout: Duration) -> Result<(), postgres::Error> {
        let client = match &mut self.client {
            Some(client) if !client.is_closed() => client,
            gone => {
                let mut client = match &self.tls {
                    Some(tls) => self.config.connect(tls.clone())?,
                    None => self.config.connect(NoTls)?,
                };
                client.batch_execute(&migration(&self.table))?;
                gone.insert(client)
            }
        };
        let mut texts: Vec<Vec<Cow<'_, str>>> = vec![Vec::new(); all_columns().count()];
        let mut durations = Vec::with_capacity(entries.len());
        for entry in entries {
            durations.push(entry.duration_ms);
            for (column, values) in all_columns().zip(&mut texts) {
                values.push(storable(value_of(entry, column)));
            }
        }
        let parameters: Vec<&(dyn ToSql + Sync)> = all_columns()
            .zip(&texts)
            .map(|(column, values)| match column {
                DURATION => &durations as &(dyn ToSql + Sync),
                _ => values as &(dyn ToSql + Sync),
            })
            .collect();
        let mut transaction = client.transaction()?;
        transaction.batch_execute(&format!(
            "SET LOCAL statement_timeout = {}",
            timeout.as_millis().max(1)
        ))?;
        transaction.execute(&self.insert, &parameters)?;
        transaction.commit()
    }
}

const DURATION: &str = "duration_ms";

/// The text of a column; empty for the duration, which is a number.
fn value_of<'a>(entry: &'a Entry, column: &str) -> Cow<'a, str> {
    let id = |id: Option<crate::SpanId>| id.map_or_else(String::new, |id| id.to_string()).into();
    match column {
        DURATION => Cow::Borrowed(""),
        "span_id" => id(entry.span_id),
        "parent_id" => id(entry.parent_id),
        "extra" if entry.extra.is_empty() => Cow::Borrowed(""),
        "extra" => serde_json::to_string(&entry.extra)
            .unwrap_or_default()
            .into(),
        _ => entry.get(column).unwrap_or_default(),
    }
}

/// PostgreSQL stores no NUL: its picture stands for it.
fn storable(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{2400}").into()
    } else {
        text
    }
}

fn definition(column: &str) -> String {
    let kind = if column == DURATION {
        "double precision"
    } else {
        "text"
    };
    format!("{column} {kind}")
}

fn insert(table: &str) -> String {
    let columns: Vec<&str> = all_columns().collect();
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| match *column {
            DURATION => format!("${}::double precision[]", at + 1),
            _ => format!("${}::text[]", at + 1),
        })
        .collect();
    format!(
        "INSERT INTO \"{table}\" ({}) SELECT * FROM unnest({})",
        columns.join(","),
        arrays.join(",")
    )
}

/// Creates what is missing; never changes or removes what is there. Two programs may do so at once.
fn migration(table: &str) -> String {
    let columns: Vec<String> = all_columns().map(definition).collect();
    let added: Vec<String> = columns
        .iter()
        .map(|column| format!("ADD COLUMN IF NOT EXISTS {column}"))
        .collect();
    format!(
        "BEGIN;
         SELECT pg_advisory_xact_lock({LOCK});
         SET LOCAL client_min_messages = warning;
         CREATE TABLE IF NOT EXISTS \"{table}\" (id bigserial PRIMARY KEY, {});
         ALTER TABLE \"{table}\" {};
         CREATE INDEX IF NOT EXISTS \"{table}_timestamp\" ON \"{table}\" (timestamp);
         CREATE INDEX IF NOT EXISTS \"{table}_errors\" ON \"{table}\" (timestamp)
             WHERE level IN ('ERROR', 'CRITICAL');
         CREATE INDEX IF NOT EXISTS \"{table}_trace\" ON \"{table}\" (trace_id)
             WHERE trace_id <> '';
         COMMIT;",
        columns.join(", "),
        added.join(", ")
    )
}

/// Any number that no other program is likely to lock.
const LOCK: u32 = 0x6c6f_676b;

/// What the server or the system said; the library's own text says little, and none of them holds
/// the password.
fn describe(error: &postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{}: {}", said.severity(), said.message()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_explained_without_their_password() {
        for (url, part) in [
            ("nowhere", "write postgres://"),
            (
                "postgres://u:SECRET@h/d?sslmode=require&sslrootcert=/nowhere",
                "its certificates: ",
            ),
            ("postgres://u:SECRET@h/d?sslmode=maybe", "sslmode"),
            ("postgres://u:SECRET@h/d?table=a;b", "no name of a table"),
            ("postgres://u:SECRET@h/d?nonsense=1", "nonsense"),
        ] {
            let told = PostgresSink::new(url).map(|_| ()).unwrap_err().to_string();
            assert!(told.contains(part), "{told}");
            assert!(!told.contains("SECRET"), "{told}");
        }
        for mode in ["disable", "prefer", "require", "verify-full"] {
            let url = format!("postgres://u@h/d?table=calls&sslmode={mode}");
            assert!(PostgresSink::new(&url).is_ok(), "{mode}");
        }
    }

    #[test]
    fn columns_and_parameters_are_as_many() {
        let sql = insert("logs");
        assert!(
            sql.contains("duration_ms") && sql.contains("$14::double precision[]"),
            "{sql}"
        );
        assert!(sql.contains("$21::text[]") && !sql.contains("$22"), "{sql}");
    }
}
