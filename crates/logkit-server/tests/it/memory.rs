//! How much memory a body takes: four times its decompressed bytes and 16 MiB, at most.

use std::{io::Write as _, process::Child, time::Duration};

use logkit_proto::{
    codec::Bounded,
    tonic::{Code, Request, client::Grpc, transport::Channel},
    v1::{BatchLogRequest, BatchLogResponse, LogRequest, logkit_logger_client::LogkitLoggerClient},
};
use serde_json::json;

use crate::{crash, util::client};

const MIB: usize = 1 << 20;

/// Kilobytes of that line of the process's status, as bytes.
fn status(child: &Child, name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    number.parse::<usize>().unwrap() * 1024
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(body).unwrap();
    packed.finish().unwrap()
}

/// A field with a length, of the number.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
    message
}

fn list(item: &str, n_bytes: usize) -> String {
    let items = vec![item; n_bytes / (item.len() + 1)];
    format!("[{}]", items.join(","))
}

struct Body {
    what: &'static str,
    path: &'static str,
    kind: &'static str,
    bytes: Vec<u8>,
    /// The answer is one of these.
    status: &'static [u16],
}

fn bodies() -> Vec<Body> {
    let json = |what, path, text: String, status| Body {
        what,
        path,
        kind: "application/json",
        bytes: text.into_bytes(),
        status,
    };
    let protobuf = |what, bytes, status| Body {
        what,
        path: "/v1/logs",
        kind: "application/x-protobuf",
        bytes,
        status,
    };
    let of_logs = |records: &[u8]| field(1, &field(2, records));
    let resource =
        json!({"attributes": [{"key": "a", "value": {"stringValue": "x".repeat(500_000)}}]});
    let attribute = field(6, &[]);
    let shared = [
        field(
            1,
            &field(
                1,
                &[
                    field(1, b"a"),
                    field(2, &field(1, "x".repeat(500_000).as_bytes())),
                ]
                .concat(),
            ),
        ),
        field(2, &field(2, &[]).repeat(20_000)),
    ];
    vec![
        json("empty entries", "/log/batch", list("{}", 15 * MIB), &[422]),
        json(
            "some empty entries",
            "/log/batch",
            list("{}", 100_000),
            &[422],
        ),
        json(
            "small entries",
            "/log/batch",
            list(r#"{"cmd":""}"#, 500_000),
            &[200, 413],
        ),
        json(
            "entries in lines",
            "/log/batch",
            "{\"cmd\":\"\"}\n".repeat(45_000),
            &[200, 413],
        ),
        json("lists", "/log/batch", list("[]", 15 * MIB), &[422]),
        json("numbers", "/log/batch", list("0", 15 * MIB), &[422]),
        json(
            "values of one entry",
            "/log/batch",
            format!(r#"[{{"cmd":"x","args":{}}}]"#, list("0", MIB - 100)),
            &[413],
        ),
        json(
            "values of an entry",
            "/log",
            format!(r#"{{"cmd":"x","args":{}}}"#, list("0", MIB - 100)),
            &[413],
        ),
        json(
            "values that just fit",
            "/log",
            format!(r#"{{"cmd":"x","args":{}}}"#, list("{}", 90_000)),
            &[200],
        ),
        json(
            "names",
            "/log",
            format!(r#"{{"x":{},"cmd":"x"}}"#, list(r#"{"a":0}"#, MIB - 100)),
            &[413],
        ),
        json(
            "wrong values",
            "/log/batch",
            list(r#"{"cmd":0,"x":"yyyyyyyyyyyyyyyy"}"#, 4 * MIB),
            &[422],
        ),
        json(
            "large entries",
            "/log/batch",
            list(
                &format!(r#"{{"cmd":"x","output":"{}"}}"#, "\u{7f}".repeat(900_000)),
                15 * MIB,
            ),
            &[200, 413],
        ),
        json(
            "usual entries",
            "/log/batch",
            list(
                &format!(
                    r#"{{"cmd":"backup","args":["a","b"],"output":"{}"}}"#,
                    "x".repeat(250)
                ),
                14 * MIB,
            ),
            &[200],
        ),
        json("deep", "/log/batch", "[".repeat(15 * MIB), &[422]),
        json(
            "empty resources",
            "/v1/logs",
            format!(r#"{{"resourceLogs":{}}}"#, list("{}", 15 * MIB)),
            &[200],
        ),
        json(
            "empty records",
            "/v1/logs",
            format!(
                r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":{}}}]}}]}}"#,
                list("{}", 15 * MIB)
            ),
            &[413],
        ),
        json(
            "a resource of many records",
            "/v1/logs",
            format!(
                r#"{{"resourceLogs":[{{"resource":{resource},"scopeLogs":[{{"logRecords":{}}}]}}]}}"#,
                list("{}", 50_000)
            ),
            &[413],
        ),
        protobuf(
            "empty records, binary",
            of_logs(&field(2, &[]).repeat(7 * MIB)),
            &[413],
        ),
        protobuf(
            "empty resources, binary",
            field(1, &[]).repeat(7 * MIB),
            &[200],
        ),
        protobuf(
            "attributes, binary",
            of_logs(&field(2, &attribute.repeat(MIB / 2 - 100))),
            &[413],
        ),
        protobuf(
            "a resource of many records, binary",
            field(1, &shared.concat()),
            &[413],
        ),
    ]
}

#[tokio::test]
async fn no_body_takes_more_than_four_times_its_bytes() {
    llmsrv_tls::init();
    let client = client();
    for body in bodies() {
        for is_packed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (mut child, address, _lines) = crash::spawn(folder.path());
            let health = format!("http://{address}/health");
            assert_eq!(client.get(&health).send().await.unwrap().status(), 200);
            std::fs::write(format!("/proc/{}/clear_refs", child.id()), "5").unwrap();
            let before = status(&child, "VmRSS");
            // A large body in a debug build on a busy machine: what counts here is memory.
            let mut request = client
                .post(format!("http://{address}{}", body.path))
                .timeout(Duration::from_mins(5))
                .header("content-type", body.kind);
            if is_packed {
                request = request
                    .header("content-encoding", "gzip")
                    .body(gzip(&body.bytes));
            } else {
                request = request.body(body.bytes.clone());
            }
            let answer = request.send().await.unwrap().status().as_u16();
            let took = status(&child, "VmHWM").saturating_sub(before);
            let most = 4 * body.bytes.len() + 16 * MIB;
            let (n, what) = (body.bytes.len(), body.what);
            eprintln!(
                "{what}: {n} bytes, packed {is_packed}: {} KiB, {answer}",
                took / 1024
            );
            assert!(took <= most, "{what}, packed {is_packed}: {took} of {most}");
            // What is compressed too well is not even read.
            let is_known = body.status.contains(&answer) || (is_packed && answer == 413);
            assert!(is_known, "{what}, packed {is_packed}: {answer}");
            assert_eq!(
                client.get(&health).send().await.unwrap().status(),
                200,
                "{what}"
            );
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[tokio::test]
async fn no_message_takes_more_than_four_times_its_bytes() {
    llmsrv_tls::init();
    let small = LogRequest::default();
    let args = LogRequest {
        cmd: "x".into(),
        args: vec![String::new(); 500_000],
        ..LogRequest::default()
    };
    let large = LogRequest {
        cmd: "x".into(),
        output: "x".repeat(2 * MIB),
        ..LogRequest::default()
    };
    for (what, entries) in [
        ("empty entries", vec![small; 2_000_000]),
        ("empty arguments", vec![args]),
        ("a large entry", vec![large]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let (mut child, ..) = crash::spawn_at(folder.path(), port);
        let channel = Channel::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        let mut client = LogkitLoggerClient::new(channel.connect().await.unwrap());
        std::fs::write(format!("/proc/{}/clear_refs", child.id()), "5").unwrap();
        let before = status(&child, "VmRSS");
        let batch = BatchLogRequest { entries };
        let n_bytes = prost::Message::encoded_len(&batch);
        let answer = client.batch_log(batch).await;
        let took = status(&child, "VmHWM").saturating_sub(before);
        eprintln!("{what}: {n_bytes} bytes: {} KiB, {answer:?}", took / 1024);
        assert!(answer.is_err(), "{what}");
        assert!(took <= 4 * n_bytes + 16 * MIB, "{what}: {took}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A call whose message is there and whose end never comes.
async fn unfinished(channel: Channel, batch: BatchLogRequest) -> Option<Code> {
    let mut client = Grpc::new(channel).max_encoding_message_size(64 * MIB);
    client.ready().await.unwrap();
    let codec: Bounded<BatchLogRequest, BatchLogResponse> = Bounded::default();
    let messages = futures_util::StreamExt::chain(
        futures_util::stream::iter([batch]),
        futures_util::stream::pending(),
    );
    let path = "/logkit.LogkitLogger/BatchLog".parse().unwrap();
    let called = client.client_streaming(Request::new(messages), path, codec);
    called.await.err().map(|status| status.code())
}

#[tokio::test]
async fn messages_of_many_calls_share_the_memory_of_large_bodies() {
    llmsrv_tls::init();
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (mut child, ..) = crash::spawn_at(folder.path(), port);
    let usual = LogRequest {
        cmd: "x".into(),
        output: "x".repeat(MIB / 2),
        ..LogRequest::default()
    };
    let batch = BatchLogRequest {
        entries: vec![usual; 28],
    };
    let before = status(&child, "VmRSS");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let endpoint = Channel::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        calls.spawn(unfinished(endpoint.connect().await.unwrap(), batch.clone()));
    }
    // Nine of 14 MiB fit into 128 MiB; all others are told so.
    for _ in 0..23 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused, Some(Code::ResourceExhausted));
    }
    let took = status(&child, "VmHWM").saturating_sub(before);
    assert!(took <= 300 * MIB, "{} MiB", took / MIB);
    calls.abort_all();
    while calls.join_next().await.is_some() {}
    child.kill().unwrap();
    child.wait().unwrap();
}
