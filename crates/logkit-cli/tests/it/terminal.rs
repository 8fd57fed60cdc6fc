//! `logkit run` in a terminal: the command has one of its own, and ours is left as it was.

use std::{
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
    process::Child,
    sync::{Arc, Mutex},
    thread,
};

use pty_process::blocking::{Command, Pts};
use rustix::termios::{self, LocalModes, Winsize};

use crate::util::{Sandbox, eventually};

/// The program in a terminal of 100 columns and 30 rows.
struct Terminal {
    child: Child,
    ours: OwnedFd,
    /// Kept, so that its settings can be looked at after the end.
    inner: Pts,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Terminal {
        let (ours, inner) = pty_process::blocking::open().unwrap();
        ours.resize(pty_process::Size::new(30, 100)).unwrap();
        let mut command = Command::from(sandbox.command(args));
        let child = command.spawn_borrowed(&inner).unwrap();
        let ours = OwnedFd::from(ours);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (
            std::fs::File::from(ours.try_clone().unwrap()),
            Arc::clone(&seen),
        );
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Terminal {
            child,
            ours,
            inner,
            seen,
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?}"), || {
            self.text().contains(text).then_some(())
        });
    }

    fn type_keys(&self, keys: &str) {
        let mut keyboard = std::fs::File::from(self.ours.try_clone().unwrap());
        keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end; the terminal must then be as it was before.
    fn end(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        let modes = termios::tcgetattr(&self.inner).unwrap().local_modes;
        for mode in [LocalModes::ECHO, LocalModes::ICANON, LocalModes::ISIG] {
            assert!(modes.contains(mode), "{modes:?}");
        }
        thread::sleep(std::time::Duration::from_millis(50));
        (status.code().unwrap(), self.text())
    }
}

#[test]
fn entries_do_not_steer_a_terminal() {
    let sandbox = Sandbox::new();
    sandbox.log(&[logkit::Entry {
        return_value: "\u{1b}[31mred\u{9b}2J\u{202e}".to_owned().into(),
        ..logkit::Entry::default()
    }]);
    for form in [
        &["--csv"][..],
        &["--json"],
        &["--csv", "--sql", "SELECT return_value FROM logs"],
    ] {
        let (code, text) = Terminal::start(&sandbox, &[&["logs"], form].concat()).end();
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("red"), "{form:?}: {text:?}");
        for order in ['\u{1b}', '\u{9b}', '\u{202e}'] {
            assert!(!text.contains(order), "{form:?}: {text:?}");
        }
    }
}

#[test]
fn the_command_has_a_terminal_of_the_same_size() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(
        &sandbox,
        &[
            "run",
            "-q",
            "sh",
            "-c",
            "test -t 0 && test -t 1 && test -t 2 && stty size; printf '\\033[31mred\\033[0m\\n'; exit 3",
        ],
    );
    let (code, text) = terminal.end();
    assert_eq!(code, 3);
    assert!(
        text.starts_with("30 100\r\n\x1b[31mred\x1b[0m\r\n"),
        "{text:?}"
    );
    // What is logged is text, not pictures of a screen.
    assert_eq!(sandbox.entry()["extra"]["stdout"], "30 100\nred\n");
}

#[test]
fn a_change_of_size_reaches_the_command() {
    let sandbox = Sandbox::new();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
    let terminal = Terminal::start(&sandbox, &["run", "-q", "sh", "-c", script]);
    terminal.wait_for("ready");
    let size = Winsize {
        ws_row: 20,
        ws_col: 70,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    termios::tcsetwinsize(terminal.ours.as_fd(), size).unwrap();
    terminal.wait_for("20 70");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn keys_reach_the_command() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(
        &sandbox,
        &["run", "-q", "sh", "-c", "read line; echo got:$line"],
    );
    terminal.type_keys("hello\n");
    terminal.wait_for("got:hello");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn control_c_ends_the_command_and_the_entry_is_written() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(&sandbox, &["run", "-q", "sh", "-c", "echo ready; sleep 60"]);
    terminal.wait_for("ready");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().0, 130);
    assert_eq!(sandbox.entry()["extra"]["signal"], 2);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::start(&sandbox, &["run", "-q", "sh", "-c", "echo ready; sleep 60"]);
    terminal.wait_for("ready");
    let pid = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(terminal.end().0, 143);
    assert_eq!(sandbox.entry()["extra"]["signal"], 15);
}

#[test]
fn with_pipes_in_a_terminal_control_c_comes_once() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo interrupted' INT; echo ready; sleep 1; sleep 1; echo over";
    let terminal = Terminal::start(&sandbox, &["run", "-q", "--no-tty", "sh", "-c", script]);
    terminal.wait_for("ready");
    terminal.type_keys("\x03");
    terminal.wait_for("over");
    let (code, text) = terminal.end();
    assert_eq!(
        (code, text.matches("interrupted").count()),
        (0, 1),
        "{text:?}"
    );
}

#[test]
fn a_terminal_can_be_asked_for() {
    let sandbox = Sandbox::new();
    let ended = sandbox.run(&["run", "-q", "--tty", "sh", "-c", "test -t 1 && stty size"]);
    assert_eq!(
        (ended.stdout.as_str(), ended.code),
        ("24 80\r\n", Some(0)),
        "{ended:?}"
    );
}
