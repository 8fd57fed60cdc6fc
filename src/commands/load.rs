//! `llmsrv test --cpu --mem --disk`: load on this machine.

use std::{
    fmt::Write as _,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use llmsrv_host::stress::{self, Cpu, Disk, Error, Memory, Source, Stop};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    checks::{Outcome, Totals, word},
    cli::{LoadArgs, TestArgs},
    connect::runtime,
    context::Context,
    failure::Failure,
    format, term,
};

/// Puts the load that was asked for on the machine, one kind after another.
pub fn run(context: &Context, args: &TestArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::default();
    let signals = runtime()?;
    let interrupted = {
        let stop = stop.clone();
        let _guard = signals.enter();
        let (mut int, mut term) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        let number = Arc::new(AtomicU8::new(0));
        let told = number.clone();
        signals.spawn(async move {
            let signal = tokio::select! {
                _ = int.recv() => SIGINT,
                _ = term.recv() => SIGTERM,
            };
            told.store(signal, Ordering::SeqCst);
            stop.now();
        });
        number
    };
    let rows = load(context, &args.load, &stop, !args.json);
    let ended_by = Some(interrupted.load(Ordering::SeqCst)).filter(|number| *number > 0);
    let totals = Totals::of(rows.iter().map(|row| row.outcome));
    if args.json {
        let tests: Vec<Value> = rows.iter().map(Row::json).collect();
        term::json(&json!({ "tests": tests, "interrupted": ended_by.is_some() }))?;
    } else if !context.global.quiet {
        let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
        term::line(term::table(&["TEST", "RESULT", "LOAD", "MEASURED"], &cells))?;
        if ended_by.is_some() {
            term::warning("interrupted: the figures are of what was done until then");
        }
    }
    Ok(match ended_by {
        Some(number) => ExitCode::from(128 + number),
        None => totals.status(),
    })
}

fn load(context: &Context, args: &LoadArgs, stop: &Stop, for_people: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let shown = |message| for_people.then(|| term::Spinner::start(message));
    if let Some(asked) = args.cpu {
        let threads = match asked {
            0 => n_cpus,
            n => n.min(MOST_THREADS),
        };
        let _spinner = shown("computing");
        rows.push(Row::of_cpu(stress::cpu(threads, args.duration, stop)));
    }
    if let Some(size) = args.mem
        && !stop.is_wanted()
    {
        let _spinner = shown("writing and reading memory");
        rows.push(Row::of_memory(stress::memory(
            size,
            n_cpus.min(MEMORY_THREADS),
            args.duration,
            stop,
        )));
    }
    if args.disk && !stop.is_wanted() {
        let _spinner = shown("reading disks");
        let targets = stress::targets(&large_files(context), stop);
        if targets.is_empty() {
            let why = "the system shows no disk to this program";
            rows.push(Row::new(
                "disk",
                Outcome::Skip,
                String::new(),
                why.to_owned(),
            ));
        }
        for target in targets {
            if stop.is_wanted() {
                break;
            }
            let time = args.duration.min(DISK_TIME);
            rows.push(match &target.source {
                Some(source) => {
                    Row::of_disk(&target.name, source, stress::disk(source, time, stop))
                }
                None => Row::new(
                    format!("disk {}", target.name),
                    Outcome::Skip,
                    String::new(),
                    "this user may read neither the disk nor a large file on it".to_owned(),
                ),
            });
        }
    }
    rows
}

/// Files of this program that may be large enough to be read.
fn large_files(context: &Context) -> Vec<PathBuf> {
    let blobs = context.config().server.models.join("blobs");
    let entries = std::fs::read_dir(blobs).into_iter().flatten().flatten();
    let blobs = entries.map(|entry| entry.path());
    blobs.chain(std::env::current_exe().ok()).collect()
}

/// A test and what came out.
struct Row {
    name: String,
    outcome: Outcome,
    load: String,
    measured: String,
    facts: Value,
}

impl Row {
    fn new(name: impl Into<String>, outcome: Outcome, load: String, measured: String) -> Row {
        Row {
            name: name.into(),
            outcome,
            load,
            measured,
            facts: Value::Null,
        }
    }

    fn failed(name: impl Into<String>, error: &Error) -> Row {
        Row::new(name, Outcome::Fail, String::new(), error.to_string())
    }

    fn of_cpu(seen: Result<Cpu, Error>) -> Row {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return Row::failed("cpu", &error),
        };
        let mut measured = format!("{:.2} G steps/s", seen.steps_per_second / 1e9);
        let lost = 1.0 - seen.late / seen.early.max(f64::MIN_POSITIVE);
        if lost > 0.1 {
            let _ = write!(
                measured,
                ", {:.0}% slower at the end (heat, or other programs)",
                lost * 100.0
            );
        }
        let outcome = wrong(&mut measured, seen.wrong, "results");
        Row {
            facts: json!({
                "threads": seen.threads,
                "seconds": seen.time.as_secs_f64(),
                "steps_per_second": seen.steps_per_second,
                "steps_per_second_early": seen.early,
                "steps_per_second_late": seen.late,
                "wrong": seen.wrong,
            }),
            ..Row::new(
                "cpu",
                outcome,
                format!("{} threads, {}", seen.threads, seconds(seen.time)),
                measured,
            )
        }
    }

    fn of_memory(seen: Result<Memory, Error>) -> Row {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return Row::failed("memory", &error),
        };
        let mut measured = format!(
            "write {}/s, read {}/s, {} time{}",
            format::size(seen.write_rate as u64),
            format::size(seen.read_rate as u64),
            seen.passes,
            if seen.passes == 1 { "" } else { "s" }
        );
        if seen.passes == 0 {
            measured.clear();
            measured.push_str("not done once");
        } else if seen.tested + SLACK < seen.asked {
            let _ = write!(
                measured,
                " ({} asked for: no more is free, or the time is too short)",
                format::size(seen.asked)
            );
        }
        let outcome = wrong(&mut measured, seen.wrong, "words");
        Row {
            facts: json!({
                "asked_bytes": seen.asked,
                "tested_bytes": seen.tested,
                "threads": seen.threads,
                "seconds": seen.time.as_secs_f64(),
                "passes": seen.passes,
                "write_bytes_per_second": seen.write_rate,
                "read_bytes_per_second": seen.read_rate,
                "wrong": seen.wrong,
            }),
            ..Row::new(
                "memory",
                outcome,
                format!("{}, {}", format::size(seen.tested), seconds(seen.time)),
                measured,
            )
        }
    }

    fn of_disk(name: &str, source: &Source, seen: Result<Disk, Error>) -> Row {
        let test = format!("disk {name}");
        let (kind, path) = match source {
            Source::Device(path) => ("device", path),
            Source::File(path) => ("file", path),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return Row::failed(test, &error),
        };
        let way = if seen.direct {
            ""
        } else {
            ", through the cache"
        };
        let measured = format!(
            "{}/s{way}; cached {}/s",
            format::size(seen.rate as u64),
            format::size(seen.cached_rate as u64)
        );
        Row {
            facts: json!({
                "source": kind,
                "path": path,
                "bytes": seen.bytes,
                "seconds": seen.time.as_secs_f64(),
                "bytes_per_second": seen.rate,
                "cached_bytes_per_second": seen.cached_rate,
                "direct": seen.direct,
            }),
            ..Row::new(
                test,
                Outcome::Pass,
                format!(
                    "{} of {}, {}",
                    format::size(seen.bytes),
                    match source {
                        Source::Device(_) => "the device",
                        Source::File(_) => "a file on it",
                    },
                    seconds(seen.time)
                ),
                measured,
            )
        }
    }

    fn cells(&self) -> Vec<String> {
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => text.to_owned(),
        };
        vec![
            self.name.clone(),
            word(self.outcome).to_owned(),
            or_dash(&self.load),
            self.measured.clone(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "outcome": word(self.outcome),
            "detail": self.measured,
            "facts": self.facts,
        })
    }
}

/// Adds what was wrong and says what that means.
fn wrong(measured: &mut String, n_wrong: u64, what: &str) -> Outcome {
    if n_wrong == 0 {
        return Outcome::Pass;
    }
    let _ = write!(measured, ", {n_wrong} WRONG {what}: this hardware fails");
    Outcome::Fail
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

const SIGINT: u8 = 2;
const SIGTERM: u8 = 15;
/// More of them say nothing more.
const MOST_THREADS: usize = 4096;
/// A few fill the bus of the memory.
const MEMORY_THREADS: usize = 4;
const DISK_TIME: Duration = Duration::from_secs(3);
/// Bytes that dividing among threads may leave over.
const SLACK: u64 = 1 << 20;
