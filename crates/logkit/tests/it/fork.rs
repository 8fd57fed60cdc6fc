//! Processes that fork while they log: neither side hangs, loses entries or harms a database.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use fork::{Fork, fork, waitpid};
use logkit::{
    ConsoleSink, DbSink, Durability, Entry, JsonForm, JsonSink, Logger, Rotation, Setup, log_call,
    query::{Filter, Reader},
};

const LONG: Duration = Duration::from_secs(20);

/// This test's binary, running one of the ignored tests as a process of its own.
fn process(test: &str, folder: &Path) -> Output {
    let start = Instant::now();
    let output = Command::new("timeout")
        .arg("60")
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("LOGKIT_TEST_FOLDER", folder)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("1 passed"),
        "after {:?}: {output:?}",
        start.elapsed()
    );
    output
}

fn folder_of_child() -> std::path::PathBuf {
    std::env::var_os("LOGKIT_TEST_FOLDER").unwrap().into()
}

fn named(name: String) -> Entry {
    Entry {
        function_name: name.into(),
        ..Entry::default()
    }
}

/// Forks; the child does that and ends as programs do, and nothing is known of its end but its status.
fn forked(child: impl FnOnce() -> bool) -> i32 {
    match fork().unwrap() {
        Fork::Child => std::process::exit(i32::from(!child())),
        Fork::Parent(pid) => pid,
    }
}

/// True if the process ended well.
fn ended(pid: i32) -> bool {
    waitpid(pid).unwrap() == 0
}

#[log_call]
fn square(x: u64) -> u64 {
    x * x
}

#[test]
#[ignore = "runs as the child of another test"]
fn forks_with_a_guard() {
    let folder = folder_of_child();
    let config = logkit::load_env(Some(&folder.join("env"))).unwrap();
    let setup = Setup {
        console: false,
        ..Setup::default()
    };
    let logger = logkit::configure(&config, setup).unwrap();
    for round in 0..5_u64 {
        for n in 0..20 {
            square(n);
        }
        let guard = logger.before_fork();
        let child = forked(|| {
            drop(guard);
            let log = || {
                for n in 0..100 {
                    logger.emit(named(format!("child {round} {n}")));
                }
            };
            log();
            // One that forks again.
            let guard = logger.before_fork();
            let grandchild = forked(|| {
                drop(guard);
                logger.emit(named(format!("grandchild {round}")));
                true
            });
            // Nobody flushes: what waits is written at the end.
            ended(grandchild) && square(7) == 49
        });
        for n in 0..100 {
            logger.emit(named(format!("parent {round} {n}")));
        }
        assert!(ended(child));
    }
    assert!(logger.flush(LONG));
    assert_eq!(logger.stats().dropped, 0);
}

#[test]
fn both_sides_of_a_fork_log_into_one_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    fs::write(
        folder.path().join("env"),
        format!("LOGKIT_SINKS=db:{path}/logs.db,jsonl:{path}/logs.jsonl\n"),
    )
    .unwrap();
    let output = process("fork::forks_with_a_guard", folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("logkit: "), "{stderr}");
    let mut names = Vec::new();
    let mut traces = BTreeSet::new();
    let reader = Reader::open(folder.path().join("logs.db"), "logs").unwrap();
    reader
        .for_each(&Filter::default(), |row| {
            names.push(row.entry.function_name.to_string());
            traces.insert(row.entry.trace_id.to_string());
            true
        })
        .unwrap();
    for round in 0..5 {
        for side in ["parent", "child"] {
            let of_side = format!("{side} {round} ");
            let there = names.iter().filter(|name| name.starts_with(&of_side));
            assert_eq!(there.count(), 100, "{of_side}");
        }
        assert!(names.contains(&format!("grandchild {round}")));
    }
    // 20 of the parent and one of the child in each round.
    let squares = names.iter().filter(|name| *name == "square").count();
    assert_eq!(squares, 5 * 21);
    assert_eq!(traces.len(), 1, "the tags are those of the first process");
    let lines = fs::read_to_string(folder.path().join("logs.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), names.len());
    let check = rusqlite::Connection::open(folder.path().join("logs.db")).unwrap();
    let verdict: String = check
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

fn describe(folder: &Path) -> logkit::Builder {
    let mut builder = Logger::builder().sink(
        JsonSink::open(
            folder.join("logs.jsonl"),
            JsonForm::Lines,
            Rotation::default(),
        )
        .unwrap(),
    );
    if let Ok(sink) = DbSink::open(folder.join("logs.db"), "logs", Durability::Buffered) {
        builder = builder.sink(sink);
    }
    builder
}

#[test]
#[ignore = "runs as the child of another test"]
fn forks_in_the_middle_of_logging() {
    let folder = folder_of_child();
    let again = folder.clone();
    let logger = describe(&folder)
        .after_fork(move || describe(&again))
        .build();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    logger.emit(named("busy".into()));
                }
            });
        }
        for round in 0..20 {
            let child = forked(|| {
                for n in 0..50 {
                    logger.emit(named(format!("child {round} {n}")));
                }
                // A logger of its own is closed by hand.
                logger.close() && logger.stats().written >= 50
            });
            assert!(ended(child), "round {round}");
        }
        stop.store(true, Relaxed);
    });
    assert!(logger.flush(LONG));
    let stats = logger.stats();
    assert_eq!(stats.emitted, stats.written + stats.dropped, "{stats:?}");
}

#[test]
fn a_fork_at_any_moment_hangs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    process("fork::forks_in_the_middle_of_logging", folder.path());
    let text = fs::read_to_string(folder.path().join("logs.jsonl")).unwrap();
    let names: Vec<String> = text
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["function_name"].as_str().unwrap().to_owned()
        })
        .filter(|name| name.starts_with("child"))
        .collect();
    let different: BTreeSet<&String> = names.iter().collect();
    assert_eq!((names.len(), different.len()), (20 * 50, 20 * 50));
    // The database was open at the forks: the children must not touch it.
    let reader = Reader::open(folder.path().join("logs.db"), "logs").unwrap();
    let rows = reader
        .rows(&Filter {
            function: Some("child".into()),
            ..Filter::default()
        })
        .unwrap();
    assert!(rows.is_empty());
}

#[test]
#[ignore = "runs as the child of another test"]
fn forks_while_stderr_is_locked() {
    let describe = || Logger::builder().console(ConsoleSink::stderr());
    let logger = describe().after_fork(describe).build();
    let (is_locked, locked) = mpsc::channel();
    let (end, is_over) = mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let _stderr = std::io::stderr().lock();
        is_locked.send(()).unwrap();
        // As one that writes to a terminal that stands still.
        let _ = is_over.recv();
    });
    locked.recv().unwrap();
    let child = forked(|| {
        logger.emit(named("of the child".into()));
        logkit::notice("a notice of the child");
        logger.close()
    });
    assert!(ended(child));
    drop(end);
    holder.join().unwrap();
}

#[test]
fn a_lock_on_stderr_at_a_fork_keeps_no_line_back() {
    let folder = tempfile::tempdir().unwrap();
    let output = process("fork::forks_while_stderr_is_locked", folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    for line in ["| of the child()\n", "logkit: a notice of the child\n"] {
        assert!(stderr.contains(line), "{stderr}");
    }
}

#[test]
#[ignore = "runs as the child of another test"]
fn forks_without_a_plan() {
    let folder = folder_of_child();
    let path = folder.join("logs.db");
    let sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    let logger = Logger::builder().sink(sink).build();
    logger.emit(named("before".into()));
    let child = forked(|| {
        let told = DbSink::open(&path, "logs", Durability::Buffered)
            .unwrap_err()
            .to_string();
        logger.emit(named("lost".into()));
        logger.emit(named("lost".into()));
        let stats = logger.stats();
        logger.flush(LONG);
        told.contains("before_fork") && (stats.emitted, stats.dropped) == (2, 2)
    });
    assert!(ended(child));
    // A child that logs nothing has nothing to wait for.
    let start = Instant::now();
    let child = forked(|| logger.flush(LONG) && logger.close());
    assert!(ended(child));
    assert!(start.elapsed() < Duration::from_secs(2));
    logger.emit(named("after".into()));
    assert!(logger.flush(LONG));
    assert_eq!(logger.stats().written, 2);
}

#[test]
fn what_cannot_be_written_after_a_fork_is_counted_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = process("fork::forks_without_a_plan", folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let notices: Vec<_> = stderr
        .lines()
        .filter(|line| line.starts_with("logkit: "))
        .collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("was forked"), "{notices:?}");
}
