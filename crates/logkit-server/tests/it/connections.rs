//! More than the server can take, and clients that hardly move.

use std::time::{Duration, Instant};

use logkit_proto::{
    tonic::Code,
    v1::{BatchLogRequest, LogRequest},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::{http::Events, util::start};

#[tokio::test]
async fn one_client_does_not_hold_all_connections() {
    let server = start(|settings| settings.max_connections = 8).await;
    let address = server.url("").replace("http://", "");
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let ask = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(Duration::from_secs(10), ask).await;
    let answer = answer.expect("somebody else is answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_come_back() {
    let server = start(|settings| settings.queue = 64).await;
    server.log(json!({"cmd": "first"})).await;
    // Somebody else writes for a while: nothing can be committed.
    let blocker = rusqlite::Connection::open(server.database()).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let posts: Vec<_> = (0..40)
        .map(|_| {
            let body = Value::from(vec![json!({"cmd": "x"}); 4]).to_string();
            let request = server.client.post(server.url("/log/batch")).body(body);
            tokio::spawn(async move {
                let response = request.send().await.unwrap();
                let after = response.headers().get("retry-after").cloned();
                (response.status().as_u16(), after)
            })
        })
        .collect();
    // Those without a place are told at once; the queue is full then.
    let deadline = Instant::now() + Duration::from_secs(4);
    loop {
        let answer = tokio::time::timeout(
            Duration::from_millis(300),
            server.post("/log", "{\"cmd\": \"y\"}"),
        );
        if let Ok(answer) = answer.await
            && answer.status == 429
        {
            assert_eq!(answer.header("retry-after"), "1");
            break;
        }
        assert!(Instant::now() < deadline, "never full");
    }
    let mut client = server.grpc().await;
    let batch = BatchLogRequest {
        entries: vec![
            LogRequest {
                cmd: "x".into(),
                ..LogRequest::default()
            };
            64
        ],
    };
    assert_eq!(
        client.batch_log(batch).await.unwrap_err().code(),
        Code::ResourceExhausted
    );
    blocker.execute_batch("COMMIT").unwrap();
    let mut n_stored = 0;
    let mut n_refused = 0;
    for post in posts {
        match post.await.unwrap() {
            (200, _) => n_stored += 4,
            (429, Some(after)) => {
                assert_eq!(after, "1");
                n_refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(n_stored > 0 && n_refused > 0, "{n_stored} {n_refused}");
    // As many as were said, and nothing of those that were refused. The posts above which were
    // given up may be among them.
    let names: Vec<_> = server
        .rows()
        .into_iter()
        .map(|row| row.entry.function_name)
        .collect();
    assert_eq!(names.iter().filter(|name| *name == "x").count(), n_stored);
    server.log(json!({"cmd": "afterwards"})).await;
}

#[tokio::test]
async fn what_cannot_be_written_is_not_said_to_be_stored() {
    let server = start(|_| {}).await;
    server.log(json!({"cmd": "first"})).await;
    let other = rusqlite::Connection::open(server.database()).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER no BEFORE INSERT ON logs BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        .unwrap();
    let answer = server.post("/log", "{\"cmd\": \"x\"}").await;
    assert_eq!(answer.status, 503);
    assert!(!answer.text.contains("central.db"), "{}", answer.text);
    let health = server.get("/health").await;
    assert_eq!(
        (health.status, &health.json()["status"]),
        (503, &json!("failing"))
    );
    other.execute_batch("DROP TRIGGER no").unwrap();
    server.log(json!({"cmd": "second"})).await;
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(server.rows().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_hold_up_nobody() {
    let server = start(|_| {}).await;
    let address = server.server.bound().http;
    let mut slow = Vec::new();
    for idx in 0..10 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Half a head, half a body, or a stream that nobody reads.
        let part = match idx % 3 {
            0 => "POST /log HTTP/1.1\r\nHost: loc".to_owned(),
            1 => "POST /log HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{\"cmd\""
                .to_owned(),
            _ => "GET /logs/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        };
        stream.write_all(part.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let mut events = Events::open(&server, "/logs/stream", None).await;
    let large = "x".repeat(20_000);
    let began = Instant::now();
    for round in 0..100 {
        server
            .log(json!({"cmd": format!("c{round}"), "output": large}))
            .await;
    }
    for round in 0..100 {
        assert_eq!(events.next().await.1["function_name"], format!("c{round}"));
    }
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "{:?}",
        began.elapsed()
    );
    // One that reads at last finds everything.
    let mut late = slow.remove(2);
    let mut text = Vec::new();
    let read = async {
        let mut buffer = vec![0; 1 << 16];
        while !String::from_utf8_lossy(&text).contains("\"c99\"") {
            let n_bytes = late.read(&mut buffer).await.unwrap();
            assert!(n_bytes > 0);
            text.extend_from_slice(&buffer[..n_bytes]);
        }
    };
    tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .unwrap();
    assert!(String::from_utf8_lossy(&text).contains("\"c0\""));
}
