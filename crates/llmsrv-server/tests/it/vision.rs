//! Images over HTTP, with the fake model: what is asked about them and what is refused.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use llmsrv_engine::{
    Loader,
    fake::{self, Answer, FakeOptions},
};
use serde_json::{Value, json};

use crate::host::{Host, host, host_loading, host_with, settings};

/// A host whose model says random letters, other ones for each prompt; an image has 16 rows.
fn seeing() -> Host {
    host_with(settings(), || FakeOptions {
        image_rows: 16,
        answer: Answer::Random,
        ..FakeOptions::default()
    })
}

fn image(content: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(format!("image of {content}"))
}

fn chat(images: &[String], options: Value) -> Value {
    json!({
        "model": "plain", "stream": false, "options": options,
        "messages": [{"role": "user", "content": "what is it?", "images": images}],
    })
}

#[tokio::test]
async fn an_image_is_part_of_the_prompt() {
    let host = seeing();
    let options = json!({"num_predict": 20});
    let ask = async |images: &[String]| {
        let (status, answer) = host.post("/api/chat", chat(images, options.clone())).await;
        assert_eq!(status, 200, "{answer}");
        (
            answer["message"]["content"].as_str().unwrap().to_owned(),
            answer["prompt_eval_count"].as_u64().unwrap(),
        )
    };
    let (without, n_without) = ask(&[]).await;
    let (cat, n_cat) = ask(&[image("a cat")]).await;
    let (dog, n_dog) = ask(&[image("a dog")]).await;
    assert_eq!((n_cat, n_dog), (n_without + 18, n_without + 18));
    assert!(cat != dog && cat != without, "{cat} {dog} {without}");
    assert_eq!(ask(&[image("a cat")]).await.0, cat);
    let data_url = format!("data:image/png;base64,{}", image("a cat"));
    assert_eq!(ask(&[data_url]).await.0, cat);
    let (_, n_large) = ask(&[image("a cat++")]).await;
    assert_eq!(
        n_large,
        n_without + 3 * 16 + 2,
        "larger ones take more rows"
    );
    let (both, n_both) = ask(&[image("a cat"), image("a dog")]).await;
    let (turned, _) = ask(&[image("a dog"), image("a cat")]).await;
    assert_eq!(n_both, n_without + 36);
    assert_ne!(both, turned, "the order counts");

    // In lines, as `base64` writes it.
    let (line, rest) = image("a cat")
        .split_at_checked(5)
        .map(|(line, rest)| (line.to_owned(), rest.to_owned()))
        .unwrap();
    assert_eq!(
        ask(&[format!("{line}\r\n{rest}\n")]).await,
        (cat.clone(), n_cat)
    );

    // The other endpoints, and the tag of a raw prompt.
    let (status, answer) = host
        .post(
            "/api/generate",
            json!({
                "model": "plain", "raw": true, "stream": false, "options": options,
                "prompt": "see [img-0] here", "images": [image("a cat")],
            }),
        )
        .await;
    assert_eq!(
        (status, &answer["prompt_eval_count"]),
        (200, &json!(9 + 18))
    );
    let (status, answer) = host
        .post(
            "/v1/chat/completions",
            json!({"model": "plain", "max_tokens": 20, "temperature": 0, "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", image("a cat"))}},
                {"type": "text", "text": "what is it?"},
            ]}]}),
        )
        .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["message"]["content"], cat);
    assert_eq!(answer["usage"]["prompt_tokens"], n_cat);
}

#[tokio::test]
async fn tokens_of_images_are_counted() {
    let host = seeing();
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image("a cat")}});
    let text = json!({"type": "text", "text": "what is it?"});
    let count = async |content: Value| {
        let body = json!({"model": "plain", "max_tokens": 1, "messages": [{"role": "user", "content": content}]});
        let (status, counted) = host.post("/v1/messages/count_tokens", body.clone()).await;
        assert_eq!(status, 200, "{counted}");
        let (_, answer) = host.post("/v1/messages", body).await;
        let counted = counted["input_tokens"].as_u64().unwrap();
        assert_eq!(answer["usage"]["input_tokens"], counted, "{answer}");
        counted
    };
    let without = count(json!([text])).await;
    assert_eq!(count(json!([picture, text])).await, without + 18);
}

#[tokio::test]
async fn images_that_cannot_be_read_are_refused() {
    let host = seeing();
    let error = async |images: &[String]| {
        let (status, answer) = host.post("/api/chat", chat(images, json!({}))).await;
        (
            status,
            answer["error"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let no_image = base64::engine::general_purpose::STANDARD.encode("something else");
    assert_eq!(
        error(&[no_image]).await,
        (400, "invalid image: no image".into())
    );
    for (data, at) in [("abc!", 3), ("a\nb\r\nc!", 6), ("abc", 3), ("ab\n c", 3)] {
        let text = format!("illegal base64 data at input byte {at}");
        assert_eq!(error(&[data.into()]).await, (400, text), "{data:?}");
    }
    let many = vec![image("a cat"); 1000];
    let (status, text) = error(&many).await;
    assert_eq!(status, 400);
    assert!(
        text.starts_with("the prompt is longer than the context"),
        "{text}"
    );

    let blind = self::host();
    let (status, answer) = blind
        .post("/api/chat", chat(&[image("a cat")], json!({})))
        .await;
    assert_eq!(status, 400);
    assert_eq!(answer["error"], "\"plain\" does not support images");
}

/// Old messages go with their images; an image of what is asked now never does. Each counts the rows that it has.
#[tokio::test]
async fn truncation_drops_whole_images() {
    let host = seeing();
    // The sizes are those of old images, the oldest first, in rows: 16 for each sign and for none.
    let talk = |old: &[usize], content: &str| {
        let old = old.iter().map(|n_rows| image(&"+".repeat(n_rows / 16 - 1)));
        let mut messages: Vec<Value> = old
            .map(|image| json!({"role": "user", "content": "old", "images": [image]}))
            .collect();
        messages.push(json!({"role": "user", "content": content, "images": [image("now")]}));
        json!({"model": "plain", "stream": false, "options": {"num_predict": 1, "num_ctx": 2048}, "messages": messages})
    };
    let ask = async |old: &[usize]| {
        let (status, answer) = host.post("/api/chat", talk(old, "new")).await;
        assert_eq!(status, 200, "{answer}");
        (
            answer["prompt_eval_count"].as_u64().unwrap(),
            answer["prompt_truncated"].as_u64().unwrap_or(0),
        )
    };
    let (n_none, _) = ask(&[]).await;
    // Beside the rows: `<>` around them, and `old` with two line breaks, for messages of one role are joined.
    let n_old = |n_rows: u64| n_rows + 7;
    for (old, n_dropped) in [
        (&[16, 16, 16][..], 0),
        (&[1024], 0),
        (&[1024, 1024], 1),
        (&[1024, 1024, 16], 1),
        (&[2048, 16, 16], 1),
    ] {
        let (dropped, kept) = old.split_at(n_dropped);
        let (n_tokens, n_truncated) = ask(old).await;
        let n_kept: u64 = kept.iter().map(|n_rows| n_old(*n_rows as u64)).sum();
        assert_eq!(n_tokens, n_none + n_kept, "{old:?}");
        // The text stood for the image when the prompt was measured.
        let n_gone: u64 = dropped.iter().map(|n_rows| n_old(*n_rows as u64)).sum();
        let about = n_gone..=n_gone + 10;
        assert!(
            n_dropped == 0 || about.contains(&n_truncated),
            "{old:?}: {n_truncated}"
        );
        assert!(n_dropped > 0 || n_truncated == 0, "{old:?}: {n_truncated}");
    }
    let (status, answer) = host
        .post("/api/chat", talk(&[], &"long ".repeat(600)))
        .await;
    assert_eq!(status, 400, "{answer}");
}

/// Whether the loader knows the encoder in a file is a fact about the file.
#[tokio::test]
async fn models_with_an_encoder_in_their_file_see() {
    let host = host_with(settings(), FakeOptions::default);
    let sees = async |architecture: &str, layers: Option<u32>| {
        let mut metadata = llmsrv_gguf::Metadata::new();
        metadata.set("general.architecture", architecture);
        metadata.set("tokenizer.ggml.model", "gpt2");
        metadata.set("tokenizer.ggml.tokens", vec!["a", "b"]);
        metadata.set("tokenizer.ggml.merges", Vec::<&str>::new());
        if let Some(layers) = layers {
            metadata.set(format!("{architecture}.vision.block_count"), layers);
        }
        let file = llmsrv_gguf::Writer::new(metadata).to_bytes().unwrap();
        let name = format!("within-{architecture}");
        host.put(&name, &file);
        let (_, shown) = host.post("/api/show", json!({"model": name})).await;
        let listed = host.get("/api/tags").await;
        let listed = listed["models"].as_array().unwrap();
        let listed = listed
            .iter()
            .find(|it| it["name"] == format!("{name}:latest"));
        let of = |shown: &Value| {
            let capabilities = shown["capabilities"].as_array().unwrap();
            capabilities.contains(&json!("vision"))
        };
        assert_eq!(of(&shown), of(listed.unwrap()), "{architecture}");
        of(&shown)
    };
    assert!(sees("seeing", Some(2)).await);
    assert!(!sees("blind", Some(2)).await);
    assert!(!sees("plain", None).await);
}

#[tokio::test]
async fn the_loader_gets_the_projector_and_show_tells_of_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let loader: Loader = {
        let seen = seen.clone();
        Arc::new(move |_, options| {
            seen.lock().unwrap().push(options.projector.is_some());
            Ok(fake::loaded(FakeOptions::default()))
        })
    };
    let host = host_loading(settings(), loader);
    let capabilities = async |model: &str| {
        let (_, shown) = host.post("/api/show", json!({"model": model})).await;
        (
            shown["capabilities"]
                .as_array()
                .unwrap()
                .contains(&json!("vision")),
            shown["projector_info"]["clip.projector_type"].clone(),
        )
    };
    assert_eq!(capabilities("plain").await, (false, Value::Null));
    assert_eq!(capabilities("seer").await, (true, json!("mlp")));
    for model in ["plain", "seer"] {
        host.post("/api/generate", json!({"model": model, "prompt": ""}))
            .await;
    }
    assert_eq!(*seen.lock().unwrap(), [false, true]);
}
