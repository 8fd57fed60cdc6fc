//! The services as a command.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
};

use crate::util::Sandbox;

#[test]
fn the_services_run_until_they_are_told_to_stop() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["serve", "--port", "0", "--grpc-port", "0"])
        .env("LOGKIT_LOG_DIR", "data")
        .env("LOGKIT_API_KEY", "sesame")
        .env("LOGKIT_SINKS", "json:copy.jsonl,csv:copy.csv")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it did not start");
        if let Some((_, rest)) = line.split_once("HTTP on ") {
            break rest.split(',').next().unwrap().to_owned();
        }
    };
    // Nobody else reaches it unless its owner says so.
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let ask = |key: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let body = r#"{"cmd": "backup", "output": "x", "env": "=cmd|calc"}"#;
        write!(
            stream,
            "POST /log HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("wrong").starts_with("HTTP/1.1 401"));
    assert!(ask("sesame").starts_with("HTTP/1.1 200"));
    let pid = child.id().to_string();
    let killed = std::process::Command::new("kill").arg(&pid).status();
    assert!(killed.unwrap().success());
    assert!(child.wait().unwrap().success());
    let rows = sandbox
        .run(&["logs", "data/logkit_central.db", "--json"])
        .json();
    let rows: Vec<serde_json::Value> = rows;
    assert_eq!(rows[0]["function_name"], "backup");
    let copy = std::fs::read_to_string(sandbox.path().join("copy.jsonl")).unwrap();
    assert!(copy.contains("\"backup\""), "{copy}");
    // A spreadsheet computes nothing of what strangers logged.
    let copy = std::fs::read_to_string(sandbox.path().join("copy.csv")).unwrap();
    assert!(copy.contains(",'=cmd|calc,"), "{copy}");
    for file in ["copy.csv", "copy.jsonl", "data/logkit_central.db"] {
        let metadata = std::fs::metadata(sandbox.path().join(file)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{file}");
    }
}

#[test]
fn an_open_door_is_told_of() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .command(&["serve", "--network", "--port", "0", "--grpc-port", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    for part in [
        "HTTP on 0.0.0.0:",
        "gRPC on 0.0.0.0:",
        "LOGKIT_API_KEY, for example ",
    ] {
        assert!(line.contains(part), "{part} not in {line}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = sandbox
        .command(&["serve", "--host", "127.0.0.1", "--port", &port, "--no-grpc"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("cannot listen on 127.0.0.1:{port}")),
        "{said}"
    );
}
