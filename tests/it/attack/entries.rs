//! What strangers may send to the logging services.

use std::time::Duration;

use logkit_proto::{
    tonic::{
        Code,
        codec::CompressionEncoding,
        transport::{Channel, Endpoint},
    },
    v1::{BatchLogRequest, LogRequest, QueryRequest, logkit_logger_client::LogkitLoggerClient},
};
use serde_json::json;
use tokio::runtime::Builder;

use super::arms::{Attack, field, lists, nested, objects};
use crate::util::TIMEOUT;

const MIB: usize = 1 << 20;
/// Taken, or refused for what it is.
const FINE: &[u16] = &[200, 400, 413, 422];
const REFUSED: &[u16] = &[413, 422];

/// Everything that is one request over HTTP.
pub fn all() -> Vec<Attack> {
    let json = |name: &str, path: &str, allowed, body: fn() -> String| {
        Attack::new(format!("log: {name}"), path, allowed, move || {
            body().into_bytes()
        })
        .with("content-type", "application/json")
    };
    let protobuf = |name: &str, path: &str, allowed, body: fn() -> Vec<u8>| {
        Attack::new(format!("log: {name}, binary"), path, allowed, body)
            .with("content-type", "application/x-protobuf")
    };
    let mut all = Vec::new();
    // Each once as it is and once compressed.
    for encoding in [None, Some("gzip"), Some("zstd")] {
        let attacks = [
            json("empty entries", "/log/batch", REFUSED, || objects(MIB)),
            json("small entries", "/log/batch", FINE, || {
                format!("[{}{{\"cmd\":\"\"}}]", "{\"cmd\":\"\"},".repeat(500_000))
            }),
            json("lists", "/log/batch", REFUSED, || lists(MIB)),
            json("deep", "/log/batch", REFUSED, || "[".repeat(MIB)),
            json("a deep entry", "/log", FINE, || {
                format!(
                    r#"{{"cmd":"x","extra":{{"a":{}}}}}"#,
                    nested("[", "1", "]", 400_000)
                )
            }),
            json("values of an entry", "/log", REFUSED, || {
                format!(r#"{{"cmd":"x","args":{}}}"#, lists(MIB - 100))
            }),
            json("a wide entry", "/log", FINE, || {
                let names: Vec<String> = (0..60_000).map(|n| format!("\"n{n}\":0,")).collect();
                let names = names.concat();
                format!(r#"{{{names}"cmd":"x"}}"#)
            }),
            json("a text of blanks", "/log", FINE, || {
                json!({"cmd": "x", "output": " ".repeat(MIB - 100)}).to_string()
            }),
            json("what looks like secrets", "/log/batch", FINE, || {
                let entry = json!({"cmd": "x", "output": "password=".repeat(20_000)}).to_string();
                format!("[{}]", vec![entry; 2].join(","))
            }),
            json("records without anything", "/v1/logs", FINE, || {
                format!(
                    r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":{}}}]}}]}}"#,
                    objects(MIB)
                )
            }),
            json("resources without anything", "/v1/logs", FINE, || {
                format!(r#"{{"resourceLogs":{}}}"#, objects(MIB))
            }),
            json("spans without anything", "/v1/traces", FINE, || {
                format!(
                    r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":{}}}]}}]}}"#,
                    objects(MIB)
                )
            }),
            json("a deep attribute", "/v1/logs", FINE, || {
                let value = nested(
                    r#"{"arrayValue":{"values":["#,
                    r#"{"intValue":1}"#,
                    "]}}",
                    30_000,
                );
                format!(
                    r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{value}}}]}}]}}]}}"#
                )
            }),
            protobuf("records without anything", "/v1/logs", FINE, || {
                field(1, &field(2, &field(2, &[]).repeat(MIB / 2)))
            }),
            protobuf("resources without anything", "/v1/logs", FINE, || {
                field(1, &[]).repeat(MIB / 2)
            }),
            protobuf("spans without anything", "/v1/traces", FINE, || {
                field(1, &field(2, &field(2, &[]).repeat(MIB / 2)))
            }),
            protobuf("a deep attribute", "/v1/logs", FINE, || {
                // Each is an array with one value.
                let mut value = Vec::new();
                for _ in 0..2000 {
                    value = field(5, &field(1, &value));
                }
                field(1, &field(2, &field(2, &field(5, &value))))
            }),
            protobuf("nonsense", "/v1/logs", FINE, || vec![0xff; MIB]),
        ];
        all.extend(attacks.map(|attack| match encoding {
            Some(encoding) => attack.packed(encoding),
            None => attack,
        }));
    }
    // Pages of other origins, and one whose name was led here (DNS rebinding).
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("host", "evil.example"),
    ] {
        let page = json("from a page", "/log", &[403], || {
            r#"{"cmd":"x"}"#.to_owned()
        });
        all.push(page.with(name, value));
    }
    all.extend(FORMULAS.map(|formula| {
        Attack::new(format!("log: {formula}"), "/log", &[200], move || {
            json!({"cmd": formula, "args": [formula], "language": formula, "env": formula,
                "output": formula, "error": formula, "extra": {formula: formula}})
            .to_string()
            .into_bytes()
        })
    }));
    all
}

/// What spreadsheets compute.
const FORMULAS: [&str; 6] = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "\r=1+1",
];

/// No cell of a file of entries may be computed.
pub fn assert_no_formulas(text: &str) {
    let mut n_entries = 0;
    for row in csv::ReaderBuilder::new()
        .from_reader(text.as_bytes())
        .records()
    {
        for cell in &row.unwrap() {
            let is_number = cell.parse::<f64>().is_ok();
            let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
            assert!(is_number || !is_formula, "{cell:?}");
            n_entries += usize::from(cell.starts_with("'=cmd"));
        }
    }
    assert!(n_entries > 0, "{text}");
}

/// Messages to the gRPC service, all at the same time.
pub async fn messages(address: &str) {
    let address = address.to_owned();
    // In a runtime of its own: connections whose calls never end go with it.
    let calls = move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(call(&address));
    };
    tokio::task::spawn_blocking(calls).await.unwrap();
}

async fn call(address: &str) {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .timeout(TIMEOUT);
    let small = LogRequest::default();
    let args = LogRequest {
        cmd: "x".into(),
        args: vec![String::new(); 500_000],
        ..LogRequest::default()
    };
    let large = LogRequest {
        cmd: "x".into(),
        output: " ".repeat(2 * MIB),
        ..LogRequest::default()
    };
    let usual = LogRequest {
        cmd: "x".into(),
        output: "x".repeat(MIB - 100),
        ..LogRequest::default()
    };
    let batches = [
        vec![small; 60_000],
        vec![args],
        vec![large],
        vec![usual; 15],
    ];
    let channel = endpoint.connect().await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..8 {
        for entries in batches.clone() {
            let mut client = client(channel.clone());
            if n % 2 == 0 {
                client = client.send_compressed(CompressionEncoding::Zstd);
            }
            calls.spawn(async move { client.batch_log(BatchLogRequest { entries }).await.err() });
        }
        let mut client = client(channel.clone());
        calls.spawn(async move {
            let query = QueryRequest {
                limit: i32::MAX,
                search: "x ".repeat(20_000),
                ..QueryRequest::default()
            };
            client.query_logs(query).await.err()
        });
    }
    while let Some(called) = calls.join_next().await {
        if let Some(status) = called.unwrap() {
            let known = [
                Code::InvalidArgument,
                Code::ResourceExhausted,
                Code::Unavailable,
                Code::OutOfRange,
            ];
            assert!(known.contains(&status.code()), "{status:?}");
        }
    }
    tokio::time::timeout(Duration::from_secs(1), half_a_call(channel))
        .await
        .expect_err("its other half never comes");
    let answer = client(endpoint.connect().await.unwrap())
        .query_logs(QueryRequest::default())
        .await;
    answer.expect("the service answers");
}

fn client(channel: Channel) -> LogkitLoggerClient<Channel> {
    LogkitLoggerClient::new(channel)
        .max_decoding_message_size(64 * MIB)
        .max_encoding_message_size(64 * MIB)
}

/// Streams that send one entry and never end.
async fn half_a_call(channel: Channel) {
    let streams = (0..64).map(|_| {
        let mut client = client(channel.clone());
        async move {
            let entry = LogRequest {
                cmd: "x".into(),
                output: "x".repeat(MIB / 2),
                ..LogRequest::default()
            };
            let requests = futures_util::StreamExt::chain(
                futures_util::stream::iter([entry]),
                futures_util::stream::pending(),
            );
            let mut replies = client.stream_log(requests).await.unwrap().into_inner();
            while let Ok(Some(_)) = replies.message().await {}
        }
    });
    futures_util::future::join_all(streams).await;
}
