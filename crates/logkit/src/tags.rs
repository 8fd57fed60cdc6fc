//! Environment, trace id and version of a program, filled in where an entry has none.

use std::{
    borrow::Cow,
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
    path::Path,
    process::{Command, Stdio},
};

use llmsrv_config::Ambient;

use crate::{Entry, Text, lock::Mutex};

/// Fills empty fields of entries; costs no allocation for each entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    environment: &'static str,
    trace_id: &'static str,
    version: &'static str,
}

impl Tags {
    /// Those tags; an empty one fills nothing.
    pub fn new(environment: &str, trace_id: &str, version: &str) -> Tags {
        Tags {
            environment: intern(environment),
            trace_id: intern(trace_id),
            version: intern(version),
        }
    }

    /// What the surroundings say: `local` and a new trace id if they say nothing.
    pub fn detected(ambient: &Ambient) -> Tags {
        let environment = ambient.environment.clone().unwrap_or_else(|| {
            let in_container = ["/.dockerenv", "/run/.containerenv"]
                .iter()
                .any(|path| Path::new(path).exists());
            if in_container { "docker" } else { "local" }.to_owned()
        });
        Tags::new(
            &environment,
            &ambient.trace_id.clone().unwrap_or_else(generate_trace_id),
            ambient.version.as_deref().unwrap_or_default(),
        )
    }

    /// Without a version, the commit that is checked out in the folder of the process, if it is one of
    /// git: its first twelve digits. Runs `git`.
    pub fn git(self) -> Tags {
        if !self.version.is_empty() {
            return self;
        }
        let output = Command::new("git")
            .args(["rev-parse", "--verify", "--short=12", "HEAD"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let commit = match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            _ => String::new(),
        };
        self.or(Tags::new("", "", &commit))
    }

    /// These tags where they are set, else the others.
    pub fn or(self, other: Tags) -> Tags {
        let pick = |ours: &'static str, theirs| if ours.is_empty() { theirs } else { ours };
        Tags {
            environment: pick(self.environment, other.environment),
            trace_id: pick(self.trace_id, other.trace_id),
            version: pick(self.version, other.version),
        }
    }

    /// Fills what is empty.
    pub fn fill(&self, entry: &mut Entry) {
        let fill = |text: &mut Text, tag: &'static str| {
            if text.is_empty() {
                *text = Cow::Borrowed(tag);
            }
        };
        fill(&mut entry.environment, self.environment);
        fill(&mut entry.trace_id, self.trace_id);
        fill(&mut entry.version, self.version);
    }
}

/// A new trace id: 16 hexadecimal digits.
pub fn generate_trace_id() -> String {
    format!("{:016x}", random_u64())
}

/// Not for secrets: the keys of the standard library's hash tables come from the system.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(std::time::Instant::now())
}

/// Tags live as long as the program; equal ones are kept once.
fn intern(text: &str) -> &'static str {
    static KEPT: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    if text.is_empty() {
        return "";
    }
    let mut kept = KEPT.lock();
    let kept = kept.get_or_insert_default();
    if let Some(text) = kept.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(text.into());
    kept.insert(text);
    text
}
