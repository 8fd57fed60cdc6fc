//! `logkit run`: the command runs as it would without us, and the entry tells how.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::util::{Ended, Sandbox, eventually};

#[test]
fn exit_statuses_are_those_of_the_command() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("plain.txt"), "no program").unwrap();
    let folder = sandbox.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for (args, code, kind) in [
        (&["run", "true"][..], 0, ""),
        (&["run", "--", "sh", "-c", "exit 7"], 7, "ProcessError"),
        (&["run", "sh", "-c", "exit 255"], 255, "ProcessError"),
        (&["run", "sh", "-c", "kill -9 $$"], 137, "ProcessError"),
        (&["run", "sh", "-c", "kill -TERM $$"], 143, "ProcessError"),
        (
            &["run", "--no-tty", "sh", "-c", "kill -SEGV $$"],
            139,
            "ProcessError",
        ),
        (&["run", "-p", "sh", "-c", "exit 9"], 9, "ProcessError"),
        (&["run", "no-such-command", "x"], 127, "FileNotFoundError"),
        (&["run", "./no/such/file"], 127, "FileNotFoundError"),
        (&["run", "./plain.txt"], 126, "PermissionError"),
        (&["run", "./folder"], 126, "PermissionError"),
        (
            &["run", "--timeout", "0.2s", "sleep", "60"],
            124,
            "TimeoutError",
        ),
    ] {
        let sandbox_run = Sandbox::new();
        let mut command = sandbox_run.command(args);
        command.current_dir(sandbox.path());
        command.env("LOGKIT_DB", sandbox_run.db());
        let ended = Ended::of(&mut command);
        assert_eq!(ended.code, Some(code), "{args:?} {ended:?}");
        let entry = sandbox_run.entry();
        assert_eq!(entry["exception_type"], kind, "{args:?}");
        assert_eq!(entry["extra"]["returncode"], code, "{args:?}");
        assert_eq!(entry["level"], if code == 0 { "INFO" } else { "ERROR" });
    }
    for args in [
        &["run"][..],
        &["run", "--"],
        &["run", "--no-such-option", "ls"],
        &["run", "--timeout", "soon", "ls"],
        &["run", "--cwd", "/no/such/folder", "ls"],
        &["run", "--env-file", "/no/such/file", "ls"],
        &["no-such-command"],
    ] {
        let sandbox = Sandbox::new();
        let ended = sandbox.run(args);
        assert_eq!(ended.code, Some(2), "{args:?} {ended:?}");
        assert!(
            !ended.stderr.is_empty() && !sandbox.db().exists(),
            "{args:?}"
        );
    }
}

#[test]
fn the_entry_has_the_fields_of_a_command() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&[
        "run",
        "--verbose",
        "--env",
        "prod",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 3",
    ]);
    assert_eq!((ended.stdout.as_str(), ended.code), ("out\n", Some(3)));
    assert!(ended.stderr.starts_with("err\n"), "{ended:?}");
    let line = ended.stderr.lines().last().unwrap();
    assert!(
        line.contains(
            " | ERROR | logkit | sh() | args=('-c', 'echo out; echo err >&2; exit 3') | "
        ),
        "{line}"
    );
    assert!(line.contains("EXCEPTION ProcessError: err"), "{line}");

    let entry = sandbox.entry();
    for (field, expected) in [
        ("level", "ERROR"),
        ("function_name", "sh"),
        ("module", "cli"),
        ("args", "('-c', 'echo out; echo err >&2; exit 3')"),
        ("kwargs", "{'language': 'bash', 'env': 'prod'}"),
        ("arg_types", "str, str"),
        ("return_value", "'out\\n'"),
        ("return_type", "str"),
        ("exception", "err\n"),
        ("exception_type", "ProcessError"),
        ("environment", "prod"),
    ] {
        assert_eq!(entry[field], expected, "{field}");
    }
    assert!(entry["duration_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(entry["trace_id"].as_str().unwrap().len(), 16);
    let extra = &entry["extra"];
    assert_eq!(extra["stdout"], "out\n");
    assert_eq!(extra["stderr"], "err\n");
    assert_eq!(extra["cmd"], "sh -c echo out; echo err >&2; exit 3");
    assert_eq!(
        extra["cwd"],
        sandbox.path().canonicalize().unwrap().to_str().unwrap()
    );

    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["run", "-q", "sh", "-c", "echo to-stderr >&2"]);
    assert_eq!(ended.stderr, "to-stderr\n");
    let entry = sandbox.entry();
    assert_eq!(
        (&entry["return_value"], &entry["return_type"]),
        (&"None".into(), &"NoneType".into())
    );
    assert_eq!(
        (&entry["exception"], &entry["environment"]),
        (&"".into(), &"local".into())
    );
    assert_eq!(entry["extra"]["stderr"], "to-stderr\n");
}

#[test]
fn bytes_pass_untouched_whatever_they_are() {
    let sandbox = Sandbox::new();
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let file = sandbox.path().join("bytes");
    fs::write(&file, &all).unwrap();
    let ended = sandbox.run(&["run", "-q", "cat", "bytes"]);
    assert!(ended.bytes == all, "{} bytes", ended.bytes.len());
    let extra = &sandbox.entry()["extra"];
    assert_eq!(
        (&extra["lossy"], &extra["truncated"]),
        (&true.into(), &true.into())
    );
    assert_eq!(extra["stdout_bytes"], 300_000);
    assert!(extra["stdout"].as_str().unwrap().contains("bytes left out"));
}

#[test]
fn what_is_kept_of_the_output_is_bounded() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "-q", "--max-output", "20", "seq", "1000"]);
    assert_eq!(
        sandbox.entry()["extra"]["stdout"],
        "1\n2\n3\n4\n5\n\n... [3873 bytes left out] ...\n\n999\n1000\n"
    );
}

#[test]
fn stdin_is_that_of_the_command() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "-q", "cat"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.stdout.as_str(), ended.code), ("typed\n", Some(0)));
}

#[test]
fn output_appears_at_once() {
    let sandbox = Sandbox::new();
    let began = Instant::now();
    let mut command = sandbox.command(&["run", "-q", "sh", "-c", "echo first; sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"first\n");
    // The goal is 50 ms; a busy machine and a debug build get more.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn much_output_needs_little_memory() {
    let sandbox = Sandbox::new();
    let script = "head -c 200000000 /dev/zero; touch done; sleep 60";
    let mut command = sandbox.command(&["run", "-q", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    eventually("the end of the output", || {
        sandbox.path().join("done").exists().then_some(())
    });
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    signal(&child, "KILL");
    child.wait().unwrap();
    assert!(peak < 24 * 1024, "{peak} KiB");
}

#[test]
fn signals_reach_the_command_and_the_entry_is_written() {
    for (name, script, code) in [
        ("TERM", "touch started; sleep 60", 143),
        ("HUP", "touch started; sleep 60", 129),
        (
            "INT",
            "trap 'echo stopping; exit 5' INT; touch started; while :; do sleep 0.1; done",
            5,
        ),
        (
            "QUIT",
            "trap 'exit 6' QUIT; touch started; while :; do sleep 0.1; done",
            6,
        ),
    ] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command(&["run", "-q", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        eventually("the start", || {
            sandbox.path().join("started").exists().then_some(())
        });
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}");
        let entry = sandbox.entry();
        assert_eq!(entry["extra"]["returncode"], code, "{name}");
        assert_eq!(entry["level"], "ERROR");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let sandbox = Sandbox::new();
    let logkit = env!("CARGO_BIN_EXE_logkit");
    let script = format!(
        "trap '' HUP; {logkit} run -q sh -c 'touch started; sleep 1; echo alive' & \
         while [ ! -e started ]; do sleep 0.05; done; kill -HUP $!; wait $!"
    );
    let mut command = sandbox.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", &script])
        .current_dir(sandbox.path())
        .env_clear();
    shell.envs(
        command
            .env("X", "y")
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let ended = Ended::of(&mut shell);
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("alive\n", Some(0)),
        "{ended:?}"
    );
}

/// Stops reading after the first bytes.
fn read_and_close(child: &mut Child) {
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn whoever_stops_reading_stops_the_command() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "-q", "yes"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    read_and_close(&mut child);
    // As without us: `yes` ends by SIGPIPE.
    assert_eq!(child.wait().unwrap().code(), Some(141));
    assert_eq!(sandbox.entry()["extra"]["signal"], 13);
}

#[test]
fn whoever_stops_reading_ends_the_terminal_of_the_command() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["run", "-q", "--tty", "--timeout", "20", "yes"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Its keys may go on coming.
    let _keys = child.stdin.take();
    read_and_close(&mut child);
    // As one whose window is closed: `yes` ends by SIGHUP.
    assert_eq!(child.wait().unwrap().code(), Some(129));
    assert_eq!(sandbox.entry()["extra"]["signal"], 1);
}

#[test]
fn output_without_room_ends_the_terminal_of_the_command() {
    let sandbox = Sandbox::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = sandbox.command(&["run", "-q", "--tty", "--timeout", "20", "yes"]);
    let output = command.stdout(full).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("No space left on device"), "{stderr}");
    assert_eq!(output.status.code(), Some(129), "{stderr}");
}

#[test]
fn a_service_left_behind_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let began = Instant::now();
    let ended = sandbox.run(&[
        "run",
        "-q",
        "sh",
        "-c",
        "sleep 20 2>/dev/null & echo started",
    ]);
    assert_eq!((ended.stdout.as_str(), ended.code), ("started\n", Some(0)));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_command_that_will_not_end_is_killed_with_its_children() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > inner; while :; do sleep 1; done'";
    let ended = sandbox.run(&["run", "-q", "--timeout", "3lightyears", "true"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let ended = sandbox.run(&["run", "-q", "--timeout", "300ms", "sh", "-c", script]);
    assert_eq!(ended.code, Some(124), "{ended:?}");
    let inner = fs::read_to_string(sandbox.path().join("inner")).unwrap();
    let stat = format!("/proc/{}/stat", inner.trim());
    eventually("the end of the inner command", || {
        let text = fs::read_to_string(&stat).unwrap_or_default();
        (text.is_empty() || text.contains(") Z ")).then_some(())
    });
    let extra = &sandbox.entry()["extra"];
    assert_eq!(
        (&extra["timed_out"], &extra["signal"]),
        (&true.into(), &9.into())
    );
}

#[test]
fn a_command_runs_as_it_would_without() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["run", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
}

#[test]
fn an_entry_says_that_the_time_was_over() {
    let sandbox = Sandbox::new();
    let script = "echo busy >&2; sleep 60";
    let ended = sandbox.run(&["run", "--timeout", "0.3s", "sh", "-c", script]);
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert_eq!(sandbox.entry()["exception"], "timed out after 0.3 s: busy");
    let shown = sandbox.run(&["logs"]).stdout;
    assert!(
        shown.contains("| ERROR | sh -c echo busy >&2; sleep 60 |"),
        "{shown}"
    );
    assert!(shown.contains("| timed out after 0.3 s: busy"), "{shown}");
}

#[test]
fn secrets_are_not_logged() {
    let sandbox = Sandbox::new();
    let script = "echo password=hunter2 >&2; echo 'Authorization: Bearer abcdef0123456789'; exit 1";
    let ended = sandbox.run(&[
        "run",
        "--verbose",
        "sh",
        "-c",
        script,
        "sh",
        "--token",
        "s3cr3t-a",
        "--api-key=s3cr3t-b",
        "--max-tokens",
        "12",
        "https://me:s3cr3t-c@host/x",
        "-u",
        "me:s3cr3t-d",
    ]);
    // The command and its readers get everything.
    assert!(ended.stdout.contains("abcdef0123456789"));
    let line = ended.stderr.lines().last().unwrap();
    let text = format!("{line}{}", sandbox.entry());
    for secret in ["hunter2", "abcdef0123456789", "s3cr3t"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for kept in ["***REDACTED***", "--max-tokens", "'12'", "--token"] {
        assert!(text.contains(kept), "{kept} not in {text}");
    }
}

#[test]
fn the_command_runs_whatever_the_database_does() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("is-a-folder")).unwrap();
    fs::write(sandbox.path().join("no-database"), "x".repeat(5000)).unwrap();
    for db in [
        "is-a-folder",
        "no-database",
        "no/such/folder/x.db",
        "/proc/x.db",
    ] {
        let mut command = sandbox.command(&["run", "-q", "sh", "-c", "echo out; exit 4"]);
        let ended = Ended::of(command.env("LOGKIT_DB", db));
        assert_eq!(
            (ended.stdout.as_str(), ended.code),
            ("out\n", Some(4)),
            "{db}"
        );
        let notices: Vec<&str> = ended.stderr.lines().collect();
        assert!(
            notices.len() == 1 && notices[0].starts_with("logkit: the entry is not logged: db: "),
            "{db}: {notices:?}"
        );
    }
    // A full disk.
    let mut command = sandbox.command(&[
        "run",
        "-q",
        "--sink",
        "json:/dev/full",
        "sh",
        "-c",
        "echo out; exit 4",
    ]);
    let ended = Ended::of(&mut command);
    assert_eq!((ended.stdout.as_str(), ended.code), ("out\n", Some(4)));
    assert!(ended.stderr.contains("No space left"), "{ended:?}");
    // Settings with mistakes in them.
    let mut command = sandbox.command(&["run", "-q", "sh", "-c", "echo out; exit 4"]);
    let ended = Ended::of(command.env("LOGKIT_QUEUE", "many"));
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("out\n", Some(4)),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("LOGKIT_QUEUE"), "{ended:?}");
}

#[test]
fn the_file_of_latest_entries_stays_small_and_nothing_is_lost() {
    let sandbox = Sandbox::new();
    let wal = sandbox.path().join("logkit_logs.db-wal");
    let mut sizes = Vec::new();
    for _ in 0..8 {
        // Each entry is some 400 KiB: a zero byte is six characters of JSON.
        sandbox.run(&["run", "-q", "head", "-c", "70000", "/dev/zero"]);
        sizes.push(fs::metadata(&wal).map_or(0, |facts| facts.len()));
    }
    assert!(sizes.iter().all(|size| *size < 1_200_000), "{sizes:?}");
    assert!(sizes.contains(&0), "{sizes:?}");
    assert_eq!(sandbox.entries().len(), 8);
}

#[test]
fn entries_go_where_they_are_told() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&[
        "run",
        "-q",
        "--sink",
        "csv:a.csv",
        "--sink",
        "json:a.jsonl",
        "echo",
        "x",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!sandbox.db().exists());
    let read = |name: &str| fs::read_to_string(sandbox.path().join(name)).unwrap();
    assert!(read("a.csv").contains("echo"));
    let entry: serde_json::Value = serde_json::from_str(read("a.jsonl").trim()).unwrap();
    assert_eq!(entry["extra"]["stdout"], "x\n");
    let mut command = sandbox.command(&["run", "-q", "true"]);
    Ended::of(command.env("LOGKIT_SINKS", "csv:b.csv"));
    assert!(sandbox.path().join("b.csv").exists());
    let ended = sandbox.run(&["run", "-q", "--sink", "nonsense", "true"]);
    assert_eq!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("Invalid sink spec 'nonsense'"),
        "{ended:?}"
    );
}

#[test]
fn variables_and_folder_are_given_to_the_command() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path().join("sub")).unwrap();
    fs::write(
        sandbox.path().join("my.env"),
        "A=from-file\nB='from file'\nLOGKIT_ENV=staging\n",
    )
    .unwrap();
    let mut command = sandbox.command(&[
        "run",
        "-q",
        "--env-file",
        "my.env",
        "--cwd",
        "sub",
        "sh",
        "-c",
        "echo $A $B; pwd",
    ]);
    let ended = Ended::of(command.env("A", "from-outside"));
    let mut lines = ended.stdout.lines();
    assert_eq!(lines.next(), Some("from-outside from file"), "{ended:?}");
    assert!(lines.next().unwrap().ends_with("/sub"));
    let entry = sandbox.entry();
    assert_eq!(entry["environment"], "staging");
    assert!(entry["extra"]["cwd"].as_str().unwrap().ends_with("/sub"));
}

#[test]
fn scripts_run_as_in_a_shell() {
    let sandbox = Sandbox::new();
    for (name, text, code, language) in [
        ("plain", "echo $0 $1; exit 3", 3, "shell"),
        (
            "python-tool",
            "#!/usr/bin/env python3\nraise SystemExit(4)",
            4,
            "python",
        ),
        ("broken", "#!/no/such/interpreter\n", 127, "shell"),
    ] {
        let file = sandbox.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let ended = sandbox.run(&["run", "-q", &format!("./{name}"), "arg"]);
        assert_eq!(ended.code, Some(code), "{name} {ended:?}");
        let entry = &sandbox.entries()[0];
        assert_eq!(entry["extra"]["language"], language, "{name}");
    }
}

#[test]
fn commands_inside_commands_are_one_trace() {
    let sandbox = Sandbox::new();
    let logkit = env!("CARGO_BIN_EXE_logkit");
    let inner =
        format!("{logkit} run -q echo one; {logkit} run -q sh -c '{logkit} run -q echo two'");
    let ended = sandbox.run(&["run", "-q", "sh", "-c", &inner]);
    assert_eq!(ended.stdout, "one\ntwo\n", "{ended:?}");
    let entries = sandbox.entries();
    let trace = entries[0]["trace_id"].as_str().unwrap();
    assert!(
        entries.iter().all(|entry| entry["trace_id"] == trace),
        "{entries:?}"
    );
    let tree = sandbox.run(&["tree", trace]).stdout;
    let shape: Vec<String> = tree
        .lines()
        .take(4)
        .map(|line| {
            let name = line.split(" | ").nth(2).unwrap();
            let stem: String = line.chars().take_while(|c| !c.is_ascii_digit()).collect();
            stem + name.split(' ').next().unwrap()
        })
        .collect();
    assert_eq!(shape, ["sh", "├─ echo", "└─ sh", "   └─ echo"], "{tree}");
}

fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}
