//! What a login would do, without doing it.

use std::{ffi::OsString, path::PathBuf};

use crate::{
    Error, Session, Ssh,
    control::{Purpose, Way, master_args},
    key::Identity,
    known_errors::quoted,
    login::{Surroundings, with_key_elsewhere},
    ssh::{PROGRAM, Settings},
};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is for.
    pub what: String,
    /// When it is done.
    pub when: When,
    /// What is run, if it is a program; to be pasted into a shell.
    pub command: Option<String>,
}

/// When a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In any case.
    Always,
    /// If the host refuses the keys.
    IfRefused,
    /// When it is not done already.
    IfMissing,
}

impl When {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            When::Always => "always",
            When::IfRefused => "if the keys are refused",
            When::IfMissing => "if the keys are refused and the host does not have it",
        }
    }
}

/// What a login would do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The key that would be copied.
    pub key: PathBuf,
    /// Whether it would be made.
    pub would_be_made: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Returns what a login would do; looks at files and settings only. `session` is none if only the
/// key is to be copied.
pub fn plan(
    ssh: &Ssh,
    settings: &Settings,
    surroundings: &Surroundings,
    session: Option<&Session>,
) -> Result<Plan, Error> {
    let identity = Identity::choose(ssh.identity.as_deref(), settings, &surroundings.home);
    let would_be_made = identity.would_be_made();
    let socket = surroundings.sockets.join("llmsrv-ssh-RANDOM");
    let login = |ssh: &Ssh, way, purpose| {
        let mut args = master_args(ssh, settings, way, purpose, &socket);
        args.extend(["--".into(), ssh.destination.to_string().into()]);
        Some(line(&args))
    };
    let step = |what: String, when, command| Step {
        what,
        when,
        command,
    };
    let key = identity.private.display();
    let with_key = ssh.with_only(&identity.private);
    let elsewhere = with_key_elsewhere(ssh, settings, &surroundings.home);
    let first = if session.is_some() {
        &elsewhere
    } else {
        &with_key
    };
    let make = would_be_made.then(|| step(format!("make the key {key}"), When::IfRefused, None));
    let mut steps = vec![step(
        "log in with keys, without a question".into(),
        When::Always,
        login(first, Way::Batch, Purpose::Session),
    )];
    steps.extend(make);
    steps.push(step(
        "log in with the password".into(),
        When::IfRefused,
        login(ssh, Way::Password, Purpose::Session),
    ));
    steps.push(step(
        format!(
            "append {} to ~/.ssh/authorized_keys of {}@{}",
            identity.public.display(),
            settings.user,
            settings.hostname
        ),
        When::IfMissing,
        None,
    ));
    steps.push(step(
        "prove that the key works".into(),
        When::IfRefused,
        login(&with_key, Way::Batch, Purpose::Proof),
    ));
    if let Some(session) = session {
        let args = session.args(ssh, Some(&socket))?;
        steps.push(step("the session".into(), When::Always, Some(line(&args))));
    }
    Ok(Plan {
        key: identity.private,
        would_be_made,
        steps,
    })
}

fn line(args: &[OsString]) -> String {
    let words = args.iter().map(|arg| quoted(&arg.to_string_lossy()));
    std::iter::once(PROGRAM.to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}
