//! The one connection that all steps share: a control master of ssh behind a socket.
//!
//! The master goes on its own once it is logged in, and ends a few seconds after nobody uses it any
//! more, also when this program was killed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, net::UnixStream, process::Command};

use crate::{
    Error, Interrupt, Ssh,
    children::{self, text},
    key::PublicKey,
    known_errors::KnownError,
    ssh::{PROGRAM, Settings},
};

/// How a login may be proved, and who may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With keys and whatever else needs no question.
    Batch,
    /// With keys; on the terminal ssh asks whether an unknown host is right, and for passphrases.
    Keys,
    /// With a password that ssh asks for on the terminal.
    Password,
    /// With all that the host wants.
    Any,
}

impl Way {
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Way::Batch => &["BatchMode=yes"],
            Way::Keys => &[
                "PasswordAuthentication=no",
                "KbdInteractiveAuthentication=no",
            ],
            // Keys that are refused count as attempts, of which hosts allow few.
            Way::Password => &["PubkeyAuthentication=no"],
            Way::Any => &[],
        }
    }

    /// Tells whether what ssh writes is for a person rather than for us.
    fn is_for_a_person(self) -> bool {
        matches!(self, Way::Password | Way::Any)
    }
}

/// What besides the login a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It carries a session: tunnels of the user's settings are opened.
    Session,
    /// It only proves that the login works.
    Proof,
}

/// A connection that is logged in. Ends when dropped.
pub struct Control {
    path: PathBuf,
    /// Keeps the master from ending while it has no session.
    guard: Option<UnixStream>,
    is_left_open: bool,
    /// Fingerprint of the key that opened the door, if one did.
    accepted: Option<String>,
}

impl Control {
    /// Logs in. `sockets` is the folder for the connection's socket.
    pub async fn connect(
        ssh: &Ssh,
        settings: &Settings,
        way: Way,
        purpose: Purpose,
        sockets: &Path,
        interrupt: &mut Interrupt,
    ) -> Result<Control, Error> {
        let (control, log) =
            Control::attempt(ssh, settings, way, purpose, sockets, interrupt).await?;
        control.ok_or_else(|| match way {
            Way::Password | Way::Any => Error::PasswordRefused,
            Way::Batch | Way::Keys => KnownError::from_log(&log, settings.is_proxied).into(),
        })
    }

    /// Logs in; also returns what ssh said, unless a person read it.
    pub(crate) async fn attempt(
        ssh: &Ssh,
        settings: &Settings,
        way: Way,
        purpose: Purpose,
        sockets: &Path,
        interrupt: &mut Interrupt,
    ) -> Result<(Option<Control>, String), Error> {
        // From here on the socket is removed, whatever happens.
        let mut control = Control {
            path: socket_path(sockets)?,
            guard: None,
            is_left_open: false,
            accepted: None,
        };
        let mut log = tempfile::tempfile().map_err(Error::Temporary)?;
        let mut command = Command::new(PROGRAM);
        command
            .args(master_args(ssh, settings, way, purpose, &control.path))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if way.is_for_a_person() {
            command.stderr(Stdio::inherit());
        } else {
            // A file, not a pipe: the master keeps it open. -v also overrides a quiet LogLevel,
            // without which nobody could say what is wrong.
            let file: File = log.try_clone().map_err(Error::Temporary)?;
            command.arg("-v").stderr(file);
        }
        command.args(["--", &ssh.destination.to_string()]);
        let status = children::status(&mut command, interrupt).await?;
        let log = text(&mut log);
        if !status.success() {
            return Ok((None, log));
        }
        control.accepted = accepted(&log);
        let guard = UnixStream::connect(&control.path).await;
        control.guard = Some(guard.map_err(Error::Lost)?);
        Ok((Some(control), log))
    }

    /// Returns the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells whether it was this key that opened the door: ssh also offers those of the settings.
    pub(crate) fn is_opened_by(&self, key: &PublicKey) -> bool {
        self.accepted.is_some() && self.accepted == key.fingerprint()
    }

    /// Returns the connection for remote steps.
    pub(crate) fn steps(&self) -> openssh::Session {
        openssh::Session::resume(self.path.clone().into_boxed_path(), None)
    }

    /// Waits until the connection ends.
    pub async fn closed(&mut self) {
        let Some(guard) = &mut self.guard else { return };
        let mut greeting = [0; 256];
        while let Ok(1..) = guard.read(&mut greeting).await {}
    }

    /// Lets the connection end by itself, a few seconds after its last session.
    pub(crate) fn leave_open(mut self) {
        self.is_left_open = true;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.is_left_open || !self.path.exists() {
            return;
        }
        // ssh only looks at the socket, the host is of no importance.
        let _ = std::process::Command::new(PROGRAM)
            .args(["-F", "none", "-O", "exit", "-S"])
            .arg(&self.path)
            .arg("none")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// `debug1: Server accepts key: FILE TYPE SHA256:… explicit`; the last one counts.
fn accepted(log: &str) -> Option<String> {
    let (_, line) = log.rsplit_once("Server accepts key: ")?;
    let mut words = line.lines().next()?.split(' ');
    let word = words.rfind(|word| word.starts_with("SHA256:"))?;
    Some(word.trim_end().to_owned())
}

/// Returns the arguments that make a master, without the destination.
pub(crate) fn master_args(
    ssh: &Ssh,
    settings: &Settings,
    way: Way,
    purpose: Purpose,
    socket: &Path,
) -> Vec<std::ffi::OsString> {
    let mut args = ssh.options();
    args.extend(["-M", "-N", "-f", "-S"].map(Into::into));
    args.push(socket.into());
    let mut option = |value: &str| args.extend(["-o".into(), value.into()]);
    option(&format!("ControlPersist={}", LINGER.as_secs()));
    option("RemoteCommand=none");
    if !settings.has_timeout {
        option("ConnectTimeout=10");
    }
    if purpose == Purpose::Proof {
        option("ClearAllForwardings=yes");
        option("PermitLocalCommand=no");
    }
    way.options().iter().copied().for_each(option);
    args
}

/// Returns a name that no file has. Paths of sockets are short: at most 107 bytes, of which ssh needs
/// 17 for a name of its own.
fn socket_path(sockets: &Path) -> Result<PathBuf, Error> {
    let folder = if sockets.as_os_str().len() > 60 {
        Path::new("/tmp")
    } else {
        sockets
    };
    // The name is taken from a folder that exists for a moment only, so it is free and random.
    let dir = tempfile::Builder::new()
        .prefix("llmsrv-ssh-")
        .rand_bytes(12)
        .tempdir_in(folder)
        .map_err(Error::Temporary)?;
    Ok(dir.path().to_owned())
}

/// How long a connection lives without a session: time for ssh to start on a busy machine.
const LINGER: Duration = Duration::from_secs(5);
