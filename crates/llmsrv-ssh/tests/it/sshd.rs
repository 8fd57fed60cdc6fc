//! A real sshd on loopback, with a user of its own; both are gone when it is dropped.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::signals;

/// A host to log in to.
pub struct Sshd {
    dir: tempfile::TempDir,
    child: Child,
    pub port: u16,
    pub user: String,
    /// Whether the user was made for the test; else it is the one who runs the tests, who has no
    /// password and whose home is not touched.
    pub has_own_user: bool,
}

pub const PASSWORD: &str = "correct horse";

impl Sshd {
    /// Starts one with more lines for its settings.
    pub fn start(settings: &str) -> Sshd {
        let program = "/usr/sbin/sshd";
        assert!(
            Path::new(program).exists(),
            "{program} is missing; `tests/run` installs it"
        );
        signals::reset();
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o755);
        let is_root = run("id", &["-u"]).trim() == "0";
        let user = if is_root {
            fs::create_dir_all("/run/sshd").unwrap();
            add_user(&dir.path().join("home"))
        } else {
            run("id", &["-un"]).trim().to_owned()
        };
        let key = dir.path().join("host_key");
        run(
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()],
        );
        let authorized = if is_root {
            ".ssh/authorized_keys".to_owned()
        } else {
            dir.path().join("authorized_keys").display().to_string()
        };
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let text = format!(
            "{settings}\nListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {authorized}\nStrictModes {}\nMaxStartups 100\n",
            key.display(),
            if is_root { "yes" } else { "no" },
        );
        fs::write(dir.path().join("sshd_config"), text).unwrap();
        fs::write(
            dir.path().join("config"),
            format!(
                "Host *\n UserKnownHostsFile {0}/known_hosts\n GlobalKnownHostsFile /dev/null\n IdentityAgent none\n\
                 Host alias\n HostName 127.0.0.1\n Port {port}\n User {user}\n",
                dir.path().display(),
            ),
        )
        .unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["-D", "-e", "-f"])
            .arg(dir.path().join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let sshd = Sshd {
            dir,
            child,
            port,
            user,
            has_own_user: is_root,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                Instant::now() < deadline,
                "sshd does not start: {}",
                sshd.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    /// One whose user may be changed, with a password; only root can make it.
    pub fn with_user(settings: &str) -> Sshd {
        let sshd = Sshd::start(settings);
        assert!(sshd.has_own_user, "only root can make a user");
        sshd
    }

    /// Settings for ssh, so that nothing of the user's is read or written; `alias` leads here.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.dir.path().join("known_hosts")
    }

    /// `user@127.0.0.1`
    pub fn destination(&self) -> String {
        format!("{}@127.0.0.1", self.user)
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn authorized_keys(&self) -> PathBuf {
        if self.has_own_user {
            self.home().join(".ssh/authorized_keys")
        } else {
            self.dir.path().join("authorized_keys")
        }
    }

    /// Lets a public key in.
    pub fn authorize(&self, line: &str) {
        let file = self.authorized_keys();
        let folder = file.parent().unwrap();
        fs::create_dir_all(folder).unwrap();
        fs::write(&file, format!("{line}\n")).unwrap();
        if self.has_own_user {
            run("chown", &["-R", &self.user, folder.to_str().unwrap()]);
            chmod(folder, 0o700);
            chmod(&file, 0o600);
        }
    }

    /// Makes the host's key known.
    pub fn introduce(&self) {
        let key = fs::read_to_string(self.dir.path().join("host_key.pub")).unwrap();
        let port = self.port;
        let line = format!("[127.0.0.1]:{port},[localhost]:{port} {key}");
        fs::write(self.known_hosts(), line).unwrap();
    }

    /// Makes another key known as the host's.
    pub fn introduce_wrongly(&self) {
        let other = self.dir.path().join("other");
        run(
            "ssh-keygen",
            &[
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-f",
                other.to_str().unwrap(),
            ],
        );
        let key = fs::read_to_string(other.with_extension("pub")).unwrap();
        let line = format!("[127.0.0.1]:{} {key}", self.port);
        fs::write(self.known_hosts(), line).unwrap();
    }

    /// What sshd has written.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("[sshd] {}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.has_own_user {
            let _ = Command::new("userdel").args(["-f", &self.user]).output();
        }
    }
}

/// Makes a user with a password; returns the name.
pub fn add_user(home: &Path) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("llmsrvt{}x{number}", std::process::id());
    // One at a time: the list of users has a lock that does not wait long.
    let lock = File::create("/tmp/llmsrv-test-users.lock").unwrap();
    lock.lock().unwrap();
    run(
        "useradd",
        &[
            "-m",
            "-k",
            "/dev/null",
            "-d",
            home.to_str().unwrap(),
            "-s",
            "/bin/bash",
            &name,
        ],
    );
    run(
        "sh",
        &["-c", &format!("echo '{name}:{PASSWORD}' | chpasswd")],
    );
    chmod(home, 0o755);
    name
}

#[track_caller]
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
