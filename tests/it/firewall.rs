//! The firewall of the machine: fakes of four, and a real one in a network of its own.

use std::process::Command;

use crate::{
    machine::{Machine, outcomes},
    util::{Output, Sandbox},
};

#[test]
fn ufw_is_changed_if_it_is_active() {
    let table = "To                         Action      From\n--                         ------      ----\n";
    let status = |rules: &str| {
        format!(
            "case \"$1\" in status) printf 'Status: active\\n\\n{}{rules}' ;; esac",
            table.replace('\n', "\\n")
        )
    };
    let machine = Machine::with(&[("ufw", &status(""))]);
    let allow = ["firewall", "allow", "-p", "11434"];
    let dry = machine
        .run(&["firewall", "allow", "-p", "11434", "--dry-run"])
        .ok();
    assert!(
        dry.stdout.contains("$ ufw allow 11434/tcp comment llmsrv"),
        "{dry:?}"
    );
    assert_eq!(machine.changes(), [""; 0]);
    let done = machine.run(&allow).ok();
    assert!(
        done.stderr.contains("$ ufw allow 11434/tcp comment llmsrv"),
        "{done:?}"
    );
    assert_eq!(machine.changes(), ["ufw|allow|11434/tcp|comment|llmsrv"]);

    let ours = "11434/tcp                  ALLOW       Anywhere                   # llmsrv\\n11434/tcp (v6)             ALLOW       Anywhere (v6)              # llmsrv\\n";
    machine.fake("ufw", &status(ours));
    assert_eq!(
        outcomes(
            &machine
                .run(&["firewall", "allow", "-p", "11434", "--json"])
                .ok()
        ),
        ["already"]
    );
    assert_eq!(machine.changes(), [""; 0]);
    machine
        .run(&["firewall", "allow", "-p", "11434", "--lan-only"])
        .ok();
    let changes = machine.changes();
    assert_eq!(
        changes[0],
        "ufw|allow|proto|tcp|from|10.0.0.0/8|to|any|port|11434|comment|llmsrv"
    );
    // What was open to all is so no more.
    assert_eq!(changes.last().unwrap(), "ufw|delete|allow|11434/tcp");
    assert_eq!(changes.len(), 6, "{changes:?}");
    machine.run(&["firewall", "remove", "-p", "11434"]).ok();
    assert_eq!(machine.changes(), ["ufw|delete|allow|11434/tcp"]);
    let seen = machine
        .run(&["firewall", "status", "-p", "11434", "--json"])
        .ok()
        .json();
    let ufw = seen["firewalls"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "ufw")
        .unwrap();
    assert_eq!(
        (&ufw["active"], &ufw["rules"][0]["ours"]),
        (&true.into(), &true.into()),
        "{seen}"
    );

    // A rule of somebody else is enough, and stays.
    machine.fake(
        "ufw",
        &status("11434                      ALLOW       Anywhere\\n"),
    );
    assert_eq!(
        outcomes(
            &machine
                .run(&["firewall", "allow", "-p", "11434", "--json"])
                .ok()
        ),
        ["already"]
    );
    machine.run(&["firewall", "remove", "-p", "11434"]).ok();
    machine.fake("ufw", "echo 'Status: inactive'");
    let inactive = machine.run(&allow).ok();
    assert!(inactive.stderr.contains("nothing to do"), "{inactive:?}");
    assert_eq!(machine.changes(), [""; 0]);
}

#[test]
fn firewalld_is_told_for_now_and_for_later() {
    let machine = Machine::with(&[
        (
            "firewall-cmd",
            "case \"$*\" in --permanent*--add*) exit 11;; esac",
        ),
        // It is managed by the other one.
        ("iptables", "echo '-P INPUT DROP'"),
    ]);
    let output = machine
        .run(&["firewall", "allow", "-p", "8080", "--json"])
        .ok();
    assert_eq!(outcomes(&output), ["done", "already"]);
    assert_eq!(
        machine.changes(),
        [
            "firewall-cmd|--add-port=8080/tcp",
            "firewall-cmd|--permanent|--add-port=8080/tcp"
        ]
    );
    machine
        .run(&["firewall", "allow", "-p", "8080", "--lan-only"])
        .ok();
    let changes = machine.changes();
    assert_eq!(changes.len(), 10, "{changes:?}");
    assert_eq!(
        changes[0],
        "firewall-cmd|--add-rich-rule=rule family=\"ipv4\" source address=\"10.0.0.0/8\" port port=\"8080\" protocol=\"tcp\" accept"
    );
    machine.fake(
        "firewall-cmd",
        "case \"$*\" in --list-ports) echo '22/tcp 8080/tcp';; --remove*) exit 12;; esac",
    );
    let removed = machine
        .run(&["firewall", "remove", "-p", "8080", "--json"])
        .ok();
    assert_eq!(outcomes(&removed), ["already"]);
    assert_eq!(machine.changes(), ["firewall-cmd|--remove-port=8080/tcp"]);
    machine.fake("firewall-cmd", "exit 252");
    machine.run(&["firewall", "allow", "-p", "8080"]).ok();
    assert_eq!(
        machine.changes(),
        ["iptables|-I|INPUT|1|-p|tcp|--dport|8080|-m|comment|--comment|llmsrv-8080|-j|ACCEPT"]
    );
}

#[test]
fn nftables_and_iptables_get_a_marked_rule() {
    let rule = r#"{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 4, "comment": "llmsrv-8080", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 8080}}, {"accept": null}]}}"#;
    let ruleset = |rules: &str| {
        format!(
            "case \"$1\" in --json) echo '{{\"nftables\": [{{\"chain\": {{\"family\": \"inet\", \"table\": \"filter\", \"name\": \"input\", \"type\": \"filter\", \"hook\": \"input\", \"policy\": \"drop\"}}}}{rules}]}}';; esac"
        )
    };
    let machine = Machine::with(&[
        ("nft", &ruleset("")),
        ("iptables", "echo '-P INPUT ACCEPT'"),
        ("ip6tables", "echo '-P INPUT DROP'"),
    ]);
    let output = machine.run(&["firewall", "allow", "-p", "8080"]).ok();
    assert!(output.stderr.contains("forgets the rule"), "{output:?}");
    assert_eq!(
        machine.changes(),
        [
            "nft|insert|rule|inet|filter|input|tcp|dport|8080|accept|comment|llmsrv-8080",
            "ip6tables|-I|INPUT|1|-p|tcp|--dport|8080|-m|comment|--comment|llmsrv-8080|-j|ACCEPT"
        ]
    );
    machine.fake("nft", &ruleset(&format!(", {rule}")));
    machine.fake("ip6tables", "echo '-P INPUT DROP'; echo '-A INPUT -p tcp -m tcp --dport 8080 -m comment --comment llmsrv-8080 -j ACCEPT'");
    assert_eq!(
        outcomes(
            &machine
                .run(&["firewall", "allow", "-p", "8080", "--json"])
                .ok()
        ),
        ["already"; 2]
    );
    machine.run(&["firewall", "remove", "-p", "8080"]).ok();
    assert_eq!(
        machine.changes(),
        [
            "nft|delete|rule|inet|filter|input|handle|4",
            "ip6tables|-D|INPUT|-p|tcp|-m|tcp|--dport|8080|-m|comment|--comment|llmsrv-8080|-j|ACCEPT"
        ]
    );
    let none = Machine::new();
    let output = none.run(&["firewall", "allow"]).ok();
    assert!(output.stderr.contains("nothing to do"), "{output:?}");
}

/// A network of its own, in which the real nftables drops everything.
#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_real_nftables_lets_the_port_in() {
    let script = r#"
        set -e
        ip link set lo up
        nft add table inet filter
        nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'
        nft add rule inet filter input ct state established accept
        knock() { python3 -c 'import socket; s=socket.create_server(("127.0.0.1",8080)); c=socket.socket(); c.settimeout(0.5); c.connect(("127.0.0.1",8080))' 2>/dev/null; }
        ! knock
        "$1" firewall allow -p 8080
        knock
        "$1" firewall allow -p 8080 --json | grep -q '"outcome": "already"'
        "$1" firewall remove -p 8080
        ! knock
        test "$(nft list ruleset | grep -c llmsrv)" = 0
    "#;
    let sandbox = Sandbox::new();
    let output = sandbox.command();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command
        .args([
            "-n",
            "bash",
            "-c",
            script,
            "bash",
            env!("CARGO_BIN_EXE_llmsrv"),
        ])
        .env_clear();
    for (name, value) in output.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", path);
    Output::of(&mut command).ok();
}
