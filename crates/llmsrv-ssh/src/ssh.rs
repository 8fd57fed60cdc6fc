//! Where and how to log in, and what the settings of ssh say about it.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use crate::{Destination, Jump};

/// What happens to hosts whose key is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewHosts {
    /// What the user's settings say; by default ssh asks on the terminal.
    AsConfigured,
    /// Their key is stored without a question.
    Accept,
    /// They are refused; nothing is asked or stored.
    Refuse,
}

/// Where and how to log in. Any value is legal but for `destination` and `jump`, which are checked
/// when they are parsed.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The host.
    pub destination: Destination,
    /// Port of the host, if it is not the one of the settings.
    pub port: Option<u16>,
    /// The private key to use; besides it ssh only offers those of the settings.
    pub identity: Option<PathBuf>,
    /// Hosts on the way.
    pub jump: Option<Jump>,
    /// Settings of ssh to read instead of the user's.
    pub config: Option<PathBuf>,
    /// Hosts whose key is not known.
    pub new_hosts: NewHosts,
    /// A key to offer that is not where ssh looks: ssh takes the home directory from the list of
    /// users, not from `HOME`.
    pub elsewhere: Option<PathBuf>,
}

impl Ssh {
    /// Returns the options of every call.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        let mut pair = |option: &str, value: &OsStr| {
            options.extend([OsString::from(option), value.to_owned()]);
        };
        if let Some(config) = &self.config {
            pair("-F", config.as_os_str());
        }
        if let Some(port) = self.port {
            pair("-p", OsStr::new(&port.to_string()));
        }
        if let Some(jump) = &self.jump {
            pair("-J", OsStr::new(jump.as_str()));
        }
        if let Some(identity) = &self.identity {
            pair("-i", &escaped(identity));
            pair("-o", OsStr::new("IdentitiesOnly=yes"));
        } else if let Some(identity) = &self.elsewhere {
            pair("-i", &escaped(identity));
        }
        let new_hosts: &[&str] = match self.new_hosts {
            NewHosts::AsConfigured => &[],
            NewHosts::Accept => &["StrictHostKeyChecking=accept-new"],
            NewHosts::Refuse => &["StrictHostKeyChecking=yes", "UpdateHostKeys=no"],
        };
        for option in new_hosts {
            pair("-o", OsStr::new(option));
        }
        options
    }

    /// Returns the same login with one key and no other.
    pub(crate) fn with_only(&self, identity: &Path) -> Ssh {
        Ssh {
            identity: Some(identity.to_owned()),
            ..self.clone()
        }
    }
}

/// What ssh's settings say about a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name or address that is connected to.
    pub hostname: String,
    /// The user there.
    pub user: String,
    /// The port there.
    pub port: u16,
    /// The name under which the host's key is known, if it is another one.
    pub host_key_alias: Option<String>,
    /// Private keys in the order in which they are tried, as written: `~` is the home directory.
    pub identity_files: Vec<String>,
    /// Whether a jump host or a proxy command leads there.
    pub is_proxied: bool,
    /// Whether the settings say how long a connection may take.
    pub has_timeout: bool,
}

impl Settings {
    /// Returns what is known without asking ssh.
    pub fn of(ssh: &Ssh) -> Settings {
        Settings {
            hostname: ssh.destination.host().to_owned(),
            user: ssh.destination.user().unwrap_or_default().to_owned(),
            port: ssh.port.unwrap_or(22),
            ..Settings::default()
        }
    }

    pub(crate) fn parse(text: &str) -> Settings {
        let mut settings = Settings::default();
        for line in text.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            let set = value != "none";
            match key {
                "hostname" => value.clone_into(&mut settings.hostname),
                "user" => value.clone_into(&mut settings.user),
                "port" => settings.port = value.parse().unwrap_or(22),
                "hostkeyalias" if set => settings.host_key_alias = Some(value.to_owned()),
                "identityfile" => settings.identity_files.push(value.to_owned()),
                "proxyjump" | "proxycommand" => settings.is_proxied |= set,
                "connecttimeout" => settings.has_timeout = set,
                _ => {}
            }
        }
        settings
    }

    /// Returns the name under which ssh knows the host's key.
    pub fn known_as(&self) -> String {
        let name = self.host_key_alias.as_ref().unwrap_or(&self.hostname);
        match self.port {
            _ if self.host_key_alias.is_some() => name.clone(),
            22 => name.clone(),
            port => format!("[{name}]:{port}"),
        }
    }
}

/// Writes a path so that ssh does not expand the `%` in it.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        escaped.extend(std::iter::repeat_n(
            *byte,
            if *byte == b'%' { 2 } else { 1 },
        ));
    }
    OsString::from_vec(escaped)
}

/// Found through `PATH`.
pub(crate) const PROGRAM: &str = "ssh";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_name_the_known_host() {
        let text = "user ann\nhostname ::1\nport 2222\nidentityfile ~/.ssh/a\nproxyjump none\n\
            connecttimeout none\nidentityfile ~/.ssh/b\nproxycommand nc %h %p\n";
        let mut settings = Settings::parse(text);
        assert_eq!((settings.user.as_str(), settings.port), ("ann", 2222));
        assert_eq!(settings.identity_files, ["~/.ssh/a", "~/.ssh/b"]);
        assert!(settings.is_proxied && !settings.has_timeout);
        assert_eq!(settings.known_as(), "[::1]:2222");
        settings.port = 22;
        assert_eq!(settings.known_as(), "::1");
    }

    #[test]
    fn percent_signs_in_paths_are_not_expanded() {
        assert_eq!(escaped(Path::new("/k%h")), "/k%%h");
    }
}
