//! The same request with a seed gives the same text, whatever runs beside it.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::util::{Sandbox, Server};

async fn text(server: &Server, prompt: &str, seed: u64) -> String {
    let request = json!({
        "model": "default", "prompt": prompt, "stream": false,
        // Hot enough that two different seeds differ.
        "options": {"seed": seed, "temperature": 5.0, "top_k": 0, "top_p": 1.0, "num_predict": 60},
    });
    let answer: Value = server.post("/api/generate", &request).await.ok();
    answer["response"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_seed_fixes_the_text_alone_and_in_company() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &[("LLMSRV_NUM_PARALLEL", "8")]);
    let prompt = "Write a Python function that reverses a string.";
    let expected = text(&server, prompt, 42).await;
    assert_ne!(
        expected,
        text(&server, prompt, 43).await,
        "the seed matters"
    );
    for _ in 0..10 {
        assert_eq!(text(&server, prompt, 42).await, expected);
    }
    for round in 0..10 {
        let others = (0..7).map(|i| {
            let server = &server;
            async move {
                text(
                    server,
                    &format!("{i} {} why is the sky blue", "very ".repeat(i * 9)),
                    round * 7 + i as u64,
                )
                .await
            }
        });
        let (mine, _) = tokio::join!(text(&server, prompt, 42), join_all(others));
        assert_eq!(mine, expected, "round {round}");
    }
}
