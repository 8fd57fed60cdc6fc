//! The examples do what they say.

use std::{path::PathBuf, process::Command};

use crate::util::{Running, root, start};

/// Runs an example against a server; gives what it printed.
async fn run(server: &Running, program: &str, script: &str) -> String {
    let script = root().join("examples/logkit").join(script);
    let mut command = Command::new(program);
    command
        .arg(script)
        .env("LOGKIT_URL", server.url(""))
        .env(
            "LOGKIT_GRPC",
            server.server.bound().grpc.unwrap().to_string(),
        )
        .env("LOGKIT_API_KEY", "sesame")
        .env("NO_PROXY", "*")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; tests/run installs it"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    text
}

async fn server() -> Running {
    start(|settings| settings.api_keys = vec!["sesame".into()]).await
}

#[tokio::test]
async fn python_with_its_standard_library() {
    let server = server().await;
    let text = run(&server, "python3", "http_client.py").await;
    assert_eq!(
        text,
        "stored 3\ndivide ('1', '0') ZeroDivisionError: division by zero\n"
    );
    assert_eq!(server.rows().len(), 5);
}

#[tokio::test]
async fn a_shell_with_curl() {
    let server = server().await;
    let text = run(&server, "bash", "client.sh").await;
    assert!(text.contains("it's \"quoted\"\n"), "{text}");
    let rows = server.rows();
    assert_eq!(rows.len(), 5);
    let entry = &rows[0].entry;
    assert_eq!(
        (&*entry.function_name, &*entry.args),
        ("echo", "('it\\'s \"quoted\"',)")
    );
    let failed = &rows[1].entry;
    assert_eq!(failed.level.as_str(), "ERROR");
    assert_eq!(failed.extra["returncode"], 2);
    assert!(
        text.ends_with("\"span_id\":\"\",\"parent_id\":\"\"}\n"),
        "{text}"
    );
}

#[tokio::test]
async fn javascript_follows_what_it_logs() {
    let server = server().await;
    let text = run(&server, "node", "client.mjs").await;
    assert!(text.starts_with("stored as row 1\n"), "{text}");
    assert!(
        text.ends_with("followed render ('index.html', 3)\n"),
        "{text}"
    );
}

#[tokio::test]
async fn python_with_grpc() {
    let clients = PathBuf::from(
        std::env::var_os("TEST_CLIENTS")
            .expect("the gRPC client of Python is missing, which `tests/run` installs"),
    );
    let server = server().await;
    let python = clients.join("venv/bin/python");
    let text = run(&server, &python.display().to_string(), "grpc_client.py").await;
    assert!(text.starts_with("row 1 at "), "{text}");
    assert!(
        text.ends_with("backup ['/home', 'a, b'] done {'host': 'here'}\n"),
        "{text}"
    );
    assert_eq!(server.rows().len(), 6);
}
