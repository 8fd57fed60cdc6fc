//! The document against the running program, by a tool that knows neither.
//!
//! `tests/run` installs it and names the folder in `TEST_CLIENTS`; without it this test fails.

use std::{path::PathBuf, process::Command};

use crate::util::{Output, Sandbox};

/// What a stranger may find: never a failure of the server, never an answer that the document does
/// not describe. That wrong requests are refused is not asked: the API reads requests with patience.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";

/// Endpoints that would speak to other machines.
const REMOTE: &[&str] = &["/api/pull", "/api/push"];

#[test]
fn answers_are_what_the_document_says() {
    let clients = PathBuf::from(
        std::env::var_os("TEST_CLIENTS")
            .expect("schemathesis is missing, which `tests/run` installs"),
    );
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let hooks = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut command = Command::new(clients.join("venv/bin/schemathesis"));
    command
        .args(["run", &format!("{}/openapi.json", server.url)])
        .args(["--checks", CHECKS, "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "25", "--seed", "1", "--no-shrink"])
        .args(["--suppress-health-check", "all", "--warnings", "off"])
        .args(["--request-timeout", "60"])
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", hooks)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(sandbox.path());
    for path in REMOTE {
        command.args(["--exclude-path", path]);
    }
    let output = Output::of(&mut command);
    assert_eq!(output.code, 0, "{}\n{}", output.stdout, output.stderr);
}
