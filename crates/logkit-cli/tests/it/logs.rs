//! `logkit logs` and what is made from the database.

use std::{
    fs,
    io::{BufRead, BufReader},
    num::NonZeroU64,
    process::Stdio,
};

use logkit::{Entry, Level, SpanId, Timestamp};

use crate::util::{Ended, Sandbox};

/// An entry of so many seconds ago.
fn entry(ago: i64, level: Level, function: &str) -> Entry {
    Entry {
        timestamp: Timestamp::from_micros(Timestamp::now().micros() - ago * 1_000_000),
        level,
        function_name: function.to_owned().into(),
        ..Entry::default()
    }
}

/// Five entries, oldest first.
fn five(sandbox: &Sandbox) {
    let mut entries = [
        entry(90_000, Level::Error, "old"),
        entry(7200, Level::Info, "Deploy.start"),
        entry(3000, Level::Warning, "deploy.check"),
        entry(20, Level::Error, "deploy.stop"),
        entry(10, Level::Debug, "ping"),
    ];
    entries[1].duration_ms = Some(1500.0);
    entries[1].environment = "prod".into();
    entries[3].exception = "time is up\nreally".into();
    entries[3].exception_type = "TimeoutError".into();
    entries[3].duration_ms = Some(30.0);
    entries[3].trace_id = "4bf92f3577b34da6".into();
    entries[4].return_value = "'Pong %_ done'".into();
    sandbox.log(&entries);
}

fn functions(ended: &Ended) -> Vec<String> {
    ended
        .json()
        .iter()
        .map(|entry| entry["function_name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn lines_are_as_agreed() {
    let sandbox = Sandbox::new();
    let time = "2026-11-20T19:54:48.596202+00:00".parse().unwrap();
    sandbox.log(&[
        Entry {
            timestamp: time,
            function_name: "make".into(),
            duration_ms: Some(12.0),
            ..Entry::default()
        },
        Entry {
            timestamp: time,
            level: Level::Critical,
            function_name: "a\nb".into(),
            environment: "prod".into(),
            exception: "x".repeat(100).into(),
            ..Entry::default()
        },
    ]);
    let ended = sandbox.run(&["logs"]);
    assert_eq!(
        ended.stdout,
        format!(
            "2026-11-20T19:54:48 | CRITICAL | a\\nb | — | env=prod | {}\n\
             2026-11-20T19:54:48 | INFO  | make | 12ms\n\n\
             (2 entries from logkit_logs.db)\n",
            "x".repeat(60)
        )
    );
    let ended = sandbox.run(&["logs", "-f", "nobody"]);
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("No logs found.\n", Some(0))
    );
    let ended = sandbox.run(&["logs", "gone.db"]);
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.as_str(), ended.code),
        ("", "Database not found: gone.db\n", Some(1))
    );
    assert!(!sandbox.path().join("gone.db").exists());
    let ended = sandbox.run(&["--color", "always", "logs", "-n", "1"]);
    assert!(
        ended.stdout.contains("\x1b[1m\x1b[31mCRITICAL\x1b[0m"),
        "{ended:?}"
    );
}

#[test]
fn filters_hold_together() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    for (args, expected) in [
        (
            &[][..],
            &["ping", "deploy.stop", "deploy.check", "Deploy.start", "old"][..],
        ),
        (&["-n", "2"], &["ping", "deploy.stop"]),
        (&["-n", "0"], &[]),
        (&["--errors"], &["deploy.stop", "old"]),
        (&["-e", "--last", "24h"], &["deploy.stop"]),
        (&["--last", "1"], &["ping", "deploy.stop", "deploy.check"]),
        (&["--last", "15s"], &["ping"]),
        (&["--last", "2d", "--until", "1d"], &["old"]),
        (
            &["--since", "1h", "--until", "15s"],
            &["deploy.stop", "deploy.check"],
        ),
        (&["--since", "2999-01-01"], &[]),
        (&["--level", "warning"], &["deploy.check"]),
        (&["-f", "DEPLOY", "--env", "prod"], &["Deploy.start"]),
        (&["--slow", "100"], &["Deploy.start"]),
        (&["--trace", "4bf92f3577b34da6"], &["deploy.stop"]),
        (&["--grep", "is UP"], &["deploy.stop"]),
        (&["--grep", "g %_ d"], &["ping"]),
        (&["--grep", "g %% d"], &[]),
        (&["--search", "up time"], &["deploy.stop"]),
        (&["--search", "up missing"], &[]),
    ] {
        let ended = sandbox.run(&[&["logs", "--json"], args].concat());
        assert_eq!(functions(&ended), expected, "{args:?}");
    }
    for args in [
        &["--last", "soon"][..],
        &["--since", "x"],
        &["--limit", "-1"],
        &["--search", &"word ".repeat(65)],
        &["--grep", &"x".repeat(1025)],
        &["--function", &"x".repeat(1025)],
    ] {
        let ended = sandbox.run(&[&["logs"], args].concat());
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (Some(2), ""),
            "{args:?}"
        );
    }
}

#[test]
fn json_and_csv_hold_all_fields() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    let first = &sandbox.run(&["logs", "-f", "stop", "--json"]).json()[0];
    let keys: Vec<&str> = first
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, [&["id"], &Entry::COLUMNS[..]].concat());
    assert_eq!(
        (&first["id"], &first["duration_ms"]),
        (&4.into(), &30.0.into())
    );
    let ended = sandbox.run(&["logs", "-f", "stop", "--csv"]);
    let mut reader = csv::Reader::from_reader(ended.stdout.as_bytes());
    assert_eq!(reader.headers().unwrap().len(), 20);
    let record = reader.records().next().unwrap().unwrap();
    assert_eq!((&record[0], &record[11]), ("4", "time is up\nreally"));
    sandbox.log(&[entry(0, Level::Info, "\x1b[31mred")]);
    let ended = sandbox.run(&["logs", "-n", "1", "--csv"]);
    assert!(ended.stdout.contains("\x1b[31mred"), "{ended:?}");
    let ended = sandbox.run(&["logs", "-f", "nobody", "--json"]);
    assert_eq!((ended.stdout.as_str(), ended.code), ("", Some(0)));
}

#[test]
fn queries_read_and_never_write() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    let ended = sandbox.run(&[
        "logs",
        "--sql",
        "SELECT level, count(*) AS n FROM logs GROUP BY 1 ORDER BY 1",
    ]);
    assert_eq!(
        ended.stdout,
        "level    n\nDEBUG    1\nERROR    2\nINFO     1\nWARNING  1\n"
    );
    let ended = sandbox.run(&["logs", "--json", "--sql", "SELECT 1 AS a, 'x' AS b"]);
    assert_eq!(ended.stdout, "{\"a\":\"1\",\"b\":\"x\"}\n");
    for query in [
        "DELETE FROM logs",
        "DROP TABLE logs",
        "UPDATE logs SET level = 'X' RETURNING id",
        "PRAGMA user_version = 7",
        "VACUUM",
        "ATTACH 'other.db' AS o",
        "VACUUM INTO 'copy.db'",
        "SELECT",
        "SELECT 1; DELETE FROM logs",
    ] {
        let ended = sandbox.run(&["logs", "--sql", query]);
        assert_eq!(ended.code, Some(1), "{query}: {ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{query}: {ended:?}");
    }
    assert_eq!(sandbox.entries().len(), 5);
    for name in ["other.db", "copy.db"] {
        assert!(!sandbox.path().join(name).exists(), "{name}");
    }
}

#[test]
fn what_comes_in_is_followed() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    for args in [
        &["tail", "-n", "1", "--json"][..],
        &["logs", "--follow", "-n", "1", "--json"],
    ] {
        let mut command = sandbox.command(args);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || {
            let line = lines.next().unwrap().unwrap();
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            value["function_name"].as_str().unwrap().to_owned()
        };
        let first = next();
        assert!(first == "ping" || first == "b", "{first}");
        sandbox.log(&[entry(0, Level::Info, "a"), entry(0, Level::Info, "b")]);
        assert_eq!([next(), next()], ["a", "b"]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let sandbox = Sandbox::new();
    let many: Vec<Entry> = (0..5000).map(|_| entry(0, Level::Info, "many")).collect();
    sandbox.log(&many);
    let mut command = sandbox.command(&["logs", "-n", "5000"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn statistics_count_calls_errors_and_times() {
    let sandbox = Sandbox::new();
    let calls = |function: &str, n: i64| {
        (1..=n)
            .map(|ms| {
                let level = if ms % 10 == 0 {
                    Level::Error
                } else {
                    Level::Info
                };
                let mut entry = entry(ms, level, function);
                entry.duration_ms = Some(ms as f64);
                entry
            })
            .collect::<Vec<_>>()
    };
    sandbox.log(&[calls("f", 100), calls("g", 5)].concat());
    let rows = sandbox.run(&["stats", "--json"]).json();
    assert_eq!(
        rows[0].to_string(),
        r#"{"function":"f","calls":100,"errors":10,"error_rate":0.1,"p50_ms":50.0,"p95_ms":95.0,"p99_ms":99.0,"total_ms":5050.0}"#
    );
    assert_eq!(rows.len(), 2);
    let text = sandbox.run(&["stats"]).stdout;
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        lines.next().unwrap(),
        [
            "FUNCTION", "CALLS", "ERRORS", "RATE", "P50", "P95", "P99", "TOTAL"
        ]
    );
    assert_eq!(
        lines.next().unwrap(),
        ["f", "100", "10", "10.0%", "50ms", "95ms", "99ms", "5050ms"]
    );
    assert!(
        text.ends_with("(105 calls of 2 functions, 10 errors, 9.5%)\n"),
        "{text}"
    );
    assert_eq!(sandbox.run(&["logs", "--stats"]).stdout, text);
    assert_eq!(sandbox.run(&["stats", "-f", "g", "--json"]).json().len(), 1);
}

#[test]
fn calls_are_shown_below_their_callers() {
    let sandbox = Sandbox::new();
    let call = |id: u64, parent: u64, name: &str| {
        let mut call = entry(100 - id as i64, Level::Info, name);
        call.trace_id = "t1".into();
        call.span_id = NonZeroU64::new(id).map(SpanId);
        call.parent_id = NonZeroU64::new(parent).map(SpanId);
        call
    };
    // Calls are logged when they end: the outermost last.
    sandbox.log(&[
        call(2, 1, "a"),
        call(4, 3, "c"),
        call(3, 1, "b"),
        call(1, 0, "main"),
    ]);
    let text = sandbox.run(&["tree", "t1"]).stdout;
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(" | ").nth(2))
        .collect();
    assert_eq!(names, ["main", "a", "b", "c"]);
    assert!(
        text.ends_with("\n\n(4 entries of trace t1 from logkit_logs.db)\n"),
        "{text}"
    );
    let json = &sandbox.run(&["tree", "t1", "--json"]).json()[0];
    assert_eq!(json["children"][1]["children"][0]["function_name"], "c");
    assert_eq!(sandbox.run(&["tree", "t2"]).stdout, "No logs found.\n");
}

#[test]
fn results_of_versions_are_compared() {
    let sandbox = Sandbox::new();
    let call = |version: &str, args: &str, result: &str| Entry {
        function_name: "add".into(),
        args: args.to_owned().into(),
        return_value: result.to_owned().into(),
        version: version.to_owned().into(),
        ..Entry::default()
    };
    let mut failing = call("2.0", "(5,)", "None");
    failing.exception_type = "ValueError".into();
    sandbox.log(&[
        call("1.0", "(1, 2)", "3"),
        call("1.0", "(<A at 0x7f>,)", "<B at 0x11>"),
        call("1.0", "(5,)", "5"),
        call("1.0", "(9,)", "9"),
        call("2.0", "(1, 2)", "4"),
        call("2.0", "(<A at 0x8a>,)", "<B at 0x22>"),
        failing,
    ]);
    let ended = sandbox.run(&["diff", "1.0", "2.0"]);
    assert_eq!(
        ended.stdout,
        "DIFF: add((1, 2)) 1.0→3 vs 2.0→4\nDIFF: add((5,)) 1.0→5 vs 2.0→!ValueError\n\n(2 of 3 calls of both versions differ)\n"
    );
    assert_eq!(ended.code, Some(0));
    assert_eq!(
        sandbox.run(&["diff", "1.0", "2.0", "--exit-code"]).code,
        Some(1)
    );
    assert_eq!(
        sandbox.run(&["diff", "1.0", "2.0", "--json"]).json().len(),
        2
    );
    assert!(
        sandbox
            .run(&["diff", "1.0", "3.0"])
            .stderr
            .contains("nothing was logged with version 3.0")
    );
}

#[test]
fn entries_are_exported_oldest_first() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    let ended = sandbox.run(&[
        "export",
        "--to",
        "db:copy.db",
        "--to",
        "json:copy.jsonl",
        "--last",
        "3h",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.stderr,
        "4 entries from logkit_logs.db to db:copy.db, json:copy.jsonl\n"
    );
    let copied = sandbox.run(&["logs", "copy.db", "--json"]);
    assert_eq!(
        functions(&copied),
        ["ping", "deploy.stop", "deploy.check", "Deploy.start"]
    );
    let text = fs::read_to_string(sandbox.path().join("copy.jsonl")).unwrap();
    assert!(text.lines().next().unwrap().contains("Deploy.start"));
    // Into itself: once.
    sandbox.run(&["export", "--to", "db:logkit_logs.db"]);
    assert_eq!(sandbox.entries().len(), 10);
}

#[test]
fn old_entries_are_deleted() {
    let sandbox = Sandbox::new();
    five(&sandbox);
    let ended = sandbox.run(&["prune", "--older-than", "1d", "--dry-run"]);
    assert_eq!(
        ended.stdout,
        "1 of 5 entries would be deleted from logkit_logs.db\n"
    );
    let ended = sandbox.run(&["prune", "--older-than", "1d", "--vacuum"]);
    assert_eq!(ended.stdout, "1 of 5 entries deleted from logkit_logs.db\n");
    let ended = sandbox.run(&["prune", "--keep", "1"]);
    assert_eq!(ended.stdout, "3 of 4 entries deleted from logkit_logs.db\n");
    assert_eq!(sandbox.entry()["function_name"], "ping");
    assert_eq!(
        sandbox.run(&["prune", "gone.db", "--keep", "1"]).code,
        Some(1)
    );
    assert!(!sandbox.path().join("gone.db").exists());
}

#[test]
fn logged_commands_can_be_typed_again() {
    let sandbox = Sandbox::new();
    sandbox.run(&["run", "-q", "echo", "two words", "it's", "a\nb"]);
    sandbox.run(&["run", "-q", "echo", "--token", "abc"]);
    let ended = sandbox.run(&["replay", "--dry-run"]);
    let folder = sandbox.path().canonicalize().unwrap();
    assert_eq!(
        ended.stdout,
        format!(
            "(cd {} && echo 'two words' 'it'\\''s' $'a\\nb')\n\
             # echo cannot be replayed: an argument was a secret and is not in the log\n",
            folder.display()
        )
    );
    assert_eq!(sandbox.run(&["replay"]).code, Some(2));
}

#[test]
fn the_program_tells_about_itself() {
    let sandbox = Sandbox::new();
    let version = format!("logkit {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(sandbox.run(&["version"]).stdout, version);
    assert_eq!(sandbox.run(&["--version"]).stdout, version);
    let help = sandbox.run(&[]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("Usage: logkit") && help.stdout.contains("Examples:"));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ended = sandbox.run(&["completions", shell]);
        assert!(
            ended.code == Some(0) && ended.stdout.contains("logkit"),
            "{shell}"
        );
    }
    five(&sandbox);
    let mut command = sandbox.command(&["--", "logkit", "logs", "-f", "deploy"]);
    command.env("COMPLETE", "fish");
    assert_eq!(
        Ended::of(&mut command).stdout,
        "deploy.check\ndeploy.stop\n"
    );
}

#[test]
fn levels_are_those_there_are() {
    let sandbox = Sandbox::new();
    let own = Level::Other("NOTE".into());
    sandbox.log(&[entry(3, Level::Warning, "check"), entry(2, own, "note")]);
    for level in ["warning", "warn", "WARN"] {
        let ended = sandbox.run(&["logs", "--level", level, "--json"]);
        assert_eq!(functions(&ended), ["check"], "{level}");
    }
    // A level of the program's own.
    let ended = sandbox.run(&["logs", "--level", "note", "--json"]);
    assert_eq!(functions(&ended), ["note"]);
    for command in ["logs", "stats"] {
        let ended = sandbox.run(&[command, "--level", "FOO"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(
            ended.stderr.contains("no entry has the level 'FOO'"),
            "{ended:?}"
        );
    }
}
