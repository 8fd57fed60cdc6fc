//! Counts of the service, as text for Prometheus.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use http::StatusCode;
use logkit::{DurationHistogram, MetricsFormat, MetricsPage};
use parking_lot::Mutex;

use crate::store::Store;

/// The routes; no text of a client becomes a label.
const ROUTES: [&str; 11] = [
    "/log",
    "/log/batch",
    "/logs",
    "/logs/stream",
    "/logs/{id}",
    "/health",
    "/metrics",
    "/openapi.json",
    "/v1/logs",
    "/v1/traces",
    "/",
];

/// The route of a path.
pub(crate) fn route(path: &str) -> &'static str {
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/logs/") => "/logs/{id}",
        None => "other",
    }
}

/// Counts since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    /// By route or method of gRPC, then status.
    requests: Mutex<BTreeMap<(&'static str, u16), DurationHistogram>>,
    stored: AtomicU64,
    grpc: Mutex<BTreeMap<(&'static str, i32), u64>>,
}

impl Metrics {
    pub(crate) fn request(&self, route: &'static str, status: StatusCode, took: Duration) {
        let mut requests = self.requests.lock();
        let times = requests.entry((route, status.as_u16())).or_default();
        times.observe(took.as_secs_f64());
    }

    pub(crate) fn call(&self, method: &'static str, code: tonic::Code) {
        *self.grpc.lock().entry((method, code as i32)).or_default() += 1;
    }

    pub(crate) fn stored(&self, n_entries: usize) {
        self.stored.fetch_add(n_entries as u64, Relaxed);
    }

    /// All of it, with what the store counts, as text.
    pub(crate) fn page(&self, store: &Store, format: MetricsFormat) -> String {
        let mut page = MetricsPage::new(format);
        let (stored, written) = (self.stored.load(Relaxed), store.stats().written);
        page.counter(
            "logkit_stored_total",
            "Entries stored for callers",
            [("", stored)],
        );
        page.counter(
            "logkit_written_total",
            "Entries written to the database",
            [("", written)],
        );
        if let Some(others) = store.other_stats() {
            page.counter(
                "logkit_sinks_dropped_total",
                "Entries that the sinks beside the database lost",
                [
                    ("reason=\"queue\"", others.dropped_queue),
                    ("reason=\"sink\"", others.dropped_sink),
                ],
            );
        }
        let requests = self.requests.lock();
        let requests: Vec<(String, &DurationHistogram)> = requests
            .iter()
            .map(|((route, status), times)| {
                (format!("route=\"{route}\",status=\"{status}\""), times)
            })
            .collect();
        page.histogram(
            "logkit_http_request_duration_seconds",
            "Time to an answer",
            |bound| bound.to_string(),
            requests
                .iter()
                .map(|(labels, times)| (["", labels.as_str()], *times)),
        );
        page.counter(
            "logkit_grpc_requests_total",
            "Calls of gRPC",
            self.grpc.lock().iter().map(|((method, code), count)| {
                (format!("code=\"{code}\",method=\"{method}\""), *count)
            }),
        );
        // These end the page.
        page.into_text() + &store.metrics(format)
    }
}
