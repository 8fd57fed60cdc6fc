//! Logging in to a real sshd without a question; those with a password are tests of the program.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
};

use llmsrv_ssh::{
    Error, Forward, Interrupt, NewHosts, Session, Ssh,
    control::{Control, Purpose, Way},
    doctor::{self, Check, Outcome},
    forward,
    install::install,
    key::Identity,
    known_errors::KnownError,
    login::{Event, Login, Surroundings},
    plan::plan,
};

use crate::sshd::{Sshd, chmod, mode, run};

/// Somebody who logs in.
struct Guest {
    home: tempfile::TempDir,
    ssh: Ssh,
    key: String,
    interrupt: Interrupt,
    events: Vec<Event>,
}

impl Guest {
    /// One with a key in the usual place, who knows the host's key.
    fn of(sshd: &Sshd) -> Guest {
        sshd.introduce();
        let home = tempfile::tempdir().unwrap();
        let identity = Identity::choose(None, &llmsrv_ssh::Settings::default(), home.path());
        let key = identity.ensure("guest@test").unwrap().line;
        let ssh = Ssh {
            destination: sshd.destination().parse().unwrap(),
            port: Some(sshd.port),
            identity: None,
            jump: None,
            config: Some(sshd.config()),
            new_hosts: NewHosts::AsConfigured,
            elsewhere: None,
        };
        let interrupt = Interrupt::listen().unwrap();
        Guest {
            home,
            ssh,
            key,
            interrupt,
            events: Vec::new(),
        }
    }

    fn key_file(&self) -> PathBuf {
        self.home.path().join(".ssh/id_ed25519")
    }

    fn surroundings(&self) -> Surroundings {
        Surroundings {
            home: self.home.path().to_owned(),
            sockets: self.home.path().to_owned(),
            can_ask: false,
        }
    }

    async fn login(&mut self) -> Result<Control, Error> {
        let surroundings = self.surroundings();
        let settings = self.ssh.settings(&mut self.interrupt).await?;
        let mut login = Login {
            ssh: &self.ssh,
            settings: &settings,
            surroundings: &surroundings,
            interrupt: &mut self.interrupt,
            tell: &mut |event| self.events.push(event),
        };
        login.session().await
    }

    async fn copy_only(&mut self) -> Result<(), Error> {
        let surroundings = self.surroundings();
        let settings = self.ssh.settings(&mut self.interrupt).await?;
        let mut login = Login {
            ssh: &self.ssh,
            settings: &settings,
            surroundings: &surroundings,
            interrupt: &mut self.interrupt,
            tell: &mut |event| self.events.push(event),
        };
        login.copy_only().await
    }

    async fn trouble(&mut self) -> (KnownError, String) {
        match self.login().await {
            Err(Error::KnownError(trouble)) => {
                let settings = llmsrv_ssh::Settings::of(&self.ssh);
                let fixes = trouble.fixes(&self.ssh, &settings).join("\n");
                (trouble, fixes)
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("the login works"),
        }
    }

    async fn checks(&mut self) -> Vec<Check> {
        let mut checks = Vec::new();
        let surroundings = self.surroundings();
        doctor::examine(
            &self.ssh,
            &surroundings,
            &mut self.interrupt,
            &mut |check| {
                checks.push(check);
            },
        )
        .await
        .unwrap();
        checks
    }
}

#[tokio::test]
async fn keys_open_the_door_and_nothing_is_left_behind() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    let mut control = guest.login().await.unwrap();
    assert_eq!(guest.events, [], "nothing was needed");
    assert!(control.path().exists());
    assert_eq!(mode(control.path()) & 0o077, 0);
    // It lives longer than a connection nobody uses, as long as we do.
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(7), control.closed());
    assert!(waiting.await.is_err(), "the connection has ended");
    let socket = control.path().to_owned();
    drop(control);
    for _ in 0..100 {
        if !socket.exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(!socket.exists());
    let left: Vec<_> = fs::read_dir(guest.home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".ssh"]);
}

#[tokio::test]
async fn an_alias_of_the_settings_is_a_host() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    guest.ssh.destination = "alias".parse().unwrap();
    guest.ssh.port = None;
    let settings = guest.ssh.settings(&mut guest.interrupt).await.unwrap();
    assert_eq!(
        (settings.port, settings.user.as_str()),
        (sshd.port, sshd.user.as_str())
    );
    guest.login().await.unwrap();
}

#[tokio::test]
#[ignore = "needs root: `tests/run` runs it"]
async fn a_key_is_installed_once_over_a_connection() {
    let sshd = Sshd::with_user("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    let control = guest.login().await.unwrap();
    let file = tempfile::tempdir().unwrap();
    let other = Identity::choose(None, &llmsrv_ssh::Settings::default(), file.path());
    let line = other.ensure("it's \"me\" $HOME").unwrap().line;
    chmod(&sshd.home().join(".ssh"), 0o755);
    for is_new in [true, false] {
        let installed = install(&control, &line, &mut guest.interrupt)
            .await
            .unwrap();
        assert_eq!((installed.is_new, installed.is_home_open), (is_new, false));
    }
    let text = fs::read_to_string(sshd.authorized_keys()).unwrap();
    assert_eq!(text, format!("{}\n{line}\n", guest.key));
    assert_eq!(mode(&sshd.authorized_keys()), 0o600);
    assert_eq!(mode(&sshd.home().join(".ssh")), 0o700);

    // What stands in the way is told in the host's words.
    fs::remove_file(sshd.authorized_keys()).unwrap();
    fs::create_dir(sshd.authorized_keys()).unwrap();
    let error = install(&control, &line, &mut guest.interrupt)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("irectory"), "{error}");
}

#[tokio::test]
#[ignore = "needs root: `tests/run` runs it"]
async fn copying_a_key_uses_the_one_that_works() {
    let sshd = Sshd::with_user("");
    let mut guest = Guest::of(&sshd);
    let old = guest.home.path().join("old");
    run(
        "ssh-keygen",
        &["-q", "-t", "ed25519", "-N", "", "-f", old.to_str().unwrap()],
    );
    sshd.authorize(&fs::read_to_string(old.with_extension("pub")).unwrap());
    // The settings offer both; the one to copy is in the usual place.
    let mut config = fs::read_to_string(sshd.config()).unwrap();
    config = format!(
        "IdentityFile {0}\nIdentityFile {1}\n{config}",
        guest.key_file().display(),
        old.display()
    );
    fs::write(sshd.config(), config).unwrap();
    guest.copy_only().await.unwrap();
    assert!(
        matches!(guest.events[1], Event::Copied(installed) if installed.is_new),
        "{:?}",
        guest.events
    );
    guest.events.clear();
    guest.copy_only().await.unwrap();
    assert_eq!(guest.events[1..], [Event::Works]);
    let text = fs::read_to_string(sshd.authorized_keys()).unwrap();
    assert_eq!(text.matches(&guest.key).count(), 1);
}

#[tokio::test]
async fn unknown_hosts_are_refused_unless_they_shall_be_accepted() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    fs::remove_file(sshd.known_hosts()).unwrap();
    let (trouble, fixes) = guest.trouble().await;
    let KnownError::HostKeyUnknown {
        fingerprint: Some(fingerprint),
    } = trouble
    else {
        panic!("{trouble}")
    };
    assert!(
        fingerprint.starts_with("ssh-ed25519 SHA256:"),
        "{fingerprint}"
    );
    assert!(fixes.contains("--accept-new"), "{fixes}");
    assert!(!sshd.known_hosts().exists());
    guest.ssh.new_hosts = NewHosts::Accept;
    guest.login().await.unwrap();
    assert!(
        fs::read_to_string(sshd.known_hosts())
            .unwrap()
            .contains("ssh-ed25519")
    );
}

#[tokio::test]
async fn a_changed_host_key_stops_everything_until_it_is_removed_by_hand() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    sshd.introduce_wrongly();
    let before = fs::read_to_string(sshd.known_hosts()).unwrap();
    // Accepting new hosts is not accepting changed ones.
    guest.ssh.new_hosts = NewHosts::Accept;
    let (trouble, fixes) = guest.trouble().await;
    assert!(
        matches!(&trouble, KnownError::HostKeyChanged { known_in: Some(file), .. } if *file == sshd.known_hosts()),
        "{trouble:?}"
    );
    assert_eq!(fs::read_to_string(sshd.known_hosts()).unwrap(), before);
    let line = fixes.split("forget the old one: ").nth(1).unwrap();
    assert!(
        line.contains(&format!("-R '[127.0.0.1]:{}'", sshd.port)),
        "{line}"
    );
    run("sh", &["-c", &format!("{line} >/dev/null 2>&1")]);
    guest.login().await.unwrap();
}

#[tokio::test]
async fn hosts_that_are_not_there_are_told_apart() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    guest.ssh.port = Some(free);
    let (trouble, fixes) = guest.trouble().await;
    assert_eq!(trouble, KnownError::Refused);
    assert!(fixes.contains("-p PORT"), "{fixes}");

    guest.ssh.destination = "ann@no-such-host.invalid".parse().unwrap();
    let (trouble, fixes) = guest.trouble().await;
    assert_eq!(trouble, KnownError::UnknownName);
    assert!(
        fixes.contains("getent hosts no-such-host.invalid"),
        "{fixes}"
    );

    // Something that listens and says nothing of ssh.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    guest.ssh.destination = sshd.destination().parse().unwrap();
    guest.ssh.port = Some(other.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in other.incoming().take(1) {
            drop(stream);
        }
    });
    assert_eq!(guest.trouble().await.0, KnownError::Closed);

    fs::write(sshd.config(), "Hsot x\n").unwrap();
    let (trouble, _) = guest.trouble().await;
    assert!(matches!(trouble, KnownError::BadConfig(_)), "{trouble:?}");
}

#[tokio::test]
async fn refusals_say_what_the_host_wants() {
    let sshd = Sshd::start("PasswordAuthentication no\nKbdInteractiveAuthentication no");
    let mut guest = Guest::of(&sshd);
    let error = guest.login().await.err().unwrap();
    let Error::OnlyKeys { public } = &error else {
        panic!("{error}")
    };
    assert_eq!(*public, guest.key_file().with_extension("pub"));

    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    assert!(matches!(guest.login().await, Err(Error::NoTerminal)));

    let sshd = Sshd::start("PubkeyAuthentication no");
    let mut guest = Guest::of(&sshd);
    let (trouble, fixes) = guest.trouble().await;
    assert!(matches!(trouble, KnownError::Denied { .. }), "{trouble}");
    assert!(fixes.contains("PubkeyAuthentication yes"), "{fixes}");
}

#[tokio::test]
async fn a_key_that_others_may_read_is_told() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    chmod(&guest.key_file(), 0o644);
    let (trouble, fixes) = guest.trouble().await;
    let KnownError::KeyTooOpen { path, .. } = trouble else {
        panic!("{trouble}")
    };
    assert_eq!(path, guest.key_file());
    assert_eq!(fixes, format!("chmod 600 {}", guest.key_file().display()));
}

#[tokio::test]
async fn too_many_keys_end_in_one() {
    let sshd = Sshd::start("MaxAuthTries 2");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    let mut lines = String::new();
    for number in 0..4 {
        let file = guest.home.path().join(format!("k{number}"));
        run(
            "ssh-keygen",
            &[
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                file.to_str().unwrap(),
            ],
        );
        writeln!(lines, "IdentityFile {}", file.display()).unwrap();
    }
    writeln!(lines, "IdentityFile {}", guest.key_file().display()).unwrap();
    let config = fs::read_to_string(sshd.config()).unwrap();
    fs::write(sshd.config(), lines + &config).unwrap();
    // As on a machine whose `~` is this one: ssh finds all of them.
    guest.login().await.unwrap();
    assert_eq!(guest.events, [Event::OneKeyOnly(guest.key_file())]);
}

#[tokio::test]
async fn a_tunnel_reaches_a_port_of_the_host() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let _ = stream.unwrap().write_all(b"hello");
        }
    });
    let control = guest.login().await.unwrap();
    let any = Forward {
        local: None,
        remote,
    };
    // The first ports may be taken; each tunnel takes the next.
    let first = forward::open(&control, any, &mut guest.interrupt)
        .await
        .unwrap();
    let second = forward::open(&control, any, &mut guest.interrupt)
        .await
        .unwrap();
    assert!(second > first);
    for port in [first, second] {
        let mut text = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
    let taken = Forward {
        local: Some(first),
        remote,
    };
    let error = forward::open(&control, taken, &mut guest.interrupt)
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::PortTaken(port) if port == first),
        "{error}"
    );
    drop(control);
    let gone = || TcpStream::connect(("127.0.0.1", first)).is_err();
    for _ in 0..100 {
        if gone() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(gone(), "the tunnel ends with the connection");
}

#[tokio::test]
async fn the_doctor_passes_what_is_well_and_names_what_is_not() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    guest.ssh.identity = Some(guest.key_file());
    let outcome = |checks: &[Check], name: &str| {
        let check = checks.iter().find(|check| check.name == name);
        check.unwrap_or_else(|| panic!("no check {name}")).clone()
    };

    let checks = guest.checks().await;
    assert_eq!(outcome(&checks, "keys allowed").outcome, Outcome::Pass);
    let login = outcome(&checks, "login");
    assert_eq!(login.outcome, Outcome::Fail);
    assert!(login.fixes[0].contains("--copy-id"), "{login:?}");

    sshd.authorize(&guest.key);
    let checks = guest.checks().await;
    for name in [
        "client", "home", ".ssh", "settings", "key", "name", "port", "host key", "login",
    ] {
        assert_eq!(outcome(&checks, name).outcome, Outcome::Pass, "{checks:#?}");
    }

    chmod(guest.home.path(), 0o777);
    chmod(&guest.home.path().join(".ssh"), 0o775);
    chmod(&guest.key_file(), 0o640);
    sshd.introduce_wrongly();
    let checks = guest.checks().await;
    for (name, fix) in [
        ("home", "chmod go-w "),
        (".ssh", "chmod go-w "),
        ("key", "chmod 600 "),
        ("host key", "ssh-keygen -f "),
    ] {
        let check = outcome(&checks, name);
        assert_eq!(check.outcome, Outcome::Fail, "{check:?}");
        assert!(check.fixes.concat().contains(fix), "{check:?}");
    }
    assert_eq!(outcome(&checks, "login").outcome, Outcome::Skip);

    fs::remove_file(sshd.known_hosts()).unwrap();
    guest.ssh.new_hosts = NewHosts::Accept;
    let checks = guest.checks().await;
    assert_eq!(outcome(&checks, "host key").outcome, Outcome::Fail);
    assert!(!sshd.known_hosts().exists(), "the doctor stores nothing");
}

#[tokio::test]
async fn a_plan_touches_nothing() {
    let home = tempfile::tempdir().unwrap();
    let ssh = Ssh {
        destination: "ann@host.invalid".parse().unwrap(),
        port: Some(2222),
        identity: None,
        jump: Some("gate".parse().unwrap()),
        config: None,
        new_hosts: NewHosts::AsConfigured,
        elsewhere: None,
    };
    let surroundings = Surroundings {
        home: home.path().to_owned(),
        sockets: home.path().to_owned(),
        can_ask: false,
    };
    let mut interrupt = Interrupt::listen().unwrap();
    let settings = ssh.settings(&mut interrupt).await.unwrap();
    let session = Session {
        command: vec!["echo".into(), "a  b".into()],
        terminal: false,
    };
    let plan = plan(&ssh, &settings, &surroundings, Some(&session)).unwrap();
    assert!(plan.would_be_made);
    assert_eq!(plan.key, home.path().join(".ssh/id_ed25519"));
    let last = plan.steps.last().unwrap().command.clone().unwrap();
    assert!(last.starts_with("ssh -p 2222 -J gate "), "{last}");
    assert!(
        last.ends_with(r#" -- ann@host.invalid "echo 'a  b'""#),
        "{last}"
    );
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_jump_host_leads_there() {
    let sshd = Sshd::start("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    // ssh hands its settings file on to the jump.
    let config = fs::read_to_string(sshd.config()).unwrap();
    let identity = format!("IdentityFile {}\n", guest.key_file().display());
    fs::write(sshd.config(), identity + &config).unwrap();
    guest.ssh.jump = Some(
        format!("{}@localhost:{}", sshd.user, sshd.port)
            .parse()
            .unwrap(),
    );
    let control = guest.login().await.unwrap();
    assert!(control.path().exists());
    drop(control);

    let refused = format!("nobody@localhost:{}", sshd.port);
    guest.ssh.jump = Some(refused.parse().unwrap());
    let (trouble, fixes) = guest.trouble().await;
    assert_eq!(trouble, KnownError::JumpDenied);
    assert!(
        fixes.contains(&format!("--copy-id -p {} nobody@localhost", sshd.port)),
        "{fixes}"
    );
}

#[tokio::test]
#[ignore = "needs root: `tests/run` runs it"]
async fn a_login_without_a_session_needs_no_shell_there() {
    let sshd = Sshd::with_user("");
    let mut guest = Guest::of(&sshd);
    sshd.authorize(&guest.key);
    run("usermod", &["-s", "/bin/false", &sshd.user]);
    let surroundings = guest.surroundings();
    let settings = guest.ssh.settings(&mut guest.interrupt).await.unwrap();
    let ssh = Ssh {
        identity: Some(guest.key_file()),
        ..guest.ssh.clone()
    };
    let sockets = &surroundings.sockets;
    let control = Control::connect(
        &ssh,
        &settings,
        Way::Batch,
        Purpose::Proof,
        sockets,
        &mut guest.interrupt,
    )
    .await
    .unwrap();
    let error = install(&control, &guest.key, &mut guest.interrupt)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("/bin/sh does not run there"),
        "{error}"
    );
}
