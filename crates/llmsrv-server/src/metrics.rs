//! What the server counts, and its text for Prometheus.
//!
//! Values of labels are bounded: routes as the router has them, and names of models that were
//! loaded; never text of a client.

use std::{
    collections::HashSet,
    fmt::Write as _,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant, SystemTime},
};

use http::Method;
use llmsrv_engine::{Event, PlacedBytes, Stats};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::memory;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Makes the struct and registers its metrics. A row is `field: Type = name, help`, and how it is made if not by default.
macro_rules! metrics {
    (@made) => { Default::default() };
    (@made $made:expr) => { $made };
    ($($field:ident: $type:ty = $name:literal, $help:literal $(, $made:expr)?;)*) => {
        /// All counters of a server.
        pub(crate) struct Metrics {
            registry: Registry,
            /// One text at a time: gauges are filled for it.
            rendering: Mutex<()>,
            $($field: $type,)*
        }

        impl Metrics {
            fn register() -> Metrics {
                let mut registry = Registry::default();
                $(
                    let $field: $type = metrics!(@made $($made)?);
                    registry.register($name, $help, $field.clone());
                )*
                Metrics {
                    $($field,)*
                    registry,
                    rendering: Mutex::default(),
                }
            }
        }
    };
}

metrics! {
    started: Gauge<f64, AtomicU64> = "process_start_time_seconds", "When the process was started, since the epoch";
    resident: Gauge = "process_resident_memory_bytes", "Resident memory of the process";
    requests: Family<RequestLabels, Counter> = "llmsrv_http_requests", "Requests answered";
    request_seconds: Histograms<RouteLabels> =
        "llmsrv_http_request_seconds", "From a request to the head of its answer", Family::new_with_constructor(seconds);
    refused: Family<ReasonLabels, Counter> = "llmsrv_refused_requests", "Requests refused";
    answers: Family<OutcomeLabels, Counter> = "llmsrv_answers", "Texts generated";
    first_token: Histograms<ModelLabels> =
        "llmsrv_time_to_first_token_seconds", "From a request for text to the first piece of the answer", Family::new_with_constructor(seconds);
    between: Histograms<ModelLabels> =
        "llmsrv_inter_token_seconds", "Between two pieces of an answer, mostly one token each", Family::new_with_constructor(short_seconds);
    rate: Histograms<ModelLabels> =
        "llmsrv_tokens_per_second", "Generated tokens of an answer by the time since its first one", Family::new_with_constructor(rates);
    queue_seconds: Histogram =
        "llmsrv_queue_wait_seconds", "From a request to its turn with a loaded model", seconds();
    prompt_tokens: Family<ModelLabels, Counter> = "llmsrv_prompt_tokens", "Tokens of all prompts";
    cached_tokens: Family<ModelLabels, Counter> =
        "llmsrv_prefix_cache_hit_tokens", "Prompt tokens that the prefix cache made free";
    generated_tokens: Family<ModelLabels, Counter> = "llmsrv_generated_tokens", "Tokens generated";
    drafted_tokens: Family<ModelLabels, Counter> = "llmsrv_drafted_tokens", "Draft tokens computed";
    accepted_tokens: Family<ModelLabels, Counter> = "llmsrv_accepted_tokens", "Draft tokens accepted";
    preemptions: Family<ModelLabels, Counter> =
        "llmsrv_preemptions", "Sequences that gave up their KV blocks for an older one";
    loads: Family<OutcomeLabels, Counter> = "llmsrv_model_loads", "Models loaded";
    load_seconds: Histogram = "llmsrv_model_load_seconds", "Time to load a model", seconds();
    evictions: Counter = "llmsrv_model_evictions", "Idle models unloaded to make room";
    in_flight: Gauge = "llmsrv_http_requests_in_flight", "Requests whose answer has not begun";
    waiting: Gauge = "llmsrv_queue_length", "Requests that wait for a model or their turn";
    models: Gauge = "llmsrv_models_loaded", "Models in memory";
    weights: Family<ModelLabels, Gauge> = "llmsrv_model_weights_bytes", "Memory of the weights";
    kv_reserved: Family<ModelLabels, Gauge> = "llmsrv_model_kv_cache_bytes", "Memory of the KV cache";
    kv_used: Family<ModelLabels, Gauge> = "llmsrv_model_kv_cache_used_bytes", "KV cache of the requests that run";
    kv_cached: Family<ModelLabels, Gauge> =
        "llmsrv_model_kv_cache_prefix_bytes", "KV cache that keeps computed prompts";
    sequences: Family<SequenceLabels, Gauge> = "llmsrv_model_sequences", "Requests inside the engine";
    layers: Family<ModelLabels, Gauge> = "llmsrv_model_layers", "Layers of a model, the output among them";
    gpu_layers: Family<ModelLabels, Gauge> = "llmsrv_model_gpu_layers", "Those of them that GPUs compute";
    memory_taken: Gauge = "llmsrv_models_memory_bytes", "Memory of the machine that models take or were promised";
    memory_limit: Gauge = "llmsrv_models_memory_limit_bytes", "Memory of the machine that models may take";
    gpu_memory_taken: Family<GpuLabels, Gauge> =
        "llmsrv_models_gpu_memory_bytes", "Memory of a GPU that models take or were promised";
    gpu_memory_limit: Family<GpuLabels, Gauge> =
        "llmsrv_models_gpu_memory_limit_bytes", "Memory of a GPU that models may take";
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SequenceLabels {
    model: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabels {
    gpu: usize,
}

/// What a loaded model holds; memory in bytes.
pub(crate) struct ModelFigures {
    pub(crate) name: String,
    pub(crate) weights: u64,
    pub(crate) kv_reserved: u64,
    pub(crate) kv_used: u64,
    pub(crate) kv_cached: u64,
    /// Sequences that are computed.
    pub(crate) running: usize,
    /// Sequences that wait for KV blocks.
    pub(crate) waiting: usize,
    /// Its layers, the output among them.
    pub(crate) layers: usize,
    /// Those that GPUs compute.
    pub(crate) gpu_layers: usize,
}

/// The state of the server at the moment of a text.
pub(crate) struct Snapshot {
    pub(crate) models: Vec<ModelFigures>,
    pub(crate) waiting: usize,
    /// Bytes that models take and may take.
    pub(crate) memory: (PlacedBytes, PlacedBytes),
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let metrics = Metrics::register();
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        metrics
            .started
            .set(since_epoch.map_or(0.0, |time| time.as_secs_f64()));
        metrics
    }

    /// A request has come; the result counts it when it is answered or given up.
    pub(crate) fn request(self: &Arc<Self>, route: Option<&str>, method: &Method) -> Request {
        self.in_flight.inc();
        Request {
            metrics: self.clone(),
            // What is no route of ours could be any text.
            route: route.unwrap_or("unknown").to_owned(),
            method: if KNOWN_METHODS.contains(&method.as_str()) {
                method.to_string()
            } else {
                "other".to_owned()
            },
            started: Instant::now(),
            status: None,
        }
    }

    /// A text is to be generated by a model.
    pub(crate) fn answer(self: &Arc<Self>, model: &str) -> Answer {
        let labels = ModelLabels {
            model: model.to_owned(),
        };
        Answer {
            first_token: self.first_token.get_or_create_owned(&labels),
            between: self.between.get_or_create_owned(&labels),
            rate: self.rate.get_or_create_owned(&labels),
            answers: self.answers.clone(),
            arrived: Instant::now(),
            last: None,
            ended: false,
        }
    }

    /// A request got its turn.
    pub(crate) fn waited(&self, time: Duration) {
        self.queue_seconds.observe(time.as_secs_f64());
    }

    /// Loading a model came to an end.
    pub(crate) fn loaded(&self, time: Duration, ok: bool) {
        let outcome = if ok { "loaded" } else { "failed" };
        self.loads.get_or_create(&OutcomeLabels { outcome }).inc();
        if ok {
            self.load_seconds.observe(time.as_secs_f64());
        }
    }

    /// An idle model had to leave.
    pub(crate) fn evicted(&self) {
        self.evictions.inc();
    }

    /// Adds what an engine has done between two looks at its figures.
    pub(crate) fn engine(&self, model: &str, before: &Stats, now: &Stats) {
        let labels = ModelLabels {
            model: model.to_owned(),
        };
        for (family, before, now) in [
            (&self.prompt_tokens, before.prompt_tokens, now.prompt_tokens),
            (
                &self.cached_tokens,
                before.prefix_hit_tokens,
                now.prefix_hit_tokens,
            ),
            (
                &self.generated_tokens,
                before.generated_tokens,
                now.generated_tokens,
            ),
            (
                &self.drafted_tokens,
                before.drafted_tokens,
                now.drafted_tokens,
            ),
            (
                &self.accepted_tokens,
                before.accepted_tokens,
                now.accepted_tokens,
            ),
            (&self.preemptions, before.preemptions, now.preemptions),
        ] {
            family
                .get_or_create(&labels)
                .inc_by(now.saturating_sub(before));
        }
    }

    /// Adds the tokens of an answer that another server gave.
    pub(crate) fn tokens(&self, model: &str, prompt: u64, cached: u64, generated: u64) {
        let labels = ModelLabels {
            model: model.to_owned(),
        };
        self.prompt_tokens.get_or_create(&labels).inc_by(prompt);
        self.cached_tokens.get_or_create(&labels).inc_by(cached);
        self.generated_tokens
            .get_or_create(&labels)
            .inc_by(generated);
    }

    /// Writes everything: as OpenMetrics, or in Prometheus' older text form.
    pub(crate) fn render(&self, present: &Snapshot, open_metrics: bool) -> String {
        let _one_at_a_time = self.rendering.lock();
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.waiting.set(present.waiting as i64);
        self.models.set(present.models.len() as i64);
        let (taken, limit) = &present.memory;
        self.memory_taken.set(gauge(taken.host));
        self.memory_limit.set(gauge(limit.host));
        for (gpu, bytes) in limit.gpus().iter().enumerate() {
            let labels = GpuLabels { gpu };
            let of = |family: &Family<GpuLabels, Gauge>, bytes| {
                family.get_or_create(&labels).set(gauge(bytes));
            };
            of(&self.gpu_memory_taken, taken.gpu(gpu));
            of(&self.gpu_memory_limit, *bytes);
        }
        self.resident.set(gauge(memory::resident().unwrap_or(0)));
        self.sequences.clear();
        let families = [
            &self.weights,
            &self.kv_reserved,
            &self.kv_used,
            &self.kv_cached,
            &self.layers,
            &self.gpu_layers,
        ];
        for family in families {
            family.clear();
        }
        for model in &present.models {
            let labels = ModelLabels {
                model: model.name.clone(),
            };
            let numbers = [
                model.weights,
                model.kv_reserved,
                model.kv_used,
                model.kv_cached,
                model.layers as u64,
                model.gpu_layers as u64,
            ];
            for (family, number) in families.into_iter().zip(numbers) {
                family.get_or_create(&labels).set(gauge(number));
            }
            for (state, n) in [("running", model.running), ("waiting", model.waiting)] {
                let model = model.name.clone();
                self.sequences
                    .get_or_create(&SequenceLabels { model, state })
                    .set(n as i64);
            }
        }
        let mut out = String::new();
        // Writing into a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        if open_metrics { out } else { classic(&out) }
    }
}

/// A request on its way; dropping it without a status means that the client went away.
pub(crate) struct Request {
    metrics: Arc<Metrics>,
    route: String,
    method: String,
    started: Instant,
    status: Option<u16>,
}

impl Request {
    /// The head of the answer is there.
    pub(crate) fn answered(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.in_flight.dec();
        let given_up = if std::thread::panicking() { 500 } else { 499 };
        let status = self.status.unwrap_or(given_up);
        if let Some((_, reason)) = REFUSALS.iter().find(|(refusal, _)| *refusal == status) {
            metrics
                .refused
                .get_or_create(&ReasonLabels { reason })
                .inc();
        }
        let route = RouteLabels {
            route: std::mem::take(&mut self.route),
        };
        metrics
            .request_seconds
            .get_or_create(&route)
            .observe(self.started.elapsed().as_secs_f64());
        let labels = RequestLabels {
            route: route.route,
            method: std::mem::take(&mut self.method),
            status,
        };
        metrics.requests.get_or_create(&labels).inc();
    }
}

/// Watches one text being generated; dropping it before the end means that the client went away.
pub(crate) struct Answer {
    first_token: Histogram,
    between: Histogram,
    rate: Histogram,
    answers: Family<OutcomeLabels, Counter>,
    arrived: Instant,
    last: Option<Instant>,
    ended: bool,
}

impl Answer {
    /// Counts from when the request arrived, where that was before this was made.
    pub(crate) fn since(mut self, arrived: Instant) -> Answer {
        self.arrived = arrived;
        self
    }

    /// Notes an event of the engine.
    pub(crate) fn saw(&mut self, event: &Event) {
        match event {
            Event::Text { .. } => self.spoke(),
            Event::Done(finish) => self.done(finish.eval_tokens as u64, finish.eval_duration),
            Event::Error(_) | Event::DeviceLost(_) => self.failed(),
            _ => {}
        }
    }

    /// Notes that something was said.
    pub(crate) fn spoke(&mut self) {
        let now = Instant::now();
        match self.last.replace(now) {
            None => self.first_token.observe((now - self.arrived).as_secs_f64()),
            Some(last) => self.between.observe((now - last).as_secs_f64()),
        }
    }

    /// Notes the end, and how many tokens were said in what time since the first.
    pub(crate) fn done(&mut self, n_tokens: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        // The first token's time is that of the prompt.
        if n_tokens > 1 && seconds > 0.0 {
            self.rate.observe((n_tokens - 1) as f64 / seconds);
        }
        self.end("done");
    }

    /// Notes that no more will come.
    pub(crate) fn failed(&mut self) {
        self.end("failed");
    }

    fn end(&mut self, outcome: &'static str) {
        self.ended = true;
        self.answers.get_or_create(&OutcomeLabels { outcome }).inc();
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.ended {
            self.end("cancelled");
        }
    }
}

/// From a millisecond to nine minutes.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 3.0, 13))
}

/// From a tenth of a millisecond to eight seconds.
fn short_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.2, 15))
}

/// From one to eight thousand.
fn rates() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 14))
}

/// Turns OpenMetrics into the text form that every reader of Prometheus' format knows: there the
/// type of a counter belongs to the name with its ending.
fn classic(text: &str) -> String {
    let counters: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let named = ["# HELP ", "# TYPE "].iter().find_map(|head| {
            let (name, rest) = line.strip_prefix(head)?.split_once(' ')?;
            counters.contains(name).then_some((head, name, rest))
        });
        let _ = match named {
            Some((head, name, rest)) => writeln!(out, "{head}{name}_total {rest}"),
            None => writeln!(out, "{line}"),
        };
    }
    out
}

/// Statuses that mean a request was not taken.
const REFUSALS: &[(u16, &str)] = &[
    (401, "no_key"),
    (403, "forbidden"),
    (413, "too_large"),
    (429, "rate_limit"),
    (503, "busy"),
];

const KNOWN_METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(host: u64, gpu: u64) -> PlacedBytes {
        let mut bytes = PlacedBytes::host(host);
        *bytes.gpu_mut(0) = gpu;
        bytes
    }

    fn present() -> Snapshot {
        Snapshot {
            models: vec![ModelFigures {
                name: "m:latest".into(),
                weights: 7,
                kv_reserved: 5,
                kv_used: 3,
                kv_cached: 1,
                running: 2,
                waiting: 0,
                layers: 33,
                gpu_layers: 20,
            }],
            waiting: 4,
            memory: (placed(12, 3), placed(100, 50)),
        }
    }

    #[test]
    fn what_happens_is_in_the_text() {
        let metrics = Arc::new(Metrics::new());
        metrics
            .request(Some("/api/chat"), &Method::POST)
            .answered(200);
        metrics.request(None, &Method::GET).answered(404);
        drop(metrics.request(Some("/api/chat"), &Method::POST));
        metrics
            .request(Some("/api/chat"), &Method::POST)
            .answered(503);
        let mut answer = metrics.answer("m:latest");
        let text = Event::Text {
            text: "x".into(),
            tokens: Vec::new(),
        };
        answer.saw(&text);
        answer.saw(&text);
        drop(answer);
        let stats = |prompt_tokens| Stats {
            prompt_tokens,
            ..Stats::default()
        };
        metrics.engine("m:latest", &stats(0), &stats(10));
        metrics.engine("m:latest", &stats(10), &stats(15));
        let text = metrics.render(&present(), false);
        for line in [
            "# TYPE llmsrv_http_requests_total counter",
            r#"llmsrv_http_requests_total{route="/api/chat",method="POST",status="200"} 1"#,
            r#"llmsrv_http_requests_total{route="unknown",method="GET",status="404"} 1"#,
            r#"llmsrv_http_requests_total{route="/api/chat",method="POST",status="499"} 1"#,
            r#"llmsrv_refused_requests_total{reason="busy"} 1"#,
            r#"llmsrv_answers_total{outcome="cancelled"} 1"#,
            r#"llmsrv_time_to_first_token_seconds_count{model="m:latest"} 1"#,
            r#"llmsrv_inter_token_seconds_count{model="m:latest"} 1"#,
            r#"llmsrv_prompt_tokens_total{model="m:latest"} 15"#,
            r#"llmsrv_model_weights_bytes{model="m:latest"} 7"#,
            r#"llmsrv_model_sequences{model="m:latest",state="running"} 2"#,
            "llmsrv_queue_length 4",
            "llmsrv_http_requests_in_flight 0",
            "llmsrv_models_memory_limit_bytes 100",
            r#"llmsrv_models_gpu_memory_bytes{gpu="0"} 3"#,
            r#"llmsrv_models_gpu_memory_limit_bytes{gpu="0"} 50"#,
            r#"llmsrv_model_layers{model="m:latest"} 33"#,
            r#"llmsrv_model_gpu_layers{model="m:latest"} 20"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
        assert!(!text.contains("# EOF"));
        let gone = Snapshot {
            models: Vec::new(),
            ..present()
        };
        let text = metrics.render(&gone, true);
        assert!(text.ends_with("# EOF\n") && !text.contains("model_weights_bytes{"));
    }
}
