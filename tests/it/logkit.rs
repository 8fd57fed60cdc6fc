//! The logger's commands within this program.

use std::{os::unix::fs::symlink, process::Command};

use crate::util::Sandbox;

#[test]
fn the_logger_is_a_command_and_another_name_of_the_program() {
    let sandbox = Sandbox::new();
    let version = format!("logkit {}\n", env!("CARGO_PKG_VERSION"));
    for args in [
        &["logkit", "version"][..],
        &["log", "--version"],
        &["--quiet", "logkit", "version"],
    ] {
        let output = sandbox.run(args);
        assert_eq!((output.code, &output.stdout), (0, &version), "{args:?}");
    }
    let output = sandbox.run(&["logkit", "run", "-q", "-p", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.code, 7, "{output:?}");
    let output = sandbox.run(&["logkit", "logs", "--json"]);
    assert!(output.stdout.contains("\"returncode\":7"), "{output:?}");
    for name in ["logkit", "log"] {
        let output = sandbox.run(&["help", name, "run"]);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(
            output.stdout.contains("Usage: llmsrv logkit run"),
            "{output:?}"
        );
    }
    let output = sandbox.run(&["logkit", "run", "--no-such-option"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(
        output.stderr.contains("Usage: llmsrv logkit run"),
        "{output:?}"
    );

    let name = sandbox.path().join("logkit");
    symlink(env!("CARGO_BIN_EXE_llmsrv"), &name).unwrap();
    let output = Command::new(&name).arg("version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), version);
}
