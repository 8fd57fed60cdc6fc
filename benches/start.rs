//! From exec to the first answered request on the embedded model, and the memory of an idle server.
//!
//! `cargo bench --bench start` prints medians; nothing fails when a figure is bad.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and stops when it cannot measure"
)]
#![allow(missing_docs, reason = "a program")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const RUNS: usize = 15;

fn main() {
    let home = tempfile::tempdir().unwrap();
    let mut first = Vec::new();
    let mut idle = Vec::new();
    let mut loaded = Vec::new();
    // The first run installs the model and warms the caches of the system.
    for run in 0..=RUNS {
        let started = Instant::now();
        let (mut server, address) = serve(home.path());
        let idle_kib = resident_kib(server.id());
        let answer = post(
            &address,
            r#"{"model":"default","prompt":"Hello!","stream":false,"options":{"num_predict":1}}"#,
        );
        let elapsed = started.elapsed();
        assert!(answer.contains("\"done\":true"), "{answer}");
        if run > 0 {
            first.push(elapsed);
            idle.push(idle_kib);
            loaded.push(resident_kib(server.id()));
        }
        server.kill().unwrap();
        server.wait().unwrap();
    }
    println!(
        "exec to first answered request: median {:?} of {RUNS}, {:?} to {:?}",
        median(&mut first),
        first[0],
        first[RUNS - 1]
    );
    println!(
        "resident memory, nothing loaded: median {} KiB",
        median(&mut idle)
    );
    println!(
        "resident memory, model loaded and used: median {} KiB",
        median(&mut loaded)
    );
}

fn serve(home: &std::path::Path) -> (Child, String) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_llmsrv"))
        .arg("serve")
        .env_clear()
        .env("HOME", home)
        .env("LLMSRV_HOST", "127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let address = lines
        .find_map(|line| {
            let line = line.unwrap();
            let at = line.find("http://")? + "http://".len();
            Some(
                line[at..]
                    .chars()
                    .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
                    .collect::<String>(),
            )
        })
        .unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    (server, address.trim_end_matches(['.', ':']).to_owned())
}

fn post(address: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let head = format!(
        "POST /api/generate HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn median<T: Copy + Ord>(values: &mut [T]) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}
