//! `kill -9` of the whole program while it writes its store (the store's own test does many more).

use std::{process::Stdio, time::Duration};

use crate::util::Sandbox;

#[test]
fn a_killed_first_start_leaves_a_store_that_opens() {
    for round in 0..50_u64 {
        let sandbox = Sandbox::new();
        let mut child = sandbox
            .command()
            .arg("serve")
            .env("LLMSRV_HOST", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From before the first write to after the last one.
        std::thread::sleep(Duration::from_micros(round * 1_237 % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();

        let output = sandbox.run(&["list", "--json"]).ok();
        let models: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let names: Vec<&str> = models["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 2, "round {round}: {names:?}");
        if round % 10 == 0 {
            let answer = sandbox.run(&["run", "default", "Hello!"]).ok();
            assert!(answer.stdout.contains("llmsrv"), "{answer:?}");
        }
    }
}
