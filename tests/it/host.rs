//! The server on this machine: `status`, `stop`, `test`, `examples`.

use std::process::{Command, Stdio};

use crate::util::{Output, Sandbox};

fn port(url: &str) -> &str {
    url.rsplit(':').next().unwrap()
}

#[test]
fn status_tells_what_runs_and_stop_ends_it() {
    let sandbox = Sandbox::new();
    let none = sandbox.run(&["status", "--json"]);
    assert_eq!(none.code, 3, "{none:?}");
    assert_eq!(none.json()["running"], false);
    assert_eq!(sandbox.run(&["stop"]).code, 3);

    let server = sandbox.serve();
    let port = port(&server.url);
    let status = sandbox.run(&["status", "-p", port, "--json"]).ok().json();
    assert_eq!(status["running"], true);
    assert_eq!(status["pid"], server.pid());
    assert_eq!(status["url"], server.url.as_str());
    assert_eq!(status["all_interfaces"], false);
    assert!(status["resident_bytes"].as_u64().unwrap() > 1 << 20);
    let text = sandbox.run(&["status", "-p", port]).ok().stdout;
    for part in [
        server.url.as_str(),
        "127.0.0.1 only",
        "Models   1: llmsrv-tiny-code",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(sandbox.run(&["status", "-q", "-p", port]).ok().stdout, "");

    // Another user's folder knows nothing of it, and the process is left alone.
    let stranger = Sandbox::new();
    let refused = stranger.run(&["stop", "-p", port]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("hint:"), "{refused:?}");

    let stopped = sandbox.run(&["stop", "-p", port]).ok();
    assert!(stopped.stderr.contains(&server.url), "{stopped:?}");
    assert_eq!(sandbox.run(&["status", "-p", port]).code, 3);
    let left = sandbox.path().join("state/llmsrv/run");
    assert_eq!(std::fs::read_dir(left).unwrap().count(), 0);
}

#[test]
fn a_server_that_wants_a_key_is_alive() {
    let sandbox = Sandbox::new();
    let key = sandbox.run(&["key", "add", "a"]).ok().stdout;
    let server = sandbox.serve();
    let port = port(&server.url);
    let status = sandbox.run(&["status", "-p", port]).ok().stdout;
    assert!(status.contains("LLMSRV_API_KEY"), "{status}");
    let status = sandbox.run(&["status", "-p", port, "--json"]).ok().json();
    assert_eq!(
        (&status["running"], &status["wants_key"]),
        (&true.into(), &true.into())
    );
    assert_eq!(sandbox.run(&["status", "-q", "-p", port]).code, 0);
    let version = sandbox.run(&["version", "-p", port]).ok().stdout;
    assert!(version.contains("wants a key"), "{version}");
    let tested = sandbox.run(&["test", "-p", port]).ok().stdout;
    assert!(
        tested.contains("wants a key") && tested.contains("failed 0"),
        "{tested}"
    );
    let watched = sandbox.run(&["monitor", "--once", "-p", port]).ok().stdout;
    assert!(watched.contains("wants a key"), "{watched}");
    // With the key it says more.
    let mut command = sandbox.command();
    command
        .args(["status", "-p", port])
        .env("LLMSRV_API_KEY", key.trim());
    let status = Output::of(&mut command).ok().stdout;
    assert!(status.contains("Models   1: "), "{status}");

    // Keys can be done away with; another server asks for none.
    let off = sandbox.run(&["key", "off"]).ok();
    assert!(off.stderr.contains("started again"), "{off:?}");
    drop(server);
    let server = sandbox.serve();
    let port = self::port(&server.url);
    let status = sandbox.run(&["status", "-p", port, "--json"]).ok().json();
    assert_eq!(status["wants_key"], false);
}

#[tokio::test]
async fn status_shows_troubles_and_not_its_own_questions() {
    let sandbox = Sandbox::new();
    let port = crate::machine::free_port().to_string();
    let host = format!("127.0.0.1:{port}");
    // What a server before it wrote is not of this one.
    let file = sandbox
        .path()
        .join(format!("state/llmsrv/server-{port}.log"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(
        &file,
        "2020-01-01T00:00:00Z  WARN llmsrv: long ago\nand more\n",
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    sandbox
        .run(&["serve", "--background", "--host", &host])
        .ok();
    let status = || sandbox.run(&["status", "-p", &port, "--json"]).ok().json();
    status();
    let log = &status()["log"];
    assert_eq!(log, &serde_json::json!([]), "{log}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("long ago"));
    let body = r#"{"model": "default", "prompt": "", "options": {"temprature": 0}}"#;
    llmsrv_tls::init();
    let generate = reqwest::Client::new().post(format!("http://{host}/api/generate"));
    generate.body(body).send().await.unwrap();
    let log = status()["log"].to_string();
    assert!(
        log.contains("temprature") && !log.contains("long ago"),
        "{log}"
    );
    sandbox.run(&["stop", "-p", &port]).ok();
}

#[test]
fn test_checks_a_server_step_by_step() {
    let sandbox = Sandbox::new();
    let nothing = sandbox.run(&["test"]);
    assert_eq!(nothing.code, 1, "{nothing:?}");
    assert!(nothing.stdout.contains("llmsrv serve"), "{nothing:?}");

    let server = sandbox.serve_with(&[], &[("LLMSRV_HOST", "0.0.0.0:0")]);
    let port = port(&server.url);
    let all = sandbox.run(&["test", "-p", port, "--json"]).ok().json();
    assert_eq!(all["failed"], 0, "{all}");
    let outcome = |name: &str| {
        let mut checks = all["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name).unwrap();
        check["outcome"].as_str().unwrap().to_owned()
    };
    for name in [
        "process",
        "port",
        "API",
        "all interfaces",
        "models",
        "generate",
        "chat",
        "stream",
    ] {
        assert_eq!(outcome(name), "pass", "{name}: {all}");
    }
    // A machine without a network has no address to try.
    assert_ne!(outcome("network API"), "fail", "{all}");

    let wrong = sandbox.run(&["test", "-p", port, "--model", "nope"]);
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(wrong.stdout.contains("failed 3"), "{wrong:?}");
    assert!(wrong.stdout.contains("llmsrv list"), "{wrong:?}");
}

#[test]
fn every_example_runs_as_it_is() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let port = port(&server.url);
    let printed = sandbox.run(&["examples", "-p", port, "--json"]).ok().json();
    let examples = printed["examples"].as_array().unwrap();
    assert!(examples.len() >= 30, "{}", examples.len());
    for example in examples {
        let (text, name) = (example["text"].as_str().unwrap(), &example["name"]);
        assert!(text.contains(&server.url), "{text}");
        let mut command = match example["language"].as_str().unwrap() {
            "curl" => Command::new("sh"),
            "python" => Command::new("python3"),
            "js" => Command::new("node"),
            other => panic!("{other}"),
        };
        let flag = if example["language"] == "js" {
            "-e"
        } else {
            "-c"
        };
        let output = command
            .args([flag, text])
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| {
                panic!("{name}: {error}; `tests/run` installs what is missing")
            });
        assert!(output.status.success(), "{name}: {text}\n{output:?}");
        assert!(!output.stdout.is_empty(), "{name}: {text}\n{output:?}");
    }

    let few = sandbox
        .run(&["examples", "-l", "curl", "embed", "version"])
        .ok();
    assert_eq!(few.stdout.matches("curl -fsS").count(), 2, "{few:?}");
    let none = sandbox.run(&["examples", "nonsense"]);
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("openai-stream"), "{none:?}");
    // As text they are a script.
    let script = sandbox
        .run(&["examples", "-p", port, "-l", "curl", "chat"])
        .ok();
    Output::of(Command::new("sh").args(["-e", "-c", &script.stdout])).ok();
}

#[tokio::test]
async fn requests_are_logged_into_a_database_on_demand() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("requests.db");
    let sink = format!("db:{}", file.display());
    let server = sandbox.serve_with(&[], &[("LLMSRV_REQUEST_LOG", &sink)]);
    server.get("/api/tags?secret=1").await.ok();
    server.get("/api/nope").await;
    let body = serde_json::json!({"model": "nope", "prompt": "my password"});
    server.post("/api/generate", &body).await;
    sandbox.run(&["stop", "-p", port(&server.url)]).ok();

    let logged = sandbox
        .run(&["logkit", "logs", file.to_str().unwrap(), "--json"])
        .ok();
    let entries: Vec<serde_json::Value> = logged
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |request: &str| {
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry["function_name"] == request);
        entry.unwrap_or_else(|| panic!("{request}: {logged:?}"))
    };
    assert_eq!(of("GET /api/tags")["level"], "INFO");
    assert_eq!(of("GET /api/tags")["return_value"], "200");
    assert_eq!(of("GET /api/nope")["level"], "WARNING");
    let refused = of("POST /api/generate");
    assert_eq!(refused["return_value"], "404");
    assert_eq!(refused["extra"]["client"], "127.0.0.1");
    assert!(refused["duration_ms"].is_number(), "{refused}");
    // Neither what was asked nor the query.
    for secret in ["secret=1", "my password"] {
        assert!(!logged.stdout.contains(secret), "{logged:?}");
    }

    let wrong = sandbox
        .command()
        .arg("serve")
        .env("LLMSRV_REQUEST_LOG", "nonsense")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(78), "{wrong:?}");
}
