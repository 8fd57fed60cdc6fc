//! What a logged call costs its caller, and how fast the database takes rows.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports, and one that cannot go on has failed"
)]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use logkit::{
    DbSink, Durability, Entry, JsonForm, JsonSink, Level, Logger, Rotation, Sink, SinkError,
    log_call, set_default_logger,
};

/// Takes everything and keeps nothing.
struct Null;

impl Sink for Null {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        Ok(())
    }
}

#[inline(never)]
fn plain(n: u64, text: &str) -> u64 {
    n + text.len() as u64
}

#[inline(never)]
#[log_call]
fn logged(n: u64, text: &str) -> u64 {
    n + text.len() as u64
}

/// Entries that fit the queue: what is measured is the caller, not the sink.
const BURST: u64 = 2_000;

fn measure(criterion: &mut Criterion, name: &str, goal: &str, logger: Logger) {
    set_default_logger(logger.clone());
    criterion.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            let mut left = iterations;
            logged(0, "warm");
            while left > 0 {
                let burst = left.min(BURST);
                let start = Instant::now();
                for n in 0..burst {
                    black_box(logged(black_box(n), black_box("abc")));
                }
                total += start.elapsed();
                left -= burst;
                assert!(logger.flush(Duration::from_mins(1)));
            }
            total
        });
    });
    let run = || {
        let start = Instant::now();
        for n in 0..100 {
            black_box(logged(black_box(n), black_box("abc")));
        }
        let took = start.elapsed();
        assert!(logger.flush(Duration::from_mins(1)));
        took
    };
    report(name, 100, goal, (0..300).map(|_| run()).collect());
    let stats = logger.stats();
    assert_eq!(stats.dropped, 0, "{stats:?}");
    logger.close();
}

/// Half of the runs took at most that long, and what a call takes when nothing else runs on the
/// machine: each run made so many calls.
fn report(name: &str, calls: u32, goal: &str, mut runs: Vec<Duration>) {
    runs.sort_unstable();
    let nanos = |run: Duration| run.as_nanos() as f64 / f64::from(calls);
    let (median, fastest) = (nanos(runs[runs.len() / 2]), nanos(runs[0]));
    println!("{name}: median {median:.2} ns, fastest {fastest:.2} ns{goal}");
}

fn repeat(name: &str, goal: &str, call: impl Fn()) {
    const CALLS: u32 = 10_000;
    let run = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed()
    };
    report(name, CALLS, goal, (0..2_000).map(run).collect());
}

const ENABLED: &str = " (goal 800 ns)";
const DISABLED: &str = " (goal 1 ns more than plain)";

fn calls(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    criterion.bench_function("call/plain", |bencher| {
        bencher.iter(|| plain(black_box(1), black_box("abc")));
    });
    repeat("call/plain", "", || {
        black_box(plain(black_box(1), black_box("abc")));
    });
    let off = Logger::builder().sink(Null).build();
    set_default_logger(off.clone());
    off.disable();
    repeat("call/disabled", DISABLED, || {
        black_box(logged(black_box(1), black_box("abc")));
    });
    criterion.bench_function("call/disabled", |bencher| {
        bencher.iter(|| logged(black_box(1), black_box("abc")));
    });
    off.set_level(&Level::Warning);
    criterion.bench_function("call/errors only", |bencher| {
        bencher.iter(|| logged(black_box(1), black_box("abc")));
    });
    let builder = Logger::builder;
    measure(
        criterion,
        "call/null sink",
        "",
        builder().sink(Null).build(),
    );
    let file = folder.path().join("logs.jsonl");
    let json = JsonSink::open(file, JsonForm::Lines, Rotation::default()).unwrap();
    measure(
        criterion,
        "call/json file",
        ENABLED,
        builder().sink(json).build(),
    );
    let db = DbSink::open(folder.path().join("logs.db"), "logs", Durability::Buffered).unwrap();
    measure(criterion, "call/db", ENABLED, builder().sink(db).build());
}

fn inserts(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let mut sink =
        DbSink::open(folder.path().join("logs.db"), "logs", Durability::Buffered).unwrap();
    let mut runs = Vec::new();
    let names: Vec<String> = (0..200).map(|n| format!("module::function_{n}")).collect();
    let mut group = criterion.benchmark_group("db");
    group.throughput(criterion::Throughput::Elements(512));
    group.bench_function("insert 512 rows", |bencher| {
        bencher.iter_batched(
            || -> Vec<Entry> {
                (0..512)
                    .map(|n| Entry {
                        function_name: names[n % names.len()].clone().into(),
                        module: "module".into(),
                        args: format!("({n}, \"abc\")").into(),
                        arg_types: "u64, &str".into(),
                        return_value: n.to_string().into(),
                        return_type: "u64".into(),
                        duration_ms: Some(0.12),
                        environment: "prod".into(),
                        trace_id: if n % 2 == 0 { "0123456789abcdef" } else { "" }.into(),
                        ..Entry::default()
                    })
                    .collect()
            },
            |entries| {
                let start = Instant::now();
                sink.write_batch(&entries).unwrap();
                runs.push(start.elapsed());
            },
            criterion::BatchSize::LargeInput,
        );
    });
    group.finish();
    runs.sort_unstable();
    if let Some(median) = runs.get(runs.len() / 2) {
        let rate = 512.0 / median.as_secs_f64();
        println!("db/insert 512 rows: median {rate:.0} rows/s (goal 100000)");
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = calls, inserts
}
criterion_main!(benches);
