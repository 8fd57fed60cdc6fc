//! Whatever goes in through one door comes out of every other the same.

use std::collections::BTreeMap;

use logkit_proto::v1::{LogRequest, QueryRequest};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::util::{Running, start};

#[derive(Clone, Debug)]
struct Any {
    cmd: String,
    args: Vec<String>,
    language: String,
    env: String,
    duration_ms: f64,
    output: String,
    error: String,
    extra: BTreeMap<String, String>,
    trace_id: String,
}

fn any() -> impl Strategy<Value = Any> {
    let text = || "(?s)[a-c'\"\\\\, \n)(\u{0}-\u{20}ż漢🎉\u{202e}\u{1f600}]{0,12}|.{0,8}";
    (
        "(?s).{1,8}",
        proptest::collection::vec(text(), 0..4),
        ("[a-z]{1,6}", "[a-z]{1,6}"),
        (0..64_000_000_u32).prop_map(|n| f64::from(n) / 64.0),
        (text(), text()),
        proptest::collection::btree_map("[a-z]{3,8}", text(), 0..3),
        "[0-9a-f]{0,16}",
    )
        .prop_map(
            |(cmd, args, (language, env), duration_ms, (output, error), extra, trace_id)| Any {
                cmd,
                args,
                language,
                env,
                duration_ms,
                output,
                error,
                extra,
                trace_id,
            },
        )
}

async fn check(server: &Running, any: Any) {
    let mut client = server.grpc().await;
    let by_grpc = client
        .log_call(LogRequest {
            cmd: any.cmd.clone(),
            args: any.args.clone(),
            language: any.language.clone(),
            env: any.env.clone(),
            duration_ms: any.duration_ms,
            output: any.output.clone(),
            error: any.error.clone(),
            extra: any.extra.clone().into_iter().collect(),
            trace_id: any.trace_id.clone(),
            ..LogRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let by_http = server
        .log(json!({
            "cmd": any.cmd, "args": any.args, "language": any.language, "env": any.env,
            "duration_ms": any.duration_ms, "output": any.output, "error": any.error,
            "extra": any.extra, "trace_id": any.trace_id,
        }))
        .await;
    let found = client
        .query_logs(QueryRequest {
            limit: 2,
            ..QueryRequest::default()
        })
        .await
        .unwrap()
        .into_inner()
        .entries;
    assert_eq!(found.len(), 2);
    for entry in &found {
        assert_eq!((&entry.cmd, &entry.args), (&any.cmd, &any.args));
        assert_eq!((&entry.language, &entry.env), (&any.language, &any.env));
        assert_eq!((&entry.output, &entry.error), (&any.output, &any.error));
        assert_eq!(
            entry.extra.clone().into_iter().collect::<BTreeMap<_, _>>(),
            any.extra
        );
        assert_eq!(
            (entry.duration_ms, &entry.trace_id),
            (any.duration_ms, &any.trace_id)
        );
        assert_eq!(entry.success, any.error.is_empty());
    }
    assert_eq!(found[1].id, by_grpc.id);
    assert_eq!(found[0].id, by_http["id"].to_string());
    let rows = server.rows();
    for (entry, row) in found.iter().zip(rows.iter().rev()) {
        let by_http = server.get(&format!("/logs/{}", row.id)).await.json();
        assert_eq!(entry.id, row.id.to_string());
        for column in logkit::Entry::COLUMNS {
            if column == "duration_ms" {
                assert_eq!(by_http[column].as_f64(), row.entry.duration_ms);
                continue;
            }
            assert_eq!(
                by_http[column].as_str(),
                row.entry.get(column).as_deref(),
                "{column}"
            );
        }
        assert_eq!(by_http["extra"], Value::Object(row.entry.extra.clone()));
        assert_eq!(entry.timestamp, by_http["timestamp"].as_str().unwrap());
    }
}

#[test]
fn proto_http_and_the_database_say_the_same() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Random texts may look like secrets.
    let server = runtime.block_on(start(|settings| settings.redact = false));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&any(), |any| {
            runtime.block_on(check(&server, any));
            Ok(())
        })
        .unwrap();
}
