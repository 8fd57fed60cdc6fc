//! https: handshakes, certificates that change, and clients that do not shake hands.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use llmsrv_engine::fake::{Answer, FakeOptions};
use llmsrv_server::{Tls, serve_tls};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::host::{Host, host, host_with, settings};

const SOON: Duration = Duration::from_secs(20);

/// A certificate for `localhost`, its key, and what a client that trusts it needs.
struct Pair {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Pair {
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        der: made.cert.der().clone(),
    }
}

fn tls(pair: &Pair) -> Tls {
    Tls::new(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap()
}

async fn listen(host: &Host, tls: &Tls) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(serve_tls(listener, tls.clone(), host.app.clone(), async {
        let _ = stopped.await;
    }));
    (address, stop)
}

/// Shakes hands as a client that trusts only `trusted` and speaks `protocols`.
async fn connect(
    address: SocketAddr,
    trusted: &Pair,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    tokio::time::timeout(SOON, connector.connect(name, stream)).await?
}

async fn get(stream: &mut TlsStream<TcpStream>) -> String {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 1024];
    let n_read = stream.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..n_read]).into_owned()
}

#[tokio::test]
async fn the_client_chooses_the_version_of_http() {
    let (host, pair) = (host(), pair());
    let (address, _stop) = listen(&host, &tls(&pair)).await;
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let mut stream = connect(address, &pair, offered).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.as_deref(), chosen.map(str::as_bytes));
        if chosen != Some("h2") {
            assert!(get(&mut stream).await.contains("is running"));
        }
    }
}

#[tokio::test]
async fn those_who_do_not_shake_hands_hold_up_nobody() {
    let (host, pair) = (host(), pair());
    let (address, _stop) = listen(&host, &tls(&pair)).await;
    let mut silent = Vec::new();
    for start in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00", b"\x00\xff\xff"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(start).await.unwrap();
        silent.push(stream);
    }
    let mut stream = connect(address, &pair, &["http/1.1"]).await.unwrap();
    assert!(get(&mut stream).await.contains("is running"));

    // Plain http gets a word instead of rubbish.
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = vec![0; 1024];
    let n_read = plain.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..n_read]).into_owned();
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.contains("https"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_new_certificate_leaves_open_connections_alone() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(1),
        ..FakeOptions::default()
    });
    let (old, new) = (pair(), pair());
    let tls = tls(&old);
    let (address, _stop) = listen(&host, &tls).await;

    let mut running = connect(address, &old, &["http/1.1"]).await.unwrap();
    let body =
        json!({"model": "plain", "prompt": "x", "options": {"num_predict": 400}}).to_string();
    let request = format!(
        "POST /api/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    running.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 64];
    let n_read = running.read(&mut first).await.unwrap();
    assert!(first[..n_read].starts_with(b"HTTP/1.1 200 "));

    tls.replace(new.certificate.as_bytes(), new.key.as_bytes())
        .unwrap();
    assert!(connect(address, &old, &["http/1.1"]).await.is_err());
    let mut stream = connect(address, &new, &["http/1.1"]).await.unwrap();
    assert!(get(&mut stream).await.contains("is running"));

    // What cannot be used changes nothing.
    for (certificate, key) in [
        (old.certificate.as_str(), new.key.as_str()),
        ("", new.key.as_str()),
        (new.certificate.as_str(), "rubbish"),
    ] {
        assert!(tls.replace(certificate.as_bytes(), key.as_bytes()).is_err());
        assert!(connect(address, &new, &["http/1.1"]).await.is_ok());
    }

    let mut rest = Vec::new();
    let read = running.read_to_end(&mut rest);
    tokio::time::timeout(SOON, read).await.unwrap().unwrap();
    let rest = String::from_utf8_lossy(&rest);
    assert!(
        rest.contains("\"eval_count\":400"),
        "the stream ended early"
    );
}

#[tokio::test]
async fn handshakes_do_not_hold_up_the_end() {
    let (host, pair) = (host(), pair());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve_tls(listener, tls(&pair), host.app.clone(), async {
        let _ = stopped.await;
    }));
    let _silent = TcpStream::connect(address).await.unwrap();
    let _used = connect(address, &pair, &[]).await.unwrap();
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), server).await;
    ended.unwrap().unwrap().unwrap();
}
