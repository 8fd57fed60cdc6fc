//! What somebody types in the first hours, and what is said to mistakes.

use std::{fs, path::Path, process::Command};

use axum::{Router, routing::any};
use serde_json::{Value, json};

use crate::util::{Output, Sandbox};

/// A server that answers everything with the same JSON.
async fn answering(answer: &Value) -> String {
    let answer = answer.to_string();
    let router = Router::new().fallback(any(move || async move { answer }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    host
}

/// Runs a command while the server of the test answers.
async fn while_answering(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || Output::of(&mut command))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_to_the_terminal_gets_through_any_command() {
    let evil = "x\u{1b}]0;title\u{7}\u{9b}2J\u{1b}[8m\r\u{202e}y";
    let host = answering(&json!({
        "version": evil,
        "models": [{
            "name": evil, "digest": evil, "modified_at": evil, "expires_at": evil, "size": 1,
        }],
        "license": evil, "system": evil, "template": evil, "modelfile": evil,
        "parameters": format!("stop {evil}"),
        "details": {"parent_model": evil, "family": evil, "parameter_size": evil, "quantization_level": evil},
        "model_info": {"general.architecture": evil, evil: evil},
        "tensors": [{"name": evil, "type": evil, "shape": [1]}],
        "capabilities": [evil],
        "status": "success",
        "error": evil,
    }))
    .await;
    let sandbox = Sandbox::new();
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["ps"],
        &["ps", "--json"],
        &["show", "x"],
        &["show", "x", "--verbose"],
        &["show", "x", "--modelfile"],
        &["show", "x", "--template"],
        &["show", "x", "--system"],
        &["show", "x", "--license"],
        &["show", "x", "--parameters"],
        &["show", "x", "--json"],
        &["default"],
        &["status"],
        &["status", "--json"],
        &["version"],
        &["test"],
        &["pull", "x"],
        &["pull", "x", "--json"],
        &["push", "x"],
        &["create", "y", "--from", "x"],
        &["run", "x", "hi"],
        &["monitor", "--once"],
    ] {
        let mut command = sandbox.command();
        // As if somebody saw it.
        command
            .args(["--color", "always", "--host", &host])
            .args(args);
        let output = while_answering(command).await;
        let printed = output.stdout + &output.stderr;
        assert!(
            printed.contains('x') || printed.contains('y'),
            "{args:?}: {printed}"
        );
        for order in ["\u{1b}]", "\u{1b}[8m", "\u{7}", "\u{9b}", "\r", "\u{202e}"] {
            assert!(!printed.contains(order), "{args:?}: {order:?}: {printed:?}");
        }
    }
}

#[test]
fn names_of_options_are_checked_and_the_nearest_is_proposed() {
    let sandbox = Sandbox::new();
    for (option, says) in [
        ("temprature=0", "did you mean temperature?"),
        ("num_predict=many", "num_predict"),
        ("temperature", "NAME=VALUE"),
    ] {
        let output = sandbox.run(&["run", "default", "-o", option, "hi"]);
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
    }
    let old = sandbox
        .run(&["run", "default", "-o", "mirostat=1", "Hello!"])
        .ok();
    assert!(old.stderr.contains("no effect"), "{old:?}");
}

#[test]
fn looking_makes_no_folders_and_a_mistyped_folder_is_told() {
    let sandbox = Sandbox::new();
    let listed = sandbox.run(&["list"]).ok();
    assert!(listed.stdout.contains("llmsrv-tiny-code"), "{listed:?}");
    sandbox.run(&["show", "default"]).ok();
    assert!(!sandbox.path().join("data").exists());

    for args in [
        &["list"][..],
        &["show", "default"],
        &["run", "default", "hi"],
        &["rm", "x"],
        &["default"],
        &["bench", "--quick"],
    ] {
        let mut typed = vec!["--models", "./tpyo"];
        typed.extend(args);
        let output = sandbox.run(&typed);
        assert_eq!(output.code, 1, "{args:?}: {output:?}");
        assert!(output.stderr.contains("no such folder: "), "{output:?}");
        assert!(!sandbox.path().join("tpyo").exists(), "{args:?}");
    }
}

#[test]
fn default_is_changed_by_choosing_alone() {
    let sandbox = Sandbox::new();
    let default = || sandbox.run(&["default"]).ok().stdout.trim().to_owned();
    let built_in = default();
    assert_eq!(built_in, "llmsrv-tiny-code");
    sandbox.run(&["cp", "default", "mine"]).ok();
    let file = sandbox.path().join("Modelfile");
    fs::write(&file, "FROM mine\nSYSTEM Be brief.\n").unwrap();
    sandbox.run(&["create", "brief"]).ok();
    assert_eq!(default(), built_in);

    let chosen = sandbox.run(&["default", "brief"]).ok();
    assert!(chosen.stderr.contains("default is brief"), "{chosen:?}");
    assert_eq!(default(), "brief");
    let shown = sandbox.run(&["show", "default", "--system"]).ok().stdout;
    assert_eq!(shown, "Be brief.\n");
    let json = sandbox.run(&["default", "--json"]).ok().json();
    assert_eq!(json["default"], "brief");
    // A copy of it says who it is of, and removing it leaves the built-in one.
    sandbox.run(&["rm", "brief"]).ok();
    assert_eq!(default(), built_in);
    assert_eq!(sandbox.run(&["default", "nope"]).code, 1);
    let forced = Output::of(
        sandbox
            .command()
            .args(["default", "mine"])
            .env("LLMSRV_DEFAULT_MODEL", "llmsrv-tiny-code"),
    );
    assert!(forced.stderr.contains("is stronger"), "{forced:?}");
}

#[test]
fn a_server_that_is_named_is_not_replaced() {
    let sandbox = Sandbox::new();
    for args in [
        &["list"][..],
        &["show", "default"],
        &["run", "default", "hi"],
        &["cp", "default", "x"],
    ] {
        let mut typed = vec!["--host", "127.0.0.1:9"];
        typed.extend(args);
        let output = sandbox.run(&typed);
        assert_eq!(output.code, 69, "{args:?}: {output:?}");
        // By its variable it is only where a server would be.
        assert_eq!(sandbox.run(args).code, 0, "{args:?}");
    }
}

#[test]
fn a_file_is_run_as_it_is() {
    let sandbox = Sandbox::new();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/embedded/model.gguf");
    let here = sandbox.path().join("here.gguf");
    fs::copy(model, &here).unwrap();
    let options = ["-o", "num_predict=4"];
    let mut typed = vec!["run", "./here.gguf", "def reverse"];
    typed.extend(options);
    sandbox.run(&typed).ok();
    // Nothing is left beside it, and no store was made.
    let left: Vec<_> = fs::read_dir(sandbox.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");

    fs::write(sandbox.path().join("no.gguf"), "not a model").unwrap();
    for (name, says) in [
        ("./no.gguf", "not a GGUF file"),
        ("gone.gguf", "No such file"),
    ] {
        let output = sandbox.run(&["run", name, "hi"]);
        assert_eq!(output.code, 1, "{output:?}");
        assert!(
            output.stderr.contains(says) && output.stderr.contains("llmsrv create NAME --from"),
            "{output:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn images_go_to_models_that_see() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("my cat.png"), "image").unwrap();
    fs::write(sandbox.path().join("dog.jpg"), "image").unwrap();
    let server = sandbox.serve();
    let ask = |args: &[&str]| {
        let mut command = sandbox.command();
        command
            .args(["run", "default"])
            .args(args)
            .env("LLMSRV_HOST", server.host());
        Output::of(&mut command)
    };
    // The built-in model sees nothing: a path is text, and that is said; an option is refused.
    let text = ask(&["what is in ./dog.jpg ?"]).ok();
    assert!(text.stderr.contains("sees no images"), "{text:?}");
    let gone = ask(&["what is in ./gone.jpg ?"]).ok();
    assert!(
        gone.stderr.contains("there is no file ./gone.jpg"),
        "{gone:?}"
    );
    let refused = ask(&["--image", "dog.jpg", "what is it?"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("sees no images"), "{refused:?}");
    assert_eq!(ask(&["--image", "gone.jpg", "what?"]).code, 2);

    // One that sees gets them all, those of the option first.
    let (sent, received) = std::sync::mpsc::channel();
    let router = Router::new().fallback(any(move |body: String| {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        if body["messages"].is_array() {
            sent.send(body).unwrap();
        }
        async {
            json!({
                "version": "1", "model": "seer", "created_at": "2026-01-01T00:00:00Z",
                "capabilities": ["completion", "vision"], "done": true,
                "message": {"role": "assistant", "content": "a cat"},
            })
            .to_string()
        }
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut command = sandbox.command();
    command.args(["run", "seer", "--host", &host, "--image", "dog.jpg"]);
    command.arg("compare with 'my cat.png' please");
    let answer = while_answering(command).await.ok();
    assert_eq!(answer.stdout, "a cat\n");
    let body = received.recv().unwrap();
    let message = &body["messages"][0];
    assert_eq!(message["content"], "compare with please");
    assert_eq!(message["images"], json!(["aW1hZ2U=", "aW1hZ2U="]));
}

#[test]
fn metadata_is_shown_in_brief() {
    let sandbox = Sandbox::new();
    let shown = sandbox.run(&["show", "default", "--verbose"]).ok().stdout;
    let tokens = shown
        .lines()
        .find(|line| line.contains("tokenizer.ggml.tokens"))
        .unwrap();
    assert!(tokens.contains(" values]"), "{tokens}");
    assert!(shown.lines().all(|line| line.len() < 500), "{shown}");
    let all = sandbox
        .run(&["show", "default", "--verbose", "--json"])
        .ok()
        .json();
    let tokens = all["model_info"]["tokenizer.ggml.tokens"].as_array();
    assert!(tokens.unwrap().len() > 1000);
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let sandbox = Sandbox::new();
    let write = |name: &str, content: &[u8]| fs::write(sandbox.path().join(name), content).unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/embedded/model.gguf");
    let whole = fs::read(model).unwrap();
    write("cut.gguf", &whole[..whole.len() / 100]);
    write("text.gguf", b"text");
    write("Modelfile", b"FORM default\n");
    write("exists.gguf", b"");
    for (args, code, says) in [
        (&["delete", "x"][..], 2, "'rm'"),
        (&["restart"], 2, "serve --background --restart"),
        (&["up"], 2, "'serve'"),
        (&["chat"], 2, "'run'"),
        (&["rnu"], 2, "'run'"),
        (&["update"], 2, "'pull'"),
        (&["show", "nosuch"], 1, "`llmsrv list`"),
        (&["rm", "nosuch"], 1, "`llmsrv list`"),
        (&["cp", "nosuch", "x"], 1, "`llmsrv list`"),
        (
            &["run", "llmsrv-tiny-cod", "hi"],
            1,
            "did you mean llmsrv-tiny-code?",
        ),
        (&["run", "defualt", "hi"], 1, "did you mean default?"),
        (
            &["run", "why is the sky blue?"],
            2,
            "llmsrv run default PROMPT",
        ),
        (
            &["--set", "server.keep_alive=abc", "list"],
            2,
            "--set server.keep_alive",
        ),
        (
            &["run", "--keepalive", "xyz", "default", "hi"],
            2,
            "such as 30s, 5m",
        ),
        (&["--env-file", "/nowhere/at/all", "list"], 78, "--env-file"),
        (&["--host", "http://", "list"], 69, "127.0.0.1:80"),
        (&["logs", "--since", "99x"], 2, "not a valid time"),
        (&["key", "rm", "nobody"], 1, "no such key"),
        (&["key", "add", "a b"], 1, "not a valid name"),
        (&["create", "x"], 1, "did you mean FROM?"),
        (
            &["create", "x", "--from", "cut.gguf"],
            1,
            "download or copy it again",
        ),
        (
            &["create", "x", "--from", "text.gguf"],
            1,
            "not a GGUF file",
        ),
        (
            &["create", "x", "--from", "default", "-Q", "Q4_0"],
            1,
            "F32, F16 or BF16",
        ),
        (
            &["bench", "--make-model", "tiny", "-o", "exists.gguf"],
            1,
            "exists.gguf exists",
        ),
        (
            &["serve", "--network", "--host", "127.0.0.1:1"],
            2,
            "contradicts",
        ),
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        assert!(output.stderr.contains(says), "{args:?}: {output:?}");
    }
    let output = sandbox.run(&["frobnicate"]);
    assert!(!output.stderr.contains("generate"), "{output:?}");
    // The other spelling of each is taken as well.
    sandbox
        .run(&["run", "--keep-alive", "1m", "default", "Hello!"])
        .ok();
    let output = sandbox.run(&["serve", "--keepalive", "soon"]);
    assert!(output.stderr.contains("not `soon`"), "{output:?}");
}

#[test]
fn help_fits_where_nobody_sees_how_wide_it_is() {
    let sandbox = Sandbox::new();
    for command in ["run", "serve", "cp", "key", "show", "create", "service"] {
        let help = sandbox.run(&[command, "-h"]).ok().stdout;
        let long: Vec<&str> = help
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert!(long.is_empty(), "{command}: {long:#?}");
        assert!(!help.contains("--env-file"), "{command}: {help}");
        assert!(
            sandbox
                .run(&[command, "--help"])
                .ok()
                .stdout
                .contains("--env-file"),
            "{command}"
        );
    }
    let help = sandbox.run(&["cp", "-h"]).ok().stdout;
    assert!(help.lines().count() < 20, "{help}");
    for command in ["logs", "run", "serve"] {
        let help = sandbox.run(&["logkit", command, "-h"]).ok().stdout;
        let long: Vec<&str> = help
            .lines()
            .filter(|line| line.chars().count() > 80)
            .collect();
        assert!(long.is_empty(), "{command}: {long:#?}");
    }
    let of_logger = sandbox.run(&["help", "logkit", "run"]).ok().stdout;
    assert!(of_logger.contains("logkit run"), "{of_logger}");
}

#[test]
fn shells_complete_values() {
    let sandbox = Sandbox::new();
    let complete = |words: &[&str]| {
        let index = (words.len() - 1).to_string();
        let output = Output::of(
            sandbox
                .command()
                .arg("--")
                .args(words)
                .env("COMPLETE", "bash")
                .env("_CLAP_COMPLETE_INDEX", index)
                .env("_CLAP_IFS", "\n"),
        );
        output.ok().stdout
    };
    for (words, expected) in [
        (&["llmsrv", "create", "x", "-Q", "Q4"][..], "Q4_K_M"),
        (&["llmsrv", "run", "default", "-o", "temp"], "temperature="),
        (
            &["llmsrv", "list", "--set", "server.keep"],
            "server.keep_alive=",
        ),
        (&["llmsrv", "create", "x", "--from", "def"], "default"),
    ] {
        let offered = complete(words);
        assert!(offered.contains(expected), "{words:?}: {offered}");
    }
}
