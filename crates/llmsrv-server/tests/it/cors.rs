//! Which web pages and which names may lead to the server.

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::FakeOptions;
use llmsrv_server::Settings;
use tower::ServiceExt as _;

use crate::host::{Host, configured, host, host_with, settings};

const CHAT: &str = r#"{"model":"plain","messages":[]}"#;

/// Asks as a page of `origin` does; returns the status and what the page may read.
async fn ask(host: &Host, method: Method, origin: &str) -> (u16, Option<String>) {
    let body = if method == Method::POST { CHAT } else { "" };
    let path = if method == Method::GET {
        "/api/tags"
    } else {
        "/api/chat"
    };
    let response = host.send(method, path, &[("origin", origin)], body).await;
    let status = response.status().as_u16();
    let allowed = response.headers().get("access-control-allow-origin");
    let allowed = allowed.map(|origin| origin.to_str().unwrap().to_owned());
    if status == 403 {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty(), "{origin}");
    }
    (status, allowed)
}

#[tokio::test]
async fn pages_of_this_machine_may_call() {
    let host = host();
    for origin in [
        "http://localhost",
        "https://localhost",
        "http://localhost:3000",
        "https://localhost:8443",
        "http://127.0.0.1",
        "https://127.0.0.1:1",
        "http://0.0.0.0:8080",
        "app://obsidian.md",
        "file://x",
        "tauri://localhost",
        "vscode-webview://abc",
        "vscode-file://vscode-app",
        // The page came from here.
        "http://localhost:11434",
    ] {
        for (method, status) in [
            (Method::GET, 200),
            (Method::POST, 200),
            (Method::OPTIONS, 204),
        ] {
            let expected = (status, Some(origin.to_owned()));
            assert_eq!(ask(&host, method, origin).await, expected, "{origin}");
        }
    }
}

#[tokio::test]
async fn other_pages_may_not() {
    let host = host();
    for origin in [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://evil.example/localhost",
        "http://localhost:port",
        "ftp://localhost",
        "null",
        "",
        "chrome-extension://abc",
    ] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let got = ask(&host, method.clone(), origin).await;
            assert_eq!(got, (403, None), "{method} {origin:?}");
        }
    }
}

#[tokio::test]
async fn the_setting_adds_to_the_list() {
    let with = |origins: &[&str]| {
        let settings = configured(|config| {
            config.origins = origins.iter().map(ToString::to_string).collect();
        });
        host_with(settings, FakeOptions::default)
    };
    let host = with(&[
        "https://a.example",
        "chrome-extension://*",
        "http://*.b.example",
    ]);
    for (origin, status) in [
        ("https://a.example", 200),
        ("https://A.example", 200),
        ("http://a.example", 403),
        ("https://a.example:8080", 403),
        ("chrome-extension://abc", 200),
        ("http://x.b.example", 200),
        ("http://b.example", 403),
        ("http://x.b.example.evil", 403),
        ("http://localhost:3000", 200),
    ] {
        assert_eq!(ask(&host, Method::GET, origin).await.0, status, "{origin}");
    }
    let open = with(&["*"]);
    let got = ask(&open, Method::GET, "https://any.example").await;
    assert_eq!(got, (200, Some("*".into())));
}

#[tokio::test]
async fn without_a_page_there_is_no_word_about_pages() {
    let host = host();
    let response = host.send(Method::GET, "/api/tags", &[], "").await;
    let names = response.headers().keys().map(http::HeaderName::as_str);
    assert!(
        !names
            .into_iter()
            .any(|name| name.starts_with("access-control"))
    );
    // A question without an origin is answered, and nothing is allowed.
    for path in ["/api/chat", "/v1/models", "/nope"] {
        let response = host.send(Method::OPTIONS, path, &[], "").await;
        assert_eq!(response.status(), 204, "{path}");
        assert!(
            !response
                .headers()
                .contains_key("access-control-allow-origin")
        );
    }
}

#[tokio::test]
async fn only_names_of_this_machine_lead_here() {
    let near = host();
    let far = Settings {
        listens_on_loopback: false,
        ..settings()
    };
    let far = host_with(far, FakeOptions::default);
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let own = own.trim();
    for (name, on_loopback, on_network) in [
        ("localhost", 200, 200),
        ("localhost:11434", 200, 200),
        ("LOCALHOST:1", 200, 200),
        ("127.0.0.1:11434", 200, 200),
        ("[::1]:11434", 200, 200),
        ("10.1.2.3", 200, 200),
        ("192.168.1.9:11434", 200, 200),
        ("172.16.0.1", 200, 200),
        ("0.0.0.0:11434", 200, 200),
        ("box.local", 403, 403),
        ("evil.internal:11434", 403, 403),
        ("container", 403, 200),
        ("llmsrv.ai.svc:11434", 403, 200),
        ("llmsrv.ai.svc.cluster.local", 403, 200),
        ("svc.evil.example", 403, 403),
        ("evil.cluster.local", 403, 403),
        ("x.localhost:80", 200, 200),
        ("host.docker.internal:11434", 200, 200),
        // An address is no name that was bent to it.
        ("8.8.8.8", 403, 200),
        ("evil.example", 403, 403),
        ("evil.example:11434", 403, 403),
        ("localhost.evil.example", 403, 403),
        ("evillocalhost", 403, 200),
        ("[2001:4860:4860::8888]", 403, 200),
        (if own.is_empty() { "localhost" } else { own }, 200, 200),
    ] {
        for (method, path) in [(Method::GET, "/api/tags"), (Method::OPTIONS, "/api/tags")] {
            let request = || {
                let request = Request::builder().method(method.clone()).uri(path);
                request.header("host", name).body(Body::empty()).unwrap()
            };
            for (host, status) in [(&near, on_loopback), (&far, on_network)] {
                let got = llmsrv_server::router(&host.app)
                    .oneshot(request())
                    .await
                    .unwrap()
                    .status();
                let expected = match (status, &method) {
                    (200, &Method::OPTIONS) => 204,
                    (status, _) => status,
                };
                assert_eq!(got, expected, "{method} {name}");
            }
        }
    }
    let nameless = Request::builder()
        .uri("/api/tags")
        .body(Body::empty())
        .unwrap();
    assert_eq!(
        llmsrv_server::router(&near.app)
            .oneshot(nameless)
            .await
            .unwrap()
            .status(),
        200
    );
}
