//! Who may call, what for, how often, and with how much.

use std::{num::NonZeroU32, time::Duration};

use axum::body::Body;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::{Answer, FakeOptions};
use llmsrv_server::{ApiKey, App, Keys, Rate, Role, Settings, keys::digest, serve};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt as _;

use crate::host::{Host, configured, host, host_with, keyed, settings};

fn key(name: &str, role: Role) -> ApiKey {
    ApiKey {
        name: name.into(),
        role,
        digest: digest(name.as_bytes()),
    }
}

/// A key of each role; the key is its name.
fn with_roles() -> Settings {
    keyed(Keys::required(vec![
        key("infer", Role::Infer),
        key("manage", Role::Manage),
        key("admin", Role::Admin),
    ]))
}

/// With a key of each role, and so many requests in an hour.
fn limited(count: Option<u32>) -> Settings {
    let mut settings = with_roles();
    settings.config.rate_limit = count.map(|count| Rate {
        count: NonZeroU32::new(count).unwrap(),
        per: Duration::from_hours(1),
    });
    settings
}

fn guarded(settings: Settings) -> Host {
    host_with(settings, FakeOptions::default)
}

/// Reached from other machines, as far as one can tell.
fn exposed(settings: Settings) -> Host {
    guarded(Settings {
        listens_on_loopback: false,
        ..settings
    })
}

async fn json_of(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

#[tokio::test]
async fn each_path_asks_for_its_role() {
    use Role::{Infer, Manage};
    let host = guarded(with_roles());
    let body = json!({"model": "nope", "source": "nope", "destination": "x", "prompt": "x"});
    for (method, path, needed) in [
        (Method::GET, "/api/tags", Infer),
        (Method::GET, "/api/ps", Infer),
        (Method::GET, "/api/version", Infer),
        (Method::GET, "/api/status", Infer),
        (Method::POST, "/api/show", Infer),
        (Method::POST, "/api/generate", Infer),
        (Method::POST, "/api/chat", Infer),
        (Method::POST, "/api/copy", Manage),
        (Method::DELETE, "/api/delete", Manage),
        // Nothing is there, and nobody without a key learns that.
        (Method::GET, "/nothing/here", Infer),
    ] {
        for sent in ["", "wrong", "infer", "manage", "admin"] {
            let headers = [("x-api-key", sent)];
            let headers = if sent.is_empty() { &[][..] } else { &headers };
            let response = host
                .send(method.clone(), path, headers, body.to_string())
                .await;
            let (status, what) = (response.status().as_u16(), format!("{path} with {sent:?}"));
            match sent {
                "" | "wrong" => {
                    assert_eq!(status, 401, "{what}");
                    assert_eq!(response.headers()["www-authenticate"], "Bearer");
                    let expected = json!({"error": "unauthorized"});
                    assert_eq!(json_of(response).await, expected, "{what}");
                }
                "infer" if needed == Manage => {
                    assert_eq!(status, 403, "{what}");
                    let text = json_of(response).await["error"].to_string();
                    for part in ["role `manage`", "key `infer`", "role `infer`"] {
                        assert!(text.contains(part), "{what}: {text}");
                    }
                }
                _ => assert!(![401, 403].contains(&status), "{what}: {status}"),
            }
        }
    }
    for open in ["/", "/health"] {
        assert_eq!(host.text(Method::GET, open, "").await.0, 200, "{open}");
    }
}

#[tokio::test]
async fn no_way_of_writing_a_path_leads_past_its_role() {
    let host = guarded(with_roles());
    let body = json!({"model": "plain"}).to_string();
    for path in [
        "/api/delete/",
        "//api/delete",
        "/api//delete",
        "/api/./delete",
        "/api/x/../delete",
        "/API/DELETE",
        "/api/%64elete",
        "/api/delete?x",
        "/api/delete%2f",
        "/api/delete;x",
    ] {
        let sent = &[("authorization", "Bearer infer")];
        let response = host.send(Method::DELETE, path, sent, body.clone()).await;
        let status = response.status().as_u16();
        assert!([307, 403, 404].contains(&status), "{path}: {status}");
    }
    let left = host
        .send(Method::GET, "/api/tags", &[("x-api-key", "infer")], "")
        .await;
    assert!(json_of(left).await.to_string().contains("plain:latest"));
}

#[tokio::test]
async fn keys_are_found_where_clients_put_them() {
    let host = guarded(with_roles());
    for (name, value, status) in [
        ("authorization", "Bearer infer", 200),
        ("authorization", "bearer infer", 200),
        ("authorization", "BEARER  infer ", 200),
        ("authorization", "Basic infer", 401),
        ("authorization", "infer", 401),
        ("authorization", "Bearer", 401),
        ("authorization", "Bearer ", 401),
        ("x-api-key", "infer", 200),
        ("x-api-key", "infe", 401),
        ("x-api-key", "inferr", 401),
        ("x-api-key", "", 401),
        ("cookie", "infer", 401),
    ] {
        let response = host
            .send(Method::GET, "/api/tags", &[(name, value)], "")
            .await;
        assert_eq!(response.status(), status, "{name}: {value}");
    }
    let query = host.text(Method::GET, "/api/tags?key=infer", "").await;
    assert_eq!(query.0, 401, "keys in addresses end up in logs");
    // Nobody gets in where all keys were removed; everybody where none is asked for.
    let closed = guarded(keyed(Keys::required(Vec::new())));
    assert_eq!(closed.text(Method::GET, "/api/tags", "").await.0, 401);
    let dummy = &[("authorization", "Bearer ollama")];
    let open = self::host().send(Method::GET, "/api/tags", dummy, "").await;
    assert_eq!(open.status(), 200);
}

#[tokio::test]
async fn refusals_have_the_shape_of_their_family() {
    let host = guarded(limited(Some(1)));
    let ask = async |path: &str, sent: &str| {
        let headers = [("x-api-key", sent)];
        host.send(Method::POST, path, &headers, "{}").await
    };
    // Those without a key are one client by their address, and it has one request for each hour.
    let response = ask("/v1/chat/completions", "wrong").await;
    assert_eq!(response.status(), 401);
    let error = &json_of(response).await["error"];
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["code"], "invalid_api_key");
    assert!(error["message"].is_string() && error["param"].is_null());

    let response = ask("/v1/chat/completions", "wrong").await;
    assert_eq!(response.status(), 429);
    let wait: u64 = response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((3500..=3601).contains(&wait), "{wait}");
    let error = &json_of(response).await["error"];
    assert_eq!(error["code"], "rate_limit_exceeded");

    let response = ask("/v1/messages", "wrong").await;
    assert_eq!(response.status(), 429);
    let body = json_of(response).await;
    assert_eq!(
        (&body["type"], &body["error"]["type"]),
        (&json!("error"), &json!("rate_limit_error"))
    );
    let id = body["request_id"].as_str().unwrap();
    assert!(id.len() == 28 && id.starts_with("req_"), "{id}");

    let fresh = guarded(with_roles());
    let response = fresh
        .send(Method::POST, "/v1/messages/count_tokens", &[], "{}")
        .await;
    assert_eq!(response.status(), 401);
    let body = json_of(response).await;
    assert_eq!(body["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn each_client_has_its_own_rate() {
    let host = guarded(limited(Some(3)));
    for sent in ["infer", "manage", "wrong"] {
        let good = if sent == "wrong" { 401 } else { 200 };
        for status in [good, good, good, 429, 429] {
            let response = host
                .send(Method::GET, "/api/tags", &[("x-api-key", sent)], "")
                .await;
            assert_eq!(response.status(), status, "{sent}");
        }
    }
    // Probes are never too many.
    for _ in 0..10 {
        assert_eq!(host.text(Method::GET, "/health", "").await.0, 200);
    }
    // An unchanged limit goes on counting, a new one starts afresh, none is none.
    for (rate, statuses) in [
        (Some(3), &[429][..]),
        (Some(2), &[200, 200, 429]),
        (None, &[200, 200, 200, 200]),
    ] {
        host.app.reload(limited(rate));
        for status in statuses {
            let response = host
                .send(Method::GET, "/api/tags", &[("x-api-key", "infer")], "")
                .await;
            assert_eq!(response.status(), *status, "{rate:?}");
        }
    }
}

#[tokio::test]
async fn without_keys_only_this_machine_changes_models() {
    let body = json!({"source": "nope", "destination": "x"}).to_string();
    let copy = async |host: &Host| {
        let (status, text) = host.text(Method::POST, "/api/copy", body.clone()).await;
        (status, text)
    };
    let far = exposed(settings());
    let (status, text) = copy(&far).await;
    assert_eq!(status, 403);
    for part in [
        "llmsrv key add NAME --role manage",
        "LLMSRV_ALLOW_REMOTE_MANAGEMENT",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(far.text(Method::GET, "/api/tags", "").await.0, 200);

    let allowed = exposed(configured(|config| config.allow_remote_management = true));
    assert_eq!(copy(&allowed).await.0, 404, "there is no such model");
    assert_eq!(copy(&host()).await.0, 404, "this machine");
    // A key says enough, wherever it comes from.
    let keyed = exposed(with_roles());
    let sent = &[("x-api-key", "manage")];
    let response = keyed
        .send(Method::POST, "/api/copy", sent, body.clone())
        .await;
    assert_eq!(response.status(), 404);
    let sent = &[("x-api-key", "infer")];
    let response = keyed
        .send(Method::POST, "/api/copy", sent, body.clone())
        .await;
    assert_eq!(response.status(), 403);

    // Over real connections: a proxy on this machine does not make its callers local.
    let far = exposed(settings());
    let address = listen(&far.app).await;
    for (header, status) in [
        ("X-Nothing: 1", 404),
        ("X-Forwarded-For: 127.0.0.1", 403),
        ("Forwarded: for=127.0.0.1", 403),
        ("X-Real-IP: ::1", 403),
        ("Via: 1.1 proxy", 403),
    ] {
        let request = format!(
            "POST /api/copy HTTP/1.1\r\nHost: x\r\n{header}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(address, request.as_bytes()).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{header}: {answer}");
    }
}

#[tokio::test]
async fn a_name_that_was_bent_to_this_address_is_refused() {
    let ask = async |host: &Host, name: &str, origin: Option<&str>| {
        let mut request = Request::builder().uri("/api/tags").header("host", name);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = llmsrv_server::router(&host.app)
            .oneshot(request)
            .await
            .unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(status == 200 || !body.windows(5).any(|part| part == b"plain"));
        status
    };
    let (near, far) = (host(), exposed(settings()));
    for (name, origin, on_loopback, everywhere) in [
        ("localhost:11434", None, 200, 200),
        ("evil.example", None, 403, 403),
        // To a browser both are of the same origin.
        ("evil.example", Some("http://evil.example"), 403, 403),
        (
            "evil.example:11434",
            Some("http://evil.example:11434"),
            403,
            403,
        ),
        ("localhost:11434", Some("http://evil.example"), 403, 403),
        ("localhost:11434", Some("null"), 403, 403),
        ("localhost:11434", Some("http://localhost:3000"), 200, 200),
        (
            "192.168.1.5:11434",
            Some("http://192.168.1.5:11434"),
            200,
            200,
        ),
        ("localhost.evil.example", None, 403, 403),
        (
            "127.0.0.1.evil.example",
            Some("http://127.0.0.1.evil.example"),
            403,
            403,
        ),
    ] {
        assert_eq!(
            ask(&near, name, origin).await,
            on_loopback,
            "{name} {origin:?}"
        );
        assert_eq!(
            ask(&far, name, origin).await,
            everywhere,
            "{name} {origin:?}"
        );
    }
}

#[tokio::test]
async fn no_page_from_elsewhere_manages_models_without_a_key() {
    const COPY: &str = r#"{"source":"plain","destination":"x"}"#;
    let with = |origins: &[&str], mut settings: Settings| {
        settings.config.origins = origins.iter().map(ToString::to_string).collect();
        guarded(settings)
    };
    let calls = [
        (Method::POST, "/api/copy", COPY),
        (Method::DELETE, "/api/delete", r#"{"model":"nope"}"#),
        (Method::POST, "/api/pull", r#"{"model":"!"}"#),
        (Method::POST, "/api/push", r#"{"model":"!"}"#),
        (Method::POST, "/api/create", r#"{"model":"!"}"#),
        (Method::POST, "/api/blobs/sha256:00", ""),
    ];
    for origins in [
        &["*"][..],
        &["https://evil.example"],
        &["https://*.example", "null"],
    ] {
        let host = with(origins, settings());
        for (method, path, body) in &calls {
            for page in ["https://evil.example", "https://a.example", "null"] {
                let from = &[("origin", page), ("content-type", "text/plain")];
                let response = host.send(method.clone(), path, from, *body).await;
                assert_eq!(response.status(), 403, "{method} {path} {page} {origins:?}");
            }
            let from = &[("sec-fetch-site", "cross-site")];
            let response = host.send(method.clone(), path, from, *body).await;
            assert_eq!(response.status(), 403, "{method} {path} {origins:?}");
            for page in ["http://localhost:3000", "app://here"] {
                let response = host
                    .send(method.clone(), path, &[("origin", page)], *body)
                    .await;
                assert_ne!(response.status(), 403, "{method} {path} {page}");
            }
            let response = host.send(method.clone(), path, &[], *body).await;
            assert_ne!(response.status(), 403, "{method} {path}");
        }
        // It may ask models all the same.
        let page = &[("origin", "https://evil.example")];
        let response = host.send(Method::GET, "/api/tags", page, "").await;
        assert_eq!(response.status(), 200, "{origins:?}");
    }
    let keyed = with(&["*"], with_roles());
    let page = &[("origin", "https://evil.example"), ("x-api-key", "manage")];
    let response = keyed.send(Method::POST, "/api/copy", page, COPY).await;
    assert_eq!(response.status(), 200, "a key says enough");
}

#[tokio::test]
async fn a_page_that_may_call_can_read_why_it_is_refused() {
    let host = guarded(with_roles());
    let page = [("origin", "http://localhost:3000"), ("x-api-key", "infer")];
    let copy = host.send(Method::POST, "/api/copy", &page, "{}").await;
    assert_eq!(copy.status(), 403);
    assert_eq!(
        copy.headers()["access-control-allow-origin"],
        "http://localhost:3000"
    );
}

#[tokio::test]
async fn names_lead_nowhere_but_into_the_store() {
    let host = host();
    let before = host.get("/api/tags").await;
    for name in [
        "../../../etc/passwd",
        "..",
        "../x",
        "a/../b",
        "/etc/passwd",
        "a/..",
        "x:../y",
        "x:..",
        "..:latest",
        "a\\..\\b",
        "%2e%2e/x",
        "a//b",
        "./x",
        ".hidden/x",
        "x\0y",
        "x\n",
        "http://evil.example/../x",
    ] {
        for (path, body) in [
            ("/api/generate", json!({"model": name, "prompt": "x"})),
            ("/api/chat", json!({"model": name, "messages": []})),
            ("/api/show", json!({"model": name})),
            ("/api/copy", json!({"source": "plain", "destination": name})),
            ("/api/copy", json!({"source": name, "destination": "x"})),
        ] {
            let (status, answer) = host.post(path, body).await;
            assert!(
                [400, 404].contains(&status),
                "{path} {name:?}: {status} {answer}"
            );
        }
        let body = json!({"model": name}).to_string();
        let (status, _) = host.text(Method::DELETE, "/api/delete", body).await;
        assert!([400, 404].contains(&status), "{name:?}: {status}");
    }
    for digest in [
        "sha256:..%2f..%2fetc%2fpasswd",
        "sha256-../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "sha256:",
        "sha256:zz",
    ] {
        for method in [Method::HEAD, Method::POST] {
            let path = format!("/api/blobs/{digest}");
            let (status, _) = host.text(method.clone(), &path, "x").await;
            assert!([400, 404].contains(&status), "{method} {path}: {status}");
        }
    }
    assert_eq!(
        host.get("/api/tags").await,
        before,
        "nothing was made or lost"
    );
}

async fn listen(app: &App) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, app.clone(), std::future::pending()));
    address
}

/// Sends bytes and returns what comes until the end of the connection.
async fn exchange(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Memory of this process in use, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_is_refused_without_keeping_it() {
    const GIGABYTE: usize = 1 << 30;
    let host = host();
    let address = listen(&host.app).await;
    let before = resident();
    for (path, limit) in [("/api/show", 1_usize << 20), ("/api/generate", 128 << 20)] {
        // Refused by what it says, before a byte of it is sent.
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {GIGABYTE}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 4096];
        let n_read = stream.read(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer[..n_read]).into_owned();
        assert!(text.starts_with("HTTP/1.1 413 "), "{path}: {text}");
        drop(stream);
        // A client that asks first is not asked to send it.
        let head = head.replace(
            "\r\n\r\n",
            "\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        );
        let answer = exchange(address, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");

        // In pieces, without saying how much: refused once it is too much, and told so even if the
        // client only listens after it has sent a good deal more.
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut piece = format!("{:x}\r\n", 1 << 16).into_bytes();
        piece.resize(piece.len() + (1 << 16), b' ');
        piece.extend(b"\r\n");
        let mut sent = 0;
        while sent < limit + (16 << 20) {
            stream.write_all(&piece).await.unwrap();
            sent += 1 << 16;
        }
        let mut answer = [0; 4096];
        let n_read = stream.read(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer[..n_read]).into_owned();
        assert!(text.starts_with("HTTP/1.1 413 "), "{path}: {text}");
    }
    let grown = resident().saturating_sub(before);
    // The largest body that is allowed at all, twice, for a buffer that grows.
    assert!(grown < 400 << 20, "{} MB", grown >> 20);
    assert_eq!(host.text(Method::GET, "/api/version", "").await.0, 200);
}

#[tokio::test]
async fn heads_have_a_limit() {
    let host = host();
    let long = format!("/api/show/{}", "x".repeat(9000));
    let (status, text) = host.text(Method::GET, &long, "").await;
    assert_eq!(status, 414, "{text}");
    let address = listen(&host.app).await;
    for (request, statuses) in [
        (
            format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(1 << 17)),
            &["414", "431"][..],
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
                "x".repeat(1 << 17)
            ),
            &["431"],
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
                "X: y\r\n".repeat(200)
            ),
            &["431"],
        ),
        ("\r\n\r\nnonsense\r\n\r\n".to_owned(), &["400"]),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // It may hang up before everything is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = [0; 256];
        let n_read = stream.read(&mut answer).await.unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..n_read]).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or("none");
        assert!(statuses.contains(&status), "{answer}");
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let host = guarded(configured(|config| config.max_connections = 2));
    let address = listen(&host.app).await;
    let mut working = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(UNFINISHED).await.unwrap();
        // It is at work: it asks for the body.
        let mut asked = [0; 25];
        stream.read_exact(&mut asked).await.unwrap();
        working.push(stream);
    }
    let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut third = tokio::spawn(exchange(address, ask));
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut third).await;
    assert!(waited.is_err(), "two are open already");
    drop(working);
    let answer = tokio::time::timeout(Duration::from_secs(20), third).await;
    assert!(answer.unwrap().unwrap().contains("is running"));
}

/// The head of a request whose body does not come.
const UNFINISHED: &[u8] =
    b"POST /api/show HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";

#[tokio::test]
async fn one_address_keeps_nobody_else_out() {
    const MOST: usize = 8;
    for silent in [true, false] {
        let host = guarded(configured(|config| config.max_connections = MOST));
        let address = listen(&host.app).await;
        let mut held = Vec::new();
        for _ in 0..5 * MOST {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if !silent {
                // It may be closed at once.
                let _ = stream.write_all(UNFINISHED).await;
            }
            held.push(stream);
        }
        let asks = async |from: &str| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(ask).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.contains("is running"), "{from}: {answer}");
        };
        let limit = Duration::from_secs(20);
        let answered = tokio::time::timeout(limit, asks("127.0.0.2")).await;
        assert!(answered.is_ok(), "silent {silent}");
        if silent {
            // Silent connections do not even keep out their own address.
            let answered = tokio::time::timeout(limit, asks("127.0.0.1")).await;
            assert!(answered.is_ok());
        }
        drop(held);
    }
}

#[tokio::test]
async fn settings_change_between_requests_and_not_within_one() {
    let with = |names: &[&str], origins: &[&str]| Settings {
        keys: Keys::required(names.iter().map(|name| key(name, Role::Infer)).collect()),
        ..configured(|config| {
            config.origins = origins.iter().map(ToString::to_string).collect();
        })
    };
    let host = host_with(with(&["old"], &[]), || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(1),
        ..FakeOptions::default()
    });
    let body = json!({"model": "plain", "prompt": "x", "options": {"num_predict": 300}});
    let stream = host
        .send(
            Method::POST,
            "/api/generate",
            &[("x-api-key", "old")],
            body.to_string(),
        )
        .await;
    let mut stream = stream.into_body();
    assert!(stream.frame().await.unwrap().is_ok(), "it has begun");

    host.app.reload(with(&["new"], &["https://page.example"]));
    let page = [("origin", "https://page.example"), ("x-api-key", "new")];
    for (headers, status) in [
        (&[("x-api-key", "old")][..], 401),
        (&[("x-api-key", "new")], 200),
        (&page, 200),
    ] {
        let response = host.send(Method::GET, "/api/tags", headers, "").await;
        assert_eq!(response.status(), status, "{headers:?}");
    }
    // What ran goes on to its end.
    let rest = stream.collect().await.unwrap().to_bytes();
    let last = std::str::from_utf8(&rest)
        .unwrap()
        .trim_end()
        .lines()
        .last()
        .unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(
        (&last["done"], &last["eval_count"]),
        (&json!(true), &json!(300))
    );
}

/// A client whose requests fill the line does not keep another one from its turn.
#[tokio::test]
async fn clients_take_turns() {
    let mut one_at_a_time = with_roles();
    one_at_a_time.config.num_parallel = 1;
    let host = host_with(one_at_a_time, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(5),
        ..FakeOptions::default()
    });
    let ask = |key: &'static str, n_tokens: usize| {
        let body = json!({"model": "plain", "prompt": "x", "stream": false, "options": {"num_predict": n_tokens}});
        let header = format!("Bearer {key}");
        let host = &host;
        async move {
            let headers = [("authorization", header.as_str())];
            let answer = host.send(Method::POST, "/api/generate", &headers, body.to_string());
            assert_eq!(answer.await.status(), 200);
            key
        }
    };
    let waiting = FuturesUnordered::new();
    for (key, n_tokens) in [
        ("infer", 60),
        ("infer", 5),
        ("infer", 5),
        ("infer", 5),
        ("admin", 5),
    ] {
        let mut asked = Box::pin(ask(key, n_tokens));
        let early = tokio::time::timeout(Duration::from_millis(20), &mut asked).await;
        assert!(early.is_err(), "it stands in line");
        waiting.push(asked);
    }
    let order: Vec<&str> = waiting.collect().await;
    assert_eq!(order, ["infer", "infer", "admin", "infer", "infer"]);
}
