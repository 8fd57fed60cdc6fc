//! Everything that strangers may send, to servers with a gigabyte of memory, while others work with
//! them: the servers live, the work is not disturbed, and the memory comes back.

mod arms;
mod entries;
mod requests;
mod wire;

use std::{
    collections::BTreeMap,
    fmt, fs,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};

use self::{
    arms::{Attack, gzip, lists, objects},
    requests::MODEL,
};
use crate::{
    hostile::plant,
    util::{Sandbox, Server, TIMEOUT},
};

/// KiB of memory that a server may have for itself, besides the weights of a model that is given.
const MEMORY_KIB: u64 = 1 << 20;
/// Connections that the server may have open.
const CONNECTIONS: usize = 64;

/// Starts a program of the sandbox with little memory.
fn start(sandbox: &Sandbox, memory_kib: u64, args: &[&str], env: &[(&str, &str)]) -> Server {
    let program = sandbox.command();
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -d {memory_kib} && exec \"$0\" \"$@\""),
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

/// Memory of its own, without the pages of the program that have run: those are the system's copy of a file.
fn own(server: &Server) -> u64 {
    status(server, "RssAnon:")
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

/// Memory of a server that nobody has asked much of.
struct Fresh {
    own: u64,
    resident: u64,
}

impl Fresh {
    fn of(server: &Server) -> Fresh {
        Fresh {
            own: own(server),
            resident: resident(server),
        }
    }
}

/// Waits until a server has grown by at most three tenths of what it was, and a bit that lies free between what
/// is in use. Pages of the program that have run since do not count.
fn assert_memory_comes_back(server: &Server, fresh: &Fresh) {
    let before = fresh.own;
    let allowed = before + fresh.resident / 10 * 3 + (16 << 20);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let now = own(server);
        if now <= allowed {
            // Memory that is free already goes back within a second.
            std::thread::sleep(Duration::from_secs(2));
            let now = own(server).min(now);
            eprintln!(
                "own memory before {} MiB, after {} MiB, {:.2} times as much; resident {} MiB",
                before >> 20,
                now >> 20,
                now as f64 / before as f64,
                resident(server) >> 20,
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

/// Sends a body and returns the status; the connection may also just end.
async fn send(server: &Server, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Option<u16> {
    let mut request = server.http.post(format!("{}{path}", server.url)).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let sent = tokio::time::timeout(TIMEOUT, request.send()).await;
    let response = sent
        .unwrap_or_else(|_| panic!("no answer from {path}"))
        .ok()?;
    let status = response.status().as_u16();
    let _ = tokio::time::timeout(TIMEOUT, response.bytes()).await;
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
    tokio::time::timeout(TIMEOUT, ask)
        .await
        .expect("the server answers")
}

/// Somebody who chats all the time; every answer must be the first one.
struct Chat {
    http: reqwest::Client,
    url: String,
    model: String,
    /// When each token came, and how long it took.
    gaps: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl Chat {
    fn new(server: &Server, model: &str) -> Chat {
        // Not the address of those who attack.
        let address = "127.0.0.3".parse().unwrap();
        let http = reqwest::Client::builder().no_proxy();
        Chat {
            http: http.local_address(Some(address)).build().unwrap(),
            url: server.url.clone(),
            model: model.to_owned(),
            gaps: Arc::default(),
        }
    }

    /// Returns the text of an answer.
    async fn answer(&self) -> String {
        let ask = json!({
            "model": self.model,
            "prompt": "fn main() {",
            "raw": true,
            "options": {"temperature": 0, "seed": 1, "num_predict": 128},
        });
        let sent = self
            .http
            .post(format!("{}/api/generate", self.url))
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
                if let Some(last) = last.replace(now) {
                    self.gaps.lock().unwrap().push((now, now - last));
                }
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

    /// Chats for some time; the answers are all the same.
    async fn chat_for(&self, time: Duration) -> String {
        let begun = Instant::now();
        let first = self.answer().await;
        while begun.elapsed() < time {
            assert_eq!(self.answer().await, first);
        }
        first
    }

    /// Chats until told to stop.
    fn go_on(self: &Arc<Self>, expected: String) -> (Arc<AtomicBool>, JoinHandle<()>) {
        let stop = Arc::new(AtomicBool::new(false));
        let (chat, stopped) = (self.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                assert_eq!(chat.answer().await, expected);
            }
        });
        (stop, task)
    }

    /// How many tokens came in a time, and how long 99 of 100 of them and the slowest took.
    fn gaps_of(&self, from: Instant, to: Instant) -> Option<Gaps> {
        let gaps = self.gaps.lock().unwrap();
        let within = gaps.iter().filter(|(at, _)| (from..to).contains(at));
        let mut gaps: Vec<Duration> = within.map(|(_, gap)| *gap).collect();
        gaps.sort_unstable();
        Some(Gaps {
            n: gaps.len(),
            median: *gaps.get(gaps.len() / 2)?,
            p99: *gaps.get(gaps.len() * 99 / 100)?,
            most: *gaps.last()?,
        })
    }
}

#[derive(Clone, Copy)]
struct Gaps {
    n: usize,
    median: Duration,
    p99: Duration,
    most: Duration,
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gaps {
            n,
            median,
            p99,
            most,
        } = self;
        write!(
            f,
            "{n} tokens, median {median:.1?}, p99 {p99:.1?}, most {most:.1?}"
        )
    }
}

/// Connections that say nothing, begin and do not go on, send a byte now and then, or talk nonsense:
/// more of them than the server has places. Others are answered all the same.
async fn many_connections(server: &Server, path: &str) {
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
    for _ in 0..10 {
        for stream in &mut held {
            let _ = stream.write_all(b" ").await;
        }
    }
    let answer = get_from("127.0.0.2", server, path).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_takes_at_most_four_times_its_size() {
    const SIZE: usize = 48 << 20;
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    // Whatever is made once is there now.
    Chat::new(&server, MODEL).answer().await;
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

/// Answers that were not expected; all of them are told at the end.
static SURPRISES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Sends one attack and looks at the answer.
async fn strike(server: &Server, attack: &Attack) {
    let begun = Instant::now();
    let status = send(server, &attack.path, &attack.headers, (attack.body)()).await;
    // A body that is refused before it is read ends the connection, too.
    let is_known = status
        .is_none_or(|status| attack.allowed.contains(&status) || [429, 503].contains(&status));
    let (name, path, time) = (&attack.name, &attack.path, begun.elapsed());
    if !is_known {
        let surprise = format!("{name} to {path}: {status:?}");
        SURPRISES.lock().unwrap().push(surprise);
    }
    if time > Duration::from_secs(1) {
        eprintln!("{name} to {path}: {status:?} after {time:?}");
    }
}

/// Sends every fifth of them at the same time.
async fn strike_together(server: &Server, attacks: &[Attack]) {
    let all = futures_util::stream::iter(attacks.iter().step_by(5));
    all.for_each_concurrent(16, |attack| strike(server, attack))
        .await;
}

/// Uploads files and makes models of them, as far as that is allowed.
async fn upload(server: &Server) {
    for (n, (name, file, bytes)) in requests::files().into_iter().enumerate() {
        let digest = llmsrv_store::Digest::of(&bytes).to_string();
        let blob = send(server, &format!("/api/blobs/{digest}"), &[], bytes).await;
        assert!([Some(200), Some(201)].contains(&blob), "{name}: {blob:?}");
        let body = json!({"model": format!("made-{n}"), "files": {file: digest}, "stream": false});
        let name = format!("create: {file} with {name}");
        let create = Attack::new(name, "/api/create", arms::FINE, move || {
            body.to_string().into_bytes()
        });
        strike(server, &create).await;
    }
}

/// Asks everything of models that nobody would have let in.
async fn use_models(server: &Server, n_models: usize) {
    for n in 0..n_models {
        let model = json!({"model": format!("evil-{n}")});
        let chat = json!({
            "model": format!("evil-{n}"),
            "messages": [{"role": "user", "content": "x"}],
            "stream": false,
            "options": {"num_predict": 1},
            "keep_alive": 0,
        });
        for (path, body) in [("/api/show", &model), ("/api/chat", &chat)] {
            let body = body.to_string().into_bytes();
            let name = format!("evil-{n}");
            let ask = Attack::new(name, path, &[200, 400, 500], move || body.clone());
            strike(server, &ask).await;
        }
        assert_eq!(server.get("/api/tags").await.status, 200);
    }
}

/// What is said about the release builds in docs/security.md is measured with them:
/// `LLMSRV_TEST_PROGRAM=target/release/llmsrv LLMSRV_TEST_CHAT=model.gguf` beside this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_neither_end_the_servers_nor_disturb_a_chat() {
    let sandbox = Sandbox::new();
    let evil = requests::jinja();
    for (n, (_, template)) in evil.iter().enumerate() {
        plant(
            &sandbox.models(),
            &format!("evil-{n}"),
            &requests::with_template(template),
        );
    }
    let (model, weights_kib) = match std::env::var_os("LLMSRV_TEST_CHAT") {
        Some(file) => {
            let file = fs::read(file).unwrap();
            plant(&sandbox.models(), "chat", &file);
            // Packed weights and the KV cache take up to twice the file.
            ("chat", (2 * file.len() as u64) >> 10)
        }
        None => (MODEL, 0),
    };
    let env = [
        ("LLMSRV_HOST", "127.0.0.1:0"),
        ("LLMSRV_ORIGINS", "*"),
        ("LLMSRV_MAX_CONNECTIONS", &CONNECTIONS.to_string()),
    ];
    let server = start(&sandbox, MEMORY_KIB + weights_kib, &["serve"], &env);
    let csv = sandbox.path().join("entries.csv");
    let env = [
        ("LOGKIT_SINKS", format!("csv:{}", csv.display())),
        ("LOGKIT_LOG_DIR", sandbox.path().display().to_string()),
    ];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let args = ["logkit", "serve", "--port", "0", "--grpc-port", "0"];
    let logger = start(&sandbox, MEMORY_KIB, &args, &env);
    logger.wait_for_log("gRPC on ", 1);
    let log = logger.log();
    let (_, grpc) = log.split_once("gRPC on ").unwrap();
    let grpc = grpc.lines().next().unwrap();

    assert_eq!(server.get("/api/tags").await.status, 200);
    let entry = Attack::new("an entry", "/log", &[200], || br#"{"cmd":"x"}"#.to_vec());
    strike(&logger, &entry).await;
    // With no model loaded.
    let fresh = (Fresh::of(&server), Fresh::of(&logger));
    let chat = Arc::new(Chat::new(&server, model));
    let begun = Instant::now();
    let expected = chat.chat_for(Duration::from_secs(3)).await;
    let quiet = chat.gaps_of(begun, Instant::now()).unwrap();
    let (stop, chatting) = chat.go_on(expected);
    let attacked = Instant::now();

    let mut begun = attacked;
    let mut parts = Vec::new();
    let mut part = |what| {
        parts.push((what, begun, Instant::now()));
        begun = Instant::now();
    };
    let (requests, entries, wires) = (requests::all(), entries::all(), wire::all());
    let mut classes: BTreeMap<&str, Vec<&Attack>> = BTreeMap::new();
    for attack in &requests {
        let class = attack.name.split(':').next().unwrap();
        classes.entry(class).or_default().push(attack);
    }
    for (class, attacks) in classes {
        for attack in attacks {
            strike(&server, attack).await;
        }
        part(class);
    }
    upload(&server).await;
    part("upload");
    use_models(&server, evil.len()).await;
    part("models");
    for attack in &entries {
        strike(&logger, attack).await;
    }
    part("entries");
    entries::messages(grpc).await;
    part("messages");
    for (_, bytes) in &wires {
        tokio::join!(
            wire::send(server.host(), bytes),
            wire::send(logger.host(), bytes),
            wire::send(grpc, bytes),
        );
    }
    part("wire");
    many_connections(&server, "/api/version").await;
    many_connections(&logger, "/health").await;
    part("many_connections");
    tokio::join!(
        strike_together(&server, &requests),
        strike_together(&logger, &entries),
        entries::messages(grpc),
    );
    part("together");

    stop.store(true, Ordering::Relaxed);
    chatting.await.expect("the chat was not disturbed");
    eprintln!("quiet: {quiet}");
    for (what, from, to) in parts {
        let gaps = chat.gaps_of(from, to).map(|gaps| gaps.to_string());
        let gaps = gaps.unwrap_or_default();
        eprintln!("{what}, {:.1?}: {gaps}", to - from);
    }
    let during = chat.gaps_of(attacked, Instant::now()).unwrap();
    let ratio = during.p99.as_secs_f64() / quiet.p99.as_secs_f64();
    eprintln!("attacked: {during}; p99 is {ratio:.2} times that of quiet");
    let surprises = SURPRISES.lock().unwrap().join("\n");
    assert!(surprises.is_empty(), "{surprises}");
    // Machines of tests are shared, and these builds are not optimised.
    assert!(during.most < LONGEST_GAP, "{during}");
    // With the model goes what it keeps: prefixes, and the grammars that were compiled for it.
    let loaded = server.get("/api/ps").await.ok();
    for loaded in loaded["models"].as_array().unwrap() {
        let unload = json!({"model": loaded["name"], "keep_alive": 0});
        server.post("/api/generate", &unload).await.ok();
    }
    assert_memory_comes_back(&server, &fresh.0);
    assert_memory_comes_back(&logger, &fresh.1);
    assert_eq!(server.get("/api/tags").await.status, 200);
    assert_eq!(logger.get("/health").await.status, 200);
    entries::assert_no_formulas(&fs::read_to_string(csv).unwrap());
    assert_eq!(server.end("-TERM"), 0);
    assert_eq!(logger.end("-TERM"), 0);
}

/// No token takes longer, whatever happens.
const LONGEST_GAP: Duration = Duration::from_secs(5);
