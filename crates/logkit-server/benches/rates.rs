//! Entries a second over loopback, each reply after its commit, and how long replies take:
//!
//!     cargo bench -p logkit-server
//!
//! Server and clients share the processors of the machine; run it on an idle one. `-- SECONDS`
//! sets how long each line is measured (2).

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use logkit_proto::{
    tonic::transport::Channel,
    v1::{BatchLogRequest, LogRequest, logkit_logger_client::LogkitLoggerClient},
};
use logkit_server::{Server, Settings};

/// What is measured and its goal (`docs/contracts/logkit.md` 10.2): entries a second, and milliseconds at the 99th
/// percentile.
struct Line {
    name: &'static str,
    entries_per_s: f64,
    median_ms: f64,
    p99_ms: f64,
    goal: f64,
}

fn main() {
    let seconds = std::env::args().skip(1).find_map(|it| it.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(2.0));
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime
        .block_on(Server::start(Settings {
            http: ("127.0.0.1".into(), 0),
            grpc: Some(("127.0.0.1".into(), 0)),
            database: folder.path().join("bench.db"),
            ..Settings::default()
        }))
        .unwrap();
    let http = server.bound().http;
    let grpc = server.bound().grpc.unwrap();
    let one = entry(0);
    let hundred = format!("{{\"entries\":[{}]}}", vec![one.as_str(); 100].join(","));
    let lines = [
        posts(
            "POST /log, 1 connection",
            http,
            "/log",
            &one,
            1,
            1,
            time,
            5e3,
        ),
        posts(
            "POST /log, 8 connections",
            http,
            "/log",
            &one,
            8,
            1,
            time,
            20e3,
        ),
        posts(
            "POST /log, 32 connections",
            http,
            "/log",
            &one,
            32,
            1,
            time,
            30e3,
        ),
        posts(
            "POST /log/batch of 100, 4 connections",
            http,
            "/log/batch",
            &hundred,
            4,
            100,
            time,
            150e3,
        ),
        runtime.block_on(calls("gRPC LogCall, 1 client", grpc, 1, time, 2.5e3)),
        runtime.block_on(calls(
            "gRPC BatchLog of 100, 4 clients",
            grpc,
            100,
            time,
            100e3,
        )),
        runtime.block_on(stream("gRPC StreamLog, 1 client", grpc, time, 100e3)),
    ];
    println!(
        "{:<40} {:>12} {:>10} {:>7} {:>10} {:>10}",
        "", "entries/s", "goal", "ratio", "median ms", "p99 ms"
    );
    for line in lines {
        println!(
            "{:<40} {:>12.0} {:>10.0} {:>7.2} {:>10.2} {:>10.2}",
            line.name,
            line.entries_per_s,
            line.goal,
            line.entries_per_s / line.goal,
            line.median_ms,
            line.p99_ms,
        );
    }
    println!("{:<40} p99 goal 5 ms", "POST /log, 32 connections");
    runtime.block_on(server.stop());
}

fn entry(n: usize) -> String {
    format!(
        "{{\"cmd\":\"backup\",\"args\":[\"/home/user\",\"{n}\"],\"language\":\"python\",\"env\":\"prod\",\
         \"success\":true,\"duration_ms\":12.5,\"output\":\"214 files, 1.8 GB\"}}"
    )
}

#[expect(clippy::too_many_arguments, reason = "a line of a table")]
fn posts(
    name: &'static str,
    address: SocketAddr,
    path: &str,
    body: &str,
    n_connections: usize,
    per_request: usize,
    time: Duration,
    goal: f64,
) -> Line {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let began = Instant::now();
    let clients: Vec<_> = (0..n_connections)
        .map(|_| {
            let request = request.clone();
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut took = Vec::new();
                let mut buffer = vec![0; 1 << 16];
                while began.elapsed() < time {
                    let at = Instant::now();
                    stream.write_all(request.as_bytes()).unwrap();
                    read_answer(&mut stream, &mut buffer);
                    took.push(at.elapsed());
                }
                took
            })
        })
        .collect();
    let took = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap());
    line(name, took.collect(), per_request, began, goal)
}

fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) {
    let mut n_read = 0;
    loop {
        n_read += stream.read(&mut buffer[n_read..]).unwrap();
        let text = str::from_utf8(&buffer[..n_read]).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        assert!(head.starts_with("HTTP/1.1 200"), "{text}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map(|length| length.parse::<usize>().unwrap());
        if body.len() == length.unwrap() {
            return;
        }
    }
}

fn request() -> LogRequest {
    LogRequest {
        cmd: "backup".into(),
        args: vec!["/home/user".into(), "7".into()],
        language: "python".into(),
        env: "prod".into(),
        duration_ms: 12.5,
        output: "214 files, 1.8 GB".into(),
        ..LogRequest::default()
    }
}

async fn connect(address: SocketAddr) -> LogkitLoggerClient<Channel> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    LogkitLoggerClient::new(channel.connect().await.unwrap())
}

async fn calls(
    name: &'static str,
    address: SocketAddr,
    per_request: usize,
    time: Duration,
    goal: f64,
) -> Line {
    let began = Instant::now();
    let n_clients = if per_request == 1 { 1 } else { 4 };
    let mut clients = Vec::new();
    for _ in 0..n_clients {
        let mut client = connect(address).await;
        clients.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while began.elapsed() < time {
                let at = Instant::now();
                if per_request == 1 {
                    client.log_call(request()).await.unwrap();
                } else {
                    let entries = vec![request(); per_request];
                    client.batch_log(BatchLogRequest { entries }).await.unwrap();
                }
                took.push(at.elapsed());
            }
            took
        }));
    }
    let mut took = Vec::new();
    for client in clients {
        took.extend(client.await.unwrap());
    }
    line(name, took, per_request, began, goal)
}

async fn stream(name: &'static str, address: SocketAddr, time: Duration, goal: f64) -> Line {
    let mut client = connect(address).await;
    let began = Instant::now();
    let requests = tokio_stream::iter(std::iter::repeat_with(request)).take_while_time(began, time);
    let mut replies = client.stream_log(requests).await.unwrap().into_inner();
    let mut n_replies = 0;
    while let Some(reply) = replies.message().await.unwrap() {
        assert!(reply.stored);
        n_replies += 1;
    }
    let mut measured = line(name, vec![Duration::ZERO], 1, began, goal);
    measured.entries_per_s = f64::from(n_replies) / began.elapsed().as_secs_f64();
    measured.median_ms = f64::NAN;
    measured.p99_ms = f64::NAN;
    measured
}

trait TakeWhileTime: tokio_stream::Stream + Sized {
    fn take_while_time(
        self,
        began: Instant,
        time: Duration,
    ) -> impl tokio_stream::Stream<Item = Self::Item> {
        tokio_stream::StreamExt::take_while(self, move |_| began.elapsed() < time)
    }
}
impl<S: tokio_stream::Stream> TakeWhileTime for S {}

fn line(
    name: &'static str,
    mut took: Vec<Duration>,
    per_request: usize,
    began: Instant,
    goal: f64,
) -> Line {
    let elapsed = began.elapsed().as_secs_f64();
    took.sort();
    let p99 = took[(took.len() * 99 / 100).min(took.len() - 1)];
    Line {
        name,
        entries_per_s: (took.len() * per_request) as f64 / elapsed,
        median_ms: took[took.len() / 2].as_secs_f64() * 1e3,
        p99_ms: p99.as_secs_f64() * 1e3,
        goal,
    }
}
