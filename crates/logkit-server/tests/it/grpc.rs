//! `docs/contracts/logkit.md` 8, item by item.

use std::collections::HashMap;

use logkit_proto::{
    tonic::{Code, codec::CompressionEncoding},
    v1::{BatchLogRequest, LogRequest, QueryRequest},
};
use serde_json::json;
use tokio_stream::StreamExt as _;

use crate::util::{Running, start};

async fn plain() -> Running {
    start(|_| {}).await
}

fn call(cmd: &str) -> LogRequest {
    LogRequest {
        cmd: cmd.into(),
        ..LogRequest::default()
    }
}

#[tokio::test]
async fn a_call_is_stored_and_found_again() {
    let server = plain().await;
    let mut client = server.grpc().await;
    let request = LogRequest {
        cmd: "backup".into(),
        args: vec!["/home".into(), "a, b".into(), "it's".into(), String::new()],
        language: "python".into(),
        env: "test".into(),
        success: false,
        duration_ms: 1.5,
        output: "done 'x'\n".into(),
        error: String::new(),
        extra: HashMap::from([("host".into(), "h1".into())]),
        trace_id: "t".into(),
        version: "v".into(),
        timestamp: "2026-11-20T19:54:48Z".into(),
        ..LogRequest::default()
    };
    let reply = client.log_call(request.clone()).await.unwrap().into_inner();
    assert!(reply.stored);
    assert_eq!(reply.id, "1");
    assert_eq!(reply.timestamp, "2026-11-20T19:54:48.000000+00:00");

    let found = client
        .query_logs(QueryRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(found.total, 1);
    let entry = &found.entries[0];
    assert_eq!(
        (&*entry.id, &*entry.level, &*entry.cmd),
        ("1", "INFO", "backup")
    );
    assert_eq!(entry.args, request.args);
    assert_eq!((&*entry.language, &*entry.env), ("python", "test"));
    assert_eq!((entry.success, entry.duration_ms), (true, 1.5));
    assert_eq!((&entry.output, &*entry.error), (&request.output, ""));
    assert_eq!(entry.extra, request.extra);
    assert_eq!((&*entry.trace_id, &*entry.version), ("t", "v"));
    assert_eq!(entry.timestamp, reply.timestamp);
    let row = &server.rows()[0].entry;
    assert_eq!(
        row.kwargs,
        "{'language': 'python', 'env': 'test', 'host': 'h1'}"
    );
}

#[tokio::test]
async fn empty_fields_and_errors() {
    let server = plain().await;
    let mut client = server.grpc().await;
    client.log_call(call("a")).await.unwrap();
    let failed = LogRequest {
        error: "boom".into(),
        success: true,
        ..call("b")
    };
    client.log_call(failed).await.unwrap();
    let leveled = LogRequest {
        level: "warning".into(),
        module: "m".into(),
        language: "go".into(),
        ..call("c")
    };
    client.log_call(leveled).await.unwrap();
    let rows: Vec<_> = server
        .rows()
        .into_iter()
        .map(|row| {
            let entry = row.entry;
            format!(
                "{} {} {} {}",
                entry.level, entry.module, entry.environment, entry.exception_type
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            "INFO unknown unknown ",
            "ERROR unknown unknown RemoteError",
            "WARNING m unknown "
        ]
    );
    let empty = client.log_call(call("")).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
    assert!(empty.message().contains("cmd"));
    let late = LogRequest {
        timestamp: "soon".into(),
        ..call("x")
    };
    assert_eq!(
        client.log_call(late).await.unwrap_err().code(),
        Code::InvalidArgument
    );
    let batch = BatchLogRequest {
        entries: vec![call("x"), call("")],
    };
    let wrong = client.batch_log(batch).await.unwrap_err();
    assert_eq!(
        (wrong.code(), wrong.message()),
        (Code::InvalidArgument, "entries[1].cmd must not be empty")
    );
    assert_eq!(
        server.rows().len(),
        3,
        "a batch with a wrong entry stores none"
    );
}

#[tokio::test]
async fn batches_and_streams_answer_each_entry_in_order() {
    let server = plain().await;
    let mut client = server.grpc().await;
    let entries = (0..100).map(|idx| call(&format!("b{idx}"))).collect();
    let reply = client
        .batch_log(BatchLogRequest { entries })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((reply.stored, reply.results.len()), (100, 100));
    assert_eq!(reply.results[99].id, "100");
    let none = client
        .batch_log(BatchLogRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(none.stored, 0);

    let requests = tokio_stream::iter((0..2000).map(|idx| call(&format!("s{idx}"))));
    let mut replies = client.stream_log(requests).await.unwrap().into_inner();
    let mut next = 101;
    while let Some(reply) = replies.next().await {
        assert_eq!(reply.unwrap().id, next.to_string());
        next += 1;
    }
    assert_eq!(next, 2101);
    let rows = server.rows();
    assert_eq!(rows[100].entry.function_name, "s0");
    assert_eq!(rows[2099].entry.function_name, "s1999");
}

#[tokio::test]
async fn a_stream_answers_while_it_is_open_and_ends_at_an_error() {
    let server = plain().await;
    let mut client = server.grpc().await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    let requests = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut replies = client.stream_log(requests).await.unwrap().into_inner();
    for id in 1..=3 {
        sender.send(call("x")).await.unwrap();
        assert_eq!(replies.next().await.unwrap().unwrap().id, id.to_string());
    }
    sender.send(call("")).await.unwrap();
    let error = replies.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(replies.next().await.is_none());
    assert_eq!(server.rows().len(), 3);
}

#[tokio::test]
async fn queries_filter_page_and_count() {
    let server = plain().await;
    for idx in 0..30 {
        server
            .log(json!({"cmd": format!("c{}", idx % 3), "language": if idx % 2 == 0 { "go" } else { "rust" },
                "env": "e", "error": if idx % 10 == 0 { "bad" } else { "" },
                "timestamp": format!("2026-01-01T00:00:{idx:02}Z")}))
            .await;
    }
    let mut client = server.grpc().await;
    let base = QueryRequest::default;
    for (request, total, first) in [
        (base(), 30, "30"),
        (
            QueryRequest {
                language: "rust".into(),
                ..base()
            },
            15,
            "30",
        ),
        (
            QueryRequest {
                level: "error".into(),
                ..base()
            },
            3,
            "21",
        ),
        (
            QueryRequest {
                env: "other".into(),
                ..base()
            },
            0,
            "",
        ),
        (
            QueryRequest {
                function: "c1".into(),
                ..base()
            },
            10,
            "29",
        ),
        (
            QueryRequest {
                since: "2026-01-01T01:00:10+01:00".into(),
                ..base()
            },
            20,
            "30",
        ),
        (
            QueryRequest {
                until: "2026-01-01T00:00:10Z".into(),
                ..base()
            },
            10,
            "10",
        ),
        (
            QueryRequest {
                search: "bad".into(),
                ..base()
            },
            3,
            "21",
        ),
        (
            QueryRequest {
                limit: 5,
                cursor: "21".into(),
                ..base()
            },
            30,
            "20",
        ),
        (
            QueryRequest {
                limit: -1,
                ..base()
            },
            30,
            "30",
        ),
    ] {
        let limit = request.limit;
        let found = client
            .query_logs(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(found.total, total, "{request:?}");
        let id = found.entries.first().map_or("", |entry| &entry.id);
        assert_eq!(id, first, "{request:?}");
        assert_eq!(
            found.entries.len() as i32,
            if limit > 0 { limit } else { total }
        );
    }
    for request in [
        QueryRequest {
            since: "soon".into(),
            ..base()
        },
        QueryRequest {
            cursor: "x".into(),
            ..base()
        },
        QueryRequest {
            search: "word ".repeat(65),
            ..base()
        },
        QueryRequest {
            search: "a\0b".into(),
            ..base()
        },
        QueryRequest {
            function: "x".repeat(1025),
            ..base()
        },
    ] {
        let status = client.query_logs(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn messages_may_be_compressed_and_large_but_not_too_large() {
    let server = plain().await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
        let client = server.grpc().await;
        let mut client = client.send_compressed(encoding).accept_compressed(encoding);
        let numbers: Vec<String> = (0..200_000).map(|n| format!("{n} ")).collect();
        let numbers = numbers.concat();
        let large = LogRequest {
            output: numbers[..(1 << 20) - 100].to_owned(),
            ..call("x")
        };
        let batch = BatchLogRequest {
            entries: vec![large; 15],
        };
        let stored = client.batch_log(batch).await.unwrap().into_inner().stored;
        assert_eq!(stored, 15);
        // An entry has the limit that it has over HTTP.
        let large = LogRequest {
            output: "a".repeat(1 << 20),
            ..call("x")
        };
        let status = client.log_call(large).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        let too_large = LogRequest {
            output: "a".repeat(17 << 20),
            ..call("x")
        };
        let status = client.log_call(too_large).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        let dense = LogRequest {
            output: "a".repeat(15 << 20),
            ..call("x")
        };
        let status = client.log_call(dense).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        assert!(status.message().contains("200 to 1"), "{status}");
    }
    let too_large = LogRequest {
        output: "a".repeat(17 << 20),
        ..call("x")
    };
    let status = server.grpc().await.log_call(too_large).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert_eq!(server.rows().len(), 2 * 15);
}

#[tokio::test]
async fn health_and_reflection_answer_standard_clients() {
    use logkit_proto::tonic::{Request, transport::Channel};
    use tonic_health::pb::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    };
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };

    let server = start(|settings| settings.api_keys = vec!["sesame".into()]).await;
    let address = format!("http://{}", server.server.bound().grpc.unwrap());
    let channel = Channel::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap();

    // Whoever watches over a service has no key.
    let mut health = HealthClient::new(channel.clone());
    let mut check = async |service: &str| {
        let service = service.to_owned();
        health.check(HealthCheckRequest { service }).await
    };
    for service in ["", "logkit.LogkitLogger"] {
        let answer = check(service).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = check("logkit.Nothing").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);

    let mut reflection = ServerReflectionClient::new(channel);
    let mut ask = async |key: &str, message: MessageRequest| {
        let question = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message),
        };
        let mut request = Request::new(tokio_stream::iter([question]));
        let metadata = request.metadata_mut();
        metadata.insert("authorization", key.parse().unwrap());
        let mut answers = reflection
            .server_reflection_info(request)
            .await?
            .into_inner();
        answers
            .message()
            .await
            .map(|answer| answer.unwrap().message_response.unwrap())
    };
    let services = MessageRequest::ListServices(String::new());
    let refused = ask("wrong", services.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let MessageResponse::ListServicesResponse(list) = ask("sesame", services).await.unwrap() else {
        panic!("no list of services");
    };
    let names: Vec<&str> = list.service.iter().map(|service| &*service.name).collect();
    for name in ["logkit.LogkitLogger", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let symbol = MessageRequest::FileContainingSymbol("logkit.LogkitLogger".into());
    let MessageResponse::FileDescriptorResponse(files) = ask("sesame", symbol).await.unwrap()
    else {
        panic!("no definition");
    };
    let definition = files.file_descriptor_proto.concat();
    for name in ["StreamLog", "LogRequest", "duration_ms"] {
        assert!(
            definition
                .windows(name.len())
                .any(|part| part == name.as_bytes()),
            "{name}"
        );
    }
}

#[test]
fn field_numbers_are_those_of_the_contract() {
    let definition = logkit_proto::DEFINITION;
    for line in [
        "string cmd = 1;",
        "repeated string args = 2;",
        "string language = 3;",
        "string env = 4;",
        "bool success = 5;",
        "double duration_ms = 6;",
        "string output = 7;",
        "string error = 8;",
        "map<string, string> extra = 9;",
        "string trace_id = 10;",
        "string version = 11;",
        "string timestamp = 12;",
        "string level = 13;",
        "string module = 14;",
        "Record record = 15;",
        "bool stored = 1;",
        "string id = 2;",
        "string timestamp = 3;",
        "repeated LogRequest entries = 1;",
        "int32 stored = 1;",
        "repeated LogResponse results = 2;",
        "string language = 1;",
        "string level = 2;",
        "string env = 3;",
        "int32 limit = 4;",
        "string since = 5;",
        "string until = 6;",
        "string function = 7;",
        "string trace_id = 8;",
        "string search = 9;",
        "string cursor = 10;",
        "repeated LogEntry entries = 1;",
        "int32 total = 2;",
        "string id = 1;",
        "string timestamp = 2;",
        "string level = 3;",
        "string cmd = 4;",
        "repeated string args = 5;",
        "string language = 6;",
        "string env = 7;",
        "bool success = 8;",
        "double duration_ms = 9;",
        "string output = 10;",
        "string error = 11;",
        "map<string, string> extra = 12;",
        "string trace_id = 13;",
        "string version = 14;",
        "string exception_type = 15;",
        "string traceback = 16;",
        "string llm_analysis = 17;",
    ] {
        assert!(definition.contains(line), "{line}");
    }
}
