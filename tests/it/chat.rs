//! The chat of `llmsrv run`, in a terminal.

use std::{
    convert::Infallible,
    sync::mpsc::{self, Receiver},
};

use axum::{Router, body::Body, response::IntoResponse as _, routing::any};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::{
    tmux::Tmux,
    util::{Sandbox, TIMEOUT},
};

/// A server whose model says the beginning of a sentence and then nothing more. Returns where it is
/// and what it is asked.
async fn hesitating() -> (String, Receiver<Value>) {
    let (asked, questions) = mpsc::channel();
    let router = Router::new().fallback(any(move |body: String| {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let mut answer = json!({
            "version": "1", "models": [], "capabilities": ["completion"], "template": "{{ .System }}",
            "model": "x", "created_at": "2026-01-01T00:00:00Z", "done": true,
            "message": {"role": "assistant", "content": ""},
        });
        let messages = body["messages"].as_array().map_or(0, Vec::len);
        let response = if messages == 0 {
            answer.to_string().into_response()
        } else {
            asked.send(body).unwrap();
            answer["done"] = false.into();
            answer["message"]["content"] = "alpha beta gam".into();
            let line = stream::iter([Ok::<_, Infallible>(format!("{answer}\n"))]);
            Body::from_stream(line.chain(stream::pending())).into_response()
        };
        async { response }
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (host, questions)
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_added_answers_stopped_and_help_fits() {
    let (host, questions) = hesitating().await;
    tokio::task::spawn_blocking(move || {
        let tmux = Tmux::open(80, 40);
        let sandbox = Sandbox::new();
        let home = sandbox.path().display();
        tmux.line(&format!("export HOME={home} XDG_STATE_HOME={home}/state"));
        tmux.line(&format!(
            "clear; {} run x --host {host}",
            env!("CARGO_BIN_EXE_llmsrv")
        ));
        let ready = "Send a message";
        tmux.wait_for(ready);
        tmux.write("one");
        tmux.key("M-Enter");
        tmux.line("two");
        let asked = questions.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(asked["messages"][0]["content"], "one\ntwo");

        // A word that has not ended is not printed after Ctrl-C.
        tmux.wait_for("alpha beta");
        tmux.key("C-c");
        let screen = tmux.wait_for(ready);
        assert!(!screen.contains("gam"), "{screen}");

        tmux.line("\"\"\"first");
        let screen = tmux.wait_for("... ");
        assert!(screen.contains("\"\"\" ends the text"), "{screen}");
        assert!(!screen.contains(ready), "{screen}");
        tmux.line("last\"\"\"");
        let asked = questions.recv_timeout(TIMEOUT).unwrap();
        let messages = asked["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["content"], "first\nlast");
        tmux.wait_until("a second answer", |screen| {
            screen.matches("alpha beta").count() == 2
        });
        tmux.key("C-c");
        tmux.wait_for(ready);

        // No line of the help is broken: each begins as it was written.
        tmux.line("/?");
        let screen = tmux.wait_for("parts of the text.");
        assert!(screen.contains("Alt-Enter"), "{screen}");
        let (_, help) = screen.split_once(">>> /?").unwrap();
        for line in help.lines().skip(1).take_while(|line| !line.is_empty()) {
            assert!(line.starts_with("  /"), "{line}: {screen}");
        }
        tmux.line("/bye");
        tmux.wait_until("shell", |screen| screen.trim_end().ends_with("ready>"));
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_chats_with_a_model_that_makes_vectors() {
    let router = Router::new().fallback(any(async || {
        json!({"version": "1", "capabilities": ["embedding"]}).to_string()
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    tokio::task::spawn_blocking(move || {
        let tmux = Tmux::open(100, 40);
        let sandbox = Sandbox::new();
        tmux.line(&format!("export HOME={}", sandbox.path().display()));
        let program = env!("CARGO_BIN_EXE_llmsrv");
        tmux.line(&format!("clear; {program} run vectors --host {host}"));
        let screen = tmux.wait_for("`llmsrv run vectors TEXT` prints the vector of a text");
        assert!(
            screen.contains("vectors makes vectors of texts, and there is no text"),
            "{screen}"
        );
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_says_with_whom_and_a_saved_one_goes_on() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let shown = server.post("/api/show", &json!({"model": "default"})).await;
    assert_eq!(shown.status, 200);
    tokio::task::spawn_blocking(move || {
        let tmux = Tmux::open(100, 40);
        let home = sandbox.path().display();
        tmux.line(&format!("export HOME={home} XDG_STATE_HOME={home}/state"));
        let program = env!("CARGO_BIN_EXE_llmsrv");
        tmux.line(&format!("clear; {program} run --host {}", server.url));
        let ready = "Send a message";
        let screen = tmux.wait_for(ready);
        assert!(
            screen.contains("Chatting with llmsrv-tiny-code (default)"),
            "{screen}"
        );
        assert!(screen.contains("built-in demonstration model"), "{screen}");
        tmux.line("hi");
        tmux.wait_until("an answer", |screen| {
            screen.contains("Hello!") && screen.trim_end().contains(ready)
        });
        tmux.line("/save talk");
        tmux.wait_for("talk");
        tmux.line("/load talk");
        let screen = tmux.wait_for("Chatting with talk");
        assert!(!screen.contains("cannot"), "{screen}");
        tmux.line("/bye");
        tmux.wait_until("shell", |screen| screen.trim_end().ends_with("ready>"));
        // What was said is part of the model.
        tmux.line(&format!(
            "clear; {program} show talk --modelfile --host {}",
            server.url
        ));
        let screen = tmux.wait_for("MESSAGE assistant");
        assert!(screen.contains("MESSAGE user hi"), "{screen}");
    })
    .await
    .unwrap();
}

/// A server whose model answers in Markdown with the text of the last message and how many there
/// were, and that tells a small context.
async fn echoing() -> (String, Receiver<Value>) {
    let (asked, questions) = mpsc::channel();
    let router = Router::new().fallback(any(move |uri: axum::http::Uri, body: String| {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let said = messages.last().map(|it| it["content"].clone());
        let mut answer = json!({
            "version": "1", "capabilities": ["completion"], "template": "{{ .System }}",
            "models": [{"name": "x:latest", "context_length": 100}, {"name": "y:latest"}],
            "model": "x", "created_at": "2026-01-01T00:00:00Z", "done": true,
            "prompt_eval_count": 30, "eval_count": 15,
            "message": {"role": "assistant", "content": ""},
        });
        if uri.path() == "/api/chat" && !messages.is_empty() {
            asked.send(body).unwrap();
            let said = said.unwrap_or_default();
            let said = said.as_str().unwrap_or_default().lines().next();
            answer["message"]["content"] = format!(
                "## Title\n\nThis is **{}** of `{}`.\n\n- one\n\n```rust\nlet x = 1; // it\n```\n",
                said.unwrap_or_default(),
                messages.len()
            )
            .into();
        }
        async move { format!("{answer}\n") }
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (host, questions)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_shown_taken_back_tried_again_copied_and_kept() {
    let (host, questions) = echoing().await;
    tokio::task::spawn_blocking(move || {
        let tmux = Tmux::open(80, 40);
        let sandbox = Sandbox::new();
        let home = sandbox.path().display();
        let write = |name: &str, text: &str| std::fs::write(sandbox.path().join(name), text).unwrap();
        write("note.txt", "the text of the note\n");
        // An editor that writes what it is told to.
        write("editor", "#!/bin/sh\nprintf '%s by hand' \"$1\" > \"$2\"\n");
        tmux.line(&format!(
            "export HOME={home} XDG_STATE_HOME={home}/state EDITOR='sh {home}/editor written'; cd {home}; \
             export OLLAMA_EDITOR='sh {home}/editor set'"
        ));
        let program = env!("CARGO_BIN_EXE_llmsrv");
        tmux.line(&format!("clear; {program} run x --host {host} --seed 7 --temperature 0.5 --num-predict 9"));
        let ready = "Send a message";
        tmux.wait_for(ready);
        let next = || questions.recv_timeout(TIMEOUT).unwrap();
        tmux.line("one");
        let asked = next();
        assert_eq!(asked["options"], json!({"seed": 7, "temperature": 0.5, "num_predict": 9}));
        // Markers are gone, the fence is there, and the use of the context is told.
        let screen = tmux.wait_for("45 of 100 tokens of the context used");
        assert!(screen.contains("\nTitle\n") && screen.contains("This is one of 1."), "{screen}");
        assert!(screen.contains("• one") && screen.contains("```rust"), "{screen}");
        tmux.wait_for(ready);
        tmux.line("two");
        next();
        tmux.wait_for("This is two of 3.");
        tmux.line("/undo");
        tmux.wait_for("are taken back");
        tmux.line("/retry");
        assert_eq!(next()["messages"].as_array().unwrap().len(), 1);
        tmux.wait_until("the first answer again", |screen| {
            screen.matches("This is one of 1.").count() == 2
        });
        tmux.line("read @note.txt");
        let asked = next();
        let said = asked["messages"].as_array().unwrap().last().unwrap()["content"].clone();
        assert_eq!(said, "read @note.txt\n\nnote.txt:\n```\nthe text of the note\n```");
        tmux.wait_for("This is read @note.txt of 3.");
        tmux.line("/edit");
        let asked = next();
        let said = asked["messages"].as_array().unwrap().last().unwrap()["content"].clone();
        assert_eq!(said, "set by hand");
        tmux.wait_for("This is set by hand of 5.");
        tmux.line("/list X");
        let screen = tmux.wait_for("MODIFIED");
        assert!(screen.contains("x:latest") && !screen.contains("y:latest"), "{screen}");
        tmux.line("/copy");
        tmux.wait_for("Copied, if this terminal allows it.");
        tmux.line("/save talk.json");
        tmux.wait_for("Saved as talk.json.");
        tmux.line("/save talk.json");
        tmux.wait_for("cannot write talk.json");
        tmux.line("/clear");
        tmux.line("/undo");
        tmux.wait_for("There is nothing to take back.");
        tmux.line("/load talk.json");
        tmux.wait_for("6 messages of talk.json");
        tmux.line("/set nomarkdown");
        tmux.wait_for("Markdown is shown as text.");
        tmux.line("three");
        assert_eq!(next()["messages"].as_array().unwrap().len(), 7);
        tmux.wait_for("This is **three** of `7`.");
        tmux.line("/bye");
        tmux.wait_until("shell", |screen| screen.trim_end().ends_with("ready>"));
        // Without that setting it is the editor of all programs.
        tmux.line(&format!("clear; unset OLLAMA_EDITOR; {program} run x --host {host}"));
        tmux.wait_for(ready);
        tmux.line("/edit");
        assert_eq!(next()["messages"][0]["content"], "written by hand");
        tmux.wait_for("This is written by hand of 1.");
        tmux.line("/bye");
        tmux.wait_until("shell", |screen| screen.trim_end().ends_with("ready>"));
        // A pipe gets the answer as it is, and what is piped in names no files.
        tmux.line(&format!("clear; echo @note.txt | {program} run x --host {host} | head -3 | tail -1"));
        assert_eq!(next()["messages"][0]["content"], "@note.txt\n");
        tmux.wait_for("This is **@note.txt** of `1`.");
    })
    .await
    .unwrap();
}
