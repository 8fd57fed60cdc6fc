use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use logkit::{Entry, Logger, MetricsFormat, MetricsOptions, MetricsSink, Sink, SinkError};

use super::{error, eventually};

fn served() -> (MetricsSink, u16) {
    let options = MetricsOptions {
        port: Some(0),
        host: "127.0.0.1".into(),
        ..MetricsOptions::default()
    };
    let sink = MetricsSink::new(&options).unwrap();
    let port = sink.port().unwrap();
    (sink, port)
}

fn get(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(format!("{request}\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Fails always.
struct Broken;

impl Sink for Broken {
    fn write_batch(&mut self, _: &[Entry]) -> Result<(), SinkError> {
        Err(SinkError::Other("no".into()))
    }

    fn name(&self) -> std::borrow::Cow<'static, str> {
        "broken".into()
    }
}

#[test]
fn counts_are_served_in_both_formats() {
    let (sink, port) = served();
    let logger = Logger::builder().sink(sink).sink(Broken).build();
    for _ in 0..3 {
        logger.emit(error("pay", "no"));
    }
    assert!(logger.flush(Duration::from_secs(5)));
    let answer = get(port, "GET /metrics HTTP/1.1\r\nHost: x");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    for line in [
        "logkit_calls_total{function=\"pay\",level=\"ERROR\",module=\"shop\"} 3\n",
        "logkit_errors_total{function=\"pay\",module=\"shop\"} 3\n",
        "logkit_duration_seconds_bucket{function=\"pay\",le=\"0.005\",module=\"shop\"} 3\n",
        "logkit_dropped_total{reason=\"queue\"} 0\n",
        "logkit_queue_length 0\n",
        "logkit_internal_errors_total{sink=\"broken\"} ",
    ] {
        assert!(body.contains(line), "{line} in {body}");
    }
    let open = get(
        port,
        "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0",
    );
    assert!(open.contains("application/openmetrics-text; version=1.0.0"));
    assert!(open.ends_with("# EOF\n"));
    logger.close();
    eventually("the port is free", || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
}

#[test]
fn anything_else_is_404_and_silence_is_no_burden() {
    let (_sink, port) = served();
    for request in [
        "GET / HTTP/1.1",
        "POST /metrics HTTP/1.1",
        "GET /metrics/x HTTP/1.1",
        "nonsense",
    ] {
        assert!(get(port, request).starts_with("HTTP/1.1 404 "), "{request}");
    }
    // Those who say nothing take the places, for a few seconds.
    let idle: Vec<TcpStream> = (0..8)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    drop(idle);
    let start = Instant::now();
    eventually("answers again", || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200")
    });
    assert!(start.elapsed() < Duration::from_secs(10));
    let mut long = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _ = long.write_all(&vec![b'a'; 100_000]);
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(answer.is_empty(), "a request without end gets no answer");
}

#[test]
fn a_port_that_is_taken_is_no_error() {
    let (first, port) = served();
    let options = MetricsOptions {
        port: Some(port),
        host: "127.0.0.1".into(),
        ..MetricsOptions::default()
    };
    let mut second = MetricsSink::new(&options).unwrap();
    assert_eq!(second.port(), None);
    second.write_batch(&[error("pay", "no")]).unwrap();
    assert!(second.text(MetricsFormat::Prometheus).contains("\"pay\""));
    drop(first);
    let options = MetricsOptions {
        prefix: "a-b".into(),
        ..MetricsOptions::default()
    };
    assert!(MetricsSink::new(&options).is_err());
}
