//! The firewall of this machine, through its own commands: letting the port of the server in, and
//! taking that back.
//!
//! Only a firewall that is active is changed, what is there already is not added again, and only
//! rules of ours are removed: they carry a mark, except those of firewalld, which has none.

mod firewalld;
mod iptables;
mod nft;
mod ufw;

use crate::{
    command::{self, Cmd},
    plan::{Skip, Step},
};

/// A firewall that machines may have.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Looks whether it works.
    look: fn() -> Activity,
    /// Finds the lists of rules that decide about a port.
    places: fn(u16) -> Result<Vec<Place>, command::Error>,
    /// It manages the firewalls below it, which are then left alone.
    manages: bool,
    /// Where its rules are when the machine starts again.
    pub keeps: Keeps,
}

/// Whether rules survive a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The firewall keeps them.
    Always,
    /// Somebody has to save them; how.
    Until(&'static str),
}

/// Whether a firewall works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It is not installed.
    Absent,
    /// It is installed and lets everything through.
    Inactive,
    /// It turns something away.
    Active,
    /// It does not say, mostly because only root may ask.
    Unknown(String),
}

/// A list of rules that decides about the port.
struct Place {
    /// What it is, for titles.
    name: String,
    /// Its rules that let the port in.
    rules: Vec<Rule>,
    /// Makes the command that lets the port in from somewhere; `None` where that cannot come.
    add: Box<Adder>,
}

type Adder = dyn Fn(Option<&str>) -> Option<Cmd>;

/// A rule that lets the port in.
#[derive(Clone, Debug)]
pub struct Rule {
    /// From where; `None` = from everywhere.
    pub source: Option<String>,
    /// We made it.
    pub is_ours: bool,
    /// Takes it back.
    delete: Cmd,
}

/// Who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Everybody.
    All,
    /// Machines whose addresses are private.
    Lan,
}

impl Sources {
    fn list(self) -> Vec<Option<&'static str>> {
        match self {
            Sources::All => vec![None],
            Sources::Lan => PRIVATE.iter().copied().map(Some).collect(),
        }
    }
}

/// Addresses of private networks (RFC 1918, RFC 4193) and of the link (RFC 4291).
pub const PRIVATE: [&str; 5] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// The firewalls, those that manage others first.
const TOOLS: [Tool; 4] = [firewalld::TOOL, ufw::TOOL, nft::TOOL, iptables::TOOL];

/// Why nothing can be said or done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root may ask.
    #[error("the firewall does not say whether it is active: {0}")]
    Unknown(String),
    /// Its command failed.
    #[error(transparent)]
    Command(#[from] command::Error),
}

/// What is known of a firewall.
pub struct State {
    /// Its name.
    pub name: &'static str,
    /// Whether it works.
    pub activity: Activity,
    /// Its rules that let the port in.
    pub rules: Vec<Rule>,
}

/// Looks at all firewalls.
pub fn look(port: u16) -> Vec<State> {
    let state = |tool: &Tool| {
        let activity = (tool.look)();
        let mut rules = Vec::new();
        if activity == Activity::Active {
            let places = (tool.places)(port).unwrap_or_default();
            rules = places.into_iter().flat_map(|place| place.rules).collect();
        }
        State {
            name: tool.name,
            activity,
            rules,
        }
    };
    TOOLS.iter().map(state).collect()
}

/// Returns the firewalls that decide: those that are active, without those which others manage.
pub fn active() -> Result<Vec<Tool>, Error> {
    let (mut active, mut unknown) = (Vec::new(), None);
    for tool in TOOLS {
        match (tool.look)() {
            Activity::Active => active.push(tool),
            Activity::Unknown(why) => unknown = unknown.or(Some(why)),
            Activity::Absent | Activity::Inactive => {}
        }
    }
    if active.iter().any(|tool| tool.manages) {
        active.retain(|tool| tool.manages);
    }
    match unknown {
        // It may be the one that matters.
        Some(why) if active.is_empty() => Err(Error::Unknown(why)),
        _ => Ok(active),
    }
}

impl Tool {
    /// Plans to let the port in. Rules of ours for others than these sources go.
    pub fn allow(&self, port: u16, sources: Sources) -> Result<Vec<Step>, Error> {
        let wanted = sources.list();
        let mut steps = Vec::new();
        for place in (self.places)(port)? {
            let has = |source| {
                place
                    .rules
                    .iter()
                    .any(|rule| rule.source.as_deref() == source)
            };
            for source in &wanted {
                let Some(command) = (place.add)(*source) else {
                    continue;
                };
                let from = source.map_or_else(String::new, |source| format!(" from {source}"));
                let step = Step::run(format!("{}: let port {port} in{from}", place.name), command);
                // 11: firewalld has it already.
                let step = step.already(&[11]);
                steps.push(if has(*source) {
                    step.skip(Skip::Already)
                } else {
                    step
                });
            }
            let others = place.rules.iter().filter(|rule| rule.is_ours);
            let others = others.filter(|rule| !wanted.contains(&rule.source.as_deref()));
            steps.extend(others.map(|rule| rule.delete_step(&place.name, port)));
        }
        Ok(steps)
    }

    /// Plans to take our rules back.
    pub fn remove(&self, port: u16) -> Result<Vec<Step>, Error> {
        let mut steps = Vec::new();
        for place in (self.places)(port)? {
            let ours = place.rules.iter().filter(|rule| rule.is_ours);
            steps.extend(ours.map(|rule| rule.delete_step(&place.name, port)));
        }
        Ok(steps)
    }
}

impl Rule {
    fn delete_step(&self, place: &str, port: u16) -> Step {
        let from = self.source.as_deref();
        let from = from.map_or_else(String::new, |source| format!(" from {source}"));
        let title = format!("{place}: let port {port} in no more{from}");
        // 12: firewalld does not have it.
        Step::run(title, self.delete.clone()).already(&[12])
    }
}

/// The mark of our rules.
fn mark(port: u16) -> String {
    format!("llmsrv-{port}")
}

/// Asks a firewall; `active` reads the answer.
fn ask(command: &Cmd, active: impl FnOnce(&str) -> bool) -> Activity {
    match command.run() {
        Err(command::Error::Missing(_)) => Activity::Absent,
        Err(error) => Activity::Unknown(error.to_string()),
        Ok(left) if left.status.success() => {
            if active(&left.stdout) {
                Activity::Active
            } else {
                Activity::Inactive
            }
        }
        Ok(left) => Activity::Unknown(command.failed(&left).to_string()),
    }
}
