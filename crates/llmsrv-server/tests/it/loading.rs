//! Loading once for all, failing and trying again, waiting in order, staying and leaving.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use llmsrv_engine::{
    LoadError,
    fake::{self, Answer, FakeOptions},
};
use serde_json::json;

use crate::host::{configured, host, host_loading, host_with, settings};

#[tokio::test]
async fn a_model_is_loaded_once_for_all_who_wait() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let (proceed, may_proceed) = std::sync::mpsc::channel();
    let may_proceed = std::sync::Mutex::new(may_proceed);
    let host = host_loading(
        settings(),
        Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            let may_proceed = may_proceed.lock().unwrap();
            may_proceed.recv_timeout(Duration::from_secs(20)).unwrap();
            Ok(fake::loaded(FakeOptions::default()))
        }),
    );
    let wait = async {
        while host.get("/api/ps").await["queue"] != 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proceed.send(()).unwrap();
    };
    let asked = join_all((0..6).map(|_| host.ask(json!({}))));
    let (answers, ()) = tokio::join!(asked, wait);
    assert!(answers.iter().all(|(status, _)| *status == 200));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_failed_load_is_tried_again() {
    let count = AtomicUsize::new(0);
    let host = host_loading(
        settings(),
        Arc::new(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Err(LoadError::Invalid("it is cut off".into())),
            1 => panic!("the loader was told to panic"),
            _ => Ok(fake::loaded(FakeOptions::default())),
        }),
    );
    let (status, answer) = host.ask(json!({})).await;
    let text = "cannot load model 'plain:latest': invalid model file: it is cut off";
    assert_eq!((status, answer), (500, json!({"error": text})));
    assert_eq!(host.get("/api/ps").await["models"], json!([]));
    let (status, answer) = host.ask(json!({})).await;
    assert_eq!((status, answer), (500, json!({"error": "internal error"})));
    assert_eq!(host.ask(json!({})).await.0, 200);
}

#[tokio::test]
async fn loading_may_take_so_long_and_no_longer() {
    let hasty = configured(|config| config.load_timeout = Some(Duration::from_millis(20)));
    let (proceed, may_proceed) = std::sync::mpsc::channel::<()>();
    let may_proceed = std::sync::Mutex::new(may_proceed);
    let host = host_loading(
        hasty,
        Arc::new(move |_, _| {
            // Those after the first need not wait: nobody holds the other end any more.
            let _ = may_proceed
                .lock()
                .unwrap()
                .recv_timeout(Duration::from_secs(20));
            Ok(fake::loaded(FakeOptions::default()))
        }),
    );
    let (status, answer) = host.ask(json!({})).await;
    let text = "timed out waiting for the model to load";
    assert_eq!((status, answer), (500, json!({"error": text})));
    drop(proceed);
    let later = async { while host.ask(json!({})).await.0 != 200 {} };
    tokio::time::timeout(Duration::from_secs(20), later)
        .await
        .expect("the model is there in the end");
}

#[tokio::test]
async fn requests_are_answered_in_the_order_of_their_arrival() {
    let one = configured(|config| config.num_parallel = 1);
    let host = host_with(one, || FakeOptions {
        answer: Answer::Endless,
        step_delay: Duration::from_millis(20),
        ..FakeOptions::default()
    });
    host.post("/api/generate", json!({"model": "plain"})).await;
    let mut waiting = FuturesUnordered::new();
    for number in 0..5 {
        let n_tokens = if number == 0 { 100 } else { 1 };
        let mut asked = Box::pin(host.ask(json!({"options": {"num_predict": n_tokens}})));
        // The next one comes when this one stands in line.
        loop {
            let early = tokio::time::timeout(Duration::from_millis(10), &mut asked).await;
            assert!(early.is_err(), "{early:?}");
            if host.get("/api/ps").await["queue"] == number {
                break;
            }
        }
        waiting.push(async move { (number, asked.await.0) });
    }
    let mut order = Vec::new();
    while let Some((number, status)) = waiting.next().await {
        assert_eq!(status, 200);
        order.push(number);
    }
    assert!(order.is_sorted(), "{order:?}");
}

#[tokio::test]
async fn a_model_stays_as_long_as_the_last_word_on_it_says() {
    let host = host();
    for (keep_alive, centuries) in [(json!("5m"), false), (json!(-1), true), (json!(null), true)] {
        let (status, _) = host.ask(json!({"keep_alive": keep_alive})).await;
        assert_eq!(status, 200);
        let ps = host.get("/api/ps").await;
        let expires = ps["models"][0]["expires_at"].as_str().unwrap();
        assert_eq!(expires > "2200", centuries, "{keep_alive}: {expires}");
    }
    host.ask(json!({"keep_alive": "0"})).await;
    let gone = async {
        while host.get("/api/ps").await["models"] != json!([]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone)
        .await
        .expect("zero means right after the answer");
}
