//! Nothing is lost without being counted, and nothing that goes wrong reaches the caller.

use std::{
    thread,
    time::{Duration, Instant},
};

use logkit::{Durability, Entry, Level, Logger, NotWritten, OnFull, Sink, SinkError, Stats};

use crate::sinks::{Broken, Memory, Panics, blocked};

const LONG: Duration = Duration::from_secs(20);

fn entry(level: Level, text: String) -> Entry {
    Entry {
        level,
        function_name: text.into(),
        ..Entry::default()
    }
}

fn assert_adds_up(stats: Stats) {
    assert_eq!(stats.emitted, stats.written + stats.dropped, "{stats:?}");
    assert_eq!(stats.queue_len, 0);
}

#[test]
fn emitted_is_written_plus_dropped_under_eight_threads() {
    for on_full in [
        OnFull::ByLevel,
        OnFull::Block,
        OnFull::DropNew,
        OnFull::DropOld,
    ] {
        let memory = Memory::default();
        let logger = Logger::builder()
            .sink(memory.clone())
            .queue(700, usize::MAX)
            .on_full(on_full)
            .build();
        thread::scope(|scope| {
            for thread in 0..8 {
                let logger = &logger;
                scope.spawn(move || {
                    for n in 0..5_000 {
                        let level = [Level::Debug, Level::Error][n % 2].clone();
                        logger.emit(entry(level, format!("{thread}/{n}")));
                    }
                });
            }
        });
        assert!(logger.flush(LONG));
        let stats = logger.stats();
        assert_adds_up(stats);
        assert!(stats.emitted >= 40_000, "{stats:?}");
        let kept = memory.0.lock().unwrap();
        assert_eq!(kept.len() as u64, stats.written, "{on_full:?}");
        // Those of one thread are in order.
        let mut last = [None; 8];
        for entry in kept.iter() {
            let Some((thread, n)) = entry.function_name.split_once('/') else {
                assert_eq!(entry.function_name, "logkit.queue");
                continue;
            };
            let (thread, n): (usize, u32) = (thread.parse().unwrap(), n.parse().unwrap());
            assert!(last[thread] < Some(n));
            last[thread] = Some(n);
        }
    }
}

#[test]
fn a_blocked_sink_costs_the_caller_a_tenth_of_a_second_once() {
    let (sink, release) = blocked();
    let logger = Logger::builder().sink(sink).queue(600, usize::MAX).build();
    let start = Instant::now();
    for n in 0..5_000 {
        logger.emit(entry(Level::Error, n.to_string()));
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let stats = logger.stats();
    assert!(stats.dropped >= 4_000, "{stats:?}");
    drop(release);
    assert!(logger.flush(LONG));
    assert_adds_up(logger.stats());
}

#[test]
fn a_burst_to_a_database_that_keeps_up_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.db");
    let sink = logkit::DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    let logger = Logger::builder().sink(sink).build();
    for n in 0..200_000 {
        logger.emit(entry(Level::Info, n.to_string()));
    }
    assert!(logger.flush(LONG));
    let stats = logger.stats();
    assert_eq!((stats.written, stats.dropped), (200_000, 0), "{stats:?}");
    let reader = logkit::query::Reader::open(&path, "logs").unwrap();
    let all = logkit::query::Filter::default();
    assert_eq!(reader.count(&all).unwrap(), 200_000);
}

/// Takes a while for each batch.
struct Slow(Duration);

impl Sink for Slow {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        std::thread::sleep(self.0);
        Ok(())
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        "slow".into()
    }
}

#[test]
fn nobody_waits_for_a_sink_that_does_not_keep_up() {
    let logger = Logger::builder()
        .sink(Slow(Duration::from_millis(150)))
        .queue(600, usize::MAX)
        .build();
    logger.emit(entry(Level::Info, "first".into()));
    assert!(logger.flush(LONG));
    for n in 0..50_000 {
        logger.emit(entry(Level::Info, n.to_string()));
    }
    // To wait for all of it would take a hundred batches.
    assert!(logger.stats().dropped > 40_000, "{:?}", logger.stats());
    assert!(logger.flush(LONG));
    assert_adds_up(logger.stats());
}

#[test]
fn sinks_that_fail_are_counted_and_others_go_on() {
    let memory = Memory::default();
    let logger = Logger::builder()
        .sink(Broken)
        .sink(Panics)
        .sink(memory.clone())
        .build();
    for _ in 0..3 {
        let receipt = logger.emit_acked(Entry::default());
        assert!(matches!(receipt.wait(LONG), Err(NotWritten::Failed(_))));
    }
    assert_eq!(memory.0.lock().unwrap().len(), 3);
    assert_eq!(logger.stats().sink_errors, 6);
    assert_adds_up(logger.stats());

    let logger = Logger::builder().sink(Broken).build();
    logger.emit(Entry::default());
    logger.flush(LONG);
    assert_eq!(logger.stats().dropped_sink, 1);
    assert_adds_up(logger.stats());
}

#[test]
fn what_waits_is_written_at_the_end() {
    let memory = Memory::default();
    let logger = Logger::builder()
        .level(Level::Info)
        .sink(memory.clone())
        .build();
    for level in [Level::Debug, Level::Info, Level::Other("NOTE".into())] {
        logger.emit(entry(level, String::new()));
    }
    let clone = logger.clone();
    drop(logger);
    clone.emit(Entry::default());
    assert!(clone.close());
    assert_eq!(memory.0.lock().unwrap().len(), 2);
    clone.emit(Entry::default());
    assert_eq!(clone.stats().dropped_queue, 1);
    assert_adds_up(clone.stats());
}

#[test]
fn a_full_queue_says_so_to_those_who_ask() {
    let (sink, release) = blocked();
    let logger = Logger::builder().sink(sink).queue(10, usize::MAX).build();
    let first = logger.emit_acked(Entry::default());
    let second = logger.emit_batch_acked(vec![Entry::default(); 9]);
    assert!(logger.try_emit(Entry::default()).is_err());
    assert!(logger.try_emit_batch_acked(vec![Entry::default()]).is_err());
    assert_eq!(logger.stats().dropped, 0);
    drop(release);
    assert_eq!(first.wait(LONG).unwrap().n_entries, 1);
    assert_eq!(second.wait(LONG).unwrap().n_entries, 9);
    logger.flush(LONG);
    assert!(logger.try_emit(Entry::default()).is_ok());
    logger.flush(LONG);
    assert_adds_up(logger.stats());
}

#[test]
fn whoever_must_not_wait_gets_the_entry_back() {
    let (sink, release) = blocked();
    let logger = Logger::builder().sink(sink).queue(2, usize::MAX).build();
    let emit = |level: Level| logger.emit_unless_waiting(entry(level, "f".into()));
    assert!(emit(Level::Error).is_ok());
    assert!(emit(Level::Error).is_ok());
    for level in [Level::Error, Level::Debug] {
        assert_eq!(emit(level).unwrap_err().function_name, "f");
    }
    assert_eq!(logger.stats().emitted, 2);
    // Somebody waited in vain: what would be dropped at once need not come back.
    logger.emit(entry(Level::Debug, "f".into()));
    assert_eq!(logger.stats().dropped, 1);
    assert!(emit(Level::Debug).is_ok());
    assert_eq!(logger.stats().dropped, 2);
    drop(release);
    logger.flush(LONG);
    assert_adds_up(logger.stats());

    let synced = Logger::builder()
        .sink(Memory::default())
        .durability(Durability::Sync)
        .build();
    assert!(synced.emit_unless_waiting(Entry::default()).is_err());
}

#[test]
fn a_closed_logger_has_nothing_to_flush() {
    let logger = Logger::builder().sink(Memory::default()).build();
    logger.emit(Entry::default());
    let (weak, added) = (logger.downgrade(), logger.temp_sink(Box::new(Broken)));
    assert!(logger.close());
    let start = Instant::now();
    assert!(logger.flush(LONG));
    drop(added);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(weak.upgrade().is_some());
    drop(logger);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_closed_logger_holds_up_no_fork() {
    let logger = Logger::builder().sink(Memory::default()).build();
    assert!(logger.close());
    let began = Instant::now();
    drop(logger.before_fork());
    assert!(began.elapsed() < Duration::from_secs(2));
}
