//! The server in the background, and `net`, which does everything.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::{
    machine::{Machine, SYSTEMCTL, free_port},
    util::Output,
};

#[test]
fn without_systemd_it_serves_in_the_background() {
    let machine = Machine::new();
    let port = free_port().to_string();
    let host = format!("127.0.0.1:{port}");
    let here = |args: &[&str]| {
        let mut command = machine.command(args);
        command.env("LLMSRV_HOST", &host);
        Output::of(&mut command)
    };
    let pid = |output: &Output| output.json()["pid"].as_u64().unwrap();

    // What it would do without an address of its own.
    let mut command = machine.command(&["service", "start", "--dry-run", "-p", &port]);
    let dry = Output::of(command.env_remove("LLMSRV_HOST")).ok();
    for part in [
        "stop the server of ",
        &format!("LLMSRV_HOST=127.0.0.1:{port} "),
        "serve --detached </dev/null >>",
        &format!("GET http://127.0.0.1:{port}/api/tags until it answers, 5 s at most"),
    ] {
        assert!(dry.stdout.contains(part), "{part}: {dry:?}");
    }
    assert!(!dry.stdout.contains("ORIGINS"), "{dry:?}");

    let started = here(&["serve", "--background"]).ok();
    assert!(started.stderr.contains(&host), "{started:?}");
    let first = here(&["status", "--json"]).ok();
    assert_eq!(first.json()["sockets"][0], host.as_str(), "{first:?}");
    assert_eq!(first.json()["all_interfaces"], false);
    let log = machine.path("server.log");
    assert_eq!(
        fs::metadata(&log).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(fs::read_to_string(&log).unwrap().contains(&host));
    assert!(here(&["logs"]).ok().stdout.contains(&host));

    // One line for where it is, one for what to do with it, and perhaps a warning: no steps.
    assert!(started.stderr.lines().count() <= 3, "{started:?}");
    assert!(!started.stderr.contains('✓'), "{started:?}");

    // Once more: it runs already, and answers go on.
    for again in [&["serve", "--background"][..], &["service", "start"]] {
        let again = here(again).ok();
        assert!(again.stderr.contains("already running"), "{again:?}");
    }
    assert_eq!(pid(&first), pid(&here(&["status", "--json"]).ok()));
    // What would keep another one from starting is told before the first one ends.
    for (variable, value, code) in [
        ("LLMSRV_LOG_FILE", "/proc/nope.log", 1),
        ("LLMSRV_TLS_CERT", "/nowhere/at/all.pem", 78),
        ("LLMSRV_DEFAULT_MODEL", "not a name!", 78),
    ] {
        let mut command = machine.command(&["serve", "--background", "--restart"]);
        command.env("LLMSRV_HOST", &host).env(variable, value);
        let refused = Output::of(&mut command);
        assert_eq!(refused.code, code, "{variable}: {refused:?}");
        assert_eq!(pid(&first), pid(&here(&["status", "--json"]).ok()));
    }
    // When it is asked for, the first one ends and another one starts.
    here(&["service", "restart"]).ok();
    let second = here(&["status", "--json"]).ok();
    assert_ne!(pid(&first), pid(&second));
    assert!(!Path::new(&format!("/proc/{}/exe", pid(&first))).exists());
    // The last check of all, and that of the part which needs a service.
    let tested = here(&["test", "--json"]).ok().json();
    let service = tested["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "service")
        .unwrap();
    assert_eq!(service["outcome"], "skip", "{tested}");
    here(&["net", "--stop"]).ok();
    assert_eq!(here(&["service", "stop"]).code, 3);
    assert_eq!(here(&["status"]).code, 3);

    // A log that somebody else prepared is not written to.
    fs::remove_file(&log).unwrap();
    let target = machine.path("precious");
    fs::write(&target, "precious").unwrap();
    std::os::unix::fs::symlink(&target, &log).unwrap();
    let refused = here(&["serve", "--background"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("it is a link"), "{refused:?}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn net_does_everything_in_order() {
    let machine = Machine::new();
    let port = free_port().to_string();
    let host = format!("127.0.0.1:{port}");
    let mut command = machine.command(&["net", "--no-model"]);
    let all = Output::of(command.env("LLMSRV_HOST", &host)).ok();
    for part in [
        "Total ",
        "The server is reached at",
        "curl http://127.0.0.1:",
    ] {
        assert!(all.stdout.contains(part), "{part}: {all:?}");
    }
    assert!(
        all.stderr.contains("the server goes to the background"),
        "{all:?}"
    );
    for (action, code, says) in [
        ("--status", 0, "a server runs"),
        ("--test", 0, "failed 0"),
        ("--examples", 0, "curl"),
        ("--stop", 0, ""),
        ("--status", 3, "no server runs"),
    ] {
        // The action before the port: all is read first.
        let output = machine.run(&["net", action, "--host", &host]);
        assert_eq!(output.code, code, "{action}: {output:?}");
        assert!(output.stdout.contains(says), "{action}: {output:?}");
    }

    // With systemd: the order of the steps, and what is done when the unit does not start.
    let machine = Machine::with(&[
        ("systemctl", SYSTEMCTL),
        ("ufw", "case \"$1\" in status) echo 'Status: active';; esac"),
    ]);
    machine.state("active", "yes\n");
    let mut command = machine.command(&["net", "--user", "--dry-run", "-p", "8080"]);
    let dry = Output::of(command.env_remove("LLMSRV_HOST")).ok().stdout;
    let mut at = 0;
    for part in [
        "systemctl --user stop llmsrv-network.service",
        "stop the server of ",
        "ufw allow 8080/tcp comment llmsrv",
        "write ",
        "| Environment=LLMSRV_HOST=0.0.0.0:8080",
        "| Environment=LLMSRV_ORIGINS=*",
        "systemctl --user daemon-reload",
        "systemctl --user enable llmsrv-network.service",
        "systemctl --user restart llmsrv-network.service",
    ] {
        at += dry[at..]
            .find(part)
            .unwrap_or_else(|| panic!("{part} is not after the others: {dry}"));
    }
    assert_eq!(machine.changes(), [""; 0]);
    machine.fake(
        "systemctl",
        &format!("case \"$*\" in *restart*) exit 1;; esac\n{SYSTEMCTL}"),
    );
    let port = free_port().to_string();
    let host = format!("127.0.0.1:{port}");
    let all = machine
        .run(&["net", "--user", "--no-model", "--host", &host])
        .ok();
    assert!(
        all.stderr.contains("the server goes to the background"),
        "{all:?}"
    );
    machine.run(&["stop", "--host", &host]).ok();
}

#[test]
fn only_what_is_asked_for_opens_it_to_the_network() {
    let machine = Machine::new();
    let dry = |args: &[&str], host: Option<&str>| {
        let mut command = machine.command(args);
        command.arg("--dry-run").env_remove("LLMSRV_HOST");
        if let Some(host) = host {
            command.env("LLMSRV_HOST", host);
        }
        Output::of(&mut command).ok().stdout
    };
    for (args, host, listens, every_origin) in [
        (
            &["serve", "--background"][..],
            None,
            "127.0.0.1:11434",
            false,
        ),
        (
            &["serve", "--background", "--network"],
            None,
            "0.0.0.0:11434",
            false,
        ),
        (
            &["serve", "--background", "--network", "-p", "8080"],
            Some("127.0.0.1:1"),
            "0.0.0.0:8080",
            false,
        ),
        (
            &["serve", "--background"],
            Some("0.0.0.0:8080"),
            "0.0.0.0:8080",
            false,
        ),
        (&["net"], None, "0.0.0.0:11434", true),
        (&["net"], Some("127.0.0.1:8080"), "127.0.0.1:8080", false),
    ] {
        let shown = dry(args, host);
        let listens = format!("LLMSRV_HOST={listens} ");
        assert!(shown.contains(&listens), "{args:?} {host:?}: {shown}");
        let origins = shown.contains("LLMSRV_ORIGINS=");
        assert_eq!(origins, every_origin, "{args:?} {host:?}: {shown}");
    }
}

#[test]
fn an_open_server_says_where_and_proposes_a_key_also_when_it_is_to_be_quiet() {
    let machine = Machine::new();
    for quiet in [false, true] {
        let port = free_port().to_string();
        let mut args = vec!["serve", "--background", "--network", "-p", &port];
        args.extend(quiet.then_some("-q"));
        let mut command = machine.command(&args);
        // Each has a log of its own, for the user alone.
        command
            .env_remove("LLMSRV_HOST")
            .env_remove("LLMSRV_LOG_FILE");
        let opened = Output::of(&mut command).ok();
        let bound = format!("0.0.0.0:{port}, every interface: http://127.0.0.1:{port}");
        for part in ["open to the network", "llmsrv key add", &bound] {
            assert!(opened.stderr.contains(part), "{part}: {opened:?}");
        }
        let log = machine.path(&format!("state/llmsrv/server-{port}.log"));
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(&format!("listens on {bound}")), "{text}");
        assert_eq!(
            fs::metadata(&log).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // One that is open is not what a server for this machine alone would be.
        let host = format!("127.0.0.1:{port}");
        let here = machine.run(&["serve", "--background", "--host", &host]);
        assert_eq!(here.code, 1, "{here:?}");
        assert!(here.stderr.contains("--restart"), "{here:?}");
        machine.run(&["stop", "--host", &host]).ok();
    }
}
