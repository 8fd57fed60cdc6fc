//! What `logkit run` adds to a command, and how long `logkit logs` takes over a million rows.
//!
//! `cargo bench -p logkit-cli` prints medians; nothing fails when a figure is bad.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops when it cannot measure"
)]
#![allow(missing_docs, reason = "a program")]

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use logkit::{DbSink, Durability, Entry, Level, Sink, Timestamp};

const RUNS: usize = 41;
const ROWS: usize = 1_000_000;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path());
    first_byte(dir.path());
    much_output(dir.path());
    logs(dir.path());
}

/// Bare and logged by turns, so that both meet the same neighbours.
fn run(dir: &Path) {
    let mut bare = Vec::new();
    let mut logged = Vec::new();
    for _ in 0..=RUNS {
        bare.push(time(&mut command("true", &[], dir)));
        logged.push(time(&mut logkit(&["run", "-q", "--", "true"], dir)));
    }
    let (bare, logged) = (median(&mut bare), median(&mut logged));
    println!(
        "run -- true: {logged:?}, bare {bare:?}: {:?} added (goal 8 ms)",
        logged.saturating_sub(bare)
    );
}

fn first_byte(dir: &Path) {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let began = Instant::now();
        let mut command = logkit(
            &["run", "-q", "--", "sh", "-c", "echo x; exec sleep 60"],
            dir,
        );
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0; 2])
            .unwrap();
        times.push(began.elapsed());
        // Its command has stdout closed now and sleeps on; nobody waits for it.
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap();
        child.wait().unwrap();
    }
    println!(
        "first byte of a command: {:?} (goal 50 ms)",
        median(&mut times)
    );
}

fn much_output(dir: &Path) {
    let script = "head -c 200000000 /dev/zero";
    let bare = time(&mut command("sh", &["-c", script], dir));
    let logged = time(&mut logkit(&["run", "-q", "--", "sh", "-c", script], dir));
    println!("200 MB of output to /dev/null: {logged:?}, bare {bare:?}");
    let mut child = logkit(&["run", "-q", "--", "sh", "-c", script], dir)
        .spawn()
        .unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_kib(child.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    println!(
        "200 MB of output: {:.1} MiB resident (goal 24 MiB)",
        peak as f64 / 1024.0
    );
}

/// The most memory the process had so far; 0 where the system does not tell or the process is gone.
fn peak_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn logs(dir: &Path) {
    let path = dir.join("million.db");
    fill(&path);
    let path = path.to_str().unwrap();
    println!(
        "{ROWS} rows, {} MB",
        std::fs::metadata(path).unwrap().len() / 1_000_000
    );
    for (args, goal) in [
        (&["version"][..], ""),
        (&["logs", path], " (goal 10 ms)"),
        (
            &["logs", path, "--errors", "--last", "24h"],
            " (goal 10 ms)",
        ),
        (
            &["logs", path, "--function", "f42", "-n", "50"],
            " (goal 15 ms)",
        ),
        (&["logs", path, "--trace", "t4242"], ""),
        (&["logs", path, "--grep", "nothing like this"], ""),
        (&["stats", path, "-n", "5"], ""),
    ] {
        let mut times: Vec<Duration> = (0..9).map(|_| time(&mut logkit(args, dir))).collect();
        let name = args.join(" ").replace(path, "DB");
        println!("{name}: {:?}{goal}", median(&mut times));
    }
}

fn fill(path: &Path) {
    let mut sink = DbSink::open(path, "logs", Durability::Buffered).unwrap();
    let now = Timestamp::now().micros();
    let mut batch = Vec::new();
    for row in 0..ROWS {
        let ago = (ROWS - row) as i64 * 600_000;
        let is_error = row % 100 == 0;
        batch.push(Entry {
            timestamp: Timestamp::from_micros(now - ago),
            level: if is_error { Level::Error } else { Level::Info },
            function_name: format!("module.f{}", row % 200).into(),
            module: "module".into(),
            args: format!("({row}, 2)").into(),
            kwargs: "{'name': 'abc'}".into(),
            return_value: "{'ok': True}".into(),
            return_type: "dict".into(),
            exception: if is_error {
                "it did not work".into()
            } else {
                "".into()
            },
            duration_ms: Some((row % 977) as f64),
            environment: "bench".into(),
            trace_id: format!("t{}", row / 10).into(),
            ..Entry::default()
        });
        if batch.len() == 5000 {
            sink.write_batch(&batch).unwrap();
            batch.clear();
        }
    }
    sink.close().unwrap();
}

fn command(program: &str, args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn logkit(args: &[&str], dir: &Path) -> Command {
    command(env!("CARGO_BIN_EXE_logkit"), args, dir)
}

fn time(command: &mut Command) -> Duration {
    let began = Instant::now();
    command.status().unwrap();
    began.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
