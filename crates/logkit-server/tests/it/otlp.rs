//! OpenTelemetry's logs and traces.

use logkit_proto::otlp::{
    AnyValue, KeyValue, LogRecord, LogsRequest, Resource, ResourceLogs, ScopeLogs, any_value,
};
use prost::Message as _;
use serde_json::json;

use crate::util::{root, start};

#[tokio::test]
async fn spans_become_entries_with_their_place_in_the_trace() {
    let server = start(|_| {}).await;
    let attribute = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    let body = json!({"resourceSpans": [{
        "resource": {"attributes": [attribute("service.name", "shop"),
            attribute("service.version", "3"), attribute("deployment.environment.name", "prod")]},
        "scopeSpans": [{"scope": {"name": "web"}, "spans": [
            {"traceId": "0123456789abcdef0123456789abcdef", "spanId": "00000000000000ab",
             "parentSpanId": "", "name": "GET /", "kind": 2,
             "startTimeUnixNano": "1795204488596202000", "endTimeUnixNano": "1795204488598702500",
             "attributes": [{"key": "n", "value": {"intValue": "7"}}], "status": {}},
            {"traceId": "0123456789abcdef0123456789abcdef", "spanId": "00000000000000cd",
             "parentSpanId": "00000000000000ab", "name": "query",
             "startTimeUnixNano": "1795204488596202000", "endTimeUnixNano": "1795204488596202000",
             "events": [{"name": "exception", "attributes": [attribute("exception.type", "Oops"),
                 attribute("exception.message", "no"), attribute("exception.stacktrace", "here")]}],
             "status": {"code": 2, "message": "failed"}},
        ]}],
    }]});
    let request = server
        .client
        .post(server.url("/v1/traces"))
        .body(body.to_string());
    let answer = server
        .send(request.header("content-type", "application/json"))
        .await;
    assert_eq!((answer.status, &*answer.text), (200, "{}"));
    let rows = server.rows();
    let (first, second) = (&rows[0].entry, &rows[1].entry);
    assert_eq!(
        first.timestamp.to_string(),
        "2026-11-20T19:54:48.596202+00:00"
    );
    assert_eq!((&*first.function_name, &*first.module), ("GET /", "shop"));
    assert_eq!((&*first.environment, &*first.version), ("prod", "3"));
    assert_eq!(
        (first.duration_ms, first.level.as_str()),
        (Some(2.501), "INFO")
    );
    assert_eq!(first.trace_id, "0123456789abcdef0123456789abcdef");
    assert_eq!(first.extra["n"], 7);
    assert_eq!(second.parent_id, first.span_id);
    assert_eq!(second.level.as_str(), "ERROR");
    assert_eq!(
        (&*second.exception_type, &*second.exception),
        ("Oops", "no")
    );
    assert_eq!(second.traceback, "here");
}

#[tokio::test]
async fn log_records_come_as_protobuf_too() {
    let server = start(|_| {}).await;
    let text = |text: &str| AnyValue {
        value: Some(any_value::Value::StringValue(text.into())),
    };
    let request = LogsRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![KeyValue {
                    key: "service.name".into(),
                    value: Some(text("shop")),
                }],
            }),
            scope_logs: vec![ScopeLogs {
                scope: None,
                log_records: [
                    (9, "INFO"),
                    (13, "WARNING"),
                    (17, "ERROR"),
                    (21, "CRITICAL"),
                    (0, "INFO"),
                ]
                .into_iter()
                .map(|(severity_number, level)| LogRecord {
                    severity_number,
                    body: Some(text(level)),
                    trace_id: vec![0xab; 16],
                    ..LogRecord::default()
                })
                .collect(),
            }],
        }],
    };
    let post = |kind: &'static str, body: Vec<u8>| {
        let request = server.client.post(server.url("/v1/logs")).body(body);
        server.send(request.header("content-type", kind))
    };
    let answer = post("application/x-protobuf", request.encode_to_vec()).await;
    assert_eq!((answer.status, &*answer.text), (200, ""));
    let rows = server.rows();
    assert_eq!(rows.len(), 5);
    for row in rows {
        let entry = row.entry;
        assert_eq!(entry.return_value, format!("'{}'", entry.level));
        assert_eq!(
            (&*entry.module, &*entry.trace_id),
            ("shop", &*"ab".repeat(16))
        );
    }
    assert_eq!(
        post("application/x-protobuf", vec![0xff; 9]).await.status,
        400
    );
    assert_eq!(post("application/json", b"{".to_vec()).await.status, 400);
    assert_eq!(post("text/plain", b"{}".to_vec()).await.status, 415);
    assert_eq!(post("application/json", b"[]".to_vec()).await.status, 200);
}

#[tokio::test]
async fn requests_of_the_library_of_opentelemetry_are_understood() {
    let clients = std::env::var_os("TEST_CLIENTS")
        .expect("the library of OpenTelemetry is missing, which `tests/run` installs");
    let server = start(|_| {}).await;
    for kind in ["logs", "traces"] {
        let output =
            std::process::Command::new(std::path::Path::new(&clients).join("venv/bin/python"))
                .arg(root().join("tests/clients/otlp.py"))
                .args(["encode", kind])
                .output()
                .unwrap();
        assert!(output.status.success(), "{output:?}");
        let request = server
            .client
            .post(server.url(&format!("/v1/{kind}")))
            .header("content-type", "application/x-protobuf")
            .body(output.stdout);
        let answer = server.send(request).await;
        assert_eq!((answer.status, &*answer.text), (200, ""));
    }
    let rows = server.rows();
    let (failed, plain, span) = (&rows[0].entry, &rows[1].entry, &rows[2].entry);
    for entry in [failed, plain, span] {
        assert_eq!(
            entry.timestamp.to_string(),
            "2025-11-20T19:54:48.596202+00:00"
        );
        assert_eq!((&*entry.module, &*entry.version), ("shop", "1.2"));
    }
    assert_eq!(failed.level.as_str(), "ERROR");
    assert_eq!(failed.return_value, "'card refused'");
    assert_eq!(failed.exception_type, "ValueError");
    assert_eq!(failed.extra["items"], json!([3]));
    assert_eq!(failed.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(plain.level.as_str(), "INFO");
    assert_eq!(span.function_name, "GET /cart");
    assert_eq!(span.duration_ms, Some(2.0));
    assert_eq!(
        (span.level.as_str(), &*span.exception),
        ("ERROR", "too late")
    );
    assert_eq!(span.span_id, failed.span_id);
    assert_eq!(span.parent_id.unwrap().to_string(), "0000000000000007");
}
