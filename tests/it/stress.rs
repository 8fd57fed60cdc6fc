//! `llmsrv test` with load on the machine.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::util::{Sandbox, TIMEOUT};

#[test]
fn load_is_measured_without_a_server_or_rights() {
    let sandbox = Sandbox::new();
    let seen = sandbox
        .run(&[
            "test",
            "--cpu",
            "2",
            "--mem",
            "16MiB",
            "--disk",
            "--duration",
            "300ms",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(seen["interrupted"], false);
    let tests = seen["tests"].as_array().unwrap();
    let (cpu, memory) = (&tests[0], &tests[1]);
    assert_eq!(
        (&cpu["name"], &cpu["outcome"]),
        (&"cpu".into(), &"pass".into())
    );
    assert_eq!(cpu["facts"]["threads"], 2);
    assert!(cpu["facts"]["steps_per_second"].as_f64().unwrap() > 1e5);
    assert!(cpu["facts"]["seconds"].as_f64().unwrap() >= 0.3);
    assert_eq!(memory["facts"]["tested_bytes"], 16 << 20);
    assert_eq!(memory["facts"]["wrong"], 0);
    assert!(memory["facts"]["passes"].as_u64().unwrap() >= 1);
    // Which disks there are is the machine's matter; each has a row.
    assert!(tests.len() > 2, "{seen}");
    for disk in &tests[2..] {
        assert!(disk["name"].as_str().unwrap().starts_with("disk"), "{disk}");
        assert_ne!(disk["outcome"], "fail", "{disk}");
        if disk["outcome"] == "pass" {
            assert!(disk["facts"]["bytes_per_second"].as_f64().unwrap() > 0.0);
        }
    }

    let table = sandbox
        .run(&["test", "--cpu", "1", "--duration", "100ms"])
        .ok()
        .stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(
        lines[0].starts_with("TEST") && lines[1].contains("1 threads"),
        "{table}"
    );
}

#[test]
fn load_ends_at_an_interrupt_with_its_figures() {
    let sandbox = Sandbox::new();
    let child = sandbox
        .command()
        .args(["test", "--cpu", "1", "--mem", "1MiB", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < TIMEOUT / 2, "a minute was asked for");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["interrupted"], true);
    let tests = seen["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 1, "what comes after is left out: {seen}");
    assert!(tests[0]["facts"]["steps_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn nonsense_is_refused_before_anything_begins() {
    let sandbox = Sandbox::new();
    for (args, says) in [
        (["--cpu", "--duration", "0s"].as_slice(), "duration"),
        (&["--cpu", "--duration=-1"], "duration"),
        (&["--cpu", "many"], "cpu"),
        (&["--mem", "lots"], "512MiB"),
    ] {
        let output = sandbox.run(&[&["test"], args].concat());
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(says), "{output:?}");
    }
}
