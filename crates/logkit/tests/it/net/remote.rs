use std::time::Duration;

use logkit::{Entry, Logger, RemoteOptions, RemoteSink, Sink};
use proptest::prelude::*;

use super::{
    error, eventually,
    stub::{Reply, Request, Stub},
};

fn fast() -> RemoteOptions {
    RemoteOptions {
        retry: Duration::from_millis(5),
        linger: Duration::from_millis(20),
        ..RemoteOptions::default()
    }
}

fn entries(requests: &[Request]) -> Vec<Entry> {
    requests
        .iter()
        .flat_map(|request| request.json()["entries"].as_array().unwrap().clone())
        .map(|entry| Entry::from_json(entry.as_object().unwrap().clone()))
        .collect()
}

#[test]
fn entries_go_in_batches_and_survive_an_outage() {
    let script = vec![Reply::Close, Reply::status(503), Reply::status(502)];
    let stub = Stub::start(script, Reply::ok("{\"stored\":1}"));
    let options = RemoteOptions {
        api_key: Some("KEY".into()),
        ..fast()
    };
    let sink = RemoteSink::new(&format!("{}/base/", stub.url), &options).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    for n in 0..1000 {
        logger.emit(error(&format!("f{n}"), "no"));
    }
    logger.flush(Duration::from_secs(5));
    eventually("delivered", || counts.get().delivered == 1000);
    logger.close();
    let requests = stub.requests();
    assert!(requests.len() < 60, "{} requests", requests.len());
    let taken = &requests[3..];
    assert_eq!(taken[0].path, "/base/log/batch");
    assert_eq!(taken[0].header("authorization"), Some("Bearer KEY"));
    assert_eq!(taken[0].header("x-logkit-origin"), Some("sink"));
    let names: Vec<String> = entries(taken)
        .iter()
        .map(|entry| entry.function_name.to_string())
        .collect();
    let expected: Vec<String> = (0..1000).map(|n| format!("f{n}")).collect();
    assert_eq!(names, expected);
    assert_eq!(counts.get().dropped, 0);
}

#[test]
fn one_entry_that_is_refused_costs_only_itself() {
    // The batch, its first half, its second half, and the halves of that.
    let script = vec![
        Reply::status(422),
        Reply::ok("{}"),
        Reply::status(422),
        Reply::status(422),
    ];
    let stub = Stub::start(script, Reply::ok("{}"));
    let mut sink = RemoteSink::new(&stub.url, &fast()).unwrap();
    let batch: Vec<Entry> = (0..4).map(|n| error(&format!("f{n}"), "no")).collect();
    sink.write_batch(&batch).unwrap();
    let told = sink.close().unwrap_err().to_string();
    assert!(told.starts_with("1 entries lost: "), "{told}");
    let counts = sink.counts().get();
    assert_eq!((counts.delivered, counts.dropped), (3, 1));
}

#[test]
fn a_wrong_key_is_told_and_bounded() {
    let stub = Stub::start(Vec::new(), Reply::status(401));
    let mut sink = RemoteSink::new(&stub.url, &fast()).unwrap();
    sink.write_batch(&[error("a", ""), error("b", "")]).unwrap();
    let told = sink.close().unwrap_err().to_string();
    assert!(
        told.contains("2 entries lost") && told.ends_with("answered 401"),
        "{told}"
    );
    assert_eq!(stub.requests().len(), 5);
}

#[test]
fn nobody_there_is_no_burden() {
    let options = RemoteOptions {
        retry: Duration::from_millis(50),
        ..fast()
    };
    // Port 9 of loopback: nothing listens.
    let sink = RemoteSink::new("http://127.0.0.1:9", &options).unwrap();
    let counts = sink.counts();
    let logger = Logger::builder().sink(sink).build();
    for _ in 0..30_000 {
        logger.emit(error("f", "no"));
        if logger.stats().queue_len > 30_000 {
            std::thread::yield_now();
        }
    }
    eventually("written", || logger.stats().queue_len == 0);
    let held = counts.get();
    assert!(held.waiting <= 20_000, "{held:?}");
    let start = std::time::Instant::now();
    logger.close();
    assert!(start.elapsed() < Duration::from_secs(6));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_text_arrives_as_it_was(function in "(?s).{0,40}", args in "(?s).{0,80}", message in "(?s)[\\x00-\\x7f\u{1F6A8}]{0,40}") {
        let stub = Stub::start(Vec::new(), Reply::ok("{}"));
        let mut sink = RemoteSink::new(&stub.url, &fast()).unwrap();
        let mut entry = Entry { args: args.into(), ..error(&function, &message) };
        entry.extra.insert("n".into(), 7.into());
        sink.write_batch(std::slice::from_ref(&entry)).unwrap();
        sink.close().unwrap();
        prop_assert_eq!(entries(&stub.requests()), [entry]);
    }
}
