//! Who waits, who makes room for whom, and how long an idle model stays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use http::Method;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use llmsrv_engine::{
    Loaded, Loader, Model, ModelError, ModelSpec, StepPlan,
    fake::{self, Answer, FakeOptions},
};
use llmsrv_gguf::{Metadata, TensorType, Writer};
use serde_json::{Value, json};

use crate::host::{Host, configured, host_loading, host_with};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for what must come true.
async fn until(host: &Host, what: &str, condition: impl Fn(&Value, &[String]) -> bool) {
    let come_true = async {
        loop {
            let (ps, loaded) = (host.get("/api/ps").await, host.loaded().await);
            if condition(&ps, &loaded) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, come_true)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

async fn load(host: &Host, model: &str) -> (u16, Value) {
    host.post("/api/generate", json!({"model": model})).await
}

#[tokio::test]
async fn a_newcomer_does_not_overtake_one_who_waits() {
    let one = configured(|config| config.num_parallel = 1);
    let host = host_with(one, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(2),
        ..FakeOptions::default()
    });
    load(&host, "plain").await;
    let ask = |n: usize| host.ask(json!({"options": {"num_predict": n}}));
    let figure = "llmsrv_model_sequences{model=\"plain:latest\",state=\"running\"} 1";
    for _ in 0..10 {
        let order = std::sync::Mutex::new(Vec::new());
        let first = async {
            ask(50).await;
            // The turn is free for the one who waits; this one comes at the same moment.
            ask(1).await;
            order.lock().unwrap().push("newcomer");
        };
        let second = async {
            while !host
                .text(Method::GET, "/metrics", "")
                .await
                .1
                .contains(figure)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ask(1).await;
            order.lock().unwrap().push("waiter");
        };
        tokio::join!(first, second);
        assert_eq!(*order.lock().unwrap(), ["waiter", "newcomer"]);
    }
}

#[tokio::test]
async fn those_who_wait_for_a_load_are_counted_and_bounded() {
    let narrow = configured(|config| config.max_queue = 2);
    let (proceed, may_proceed) = std::sync::mpsc::channel();
    let may_proceed = std::sync::Mutex::new(may_proceed);
    let host = host_loading(
        narrow,
        Arc::new(move |_, _| {
            may_proceed.lock().unwrap().recv_timeout(TIMEOUT).unwrap();
            Ok(fake::loaded(FakeOptions::default()))
        }),
    );
    let mut asked: FuturesUnordered<_> = (0..6).map(|_| host.ask(json!({}))).collect();
    let mut answers = Vec::new();
    while answers.len() < 3 {
        answers.push(asked.next().await.unwrap());
    }
    proceed.send(()).unwrap();
    answers.extend(asked.collect::<Vec<_>>().await);
    let n_busy = answers.iter().filter(|(status, _)| *status == 503).count();
    assert_eq!(n_busy, 3, "one brings the model in, two wait: {answers:?}");
    assert!(
        answers
            .iter()
            .all(|(status, _)| [200, 503].contains(status))
    );
    assert_eq!(host.get("/api/ps").await["queue"], 0);
}

#[tokio::test]
async fn one_who_gives_up_waiting_leaves_the_queue() {
    let one = configured(|config| {
        config.num_parallel = 1;
        config.max_queue = 1;
        config.max_loaded_models = 1;
    });
    let host = host_with(one, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(2),
        ..FakeOptions::default()
    });
    let body = json!({"model": "plain", "prompt": "x"}).to_string();
    let busy = host.send(Method::POST, "/api/generate", &[], body).await;
    for model in ["plain", "filler"] {
        let impatient = host.ask(json!({"model": model}));
        let given_up = tokio::time::timeout(Duration::from_millis(50), impatient).await;
        assert!(given_up.is_err(), "{given_up:?}");
        until(&host, "its place is free", |ps, _| ps["queue"] == 0).await;
    }
    until(&host, "nobody waits for filler any more", |_, loaded| {
        loaded == ["plain"]
    })
    .await;
    drop(busy);
    let (status, _) = host.ask(json!({"options": {"num_predict": 1}})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn the_model_unused_longest_makes_room() {
    let two = configured(|config| config.max_loaded_models = 2);
    let host = host_with(two, FakeOptions::default);
    for model in ["plain", "filler", "plain", "thinker"] {
        assert_eq!(load(&host, model).await.0, 200);
    }
    assert_eq!(host.loaded().await, ["plain", "thinker"]);
}

#[tokio::test]
async fn a_model_in_use_or_pinned_makes_room_for_nobody() {
    let two = configured(|config| config.max_loaded_models = 2);
    let host = host_with(two, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(2),
        ..FakeOptions::default()
    });
    let pin =
        |model: &'static str| host.post("/api/generate", json!({"model": model, "keep_alive": -1}));
    assert_eq!(pin("plain").await.0, 200);
    // In use: the third waits until it is not.
    let body = json!({"model": "filler", "prompt": "x"}).to_string();
    let mut busy = host
        .send(Method::POST, "/api/generate", &[], body)
        .await
        .into_body();
    busy.frame().await.unwrap().unwrap();
    let mut third = Box::pin(load(&host, "thinker"));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut third).await;
    assert!(early.is_err(), "{early:?}");
    drop(busy);
    assert_eq!(third.await.0, 200);
    assert_eq!(host.loaded().await, ["plain", "thinker"]);
    // Pinned: nobody will ever make room, so the third is refused.
    assert_eq!(pin("thinker").await.0, 200);
    let (status, answer) = load(&host, "filler").await;
    let text = answer["error"].as_str().unwrap();
    assert!(
        status == 503 && text.contains("'filler:latest'"),
        "{answer}"
    );
    assert_eq!(host.loaded().await, ["plain", "thinker"]);
    // Until one is not pinned any more.
    host.post(
        "/api/generate",
        json!({"model": "plain", "keep_alive": 300}),
    )
    .await;
    assert_eq!(load(&host, "filler").await.0, 200);
    assert_eq!(host.loaded().await, ["filler", "thinker"]);
}

/// A model file with so many bytes of weights.
fn weighing(bytes: usize, name: &str) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("general.basename", name);
    for (key, value) in [
        ("block_count", 2_u32),
        ("embedding_length", 64),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("context_length", 128),
    ] {
        metadata.set(format!("llama.{key}"), value);
    }
    let mut writer = Writer::new(metadata);
    writer
        .tensor("w", &[bytes as u64 / 4], TensorType::F32, vec![0; bytes])
        .unwrap();
    writer.to_bytes().unwrap()
}

/// Two layers, two heads for keys and for values of 16, which take a tile of 32, 128 positions of two bytes.
const KV: usize = 2 * 2 * (32 + 32) * 128 * 2;

fn host_within(limit: usize) -> Host {
    let limited = configured(|config| config.memory_limit = Some(limit as u64));
    let host = host_with(limited, || FakeOptions {
        weight_bytes: 100_000,
        context_length: 128,
        ..FakeOptions::default()
    });
    for name in ["a", "b", "c"] {
        host.put(name, &weighing(100_000, name));
    }
    host
}

#[tokio::test]
async fn idle_models_make_room_for_memory() {
    let host = host_within(2 * (100_000 + KV));
    for (model, loaded) in [
        ("a", &["a"][..]),
        ("b", &["a", "b"]),
        ("a", &["a", "b"]),
        ("c", &["a", "c"]),
    ] {
        assert_eq!(host.ask(json!({"model": model})).await.0, 200);
        assert_eq!(host.loaded().await, loaded);
    }
}

#[tokio::test]
async fn a_model_that_can_never_fit_is_refused_with_the_numbers() {
    let host = host_within(100_000);
    host.put("large", &weighing(3 << 30 >> 8, "large"));
    let (status, answer) = host.ask(json!({"model": "large"})).await;
    let text = answer["error"].as_str().unwrap();
    assert!(
        status == 500
            && text.starts_with(
                "model requires more system memory (0.01 GiB) than is available (0.00 GiB)"
            )
            && text.contains("LLMSRV_MEMORY_LIMIT"),
        "{answer}"
    );
    assert_eq!(host.loaded().await, Vec::<String>::new());
    let exact = host_within(100_000 + KV);
    assert_eq!(exact.ask(json!({"model": "a"})).await.0, 200);
    let short = host_within(100_000 + KV - 1);
    assert_eq!(short.ask(json!({"model": "a"})).await.0, 500);
}

#[tokio::test]
async fn idle_models_make_room_for_a_growing_cache() {
    // Room for one model as loaded and another as its file says; caches of one context are small.
    let loaded = 100_000 + 64 * 16;
    let limited = configured(|config| {
        config.memory_limit = Some((loaded + 100_000 + KV / 2) as u64);
        config.context_length = 64;
    });
    let host = host_with(limited, || FakeOptions {
        weight_bytes: 100_000,
        ..FakeOptions::default()
    });
    for name in ["a", "b"] {
        host.put(name, &weighing(100_000, name));
        assert_eq!(host.ask(json!({"model": name})).await.0, 200);
    }
    assert_eq!(host.loaded().await, ["a", "b"]);
    let long = json!({"model": "a", "prompt": "x".repeat(3000), "raw": true, "options": {"num_ctx": 4096}});
    let (status, answer) = host.ask(long).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(host.loaded().await, ["a"]);
    // Alone it has what it can have, and not more.
    let longer = json!({"model": "a", "prompt": "y".repeat(9000), "raw": true, "options": {"num_ctx": 9999}});
    assert_ne!(host.ask(longer).await.0, 500);
}

/// A model that takes its time to give its memory back.
struct Sticky {
    model: Box<dyn Model>,
    alive: Arc<AtomicUsize>,
}

impl Model for Sticky {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        self.model.reserve_blocks(n_blocks)
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        self.model.forward(plan, logits)
    }
}

impl Drop for Sticky {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(60));
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn the_next_model_comes_when_the_memory_is_really_free() {
    let alive = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (counted, seen) = (alive.clone(), most.clone());
    let loader: Loader = Arc::new(move |_, _| {
        let n = counted.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(n, Ordering::SeqCst);
        let Loaded {
            model,
            draft,
            tokenizer,
            vision,
        } = fake::loaded(FakeOptions::default());
        let alive = counted.clone();
        Ok(Loaded {
            vision,
            draft,
            model: Box::new(Sticky { model, alive }),
            tokenizer,
        })
    });
    let one = configured(|config| config.max_loaded_models = 1);
    let host = host_loading(one, loader);
    for model in ["plain", "filler", "plain"] {
        assert_eq!(host.ask(json!({"model": model})).await.0, 200);
    }
    // The same model, unloaded and wanted again at once.
    host.ask(json!({"keep_alive": 0})).await;
    assert_eq!(host.ask(json!({})).await.0, 200);
    assert_eq!(most.load(Ordering::SeqCst), 1, "never two in memory");
}

#[tokio::test]
async fn keep_alive_is_what_the_last_request_said() {
    let short = configured(|config| config.keep_alive = Some(Duration::from_millis(60)));
    let host = host_with(short, FakeOptions::default);
    // What requests say one after the other, and whether the model stays for at least a minute then.
    for (said, stays) in [
        (vec![json!(null)], false),
        (vec![json!("80ms")], false),
        (vec![json!(0.08)], false),
        (vec![json!("0.08")], false),
        (vec![json!(100)], true),
        (vec![json!("100")], true),
        (vec![json!("1d")], true),
        (vec![json!("1h30m")], true),
        (vec![json!(-1)], true),
        (vec![json!("-1")], true),
        (vec![json!("-5m")], true),
        (vec![json!(0)], false),
        (vec![json!("0")], false),
        (vec![json!("0s")], false),
        // A request that says nothing changes nothing.
        (vec![json!(100), json!(null)], true),
        (vec![json!(-1), json!(null)], true),
        (vec![json!(-1), json!("80ms")], false),
        (vec![json!("80ms"), json!(null), json!(100)], true),
    ] {
        for keep_alive in &said {
            let (status, _) = host.ask(json!({"keep_alive": keep_alive})).await;
            assert_eq!(status, 200);
        }
        if stays {
            let in_a_minute = Timestamp::now() + Duration::from_mins(1);
            let ps = host.get("/api/ps").await;
            let expires_at = ps["models"][0]["expires_at"].as_str();
            let expires_at: Timestamp = expires_at.unwrap().parse().unwrap();
            assert!(expires_at > in_a_minute, "{said:?}: {expires_at}");
            let ask = json!({"model": "plain", "keep_alive": 0});
            host.post("/api/generate", ask).await;
        }
        let gone = format!("it leaves after {said:?}");
        until(&host, &gone, |_, loaded| loaded.is_empty()).await;
    }
}

#[tokio::test]
async fn the_idle_time_begins_with_the_end_of_the_last_answer() {
    let short = configured(|config| config.keep_alive = Some(Duration::from_millis(20)));
    let host = host_with(short, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(5),
        ..FakeOptions::default()
    });
    let (status, answer) = host.ask(json!({"options": {"num_predict": 40}})).await;
    assert_eq!((status, &answer["eval_count"]), (200, &json!(40)));
    until(&host, "it leaves", |_, loaded| loaded.is_empty()).await;
}
