//! Names, copies and deletions; what is answered before a request is read.

use http::Method;
use http_body_util::BodyExt as _;
use llmsrv_engine::fake::FakeOptions;
use llmsrv_server::{Keys, Settings};
use serde_json::{Value, json};

use crate::host::{Host, configured, host, host_with};

async fn names(host: &Host) -> Vec<(String, String)> {
    let tags = host.get("/api/tags").await;
    let text = |model: &Value, field: &str| model[field].as_str().unwrap().to_owned();
    let models = tags["models"].as_array().unwrap().iter();
    models
        .map(|model| (text(model, "name"), text(model, "digest")))
        .collect()
}

#[tokio::test]
async fn a_copy_lives_until_it_is_deleted() {
    let host = host();
    let digest = |names: &[(String, String)], name: &str| {
        let found = names.iter().find(|(known, _)| known == name);
        found.map(|(_, digest)| digest.clone())
    };
    let copy = json!({"source": "PLAIN", "destination": "me/second:v1"}).to_string();
    let done = host.text(Method::POST, "/api/copy", copy).await;
    assert_eq!(done, (200, String::new()));
    let listed = names(&host).await;
    assert_eq!(
        digest(&listed, "me/second:v1"),
        digest(&listed, "plain:latest")
    );
    let (_, answer) = host.ask(json!({"model": "Me/Second:V1"})).await;
    assert_eq!(answer["model"], "Me/Second:V1", "as the client sent it");

    for (status, left) in [(200, None), (404, None::<String>)] {
        let done = host
            .text(Method::DELETE, "/api/delete", r#"{"name":"me/second:v1"}"#)
            .await;
        assert_eq!(done.0, status, "{done:?}");
        assert_eq!(done.1.is_empty(), status == 200, "{done:?}");
        assert_eq!(digest(&names(&host).await, "me/second:v1"), left);
    }
    assert_eq!(host.ask(json!({"model": "me/second:v1"})).await.0, 404);
    assert_eq!(host.ask(json!({})).await.0, 200, "the first one stays");
}

#[tokio::test]
async fn content_types_are_exact() {
    let host = host();
    let json_type = "application/json; charset=utf-8";
    let plain_type = "text/plain; charset=utf-8";
    let ask = r#"{"model":"plain","prompt":"x"}"#;
    for (method, path, body, expected) in [
        (Method::GET, "/", "", plain_type),
        (Method::HEAD, "/", "", plain_type),
        (Method::GET, "/nope", "", plain_type),
        (Method::GET, "/api/chat", "", plain_type),
        (Method::GET, "/api/version", "", json_type),
        (Method::HEAD, "/api/version", "", json_type),
        (Method::GET, "/api/ps", "", json_type),
        (Method::POST, "/api/show", r#"{"name":"plain"}"#, json_type),
        (Method::POST, "/api/chat", "", json_type),
        (Method::POST, "/api/chat", r#"{"model":"plain"}"#, json_type),
        (Method::POST, "/api/generate", ask, "application/x-ndjson"),
    ] {
        let response = host.send(method.clone(), path, &[], body).await;
        assert_eq!(
            response.headers()["content-type"],
            expected,
            "{method} {path} {body}"
        );
    }
    let version = host.get("/api/version").await;
    assert_eq!(version["version"], "0.33.0-llmsrv.test");
}

#[tokio::test]
async fn a_slash_too_many_never_leads_to_another_host() {
    let host = host();
    for path in ["//evil.example/", "/\\evil.example/", "///", "/%2F/evil/"] {
        let response = host.send(Method::GET, path, &[], "").await;
        assert_eq!(response.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn a_preflight_tells_what_is_allowed() {
    let ours = &[("origin", "http://localhost:3000")];
    let response = host().send(Method::OPTIONS, "/api/chat", ours, "").await;
    assert_eq!(response.status(), 204);
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!(
        header("access-control-allow-methods"),
        "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
    );
    assert_eq!(header("access-control-max-age"), "43200");
    for name in [
        "Authorization",
        "Content-Type",
        "x-stainless-os",
        "x-api-key",
    ] {
        let mut allowed = header("access-control-allow-headers").split(',');
        assert!(allowed.any(|known| known == name), "{name}");
    }
    assert!(
        !response
            .headers()
            .contains_key("access-control-allow-credentials")
    );

    let open = Settings {
        keys: Keys::plain(["secret"]),
        listens_on_loopback: false,
        ..configured(|config| config.origins = vec!["*".into()])
    };
    let open = host_with(open, FakeOptions::default);
    let page = &[("origin", "https://any.example")];
    let response = open.send(Method::GET, "/api/tags", page, "").await;
    assert_eq!(response.status(), 401);
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    assert_eq!(
        response.headers()["content-type"],
        "application/json; charset=utf-8"
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], br#"{"error":"unauthorized"}"#);
    let response = open.send(Method::OPTIONS, "/api/tags", page, "").await;
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
}
