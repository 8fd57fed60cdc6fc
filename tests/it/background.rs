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

    // What it would do for the network, without an address of its own.
    let mut command = machine.command(&["service", "start", "--dry-run", "-p", &port]);
    let dry = Output::of(command.env_remove("LLMSRV_HOST")).ok();
    for part in [
        "end the process in ",
        &format!("LLMSRV_HOST=0.0.0.0:{port} LLMSRV_ORIGINS="),
        "serve --detached </dev/null >>",
        &format!("GET http://127.0.0.1:{port}/api/tags until it answers, 5 s at most"),
    ] {
        assert!(dry.stdout.contains(part), "{part}: {dry:?}");
    }

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

    // Once more: the first one ends, another one starts.
    here(&["service", "start"]).ok();
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
        "end the process in ",
        "ufw allow 8080/tcp comment llmsrv",
        "write ",
        "| Environment=LLMSRV_HOST=0.0.0.0:8080",
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
