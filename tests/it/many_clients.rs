//! Many streaming clients at once, some of whom leave in the middle: what the load test and the
//! load benchmark share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::util::Server;

/// What a crowd saw.
#[derive(Debug, Default)]
pub struct Sights {
    /// Streams read to their last line.
    pub whole: usize,
    /// Streams left on purpose.
    pub left: usize,
    /// Requests refused with status 503.
    pub refused: usize,
    /// Lines of all streams.
    pub lines: usize,
    /// From a request to its first line.
    pub first_line: Vec<Duration>,
    /// Between two lines of a stream.
    pub between: Vec<Duration>,
    /// Resident memory of the server: when it was asked, in bytes.
    pub resident: Vec<(Duration, u64)>,
}

impl Sights {
    fn add(&mut self, other: Sights) {
        self.whole += other.whole;
        self.left += other.left;
        self.refused += other.refused;
        self.lines += other.lines;
        self.first_line.extend(other.first_line);
        self.between.extend(other.between);
    }

    /// Returns the largest resident memory in a part of the time.
    pub fn most_resident(&self, from: Duration, to: Duration) -> u64 {
        let within = self
            .resident
            .iter()
            .filter(|(at, _)| (from..=to).contains(at));
        within.map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

/// Lets `n_clients` stream for some time. Panics at the first stream that is lost or malformed.
pub async fn stream_for(server: &Arc<Server>, n_clients: usize, time: Duration) -> Sights {
    let started = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let watch = tokio::spawn({
        let (server, over) = (server.clone(), over.clone());
        async move {
            let mut resident = Vec::new();
            while !over.load(Ordering::Relaxed) {
                resident.push((started.elapsed(), resident_bytes(server.pid())));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            resident
        }
    });
    let clients: Vec<_> = (0..n_clients)
        .map(|client| {
            let server = server.clone();
            tokio::spawn(async move {
                let mut sights = Sights::default();
                let mut round = client;
                while started.elapsed() < time {
                    one_stream(&server, client, round, &mut sights).await;
                    round += 1;
                }
                sights
            })
        })
        .collect();
    let mut sights = Sights::default();
    for client in clients {
        sights.add(client.await.unwrap());
    }
    over.store(true, Ordering::Relaxed);
    sights.resident = watch.await.unwrap();
    sights
}

/// Streams one answer; every eighth is left after its second line.
async fn one_stream(server: &Server, client: usize, round: usize, sights: &mut Sights) {
    let leaves = round % 8 == 7;
    let body = json!({
        "model": "default",
        "messages": [{"role": "user", "content": format!("Tell client {client} of round {round}.")}],
        "options": {"num_predict": 24 + round % 40, "seed": round},
    });
    let asked = Instant::now();
    let request = server
        .http
        .post(format!("{}/api/chat", server.url))
        .body(body.to_string());
    let mut response = request.send().await.unwrap();
    if response.status() == 503 {
        assert!(response.headers().contains_key("retry-after"));
        sights.refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
        return;
    }
    assert_eq!(response.status(), 200);
    let (mut rest, mut last, mut n_lines) = (Vec::new(), None, 0);
    let mut before = None;
    while let Some(bytes) = response.chunk().await.unwrap() {
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(&rest[..end]).unwrap();
            rest.drain(..=end);
            assert!(line["message"]["content"].is_string(), "{line}");
            assert_eq!(
                last.replace(line["done"] == true),
                if n_lines == 0 { None } else { Some(false) }
            );
            let now = Instant::now();
            match before.replace(now) {
                None => sights.first_line.push(now - asked),
                Some(before) => sights.between.push(now - before),
            }
            n_lines += 1;
        }
        if leaves && n_lines >= 2 && last == Some(false) {
            sights.left += 1;
            return;
        }
    }
    assert!(rest.is_empty() && last == Some(true), "a stream was lost");
    sights.whole += 1;
    sights.lines += n_lines;
}

/// Starts streams without end, leaves them all at once, and returns how long the server goes on
/// computing for them.
pub async fn leave_together(server: &Server, n_clients: usize) -> Duration {
    let mut streams = Vec::new();
    for client in 0..n_clients {
        let body = json!({
            "model": "default",
            "prompt": format!("Client {client} wants a long list."),
            "raw": true,
            "format": long_list(),
            "options": {"num_predict": 100_000, "num_ctx": 512},
        });
        let request = server
            .http
            .post(format!("{}/api/generate", server.url))
            .body(body.to_string());
        let mut response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.chunk().await.unwrap().unwrap();
        streams.push(response);
    }
    // The figures are of the last whole step, the first tokens may be of the one after it.
    until_running(server, n_clients).await;
    let left = Instant::now();
    drop(streams);
    until_running(server, 0).await;
    left.elapsed()
}

async fn until_running(server: &Server, wanted: usize) {
    let since = Instant::now();
    loop {
        let n_running = running(server).await;
        if n_running == wanted {
            return;
        }
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "{n_running} sequences are computed, not {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A format that no answer satisfies soon.
pub fn long_list() -> Value {
    json!({"type": "array", "items": {"type": "integer"}, "minItems": 3000})
}

/// Returns how many sequences are being computed.
async fn running(server: &Server) -> usize {
    metric(server, r#"state="running"}"#).await as usize
}

/// Returns the sum of the metrics whose lines contain a text.
pub async fn metric(server: &Server, part: &str) -> f64 {
    let text = server.get("/metrics").await.text;
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(part));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Returns the resident memory of a process.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}
