//! The unit of the service: one text, `packaging/systemd/llmsrv-network.service`, of which lines are
//! replaced by what the installation is told.

use std::path::{Path, PathBuf};

pub use crate::systemd::NAME;
use crate::systemd::Scope;

/// The unit as packages install it.
pub const TEMPLATE: &str = include_str!("../../../packaging/systemd/llmsrv-network.service");

/// Account of the service where no other is named.
pub const ACCOUNT: &str = "llmsrv";

/// What an installation is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose manager starts it.
    pub scope: Scope,
    /// The program.
    pub binary: PathBuf,
    /// Account, and its group; of no meaning to the manager of a user.
    pub account: (String, String),
    /// Groups besides, which own the devices.
    pub groups: Vec<String>,
    /// Address to listen on, as `LLMSRV_HOST` takes it.
    pub address: Option<Listen>,
    /// Folder of the models.
    pub models: Option<PathBuf>,
}

/// Where the service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// As `LLMSRV_HOST` takes it.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// Web pages of every origin may call it.
    pub every_origin: bool,
}

impl Listen {
    /// Tells whether only this machine reaches it.
    pub fn is_loopback(&self) -> bool {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    }
}

/// Why there is no unit for these options.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A path which units cannot hold.
    #[error(
        "{0:?} cannot be written into a unit: use a path without quotes, backslashes, colons and control characters"
    )]
    Unwritable(PathBuf),
    /// A path the service could not see.
    #[error("the service has a folder of its own in place of {folder}: it does not see {path}", path = .path.display())]
    Hidden {
        /// What was asked for.
        path: PathBuf,
        /// What it is in.
        folder: &'static str,
    },
    /// A path that begins nowhere.
    #[error("{0:?} is not an absolute path")]
    Relative(PathBuf),
}

impl Options {
    /// What packages are made with.
    pub fn packaged() -> Options {
        Options {
            scope: Scope::System,
            binary: "/usr/bin/llmsrv".into(),
            account: (ACCOUNT.to_owned(), ACCOUNT.to_owned()),
            groups: DEVICE_GROUPS.map(str::to_owned).to_vec(),
            address: None,
            models: None,
        }
    }

    /// Returns the text of the unit.
    pub fn text(&self) -> Result<String, Error> {
        for path in std::iter::once(&self.binary).chain(&self.models) {
            check(path, self.scope)?;
        }
        let mut unit = Text::of(TEMPLATE);
        unit.set("ExecStart", &[format!("{} serve", word(&self.binary))]);
        if let Some(listen) = &self.address {
            unit.add(
                "EnvironmentFile",
                format!("Environment=LLMSRV_HOST={}", listen.address),
            );
            if listen.every_origin {
                unit.add("EnvironmentFile", "Environment=LLMSRV_ORIGINS=*".to_owned());
            }
        }
        match self.scope {
            Scope::System => self.of_the_machine(&mut unit),
            Scope::User => {
                for key in NOT_FOR_USERS {
                    unit.set(key, &[]);
                }
                if let Some(models) = &self.models {
                    let models = quoted(&format!("LLMSRV_MODELS={}", escaped(models)));
                    unit.add("EnvironmentFile", format!("Environment={models}"));
                }
                unit.set("WantedBy", &["default.target".to_owned()]);
            }
        }
        Ok(unit.text())
    }

    fn of_the_machine(&self, unit: &mut Text) {
        let (user, group) = &self.account;
        unit.set("User", std::slice::from_ref(user));
        unit.set("Group", std::slice::from_ref(group));
        let groups = self.groups.join(" ");
        unit.set(
            "SupplementaryGroups",
            if groups.is_empty() {
                &[]
            } else {
                std::slice::from_ref(&groups)
            },
        );
        if self
            .address
            .as_ref()
            .is_some_and(|listen| listen.port < 1024)
        {
            for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
                unit.set(key, &["CAP_NET_BIND_SERVICE".to_owned()]);
            }
        }
        // Homes are not there for the service, except what it needs of them.
        let mut hidden = Vec::new();
        if in_home(&self.binary) {
            hidden.push(format!("BindReadOnlyPaths={}", bound(&self.binary)));
        }
        if let Some(models) = &self.models {
            let variable = quoted(&format!("LLMSRV_MODELS={}", escaped(models)));
            unit.set("Environment=LLMSRV_MODELS", &[variable]);
            if in_home(models) {
                hidden.push(format!("BindPaths={}", bound(models)));
            } else {
                unit.add("PrivateTmp", format!("ReadWritePaths={}", bound(models)));
            }
        }
        if !hidden.is_empty() {
            unit.set("ProtectHome", &["tmpfs".to_owned()]);
            for line in hidden {
                unit.add("PrivateTmp", line);
            }
        }
    }
}

/// Groups that own graphics cards and accelerators.
pub const DEVICE_GROUPS: [&str; 2] = ["video", "render"];

/// What the manager of a user refuses or cannot do: it may neither change accounts nor open devices
/// to somebody, and has no targets of the network. Folders are those of the user.
const NOT_FOR_USERS: &[&str] = &[
    "After",
    "Wants",
    "User",
    "Group",
    "SupplementaryGroups",
    "WorkingDirectory",
    "StateDirectory",
    "RuntimeDirectory",
    "ConfigurationDirectory",
    "Environment=HOME",
    "Environment=LLMSRV_MODELS",
    "Environment=LLMSRV_KEYS_FILE",
    "Environment=LLMSRV_STATE_DIR",
    "Environment=LLMSRV_RUNTIME_DIR",
    "LimitMEMLOCK",
    "CapabilityBoundingSet",
    "AmbientCapabilities",
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "ProtectClock",
    "ProtectHostname",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectKernelLogs",
    "ProtectControlGroups",
    "ProtectProc",
    "RemoveIPC",
    "KeyringMode",
    "DevicePolicy",
    "DeviceAllow",
];

/// Folders the service has its own of, or cannot see.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

fn in_home(path: &Path) -> bool {
    HOMES.iter().any(|home| path.starts_with(home))
}

fn check(path: &Path, scope: Scope) -> Result<(), Error> {
    let text = path.to_str();
    let writable =
        |text: &str| !text.contains(['"', '\'', '\\', ':']) && !text.contains(char::is_control);
    if !text.is_some_and(writable) {
        return Err(Error::Unwritable(path.to_path_buf()));
    }
    if !path.is_absolute() {
        return Err(Error::Relative(path.to_path_buf()));
    }
    let mut hidden = TEMPORARY.into_iter().filter(|_| scope == Scope::System);
    match hidden.find(|folder| path.starts_with(folder)) {
        Some(folder) => Err(Error::Hidden {
            path: path.to_path_buf(),
            folder,
        }),
        None => Ok(()),
    }
}

/// Escapes what units would replace.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

fn quoted(text: &str) -> String {
    if text.contains(' ') {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

/// A word of a command line.
fn word(path: &Path) -> String {
    quoted(&escaped(path).replace('$', "$$"))
}

/// A path in a list of paths.
fn bound(path: &Path) -> String {
    quoted(&escaped(path))
}

/// A unit file by lines, each with the comments above it.
struct Text(Vec<Line>);

struct Line {
    comments: Vec<String>,
    text: String,
}

impl Line {
    /// What is set: the name before `=` or, of the environment, with the variable.
    fn key(&self) -> &str {
        let (key, value) = self.text.split_once('=').unwrap_or((&self.text, ""));
        match (key, value.split_once('=')) {
            ("Environment", Some((name, _))) => self.text.get(..key.len() + 1 + name.len()),
            _ => None,
        }
        .unwrap_or(key)
    }
}

impl Text {
    fn of(text: &str) -> Text {
        let (mut lines, mut comments) = (Vec::new(), Vec::new());
        for line in text.lines() {
            if line.starts_with('#') {
                comments.push(line.to_owned());
            } else {
                lines.push(Line {
                    comments: std::mem::take(&mut comments),
                    text: line.to_owned(),
                });
            }
        }
        Text(lines)
    }

    /// Replaces all lines of a key by others; comments go with the last one.
    fn set(&mut self, key: &str, values: &[String]) {
        let Some(at) = self.0.iter().position(|line| line.key() == key) else {
            return;
        };
        let name = key.split('=').next().unwrap_or(key);
        let mut comments = self
            .0
            .get_mut(at)
            .map(|line| std::mem::take(&mut line.comments));
        self.0.retain(|line| line.key() != key);
        for (offset, value) in values.iter().enumerate() {
            let line = Line {
                comments: comments.take().unwrap_or_default(),
                text: format!("{name}={value}"),
            };
            self.0.insert(at + offset, line);
        }
    }

    /// Adds a line before that of a key.
    fn add(&mut self, before: &str, text: String) {
        let at = self.0.iter().position(|line| line.key() == before);
        let at = at.unwrap_or(self.0.len());
        let comments = Vec::new();
        self.0.insert(at, Line { comments, text });
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut blank = false;
        for line in &self.0 {
            // Where all lines of a paragraph are gone one blank line is enough.
            if line.text.is_empty() && line.comments.is_empty() {
                if !blank {
                    text += "\n";
                }
                blank = true;
                continue;
            }
            blank = false;
            for part in line.comments.iter().chain([&line.text]) {
                text += part;
                text += "\n";
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|it| it == line)
    }

    #[test]
    fn the_packaged_unit_is_the_one_for_the_usual_options() {
        assert_eq!(Options::packaged().text().unwrap(), TEMPLATE);
    }

    #[test]
    fn what_is_told_is_in_the_unit() {
        let options = Options {
            binary: "/opt/my tools/50%/llmsrv".into(),
            account: ("ann".into(), "staff".into()),
            groups: vec!["video".into()],
            address: Some(Listen {
                address: "0.0.0.0:80".into(),
                port: 80,
                every_origin: true,
            }),
            models: Some("/srv/models".into()),
            ..Options::packaged()
        };
        let text = options.text().unwrap();
        for line in [
            "ExecStart=\"/opt/my tools/50%%/llmsrv\" serve",
            "User=ann",
            "Group=staff",
            "SupplementaryGroups=video",
            "Environment=LLMSRV_HOST=0.0.0.0:80",
            "Environment=LLMSRV_ORIGINS=*",
            "Environment=LLMSRV_MODELS=/srv/models",
            "ReadWritePaths=/srv/models",
            "ProtectHome=yes",
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        ] {
            assert!(has(&text, line), "{line}: {text}");
        }
        // Told again, the last word counts: one line each.
        assert_eq!(text.matches("LLMSRV_MODELS").count(), 1, "{text}");
        assert_eq!(text.matches("\n\n\n").count(), 0, "{text}");
    }

    #[test]
    fn homes_are_hidden_except_for_what_is_needed() {
        let options = Options {
            binary: "/home/ann/.cargo/bin/llmsrv".into(),
            models: Some("/home/ann/models".into()),
            ..Options::packaged()
        };
        let text = options.text().unwrap();
        for line in [
            "ProtectHome=tmpfs",
            "BindPaths=/home/ann/models",
            "BindReadOnlyPaths=/home/ann/.cargo/bin/llmsrv",
        ] {
            assert!(has(&text, line), "{line}: {text}");
        }
        assert!(!text.contains("ReadWritePaths"), "{text}");
    }

    #[test]
    fn units_of_users_have_nothing_their_manager_refuses() {
        let options = Options {
            scope: Scope::User,
            binary: "/home/ann/.cargo/bin/llmsrv".into(),
            models: Some("/tmp/my models".into()),
            ..Options::packaged()
        };
        let text = options.text().unwrap();
        for line in text.lines() {
            let key = line.split('=').next().unwrap();
            assert!(
                key == "Environment" || !NOT_FOR_USERS.contains(&key),
                "{line}"
            );
        }
        for line in [
            "Type=notify",
            "WatchdogSec=60",
            "NoNewPrivileges=yes",
            "Environment=\"LLMSRV_MODELS=/tmp/my models\"",
            "WantedBy=default.target",
        ] {
            assert!(has(&text, line), "{line}: {text}");
        }
        assert!(!text.contains("/var/lib") && !text.contains("%S"), "{text}");
        // Comments go with their lines.
        assert!(!text.contains("Graphics"), "{text}");
    }

    #[test]
    fn what_the_service_could_not_see_or_a_unit_not_hold_is_refused() {
        let with = |models: &str| {
            let models = Some(models.into());
            Options {
                models,
                ..Options::packaged()
            }
            .text()
            .unwrap_err()
        };
        assert!(matches!(
            with("/tmp/x"),
            Error::Hidden { folder: "/tmp", .. }
        ));
        assert!(matches!(with("models"), Error::Relative(_)));
        for path in ["/a\nUser=root", "/a:b", "/a\"b", "/a\\b"] {
            assert!(matches!(with(path), Error::Unwritable(_)), "{path}");
        }
    }
}
