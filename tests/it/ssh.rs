//! `llmsrv ssh` against a real sshd, in real terminals.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::{
    sshd::{PASSWORD, Sshd, add_user, chmod, mode, run},
    util::{Output, Sandbox, TIMEOUT},
};

/// Somebody who logs in to a host of the tests.
struct Guest {
    sandbox: Sandbox,
    sshd: Sshd,
}

impl Guest {
    /// One without a key, who knows the host's key.
    fn of(sshd: Sshd) -> Guest {
        sshd.introduce();
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path().join("tmp")).unwrap();
        Guest { sandbox, sshd }
    }

    /// One whose key the host takes.
    fn known_to(sshd: Sshd) -> Guest {
        let guest = Guest::of(sshd);
        guest.make_key("");
        let public = guest.key().with_extension("pub");
        guest
            .sshd
            .authorize(fs::read_to_string(public).unwrap().trim());
        guest
    }

    fn make_key(&self, passphrase: &str) {
        fs::create_dir(self.sandbox.path().join(".ssh")).unwrap();
        let file = self.key();
        let args = [
            "-q",
            "-t",
            "ed25519",
            "-N",
            passphrase,
            "-f",
            file.to_str().unwrap(),
        ];
        run("ssh-keygen", &args);
    }

    fn key(&self) -> PathBuf {
        self.sandbox.path().join(".ssh/id_ed25519")
    }

    /// `llmsrv ssh` to the host with more arguments.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command();
        command
            .env("TMPDIR", self.sandbox.path().join("tmp"))
            .env("TERM", "xterm")
            .args(["ssh", "-p", &self.sshd.port.to_string()])
            .arg("-F")
            .arg(self.sshd.config())
            .arg(self.sshd.destination())
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        Output::of(&mut self.command(args))
    }

    /// Runs a remote command in a terminal, with the password.
    fn log_in(&self, args: &[&str]) -> (i32, String) {
        let terminal = Terminal::start(self.command(args));
        terminal.wait_for("'s password:");
        terminal.type_keys(&format!("{PASSWORD}\n"));
        terminal.end()
    }

    fn authorized(&self) -> String {
        fs::read_to_string(self.sshd.authorized_keys()).unwrap_or_default()
    }

    /// Waits until no connection is left, then looks for what else is.
    fn assert_nothing_is_left(&self) {
        let folder = self.sandbox.path().join("tmp");
        let deadline = Instant::now() + TIMEOUT;
        while fs::read_dir(&folder).unwrap().count() > 0 {
            assert!(
                Instant::now() < deadline,
                "something is left in {}",
                folder.display()
            );
            thread::sleep(Duration::from_millis(50));
        }
        let Ok(keys) = fs::read_dir(self.sandbox.path().join(".ssh")) else {
            return;
        };
        for entry in keys {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(
                ["id_ed25519", "id_ed25519.pub"].contains(&name.as_str()),
                "{name}"
            );
        }
    }
}

/// A program in a terminal of 100 columns and 30 rows.
struct Terminal {
    child: Child,
    ours: OwnedFd,
    inner: pty_process::blocking::Pts,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(command: Command) -> Terminal {
        let (ours, inner) = pty_process::blocking::open().unwrap();
        ours.resize(pty_process::Size::new(30, 100)).unwrap();
        let child = pty_process::blocking::Command::from(command)
            .spawn_borrowed(&inner)
            .unwrap();
        let ours = OwnedFd::from(ours);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (fs::File::from(ours.try_clone().unwrap()), seen.clone());
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

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.text().contains(text) {
            assert!(
                Instant::now() < deadline,
                "no {text:?} in {:?}",
                self.text()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn type_keys(&self, keys: &str) {
        let mut keyboard = fs::File::from(self.ours.try_clone().unwrap());
        keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end; the terminal must then show what is typed, as before.
    fn end(mut self) -> (i32, String) {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "it does not end: {:?}",
                self.text()
            );
            thread::sleep(Duration::from_millis(10));
        };
        thread::sleep(Duration::from_millis(50));
        let modes = rustix::termios::tcgetattr(&self.inner).unwrap().local_modes;
        assert!(
            modes.contains(rustix::termios::LocalModes::ECHO),
            "{modes:?}"
        );
        (status.code().unwrap_or(-1), self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn one_password_copies_the_key_and_no_other_is_needed() {
    let sshd = Sshd::with_user("");
    let guest = Guest::of(sshd);
    let (code, text) = guest.log_in(&["--", "echo in-there; exit 7"]);
    assert_eq!(code, 7, "{text}");
    assert_eq!(text.matches("'s password:").count(), 1, "{text}");
    for said in [
        "made the key",
        "refuses the keys",
        "key installed",
        "in-there",
    ] {
        assert!(text.contains(said), "no {said:?} in {text}");
    }
    assert_eq!(mode(&guest.sandbox.path().join(".ssh")), 0o700);
    assert_eq!(mode(&guest.key()), 0o600);
    assert_eq!(mode(&guest.key().with_extension("pub")), 0o644);
    assert_eq!(mode(&guest.sshd.authorized_keys()), 0o600);
    let (key, authorized) = (fs::read(guest.key()).unwrap(), guest.authorized());
    let public = fs::read_to_string(guest.key().with_extension("pub")).unwrap();
    assert_eq!(authorized, public);

    // Without a terminal, and without a word of ours.
    let again = guest.run(&["--", "echo in-there"]).ok();
    assert_eq!(
        (again.stdout.as_str(), again.stderr.as_str()),
        ("in-there\n", "")
    );
    let copied = guest.run(&["--copy-id"]).ok();
    assert!(
        copied.stderr.contains("key already installed"),
        "{copied:?}"
    );
    assert_eq!(guest.authorized(), authorized, "one line");
    assert_eq!(fs::read(guest.key()).unwrap(), key, "the same key");
    guest.assert_nothing_is_left();
}

#[test]
fn remote_commands_end_as_they_end_there() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    for (line, code) in [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("sh -c 'kill -TERM $$'; exit $?", 143),
        // The shell itself ends by a signal: ssh has no number for it.
        ("kill -KILL $$", 255),
        ("no-such-command-there", 127),
    ] {
        assert_eq!(guest.run(&["--", line]).code, code, "{line}");
    }
    // Several words are words, one is a line for the shell.
    let words = [
        "--", "printf", "<%s>", "a  b", "it's", "\"q\"", "$HOME", "*", "", "-n", "ä\\",
    ];
    let output = guest.run(&words).ok();
    assert_eq!(output.stdout, "<a  b><it's><\"q\"><$HOME><*><><-n><ä\\>");
    let output = guest
        .run(&["--", "for i in 1 2; do echo \"$i  x\"; done >&2"])
        .ok();
    assert_eq!(output.stderr, "1  x\n2  x\n");

    let mut child = guest
        .command(&["--", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&vec![0; 300_000])
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "300000");
    guest.assert_nothing_is_left();
}

#[test]
fn a_shell_there_has_our_terminal_and_follows_its_size() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    let terminal = Terminal::start(guest.command(&[]));
    terminal.wait_for("$ ");
    terminal.type_keys("test -t 0 && echo size: $(stty size)\n");
    terminal.wait_for("size: 30 100");
    let size = rustix::termios::Winsize {
        ws_row: 20,
        ws_col: 70,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&terminal.ours, size).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !terminal.text().contains("size: 20 70") {
        assert!(Instant::now() < deadline, "{}", terminal.text());
        terminal.type_keys("echo size: $(stty size)\n");
        thread::sleep(Duration::from_millis(100));
    }
    // Ctrl-C belongs to the program there.
    terminal.type_keys("echo waiting; sleep 100; echo not-reached\n");
    terminal.wait_for("waiting\r\n");
    terminal.type_keys("\x03");
    terminal.wait_for("^C");
    terminal.type_keys("exit 3\n");
    let (code, text) = terminal.end();
    assert_eq!(code, 3, "{text}");
    assert!(!text.contains("hint:"), "{text}");
    guest.assert_nothing_is_left();
}

#[test]
fn a_command_gets_a_terminal_when_it_is_asked_for() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    let line = "test -t 1 && echo terminal || echo none";
    let (_, text) = Terminal::start(guest.command(&["-t", "--", line])).end();
    assert!(text.contains("terminal"), "{text}");
    let (_, text) = Terminal::start(guest.command(&["--", line])).end();
    assert!(text.contains("none"), "{text}");
}

#[test]
fn unknown_hosts_are_asked_about_on_a_terminal_only() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    fs::remove_file(guest.sshd.known_hosts()).unwrap();
    let refused = guest.run(&["--", "true"]);
    assert_eq!(refused.code, 255, "{refused:?}");
    for part in ["not known yet", "SHA256:", "--accept-new"] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }

    let terminal = Terminal::start(guest.command(&["--", "echo in-there"]));
    terminal.wait_for("(yes/no");
    terminal.type_keys("no\n");
    assert_eq!(terminal.end().0, 255);
    assert!(!guest.sshd.known_hosts().exists());

    let terminal = Terminal::start(guest.command(&["--", "echo in-there"]));
    terminal.wait_for("(yes/no");
    terminal.type_keys("yes\n");
    terminal.wait_for("in-there");
    assert_eq!(terminal.end().0, 0);

    fs::remove_file(guest.sshd.known_hosts()).unwrap();
    guest.run(&["--accept-new", "--", "true"]).ok();
    guest.assert_nothing_is_left();
}

#[test]
fn a_changed_host_key_is_explained_and_nothing_is_deleted() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    guest.sshd.introduce_wrongly();
    let before = fs::read(guest.sshd.known_hosts()).unwrap();
    let (code, text) = Terminal::start(guest.command(&["--accept-new", "--", "true"])).end();
    assert_eq!(code, 255);
    let fix = format!(
        "ssh-keygen -f {} -R '[127.0.0.1]:{}'",
        guest.sshd.known_hosts().display(),
        guest.sshd.port
    );
    assert!(text.contains("CHANGED") && text.contains(&fix), "{text}");
    assert_eq!(fs::read(guest.sshd.known_hosts()).unwrap(), before);
    run("sh", &["-c", &format!("{fix} 2>/dev/null")]);
    guest.run(&["--accept-new", "--", "true"]).ok();
}

#[test]
fn a_passphrase_is_asked_for_once_and_nothing_is_copied() {
    let sshd = Sshd::start("");
    let guest = Guest::of(sshd);
    guest.make_key("open sesame");
    let public = fs::read_to_string(guest.key().with_extension("pub")).unwrap();
    guest.sshd.authorize(public.trim());
    let before = guest.authorized();
    let terminal = Terminal::start(guest.command(&["--", "echo in-there"]));
    terminal.wait_for("Enter passphrase for key");
    terminal.type_keys("open sesame\n");
    let (code, text) = terminal.end();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("in-there"), "{text}");
    assert_eq!(text.matches("Enter passphrase").count(), 1, "{text}");
    assert_eq!(guest.authorized(), before);
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn hosts_without_keys_let_in_with_a_password_and_nothing_is_copied() {
    let sshd = Sshd::with_user("PubkeyAuthentication no");
    let guest = Guest::of(sshd);
    let (code, text) = guest.log_in(&["--", "echo in-there"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("offers no login with keys") && text.contains("in-there"),
        "{text}"
    );
    assert!(!guest.key().exists());
    assert_eq!(guest.authorized(), "");
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_host_that_still_refuses_the_key_lets_in_with_a_warning() {
    let sshd = Sshd::with_user("");
    chmod(&sshd.home(), 0o777);
    let guest = Guest::of(sshd);
    let (code, text) = guest.log_in(&["--", "echo in-there"]);
    assert_eq!(code, 0, "{text}");
    for part in ["chmod go-w ~", "still refuses", "in-there"] {
        assert!(text.contains(part), "{text}");
    }
    let (code, text) = guest.log_in(&["--copy-id"]);
    assert_eq!(code, 255, "{text}");
    assert!(text.contains("key already installed"), "{text}");
    assert_eq!(guest.authorized().lines().count(), 1);
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_wrong_password_is_refused_by_the_host() {
    let sshd = Sshd::with_user("");
    let guest = Guest::of(sshd);
    let terminal = Terminal::start(guest.command(&[]));
    for asked in 1..=3 {
        let deadline = Instant::now() + TIMEOUT;
        while terminal.text().matches("'s password:").count() < asked {
            assert!(Instant::now() < deadline, "{}", terminal.text());
            thread::sleep(Duration::from_millis(10));
        }
        terminal.type_keys("wrong\n");
    }
    let (code, text) = terminal.end();
    assert_eq!(code, 255, "{text}");
    assert!(
        text.contains("refuses the password") && text.contains("llmsrv ssh NAME@"),
        "{text}"
    );
    guest.assert_nothing_is_left();
}

#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn ctrl_c_at_the_password_leaves_nothing_and_the_terminal_as_it_was() {
    let sshd = Sshd::with_user("");
    let guest = Guest::of(sshd);
    let terminal = Terminal::start(guest.command(&[]));
    terminal.wait_for("'s password:");
    terminal.type_keys("\x03");
    let (code, text) = terminal.end();
    assert_eq!(code, 130, "{text}");
    guest.assert_nothing_is_left();
    // The key that was made is whole.
    run("ssh-keygen", &["-y", "-f", guest.key().to_str().unwrap()]);
}

#[test]
fn a_signal_at_any_time_leaves_nothing() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    for step in 0..8 {
        // The public half is missing each time, so that it is written, too.
        let _ = fs::remove_file(guest.key().with_extension("pub"));
        let signal = if step % 2 == 0 { "-INT" } else { "-TERM" };
        let mut child = guest
            .command(&["--copy-id"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(step * 60));
        let _ = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .output();
        child.wait().unwrap();
        if let Ok(public) = fs::read_to_string(guest.key().with_extension("pub")) {
            assert!(
                public.ends_with('\n') && public.starts_with("ssh-ed25519 "),
                "{public:?}"
            );
        }
        guest.assert_nothing_is_left();
    }
    guest.run(&["--", "true"]).ok();
}

#[test]
fn hosts_that_are_not_there_are_named_with_what_to_do() {
    let sandbox = Sandbox::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let refused = sandbox.run(&[
        "ssh",
        "-F",
        "none",
        "-p",
        &free.to_string(),
        "ann@127.0.0.1",
    ]);
    assert_eq!(refused.code, 255, "{refused:?}");
    assert!(
        refused.stderr.contains("refuses connections") && refused.stderr.contains("-p PORT"),
        "{refused:?}"
    );
    let unknown = sandbox.run(&["ssh", "-F", "none", "ann@no-such-host.invalid"]);
    assert_eq!(unknown.code, 255, "{unknown:?}");
    assert!(
        unknown.stderr.contains("getent hosts no-such-host.invalid"),
        "{unknown:?}"
    );
    assert!(
        !sandbox.path().join(".ssh").exists(),
        "no key for a host that is not there"
    );

    let nothing = Output::of(
        sandbox
            .command()
            .env("PATH", sandbox.path())
            .args(["ssh", "ann@host"]),
    );
    assert_eq!(nothing.code, 255, "{nothing:?}");
    assert!(
        nothing.stderr.contains("apt install openssh-client"),
        "{nothing:?}"
    );
}

#[test]
fn what_looks_like_an_option_never_reaches_ssh() {
    let sandbox = Sandbox::new();
    for args in [
        &["ssh", "-oProxyCommand=touch pwned"][..],
        &["ssh", "--", "-oProxyCommand=touch pwned"],
        &["ssh", "ann@-oProxyCommand=touch pwned"],
        &["ssh", "ann@$(touch pwned)"],
        &["ssh", "--jump=-oProxyCommand=touch pwned", "ann@127.0.0.1"],
        &["ssh", "-J", "a,-oProxyCommand=touch pwned", "ann@127.0.0.1"],
        &["ssh", "ann@127.0.0.1:22"],
        &["ssh", ""],
        &["ssh"],
        &["ssh", "--forward=x", "ann@127.0.0.1"],
        &["ssh", "--json", "ann@127.0.0.1"],
        &["ssh", "--copy-id", "ann@127.0.0.1", "--", "true"],
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
    }
    assert_eq!(fs::read_dir(sandbox.path()).unwrap().count(), 0);
}

#[test]
fn a_plan_and_the_checks_are_for_people_and_scripts() {
    let sshd = Sshd::start("");
    let guest = Guest::of(sshd);
    let plan = guest.run(&["--dry-run", "--json"]).ok().json();
    assert_eq!(plan["key_would_be_made"], true);
    assert_eq!(plan["port"], guest.sshd.port);
    assert_eq!(plan["user"], guest.sshd.user.as_str());
    assert!(plan["steps"].as_array().unwrap().len() >= 5, "{plan}");
    let text = guest.run(&["--dry-run", "--", "ls"]).ok().stdout;
    assert!(
        text.contains("make the key") && text.contains(" ls\n"),
        "{text}"
    );
    assert!(!guest.key().exists());

    let checks = guest.run(&["--doctor", "--json"]);
    assert_eq!(checks.code, 1, "{checks:?}");
    let outcome = |checks: &serde_json::Value, name: &str| {
        let mut list = checks["checks"].as_array().unwrap().iter();
        list.find(|check| check["name"] == name).unwrap()["outcome"].clone()
    };
    assert_eq!(outcome(&checks.json(), "login"), "fail");
    assert_eq!(outcome(&checks.json(), "host key"), "pass");
    assert!(!guest.key().exists());
    guest.make_key("");
    let public = fs::read_to_string(guest.key().with_extension("pub")).unwrap();
    guest.sshd.authorize(public.trim());
    let fine = guest.run(&["--doctor"]);
    assert!(fine.stdout.contains("failed 0"), "{fine:?}");
    assert!(fine.stdout.contains("✓ login"), "{fine:?}");
    guest.assert_nothing_is_left();
}

#[tokio::test]
async fn a_tunnel_reaches_a_real_server() {
    let sshd = Sshd::start("");
    let guest = Guest::known_to(sshd);
    let server = guest.sandbox.serve();
    let remote = server.url.rsplit(':').next().unwrap().to_owned();
    let local = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let ports = format!("{local}:{remote}");

    // With a command, for as long as it runs; its output is its own.
    let output = guest
        .run(&["--forward", &ports, "--", "echo in-there"])
        .ok();
    assert_eq!(output.stdout, "in-there\n");
    assert!(
        output.stderr.contains(&format!("http://127.0.0.1:{local}")),
        "{output:?}"
    );
    guest.assert_nothing_is_left();

    let mut child = guest
        .command(&["--forward", &ports])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, format!("http://127.0.0.1:{local}\n"));
    let version = reqwest::get(format!("http://127.0.0.1:{local}/api/version"))
        .await
        .unwrap();
    assert!(version.text().await.unwrap().contains("version"));
    let busy = guest.run(&["--forward", &ports]);
    assert_eq!(busy.code, 255, "{busy:?}");
    assert!(busy.stderr.contains("is taken"), "{busy:?}");
    run("kill", &["-INT", &child.id().to_string()]);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    guest.assert_nothing_is_left();
    assert!(TcpStream::connect(("127.0.0.1", local)).is_err());

    server.end("-TERM");
    // The second one would lead to itself: the host is this machine.
    for ports in [ports, format!("{remote}:{remote}")] {
        let nothing = guest.run(&["--forward", &ports]);
        assert_eq!(nothing.code, 69, "{nothing:?}");
        assert!(nothing.stderr.contains("llmsrv serve"), "{nothing:?}");
        // It is known at once, not after some time without an answer.
        assert!(nothing.stderr.contains("no program listens"), "{nothing:?}");
        guest.assert_nothing_is_left();
    }
}

/// All as it is for users: `~` of the list of users, `~/.ssh/config`, `~/.ssh/known_hosts`.
#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn a_user_of_this_machine_logs_in_by_an_alias() {
    let sshd = Sshd::with_user("");
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o755);
    let home = dir.path().join("home");
    let user = User {
        name: add_user(&home),
        home,
    };
    let config = format!(
        "Host box\n HostName 127.0.0.1\n Port {}\n User {}\n",
        sshd.port, sshd.user
    );
    user.own(".ssh", None);
    user.own(".ssh/config", Some(&config));
    let ssh = user.home.join(".ssh");

    // A home that cannot be written to.
    run("chown", &["root", ssh.to_str().unwrap()]);
    chmod(&ssh, 0o755);
    let refused = Output::of(&mut user.command(&["--accept-new", "--copy-id", "box"]));
    assert_eq!(refused.code, 255, "{refused:?}");
    assert!(refused.stderr.contains("cannot write"), "{refused:?}");
    assert!(refused.stderr.contains("ls -ld"), "{refused:?}");
    run("chown", &[&user.name, ssh.to_str().unwrap()]);
    chmod(&ssh, 0o700);

    let terminal = Terminal::start(user.command(&["box", "--", "id -un"]));
    terminal.wait_for("(yes/no");
    terminal.type_keys("yes\n");
    terminal.wait_for("'s password:");
    terminal.type_keys(&format!("{PASSWORD}\n"));
    let (code, text) = terminal.end();
    assert_eq!(code, 0, "{text}");
    assert!(text.trim_end().ends_with(&sshd.user), "{text}");
    let again = Output::of(&mut user.command(&["box", "--", "id", "-un"])).ok();
    assert_eq!(
        (again.stdout.trim(), again.stderr.as_str()),
        (sshd.user.as_str(), "")
    );
    let doctor = Output::of(&mut user.command(&["box", "--doctor"])).ok();
    assert!(doctor.stdout.contains("failed 0"), "{doctor:?}");
    let keys = fs::read_to_string(sshd.authorized_keys()).unwrap();
    assert_eq!(keys.lines().count(), 1);
    assert!(keys.contains(&format!("{}@", user.name)), "{keys}");
}

struct User {
    name: String,
    home: PathBuf,
}

impl User {
    fn command(&self, args: &[&str]) -> Command {
        let id = |what| run("id", &[what, &self.name]).trim().parse().unwrap();
        // Others may not be let into the folder where it was built.
        let program = self.home.parent().unwrap().join("llmsrv");
        if !program.exists() {
            let built = env!("CARGO_BIN_EXE_llmsrv");
            fs::hard_link(built, &program)
                .or_else(|_| fs::copy(built, &program).map(drop))
                .unwrap();
        }
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(&self.home)
            .uid(id("-u"))
            .gid(id("-g"))
            .arg("ssh")
            .args(args);
        command
    }

    /// Makes a folder or a file of the user's own.
    fn own(&self, name: &str, text: Option<&str>) {
        let path: &Path = &self.home.join(name);
        match text {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::create_dir(path).unwrap(),
        }
        chmod(path, if text.is_some() { 0o600 } else { 0o700 });
        run("chown", &[&self.name, path.to_str().unwrap()]);
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = Command::new("userdel").args(["-f", &self.name]).output();
    }
}
