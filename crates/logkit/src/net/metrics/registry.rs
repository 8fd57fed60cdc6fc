//! The counts and their text. Formats:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/> and OpenMetrics 1.0.

use std::{collections::BTreeMap, fmt::Write};

use crate::{Entry, Level, StatsSource};

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

/// Sets of labels for each metric.
const MAX_SETS: usize = 1000;
/// Characters of a label.
const MAX_LABEL: usize = 256;
const OVERFLOW: &str = "__overflow__";
const UNKNOWN: &str = "unknown";
/// Upper bounds in seconds; beyond them is `+Inf`.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// All counts. The keys are labels as they are written.
#[derive(Debug)]
pub(super) struct Registry {
    prefix: String,
    calls: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    durations: BTreeMap<String, Histogram>,
    last_calls: BTreeMap<String, f64>,
    stats: Option<StatsSource>,
    /// Reused for keys.
    key: String,
}

#[derive(Clone, Debug, Default)]
struct Histogram {
    /// Observations in each bucket alone.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Registry {
    pub(super) fn new(prefix: &str) -> Registry {
        Registry {
            prefix: prefix.to_owned(),
            calls: BTreeMap::new(),
            errors: BTreeMap::new(),
            durations: BTreeMap::new(),
            last_calls: BTreeMap::new(),
            stats: None,
            key: String::new(),
        }
    }

    /// Tells of that logger's queue too.
    pub(super) fn watch(&mut self, stats: StatsSource) {
        self.stats = Some(stats);
    }

    pub(super) fn count(&mut self, entry: &Entry) {
        let function = or_unknown(&entry.function_name);
        let module = or_unknown(&entry.module);
        let level = entry.level.as_str();
        let key = &mut self.key;
        *series(
            &mut self.calls,
            key,
            &[("function", function), ("level", level), ("module", module)],
        ) += 1;
        let both = [("function", function), ("module", module)];
        if entry.level == Level::Error {
            *series(&mut self.errors, key, &both) += 1;
        }
        if let Some(ms) = entry.duration_ms.filter(|ms| ms.is_finite()) {
            series(&mut self.durations, key, &both).observe(ms / 1000.0);
        }
        let last = series(&mut self.last_calls, key, &[("function", function)]);
        *last = last.max(entry.timestamp.seconds());
    }

    pub(super) fn text(&self, format: MetricsFormat) -> String {
        let mut page = Page {
            text: String::with_capacity(4096),
            prefix: &self.prefix,
            format,
        };
        page.counter("calls_total", "Calls logged", &self.calls);
        page.counter("errors_total", "Calls that failed", &self.errors);
        page.histogram("duration_seconds", "How long calls took", &self.durations);
        page.gauge(
            "last_call_timestamp",
            "When a function was last called, in seconds since 1970",
            &self.last_calls,
        );
        if let Some(stats) = &self.stats {
            let (now, errors) = (stats.get(), stats.sink_errors());
            page.counter(
                "dropped_total",
                "Entries lost",
                &BTreeMap::from([
                    ("reason=\"queue\"".to_owned(), now.dropped_queue),
                    ("reason=\"sink\"".to_owned(), now.dropped_sink),
                ]),
            );
            page.gauge(
                "queue_length",
                "Entries that wait to be written",
                &BTreeMap::from([(String::new(), now.queue_len as f64)]),
            );
            let mut by_sink = BTreeMap::new();
            for (sink, n_errors) in errors {
                *series(&mut by_sink, &mut String::new(), &[("sink", &*sink)]) += n_errors;
            }
            page.counter(
                "internal_errors_total",
                "Calls of a sink that failed",
                &by_sink,
            );
        }
        #[cfg(feature = "llm")]
        page.counter(
            "llm_requests_total",
            "Errors a model was asked about",
            &crate::net::llm::requests()
                .map(|(result, count)| (format!("result=\"{result}\""), count))
                .into(),
        );
        if format == MetricsFormat::OpenMetrics {
            page.text.push_str("# EOF\n");
        }
        page.text
    }
}

/// True for what may begin the name of a metric.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The count with those labels; with `__overflow__` in place of all values once there are many.
fn series<'a, T: Default>(
    map: &'a mut BTreeMap<String, T>,
    key: &mut String,
    labels: &[(&str, &str)],
) -> &'a mut T {
    write_labels(key, labels.iter().copied());
    if !map.contains_key(key.as_str()) {
        if map.len() >= MAX_SETS {
            write_labels(key, labels.iter().map(|(name, _)| (*name, OVERFLOW)));
        }
        map.entry(key.clone()).or_default();
    }
    map.entry(std::mem::take(key)).or_default()
}

/// Writes `a="x",b="y"`; names come in alphabetical order.
fn write_labels<'a>(out: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    out.clear();
    for (name, value) in labels {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(name);
        out.push_str("=\"");
        for c in value.chars().take(MAX_LABEL) {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { UNKNOWN } else { text }
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

/// A text that grows.
struct Page<'a> {
    text: String,
    prefix: &'a str,
    format: MetricsFormat,
}

impl Page<'_> {
    fn counter(&mut self, name: &str, help: &str, counts: &BTreeMap<String, u64>) {
        // OpenMetrics names the family without the suffix of its samples.
        let family = match self.format {
            MetricsFormat::Prometheus => name,
            MetricsFormat::OpenMetrics => name.trim_end_matches("_total"),
        };
        self.head(family, "counter", help);
        for (labels, count) in counts {
            self.sample(name, "", labels, &count.to_string());
        }
    }

    fn gauge(&mut self, name: &str, help: &str, values: &BTreeMap<String, f64>) {
        self.head(name, "gauge", help);
        for (labels, value) in values {
            self.sample(name, "", labels, &value.to_string());
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histograms: &BTreeMap<String, Histogram>) {
        self.head(name, "histogram", help);
        for (labels, histogram) in histograms {
            let mut below = 0;
            let bounds = BUCKETS.iter().map(|bound| format!("{bound:?}"));
            let counts = histogram.buckets.iter().map(|count| {
                below += count;
                below
            });
            let total = ("+Inf".to_owned(), histogram.count);
            for (bound, count) in bounds.zip(counts).chain([total]) {
                let labels = with_bound(labels, &bound);
                self.sample(name, "_bucket", &labels, &count.to_string());
            }
            self.sample(name, "_sum", labels, &histogram.sum.to_string());
            self.sample(name, "_count", labels, &histogram.count.to_string());
        }
    }

    fn head(&mut self, family: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        let _ = writeln!(self.text, "# HELP {prefix}_{family} {help}");
        let _ = writeln!(self.text, "# TYPE {prefix}_{family} {kind}");
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: &str) {
        let prefix = self.prefix;
        let _ = if labels.is_empty() {
            writeln!(self.text, "{prefix}_{name}{suffix} {value}")
        } else {
            writeln!(self.text, "{prefix}_{name}{suffix}{{{labels}}} {value}")
        };
    }
}

/// Puts `le` in its place: after `function`, before `module`.
fn with_bound(labels: &str, bound: &str) -> String {
    // Only a quote that ends a value is followed by `,module=`: others are escaped.
    match labels.rsplit_once("\",module=\"") {
        Some((function, module)) => format!("{function}\",le=\"{bound}\",module=\"{module}"),
        None => format!("{labels},le=\"{bound}\""),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Timestamp;

    fn entry(function: &str, level: Level, ms: Option<f64>) -> Entry {
        Entry {
            timestamp: Timestamp::from_micros(1_795_204_488_500_000),
            level,
            function_name: function.to_owned().into(),
            module: "shop".into(),
            duration_ms: ms,
            ..Entry::default()
        }
    }

    #[test]
    fn the_text_is_what_collectors_read() {
        let mut registry = Registry::new("logkit");
        registry.count(&entry("pay", Level::Info, Some(1.0)));
        registry.count(&entry("pay", Level::Error, Some(30_000.0)));
        registry.count(&entry("pay", Level::Error, None));
        let text = registry.text(MetricsFormat::Prometheus);
        let expected = "\
# HELP logkit_calls_total Calls logged
# TYPE logkit_calls_total counter
logkit_calls_total{function=\"pay\",level=\"ERROR\",module=\"shop\"} 2
logkit_calls_total{function=\"pay\",level=\"INFO\",module=\"shop\"} 1
# HELP logkit_errors_total Calls that failed
# TYPE logkit_errors_total counter
logkit_errors_total{function=\"pay\",module=\"shop\"} 2
# HELP logkit_duration_seconds How long calls took
# TYPE logkit_duration_seconds histogram
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.001\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.005\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.01\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.025\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.05\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.1\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.25\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"0.5\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"1.0\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"2.5\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"5.0\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"10.0\",module=\"shop\"} 1
logkit_duration_seconds_bucket{function=\"pay\",le=\"+Inf\",module=\"shop\"} 2
logkit_duration_seconds_sum{function=\"pay\",module=\"shop\"} 30.001
logkit_duration_seconds_count{function=\"pay\",module=\"shop\"} 2
# HELP logkit_last_call_timestamp When a function was last called, in seconds since 1970
# TYPE logkit_last_call_timestamp gauge
logkit_last_call_timestamp{function=\"pay\"} 1795204488.5
";
        assert!(text.starts_with(expected), "{text}");
        let open = registry.text(MetricsFormat::OpenMetrics);
        assert!(open.contains("# TYPE logkit_calls counter\nlogkit_calls_total{"));
        assert!(open.ends_with("# EOF\n"));
    }

    #[test]
    fn many_names_overflow_and_old_ones_go_on() {
        let mut registry = Registry::new("x");
        for n in 0..MAX_SETS + 500 {
            registry.count(&entry(&format!("f{n}"), Level::Error, Some(1.0)));
        }
        registry.count(&entry("f0", Level::Error, Some(1.0)));
        registry.count(&entry("", Level::Error, None));
        assert_eq!(registry.errors.len(), MAX_SETS + 1);
        let text = registry.text(MetricsFormat::Prometheus);
        assert!(
            text.contains(
                "x_errors_total{function=\"__overflow__\",module=\"__overflow__\"} 501\n"
            )
        );
        assert!(text.contains("x_errors_total{function=\"f0\",module=\"shop\"} 2\n"));
    }

    proptest! {
        #[test]
        fn every_line_is_a_sample_whatever_the_names_are(function in "(?s).{0,300}", module in "[\",\\\\=\n{}a]{0,20}") {
            let mut registry = Registry::new("x");
            let mut entry = entry(&function, Level::Error, Some(2.0));
            entry.module = module.clone().into();
            registry.count(&entry);
            let text = registry.text(MetricsFormat::Prometheus);
            let sample = regex::Regex::new(
                r#"^x_\w+(\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? [0-9.e+-]+$"#).unwrap();
            for line in text.split('\n').filter(|line| !line.is_empty()) {
                prop_assert!(line.starts_with('#') || sample.is_match(line), "{line}");
            }
            let n_buckets = text.matches("_bucket{").count();
            prop_assert_eq!(n_buckets, BUCKETS.len() + 1);
        }
    }
}
