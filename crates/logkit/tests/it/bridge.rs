//! Entries from `log` and `tracing`.

use std::time::Duration;

use logkit::{Level, LogBridge, Logger, tracing_layer};
use tracing_subscriber::layer::SubscriberExt;

use crate::sinks::Memory;

#[test]
fn events_become_entries() {
    let memory = Memory::default();
    let logger = Logger::builder().sink(memory.clone()).build();
    let subscriber = tracing_subscriber::registry().with(tracing_layer(logger.clone()));
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(target: "llmsrv::request", method = %"POST", path = "/api/chat",
            status = 200_u16, ms = 12_u64, bytes = 5_u64, client = "-", key = "-");
        tracing::info!(target: "llmsrv::request", method = "GET", path = "/", status = 503, ms = 1);
        tracing::warn!(target: "app", n = 3, "it's {}", "slow password=hunter2");
    });
    let bridge = LogBridge::new(logger.clone());
    log::Log::log(
        &bridge,
        &log::Record::builder()
            .args(format_args!("hello"))
            .level(log::Level::Error)
            .target("lib")
            .build(),
    );
    assert!(logger.flush(Duration::from_secs(20)));
    let entries = memory.0.lock().unwrap();
    let [request, failed, message, record] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(
        (
            &*request.function_name,
            &*request.return_value,
            request.duration_ms
        ),
        ("POST /api/chat", "200", Some(12.0))
    );
    assert_eq!(
        serde_json::to_string(&request.extra).unwrap(),
        r#"{"bytes":5,"client":"-","key":"-"}"#
    );
    assert_eq!(
        (&failed.level, &*failed.exception),
        (&Level::Error, "status 503")
    );
    assert_eq!(
        message.return_value,
        "\"it's slow password=***REDACTED***\""
    );
    assert_eq!(
        (&message.extra["n"], &message.extra["source"]),
        (&3.into(), &"stdlib_bridge".into())
    );
    assert_eq!(
        (&record.level, &*record.function_name),
        (&Level::Error, "lib")
    );
}
