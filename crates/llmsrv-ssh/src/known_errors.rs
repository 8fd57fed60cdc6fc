//! What ssh's messages mean, and what to type against each.

use std::path::{Path, PathBuf};

use crate::{Jump, Ssh, ssh::Settings};

/// Why ssh does not connect or log in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KnownError {
    /// DNS does not know the name.
    #[error("the name of the host does not resolve")]
    UnknownName,
    /// Nothing listens there.
    #[error("the host refuses connections at this port")]
    Refused,
    /// No answer.
    #[error("the host does not answer in time")]
    TimedOut,
    /// No way there.
    #[error("no network leads to the host")]
    NoRoute,
    /// The host has another key than before.
    #[error("the key of the host has CHANGED since the last time")]
    HostKeyChanged {
        /// Where the old key is known from.
        known_in: Option<PathBuf>,
        /// The key that the host has now.
        fingerprint: Option<String>,
    },
    /// The host's key was withdrawn.
    #[error("the key of the host is marked as revoked")]
    HostKeyRevoked,
    /// The host's key is not known yet, and nobody said that it is right.
    #[error("the key of the host is not known yet")]
    HostKeyUnknown {
        /// The key that the host has.
        fingerprint: Option<String>,
    },
    /// The login was refused.
    #[error("the host refuses the login (it offers: {})", methods.join(", "))]
    Denied {
        /// What the host would take, in its own words.
        methods: Vec<String>,
    },
    /// The agent has so many keys that the host gave up before the right one.
    #[error("the host gave up: ssh offered it too many keys")]
    TooManyKeys,
    /// A host on the way refused the login.
    #[error("a jump host refuses the login")]
    JumpDenied,
    /// Others may read the private key, so ssh does not use it.
    #[error("others may read the private key {path}, so ssh does not use it")]
    KeyTooOpen {
        /// The private key.
        path: PathBuf,
        /// What the host would take instead.
        methods: Vec<String>,
    },
    /// Others may change a file of the settings.
    #[error("{0} belongs to somebody else, or others may change it")]
    ConfigTooOpen(PathBuf),
    /// The settings cannot be read.
    #[error("the settings of ssh have a mistake: {0}")]
    BadConfig(String),
    /// Nothing that both sides know.
    #[error("ssh and the host have no method in common: {0}")]
    NothingInCommon(String),
    /// The connection was cut before the login.
    #[error("the host closed the connection before the login")]
    Closed,
    /// The user of this process has no entry in the list of users.
    #[error("this user is not in the list of users of this machine")]
    NoSuchUser,
    /// What ssh said last.
    #[error("ssh failed: {0}")]
    Other(String),
}

impl KnownError {
    /// Reads what ssh wrote. Hosts can write there as well, so it only says what to advise.
    pub(crate) fn from_log(log: &str, is_proxied: bool) -> KnownError {
        let has = |needle: &str| log.contains(needle);
        // The first that fits counts: later messages of ssh are consequences.
        if has("HOST IDENTIFICATION HAS CHANGED") {
            return KnownError::HostKeyChanged {
                known_in: between(log, "Offending ", "\n").and_then(offending_file),
                fingerprint: fingerprint(log),
            };
        }
        if has("REVOKED HOST KEY") {
            return KnownError::HostKeyRevoked;
        }
        if has("Host key verification failed") {
            return KnownError::HostKeyUnknown {
                fingerprint: fingerprint(log),
            };
        }
        if has("Bad configuration option") || has("terminating, ") {
            return KnownError::BadConfig(first_message(log));
        }
        if let Some(path) = between(log, "Bad owner or permissions on ", "\n") {
            return KnownError::ConfigTooOpen(path.trim().into());
        }
        if has("Could not resolve hostname") {
            return KnownError::UnknownName;
        }
        if has("Too many authentication failures") {
            return KnownError::TooManyKeys;
        }
        if let Some(methods) = between(log, "Permission denied (", ")") {
            if is_proxied && has("UNKNOWN port 65535") {
                return KnownError::JumpDenied;
            }
            let methods = methods.split(',').map(str::to_owned).collect();
            let too_open = between(log, "Permissions 0", " are too open")
                .and_then(|rest| between(rest, "for '", "'"));
            return match too_open {
                Some(path) => KnownError::KeyTooOpen {
                    path: path.into(),
                    methods,
                },
                None => KnownError::Denied { methods },
            };
        }
        let others: [(&[&str], KnownError); 6] = [
            (
                &["Unable to negotiate", "no matching "],
                KnownError::NothingInCommon(last_message(log)),
            ),
            (&["timed out", "Timeout, server"], KnownError::TimedOut),
            (&["Connection refused"], KnownError::Refused),
            (
                &["No route to host", "Network is unreachable"],
                KnownError::NoRoute,
            ),
            (
                &[
                    "kex_exchange_identification",
                    "Connection closed by",
                    "Connection reset by",
                ],
                KnownError::Closed,
            ),
            (&["No user exists for uid"], KnownError::NoSuchUser),
        ];
        for (needles, trouble) in others {
            if needles.iter().any(|needle| has(needle)) {
                return trouble;
            }
        }
        KnownError::Other(last_message(log))
    }

    /// Returns what may help, a line each, with the commands to type.
    pub fn fixes(&self, ssh: &Ssh, settings: &Settings) -> Vec<String> {
        let (host, port) = (quoted(&settings.hostname), settings.port);
        let destination = &ssh.destination;
        let known_as = quoted(&settings.known_as());
        let lines = |lines: &[String]| lines.to_vec();
        match self {
            KnownError::UnknownName => lines(&[
                format!("look it up: getent hosts {host}"),
                "is the name spelt right, or an alias missing in ~/.ssh/config?".into(),
            ]),
            KnownError::Refused => lines(&[
                format!("is {port} the port of ssh there? Name another with -p PORT"),
                "on the host, as root: systemctl enable --now ssh".into(),
            ]),
            KnownError::TimedOut => lines(&[
                format!("does it run, and does a firewall drop port {port}? ping {host}"),
                format!("reach it through another host: llmsrv ssh -J USER@GATEWAY {destination}"),
            ]),
            KnownError::NoRoute => lines(&["does this machine have a network? ip route".into()]),
            KnownError::HostKeyChanged {
                known_in,
                fingerprint,
            } => {
                let file = known_in.as_ref().map_or_else(String::new, |file| {
                    format!(" -f {}", quoted(&file.to_string_lossy()))
                });
                let now = fingerprint.as_deref().unwrap_or("not told by ssh");
                lines(&[
                    "somebody may listen in: ask who runs the host whether its key is new".into(),
                    format!("its key is now {now}"),
                    format!(
                        "only if that is right, forget the old one: ssh-keygen{file} -R {known_as}"
                    ),
                ])
            }
            KnownError::HostKeyRevoked => lines(&["do not connect; ask who runs the host".into()]),
            KnownError::HostKeyUnknown { fingerprint } => {
                let now = match fingerprint {
                    Some(fingerprint) => format!("its key is {fingerprint}"),
                    None => format!("see its key: ssh-keyscan -p {port} {host} | ssh-keygen -lf -"),
                };
                lines(&[
                    now,
                    format!("if that is right: llmsrv ssh --accept-new {destination}"),
                ])
            }
            KnownError::Denied { methods } => denied(methods, ssh, settings),
            KnownError::TooManyKeys => lines(&[
                "see what the agent has: ssh-add -l".into(),
                format!("offer one key only: llmsrv ssh -i ~/.ssh/id_ed25519 {destination}"),
                "or empty the agent: ssh-add -D".into(),
            ]),
            KnownError::JumpDenied => {
                let (hop, port) = ssh.jump.as_ref().map_or(("JUMP", None), Jump::first);
                let port = port.map_or_else(String::new, |port| format!("-p {port} "));
                lines(&[format!(
                    "copy the key there first: llmsrv ssh --copy-id {port}{hop}"
                )])
            }
            KnownError::KeyTooOpen { path, .. } => {
                lines(&[format!("chmod 600 {}", quoted(&path.to_string_lossy()))])
            }
            KnownError::ConfigTooOpen(path) => lines(&[format!(
                "chmod go-w {0}; ls -l {0} shows whose it is",
                quoted(&path.to_string_lossy())
            )]),
            KnownError::BadConfig(_) => {
                lines(&[format!("see what ssh reads: ssh -G {destination}")])
            }
            KnownError::NothingInCommon(_) => lines(&[format!(
                "the host is very old or very strict; details: ssh -vv -p {port} {destination}"
            )]),
            KnownError::Closed => lines(&[
                format!("is it ssh that listens at port {port}? ssh-keyscan -p {port} {host}"),
                "hosts also do so after many failed logins: wait a few minutes".into(),
            ]),
            KnownError::NoSuchUser => lines(&["run it as a user that `id` knows".into()]),
            KnownError::Other(_) => {
                lines(&[format!("more details: ssh -vv -p {port} {destination}")])
            }
        }
    }
}

/// What helps who was refused.
fn denied(methods: &[String], ssh: &Ssh, settings: &Settings) -> Vec<String> {
    let mut lines = vec![format!(
        "is {} the right user there? llmsrv ssh NAME@{}",
        settings.user,
        ssh.destination.host()
    )];
    if !methods.iter().any(|method| method == "publickey") {
        lines.push(
            "the host takes no keys; there, as root: PubkeyAuthentication yes in \
             /etc/ssh/sshd_config, then systemctl reload ssh"
                .into(),
        );
    }
    lines.push(format!(
        "check each step: llmsrv ssh --doctor {}",
        ssh.destination
    ));
    lines
}

/// Quotes what contains characters of a shell.
pub(crate) fn quoted(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), Into::into)
}

/// `ED25519 key in /home/ann/.ssh/known_hosts:3`
fn offending_file(text: &str) -> Option<PathBuf> {
    let (_, place) = text.split_once(" key in ")?;
    let (file, _line) = place.trim().rsplit_once(':')?;
    Some(Path::new(file).to_owned())
}

/// The key that the host showed: `debug1: Server host key: ssh-ed25519 SHA256:…`.
fn fingerprint(log: &str) -> Option<String> {
    between(log, "Server host key: ", "\n").map(|text| text.trim().to_owned())
}

pub(crate) fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = text.split_once(start)?.1;
    Some(rest.split(end).next().unwrap_or(rest))
}

fn messages(log: &str) -> impl DoubleEndedIterator<Item = &str> {
    log.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("debug") && !line.starts_with("OpenSSH_")
    })
}

fn first_message(log: &str) -> String {
    messages(log).next().unwrap_or("no reason given").to_owned()
}

fn last_message(log: &str) -> String {
    messages(log)
        .next_back()
        .unwrap_or("no reason given")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_ssh_are_understood() {
        let denied = |methods: &[&str]| KnownError::Denied {
            methods: methods.iter().map(ToString::to_string).collect(),
        };
        for (log, trouble) in [
            (
                "ssh: Could not resolve hostname nope: Name or service not known",
                KnownError::UnknownName,
            ),
            (
                "ssh: connect to host h port 22: Connection refused",
                KnownError::Refused,
            ),
            (
                "ssh: connect to host h port 22: Connection timed out",
                KnownError::TimedOut,
            ),
            (
                "Connection timed out during banner exchange\nConnection to ::1 port 9 timed out",
                KnownError::TimedOut,
            ),
            (
                "ssh: connect to host h port 22: No route to host",
                KnownError::NoRoute,
            ),
            (
                "a@h: Permission denied (publickey,password).",
                denied(&["publickey", "password"]),
            ),
            (
                "Received disconnect from ::1 port 22:2: Too many authentication failures",
                KnownError::TooManyKeys,
            ),
            (
                "@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nPermissions 0644 for '/k y' are too open.\n\
                 a@h: Permission denied (publickey).",
                KnownError::KeyTooOpen {
                    path: "/k y".into(),
                    methods: vec!["publickey".into()],
                },
            ),
            (
                "Bad owner or permissions on /h/.ssh/config",
                KnownError::ConfigTooOpen("/h/.ssh/config".into()),
            ),
            (
                "debug1: x\n/h/config: line 3: Bad configuration option: hsot\n/h/config: terminating, 1 bad",
                KnownError::BadConfig("/h/config: line 3: Bad configuration option: hsot".into()),
            ),
            (
                "debug1: Server host key: ssh-ed25519 SHA256:abc\nNo ED25519 host key is known for h and you \
                 have requested strict checking.\nHost key verification failed.",
                KnownError::HostKeyUnknown {
                    fingerprint: Some("ssh-ed25519 SHA256:abc".into()),
                },
            ),
            (
                "debug1: Server host key: ssh-ed25519 SHA256:new\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n\
                 Offending ED25519 key in /h/.ssh/known:hosts:3\nHost key verification failed.",
                KnownError::HostKeyChanged {
                    known_in: Some("/h/.ssh/known:hosts".into()),
                    fingerprint: Some("ssh-ed25519 SHA256:new".into()),
                },
            ),
            (
                "kex_exchange_identification: Connection closed by remote host",
                KnownError::Closed,
            ),
            (
                "Unable to negotiate with ::1 port 1: no matching cipher found.",
                KnownError::NothingInCommon(
                    "Unable to negotiate with ::1 port 1: no matching cipher found.".into(),
                ),
            ),
            ("", KnownError::Other("no reason given".into())),
            (
                "debug1: a\nsomething new\n",
                KnownError::Other("something new".into()),
            ),
        ] {
            assert_eq!(KnownError::from_log(log, false), trouble, "{log}");
        }
        let jump = "a@gate: Permission denied (publickey).\nkex_exchange_identification: x\n\
            Connection closed by UNKNOWN port 65535";
        assert_eq!(KnownError::from_log(jump, true), KnownError::JumpDenied);
    }
}
