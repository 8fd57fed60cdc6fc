//! Counts of the service, as text for Prometheus.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use http::StatusCode;
use logkit::MetricsFormat;
use parking_lot::Mutex;

use crate::store::Store;

/// Upper bounds of the buckets of times, in seconds.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

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
    requests: Mutex<BTreeMap<(&'static str, u16), Times>>,
    stored: AtomicU64,
    grpc: Mutex<BTreeMap<(&'static str, i32), u64>>,
}

#[derive(Default)]
struct Times {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Metrics {
    pub(crate) fn request(&self, route: &'static str, status: StatusCode, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut requests = self.requests.lock();
        let times = requests.entry((route, status.as_u16())).or_default();
        times.count += 1;
        times.sum += seconds;
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            times.buckets[bucket] += 1;
        }
    }

    pub(crate) fn call(&self, method: &'static str, code: tonic::Code) {
        *self.grpc.lock().entry((method, code as i32)).or_default() += 1;
    }

    pub(crate) fn stored(&self, n_entries: usize) {
        self.stored.fetch_add(n_entries as u64, Relaxed);
    }
    /// All of it, with what the store counts, as text.
    pub(crate) fn page(&self, store: &Store, format: MetricsFormat) -> String {
        let mut page = Page {
            out: String::new(),
            format,
        };
        let stored = self.stored.load(Relaxed);
        let written = store.stats().written;
        for (name, help, value) in [
            ("logkit_stored_total", "Entries stored for callers", stored),
            (
                "logkit_written_total",
                "Entries written to the database",
                written,
            ),
        ] {
            page.family(name, "counter", help);
            let _ = writeln!(page.out, "{name} {value}");
        }
        page.requests(&self.requests.lock());
        let name = "logkit_grpc_requests_total";
        page.family(name, "counter", "Calls of gRPC");
        for ((method, code), count) in self.grpc.lock().iter() {
            let _ = writeln!(
                page.out,
                "{name}{{code=\"{code}\",method=\"{method}\"}} {count}"
            );
        }
        // These end the page.
        page.out.push_str(&store.metrics(format));
        page.out
    }
}

/// A text that grows.
struct Page {
    out: String,
    format: MetricsFormat,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // OpenMetrics names the family without the suffix of its samples.
        let name = match self.format {
            MetricsFormat::OpenMetrics => name.trim_end_matches("_total"),
            MetricsFormat::Prometheus => name,
        };
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn requests(&mut self, requests: &BTreeMap<(&'static str, u16), Times>) {
        let name = "logkit_http_request_duration_seconds";
        self.family(name, "histogram", "Time to an answer");
        let out = &mut self.out;
        for ((route, status), times) in requests {
            let labels = format!("route=\"{route}\",status=\"{status}\"");
            let mut so_far = 0;
            for (bound, count) in BUCKETS.iter().zip(times.buckets) {
                so_far += count;
                let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\",{labels}}} {so_far}");
            }
            let _ = writeln!(
                out,
                "{name}_bucket{{le=\"+Inf\",{labels}}} {count}\n{name}_sum{{{labels}}} {sum}\n\
                 {name}_count{{{labels}}} {count}",
                count = times.count,
                sum = times.sum,
            );
        }
    }
}
