//! A logger in another program asks this server's model about an error.

use std::time::{Duration, Instant};

use logkit::{
    DbSink, Durability, Entry, Level, LlmOptions, LlmServers, LlmSink, Logger,
    query::{Filter, Reader},
};

use crate::util::{Sandbox, TIMEOUT};

#[test]
fn the_embedded_model_explains_an_error_and_the_request_log_is_quiet() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let path = sandbox.path().join("logs.db");
    let servers = LlmServers {
        local: Some(server.url.clone()),
        ..LlmServers::default()
    };
    let mut options = LlmOptions::new("llmsrv/default", servers);
    options.timeout = TIMEOUT;
    options.max_tokens = 40;
    let sink = DbSink::open(&path, "logs", Durability::Buffered).unwrap();
    let logger = Logger::builder()
        .sink(sink)
        .wrap(move |sink| Box::new(LlmSink::new(options, sink)))
        .build();
    logger.emit(Entry {
        level: Level::Error,
        function_name: "divide".into(),
        args: "(1, 0)".into(),
        exception: "division by zero".into(),
        exception_type: "ZeroDivisionError".into(),
        ..Entry::default()
    });
    assert!(logger.flush(Duration::from_secs(5)));
    let analysis = || {
        let reader = Reader::open(&path, "logs").unwrap();
        let rows = reader.rows(&Filter::default()).unwrap();
        assert_eq!(rows.len(), 1, "written at once");
        rows[0].entry.llm_analysis.to_string()
    };
    let deadline = Instant::now() + TIMEOUT;
    while analysis().is_empty() {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    logger.close();
    let text = analysis();
    assert!(!text.starts_with("[logkit]"), "{text}");
    let log = server.log();
    assert!(!log.contains("/api/chat"), "{log}");
}
