//! The counts of calls.

use std::collections::BTreeMap;

use super::page::{DurationHistogram, MetricsFormat, MetricsPage};
use crate::{Entry, Level, StatsSource};

/// Sets of labels for each metric.
const MAX_SETS: usize = 1000;
/// Characters of a label.
const MAX_LABEL: usize = 256;
const OVERFLOW: &str = "__overflow__";
const UNKNOWN: &str = "unknown";
/// All counts. The keys are labels as they are written.
#[derive(Debug, Default)]
pub(super) struct Registry {
    prefix: String,
    calls: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
    durations: BTreeMap<String, DurationHistogram>,
    last_calls: BTreeMap<String, f64>,
    stats: Option<StatsSource>,
    /// Reused for keys.
    key: String,
}

impl Registry {
    pub(super) fn new(prefix: &str) -> Registry {
        Registry {
            prefix: prefix.to_owned(),
            ..Registry::default()
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
        let mut page = MetricsPage::new(format);
        let name = |name: &str| format!("{}_{name}", self.prefix);
        page.counter(&name("calls_total"), "Calls logged", each(&self.calls));
        page.counter(
            &name("errors_total"),
            "Calls that failed",
            each(&self.errors),
        );
        let durations = self.durations.iter();
        page.histogram(
            &name("duration_seconds"),
            "How long calls took",
            |bound| format!("{bound:?}"),
            durations.map(|(labels, times)| (around_le(labels), times)),
        );
        page.gauge(
            &name("last_call_timestamp"),
            "When a function was last called, in seconds since 1970",
            each(&self.last_calls),
        );
        if let Some(stats) = &self.stats {
            let (now, errors) = (stats.get(), stats.sink_errors());
            page.counter(
                &name("dropped_total"),
                "Entries lost",
                [
                    ("reason=\"queue\"", now.dropped_queue),
                    ("reason=\"sink\"", now.dropped_sink),
                ],
            );
            page.gauge(
                &name("queue_length"),
                "Entries that wait to be written",
                [("", now.queue_len as f64)],
            );
            let mut by_sink = BTreeMap::new();
            for (sink, n_errors) in errors {
                *series(&mut by_sink, &mut String::new(), &[("sink", &*sink)]) += n_errors;
            }
            page.counter(
                &name("internal_errors_total"),
                "Calls of a sink that failed",
                by_sink,
            );
        }
        #[cfg(feature = "llm")]
        page.counter(
            &name("llm_requests_total"),
            "Errors a model was asked about",
            crate::net::llm::requests()
                .map(|(result, count)| (format!("result=\"{result}\""), count)),
        );
        let mut text = page.into_text();
        if format == MetricsFormat::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn each<T: Copy>(map: &BTreeMap<String, T>) -> impl Iterator<Item = (&String, T)> {
    map.iter().map(|(labels, value)| (labels, *value))
}

/// Where `le` has its place: after `function`, before `module`.
fn around_le(labels: &str) -> [&str; 2] {
    // Only a quote that ends a value is followed by `,module=`: others are escaped.
    match labels.rfind("\",module=\"") {
        Some(at) => [&labels[..=at], &labels[at + 2..]],
        None => [labels, ""],
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::page::BUCKETS, *};
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
