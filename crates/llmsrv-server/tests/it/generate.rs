//! `/api/generate` and `/api/chat`: the shape of their answers, options, prompts and limits.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Method;
use llmsrv_engine::{
    Speculation,
    fake::{self, Answer, FakeOptions},
};
use llmsrv_server::Settings;
use serde_json::{Value, json};

use crate::host::{Host, host, host_loading, host_with, saying, settings};

/// Letters that depend on everything before, and on the seed where there is a temperature.
fn random() -> Host {
    host_with(settings(), || FakeOptions {
        answer: Answer::Random,
        ..FakeOptions::default()
    })
}

async fn lines(host: &Host, path: &str, body: &Value) -> Vec<Value> {
    let (status, text) = host.text(Method::POST, path, body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let parsed = text.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The names of the members of an object, in their order.
fn members(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

const COUNTERS: [&str; 6] = [
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
];

#[tokio::test]
async fn pieces_and_the_end_have_just_their_members() {
    let host = saying("Yes, no.");
    for (path, said, last_extra) in [
        ("/api/generate", "response", Some("context")),
        ("/api/chat", "message", None),
    ] {
        let body = json!({"model": "plain", "prompt": "x", "messages": [user("x")]});
        let lines = lines(&host, path, &body).await;
        let (last, before) = lines.split_last().unwrap();
        for line in before {
            assert_eq!(members(line), ["model", "created_at", said, "done"]);
            let at = line["created_at"].as_str().unwrap();
            assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
        }
        let fixed = ["model", "created_at", said, "done", "done_reason"];
        let expected: Vec<&str> = fixed
            .into_iter()
            .chain(last_extra)
            .chain(COUNTERS)
            .collect();
        assert_eq!(members(last), expected);
        let count = |name: &str| last[name].as_u64().unwrap();
        assert!(count("total_duration") >= count("load_duration"));
        assert!(count("total_duration") >= count("prompt_eval_duration") + count("eval_duration"));
        assert_eq!(count("eval_count"), "Yes, no.".len() as u64 + 1);
        let empty = if said == "message" {
            json!({"role": "assistant", "content": ""})
        } else {
            json!("")
        };
        assert_eq!(last[said], empty);
    }
}

#[tokio::test]
async fn the_whole_prompt_counts_whatever_was_computed_before() {
    let host = saying("ok");
    let ask = || host.ask(json!({"prompt": "the same long prompt ".repeat(20)}));
    let counts = |answer: &Value| answer["prompt_eval_count"].as_u64().unwrap();
    let (first, second) = (ask().await.1, ask().await.1);
    assert!(counts(&first) > 400);
    assert_eq!(counts(&first), counts(&second));
}

#[tokio::test]
async fn loading_and_unloading_are_one_object() {
    let host = host();
    let chat = json!({"role": "assistant", "content": ""});
    for (keep_alive, reason) in [(json!("1m"), "load"), (json!(0), "unload")] {
        for (path, said, empty) in [
            ("/api/generate", "response", json!("")),
            ("/api/chat", "message", chat.clone()),
        ] {
            let body =
                json!({"model": "Plain", "prompt": "", "messages": [], "keep_alive": keep_alive});
            let (status, mut answer) = host.post(path, body).await;
            assert_eq!(status, 200, "{answer}");
            assert!(answer["created_at"].is_string());
            answer.as_object_mut().unwrap().remove("created_at");
            let expected =
                json!({"model": "Plain", said: empty, "done": true, "done_reason": reason});
            assert_eq!(answer, expected);
        }
    }
}

#[tokio::test]
async fn a_prompt_can_be_looked_at() {
    let host = host();
    let (status, mut shown) = host
        .ask(json!({"prompt": "hi", "_debug_render_only": true, "stream": true}))
        .await;
    assert_eq!(status, 200);
    shown.as_object_mut().unwrap().remove("created_at");
    let prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(
        shown,
        json!({"model": "plain", "response": "", "done": false,
            "_debug_info": {"rendered_template": prompt, "image_count": 0}})
    );
}

/// Shows the prompt of a chat with `model`, one message of which is `first`.
async fn shown(host: &Host, body: Value) -> String {
    let mut body = body;
    body["_debug_render_only"] = json!(true);
    let (status, answer) = host.post("/api/chat", body).await;
    assert_eq!(status, 200, "{answer}");
    answer["_debug_info"]["rendered_template"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn roles_are_any_words_in_lower_case() {
    let host = host();
    let messages = json!([{"role": "Tool", "content": "1"}, {"role": "critic", "content": "2"}, {"role": "TOOL", "content": "3"}, {"role": "tool", "content": "4"}]);
    assert_eq!(
        shown(
            &host,
            json!({"model": "plain", "messages": messages, "tools": []})
        )
        .await,
        "<|im_start|>tool\n1<|im_end|>\n<|im_start|>critic\n2<|im_end|>\n<|im_start|>tool\n3<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n",
        "results of tools are not joined"
    );
    for (message, text) in [
        (
            json!({"role": "user", "content": [{"type": "text", "text": "x"}]}),
            "content must be a string",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
            "arguments must be an object",
        ),
        (json!({"role": 5}), "role must be a string"),
        (json!("x"), "messages must be a list of objects"),
    ] {
        let got = host
            .post(
                "/api/chat",
                json!({"model": "plain", "messages": [message]}),
            )
            .await;
        assert_eq!(got, (400, json!({"error": text})));
    }
}

#[tokio::test]
async fn a_model_that_can_think_does_unless_told_not_to() {
    let host = host();
    let (status, made) = host
        .post(
            "/api/create",
            json!({"model": "asked", "from": "thinker", "stream": false,
                "template": "{{ .IsThinkSet }} {{ .Think }} {{ .ThinkLevel }}{{ range .Messages }}{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ end }}"}),
        )
        .await;
    assert_eq!(status, 200, "{made}");
    for (think, expected) in [
        (json!(null), "true true medium"),
        (json!(true), "true true medium"),
        (json!(false), "true false "),
        (json!("low"), "true true low"),
        (json!("high"), "true true high"),
        (json!("max"), "true true max"),
    ] {
        let body = json!({"model": "asked", "messages": [user("x")], "think": think});
        assert_eq!(shown(&host, body).await, expected, "{think}");
    }
    // gpt-oss knows three levels.
    let order = json!({"model": "channels", "from": "thinker", "stream": false,
        "template": "{{ .ThinkLevel }}{{ range .Messages }}<|channel|><|message|>{{ end }}"});
    assert_eq!(host.post("/api/create", order).await.0, 200);
    for (think, expected) in [("max", "high"), ("high", "high"), ("low", "low")] {
        let body = json!({"model": "channels", "messages": [user("x")], "think": think});
        let prompt = format!("{expected}<|channel|><|message|>");
        assert_eq!(shown(&host, body).await, prompt, "{think}");
    }
    for think in [json!(true), json!("low"), json!("max")] {
        for (path, body) in [
            ("/api/generate", json!({"prompt": "x"})),
            ("/api/chat", json!({"messages": [user("x")]})),
        ] {
            let mut body = body;
            body["model"] = json!("plain");
            body["think"] = think.clone();
            let got = host.post(path, body).await;
            let text = json!({"error": "\"plain\" does not support thinking"});
            assert_eq!(got, (400, text), "{path} {think}");
        }
    }
    let body = json!({"model": "plain", "messages": [user("x")], "think": false, "stream": false});
    assert_eq!(host.post("/api/chat", body).await.0, 200);
}

#[tokio::test]
async fn tools_keep_the_order_of_their_properties() {
    let host = host();
    let tools = json!([{"type": "function", "function": {"name": "f", "description": "d", "parameters":
        {"type": "object", "properties": {"zulu": {"type": "string"}, "alpha": {"type": ["string", "null"], "enum": ["x"]}}, "required": ["zulu"], "$defs": {"n": {"type": "integer"}}}}}]);
    let prompt = shown(
        &host,
        json!({"model": "caller", "messages": [user("x")], "tools": tools}),
    )
    .await;
    let at = |text: &str| prompt.find(text).unwrap_or_else(|| panic!("{prompt}"));
    assert!(at("zulu") < at("alpha"), "{prompt}");
    assert!(prompt.contains(r#""required":["zulu"]"#), "{prompt}");
}

#[tokio::test]
async fn the_thinking_of_earlier_answers_is_removed_for_models_that_want_it() {
    let host = host();
    for name in ["deepseek-r1", "other"] {
        let copy = json!({"source": "plain", "destination": name});
        assert_eq!(host.post("/api/copy", copy).await.0, 200);
        let messages = json!([user("a"), {"role": "assistant", "content": "<think>hm</think>\n\nb"}, user("c")]);
        let prompt = shown(&host, json!({"model": name, "messages": messages})).await;
        assert_eq!(prompt.contains("hm"), name == "other", "{prompt}");
    }
}

#[tokio::test]
async fn the_oldest_messages_go_first_and_system_and_last_stay() {
    let host = host();
    let word = "word ".repeat(20);
    let mut messages = vec![json!({"role": "system", "content": "Stay."})];
    for n in 0..10 {
        messages.push(json!({"role": "user", "content": format!("q{n} {word}")}));
        messages.push(json!({"role": "assistant", "content": format!("a{n} {word}")}));
    }
    messages.push(user("The last one."));
    let body = json!({"model": "plain", "messages": messages, "options": {"num_ctx": 400}});
    let prompt = shown(&host, body.clone()).await;
    assert!(prompt.contains("Stay.") && prompt.contains("The last one."));
    assert!(
        !prompt.contains("q0 ") && !prompt.contains("a5 "),
        "{prompt}"
    );
    assert!(prompt.contains("a9 "), "{prompt}");
    let mut whole = body;
    whole["truncate"] = json!(false);
    assert!(shown(&host, whole).await.contains("q0 "));
}

/// An answer needs room, so a prompt as long as the context does not fit.
#[tokio::test]
async fn old_messages_go_before_the_last_one_is_cut() {
    let host = saying("ok");
    let (old, last) = (user("An old one."), user("The last one of them."));
    let ask = async |messages: &[&Value], options: Value| {
        let body = json!({"model": "plain", "stream": false, "shift": false, "messages": messages, "options": options});
        let (status, answer) = host.post("/api/chat", body).await;
        assert_eq!(status, 200, "{answer}");
        answer["prompt_eval_count"].as_u64().unwrap()
    };
    let n_all = ask(&[&old, &last], json!({})).await;
    let n_last = ask(&[&last], json!({})).await;
    for (num_ctx, expected) in [(n_all + 1, n_all), (n_all, n_last), (n_all - 1, n_last)] {
        let n_tokens = ask(&[&old, &last], json!({"num_ctx": num_ctx})).await;
        assert_eq!(n_tokens, expected, "{num_ctx} of {n_all}");
    }
}

#[tokio::test]
async fn a_prompt_is_cut_in_the_middle_to_the_size_of_the_rule() {
    let host = saying("ok");
    let text = "word ".repeat(100);
    for (num_ctx, num_keep, expected) in [
        (100, json!(null), 100 - (100 - 4) / 2),
        (100, json!(10), 100 - (100 - 10) / 2),
        (100, json!(0), 50),
        (64, json!(1000), 64 - 1),
        // All of it, as far as the rest leaves room to go on.
        (100, json!(-1), 100 - 25 / 2),
    ] {
        let options = json!({"num_ctx": num_ctx, "num_keep": num_keep, "num_predict": 1});
        let (status, answer) = host.ask(json!({"prompt": text, "options": options})).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            answer["prompt_eval_count"], expected,
            "{num_ctx} {num_keep}"
        );
    }
}

#[tokio::test]
async fn options_have_their_types() {
    let host = saying("ok");
    for (options, text) in [
        (
            json!({"num_ctx": "9"}),
            r#"option "num_ctx" must be of type integer"#,
        ),
        (
            json!({"num_predict": true}),
            r#"option "num_predict" must be of type integer"#,
        ),
        (
            json!({"seed": []}),
            r#"option "seed" must be of type integer"#,
        ),
        (
            json!({"temperature": "hot"}),
            r#"option "temperature" must be of type float32"#,
        ),
        (
            json!({"top_p": {}}),
            r#"option "top_p" must be of type float32"#,
        ),
        (
            json!({"use_mmap": 1}),
            r#"option "use_mmap" must be of type boolean"#,
        ),
        (json!({"stop": 5}), r#"option "stop" must be of type array"#),
        (
            json!({"stop": [5]}),
            r#"option "stop" must be of an array of strings"#,
        ),
    ] {
        for (path, body) in [
            ("/api/generate", json!({"prompt": "x"})),
            ("/api/chat", json!({"messages": [user("x")]})),
            ("/api/embed", json!({"input": "x"})),
        ] {
            let mut body = body;
            body["model"] = json!("plain");
            body["options"] = options.clone();
            let got = host.post(path, body).await;
            assert_eq!(got, (400, json!({"error": text})), "{path} {options}");
        }
    }
    // Whatever older clients send, and numbers with a fraction.
    let options = json!({"numa": true, "mirostat": 2, "mirostat_tau": "x", "mirostat_eta": 0.1, "tfs_z": 1, "penalize_newline": false,
        "low_vram": true, "f16_kv": true, "vocab_only": 0, "use_mlock": true, "num_gqa": 8, "logits_all": [], "embedding_only": {},
        "num_gpu": 99.0, "main_gpu": 0, "num_thread": 4, "num_batch": 512, "use_mmap": true, "draft_num_predict": 4,
        "num_predict": 1.9, "top_k": 40.0, "stop": null, "unheard_of": 1});
    let (status, answer) = host.ask(json!({ "options": options })).await;
    assert_eq!(
        (status, &answer["eval_count"]),
        (200, &json!(1)),
        "{answer}"
    );
}

#[tokio::test]
async fn stops_of_a_request_replace_those_of_the_model() {
    let host = saying("one <|im_end|> two three");
    let said = async |options: Value| {
        let (_, answer) = host.ask(json!({ "options": options })).await;
        answer["response"].as_str().unwrap().to_owned()
    };
    // The model's own list has `<|im_end|>`; as plain text the fake model spells it.
    assert_eq!(said(json!({})).await, "one ");
    assert_eq!(said(json!({"stop": null})).await, "one ");
    assert_eq!(
        said(json!({"stop": ["three"]})).await,
        "one <|im_end|> two "
    );
    assert_eq!(said(json!({"stop": []})).await, "one <|im_end|> two three");
    // A beginning of a stop text is held back while more may come, and nothing of it is lost.
    let body = json!({"model": "plain", "prompt": "x", "options": {"stop": ["two four"]}});
    let lines = lines(&host, "/api/generate", &body).await;
    let text: String = lines
        .iter()
        .map(|line| line["response"].as_str().unwrap())
        .collect();
    assert_eq!(text, "one <|im_end|> two three");
    assert!(lines.iter().all(|line| line["response"] != "two"));
}

#[tokio::test]
async fn a_seed_fixes_the_answer() {
    let host = random();
    let said = async |seed: i64| {
        let options = json!({"seed": seed, "temperature": 2, "num_predict": 40});
        let (_, answer) = host.ask(json!({"options": options, "prompt": "x"})).await;
        answer["response"].as_str().unwrap().to_owned()
    };
    assert_eq!(said(7).await, said(7).await);
    let all = [said(1).await, said(2).await, said(3).await];
    assert!(all[0] != all[1] || all[1] != all[2], "{all:?}");
    let free = [said(-1).await, said(-1).await, said(-1).await];
    assert!(free[0] != free[1] || free[1] != free[2], "{free:?}");
}

/// The native API leaves the model's own sampling alone; others bring defaults of their own.
#[tokio::test]
async fn each_dialect_has_its_own_default_temperature() {
    let host = random();
    for (name, parameters) in [
        // `plain` itself has temperature 0.
        ("greedy", json!({})),
        (
            "narrow",
            json!({"temperature": 1, "top_p": 0.0001, "top_k": 0}),
        ),
    ] {
        let body =
            json!({"model": name, "from": "plain", "parameters": parameters, "stream": false});
        assert_eq!(host.post("/api/create", body).await.0, 200);
    }
    let texts = async |path: &str, model: &str| {
        let mut texts = Vec::new();
        for _ in 0..4 {
            let body = json!({"model": model, "prompt": "x", "input": "x", "messages": [user("x")], "max_tokens": 24,
                "max_output_tokens": 24, "options": {"num_predict": 24}, "stream": false});
            let (status, answer) = host.post(path, body).await;
            assert_eq!(status, 200, "{path}: {answer}");
            let said = [
                "/response",
                "/message/content",
                "/choices/0/text",
                "/choices/0/message/content",
                "/output/0/content/0/text",
                "/content/0/text",
            ];
            let said = said.iter().find_map(|at| answer.pointer(at)?.as_str());
            texts.push(said.unwrap_or_else(|| panic!("{answer}")).to_owned());
        }
        texts.dedup();
        texts.len()
    };
    for (path, greedy_varies, narrow_varies) in [
        ("/api/generate", false, false),
        ("/api/chat", false, false),
        ("/v1/chat/completions", true, true),
        ("/v1/completions", true, true),
        ("/v1/responses", true, false),
        ("/v1/messages", false, false),
    ] {
        assert_eq!(texts(path, "greedy").await > 1, greedy_varies, "{path}");
        assert_eq!(texts(path, "narrow").await > 1, narrow_varies, "{path}");
    }
}

#[tokio::test]
async fn the_context_of_a_request_needs_no_other_load() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let host = host_loading(
        settings(),
        Arc::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(fake::loaded(FakeOptions {
                context_length: 256,
                ..FakeOptions::default()
            }))
        }),
    );
    let long = "x".repeat(1000);
    for (num_ctx, most) in [(100, 100), (10_000, 256), (1, 4), (200, 200)] {
        let options =
            json!({"num_ctx": num_ctx, "num_predict": 1, "num_gpu": num_ctx, "num_batch": num_ctx});
        let (status, answer) = host.ask(json!({"prompt": long, "options": options})).await;
        assert_eq!(status, 200, "{answer}");
        let n_prompt = answer["prompt_eval_count"].as_u64().unwrap();
        assert!(
            n_prompt < most && n_prompt >= most / 2 - 1,
            "{num_ctx}: {answer}"
        );
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn log_probabilities_belong_to_the_tokens_of_their_piece() {
    let host = saying("héy");
    for (path, said) in [
        ("/api/generate", "/response"),
        ("/api/chat", "/message/content"),
    ] {
        for (top, n_top) in [(json!(null), 0), (json!(0), 0), (json!(3), 3)] {
            let mut body = json!({"model": "plain", "prompt": "x", "messages": [user("x")], "logprobs": true, "top_logprobs": top});
            let lines = lines(&host, path, &body).await;
            let tokens: Vec<&Value> = lines
                .iter()
                .filter_map(|line| line["logprobs"].as_array())
                .flatten()
                .collect();
            let bytes: Vec<u64> = tokens
                .iter()
                .flat_map(|token| token["bytes"].as_array().unwrap())
                .map(|byte| byte.as_u64().unwrap())
                .collect();
            let expected: Vec<u64> = "héy".bytes().map(u64::from).collect();
            assert_eq!(&bytes[..expected.len()], expected, "{tokens:?}");
            for token in &tokens {
                assert_eq!(
                    members(token),
                    ["token", "logprob", "bytes", "top_logprobs"]
                );
                assert!(token["logprob"].as_f64().unwrap() <= 0.0);
                assert_eq!(token["top_logprobs"].as_array().unwrap().len(), n_top);
            }
            body["stream"] = json!(false);
            let (_, whole) = host.post(path, body).await;
            assert_eq!(whole.pointer(said).unwrap(), "héy");
            assert_eq!(whole["logprobs"].as_array().unwrap().len(), tokens.len());
        }
        let (_, none) = host.ask(json!({"top_logprobs": 5})).await;
        assert!(none.get("logprobs").is_none());
        for bad in [-1, 21] {
            let body = json!({"model": "plain", "prompt": "x", "top_logprobs": bad});
            let (status, _) = host.post(path, body).await;
            assert_eq!(status, 400, "{path} {bad}");
        }
    }
}

#[tokio::test]
async fn a_format_binds_what_comes_after_thinking() {
    let host = saying("<think>let me see</think>no JSON at all");
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    for (path, thinking, said) in [
        ("/api/generate", "/thinking", "/response"),
        ("/api/chat", "/message/thinking", "/message/content"),
    ] {
        let body = json!({"model": "thinker", "prompt": "x", "messages": [user("x")], "format": schema, "stream": false});
        let (status, answer) = host.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer.pointer(thinking).unwrap(), "let me see");
        let text = answer.pointer(said).unwrap().as_str().unwrap();
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"));
        assert!(value["a"] == 1 || value["a"] == 2, "{value}");
    }
}

#[tokio::test]
async fn every_way_to_say_no_format_is_none() {
    let host = saying("free text");
    for format in [json!(""), json!(null), json!({"type": "text"})] {
        let (status, answer) = host.ask(json!({ "format": format })).await;
        assert_eq!((status, &answer["response"]), (200, &json!("free text")));
    }
    for format in ["yaml", "JSON", "[]"] {
        let (status, answer) = host.ask(json!({ "format": format })).await;
        let text =
            format!("invalid format: {format:?}; expected \"json\" or a valid JSON Schema object");
        assert_eq!((status, answer), (400, json!({ "error": text })));
    }
}

#[tokio::test]
async fn the_tokens_of_one_step_are_one_line() {
    let settings = Settings {
        speculation: Speculation::Always(3),
        ..settings()
    };
    let host = host_with(settings, || FakeOptions {
        answer: Answer::Endless,
        ..FakeOptions::default()
    });
    for path in ["/api/generate", "/api/chat"] {
        let body = json!({
            "model": "plain", "prompt": "x", "messages": [user("x")], "options": {"num_predict": 400},
        });
        let lines = lines(&host, path, &body).await;
        let n_tokens = lines.last().unwrap()["eval_count"].as_u64().unwrap();
        assert_eq!(n_tokens, 400);
        assert!(lines.len() < 200, "{path}: {} lines", lines.len());
    }
}
