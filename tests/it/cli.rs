//! The command line as scripts and people use it.

use std::{
    collections::BTreeMap,
    io::Write,
    path::Path,
    process::Stdio,
    sync::mpsc::{self, Receiver},
};

use axum::{
    Router,
    http::{StatusCode, Uri},
    routing::any,
};
use serde_json::{Value, json};

use crate::util::{Output, Sandbox};

#[test]
fn a_first_prompt_needs_no_server_and_no_set_up() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .run(&[
            "run",
            "default",
            "Write a Python function that reverses a string.",
        ])
        .ok();
    assert!(output.stdout.contains("def reverse_string"), "{output:?}");
    assert!(output.stdout.ends_with('\n'));
}

#[test]
fn a_prompt_comes_from_a_pipe_too() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command()
        .args(["run", "default"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Hello!").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("built-in model"),
        "{output:?}"
    );
}

#[tokio::test]
async fn run_uses_the_running_server() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let output = Output::of(
        sandbox
            .command()
            .args(["run", "default", "Hello!"])
            .env("LLMSRV_HOST", server.host()),
    )
    .ok();
    assert!(output.stdout.contains("built-in model"), "{output:?}");
    let listed = Output::of(
        sandbox
            .command()
            .args(["ps", "--json"])
            .env("LLMSRV_HOST", server.host()),
    )
    .ok();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["models"].as_array().unwrap().len(), 1, "{listed}");
}

/// A server that has an embedding model and another one loaded. Returns where it is and what it is asked.
async fn embedding() -> (String, Receiver<(String, Value)>) {
    let (asked, questions) = mpsc::channel();
    let router = Router::new().fallback(any(move |uri: Uri, body: String| {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let (status, answer) = match uri.path() {
            "/api/show" if body["model"] == "absent" => (404, json!({"error": "not found"})),
            "/api/show" => (200, json!({"capabilities": ["embedding"], "template": ""})),
            "/api/embed" => (200, json!({"embeddings": [[0.25, -1e-7], [3.0]]})),
            "/api/pull" => (200, json!({"status": "success"})),
            _ => (
                200,
                json!({"version": "1", "models": [{"name": "Vectors:latest"}, {"name": "other"}]}),
            ),
        };
        asked.send((uri.path().to_owned(), body)).unwrap();
        async move { (StatusCode::from_u16(status).unwrap(), answer.to_string()) }
    }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (host, questions)
}

/// Runs a command beside a server in this process.
async fn beside(host: &str, args: &'static [&'static str]) -> Output {
    let host = host.to_owned();
    let run = move || {
        let sandbox = Sandbox::new();
        Output::of(sandbox.command().args(args).env("LLMSRV_HOST", host))
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test]
async fn an_embedding_model_is_run_for_a_vector() {
    let (host, questions) = embedding().await;
    let embedded = || {
        let mut asked = questions.try_iter();
        let (_, body) = asked.find(|(path, _)| path == "/api/embed").unwrap();
        body
    };
    let output = beside(&host, &["run", "vectors", "some", "text"])
        .await
        .ok();
    assert_eq!(
        (&output.stdout[..], &output.stderr[..]),
        ("[0.25,-1e-7]\n", "")
    );
    let expected = json!({"model": "vectors", "input": "some text", "options": {}});
    assert_eq!(embedded(), expected);
    let all = &[
        "run",
        "vectors",
        "text",
        "--keepalive",
        "5m",
        "--truncate=false",
        "--dimensions",
        "2",
    ];
    beside(&host, all).await.ok();
    let expected = json!({"model": "vectors", "input": "text", "options": {}, "keep_alive": "5m",
        "truncate": false, "dimensions": 2});
    assert_eq!(embedded(), expected);
    beside(&host, &["run", "vectors", "text", "--truncate"])
        .await
        .ok();
    assert_eq!(embedded()["truncate"], true);
    let refused = beside(&host, &["run", "vectors", "x", "--dimensions", "0"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[tokio::test]
async fn a_model_that_is_run_is_pulled_as_it_is_asked_for() {
    let (host, questions) = embedding().await;
    for (args, insecure) in [
        (&["run", "absent", "x"][..], false),
        (&["run", "absent", "x", "--insecure"], true),
    ] {
        beside(&host, args).await;
        let pulled = questions.try_iter().find(|(path, _)| path == "/api/pull");
        let expected = json!({"model": "absent", "insecure": insecure});
        assert_eq!(pulled.unwrap().1, expected, "{args:?}");
    }
}

#[tokio::test]
async fn words_of_other_programs_are_understood() {
    let (host, questions) = embedding().await;
    let output = beside(&host, &["ps", "vec"]).await.ok();
    assert!(output.stdout.contains("Vectors:latest"), "{output:?}");
    assert!(!output.stdout.contains("other"), "{output:?}");
    let listed = beside(&host, &["ps", "oth", "--json"]).await.ok().json();
    assert_eq!(listed["models"], json!([{"name": "other"}]));
    questions.try_iter().for_each(drop);
    for (args, verbose) in [
        (&["show", "vectors"][..], false),
        (&["show", "-v", "vectors"], true),
        (&["show", "vectors", "--verbose"], true),
    ] {
        let output = beside(&host, args).await.ok();
        assert_eq!(output.stderr, "", "{args:?}");
        let shown = questions.try_iter().find(|(path, _)| path == "/api/show");
        assert_eq!(shown.unwrap().1["verbose"], verbose, "{args:?}");
    }
    let sandbox = Sandbox::new();
    let version = sandbox.run(&["-V"]).ok().stdout;
    assert_eq!(sandbox.run(&["-v"]).ok().stdout, version);
    let help = |command: &str| sandbox.run(&[command, "--help"]).ok().stdout;
    assert_eq!(help("start"), help("serve"));
}

#[test]
fn an_answer_in_a_format_that_was_cut_is_a_failure() {
    let sandbox = Sandbox::new();
    let schema = r#"{"properties":{"text":{"type":"string","minLength":200}},"required":["text"]}"#;
    let cut = [
        "run",
        "default",
        "-o",
        "num_predict=4",
        "--format",
        schema,
        "Hi",
    ];
    let output = sandbox.run(&cut);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stdout.starts_with('{'), "{output:?}");
    let said: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("cut"))
        .collect();
    assert_eq!(said.len(), 1, "{output:?}");
    // Without a format there is nothing to be unfit for.
    sandbox
        .run(&["run", "default", "-o", "num_predict=4", "Hi"])
        .ok();
}

#[test]
fn models_can_be_managed_without_a_server() {
    let sandbox = Sandbox::new();
    sandbox.run(&["cp", "default", "mine"]).ok();
    let listed = sandbox.run(&["list"]).ok().stdout;
    assert!(
        listed.lines().next().unwrap().starts_with("NAME"),
        "{listed}"
    );
    assert!(listed.contains("mine:latest"), "{listed}");
    let shown = sandbox.run(&["show", "mine"]).ok().stdout;
    assert!(shown.contains("llama") && shown.contains("Q8_0"), "{shown}");
    sandbox.run(&["rm", "mine"]).ok();
    assert!(!sandbox.run(&["list"]).ok().stdout.contains("mine"));
}

#[tokio::test]
async fn what_was_done_is_printed_as_json() {
    let sandbox = Sandbox::new();
    let json = |args: &[&str]| sandbox.run(args).ok().json();
    let key = json(&["key", "add", "laptop", "--json"]);
    assert_eq!(
        (&key["name"], &key["role"]),
        (&"laptop".into(), &"infer".into())
    );
    assert!(key["key"].as_str().unwrap().starts_with("llmsrv_"), "{key}");
    assert_eq!(
        json(&["key", "rm", "laptop", "--json"]),
        json!({"removed": "laptop", "left": 0})
    );
    assert_eq!(json(&["key", "off", "--json"]), json!({"removed": true}));
    assert_eq!(
        json(&["cp", "default", "mine", "--json"]),
        json!({"source": "default", "destination": "mine"})
    );
    // What was removed is told, also where something was not.
    let removed = sandbox.run(&["rm", "mine", "gone", "--json"]);
    assert_eq!(
        (removed.code, removed.json()),
        (1, json!({"removed": ["mine"]}))
    );
    let error: Value = serde_json::from_str(&removed.stderr).unwrap();
    assert!(error["error"].as_str().unwrap().contains("gone"), "{error}");
    let checked = json(&["config", "check", "--json"]);
    assert_eq!(checked, json!({"file": null, "warnings": []}));
    let wrong = Output::of(
        sandbox
            .command()
            .args(["config", "check", "--json"])
            .env("LLMSRV_KEEP_ALIVE", "soon"),
    );
    assert_eq!(wrong.code, 78, "{wrong:?}");
    let error: Value = serde_json::from_str(&wrong.stderr).unwrap();
    assert_eq!(error["code"], "config");

    let server = sandbox.serve();
    let stop = |args: &[&str]| {
        let mut command = sandbox.command();
        command.arg("stop").args(args).arg("--json");
        Output::of(command.env("LLMSRV_HOST", server.host()))
            .ok()
            .json()
    };
    assert_eq!(stop(&["default"]), json!({"model": "default"}));
    assert_eq!(stop(&[]), json!({"url": server.url, "killed": false}));
}

#[test]
fn mistakes_get_one_clear_error_and_the_right_code() {
    let sandbox = Sandbox::new();
    for (args, code, says) in [
        (&["frobnicate"][..], 2, "frobnicate"),
        (&["serve", "--port", "notaport"], 2, "notaport"),
        (&["serve", "--port", "70000"], 2, "70000"),
        (&["show", "no-such-model"], 1, "no-such-model"),
        (&["rm", "no-such-model"], 1, "no-such-model"),
        (&["cp", "no-such-model", "x"], 1, "no-such-model"),
        (&["run", "no-such-model", "hi"], 1, "no-such-model"),
        (&["run", "../../etc/passwd", "hi"], 1, "etc/passwd"),
        (&["pull", "a b"], 1, "hint: names are MODEL, MODEL:TAG"),
        (&["bench", "--pp", "0", "-n", "0"], 2, "--tg (-n)"),
        (&["ps"], 69, "127.0.0.1:9"),
        (&["completions", "tcsh"], 2, "tcsh"),
        (
            &["--config", "/nowhere/at/all.toml", "list"],
            78,
            "all.toml",
        ),
        (&["--stop"], 3, "port 9"),
        (&["--stop", "--logs"], 2, "--logs"),
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        assert!(output.stderr.contains(says), "{args:?}: {output:?}");
        assert!(!output.stderr.contains("panicked"), "{args:?}: {output:?}");
        assert_eq!(output.stdout, "", "{args:?}");
    }
}

#[test]
fn every_command_teaches_with_an_example() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["--help"]).ok().stdout;
    for command in [
        "serve",
        "run",
        "list",
        "show",
        "ps",
        "rm",
        "cp",
        "config",
        "version",
        "completions",
    ] {
        assert!(help.contains(command), "{command}: {help}");
        let page = sandbox.run(&[command, "--help"]).ok().stdout;
        assert!(
            page.contains("Examples") && page.contains(&format!("llmsrv {command}")),
            "{page}"
        );
    }
}

#[test]
fn config_names_every_value_and_its_origin() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("config/llmsrv/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "[server]\nkeep_alive = \"7m\"\nmax_queue = 9\n").unwrap();
    let output = Output::of(
        sandbox
            .command()
            .args(["config", "--json"])
            .env("LLMSRV_MAX_QUEUE", "11")
            .env("OLLAMA_NUM_PARALLEL", "3"),
    )
    .ok();
    let config: Value = serde_json::from_str(&output.stdout).unwrap();
    let text = config.to_string();
    for part in [
        "LLMSRV_KEEP_ALIVE",
        "LLMSRV_MAX_QUEUE",
        "OLLAMA_NUM_PARALLEL",
        "config.toml",
        "LOGKIT_LEVEL",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    sandbox.run(&["config", "check"]).ok();

    std::fs::write(&file, "[server]\nkeep_alive = \"soon\"\n\nmax_que = 9\n").unwrap();
    let output = sandbox.run(&["config", "check"]);
    assert_eq!(output.code, 78, "{output:?}");
    let said = output.stdout + &output.stderr;
    assert!(
        said.contains("config.toml:2") && said.contains("config.toml:4"),
        "{said}"
    );
    assert!(
        said.contains("max_queue"),
        "the nearest known key is named: {said}"
    );
}

#[test]
fn environment_mistakes_name_the_variable() {
    let sandbox = Sandbox::new();
    let output = Output::of(
        sandbox
            .command()
            .arg("list")
            .env("LLMSRV_MAX_QUEUE", "many"),
    );
    assert_eq!(output.code, 78, "{output:?}");
    for part in ["LLMSRV_MAX_QUEUE", "hint: unset the variable"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    let output = Output::of(sandbox.command().arg("list").env("LLMSRV_MODLES", "x")).ok();
    assert!(
        output.stderr.contains("LLMSRV_MODLES") && output.stderr.contains("LLMSRV_MODELS"),
        "{output:?}"
    );
}

#[tokio::test]
async fn legacy_spellings_reach_their_commands() {
    let sandbox = Sandbox::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut child = sandbox
        .command()
        .args(["-p", &port.to_string()])
        .env_remove("LLMSRV_HOST")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}/api/version");
    llmsrv_tls::init();
    let deadline = std::time::Instant::now() + crate::util::TIMEOUT;
    while reqwest::get(&url).await.is_err() {
        assert!(
            std::time::Instant::now() < deadline,
            "nothing answers on {port}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_busy_port_is_explained() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let output = Output::of(
        sandbox
            .command()
            .arg("serve")
            .env("LLMSRV_HOST", server.host()),
    );
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains(server.host()) && output.stderr.contains("hint:"),
        "{output:?}"
    );
}

#[test]
fn completions_know_commands_and_model_names() {
    let sandbox = Sandbox::new();
    sandbox.run(&["list"]).ok();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(
            sandbox
                .run(&["completions", shell])
                .ok()
                .stdout
                .contains("llmsrv"),
            "{shell}"
        );
    }
    let output = Output::of(
        sandbox
            .command()
            .args(["--", "llmsrv", "show", "def"])
            .env("COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", "2")
            .env("_CLAP_IFS", "\n"),
    )
    .ok();
    assert!(output.stdout.contains("default"), "{output:?}");
}

#[test]
fn the_long_version_says_what_is_compiled_in_and_what_the_processor_has() {
    let sandbox = Sandbox::new();
    let short = sandbox.run(&["-V"]).ok().stdout;
    assert_eq!(short, concat!("llmsrv ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = sandbox.run(&["--version"]).ok().stdout;
    let said: BTreeMap<&str, &str> = long
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    assert_eq!(long.lines().next(), short.lines().next());
    let host = Output::of(std::process::Command::new("rustc").arg("-vV")).ok();
    let host = host
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    assert_eq!(said.get("target").copied(), host, "{long}");
    assert_eq!(said["features"], "embedded-model", "{long}");
    assert_eq!(said["built-in model"], "5.4 MB", "{long}");
    // What the kernel of the system knows of the processor, under its names.
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let has = |name: &str| processor.split_whitespace().any(|flag| flag == name);
    let found: Vec<&str> = said["instruction sets"].split(' ').collect();
    for (name, flag) in [
        ("avx2", "avx2"),
        ("fma", "fma"),
        ("avx512f", "avx512f"),
        ("avx512vnni", "avx512_vnni"),
        ("dotprod", "asimddp"),
        ("i8mm", "i8mm"),
    ] {
        assert_eq!(found.contains(&name), has(flag), "{name}: {long}");
    }

    let json = sandbox.run(&["version", "--json"]).ok().json();
    assert_eq!(json["features"], json!(["embedded-model"]));
    assert_eq!(json["instruction_sets"], json!(found));
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/embedded/model.gguf");
    let n_bytes = std::fs::metadata(model).unwrap().len();
    assert_eq!(json["built_in_model_bytes"], n_bytes);
}

/// Runs the script that runs before a build, and returns what it hands on.
fn built_from(folder: &Path, script: &Path, profile: &str, env: &[(&str, &str)]) -> Vec<String> {
    let mut command = std::process::Command::new(script);
    command
        .env_remove("LLMSRV_BUILD_COMMIT")
        .env("TARGET", "some-target")
        .env("PROFILE", profile)
        .envs(env.iter().copied())
        .current_dir(folder);
    let output = Output::of(&mut command).ok().stdout;
    let handed = output.lines();
    let handed = handed.filter_map(|line| line.strip_prefix("cargo::rustc-env=PROGRAM_"));
    handed.map(str::to_owned).collect()
}

#[test]
fn a_build_knows_its_commit_where_there_is_one() {
    let sandbox = Sandbox::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = sandbox.path().join("build");
    let mut compile = std::process::Command::new("rustc");
    compile.args(["--edition=2024", "-o"]).arg(&script);
    Output::of(compile.arg(root.join("build.rs"))).ok();
    let mut git = std::process::Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(root);
    let head = Output::of(&mut git).ok().stdout;

    let on = [
        ("CARGO_FEATURE_DEFAULT", "1"),
        ("CARGO_FEATURE_TWO_WORDS", "1"),
        ("CARGO_FEATURE_ONE", "1"),
    ];
    let released = built_from(root, &script, "release", &on);
    let [target, features, commit] = released.as_slice() else {
        panic!("{released:?}");
    };
    assert_eq!(
        (target.as_str(), features.as_str()),
        ("TARGET=some-target", "FEATURES=one two-words")
    );
    let commit = commit.strip_prefix("COMMIT=").unwrap();
    assert!(commit.len() == 12 && head.starts_with(commit), "{commit}");

    // Not while one tests, not in the sources of something else, not where there is no repository.
    assert_eq!(built_from(root, &script, "debug", &[]).len(), 2);
    assert_eq!(
        built_from(&root.join("src"), &script, "release", &[]).len(),
        2
    );
    assert_eq!(built_from(sandbox.path(), &script, "release", &[]).len(), 2);
    // Unless somebody who knows says it.
    let named = [("LLMSRV_BUILD_COMMIT", "abc")];
    let named = built_from(sandbox.path(), &script, "debug", &named);
    assert_eq!(named[2], "COMMIT=abc");
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let sandbox = Sandbox::new();
    let line = format!(
        "{} list | true; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_llmsrv")
    );
    let mut shell = std::process::Command::new("bash");
    shell
        .args(["-c", &line])
        .env("HOME", sandbox.path())
        .env("XDG_DATA_HOME", sandbox.path())
        .env("LLMSRV_HOST", "127.0.0.1:9");
    let output = Output::of(&mut shell);
    assert!([0, 141].contains(&output.code), "{output:?}");
    assert_eq!(output.stderr, "");
}

#[test]
fn an_empty_store_without_the_embedded_model_says_what_to_do() {
    let sandbox = Sandbox::new();
    let output = Output::of(
        sandbox
            .command()
            .args(["run", "default", "hi"])
            .env("LLMSRV_NO_EMBEDDED", "1"),
    );
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("hint:"), "{output:?}");
}
