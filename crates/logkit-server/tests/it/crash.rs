//! A server that is killed has every entry it said it had.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use logkit::query::{Filter, Reader};
use logkit_server::Settings;

const FOLDER: &str = "LOGKIT_TEST_FOLDER";
const GRPC_PORT: &str = "LOGKIT_TEST_GRPC_PORT";

/// Not a test: the server that the tests below kill.
#[test]
#[ignore = "a process that other tests start"]
fn served() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let settings = Settings {
        http: ("127.0.0.1".into(), 0),
        grpc: std::env::var(GRPC_PORT)
            .ok()
            .map(|port| ("127.0.0.1".into(), port.parse().unwrap())),
        database: Path::new(&folder).join("central.db"),
        on_ready: Some(Box::new(|bound| println!("\nready {}", bound.http))),
        ..Settings::default()
    };
    logkit_server::serve(settings).unwrap();
    println!("\nstopped");
}

pub(crate) fn spawn(folder: &Path) -> Started {
    started(command(folder))
}

/// The same with gRPC on that port.
pub(crate) fn spawn_at(folder: &Path, grpc_port: u16) -> Started {
    let mut command = command(folder);
    command.env(GRPC_PORT, grpc_port.to_string());
    started(command)
}

/// A server, its address, and what else it prints.
pub(crate) type Started = (Child, String, BufReader<std::process::ChildStdout>);

fn command(folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["crash::served", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

#[expect(clippy::zombie_processes, reason = "the caller waits for it")]
fn started(mut command: Command) -> Started {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    loop {
        line.clear();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "the server did not start"
        );
        if let Some(address) = line.trim().strip_prefix("ready ") {
            return (child, address.to_owned(), lines);
        }
    }
}

/// Logs on one connection until it breaks; gives the names of what was acknowledged.
fn log(address: &str, round: usize, worker: usize, n_acknowledged: &AtomicUsize) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return acknowledged;
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut answer = [0; 4096];
    for n in 0.. {
        let name = format!("{round}.{worker}.{n}");
        let body = format!("{{\"cmd\": \"{name}\"}}");
        let head = format!(
            "POST /log HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(head.as_bytes()).is_err() {
            break;
        }
        match stream.read(&mut answer) {
            Ok(n_bytes) if answer[..n_bytes].starts_with(b"HTTP/1.1 200") => {
                acknowledged.push(name);
                n_acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            _ => break,
        }
    }
    acknowledged
}

/// Waits until something is acknowledged.
fn some(n_acknowledged: &AtomicUsize) {
    for _ in 0..10_000 {
        if n_acknowledged.load(Ordering::Relaxed) >= 5 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing is acknowledged");
}

pub(crate) fn stored(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let reader = Reader::open(folder.join("central.db"), "logs").unwrap();
    reader
        .for_each(&Filter::default(), |row| {
            names.push(row.entry.function_name.into_owned());
            true
        })
        .unwrap();
    names
}

#[test]
fn no_acknowledged_entry_is_lost_when_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..50 {
        let (mut child, address, _lines) = spawn(folder.path());
        let n_acknowledged = Arc::<AtomicUsize>::default();
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (address, counter) = (address.clone(), n_acknowledged.clone());
                thread::spawn(move || log(&address, round, worker, &counter))
            })
            .collect();
        some(&n_acknowledged);
        // Another moment each time.
        thread::sleep(Duration::from_micros((round as u64 * 997) % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        for worker in workers {
            acknowledged.extend(worker.join().unwrap());
        }
    }
    assert!(
        acknowledged.len() > 200,
        "only {} entries",
        acknowledged.len()
    );
    let stored = stored(folder.path());
    let unique: BTreeSet<String> = stored.iter().cloned().collect();
    assert_eq!(stored.len(), unique.len(), "nothing is stored twice");
    let lost: Vec<_> = acknowledged.difference(&unique).collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
}

#[test]
fn a_signal_to_stop_lets_what_runs_end() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["TERM", "INT"] {
        let (mut child, address, mut lines) = spawn(folder.path());
        let n_acknowledged = Arc::<AtomicUsize>::default();
        let worker = {
            let counter = n_acknowledged.clone();
            thread::spawn(move || log(&address, 0, 0, &counter))
        };
        some(&n_acknowledged);
        let before = std::time::Instant::now();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{name}"), &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(rest.contains("stopped"), "{rest}");
        assert!(before.elapsed() < Duration::from_secs(8));
        let acknowledged: BTreeSet<String> = worker.join().unwrap().into_iter().collect();
        let stored: BTreeSet<String> = stored(folder.path()).into_iter().collect();
        assert!(acknowledged.is_subset(&stored));
        assert!(!acknowledged.is_empty());
    }
}
