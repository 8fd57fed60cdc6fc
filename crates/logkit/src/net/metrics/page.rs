//! Metrics as text. Formats: <https://prometheus.io/docs/instrumenting/exposition_formats/> and OpenMetrics 1.0.

use std::fmt::Write as _;

/// How metrics are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    #[default]
    Prometheus,
    /// The text format of OpenMetrics, version 1.0, which ends in `# EOF`.
    OpenMetrics,
}

impl MetricsFormat {
    /// What the header `content-type` says of it.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            MetricsFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }
}

/// Upper bounds in seconds; beyond them is `+Inf`.
pub(super) const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Times, counted by how long they are.
#[derive(Clone, Debug, Default)]
pub struct DurationHistogram {
    /// Observations in each bucket alone.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl DurationHistogram {
    /// Counts one.
    pub fn observe(&mut self, seconds: f64) {
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// A text of metrics that grows, family by family. Labels come as they are written: `a="x",b="y"`.
#[derive(Debug)]
pub struct MetricsPage {
    text: String,
    format: MetricsFormat,
}

impl MetricsPage {
    /// Begins a text.
    pub fn new(format: MetricsFormat) -> MetricsPage {
        MetricsPage {
            text: String::with_capacity(4096),
            format,
        }
    }

    /// Returns the text; [`MetricsFormat::OpenMetrics`] has to end with `# EOF` besides.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Writes counts, whose name ends in `_total`.
    pub fn counter<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        counts: impl IntoIterator<Item = (L, u64)>,
    ) {
        // OpenMetrics names the family without the suffix of its samples.
        let family = match self.format {
            MetricsFormat::Prometheus => name,
            MetricsFormat::OpenMetrics => name.trim_end_matches("_total"),
        };
        self.head(family, "counter", help);
        for (labels, count) in counts {
            self.sample(name, labels.as_ref(), count);
        }
    }

    /// Writes numbers that go up and down.
    pub fn gauge<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) {
        self.head(name, "gauge", help);
        for (labels, value) in values {
            self.sample(name, labels.as_ref(), value);
        }
    }

    /// Writes times. The labels of each are those before and behind `le` in the alphabet; `bound` writes a bound.
    pub fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        bound: fn(f64) -> String,
        times: impl IntoIterator<Item = ([&'a str; 2], &'a DurationHistogram)>,
    ) {
        self.head(name, "histogram", help);
        for ([before, after], times) in times {
            let join = |parts: [&str; 3]| {
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                parts.collect::<Vec<_>>().join(",")
            };
            let mut below = 0;
            let counts = BUCKETS.iter().zip(times.buckets).map(|(limit, count)| {
                below += count;
                (bound(*limit), below)
            });
            for (bound, count) in counts.chain([("+Inf".to_owned(), times.count)]) {
                let labels = join([before, &format!("le=\"{bound}\""), after]);
                self.sample(&format!("{name}_bucket"), &labels, count);
            }
            let labels = join([before, "", after]);
            self.sample(&format!("{name}_sum"), &labels, times.sum);
            self.sample(&format!("{name}_count"), &labels, times.count);
        }
    }

    fn head(&mut self, family: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {family} {help}");
        let _ = writeln!(self.text, "# TYPE {family} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = if labels.is_empty() {
            writeln!(self.text, "{name} {value}")
        } else {
            writeln!(self.text, "{name}{{{labels}}} {value}")
        };
    }
}
