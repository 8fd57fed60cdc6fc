//! Finding words: an index of all texts beside the table, brought up to date when somebody searches,
//! so that logging pays nothing for it.

use std::{path::Path, time::Duration};

use rusqlite::{OpenFlags, TransactionBehavior};

use crate::sinks::open::Open;

/// Rows indexed in one transaction; others may write between two of them.
const CHUNK: i64 = 20_000;

/// Name of the index of a table.
pub(crate) fn index_of(table: &str) -> String {
    format!("{table}_words")
}

/// Brings the index of a table up to date, and makes it at the first call.
///
/// Rows that are deleted stay in the index, which does no harm: ids are never used again.
pub(crate) fn update(path: &Path, table: &str, columns: &[&str]) -> rusqlite::Result<()> {
    let mut connection = Open::new(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let index = index_of(table);
    let columns = columns.join(", ");
    connection.execute_batch(&format!(
        "CREATE VIRTUAL TABLE IF NOT EXISTS \"{index}\" USING fts5({columns}, \
         content=\"{table}\", content_rowid=\"id\", tokenize=\"unicode61 remove_diacritics 2\")"
    ))?;
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let indexed = transaction.query_row(
            &format!("SELECT coalesce(max(id), 0) FROM \"{index}_docsize\""),
            [],
            |row| row.get::<_, i64>(0),
        )?;
        // Ids may have gaps.
        let n_added = transaction.execute(
            &format!(
                "INSERT INTO \"{index}\"(rowid, {columns}) \
                 SELECT id, {columns} FROM \"{table}\" WHERE id > ?1 ORDER BY id LIMIT ?2"
            ),
            [indexed, CHUNK],
        )?;
        transaction.commit()?;
        if (n_added as i64) < CHUNK {
            return Ok(());
        }
    }
}

/// The query that finds rows with all these words or words that start so; `None` if one of them has
/// nothing that the index knows.
pub(crate) fn query(words: &[String]) -> Option<String> {
    let quoted = words.iter().map(|word| {
        let known = word.chars().any(char::is_alphanumeric);
        known.then(|| format!("\"{}\"*", word.replace('"', "\"\"")))
    });
    let quoted: Vec<String> = quoted.collect::<Option<_>>()?;
    Some(quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use crate::{
        DbSink, Durability, Entry, Sink,
        query::{Filter, Reader},
    };

    #[test]
    fn the_index_finds_what_a_scan_finds_and_keeps_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs.db");
        let mut sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
        let entry = |exception: &str| Entry {
            exception: exception.to_owned().into(),
            ..Entry::default()
        };
        let found = |words: &[&str], indexed: bool| {
            let mut reader = Reader::open(&path, "logs").unwrap();
            if indexed {
                reader.index_words().unwrap();
            }
            let filter = Filter {
                words: words.iter().map(|word| (*word).to_owned()).collect(),
                ..Filter::default()
            };
            let rows = reader.rows(&filter).unwrap();
            rows.iter().map(|row| row.id).collect::<Vec<_>>()
        };
        sink.write_batch(&[
            entry("Payment timeout"),
            entry("disk \"full\""),
            entry("50% done"),
        ])
        .unwrap();
        let cases: [(&[&str], &[i64]); 7] = [
            (&["payment"], &[1]),
            (&["TIME", "pay"], &[1]),
            (&["payment", "full"], &[]),
            (&["full\""], &[2]),
            (&["\""], &[2]),
            (&["%"], &[3]),
            (&["OR"], &[]),
        ];
        for (words, expected) in cases {
            assert_eq!(found(words, false), expected, "scanned {words:?}");
            assert_eq!(found(words, true), expected, "indexed {words:?}");
        }
        sink.prune(None, Some(2)).unwrap();
        sink.write_batch(&[entry("payment done")]).unwrap();
        assert_eq!(found(&["done"], true), [4, 3]);
        assert_eq!(found(&["payment"], true), [4]);
    }
}
