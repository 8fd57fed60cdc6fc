//! Keys, pages of other origins, TLS, and what the owner is told.

use std::time::{Duration, Instant};

use logkit_proto::{
    tonic::{Code, Request},
    v1::LogRequest,
};
use logkit_server::{Error, Server, Settings, TlsFiles};
use serde_json::json;

use crate::util::start;

#[tokio::test]
async fn a_key_is_asked_for_when_there_is_one() {
    let server = start(|settings| settings.api_keys = vec!["sesame".into(), "other".into()]).await;
    for (method, path) in [
        ("POST", "/log"),
        ("POST", "/log/batch"),
        ("GET", "/logs"),
        ("GET", "/logs/1"),
        ("GET", "/logs/stream"),
        ("GET", "/metrics"),
        ("POST", "/v1/logs"),
    ] {
        for key in [None, Some("wrong"), Some("sesame2"), Some("")] {
            let mut request = server
                .client
                .request(method.parse().unwrap(), server.url(path));
            if let Some(key) = key {
                request = request.bearer_auth(key);
            }
            let answer = server.send(request.body(r#"{"cmd": "x"}"#)).await;
            assert_eq!(answer.status, 401, "{path} {key:?}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            assert!(answer.json()["detail"].is_string());
        }
    }
    assert!(server.rows().is_empty());
    let post = || {
        server
            .client
            .post(server.url("/log"))
            .body(r#"{"cmd": "x"}"#)
    };
    assert_eq!(server.send(post().bearer_auth("sesame")).await.status, 200);
    assert_eq!(
        server
            .send(post().header("X-API-Key", "other"))
            .await
            .status,
        200
    );
    // The page and the probe are open, and tell nothing.
    assert_eq!(server.get("/").await.status, 200);
    assert_eq!(server.get("/health").await.json(), json!({"status": "ok"}));
}

#[tokio::test]
async fn grpc_asks_for_the_key_too() {
    let server = start(|settings| settings.api_keys = vec!["sesame".into()]).await;
    let mut client = server.grpc().await;
    let call = |key: &str| {
        let mut request = Request::new(LogRequest {
            cmd: "x".into(),
            ..LogRequest::default()
        });
        if !key.is_empty() {
            request
                .metadata_mut()
                .insert("authorization", key.parse().unwrap());
        }
        request
    };
    for key in ["", "wrong", "Bearer wrong"] {
        let status = client.log_call(call(key)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    for key in ["sesame", "Bearer sesame"] {
        assert!(
            client
                .log_call(call(key))
                .await
                .unwrap()
                .into_inner()
                .stored
        );
    }
    assert_eq!(server.rows().len(), 2);
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_if_allowed() {
    let server = start(|settings| {
        settings.cors_origins = vec![
            "https://ours.example".into(),
            "https://*.wild.example".into(),
        ];
    })
    .await;
    let post = |origin: &str| {
        let request = server
            .client
            .post(server.url("/log"))
            .body(r#"{"cmd": "x"}"#);
        request.header("origin", origin)
    };
    let own = server.url("");
    assert_eq!(server.send(post(&own)).await.status, 200);
    let foreign = server.send(post("https://evil.example")).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(foreign.header("access-control-allow-origin"), "");
    let ours = server.send(post("https://ours.example")).await;
    assert_eq!(ours.status, 200);
    assert_eq!(
        ours.header("access-control-allow-origin"),
        "https://ours.example"
    );
    let wild = server.send(post("https://a.wild.example")).await;
    assert_eq!(wild.status, 200);
    let preflight = server
        .client
        .request(reqwest::Method::OPTIONS, server.url("/log"))
        .header("origin", "https://ours.example")
        .header("access-control-request-method", "POST");
    let preflight = server.send(preflight).await;
    assert_eq!(preflight.status, 204);
    assert!(
        preflight
            .header("access-control-allow-headers")
            .contains("Content-Type")
    );
    // A name of somebody else that leads here.
    let rebound = server
        .client
        .get(server.url("/logs"))
        .header("host", "evil.example");
    assert_eq!(server.send(rebound).await.status, 403);
    assert_eq!(server.rows().len(), 3);
}

#[tokio::test]
async fn the_owner_is_warned_of_an_open_door() {
    let open = start(|settings| settings.http.0 = "0.0.0.0".into()).await;
    let warning = &open.server.bound().warnings[0];
    assert!(warning.contains("no API key"), "{warning}");
    // Where it listens, and a key to take.
    let port = open.server.bound().http.port();
    assert!(
        warning.contains(&format!("HTTP on 0.0.0.0:{port}")),
        "{warning}"
    );
    assert!(!warning.contains("gRPC"), "{warning}");
    let key = warning.split([' ', ',']).find(|word| word.len() == 32);
    assert!(key.is_some(), "{warning}");
    let no_tls = start(|settings| {
        settings.http.0 = "0.0.0.0".into();
        settings.api_keys = vec!["k".into()];
    })
    .await;
    assert!(no_tls.server.bound().warnings[0].contains("without TLS"));
    assert!(start(|_| {}).await.server.bound().warnings.is_empty());
}

#[tokio::test]
async fn a_page_that_was_led_here_neither_reads_nor_writes() {
    let server = start(|settings| settings.http.0 = "0.0.0.0".into()).await;
    let port = server.server.bound().http.port();
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    for host in [
        "evil.example",
        "evil.local",
        "evil.internal",
        "8.8.8.8",
        "127.0.0.1.evil.example",
    ] {
        let host = format!("{host}:{port}");
        let origin = format!("http://{host}");
        for origin in [None, Some(&origin)] {
            let mut read = server.client.get(url("/logs")).header("host", &host);
            let mut write = server.client.post(url("/log")).header("host", &host);
            if let Some(origin) = origin {
                read = read.header("origin", origin);
                write = write.header("origin", origin);
            }
            assert_eq!(server.send(read).await.status, 403, "{host} {origin:?}");
            let write = write.body(r#"{"cmd": "x"}"#);
            assert_eq!(server.send(write).await.status, 403, "{host} {origin:?}");
        }
    }
    assert!(server.rows().is_empty());
    for host in ["localhost", "127.0.0.1", "10.1.2.3"] {
        let read = server
            .client
            .get(url("/logs"))
            .header("host", format!("{host}:{port}"));
        assert_eq!(server.send(read).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn everything_works_over_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let server = start(|settings| settings.tls = Some(files.clone())).await;
    let port = server.server.bound().http.port();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap()])
        .resolve("localhost", server.server.bound().http)
        .build()
        .unwrap();
    let url = format!("https://localhost:{port}/log");
    let response = client
        .post(&url)
        .body(r#"{"cmd": "x"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    // Plain http is told what is wrong.
    let plain = server.get("/health").await;
    assert_eq!(plain.status, 400);
    assert!(plain.text.contains("https only"), "{}", plain.text);

    // Another certificate is taken up, one that cannot be used is not.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&files.certificate, "no certificate").unwrap();
    std::fs::write(&files.key, other.signing_key.serialize_pem()).unwrap();
    let fresh = || {
        let trusted = reqwest::Certificate::from_pem(other.cert.pem().as_bytes()).unwrap();
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([trusted])
            .resolve("localhost", server.server.bound().http)
            .build()
            .unwrap()
    };
    assert!(fresh().get(&url).send().await.is_err());
    std::fs::write(&files.certificate, other.cert.pem()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while fresh().get(&url).send().await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(client.get(&url).send().await.unwrap().status(), 405);

    std::fs::write(&files.key, "no key").unwrap();
    let settings = Settings {
        http: ("127.0.0.1".into(), 0),
        grpc: None,
        database: folder.path().join("x.db"),
        tls: Some(files),
        ..Settings::default()
    };
    let error = Server::start(settings).await.err().unwrap();
    assert!(matches!(error, Error::Tls(_)), "{error}");
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let first = start(|_| {}).await;
    let port = first.server.bound().http.port();
    let folder = tempfile::tempdir().unwrap();
    let settings = |http: u16, database: &str| Settings {
        http: ("127.0.0.1".into(), http),
        grpc: None,
        database: folder.path().join(database),
        ..Settings::default()
    };
    let error = Server::start(settings(port, "a.db")).await.err().unwrap();
    assert!(
        error
            .to_string()
            .contains(&format!("cannot listen on 127.0.0.1:{port}"))
    );
    std::fs::write(
        folder.path().join("file"),
        "not a database, but long enough to look",
    )
    .unwrap();
    let error = Server::start(settings(0, "file")).await.err().unwrap();
    assert!(matches!(error, Error::Database(_)), "{error}");
    let error = Server::start(settings(0, "file/below.db"))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Folder { .. }), "{error}");
}
