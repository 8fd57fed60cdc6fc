//! Counts of calls, for a monitoring system that fetches them.

mod page;
mod registry;
mod server;

use std::{borrow::Cow, net::SocketAddr, sync::Arc};

use crate::{Entry, Sink, SinkError, StatsSource, lock::Mutex};
use registry::Registry;
use server::Server;

pub use page::{DurationHistogram, MetricsFormat, MetricsPage};

/// Counts entries and serves the counts at `GET /metrics`.
///
/// No more than 1,000 sets of labels are kept for each metric; what comes later is counted as
/// `__overflow__`.
#[derive(Debug)]
pub struct MetricsSink {
    registry: Arc<Mutex<Registry>>,
    server: Option<Server>,
}

/// Port of a specification that names none.
pub(crate) const PORT: u16 = 9090;

/// How a [`MetricsSink`] works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Port to serve at; 0 = any free one, `None` = no server.
    pub port: Option<u16>,
    /// Address to listen at: every interface unless set.
    pub host: String,
    /// Before the names of all metrics: `logkit` unless set.
    pub prefix: String,
}

impl Default for MetricsOptions {
    fn default() -> MetricsOptions {
        MetricsOptions {
            port: None,
            host: "0.0.0.0".into(),
            prefix: "logkit".into(),
        }
    }
}

impl MetricsSink {
    /// Starts the server, if one is wanted. A port that is taken is told on stderr, and the sink
    /// goes on without a server.
    ///
    /// ```
    /// use logkit::{Entry, MetricsFormat, MetricsOptions, MetricsSink, Sink};
    ///
    /// # fn main() -> Result<(), logkit::SinkError> {
    /// // `port: Some(9090)` serves the same text at `GET /metrics`.
    /// let mut sink = MetricsSink::new(&MetricsOptions::default())?;
    /// sink.write_batch(&[Entry { function_name: "load".into(), ..Entry::default() }])?;
    /// let text = sink.text(MetricsFormat::Prometheus);
    /// assert!(text.contains(r#"logkit_calls_total{function="load",level="INFO""#));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Other`] if the prefix is not made of letters, digits and `_`.
    pub fn new(options: &MetricsOptions) -> Result<MetricsSink, SinkError> {
        if !registry::is_name(&options.prefix) {
            return Err(SinkError::Other(format!(
                "'{}' is no prefix of metrics: use letters, digits and '_'",
                options.prefix
            )));
        }
        let registry = Arc::new(Mutex::new(Registry::new(&options.prefix)));
        let server = options.port.and_then(|port| {
            let started = Server::start(&options.host, port, Arc::clone(&registry));
            started
                .inspect_err(|error| {
                    crate::notice(&format!(
                        "no metrics are served at {}:{port}: {error}",
                        options.host
                    ));
                })
                .ok()
        });
        Ok(MetricsSink { registry, server })
    }

    /// Where the server listens; `None` without one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// The port of the server, also where any free one was asked for.
    pub fn port(&self) -> Option<u16> {
        self.address().map(|address| address.port())
    }

    /// The counts as text.
    pub fn text(&self, format: MetricsFormat) -> String {
        self.registry.lock().text(format)
    }
}

impl Sink for MetricsSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        let mut registry = self.registry.lock();
        for entry in entries {
            registry.count(entry);
        }
        Ok(())
    }

    /// Nothing that comes later matters here.
    fn can_update(&self) -> bool {
        true
    }

    fn attach(&mut self, stats: &StatsSource) {
        self.registry.lock().watch(stats.clone());
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.server = None;
        Ok(())
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("metrics")
    }
}
