//! A logger elsewhere that sends its entries over gRPC, to the real service.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use logkit::{Entry, GrpcSink, Level, Logger, RemoteOptions, Sink as _, SpanId, Timestamp};
use logkit_proto::{
    tonic::Code,
    v1::{BatchLogRequest, LogRequest, Record},
};
use logkit_server::{Settings, TlsFiles};
use proptest::prelude::*;
use serde_json::json;

use crate::{
    crash::{spawn_at, stored},
    util::{Running, start},
};

fn fast() -> RemoteOptions {
    RemoteOptions {
        retry: Duration::from_millis(20),
        linger: Duration::from_millis(10),
        timeout: Duration::from_secs(5),
        ..RemoteOptions::default()
    }
}

fn named(name: String) -> Entry {
    Entry {
        function_name: name.into(),
        ..Entry::default()
    }
}

fn address(server: &Running) -> String {
    format!("grpc://{}", server.server.bound().grpc.unwrap())
}

/// A port that nobody listens on now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn eventually(what: &str, check: impl Fn() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The sink blocks; the server of the test needs its thread.
async fn blocking<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(f).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_arrives_and_thousands_of_entries_in_few_calls() {
    let server = start(|settings| settings.redact = false).await;
    let mut sent = vec![Entry {
        timestamp: Timestamp::from_micros(1_763_668_488_596_202),
        level: Level::Other("NOTE".into()),
        function_name: "Type::method".into(),
        module: "a::b".into(),
        args: "('a, b', 3)".into(),
        kwargs: "{'name': 'x'}".into(),
        arg_types: "str, int".into(),
        kwarg_types: "{'name': 'str'}".into(),
        return_value: "'\u{1F6A8}\\n'".into(),
        return_type: "str".into(),
        exception: "no\nway".into(),
        exception_type: "IoError".into(),
        traceback: "here\nthere".into(),
        duration_ms: Some(1.25),
        environment: "prod".into(),
        trace_id: "t-1".into(),
        version: "1.0".into(),
        llm_analysis: "because".into(),
        span_id: SpanId::new(7),
        parent_id: SpanId::new(u64::MAX),
        extra: json!({"deep": {"list": [1, null, "x"]}})
            .as_object()
            .unwrap()
            .clone(),
    }];
    sent.extend((0..5_000).map(|n| named(format!("f{n}"))));
    let (url, entries) = (address(&server), sent.clone());
    let counts = blocking(move || {
        let sink = GrpcSink::new(&url, &fast()).unwrap();
        let counts = sink.counts();
        let logger = Logger::builder().sink(sink).build();
        for entry in entries {
            logger.emit(entry);
        }
        assert!(logger.close());
        counts.get()
    })
    .await;
    assert_eq!((counts.delivered, counts.dropped), (5_001, 0));
    let rows = server.rows();
    assert!(
        rows.iter().map(|row| &row.entry).eq(sent.iter()),
        "{:?}",
        rows[0]
    );
    let metrics = server.get("/metrics").await.text;
    let line = metrics
        .lines()
        .find(|line| line.starts_with("logkit_grpc_requests_total"))
        .unwrap();
    let n_calls: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(line.contains("BatchLog") && n_calls < 200, "{line}");
}

#[test]
fn a_service_that_comes_late_or_is_killed_gets_everything_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let sink = GrpcSink::new(&format!("grpc://127.0.0.1:{port}"), &fast()).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    let mut n_sent = 0;
    let mut send = |n: usize| {
        for _ in 0..n {
            logger.emit(named(n_sent.to_string()));
            n_sent += 1;
        }
    };
    // Nobody is there.
    send(500);
    assert!(!logger.flush(Duration::from_secs(10)), "nobody took it");
    assert_eq!(counts.get().delivered, 0);
    for round in 1..=5 {
        let (mut child, _, _lines) = spawn_at(folder.path(), port);
        let before = counts.get().delivered;
        eventually("something arrives", || counts.get().delivered > before);
        // In the middle of it, at another moment each time.
        send(1_000);
        std::thread::sleep(Duration::from_millis(round * 7));
        child.kill().unwrap();
        child.wait().unwrap();
        send(200);
    }
    let (mut child, _, _lines) = spawn_at(folder.path(), port);
    eventually("all is delivered", || {
        let counts = counts.get();
        counts.waiting == 0 && counts.delivered == 6_500
    });
    assert!(logger.close());
    child.kill().unwrap();
    child.wait().unwrap();
    let mut times = BTreeMap::<usize, usize>::new();
    for name in stored(folder.path()) {
        *times.entry(name.parse().unwrap()).or_default() += 1;
    }
    let arrived: BTreeSet<usize> = times.keys().copied().collect();
    assert_eq!(arrived, (0..6_500).collect());
    // Twice is what was being answered when the service was killed: a batch at most each time.
    let n_twice: usize = times.values().map(|times| times - 1).sum();
    assert!(n_twice <= 5 * 512, "{n_twice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_and_a_wrong_one_is_told_and_bounded() {
    let server = start(|settings| settings.api_keys = vec!["sesame".into()]).await;
    let url = address(&server);
    let with_key = url.replace("grpc://", "grpc://:sesame@");
    let (told, counts) = blocking(move || {
        let mut options = fast();
        options.api_key = Some("wrong".into());
        let mut sink = GrpcSink::new(&url, &options).unwrap();
        sink.write_batch(&[named("a".into()), named("b".into())])
            .unwrap();
        let told = sink.close().unwrap_err().to_string();
        // The key of the address is the stronger one.
        let mut right = GrpcSink::new(&with_key, &options).unwrap();
        right.write_batch(&[named("c".into())]).unwrap();
        right.close().unwrap();
        (told, sink.counts().get())
    })
    .await;
    assert!(
        told.starts_with("2 entries lost") && told.contains("Unauthenticated"),
        "{told}"
    );
    assert!(!told.contains("wrong"), "{told}");
    assert_eq!((counts.delivered, counts.dropped), (0, 2));
    let names: Vec<_> = server
        .rows()
        .into_iter()
        .map(|row| row.entry.function_name)
        .collect();
    assert_eq!(names, ["c"]);
}

/// Not a test: a program that trusts what the variable SSL_CERT_FILE says.
#[test]
#[ignore = "a process that another test starts"]
fn sends_over_tls() {
    let url = std::env::var("LOGKIT_TEST_URL").unwrap();
    let mut sink = GrpcSink::new(&url, &fast()).unwrap();
    sink.write_batch(&[named("encrypted".into())]).unwrap();
    match sink.flush() {
        Ok(()) => println!("\nsent"),
        Err(error) => println!("\nnot sent: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_may_be_encrypted_to_a_service_that_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let server = start(|settings| settings.tls = Some(files.clone())).await;
    let port = server.server.bound().grpc.unwrap().port();
    let send = async |url: String, trusted: &std::path::Path| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "forward::sends_over_tls",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("LOGKIT_TEST_URL", url)
            .env("SSL_CERT_FILE", trusted);
        let output = blocking(move || command.output().unwrap()).await;
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let encrypted = format!("grpcs://localhost:{port}");
    let told = send(encrypted.clone(), &files.certificate).await;
    assert!(told.contains("\nsent"), "{told}");
    // Nobody else is trusted, and nothing is sent in the open.
    let nobody = folder.path().join("nobody.pem");
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    std::fs::write(&nobody, other.cert.pem()).unwrap();
    let told = send(encrypted, &nobody).await;
    assert!(told.contains("not sent: "), "{told}");
    let told = send(format!("grpc://localhost:{port}"), &files.certificate).await;
    assert!(told.contains("not sent: "), "{told}");
    assert_eq!(server.rows().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_that_is_too_large_costs_only_itself() {
    let server = start(|_| {}).await;
    let url = address(&server);
    let told = blocking(move || {
        let mut sink = GrpcSink::new(&url, &fast()).unwrap();
        let mut batch: Vec<Entry> = (0..5).map(|n| named(n.to_string())).collect();
        batch[3].traceback = "x".repeat(17 << 20).into();
        sink.write_batch(&batch).unwrap();
        sink.close().unwrap_err().to_string()
    })
    .await;
    assert!(told.starts_with("1 entries lost"), "{told}");
    let names: BTreeSet<String> = server
        .rows()
        .into_iter()
        .map(|row| row.entry.function_name.into_owned())
        .collect();
    assert_eq!(names, ["0", "1", "2", "4"].map(String::from).into());
}

#[tokio::test]
async fn records_that_make_no_sense_are_refused_whole() {
    let server = start(|_: &mut Settings| {}).await;
    for (record, part) in [
        (
            Record {
                extra: "[1]".into(),
                ..Record::default()
            },
            "entries[1].record.extra must be a JSON object",
        ),
        (
            Record {
                span_id: "7".into(),
                ..Record::default()
            },
            "entries[1].record.span_id must be 16 hexadecimal digits",
        ),
    ] {
        let of = |record| LogRequest {
            record: Some(record),
            ..LogRequest::default()
        };
        let request = BatchLogRequest {
            entries: vec![of(Record::default()), of(record)],
        };
        let status = server.grpc().await.batch_log(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(part), "{status}");
    }
    assert!(server.rows().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_text_arrives_as_it_was(function in "(?s).{0,40}", args in "(?s).{1,80}", message in "(?s)[\\x00-\\x7f\u{1F6A8}]{0,40}", ms in proptest::option::of(0.0..1e9)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(start(|settings| settings.redact = false));
        let entry = Entry {
            args: args.into(),
            exception: message.into(),
            duration_ms: ms,
            ..named(function)
        };
        let mut sink = GrpcSink::new(&address(&server), &fast()).unwrap();
        sink.write_batch(std::slice::from_ref(&entry)).unwrap();
        sink.close().unwrap();
        prop_assert_eq!(&server.rows()[0].entry, &entry);
    }
}
