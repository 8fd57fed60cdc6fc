//! Sinks that stand still, disks that are full or cannot be written: the logged program does not
//! notice, and somebody is told.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use logkit::{
    CsvSink, DbSink, Durability, Entry, JsonForm, JsonSink, Logger, Rotation, Setup, log_call,
};

use crate::sinks::{Memory, blocked};

const LONG: Duration = Duration::from_secs(30);

#[log_call]
fn square(x: u64) -> u64 {
    x * x
}

fn folder_of_child() -> PathBuf {
    std::env::var_os("LOGKIT_TEST_FOLDER").unwrap().into()
}

/// Words of a command that runs one of the ignored tests.
fn inner(test: &str) -> Vec<String> {
    let binary = std::env::current_exe().unwrap();
    [
        binary.to_str().unwrap(),
        test,
        "--exact",
        "--ignored",
        "--nocapture",
    ]
    .map(str::to_owned)
    .into()
}

fn passed(output: &Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{output:?}");
}

fn notices(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stderr)
        .lines()
        .filter(|line| line.starts_with("logkit: "))
        .map(str::to_owned)
        .collect()
}

/// Runs a test with a small disk mounted at the folder, which nobody else sees.
fn on_a_small_disk(test: &str, folder: &Path, options: &str) -> Output {
    let script =
        format!("mount -t tmpfs -o {options} none \"$LOGKIT_TEST_FOLDER\" || exit; exec \"$@\"");
    Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .args(inner(test))
        .env("LOGKIT_TEST_FOLDER", folder)
        .output()
        .unwrap()
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_to_a_sink_that_stands_still() {
    let memory = Memory::default();
    let (sink, release) = blocked();
    let logger = Logger::builder()
        .sink(sink)
        .sink(memory.clone())
        .queue(1_000, usize::MAX)
        .build();
    logkit::set_default_logger(logger.clone());
    // The writer stands still from the first batch on.
    square(1);
    logger.emit(Entry {
        level: logkit::Level::Error,
        ..Entry::default()
    });
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    for n in 0..200_000 {
        let call = Instant::now();
        assert_eq!(square(n), n * n);
        slowest = slowest.max(call.elapsed());
    }
    let took = start.elapsed();
    drop(release);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let stats = logger.stats();
    assert!(stats.dropped_queue > 190_000, "{stats:?}");
    // Then it goes on, and what waited is there.
    assert!(logger.flush(LONG));
    let stats = logger.stats();
    assert_eq!(stats.emitted, stats.written + stats.dropped, "{stats:?}");
    assert_eq!(memory.0.lock().unwrap().len() as u64, stats.written);
}

#[test]
fn a_sink_that_stands_still_costs_entries_and_nothing_else() {
    let words = inner("disks::logs_to_a_sink_that_stands_still");
    let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    passed(&output);
    let notices = notices(&output);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("the queue is full"), "{notices:?}");
}

#[test]
#[ignore = "runs as the child of another test"]
fn fills_a_disk() {
    let folder = folder_of_child();
    let (db, csv) = (folder.join("logs.db"), folder.join("logs.csv"));
    let logger = Logger::builder()
        .sink(DbSink::open(&db, "logs", Durability::Buffered).unwrap())
        .sink(CsvSink::open(&csv, Rotation::default()).unwrap())
        .build();
    logkit::set_default_logger(logger.clone());
    for n in 0..20_000 {
        assert_eq!(square(n), n * n);
        if n % 500 == 0 {
            logger.flush(LONG);
        }
    }
    logger.flush(LONG);
    let stats = logger.stats();
    assert_eq!(stats.emitted, stats.written + stats.dropped, "{stats:?}");
    assert!(
        stats.written > 100 && stats.dropped_sink > 1_000,
        "{stats:?}"
    );
    // No torn line, no broken database.
    let text = fs::read_to_string(&csv).unwrap();
    assert!(text.ends_with("\r\n"));
    let rows = csv::Reader::from_reader(text.as_bytes()).into_records();
    assert!(rows.map(Result::unwrap).count() > 100);
    fs::remove_file(&csv).unwrap();
    let check = rusqlite::Connection::open(&db).unwrap();
    let verdict: String = check
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
    // With room again the database takes entries again.
    let before = logger.stats().written;
    square(3);
    logger.flush(LONG);
    assert_eq!(logger.stats().written, before + 1);
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_disk_that_fills_up_is_told_and_used_again_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let output = on_a_small_disk("disks::fills_a_disk", folder.path(), "size=1m");
    passed(&output);
    let notices = notices(&output);
    assert_eq!(notices.len(), 2, "one for each sink: {notices:?}");
}

#[test]
#[ignore = "runs as the child of another test"]
fn logs_into_a_folder_that_is_read_only() {
    let folder = folder_of_child();
    let path = folder.display();
    let specs = ["db:", "csv:", "md:", "jsonl:"].map(|kind| format!("{kind}{path}/logs"));
    let setup = Setup {
        sinks: Some(specs.into()),
        console: false,
        ..Setup::default()
    };
    let config = logkit::load_env(None).unwrap();
    let logger = logkit::configure(&config, setup).unwrap();
    assert_eq!(square(5), 25);
    assert!(logger.flush(LONG));
    let told = JsonSink::open(folder.join("x.jsonl"), JsonForm::Lines, Rotation::default())
        .unwrap_err()
        .to_string();
    assert!(told.contains("Read-only file system"), "{told}");
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_folder_that_is_read_only_leaves_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let test = "disks::logs_into_a_folder_that_is_read_only";
    let output = on_a_small_disk(test, folder.path(), "ro");
    passed(&output);
    assert_eq!(notices(&output).len(), 4, "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("| square() | args=(5,) | -> 25"),
        "{stderr}"
    );
}
