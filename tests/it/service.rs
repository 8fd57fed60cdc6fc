//! The server as a service: the unit, its log, and what the manager of services hears.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    machine::{Machine, SYSTEMCTL, outcomes},
    util::{Output, TIMEOUT},
};

#[test]
fn a_service_is_installed_started_and_removed() {
    let machine = Machine::with(&[("systemctl", SYSTEMCTL), ("systemd-sysusers", "")]);
    let shown = machine.run(&["service", "install", "--dry-run"]).ok();
    assert_eq!(machine.changes(), [""; 0], "{shown:?}");
    assert!(!machine.unit_file().exists());
    assert!(
        shown.stdout.contains("$ systemctl daemon-reload"),
        "{shown:?}"
    );
    assert!(shown.stdout.contains("    | ExecStart="), "{shown:?}");

    let installed = machine.run(&["service", "install"]).ok();
    assert_eq!(
        machine.changes(),
        [
            "systemd-sysusers|--inline|u llmsrv - \"llmsrv, a local language-model server\" /var/lib/llmsrv",
            "systemctl|daemon-reload",
            "systemctl|enable|llmsrv-network.service",
        ],
        "{installed:?}"
    );
    let unit = fs::read_to_string(machine.unit_file()).unwrap();
    let exe = env!("CARGO_BIN_EXE_llmsrv");
    assert!(unit.contains(&format!("ExecStart={exe} serve\n")), "{unit}");
    assert!(
        unit.contains("User=llmsrv\n") && !unit.contains("LLMSRV_HOST"),
        "{unit}"
    );
    // What is done in the dry run is what was written.
    for line in unit.lines() {
        assert!(shown.stdout.contains(&format!("    | {line}")), "{line}");
    }

    // Again: what is there stays. (The fake makes no user, so it is to be made again.)
    let again = machine.run(&["service", "install", "--json"]).ok();
    assert_eq!(outcomes(&again), ["done", "already", "done", "already"]);
    machine.changes();

    machine.state(
        "loaded",
        "LoadState=loaded\nActiveState=inactive\nSubState=dead\nUnitFileState=enabled\n",
    );
    assert_eq!(machine.run(&["service", "status"]).code, 3);
    for (verb, outcome) in [("start", "done"), ("start", "already"), ("restart", "done")] {
        let output = machine.run(&["service", verb, "--json"]).ok();
        assert_eq!(outcomes(&output), [outcome], "{verb}: {output:?}");
    }
    assert_eq!(
        machine.changes(),
        [
            "systemctl|start|llmsrv-network.service",
            "systemctl|restart|llmsrv-network.service"
        ]
    );
    machine.state("loaded", "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=7\nUnitFileState=enabled\nEnvironment=LLMSRV_HOST=0.0.0.0:8080\n");
    let status = machine.run(&["service", "status", "--json"]).ok().json();
    assert_eq!(
        (&status["active"], &status["pid"]),
        (&"active".into(), &7.into())
    );

    machine.run(&["service", "uninstall"]).ok();
    assert_eq!(
        machine.changes(),
        [
            "systemctl|disable|--now|llmsrv-network.service",
            "systemctl|daemon-reload"
        ]
    );
    assert!(!machine.unit_file().exists());
    fs::remove_file(machine.path("faked/loaded")).unwrap();
    assert_eq!(machine.run(&["service", "status"]).code, 4);
    let absent = machine.run(&["service", "start"]);
    assert_eq!(absent.code, 4, "{absent:?}");
    assert!(
        absent.stderr.contains("llmsrv service install"),
        "{absent:?}"
    );
}

#[test]
fn what_changes_is_written_started_again_and_kept_beside() {
    let machine = Machine::with(&[("systemctl", SYSTEMCTL)]);
    let install = ["serve", "--install", "--user"];
    let first = machine.run(&install).ok();
    assert!(first.stderr.contains("loginctl enable-linger"), "{first:?}");
    assert_eq!(
        machine.changes(),
        [
            "systemctl|--user|daemon-reload",
            "systemctl|--user|enable|llmsrv-network.service",
            "systemctl|--user|restart|llmsrv-network.service",
        ]
    );
    machine.run(&install).ok();
    assert_eq!(machine.changes(), [""; 0]);
    let network = machine
        .run(&["serve", "--install", "--user", "--network", "-p", "8080"])
        .ok();
    assert_eq!(
        machine.changes(),
        [
            "systemctl|--user|daemon-reload",
            "systemctl|--user|restart|llmsrv-network.service"
        ]
    );
    assert!(network.stderr.contains("without keys"), "{network:?}");
    let unit = fs::read_to_string(machine.unit_file()).unwrap();
    assert!(
        unit.contains("Environment=LLMSRV_HOST=0.0.0.0:8080\n"),
        "{unit}"
    );
    assert!(!unit.contains("LLMSRV_ORIGINS"), "{unit}");
    let backup = fs::read_to_string(machine.path("units/llmsrv-network.service.bak")).unwrap();
    assert!(
        !backup.contains("LLMSRV_HOST") && backup.contains("Type=notify"),
        "{backup}"
    );
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_type() {
    let machine = Machine::with(&[("systemctl", SYSTEMCTL)]);
    for (args, says) in [
        (
            &["service", "install", "--run-as", "nobody-at-all"][..],
            "no user nobody-at-all",
        ),
        (
            &["service", "install", "--models", "/nowhere/at/all"],
            "sudo install -d -o llmsrv",
        ),
        (
            &["service", "install", "--network", "--host", "127.0.0.1"],
            "contradicts",
        ),
        (&["service", "install", "-p", "0"], "fixed port"),
        (&["serve", "--dry-run"], "--background"),
        (
            &["serve", "--background", "--host", "127.0.0.1:0"],
            "fixed port",
        ),
    ] {
        let output = machine.run(args);
        assert!(matches!(output.code, 1 | 2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(says), "{args:?}: {output:?}");
    }
    assert_eq!(machine.changes(), [""; 0]);
    // systemctl says why.
    machine.fake(
        "systemctl",
        &format!(
            "case \"$*\" in *daemon-reload*) echo 'Access denied' >&2; exit 1;; esac\n{SYSTEMCTL}"
        ),
    );
    let denied = machine.run(&["service", "install", "--user", "--json"]);
    assert_eq!(denied.code, 1, "{denied:?}");
    assert_eq!(outcomes(&denied), ["done", "failed"]);
    assert!(denied.stderr.contains("Access denied"), "{denied:?}");
    // A masked unit is a link, and stays one.
    let masked = Machine::with(&[("systemctl", SYSTEMCTL)]);
    std::os::unix::fs::symlink("/dev/null", masked.unit_file()).unwrap();
    let refused = masked.run(&["service", "install", "--user"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("/dev/null"),
        "{refused:?}"
    );
}

#[test]
fn without_root_it_says_what_to_type() {
    let machine = Machine::with(&[
        ("systemctl", SYSTEMCTL),
        (
            "ufw",
            "echo 'ERROR: You need to be root to run this script' >&2; exit 1",
        ),
    ]);
    let is_root = fs::metadata("/proc/self").is_ok_and(|it| {
        use std::os::unix::fs::MetadataExt as _;
        it.uid() == 0
    });
    let stranger = |args: &[&str]| {
        let mut command = machine.command(args);
        command.env("LLMSRV_UNIT_DIR", "/etc/systemd/system");
        if is_root {
            for folder in [machine.path(""), machine.path("bin")] {
                fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
            }
            let _ = fs::remove_file(machine.path("calls"));
            command.uid(65_534).gid(65_534);
        }
        Output::of(&mut command)
    };
    let service = stranger(&["service", "install"]);
    assert_eq!(service.code, 1, "{service:?}");
    assert!(
        service.stderr.contains("type: sudo llmsrv service install"),
        "{service:?}"
    );
    let firewall = stranger(&["firewall", "allow", "-p", "8080"]);
    assert_eq!(firewall.code, 1, "{firewall:?}");
    assert!(
        firewall.stderr.contains("You need to be root"),
        "{firewall:?}"
    );
    assert!(
        firewall
            .stderr
            .contains("type: sudo llmsrv firewall allow -p 8080"),
        "{firewall:?}"
    );
    let dry = stranger(&["service", "install", "--dry-run"]).ok();
    assert!(
        dry.stdout
            .contains("/etc/systemd/system/llmsrv-network.service"),
        "{dry:?}"
    );
}

#[test]
fn an_interrupted_plan_leaves_nothing_half_written() {
    let machine = Machine::new();
    // Path has no sleep: the shell waits for a file.
    machine.fake(
        "systemctl",
        &format!("case \"$*\" in *daemon-reload*) : >\"$STATE/began\"; while [ ! -e \"$STATE/go\" ]; do :; done;; esac\n{SYSTEMCTL}"),
    );
    let child = machine
        .command(&["service", "install", "--user", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !machine.path("faked/began").exists() {
        assert!(begun.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(5));
    }
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    machine.state("go", "");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let steps: Value = serde_json::from_slice(&output.stdout).unwrap();
    let words: Vec<&str> = steps["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["done", "done", "interrupted"]);
    let text = fs::read_to_string(machine.unit_file()).unwrap();
    assert!(text.ends_with("WantedBy=default.target\n"), "{text}");
    assert_eq!(fs::read_dir(machine.path("units")).unwrap().count(), 1);
    // Doing it again goes on where it ended.
    machine.run(&["service", "install", "--user"]).ok();
    assert!(machine.path("faked/enabled").exists());
}

/// The real checker reads what is packaged and what is written for users.
#[test]
fn units_pass_the_checks_of_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("llmsrv-network.service");
    let packaged =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/systemd/llmsrv-network.service");
    let packaged = fs::read_to_string(packaged)
        .unwrap()
        .replace("/usr/bin/llmsrv", "/bin/true");
    let machine = Machine::with(&[("systemctl", SYSTEMCTL)]);
    let written = |args: &[&str]| {
        let args: Vec<&str> = ["service", "install", "--dry-run", "--json"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let steps = machine.run(&args).ok().json();
        let mut steps = steps["steps"].as_array().unwrap().iter();
        steps
            .find_map(|step| step["file"]["text"].as_str())
            .unwrap()
            .to_owned()
    };
    for (text, scope) in [
        (packaged.clone(), "--system"),
        (
            written(&["--network", "-p", "80", "--models", "/usr"]),
            "--system",
        ),
        (written(&["--models", "/home"]), "--system"),
        (written(&["--user", "--network"]), "--user"),
    ] {
        fs::write(&path, &text).unwrap();
        let verify = Command::new("systemd-analyze")
            .args([scope, "--man=no", "verify"])
            .arg(&path)
            .env("XDG_RUNTIME_DIR", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&verify.stderr);
        assert!(
            verify.status.success() && !said.contains("llmsrv"),
            "{scope}: {said}\n{text}"
        );
    }
    fs::write(&path, packaged).unwrap();
    let security = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--threshold=20"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        security.status.success(),
        "{}",
        String::from_utf8_lossy(&security.stdout)
    );
}

#[test]
fn logs_come_from_the_journal_or_the_file() {
    let machine = Machine::with(&[
        ("systemctl", SYSTEMCTL),
        ("journalctl", "echo journal; exit 7"),
    ]);
    fs::write(
        machine.path("server.log"),
        "2026-11-21T08:00:00Z  INFO one\n2026-11-21T09:00:00Z  INFO two\n  more\n",
    )
    .unwrap();
    let file = |args: &[&str]| machine.run(args).ok().stdout;
    assert_eq!(file(&["logs", "-n", "1"]), "  more\n");
    assert_eq!(
        file(&["logs", "--since", "2026-11-21T08:30:00Z"]),
        "2026-11-21T09:00:00Z  INFO two\n  more\n"
    );
    assert_eq!(machine.run(&["logs", "--since", "soon"]).code, 2);
    let objects: Vec<Value> = file(&["logs", "--json", "-n", "2"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 2, "{objects:?}");
    assert_eq!(objects[0]["level"], "INFO");
    assert_eq!(objects[0]["timestamp"], "2026-11-21T09:00:00Z");
    assert_eq!(objects[1]["fields"]["message"], "  more");

    let mut follow = machine
        .command(&["logs", "-f", "-n", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follow.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "  more");
    fs::rename(machine.path("server.log"), machine.path("server.log.1")).unwrap();
    fs::write(machine.path("server.log"), "three\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "three");
    follow.kill().unwrap();
    follow.wait().unwrap();

    machine.state("loaded", "LoadState=loaded\nActiveState=active\n");
    machine.calls();
    let journal = machine.run(&["logs", "-f", "-n", "5", "--since", "2026-11-21T08:00:00Z"]);
    assert_eq!((journal.code, journal.stdout.as_str()), (7, "journal\n"));
    assert_eq!(
        machine.calls().last().unwrap(),
        "journalctl|--unit|llmsrv-network.service|--lines=5|--follow|--since=@1795248000"
    );
    machine.run(&["logs", "--json"]);
    let called = machine.calls();
    assert!(
        called.last().unwrap().ends_with("|--output=json"),
        "{called:?}"
    );
    fs::remove_file(machine.path("bin/journalctl")).unwrap();
    assert_eq!(machine.run(&["logs"]).code, 1);
}

#[test]
fn status_and_test_know_the_service() {
    let machine = Machine::with(&[
        ("systemctl", SYSTEMCTL),
        ("journalctl", "echo 'the last line'"),
    ]);
    machine.state("loaded", "LoadState=loaded\nActiveState=failed\nSubState=failed\nResult=watchdog\nUnitFileState=enabled\n");
    let status = machine.run(&["status"]);
    assert_eq!(status.code, 3, "{status:?}");
    for part in [
        "failed (failed), ended with watchdog, enabled",
        "the last line",
    ] {
        assert!(status.stdout.contains(part), "{part}: {status:?}");
    }
    let json = machine.run(&["status", "--json"]).json();
    assert_eq!(json["service"]["result"], "watchdog", "{json}");
    assert_eq!(json["log"][0], "the last line", "{json}");
    let tested = machine.run(&["test", "--json"]).json();
    let service = tested["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "service")
        .unwrap();
    assert_eq!(service["outcome"], "fail", "{tested}");
    assert!(
        service["hint"]
            .as_str()
            .unwrap()
            .contains("llmsrv service start"),
        "{tested}"
    );
}

/// The manager hears that the server is ready, alive, reloading and stopping.
#[test]
fn the_manager_of_services_is_told() {
    let machine = Machine::new();
    let path = machine.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let server = machine.sandbox.serve_with(
        &[],
        &[
            ("NOTIFY_SOCKET", path.to_str().unwrap()),
            ("WATCHDOG_USEC", "300000"),
        ],
    );
    let next = || {
        let mut text = [0; 1000];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let ready = next();
    assert!(
        ready.starts_with("READY=1\n") && ready.contains(&server.url),
        "{ready}"
    );
    // A beat each 100 ms; with nobody to answer there would be none.
    let begun = Instant::now();
    for _ in 0..4 {
        assert_eq!(next(), "WATCHDOG=1\n");
    }
    assert!(begun.elapsed() > Duration::from_millis(250));
    let told = |wanted: &str| {
        let begun = Instant::now();
        loop {
            let text = next();
            if text != "WATCHDOG=1\n" {
                assert!(text.starts_with(wanted), "{text}");
                return text;
            }
            assert!(begun.elapsed() < TIMEOUT);
        }
    };
    server.signal("-HUP");
    let reloading = told("RELOADING=1\n");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    told("READY=1\n");
    server.signal("-TERM");
    told("STOPPING=1\n");
    assert_eq!(server.end("-CONT"), 0);

    // A server that is stopped shows no life.
    let server = machine.sandbox.serve_with(
        &[],
        &[
            ("NOTIFY_SOCKET", path.to_str().unwrap()),
            ("WATCHDOG_USEC", "300000"),
        ],
    );
    told("READY=1\n");
    server.signal("-STOP");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut text = [0; 100];
    while socket.recv(&mut text).is_ok() {
        // What was sent before it was stopped.
    }
    assert!(socket.recv(&mut text).is_err());
}
