//! Everything that strangers may send, to servers with a gigabyte of memory, while others work with
//! them: the servers live, the work is not disturbed, and the memory comes back.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

use crate::util::{PATIENCE, Sandbox, Server};

/// KiB of memory that a server may have for itself.
const MEMORY_KIB: u32 = 1 << 20;
/// Connections that the server may have open.
const CONNECTIONS: usize = 64;

/// Starts a program of the sandbox with little memory.
fn start(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> Server {
    let program = sandbox.command();
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -d {MEMORY_KIB} && exec \"$0\" \"$@\""),
        ])
        .arg(program.get_program())
        .args(args)
        .env_clear()
        .envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .envs(env.iter().copied())
        .current_dir(sandbox.path());
    Server::start(command)
}

fn resident(server: &Server) -> u64 {
    status(server, "VmRSS:")
}

fn status(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = fs::read_to_string(path).expect("the server lives");
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Does something and returns how much more memory the server had meanwhile than before.
async fn swell(server: &Server, work: impl Future<Output = ()>) -> u64 {
    // Makes the peak what it is now.
    fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
    let before = resident(server);
    work.await;
    status(server, "VmHWM:").saturating_sub(before)
}

/// Waits until a server has no more than it had, and a bit.
fn assert_memory_comes_back(server: &Server, before: u64) {
    let allowed = before / 10 * 13 + (16 << 20);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = resident(server);
        if now <= allowed {
            eprintln!(
                "memory before {} MiB, after {} MiB",
                before >> 20,
                now >> 20
            );
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} MiB before, {} MiB after",
            before >> 20,
            now >> 20
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Sends a body and returns the status; the connection may also just end.
async fn send(server: &Server, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Option<u16> {
    let mut request = server.http.post(format!("{}{path}", server.url)).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let sent = tokio::time::timeout(PATIENCE, request.send()).await;
    let response = sent
        .unwrap_or_else(|_| panic!("no answer from {path}"))
        .ok()?;
    let status = response.status().as_u16();
    let _ = tokio::time::timeout(PATIENCE, response.bytes()).await;
    Some(status)
}

/// As [`send`]; whatever it is, it is refused or understood.
async fn harmless(
    server: &Server,
    what: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) {
    let status = send(server, path, headers, body).await;
    let fine =
        |status: u16| (200..300).contains(&status) || (400..500).contains(&status) || status == 503;
    assert!(status.is_none_or(fine), "{what} to {path}: {status:?}");
}

/// Asks from another address than those who attack.
async fn get_from(address: &str, server: &Server, path: &str) -> String {
    let ask = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind(format!("{address}:0").parse().unwrap())
            .unwrap();
        let mut stream = socket
            .connect(server.host().parse().unwrap())
            .await
            .unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    tokio::time::timeout(PATIENCE, ask)
        .await
        .expect("the server answers")
}

/// Somebody who chats all the time; every answer must be the first one.
struct Chat {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Duration>>,
}

/// Returns the text of an answer and the times between its tokens.
async fn answer(http: &reqwest::Client, url: &str, gaps: &mut Vec<Duration>) -> String {
    let ask = json!({
        "model": MODEL,
        "prompt": "fn main() {",
        "raw": true,
        "options": {"temperature": 0, "seed": 1, "num_predict": 128},
    });
    let sent = http
        .post(format!("{url}/api/generate"))
        .body(ask.to_string())
        .send();
    let mut response = sent.await.unwrap();
    assert_eq!(response.status(), 200);
    let (mut text, mut rest, mut last) = (String::new(), Vec::new(), None::<Instant>);
    let mut ended = false;
    while let Some(chunk) = response.chunk().await.unwrap() {
        rest.extend_from_slice(&chunk);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(&rest[..end]).unwrap();
            rest.drain(..=end);
            let now = Instant::now();
            gaps.extend(last.replace(now).map(|last| now - last));
            text.push_str(
                line["response"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{line}")),
            );
            ended |= line["done"] == true;
        }
    }
    assert!(ended, "the answer broke off: {text}");
    text
}

impl Chat {
    fn begin(server: &Server, expected: String) -> Chat {
        let stop = Arc::new(AtomicBool::new(false));
        let (url, stopped) = (server.url.clone(), stop.clone());
        let http = reqwest::Client::builder()
            .no_proxy()
            .local_address(Some("127.0.0.3".parse().unwrap()))
            .build()
            .unwrap();
        let task = tokio::spawn(async move {
            let mut gaps = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                assert_eq!(answer(&http, &url, &mut gaps).await, expected);
            }
            gaps
        });
        Chat { stop, task }
    }

    async fn end(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the chat was not disturbed")
    }
}

fn p99(mut gaps: Vec<Duration>) -> Duration {
    gaps.sort_unstable();
    gaps[gaps.len() * 99 / 100]
}

/// The model that is built in.
const MODEL: &str = "llmsrv-tiny-code";

/// A list of many small lists: a value in memory is a hundred times as large as this.
fn lists(n_bytes: usize) -> String {
    format!("[{}0]", "[0],".repeat(n_bytes / 4))
}

fn objects(n_bytes: usize) -> String {
    format!("[{}{{}}]", "{},".repeat(n_bytes / 3))
}

/// Paths of each dialect.
const TEXT: &[&str] = &[
    "/api/generate",
    "/api/chat",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/embed",
    "/v1/embeddings",
    "/api/rerank",
    "/api/tokenize",
    "/api/detokenize",
];

/// Members with many values, known and unknown ones.
async fn swollen_bodies(server: &Server) {
    let members = [
        "junk",
        "messages",
        "tools",
        "options",
        "format",
        "response_format",
        "input",
        "images",
        "context",
        "tokens",
        "documents",
        "logit_bias",
        "prompt",
        "stop",
        "keep_alive",
        "metadata",
    ];
    for (n, member) in members.iter().enumerate() {
        for (kind, values) in [("lists", lists(4 << 20)), ("objects", objects(4 << 20))] {
            let body = format!(
                r#"{{"model":"{MODEL}","max_tokens":1,"stream":false,"options":{{"num_predict":1}},"{member}":{values}}}"#
            );
            let path = TEXT[n % TEXT.len()];
            harmless(
                server,
                &format!("{kind} in {member}"),
                path,
                &[],
                body.into_bytes(),
            )
            .await;
        }
    }
    let junk = format!(r#"{{"model":"{MODEL}","junk":{}}}"#, lists(60 << 20)).into_bytes();
    let packed = gzip(&junk);
    let together = (0..4).map(|_| harmless(server, "60 MiB", "/api/chat", &[], junk.clone()));
    futures_util::future::join_all(together).await;
    let encoded = [("content-encoding", "gzip")];
    let together =
        (0..16).map(|_| harmless(server, "compressed", "/api/chat", &encoded, packed.clone()));
    futures_util::future::join_all(together).await;
    let deep = [
        b"{\"model\":\"m\",\"messages\":".to_vec(),
        b"[".repeat(1 << 20),
    ]
    .concat();
    harmless(server, "deep", "/api/chat", &[], deep).await;
    let calls = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":{}}}}}]}}]}}"#,
        json!(format!("{{\"a\":{}}}", lists(4 << 20)))
    );
    harmless(
        server,
        "arguments",
        "/v1/chat/completions",
        &[],
        calls.into_bytes(),
    )
    .await;
}

/// What web pages of anybody may try.
async fn pages(server: &Server) {
    let copy = json!({"source": MODEL, "destination": "victim"}).to_string();
    for origin in ["https://evil.example", "null"] {
        let headers = [("origin", origin), ("content-type", "text/plain")];
        assert_eq!(
            send(server, "/api/copy", &headers, copy.clone().into_bytes()).await,
            Some(403),
            "{origin}"
        );
    }
    let bent = [("host", "evil.example"), ("origin", "http://evil.example")];
    assert_eq!(
        send(server, "/api/show", &bent, copy.into_bytes()).await,
        Some(403)
    );
}

/// Connections that say nothing, begin and do not go on, or talk nonsense.
async fn connections(server: &Server) {
    let address = server.host().to_owned();
    let mut held = Vec::new();
    for n in 0..4 * CONNECTIONS {
        let Ok(mut stream) = TcpStream::connect(&address).await else {
            continue;
        };
        let said: &[u8] = match n % 5 {
            0 => b"",
            1 => b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{",
            2 => b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
            3 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _ => b"\x16\x03\x01\x02\x00nonsense",
        };
        let _ = stream.write_all(said).await;
        held.push(stream);
    }
    let answer = get_from("127.0.0.2", server, "/api/version").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_takes_at_most_four_times_its_size() {
    const SIZE: usize = 48 << 20;
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    // Whatever is made once is there now.
    let mut quiet = Vec::new();
    answer(&server.http, &server.url, &mut quiet).await;
    let body = |member: &str, value: &str| {
        format!(r#"{{"model":"{MODEL}","max_tokens":1,"stream":false,"options":{{"num_predict":1}},"{member}":{value}}}"#)
            .into_bytes()
    };
    let text = format!("{:?}", "word ".repeat(SIZE / 5));
    let escaped = format!("\"{}\"", "\\n".repeat(SIZE / 2));
    let cases = [
        ("/api/chat", "junk", lists(SIZE)),
        ("/api/chat", "messages", lists(SIZE)),
        ("/api/chat", "messages", objects(SIZE)),
        ("/v1/chat/completions", "tools", objects(SIZE)),
        (
            "/api/generate",
            "context",
            format!("[{}0]", "7,".repeat(SIZE / 2)),
        ),
        (
            "/api/generate",
            "options",
            format!("{{{}\"x\":0}}", "\"\":0,".repeat(SIZE / 5)),
        ),
        ("/v1/responses", "input", objects(SIZE)),
        (
            "/v1/embeddings",
            "input",
            format!("[{}0]", "[0],".repeat((30 << 20) / 4)),
        ),
        (
            "/v1/embeddings",
            "input",
            format!("[{}0]", "100000,".repeat((30 << 20) / 7)),
        ),
        ("/api/generate", "junk", text),
        ("/api/generate", "junk", escaped.clone()),
        ("/api/chat", "tools", escaped),
    ];
    for (path, member, value) in cases {
        let plain = body(member, &value);
        drop(value);
        let allowed = 4 * plain.len() as u64 + (16 << 20);
        let packed = gzip(&plain);
        let (what, n_plain) = (format!("{member} {path}"), plain.len());
        let taken = swell(&server, harmless(&server, &what, path, &[], plain)).await;
        assert!(
            taken <= allowed,
            "{what}: {} MiB of {} MiB",
            taken >> 20,
            n_plain >> 20
        );
        let headers = [("content-encoding", "gzip")];
        let dense = n_plain / packed.len();
        let taken_packed = swell(&server, harmless(&server, &what, path, &headers, packed)).await;
        assert!(
            taken_packed <= allowed,
            "{what}, {dense}:1: {} MiB of {} MiB",
            taken_packed >> 20,
            n_plain >> 20
        );
        eprintln!(
            "{what}: {} MiB take {} MiB, {dense}:1 {} MiB",
            n_plain >> 20,
            taken >> 20,
            taken_packed >> 20
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_neither_end_the_server_nor_disturb_a_chat() {
    let sandbox = Sandbox::new();
    let env = [
        ("LLMSRV_HOST", "127.0.0.1:0"),
        ("LLMSRV_ORIGINS", "*"),
        ("LLMSRV_MAX_CONNECTIONS", &CONNECTIONS.to_string()),
    ];
    let server = start(&sandbox, &["serve"], &env);
    let mut quiet = Vec::new();
    let expected = answer(&server.http, &server.url, &mut quiet).await;
    for _ in 0..3 {
        assert_eq!(
            answer(&server.http, &server.url, &mut quiet).await,
            expected
        );
    }
    let before = resident(&server);
    let chat = Chat::begin(&server, expected);
    let mut times = BTreeMap::new();
    let mut begun = Instant::now();
    let mut took = |what| {
        times.insert(what, begun.elapsed());
        begun = Instant::now();
    };
    swollen_bodies(&server).await;
    took("bodies");
    pages(&server).await;
    took("pages");
    connections(&server).await;
    took("connections");
    let gaps = chat.end().await;
    eprintln!(
        "{} tokens, 99 of 100 within {:?}, without attacks {:?}; attacks took {times:?}",
        gaps.len(),
        p99(gaps.clone()),
        p99(quiet)
    );
    assert_memory_comes_back(&server, before);
    assert_eq!(server.get("/api/tags").await.status, 200);
    assert_eq!(server.end("-TERM"), 0);
}
