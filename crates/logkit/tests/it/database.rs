//! What is committed is there, and can be found.

use std::time::Duration;

use logkit::{
    DbSink, Durability, Entry, Level, Logger, Sink, SpanId, Update,
    query::{BadSearch, Filter, Reader, search_text, search_words},
};

const LONG: Duration = Duration::from_secs(20);

/// The longest texts that are taken are answered, and what is not taken could not be.
#[test]
fn what_can_be_searched_for_can_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let mut sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    sink.write_batch(&[Entry::default()]).unwrap();
    let mut reader = Reader::open(&path, "logs").unwrap();
    for is_indexed in [false, true] {
        if is_indexed {
            reader.index_words().unwrap();
        }
        for text in ["w ".repeat(64), "\"".repeat(1024), "%".repeat(1024)] {
            let filter = Filter {
                words: search_words(&text).unwrap(),
                search: Some(search_text(&text).unwrap()),
                function: Some(search_text(&text).unwrap()),
                ..Filter::default()
            };
            assert_eq!(reader.rows(&filter).unwrap(), [], "{text}");
        }
    }
    let words = |text: String| search_words(&text).unwrap_err();
    assert_eq!(words("w ".repeat(65)), BadSearch::TooManyWords);
    assert_eq!(words("w".repeat(1025)), BadSearch::TooLong);
    assert_eq!(words("a\0b".into()), BadSearch::Nul);
    assert_eq!(search_text("a\0b"), Err(BadSearch::Nul));
    assert_eq!(search_text(&"w".repeat(1025)), Err(BadSearch::TooLong));
}

#[test]
fn entries_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let logger = Logger::builder()
        .sink(DbSink::open(&path, "logs", Durability::Buffered).unwrap())
        .build();
    let mut full = Entry {
        level: Level::Error,
        function_name: "Type::method".into(),
        module: "m".into(),
        args: "('żółć \u{0} \n',)".into(),
        exception: "it's % broken_".into(),
        exception_type: "Broken".into(),
        duration_ms: Some(1.5),
        trace_id: "t".into(),
        span_id: Some("00000000000000ff".parse::<SpanId>().unwrap()),
        ..Entry::default()
    };
    full.extra.insert("returncode".into(), 3.into());
    let ack = logger.emit_acked(full.clone()).wait(LONG).unwrap();
    assert_eq!((ack.first_id, ack.n_entries), (Some(1), 1));
    let more = vec![Entry::default(), Entry::default()];
    let ack = logger.emit_batch_acked(more).wait(LONG).unwrap();
    assert_eq!((ack.first_id, ack.n_entries), (Some(2), 2));

    let reader = Reader::open(&path, "logs").unwrap();
    assert_eq!(reader.row(1).unwrap().unwrap().entry, full);
    let ids = |filter: Filter| -> Vec<i64> {
        let rows = reader.rows(&filter).unwrap();
        assert_eq!(reader.count(&filter).unwrap(), rows.len() as u64);
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(Filter::default()), [3, 2, 1]);
    for filter in [
        Filter {
            errors: true,
            ..Filter::default()
        },
        Filter {
            level: Some(Level::Error),
            ..Filter::default()
        },
        Filter {
            function: Some("METHOD".into()),
            ..Filter::default()
        },
        Filter {
            search: Some("% BROKEN_".into()),
            ..Filter::default()
        },
        Filter {
            search: Some("returncode".into()),
            ..Filter::default()
        },
        Filter {
            trace_id: Some("t".into()),
            ..Filter::default()
        },
        Filter {
            slow_ms: Some(1.5),
            ..Filter::default()
        },
        Filter {
            before_id: Some(2),
            ..Filter::default()
        },
        Filter {
            until: Some(more_than(full.timestamp)),
            errors: true,
            ..Filter::default()
        },
    ] {
        assert_eq!(ids(filter.clone()), [1], "{filter:?}");
    }
    assert_eq!(
        ids(Filter {
            function: Some("%".into()),
            ..Filter::default()
        }),
        [0_i64; 0]
    );
    assert_eq!(reader.after(1, 10).unwrap().len(), 2);
    assert_eq!(reader.last_id().unwrap(), 3);

    let mut update = Update {
        llm_analysis: Some("because".into()),
        ..Update::default()
    };
    update.extra.insert("seen".into(), true.into());
    logger.update(1, update);
    assert!(logger.flush(LONG));
    let entry = reader.row(1).unwrap().unwrap().entry;
    assert_eq!(entry.llm_analysis, "because");
    assert_eq!(
        serde_json::to_string(&entry.extra).unwrap(),
        r#"{"returncode":3,"seen":true}"#
    );
}

fn more_than(timestamp: logkit::Timestamp) -> logkit::Timestamp {
    logkit::Timestamp::from_micros(timestamp.micros() + 1)
}

#[test]
fn tables_of_other_tools_are_extended_and_stay_writable_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch(
            "CREATE TABLE logs (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT, level TEXT,
             function_name TEXT, module TEXT, args TEXT);
             INSERT INTO logs (timestamp, level, function_name)
             VALUES ('2026-11-20T19:54:48+00:00', 'INFO', 'old');",
        )
        .unwrap();
    let before = Reader::open(&path, "logs").unwrap();
    assert_eq!(
        before.rows(&Filter::default()).unwrap()[0]
            .entry
            .function_name,
        "old"
    );
    let logger = Logger::builder()
        .sink(DbSink::open(&path, "logs", Durability::Full).unwrap())
        .build();
    logger.emit_acked(Entry::default()).wait(LONG).unwrap();
    other
        .execute_batch(
            "INSERT INTO logs (timestamp, level, function_name) VALUES ('2026', 'X', 'y')",
        )
        .unwrap();
    let after = Reader::open(&path, "logs").unwrap();
    assert_eq!(after.rows(&Filter::default()).unwrap().len(), 3);
}

#[test]
fn names_of_tables_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "1a", "a b", "a\"; DROP TABLE logs; --", "ż"] {
        let path = folder.path().join("logs.db");
        assert!(
            DbSink::open(&path, name, Durability::Buffered).is_err(),
            "{name}"
        );
        assert!(Reader::open(&path, name).is_err(), "{name}");
        assert!(!path.exists());
    }
}

#[test]
fn old_rows_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let mut sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    let at = |micros| Entry {
        timestamp: logkit::Timestamp::from_micros(micros),
        ..Entry::default()
    };
    sink.write_batch(&(0..10).map(at).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(
        sink.prune(Some(logkit::Timestamp::from_micros(3)), None)
            .unwrap(),
        3
    );
    assert_eq!(sink.prune(None, Some(5)).unwrap(), 2);
    let ids: Vec<i64> = Reader::open(&path, "logs")
        .unwrap()
        .after(0, 100)
        .unwrap()
        .iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(ids, [6, 7, 8, 9, 10]);
}

/// The module `sqlite3` of a Python program that logs is a second copy of SQLite in the process: locks of
/// the process do not keep it from deleting the log that the sink writes.
#[test]
#[cfg(target_os = "linux")]
fn another_copy_of_sqlite_in_this_process_finds_the_database_in_use() {
    use nix::{
        fcntl::{FcntlArg, fcntl},
        libc::{F_WRLCK, SEEK_SET, flock},
    };

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let mut sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    sink.write_batch(&[Entry::default()]).unwrap();
    let other = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    // What SQLite does before it deletes the log.
    let lock = flock {
        l_type: F_WRLCK as i16,
        l_whence: SEEK_SET as i16,
        l_start: 0x4000_0002,
        l_len: 510,
        l_pid: 0,
    };
    let locked = || fcntl(&other, FcntlArg::F_SETLK(&lock)).is_ok();
    assert!(!locked());
    let wal = folder.path().join("logs.db-wal");
    assert!(wal.exists());
    drop(sink);
    assert!(
        !wal.exists(),
        "the last one copies everything and deletes the log"
    );
    assert!(locked());
}
