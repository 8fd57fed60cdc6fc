use std::{
    io::{Read, Write as _},
    num::NonZeroU64,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use logkit::{Entry, Level, OtlpOptions, OtlpSink, Sink, SpanId, Timestamp};
use prost::Message;

use super::{
    error,
    stub::{Reply, Request, Stub},
};

// Written from the protocol's definition, apart from those of the library.
#[derive(Clone, PartialEq, Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ByResource>,
}
#[derive(Clone, PartialEq, Message)]
struct ByResource {
    #[prost(message, optional, tag = "1")]
    resource: Option<Attributes>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ByScope>,
}
#[derive(Clone, PartialEq, Message)]
struct Attributes {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Value>,
}
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    integer: Option<i64>,
    #[prost(double, optional, tag = "4")]
    number: Option<f64>,
}
#[derive(Clone, PartialEq, Message)]
struct ByScope {
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
}
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(fixed64, tag = "1")]
    time: u64,
    #[prost(int32, tag = "2")]
    severity: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<Value>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(bytes = "vec", tag = "9")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    span_id: Vec<u8>,
}
#[expect(clippy::struct_field_names, reason = "the names of the definition")]
#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    attributes
        .iter()
        .find(|pair| pair.key == key)
        .and_then(|pair| pair.value.as_ref()?.text.as_deref())
        .unwrap_or_default()
}

fn body(request: &Request) -> Vec<u8> {
    assert_eq!(request.header("content-encoding"), Some("gzip"));
    assert_eq!(
        request.header("content-type"),
        Some("application/x-protobuf")
    );
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(&*request.body)
        .read_to_end(&mut body)
        .unwrap();
    body
}

fn decode(request: &Request) -> Export {
    Export::decode(&*body(request)).unwrap()
}

fn fast() -> OtlpOptions {
    OtlpOptions {
        retry: Duration::from_millis(5),
        linger: Duration::from_millis(20),
        ..OtlpOptions::default()
    }
}

fn span_id(n: u64) -> Option<SpanId> {
    NonZeroU64::new(n).map(SpanId)
}

#[test]
fn entries_become_records_and_calls_become_spans() {
    let stub = Stub::start(vec![Reply::status(503)], Reply::ok(""));
    let mut sink = OtlpSink::new(&stub.url, &fast()).unwrap();
    let mut call = Entry {
        timestamp: Timestamp::from_micros(1_795_204_488_596_202),
        span_id: span_id(7),
        parent_id: span_id(6),
        environment: "prod".into(),
        version: "1.2".into(),
        ..error("pay", "card refused")
    };
    call.extra.insert("n".into(), 3.into());
    let event = Entry {
        level: Level::Info,
        trace_id: "order-17".into(),
        duration_ms: None,
        ..Entry::default()
    };
    sink.write_batch(&[call, event]).unwrap();
    let _ = sink.close(); // tells of the 503
    assert_eq!(sink.log_counts().get().delivered, 2);
    assert_eq!(sink.span_counts().get().delivered, 1);
    let requests = stub.requests();
    let last = |path: &str| decode(requests.iter().rev().find(|r| r.path == path).unwrap());
    let logs = last("/v1/logs");
    assert_eq!(logs.resources.len(), 2, "tags differ");
    let tags = &logs.resources[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(tags, "service.name"), "logkit");
    assert_eq!(text(tags, "deployment.environment.name"), "prod");
    assert_eq!(text(tags, "service.version"), "1.2");
    let record = Record::decode(&*logs.resources[0].scopes[0].items[0]).unwrap();
    assert_eq!(record.time, 1_795_204_488_596_202_000);
    assert_eq!(
        (record.severity, record.severity_text.as_str()),
        (17, "ERROR")
    );
    assert_eq!(
        record.body.unwrap().text.unwrap(),
        "pay() raised ValueError: card refused"
    );
    for (key, value) in [
        ("code.function.name", "pay"),
        ("code.namespace", "shop"),
        ("logkit.args", "(3, 'x')"),
        ("exception.type", "ValueError"),
        ("exception.message", "card refused"),
    ] {
        assert_eq!(text(&record.attributes, key), value, "{key}");
    }
    let trace = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    assert_eq!(record.trace_id, trace);
    assert_eq!(record.span_id, 7_u64.to_be_bytes());
    let other = Record::decode(&*logs.resources[1].scopes[0].items[0]).unwrap();
    assert_eq!(other.trace_id.len(), 16);
    assert_eq!(text(&other.attributes, "logkit.trace_id"), "order-17");

    let traces = last("/v1/traces");
    let span = Span::decode(&*traces.resources[0].scopes[0].items[0]).unwrap();
    assert_eq!(span.name, "pay");
    assert_eq!(
        (span.trace_id.as_slice(), span.span_id.as_slice()),
        (&trace[..], &7_u64.to_be_bytes()[..])
    );
    assert_eq!(span.parent, 6_u64.to_be_bytes());
    assert_eq!(span.end - span.start, 1_500_000);
}

/// What the project's own library reads from a request.
fn as_others_read_it(request: &Request, kind: &str) -> serde_json::Value {
    let clients = std::env::var_os("TEST_CLIENTS")
        .expect("the library of OpenTelemetry is missing, which `tests/run` installs");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/otlp.py");
    let mut child = Command::new(Path::new(&clients).join("venv/bin/python"))
        .args([script, "decode", kind])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&body(request))
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn others_read_what_is_sent() {
    let stub = Stub::start(Vec::new(), Reply::ok(""));
    let mut sink = OtlpSink::new(&stub.url, &fast()).unwrap();
    let mut call = Entry {
        timestamp: Timestamp::from_micros(1_795_204_488_596_202),
        span_id: span_id(7),
        parent_id: span_id(6),
        version: "1.2".into(),
        ..error("pay", "card \u{1F6A8} refused")
    };
    call.extra = serde_json::json!({"n": 3, "deep": {"list": [1.5, "x", null, true]}})
        .as_object()
        .unwrap()
        .clone();
    sink.write_batch(&[call, Entry::default()]).unwrap();
    sink.close().unwrap();
    let requests = stub.requests();
    let read = |kind: &str| {
        let path = format!("/v1/{kind}");
        as_others_read_it(requests.iter().find(|r| r.path == path).unwrap(), kind)
    };
    let (logs, traces) = (read("logs"), read("traces"));
    let of = |values: &serde_json::Value, key: &str| {
        let pairs = values["attributes"].as_array().unwrap();
        let pair = pairs.iter().find(|pair| pair["key"] == key);
        pair.unwrap_or_else(|| panic!("{key}: {values}"))["value"].clone()
    };
    let records = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    let record = &records[0];
    assert_eq!(record["timeUnixNano"], "1795204488596202000");
    assert_eq!(record["severityNumber"], "SEVERITY_NUMBER_ERROR");
    assert_eq!(record["severityText"], "ERROR");
    assert_eq!(
        of(record, "exception.message")["stringValue"],
        "card \u{1F6A8} refused"
    );
    assert_eq!(of(record, "logkit.extra.n")["intValue"], "3");
    // Base64 of the bytes.
    assert_eq!(record["traceId"], "S/kvNXezTaajzpKdDg5HNg==");
    assert_eq!(record["spanId"], "AAAAAAAAAAc=");
    let span = &traces["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(
        (&span["name"], &span["parentSpanId"]),
        (&"pay".into(), &"AAAAAAAAAAY=".into())
    );
    assert_eq!(span["endTimeUnixNano"], "1795204488597702000");
    assert_eq!(span["status"]["code"], "STATUS_CODE_ERROR");
    assert_eq!(span["events"][0]["name"], "exception");
    let resource = &traces["resourceSpans"][0]["resource"];
    assert_eq!(of(resource, "service.version")["stringValue"], "1.2");
}

#[test]
fn what_a_collector_refuses_is_counted() {
    // partial_success { rejected: 2, error_message: "too old" }
    let refusal = String::from_utf8(b"\x0a\x0b\x08\x02\x12\x07too old".to_vec()).unwrap();
    let stub = Stub::start(Vec::new(), Reply::ok(&refusal));
    let mut sink = OtlpSink::new(&format!("{}/v1/logs", stub.url), &fast()).unwrap();
    let batch: Vec<Entry> = (0..5).map(|n| error(&format!("f{n}"), "no")).collect();
    sink.write_batch(&batch).unwrap();
    let told = sink.close().unwrap_err().to_string();
    assert!(
        told.contains("2 entries lost") && told.ends_with("too old"),
        "{told}"
    );
    let counts = sink.log_counts().get();
    assert_eq!((counts.delivered, counts.dropped), (3, 2));
    assert_eq!(stub.requests()[0].path, "/v1/logs");
}
