//! What can go wrong.

use std::{io, path::PathBuf};

use crate::{
    Ssh,
    key::KeyError,
    known_errors::{KnownError, quoted},
    ssh::Settings,
};

/// Why a login, or a step of it, did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not installed.
    #[error("the program `{0}` is not installed")]
    NoClient(String),
    /// The program could not be run.
    #[error("cannot run `{program}`")]
    Run {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// ssh says why it cannot connect or log in.
    #[error(transparent)]
    KnownError(#[from] KnownError),
    /// Something about the key's files.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The host wants a password, and nobody can be asked for one.
    #[error("the host refuses the keys, and there is no terminal to ask for the password")]
    NoTerminal,
    /// The host takes no passwords, so the key cannot be copied.
    #[error("the host refuses the keys and takes no password, so the key cannot be copied")]
    OnlyKeys {
        /// The file to be given to an administrator.
        public: PathBuf,
    },
    /// The password was refused, too.
    #[error("the host refuses the password")]
    PasswordRefused,
    /// The key was copied, and the host does not take it.
    #[error("the key is installed, but the host still refuses it")]
    StillRefused,
    /// The host could not append the key.
    #[error("the host did not take the key: {0}")]
    NotInstalled(String),
    /// The connection ended while a step was done.
    #[error("the connection ended")]
    Lost(#[source] io::Error),
    /// The local port of a tunnel is taken.
    #[error("port {0} of this machine is taken")]
    PortTaken(u16),
    /// ssh did not open the tunnel.
    #[error("ssh does not open the tunnel: {0}")]
    NoTunnel(String),
    /// A temporary file could not be made.
    #[error("cannot make a temporary file")]
    Temporary(#[source] io::Error),
    /// A word of the remote command cannot be sent.
    #[error("the command has a NUL character")]
    NulInCommand,
    /// A signal asked for the end.
    #[error("ended by signal {0}")]
    Interrupted(i32),
}

impl Error {
    /// Returns what may help, a line each, with the commands to type.
    pub fn fixes(&self, ssh: &Ssh, settings: &Settings) -> Vec<String> {
        let destination = &ssh.destination;
        match self {
            Error::KnownError(trouble) => trouble.fixes(ssh, settings),
            Error::Key(error) => error.fixes(),
            Error::NoClient(_) => {
                vec!["install it: apt install openssh-client (dnf, pacman, apk: openssh)".into()]
            }
            Error::NoTerminal => vec![format!(
                "once, in a terminal: llmsrv ssh --copy-id {destination}"
            )],
            Error::OnlyKeys { public } => vec![
                format!(
                    "give this to who runs the host: cat {}",
                    quoted(&public.to_string_lossy())
                ),
                format!("or use a key that it takes: llmsrv ssh -i FILE {destination}"),
                format!("or is {} the wrong user there?", settings.user),
            ],
            Error::PasswordRefused => vec![
                format!(
                    "is {} the right user there? llmsrv ssh NAME@{}",
                    settings.user,
                    destination.host()
                ),
                "hosts often refuse the password of root: log in as another user".into(),
            ],
            Error::StillRefused => vec![
                "there: chmod go-w ~ && chmod 700 ~/.ssh && chmod 600 ~/.ssh/authorized_keys"
                    .into(),
                "does sshd read that file? There, as root: sshd -T | grep -i authorizedkeysfile"
                    .into(),
                "what sshd says, there, as root: journalctl -u ssh -n 20".into(),
            ],
            Error::NotInstalled(_) => vec![format!(
                "see what is there: ssh {destination} 'ls -ld ~ ~/.ssh ~/.ssh/authorized_keys; df ~'"
            )],
            Error::PortTaken(_) => vec!["take any that is free: --forward without a port".into()],
            Error::NoTunnel(_) => vec![
                "does the host allow it? There, as root: sshd -T | grep -i allowtcpforwarding"
                    .into(),
            ],
            Error::Run { .. }
            | Error::Lost(_)
            | Error::Temporary(_)
            | Error::NulInCommand
            | Error::Interrupted(_) => Vec::new(),
        }
    }
}
