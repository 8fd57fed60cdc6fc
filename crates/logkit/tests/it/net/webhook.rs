use std::time::{Duration, Instant};

use logkit::{Entry, Level, Logger, Sink, WebhookFormat, WebhookOptions, WebhookSink};

use super::{
    error, eventually,
    stub::{Reply, Stub},
};

fn fast() -> WebhookOptions {
    WebhookOptions {
        retry: Duration::from_millis(5),
        ..WebhookOptions::default()
    }
}

#[test]
fn alerts_of_the_wanted_levels_are_delivered_at_exit() {
    let stub = Stub::start(Vec::new(), Reply::ok("ok"));
    let options = WebhookOptions {
        levels: vec![Level::Error, Level::Critical],
        headers: vec![("x-team".into(), "ops".into())],
        format: Some(WebhookFormat::Raw),
        ..fast()
    };
    let sink = WebhookSink::new(&format!("{}/T0/SECRET", stub.url), options).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    for n in 0..20 {
        logger.emit(Entry {
            level: [Level::Debug, Level::Info, Level::Warning, Level::Critical][n % 4].clone(),
            ..error(&format!("f{n}"), "no")
        });
    }
    logger.emit(error("pay", "password=hunter2"));
    assert!(logger.close());
    let requests = stub.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!(counts.get().delivered, 6);
    let last = requests.last().unwrap();
    assert_eq!(last.path, "/T0/SECRET");
    assert_eq!(last.header("content-type"), Some("application/json"));
    assert_eq!(last.header("x-team"), Some("ops"));
    assert_eq!(last.json()["exception"], "password=***REDACTED***");
}

#[test]
fn what_fails_is_sent_again_and_the_service_says_when() {
    let script = vec![
        Reply::status(500),
        Reply::Close,
        Reply::Say(429, "Retry-After: 1\r\n", String::new()),
    ];
    let stub = Stub::start(script, Reply::ok(""));
    let mut sink = WebhookSink::new(&stub.url, fast()).unwrap();
    sink.write_batch(&[error("pay", "no")]).unwrap();
    eventually("delivered", || sink.counts().get().delivered == 1);
    let requests = stub.requests();
    assert_eq!(requests.len(), 4);
    let waited = requests[3].at - requests[2].at;
    assert!(waited >= Duration::from_millis(990), "{waited:?}");
    assert!(requests.iter().all(|r| r.body == requests[0].body));
    assert_eq!(sink.counts().get().retries, 3);
}

#[test]
fn a_refusal_is_told_once_without_the_address_and_not_repeated() {
    let stub = Stub::start(Vec::new(), Reply::status(404));
    let mut sink = WebhookSink::new(&format!("{}/SECRET", stub.url), fast()).unwrap();
    sink.write_batch(&[error("pay", "no")]).unwrap();
    let told = sink.close().unwrap_err().to_string();
    assert!(
        told.starts_with("1 entries lost: http://127.0.0.1:"),
        "{told}"
    );
    assert!(
        told.ends_with("answered 404") && !told.contains("SECRET"),
        "{told}"
    );
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn of_equal_alerts_one_is_sent() {
    let stub = Stub::start(Vec::new(), Reply::ok(""));
    let mut sink = WebhookSink::new(&stub.url, fast()).unwrap();
    let batch: Vec<Entry> = (0..50).map(|n| error("pay", &n.to_string())).collect();
    sink.write_batch(&batch).unwrap();
    sink.write_batch(&batch[..1]).unwrap();
    sink.close().unwrap();
    assert_eq!(stub.requests().len(), 1);
}

#[test]
fn a_service_that_hangs_costs_the_program_nothing() {
    let stub = Stub::start(Vec::new(), Reply::Stall(Duration::from_mins(1)));
    let sink = WebhookSink::new(&stub.url, fast()).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    let start = Instant::now();
    for n in 0..3000 {
        logger.emit(error(&format!("f{n}"), "no"));
    }
    let emitting = start.elapsed();
    eventually("written", || logger.stats().written >= 3000);
    let held = counts.get();
    assert!(held.waiting <= 1000 && held.dropped >= 2000, "{held:?}");
    assert!(emitting < Duration::from_secs(3), "{emitting:?}");
    let start = Instant::now();
    logger.close();
    assert!(start.elapsed() < Duration::from_secs(6));
    let end = counts.get();
    assert_eq!((end.delivered, end.dropped), (0, 3000));
}

#[test]
fn nonsense_is_refused() {
    for (url, options) in [
        ("ftp://h/x", WebhookOptions::default()),
        (
            "http://h/SECRET",
            WebhookOptions {
                headers: vec![("a b".into(), "c".into())],
                ..WebhookOptions::default()
            },
        ),
    ] {
        let told = WebhookSink::new(url, options).unwrap_err().to_string();
        assert!(told.starts_with("the web hook cannot be used: "), "{told}");
        assert!(!told.contains("SECRET"), "{told}");
    }
}
