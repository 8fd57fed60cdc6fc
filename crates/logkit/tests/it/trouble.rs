//! Killed processes, full disks, folders that cannot be written: the program goes on, and what was
//! acknowledged is there.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use logkit::{
    CsvSink, DbSink, Durability, Entry, JsonForm, JsonSink, Level, Logger, Rotation, Sink,
    log_call,
    query::Reader,
    spec::{Options, open},
};

use crate::sinks::Memory;

const LONG: Duration = Duration::from_secs(20);

/// This test's binary, to run one of the ignored tests as a process of its own.
fn child(test: &str, folder: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LOGKIT_TEST_FOLDER", folder);
    command
}

fn folder_of_child() -> std::path::PathBuf {
    std::env::var_os("LOGKIT_TEST_FOLDER").unwrap().into()
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_until_killed() {
    let sink = DbSink::open(
        folder_of_child().join("logs.db"),
        "logs",
        Durability::Buffered,
    )
    .unwrap();
    let logger = Logger::builder().sink(sink).build();
    let mut out = std::io::stdout();
    for n in 0.. {
        logger.emit(Entry::default());
        let entry = Entry {
            function_name: format!("f{n}").into(),
            ..Entry::default()
        };
        let ack = logger.emit_acked(entry).wait(LONG).unwrap();
        writeln!(out, "ack {} f{n}", ack.first_id.unwrap()).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let mut n_acknowledged = 0;
    for round in 0..50 {
        let mut child = child("trouble::logs_until_killed", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A few acknowledgements, then at some moment.
        let mut acknowledged: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .filter(|line| line.contains("ack "))
            .take(1)
            .collect();
        std::thread::sleep(Duration::from_micros(round * 397 % 9_000));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(lines.map_while(Result::ok));
        let reader = Reader::open(&path, "logs").unwrap();
        for line in acknowledged {
            let mut words = line.split(' ').rev();
            let (name, id) = (words.next().unwrap(), words.next().unwrap());
            let row = reader.row(id.parse().unwrap()).unwrap();
            assert_eq!(row.expect(&line).entry.function_name, name);
            n_acknowledged += 1;
        }
        let check = rusqlite::Connection::open(&path).unwrap();
        let verdict: String = check
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(verdict, "ok");
    }
    assert!(n_acknowledged >= 50);
}

#[test]
#[ignore = "runs as the child of another test"]
fn journals_until_killed() {
    let folder = folder_of_child();
    let logger = Logger::builder()
        .sink(DbSink::open(folder.join("logs.db"), "logs", Durability::Crash).unwrap())
        .durability(Durability::Crash)
        .journal(folder.join("logs.db.crash"))
        .build();
    let mut out = std::io::stdout();
    for n in 0.. {
        logger.emit(Entry {
            function_name: format!("f{n}").into(),
            ..Entry::default()
        });
        writeln!(out, "done {} f{n}", std::process::id()).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_journal_survives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let mut child = child("trouble::journals_until_killed", folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let n_wanted = 50 + round * 97;
        let mut done: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .filter(|line| line.contains("done "))
            .take(n_wanted)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        done.extend(lines.map_while(Result::ok));
        let path = folder.path().join("logs.db");
        let logger = Logger::builder()
            .sink(DbSink::open(&path, "logs", Durability::Crash).unwrap())
            .durability(Durability::Crash)
            .journal(folder.path().join("logs.db.crash"))
            .build();
        drop(logger);
        let mut names = std::collections::HashSet::new();
        let reader = Reader::open(&path, "logs").unwrap();
        for row in reader.after(0, usize::MAX >> 1).unwrap() {
            names.insert(row.entry.function_name.into_owned());
        }
        for line in &done {
            let name = line.rsplit(' ').next().unwrap();
            assert!(names.contains(name), "{name} of {} is lost", done.len());
        }
        let db = rusqlite::Connection::open(&path).unwrap();
        db.execute("DELETE FROM logs", []).unwrap();
    }
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("crash"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[log_call]
fn square(n: u64) -> u64 {
    n * n
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_into_files_that_cannot_grow() {
    let folder = folder_of_child();
    let csv = CsvSink::open(folder.join("logs.csv"), Rotation::default()).unwrap();
    let db = DbSink::open(folder.join("logs.db"), "logs", Durability::Buffered).unwrap();
    let logger = Logger::builder().sink(csv).sink(db).build();
    logkit::set_default_logger(logger.clone());
    let start = Instant::now();
    for n in 0..5_000 {
        assert_eq!(square(n), n * n);
    }
    assert!(start.elapsed() < Duration::from_secs(2));
    logger.flush(LONG);
    let stats = logger.stats();
    assert_eq!(stats.emitted, 5_000);
    assert_eq!(stats.emitted, stats.written + stats.dropped, "{stats:?}");
    assert!(stats.dropped_sink > 0 && stats.sink_errors > 0, "{stats:?}");
    logger.close();
}

fn notices(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("logkit: "))
        .map(str::to_owned)
        .collect()
}

/// Runs one of the ignored tests where no file can have more than 128 KiB.
fn with_small_files(test: &str, folder: &std::path::Path) -> Output {
    let inner = child(test, folder);
    Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "bash"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env("LOGKIT_TEST_FOLDER", folder)
        .output()
        .unwrap()
}

#[test]
fn a_full_disk_costs_entries_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let output = with_small_files("trouble::logs_into_files_that_cannot_grow", folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{stdout}");
    let notices = notices(&output);
    assert_eq!(notices.len(), 2, "{notices:?}");
    // No torn line stays behind.
    let text = fs::read_to_string(folder.path().join("logs.csv")).unwrap();
    assert!(text.ends_with("\r\n"));
    let rows = csv::Reader::from_reader(text.as_bytes()).into_records();
    assert!(rows.map(Result::unwrap).count() > 10);
    let check = rusqlite::Connection::open(folder.path().join("logs.db")).unwrap();
    let verdict: String = check
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

fn named(name: &'static str) -> Entry {
    Entry {
        function_name: name.into(),
        ..Entry::default()
    }
}

/// More than a file has room for in [`with_small_files`].
fn too_long() -> Entry {
    Entry {
        args: "x".repeat(1 << 20).into(),
        ..named("too long")
    }
}

fn names(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).expect(line);
            entry["function_name"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
#[ignore = "runs as the child of another test"]
fn shares_a_file_that_cannot_grow() {
    let path = folder_of_child().join("logs.jsonl");
    let open = || JsonSink::open(&path, JsonForm::Lines, Rotation::default()).unwrap();
    let (mut ours, mut other) = (open(), open());
    ours.write_batch(&[named("ours")]).unwrap();
    other.write_batch(&[named("other")]).unwrap();
    ours.write_batch(&[too_long()]).unwrap_err();
    ours.write_batch(&[named("later")]).unwrap();
}

#[test]
fn an_entry_without_room_takes_none_of_others_away() {
    let folder = tempfile::tempdir().unwrap();
    let output = with_small_files("trouble::shares_a_file_that_cannot_grow", folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{output:?}");
    let text = fs::read_to_string(folder.path().join("logs.jsonl")).unwrap();
    assert_eq!(names(&text), ["ours", "other", "later"]);
}

#[test]
#[ignore = "runs as the child of another test"]
fn journals_into_a_file_that_cannot_grow() {
    let logger = Logger::builder()
        .sink(Memory::default())
        .durability(Durability::Crash)
        .journal(folder_of_child().join("journal"))
        .build();
    for entry in [named("before"), too_long(), named("after")] {
        logger.emit(entry);
    }
    // As one that is killed: nothing is closed.
    std::process::exit(7);
}

#[test]
fn an_entry_without_room_in_the_journal_takes_none_of_others_away() {
    let folder = tempfile::tempdir().unwrap();
    let test = "trouble::journals_into_a_file_that_cannot_grow";
    let output = with_small_files(test, folder.path());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(notices(&output).len(), 1, "{output:?}");
    let memory = Memory::default();
    let logger = Logger::builder()
        .sink(memory.clone())
        .durability(Durability::Crash)
        .journal(folder.path().join("journal"))
        .build();
    assert!(logger.close());
    let entries = memory.0.lock().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| &*entry.function_name).collect();
    assert_eq!(names, ["before", "after"]);
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_into_a_file_that_cannot_be_put_aside() {
    let rotation = Rotation {
        max_bytes: Some(1),
        backups: 1,
        ..Rotation::default()
    };
    let path = folder_of_child().join("logs.jsonl");
    let sink = JsonSink::open(path, JsonForm::Lines, rotation).unwrap();
    let logger = Logger::builder().sink(sink).build();
    for name in ["first", "second", "third"] {
        assert!(logger.emit_acked(named(name)).wait(LONG).is_ok());
    }
}

#[test]
fn a_file_that_cannot_be_put_aside_grows_and_that_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    // What stands where it would go can neither be moved nor removed.
    fs::create_dir(folder.path().join("logs.jsonl.1")).unwrap();
    let test = "trouble::logs_into_a_file_that_cannot_be_put_aside";
    let output = child(test, folder.path()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{output:?}");
    let text = fs::read_to_string(folder.path().join("logs.jsonl")).unwrap();
    assert_eq!(names(&text), ["first", "second", "third"]);
    let notices = notices(&output);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].contains("logs.jsonl is not put aside: "),
        "{notices:?}"
    );
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_to_a_full_device() {
    let sink = open("jsonl:/dev/full", &Options::default()).unwrap();
    let logger = Logger::builder().sink(sink).build();
    logkit::set_default_logger(logger.clone());
    for n in 0..1_000 {
        assert_eq!(square(n), n * n);
    }
    logger.flush(LONG);
    let stats = logger.stats();
    assert_eq!((stats.written, stats.dropped), (0, 1_000), "{stats:?}");
}

#[test]
fn a_full_device_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let output = child("trouble::logs_to_a_full_device", folder.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    let notices = notices(&output);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].starts_with("logkit: json: /dev/full: No space left"),
        "{notices:?}"
    );
}

#[test]
#[ignore = "runs as the child of another test"]
fn configures_itself() {
    let folder = folder_of_child();
    let config = logkit::load_env(Some(&folder.join("env"))).unwrap();
    let logger = logkit::configure(&config, logkit::Setup::default()).unwrap();
    let again = logkit::configure(&config, logkit::Setup::default()).unwrap();
    assert!(logger.is(&again));
    let secret = "password=hunter2";
    logkit::warning(secret);
    logkit::info("not logged");
    assert_eq!(square(3), 9);
    // Nobody flushes: what waits is written when the process ends.
}

#[test]
fn settings_make_a_logger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    fs::write(
        folder.path().join("env"),
        format!(
            "LOGKIT_SINKS=db:{path}/logs.db,jsonl:{path}/a\\,b.jsonl,csv:{path}/env/x.csv\n\
             LOGKIT_ENV=Test\nLOGKIT_LEVEL=WARNING\nLOGKIT_TRACE_ID=t-1\nLOGKIT_DURABILITY=crash\n"
        ),
    )
    .unwrap();
    let output = child("trouble::configures_itself", folder.path())
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
    let notices = notices(&output);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("/env/x.csv: "), "{notices:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("| WARNING | logkit | event() | -> 'password=***REDACTED***'"),
        "{stderr}"
    );
    let rows = Reader::open(folder.path().join("logs.db"), "logs")
        .unwrap()
        .after(0, 9)
        .unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&*rows[0].entry.environment, &*rows[0].entry.trace_id),
        ("Test", "t-1")
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("a,b.jsonl"))
            .unwrap()
            .lines()
            .count(),
        1
    );
    // The journal was emptied at the end: nothing is written twice.
    let left: u64 = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap())
        .filter(|file| file.file_name().to_string_lossy().contains("crash"))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert_eq!(left, 0);
}

#[test]
fn sinks_that_cannot_be_opened_say_why() {
    let folder = tempfile::tempdir().unwrap();
    // Not even the superuser can make a file below a file.
    let below = folder.path().join("file");
    fs::write(&below, "").unwrap();
    for kind in ["db", "csv", "md", "json"] {
        let spec = format!("{kind}:{}/x", below.display());
        let error = open(&spec, &Options::default()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/file/x"), "{error}");
    }
}

#[test]
fn entries_are_written_without_a_flush() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let logger = Logger::builder()
        .sink(DbSink::open(&path, "logs", Durability::Buffered).unwrap())
        .build();
    let reader = Reader::open(&path, "logs").unwrap();
    for (n_before, level) in [Level::Error, Level::Info].into_iter().enumerate() {
        logger.emit(Entry {
            level,
            ..Entry::default()
        });
        let start = Instant::now();
        while reader.last_id().unwrap() == n_before as i64 {
            assert!(start.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn sync_durability_is_there_when_the_call_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let logger = Logger::builder()
        .sink(DbSink::open(&path, "logs", Durability::Sync).unwrap())
        .durability(Durability::Sync)
        .build();
    let reader = Reader::open(&path, "logs").unwrap();
    for n in 1..=20 {
        logger.emit(Entry::default());
        assert_eq!(reader.last_id().unwrap(), n);
    }
}
