//! The manager of services: systemd, asked and told through `systemctl`.
//!
//! Its messages are those people know, it asks for the password where one is needed, and a test puts
//! another `systemctl` on the path.

use std::{collections::BTreeMap, path::PathBuf};

use crate::command::Cmd;

/// Name of the unit.
pub const NAME: &str = "llmsrv-network.service";

/// Which manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The one of the machine.
    System,
    /// The one of the user who is logged in.
    User,
}

impl Scope {
    /// Returns the word for scripts.
    pub fn word(self) -> &'static str {
        match self {
            Scope::System => "system",
            Scope::User => "user",
        }
    }

    fn command(self, program: &str, args: &[&str]) -> Cmd {
        let user: &[&str] = match self {
            Scope::System => &[],
            Scope::User => &["--user"],
        };
        Cmd::new(program, user.iter().chain(args).copied())
    }

    /// `systemctl` with these arguments.
    pub fn systemctl(self, args: &[&str]) -> Cmd {
        self.command("systemctl", args)
    }

    /// `systemctl VERB` of our unit.
    pub fn verb(self, verb: &str) -> Cmd {
        self.systemctl(&[verb, NAME])
    }

    /// `journalctl` of our unit with these arguments besides.
    pub fn journal(self, args: &[&str]) -> Cmd {
        let unit: Vec<&str> = ["--unit", NAME].iter().chain(args).copied().collect();
        self.command("journalctl", &unit)
    }

    /// Tells whether the manager runs.
    pub fn is_there(self) -> bool {
        // The exit status says how well it runs.
        let state = self.systemctl(&["is-system-running"]).run();
        state.is_ok_and(|left| {
            matches!(
                left.stdout.trim(),
                "initializing" | "starting" | "running" | "degraded" | "maintenance" | "stopping"
            )
        })
    }

    /// Returns what is known of our unit; `None` if the manager does not run or does not know it.
    pub fn unit(self) -> Option<Unit> {
        let properties = format!("--property={}", PROPERTIES.join(","));
        let left = self.systemctl(&["show", NAME, &properties]).must().ok()?;
        Unit::parse(self, &left.stdout)
    }
}

/// Finds our unit, that of the machine first.
pub fn find() -> Option<Unit> {
    Scope::System.unit().or_else(|| Scope::User.unit())
}

/// What the manager says of our unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Whose it is.
    pub scope: Scope,
    /// `active`, `inactive`, `failed`, `activating`, ...
    pub active: String,
    /// `running`, `dead`, `auto-restart`, ...
    pub sub: String,
    /// How it ended last: `success`, `exit-code`, `watchdog`, ...
    pub result: String,
    /// `enabled`, `disabled`, `masked`, ...
    pub enabled: String,
    /// Its process.
    pub pid: Option<i32>,
    /// How often it was started again by itself.
    pub restarts: u64,
    /// When it became what it is, in the words of the manager.
    pub since: String,
    /// The file.
    pub file: Option<PathBuf>,
    /// Address it listens on, where the unit says.
    pub address: Option<String>,
    /// The file was changed and not read since.
    pub needs_reload: bool,
}

impl Unit {
    fn parse(scope: Scope, text: &str) -> Option<Unit> {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let properties: BTreeMap<&str, &str> = lines.collect();
        let get = |name: &str| properties.get(name).copied().unwrap_or_default();
        // `not-found`, and nothing where there is no manager.
        if !matches!(
            get("LoadState"),
            "loaded" | "masked" | "error" | "bad-setting"
        ) {
            return None;
        }
        let since = match get("ActiveState") {
            "active" => get("ActiveEnterTimestamp"),
            _ => get("InactiveEnterTimestamp"),
        };
        let variables = get("Environment").split_whitespace();
        let mut addresses = variables.filter_map(|variable| variable.strip_prefix("LLMSRV_HOST="));
        Some(Unit {
            scope,
            active: get("ActiveState").to_owned(),
            sub: get("SubState").to_owned(),
            result: get("Result").to_owned(),
            enabled: match get("LoadState") {
                "masked" => "masked".to_owned(),
                _ => get("UnitFileState").to_owned(),
            },
            pid: get("MainPID").parse().ok().filter(|pid| *pid > 0),
            restarts: get("NRestarts").parse().unwrap_or(0),
            since: since.to_owned(),
            file: Some(get("FragmentPath"))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            address: addresses.next().map(str::to_owned),
            needs_reload: get("NeedDaemonReload") == "yes",
        })
    }

    /// Tells whether it runs.
    pub fn is_active(&self) -> bool {
        matches!(self.active.as_str(), "active" | "reloading" | "activating")
    }

    /// Tells whether it starts with the machine.
    pub fn is_enabled(&self) -> bool {
        self.enabled.starts_with("enabled")
    }
}

const PROPERTIES: &[&str] = &[
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "UnitFileState",
    "MainPID",
    "NRestarts",
    "ActiveEnterTimestamp",
    "InactiveEnterTimestamp",
    "FragmentPath",
    "NeedDaemonReload",
    "Environment",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_manager_are_read() {
        let text = "MainPID=4711\nNRestarts=2\nResult=success\nLoadState=loaded\n\
            ActiveState=active\nSubState=running\nUnitFileState=enabled\nNeedDaemonReload=no\n\
            ActiveEnterTimestamp=Sat 2026-11-21 23:47:50 UTC\n\
            Environment=HOME=/var/lib/llmsrv LLMSRV_HOST=0.0.0.0:8080 LLMSRV_ORIGINS=*\n\
            FragmentPath=/etc/systemd/system/llmsrv-network.service\n";
        let unit = Unit::parse(Scope::System, text).unwrap();
        assert_eq!((unit.pid, unit.restarts), (Some(4711), 2));
        assert!(unit.is_active() && unit.is_enabled() && !unit.needs_reload);
        assert_eq!(unit.address.as_deref(), Some("0.0.0.0:8080"));
        assert!(unit.since.contains("23:47:50"));
        for absent in ["", "LoadState=not-found\nActiveState=inactive\n"] {
            assert_eq!(Unit::parse(Scope::User, absent), None, "{absent}");
        }
        let masked = Unit::parse(Scope::User, "LoadState=masked\nMainPID=0\n").unwrap();
        assert_eq!((masked.enabled.as_str(), masked.pid), ("masked", None));
    }

    #[test]
    fn commands_of_the_user_say_so() {
        assert_eq!(
            Scope::User.verb("start").to_string(),
            "systemctl --user start llmsrv-network.service"
        );
        assert_eq!(
            Scope::System.journal(&["-f"]).to_string(),
            "journalctl --unit llmsrv-network.service -f"
        );
    }
}
