//! The monitor as users start it: on terminals, in pipes, with and without a server.

#[path = "../../crates/llmsrv-monitor/tests/it/fixture.rs"]
mod fixture;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::fixture::{AFTER, BEFORE, write};
use crate::{
    tmux::Tmux,
    util::{Output, Sandbox, TIMEOUT},
};

/// A sandbox with the machine made of files in it.
fn machine() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new();
    let root = sandbox.path().join("machine");
    write(&root, BEFORE);
    (sandbox, root)
}

#[test]
fn one_frame_is_printed_where_there_is_no_terminal() {
    let (sandbox, root) = machine();
    let root = root.to_str().unwrap();
    for args in [
        &["monitor", "--interval", "100ms", "--root", root][..],
        &["monitor", "--interval", "100ms", "--once", "--root", root],
    ] {
        let output = sandbox.run(args).ok();
        for line in [
            "host     workbench         up 3 d 4 h   load 1.50 1.25 0.75",
            "cpu      0.0 %             4 cores: 0.0 0.0 0.0 0.0",
            "memory   4.1/16.4 GB       25.0 %",
            "swap     0.5/2.0 GB        25.0 %",
            "read     0 B/s             md127 0 B/s, nvme0n1 0 B/s, sda 0 B/s",
            "gpu      37.0 %            AMD GPU (card0), 4.0/16.0 GB, 66.0 °C",
        ] {
            assert!(
                output.stdout.lines().any(|have| have == line),
                "{line}: {output:?}"
            );
        }
        assert!(!output.stdout.contains('\u{1b}'), "{output:?}");
    }
    let output = sandbox
        .run(&["monitor", "--ascii", "--interval", "100ms", "--root", root])
        .ok();
    assert!(output.stdout.is_ascii(), "{output:?}");
}

#[test]
fn json_is_one_object_or_a_line_for_each_interval() {
    let (sandbox, root) = machine();
    let path = root.to_str().unwrap();
    let args = [
        "monitor",
        "--json",
        "--once",
        "--interval",
        "100ms",
        "--root",
        path,
    ];
    let object = sandbox.run(&args).ok().json();
    assert_eq!(object["memory"]["percent"], json!(25.0));
    assert_eq!(object["server"], Value::Null);
    assert_eq!(object["accelerators"][2]["kind"], json!("npu"));

    let mut child = sandbox
        .command()
        .args(["monitor", "--json", "--interval", "400ms", "--root", path])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["cpu"]["percent"], json!(0.0));
    write(&root, AFTER);
    let changed = (0..20)
        .map(|_| next())
        .find(|it| it["cpu"]["percent"] != json!(0.0));
    let changed = changed.expect("the files have changed");
    assert_eq!(changed["cpu"]["percent"], json!(42.5));
    // 25 000 sectors in the time that it says.
    let rate = changed["disk"]["read_bytes_per_second"].as_f64().unwrap();
    let seconds = changed["interval_seconds"].as_f64().unwrap();
    assert!(seconds > 0.39, "{changed}");
    assert!(
        (rate * seconds / 12_800_000.0 - 1.0).abs() < 0.01,
        "{changed}"
    );
    fs::remove_dir_all(root.join("sys")).unwrap();
    let gone = (0..20)
        .map(|_| next())
        .find(|it| it["temperature"].is_null());
    assert!(gone.is_some(), "sensors that vanish are null");
    // Whoever reads no more ends it.
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn mistakes_are_explained() {
    let (sandbox, root) = machine();
    let empty = sandbox.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let run = |args: &[&str]| sandbox.run(&[&["monitor"], args].concat());
    let output = run(&["--root", empty.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("there is nothing to see"),
        "{output:?}"
    );
    let output = run(&["--root", "/no/such/folder"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.stderr.contains("hint: --root wants a folder"),
        "{output:?}"
    );
    for interval in ["0", "10ms", "-1", "2h", "often", ""] {
        let root = root.to_str().unwrap();
        let output = run(&["--root", root, "--interval", interval]);
        assert_eq!(output.code, 2, "{output:?}");
    }
}

#[test]
fn what_may_not_be_read_is_said() {
    let (sandbox, root) = machine();
    let forbidden = root.join("proc/diskstats");
    fs::set_permissions(&forbidden, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(sandbox.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = sandbox.command();
    if fs::read(&forbidden).is_ok() {
        // The superuser may read everything, others may not.
        let binary = sandbox.path().join("llmsrv");
        // By another program: one that this one has open for writing, or a child of its that another test
        // begins just then, cannot be run ("text file busy").
        let mut copy = std::process::Command::new("cp");
        copy.args([env!("CARGO_BIN_EXE_llmsrv").as_ref(), binary.as_os_str()]);
        Output::of(&mut copy).ok();
        let mut other = std::process::Command::new(binary);
        other.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        other.current_dir(sandbox.path()).uid(65_534).gid(65_534);
        command = other;
    }
    let output = Output::of(
        command
            .args(["monitor", "--once", "--interval", "100ms", "--root"])
            .arg(&root),
    )
    .ok();
    let line = "disk     not read          /proc/diskstats: permission denied";
    assert!(output.stdout.lines().any(|have| have == line), "{output:?}");
}

#[test]
fn the_running_server_is_shown_with_its_tokens() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let host = server.url.clone();
    let mut child = sandbox
        .command()
        .env("LLMSRV_HOST", &host)
        .args(["monitor", "--json", "--interval", "500ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| -> Value { serde_json::from_str(&line.unwrap()).unwrap() });
    let first = lines.next().unwrap();
    assert!(
        first["server"]["pid"].as_u64().is_some_and(|pid| pid > 1),
        "{first}"
    );
    assert!(
        first["server"]["resident_bytes"].as_u64() > Some(1 << 20),
        "{first}"
    );
    assert_eq!(first["server"]["models"], json!([]));
    sandbox
        .run(&[
            "--host",
            &host,
            "run",
            "default",
            "Write a Python function that reverses a string.",
        ])
        .ok();
    let begun = Instant::now();
    let busy = lines.find(|it| {
        assert!(begun.elapsed() < TIMEOUT, "{it}");
        it["server"]["generated_tokens_per_second"].as_f64() > Some(0.0)
    });
    let server_now = &busy.unwrap()["server"];
    assert!(
        server_now["prompt_tokens_per_second"].as_f64() > Some(0.0),
        "{server_now}"
    );
    assert_eq!(
        server_now["models"].as_array().unwrap().len(),
        1,
        "{server_now}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let text = sandbox
        .run(&["--host", &host, "monitor", "--once", "--interval", "100ms"])
        .ok();
    assert!(
        text.stdout.contains(&format!("{host}   process ")),
        "{text:?}"
    );
}

/// A terminal with the command line of the monitor ready to be typed.
fn terminal(width: u16, height: u16) -> (Sandbox, Tmux, String) {
    let tmux = Tmux::open(width, height);
    let (sandbox, root) = machine();
    let home = sandbox.path().display();
    tmux.line(&format!("export HOME={home} XDG_CONFIG_HOME={home}/config"));
    let binary = env!("CARGO_BIN_EXE_llmsrv");
    let command = format!("{binary} monitor --root {}", root.display());
    (sandbox, tmux, command)
}

#[test]
fn screens_of_three_sizes_are_drawn_and_follow_the_terminal() {
    let (_sandbox, tmux, command) = terminal(80, 24);
    tmux.line(&command);
    let screen = tmux.wait_for("4.1/16.4 GB");
    for text in [
        " llmsrv monitor  workbench  up 3 d 4 h  load 1.50 1.25 0.75",
        "╭─ 1 processors ─",
        "╭─ 2 memory ─",
        "╭─ 3 disk and network ─",
        "╭─ 4 server and accelerators ─",
        "│ temp ",
        "61.5 °C",
        "md127 r 0 B/s w 0 B/s",
        " q quit  ? help  c cores",
    ] {
        assert!(screen.contains(text), "{text} in\n{screen}");
    }
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 24);
    assert!(
        lines[1..23].iter().all(|line| line.chars().count() == 80),
        "{screen}"
    );

    tmux.resize(40, 12);
    let screen = tmux.wait_until("list", |screen| !screen.contains('╭'));
    assert!(screen.contains(" memory "), "{screen}");
    assert!(screen.contains(" q quit  ? help"), "{screen}");
    assert_eq!(screen.lines().count(), 12);
    tmux.resize(30, 8);
    tmux.wait_for("needs 40x12");
    tmux.resize(200, 60);
    let screen = tmux.wait_for("╰");
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 60);
    assert!(
        lines[1..59].iter().all(|line| line.chars().count() == 200),
        "{screen}"
    );
    tmux.key("q");
    tmux.wait_until("screen of before", |_| !tmux.flags().0);
}

#[test]
fn keys_work_at_once_and_q_leaves_the_terminal_as_it_was() {
    let (sandbox, tmux, command) = terminal(80, 24);
    let file = |name: &str| sandbox.path().join(name);
    tmux.line("echo the line before");
    // No sample comes while keys are pressed.
    tmux.line(&format!(
        "stty -g >{}; {command} --interval 1h; echo ended with $?; stty -g >{}",
        file("before").display(),
        file("after").display()
    ));
    tmux.wait_for("workbench");
    assert_eq!(
        tmux.flags(),
        (true, false),
        "a screen of its own, no cursor"
    );
    let press = |key: &str, text: &str, there: bool| {
        let begun = Instant::now();
        tmux.key(key);
        tmux.wait_until(text, |screen| screen.contains(text) == there);
        assert!(begun.elapsed() < Duration::from_secs(5), "{key}");
    };
    press("?", "this help", true);
    press("Escape", "this help", false);
    press("F1", "this help", true);
    press("F1", "this help", false);
    press("Space", "FROZEN", true);
    press("Space", "FROZEN", false);
    press("2", "4.1/16.4 GB", false);
    press("2", "4.1/16.4 GB", true);
    press("-", "1 min  ", true);
    press("-", "30 s  ", true);
    press("+", "1 min  ", true);
    press("b", "+- 1 processors", true);
    press("q", "ended with 0", true);
    let screen = tmux.wait_for("the line before");
    assert!(!screen.contains("workbench"), "{screen}");
    assert_eq!(tmux.flags(), (false, true));
    tmux.line("echo now");
    tmux.wait_for("\nnow");
    let read = |name: &str| fs::read_to_string(file(name)).unwrap();
    assert!(!read("before").is_empty());
    assert_eq!(read("before"), read("after"));
}

#[test]
fn signals_give_the_terminal_back() {
    let (sandbox, tmux, command) = terminal(80, 24);
    let modes = |name: &str| {
        let path = sandbox.path().join(name);
        tmux.line(&format!("stty -g >{0}.new; mv {0}.new {0}", path.display()));
        let begun = Instant::now();
        loop {
            if let Ok(modes) = fs::read_to_string(&path) {
                return modes;
            }
            assert!(begun.elapsed() < TIMEOUT);
        }
    };
    let before = modes("before");
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        tmux.line(&format!("clear; {command}"));
        tmux.wait_for("4.1/16.4 GB");
        kill(signal, &tmux);
        tmux.wait_until("screen of before", |_| !tmux.flags().0);
        // A shell whose command was interrupted leaves out the rest of the line.
        tmux.line("echo ended with $?");
        tmux.wait_for(&format!("ended with {status}"));
        assert_eq!(tmux.flags(), (false, true), "{signal}");
        assert_eq!(modes(&format!("after-{signal}")), before, "{signal}");
    }
    // Into the background by key and by signal, and back.
    tmux.line("clear; set -m");
    tmux.line(&command);
    for by_key in [true, false] {
        tmux.wait_for("4.1/16.4 GB");
        if by_key {
            tmux.key("C-z");
        } else {
            kill("TSTP", &tmux);
        }
        tmux.wait_until("screen of before", |_| !tmux.flags().0);
        tmux.wait_until("prompt", |screen| screen.contains("Stopped"));
        assert_eq!(modes(&format!("stopped-{by_key}")), before);
        tmux.line("clear; fg");
        tmux.wait_until("screen of its own", |_| tmux.flags() == (true, false));
    }
    tmux.wait_for("4.1/16.4 GB");
    tmux.key("C-c");
    tmux.wait_until("screen of before", |_| tmux.flags() == (false, true));
    assert_eq!(modes("end"), before);
}

/// Sends a signal to the monitor in the terminal.
fn kill(signal: &str, tmux: &Tmux) {
    let marker = tmux.screen();
    assert!(marker.contains("llmsrv monitor"), "{marker}");
    let pid = tmux.child().expect("a monitor runs");
    let status = std::process::Command::new("kill")
        .args([&format!("-{signal}"), &pid.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_terminal_that_is_closed_ends_it() {
    let (_sandbox, tmux, command) = terminal(80, 24);
    tmux.line(&command);
    tmux.wait_for("4.1/16.4 GB");
    let process = PathBuf::from(format!("/proc/{}", tmux.child().unwrap()));
    assert!(process.exists());
    drop(tmux);
    let begun = Instant::now();
    while process.exists() {
        assert!(begun.elapsed() < TIMEOUT, "it is there still");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn colours_can_be_turned_off() {
    let (_sandbox, tmux, command) = terminal(80, 24);
    let is_colored = |command: &str| {
        tmux.line(command);
        tmux.wait_for("4.1/16.4 GB");
        let screen = tmux.colored();
        tmux.key("q");
        tmux.wait_until("screen of before", |_| !tmux.flags().0);
        screen.contains("\u{1b}[38;5;")
            || screen.contains("\u{1b}[3") && screen.replace("\u{1b}[39m", "").contains("\u{1b}[3")
    };
    assert!(is_colored(&command));
    assert!(!is_colored(&format!("NO_COLOR=1 {command}")));
    assert!(!is_colored(&format!("{command} --no-color")));
    assert!(!is_colored(&format!("{command} --color never")));
    tmux.line(&format!("clear; TERM=dumb {command}"));
    let screen = tmux.wait_for("memory   4.1/16.4 GB       25.0 %");
    assert!(!tmux.flags().0, "{screen}");
}

#[test]
fn it_does_not_stop_where_nobody_would_continue_it() {
    let (_sandbox, tmux, command) = terminal(80, 24);
    // Its parent is of another session.
    tmux.line(&format!("exec {command}"));
    tmux.wait_for("4.1/16.4 GB");
    tmux.key("C-z");
    tmux.key("?");
    tmux.wait_for("this help");
}
