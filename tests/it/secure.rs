//! A server for others: keys, https, and changes while it runs.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::util::{Output, Reply, Sandbox, Server};

/// Makes a key and returns it.
fn add(sandbox: &Sandbox, name: &str, role: &str) -> String {
    let made = sandbox.run(&["key", "add", name, "--role", role]).ok();
    made.stdout.trim().to_owned()
}

async fn with_key(server: &Server, path: &str, key: &str) -> Reply {
    let url = format!("{}{path}", server.url);
    Reply::of(server.http.get(url).bearer_auth(key)).await
}

async fn copy(server: &Server, key: &str) -> Reply {
    let url = format!("{}/api/copy", server.url);
    let body = json!({"source": "default", "destination": "mine"}).to_string();
    Reply::of(server.http.post(url).header("x-api-key", key).body(body)).await
}

#[tokio::test]
async fn keys_are_made_listed_used_and_taken_back_while_the_server_runs() {
    let sandbox = Sandbox::new();
    let (reader, keeper) = (
        add(&sandbox, "reader", "infer"),
        add(&sandbox, "keeper", "manage"),
    );
    assert!(reader.starts_with("llmsrv_") && reader.len() == 55 && reader != keeper);
    let file = sandbox.path().join("config/llmsrv/keys.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        !text.contains(&reader[7..]) && text.contains("sha256"),
        "{text}"
    );
    let listed: Value =
        serde_json::from_str(&sandbox.run(&["key", "list", "--json"]).ok().stdout).unwrap();
    let names: Vec<_> = listed["keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (&key["name"], &key["role"]))
        .collect();
    assert_eq!(
        names,
        [
            (&json!("reader"), &json!("infer")),
            (&json!("keeper"), &json!("manage"))
        ]
    );
    let table = sandbox.run(&["key", "list"]).ok().stdout;
    assert!(
        table.contains("reader") && !table.contains(&reader[7..]),
        "{table}"
    );
    let twice = sandbox.run(&["key", "add", "reader"]);
    assert!(
        twice.code == 1 && twice.stderr.contains("already"),
        "{twice:?}"
    );

    let server = sandbox.serve_with(&[], &[("LLMSRV_API_KEYS", "plain-one")]);
    assert_eq!(server.get("/api/tags").await.status, 401);
    assert_eq!(server.get("/health").await.status, 200);
    for key in [reader.as_str(), &keeper, "plain-one"] {
        assert_eq!(
            with_key(&server, "/api/tags", key).await.status,
            200,
            "{key}"
        );
    }
    assert_eq!(copy(&server, &reader).await.status, 403);
    assert_eq!(copy(&server, &keeper).await.status, 200);
    assert_eq!(copy(&server, "plain-one").await.status, 200);

    // Added, taken back: without a signal.
    let late = add(&sandbox, "late", "infer");
    sandbox.run(&["key", "rm", "reader"]).ok();
    // The three that are left, and no longer the one that was taken back.
    server.wait_for_log("keys read keys=3", 1);
    assert_eq!(with_key(&server, "/api/tags", &late).await.status, 200);
    assert_eq!(with_key(&server, "/api/tags", &reader).await.status, 401);

    // A file that is broken or gone changes nothing.
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, "[[key]").unwrap();
    server.wait_for_log("the old keys stay", 1);
    assert_eq!(with_key(&server, "/api/tags", &late).await.status, 200);
    assert_eq!(server.get("/api/tags").await.status, 401);
    fs::remove_file(&file).unwrap();
    server.signal("-HUP");
    server.wait_for_log("settings read again", 1);
    assert_eq!(server.get("/api/tags").await.status, 401);
    fs::write(&file, good).unwrap();

    let log = server.log();
    for secret in [reader.as_str(), &keeper, &late, "plain-one"] {
        assert!(!log.contains(secret), "a key is in the log");
    }
    let copied = |line: &&str| line.contains("keeper") && line.contains("/api/copy");
    let line = log.lines().find(copied).unwrap();
    for part in [
        "llmsrv::request",
        "method=POST",
        "/api/copy",
        "status=200",
        "client=\"127.0.0.1\"",
        "ms=",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!log.contains("/health"), "probes are not logged");
    server.end("-TERM");

    // A server does not start with keys that it cannot read.
    fs::write(&file, "nonsense").unwrap();
    let refused = sandbox.run(&["serve"]);
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.stderr.contains("keys.toml"), "{refused:?}");
}

#[tokio::test]
async fn the_last_key_locks_the_door_behind_it() {
    let sandbox = Sandbox::new();
    let key = add(&sandbox, "only", "admin");
    let removed = sandbox.run(&["key", "rm", "only"]).ok();
    assert!(
        removed.stderr.contains("refuses every request"),
        "{removed:?}"
    );
    let server = sandbox.serve();
    assert_eq!(with_key(&server, "/api/tags", &key).await.status, 401);
    assert_eq!(server.get("/api/tags").await.status, 401);
    let unknown = sandbox.run(&["key", "rm", "only"]);
    assert!(
        unknown.code == 1 && unknown.stderr.contains("no such key"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn settings_are_read_again_at_a_signal() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("config/llmsrv");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.toml");
    fs::write(
        &file,
        "[server]\norigins = [\"https://old.example\"]\ngrace = \"5s\"\n",
    )
    .unwrap();
    let server = sandbox.serve();
    let from = async |origin: &str| {
        let request = server.http.get(format!("{}/api/tags", server.url));
        Reply::of(request.header("origin", origin)).await.status
    };
    assert_eq!(from("https://old.example").await, 200);
    assert_eq!(from("https://new.example").await, 403);

    // Mistakes change nothing.
    fs::write(
        &file,
        "[server]\norigins = [\"https://new.example\"]\nrate_limit = \"often\"\n",
    )
    .unwrap();
    server.signal("-HUP");
    server.wait_for_log("the settings have mistakes", 1);
    assert_eq!(from("https://old.example").await, 200);

    fs::write(
        &file,
        "[server]\norigins = [\"https://new.example\"]\nrate_limit = \"4/h\"\ngrace = \"9s\"\nlog = \"llmsrv=debug\"\n",
    )
    .unwrap();
    server.signal("-HUP");
    server.wait_for_log("settings read again", 1);
    let log = server.log();
    for part in ["LLMSRV_ORIGINS", "LLMSRV_RATE_LIMIT", "LLMSRV_LOG"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let waits = log
        .lines()
        .find(|line| line.contains("LLMSRV_GRACE"))
        .unwrap();
    assert!(waits.contains("the next start"), "{waits}");
    assert_eq!(from("https://old.example").await, 403);
    for status in [200, 200, 200, 200, 429] {
        assert_eq!(from("https://new.example").await, status);
    }
    assert_eq!(server.get("/health").await.status, 200);
    server.wait_for_log("path=\"/health\"", 1);
    assert_eq!(server.end("-TERM"), 0);
}

/// Writes a certificate for `localhost` and its key.
fn certify(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

/// Calls with curl, trusting only one certificate.
fn curl(sandbox: &Sandbox, server: &Server, certificate: &str, args: &[&str]) -> Output {
    let trusted = sandbox.path().join("trusted.pem");
    fs::write(&trusted, certificate).unwrap();
    let (_, port) = server.host().split_once(':').unwrap();
    let mut command = Command::new("curl");
    command
        .args(["-sS", "--noproxy", "*", "--cacert"])
        .arg(trusted)
        .args(args)
        .arg(format!("https://localhost:{port}/api/tags"));
    Output::of(&mut command)
}

#[test]
fn certificates_are_replaced_while_the_server_runs() {
    let sandbox = Sandbox::new();
    let old = certify(sandbox.path());
    let paths = ["cert.pem", "key.pem"].map(|name| sandbox.path().join(name));
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let server = sandbox.serve_with(
        &[],
        &[("LLMSRV_TLS_CERT", paths[0]), ("LLMSRV_TLS_KEY", paths[1])],
    );
    assert!(server.url.starts_with("https://"), "{}", server.url);
    for version in ["--http1.1", "--http2"] {
        let answer = curl(&sandbox, &server, &old, &[version]).ok();
        assert!(answer.stdout.contains("\"models\""), "{answer:?}");
    }

    // The commands speak https where the address or the settings of the server say so.
    let (_, port) = server.host().split_once(':').unwrap();
    let address = format!("https://localhost:{port}");
    let list =
        |env: &[(&str, &str)]| Output::of(sandbox.command().arg("list").envs(env.iter().copied()));
    let trusted = ("LLMSRV_CA_CERT", paths[0]);
    let by_settings = ("LLMSRV_HOST", format!("localhost:{port}"));
    for env in [
        [("LLMSRV_HOST", address.as_str()), trusted, ("X", "")],
        [
            ("LLMSRV_HOST", by_settings.1.as_str()),
            trusted,
            ("LLMSRV_TLS_CERT", paths[0]),
        ],
    ] {
        assert!(list(&env).ok().stdout.contains("default"));
    }
    let distrusted = list(&[("LLMSRV_HOST", &address)]);
    assert_eq!(distrusted.code, 69, "{distrusted:?}");
    assert!(distrusted.stderr.contains("certificate"), "{distrusted:?}");

    // New files are taken up by themselves; broken ones are not.
    let new = certify(sandbox.path());
    server.wait_for_log("certificate read", 1);
    curl(&sandbox, &server, &new, &[]).ok();
    assert_ne!(curl(&sandbox, &server, &old, &[]).code, 0);
    fs::write(paths[0], "rubbish").unwrap();
    server.wait_for_log("the old certificate stays", 1);
    curl(&sandbox, &server, &new, &[]).ok();
    // A pair of which only one half is new yet.
    fs::write(paths[0], &old).unwrap();
    server.wait_for_log("the old certificate stays", 2);
    curl(&sandbox, &server, &new, &[]).ok();
    let last = certify(sandbox.path());
    server.signal("-HUP");
    server.wait_for_log("settings read again", 1);
    curl(&sandbox, &server, &last, &[]).ok();
    assert_eq!(server.end("-TERM"), 0);

    for (name, env) in [
        (
            "LLMSRV_TLS_KEY",
            [("LLMSRV_TLS_CERT", paths[0]), ("LLMSRV_TLS_KEY", "")],
        ),
        (
            "none.pem",
            [
                ("LLMSRV_TLS_CERT", "none.pem"),
                ("LLMSRV_TLS_KEY", paths[1]),
            ],
        ),
        (
            "key.pem",
            [("LLMSRV_TLS_CERT", paths[1]), ("LLMSRV_TLS_KEY", paths[1])],
        ),
        (
            "https",
            [
                ("LLMSRV_HOST", "https://127.0.0.1:0"),
                ("LLMSRV_TLS_KEY", ""),
            ],
        ),
    ] {
        let refused = Output::of(sandbox.command().arg("serve").envs(env));
        assert_eq!(refused.code, 78, "{refused:?}");
        assert!(refused.stderr.contains(name), "{name}: {refused:?}");
    }
}
