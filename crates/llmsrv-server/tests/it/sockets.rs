//! Real connections: what goes over them, and what happens when they break.

use std::time::Duration;

use llmsrv_engine::fake::{Answer, FakeOptions};
use llmsrv_server::serve;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};

use crate::host::{configured, host_with};

async fn post(address: std::net::SocketAddr, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/generate HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_broken_connection_ends_its_generation_and_shutdown_waits_for_the_others() {
    let one = configured(|config| config.num_parallel = 1);
    let host = host_with(one, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(1),
        ..FakeOptions::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, host.app.clone(), async {
        let _ = stopped.await;
    }));
    let limit = Duration::from_secs(20);

    for stream in [true, false] {
        let body = json!({"model": "plain", "prompt": "x", "stream": stream}).to_string();
        let mut leaving = post(address, &body).await;
        if stream {
            let mut first = [0; 64];
            let n_read = leaving.read(&mut first).await.unwrap();
            assert!(first[..n_read].starts_with(b"HTTP/1.1 200 OK"));
        } else {
            // It has begun when another one does not get its turn.
            let taken = async {
                let short = json!({"options": {"num_predict": 1}});
                let turn = Duration::from_millis(300);
                while tokio::time::timeout(turn, host.ask(short.clone()))
                    .await
                    .is_ok()
                {}
            };
            tokio::time::timeout(limit, taken)
                .await
                .expect("the request begins");
        }
        drop(leaving);
        let next = host.ask(json!({"options": {"num_predict": 3}}));
        let (status, _) = tokio::time::timeout(limit, next)
            .await
            .expect("the place is free");
        assert_eq!(status, 200, "stream {stream}");
    }

    let body =
        json!({"model": "plain", "prompt": "x", "options": {"num_predict": 100}}).to_string();
    let mut last = post(address, &body).await;
    let mut text = vec![0; 16];
    last.read_exact(&mut text).await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(limit, last.read_to_end(&mut text))
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.to_lowercase().contains("transfer-encoding: chunked"));
    assert!(
        text.contains("\"done\":true") && text.ends_with("0\r\n\r\n"),
        "{text}"
    );
    tokio::time::timeout(limit, server)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn a_server_shows_that_it_is_alive_also_when_all_connections_are_taken() {
    let one = configured(|config| config.max_connections = 1);
    let host = host_with(one, FakeOptions::default);
    let alive = || tokio::time::timeout(Duration::from_millis(300), host.app.is_alive());
    // Nobody accepts connections: it does not look alive.
    assert!(alive().await.is_err());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, host.app.clone(), std::future::pending()));
    assert!(alive().await.is_ok());
    let mut taken = TcpStream::connect(address).await.unwrap();
    let ask = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
    taken.write_all(ask.as_bytes()).await.unwrap();
    assert!(taken.read(&mut [0; 64]).await.unwrap() > 0);
    let _waits = TcpStream::connect(address).await.unwrap();
    assert!(alive().await.is_ok());
    server.abort();
    let _ = server.await;
    // One answer may be left of the question that nobody heard in the beginning.
    let _ = alive().await;
    assert!(alive().await.is_err());
}
