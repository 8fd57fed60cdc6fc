//! Checks all that a login needs, one thing after the other. Changes nothing, here or there.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use tokio::{
    net::{TcpStream, lookup_host},
    process::Command,
    time::timeout,
};

use crate::{
    Error, Interrupt, NewHosts, Ssh, children,
    control::{Control, Purpose, Way},
    key::Identity,
    known_errors::{KnownError, between, quoted},
    login::{Surroundings, with_key_elsewhere},
    ssh::{PROGRAM, Settings},
};

/// What was looked at and seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub outcome: Outcome,
    /// What was seen.
    pub detail: String,
    /// What may help.
    pub fixes: Vec<String>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Pass,
    /// Wrong.
    Fail,
    /// Not looked at, or not needed.
    Skip,
}

/// Makes all checks; `tell` gets each as soon as it is made. An error is the end of the examination,
/// not a thing that is wrong.
pub async fn examine(
    ssh: &Ssh,
    surroundings: &Surroundings,
    interrupt: &mut Interrupt,
    tell: &mut dyn FnMut(Check),
) -> Result<(), Error> {
    let Some(client) = client(interrupt).await? else {
        let fix = "install it: apt install openssh-client (dnf, pacman, apk: openssh)";
        tell(fail("client", "there is no program `ssh`", &[fix.into()]));
        return Ok(());
    };
    tell(pass("client", client));
    tell(folder("home", &surroundings.home));
    tell(folder(".ssh", &surroundings.home.join(".ssh")));
    // Nothing is asked and nothing stored.
    let ssh = Ssh {
        new_hosts: NewHosts::Refuse,
        ..ssh.clone()
    };
    let settings = match ssh.settings(interrupt).await {
        Ok(settings) => settings,
        Err(Error::KnownError(trouble)) => {
            let fixes = trouble.fixes(&ssh, &Settings::of(&ssh));
            tell(fail("settings", trouble, &fixes));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Settings {
        user,
        hostname,
        port,
        ..
    } = &settings;
    tell(pass("settings", format!("{user}@{hostname}, port {port}")));
    let identity = Identity::choose(ssh.identity.as_deref(), &settings, &surroundings.home);
    tell(key(&identity, &ssh));
    tell(agent(interrupt).await?);

    let network = network(&settings, &ssh);
    let checks = interrupt.unless(network).await?;
    let is_reached = checks.iter().all(|check| check.outcome != Outcome::Fail);
    checks.into_iter().for_each(&mut *tell);
    if !is_reached {
        for name in ["host key", "keys allowed", "login"] {
            tell(skip(name, "the host is not reached"));
        }
        return Ok(());
    }
    let ssh = with_key_elsewhere(&ssh, &settings, &surroundings.home);
    let sockets = &surroundings.sockets;
    let attempt = Control::attempt(
        &ssh,
        &settings,
        Way::Batch,
        Purpose::Proof,
        sockets,
        interrupt,
    );
    let (control, log) = attempt.await?;
    let trouble = match control {
        Some(_) => None,
        None => Some(KnownError::from_log(&log, settings.is_proxied)),
    };
    login(&log, trouble.as_ref(), &ssh, &settings, tell);
    Ok(())
}

/// Returns the version of ssh, if there is one.
async fn client(interrupt: &mut Interrupt) -> Result<Option<String>, Error> {
    match children::output(Command::new(PROGRAM).arg("-V"), interrupt).await {
        Ok(output) => Ok(Some(output.stderr.trim().to_owned())),
        Err(Error::NoClient(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks whose a folder is and that others may not write to it, which is what ssh asks for.
fn folder(name: &'static str, path: &Path) -> Check {
    let shown = quoted(&path.to_string_lossy());
    let facts = match fs::metadata(path) {
        Ok(facts) if facts.is_dir() => facts,
        Ok(_) => return fail(name, format!("{shown} is not a folder"), &[]),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && name == ".ssh" => {
            return skip(
                name,
                &format!("{shown} is not there yet; it is made with the key"),
            );
        }
        Err(error) => return fail(name, format!("{shown}: {error}"), &[]),
    };
    let mode = facts.permissions().mode() & 0o777;
    let owner = facts.uid();
    if owner != nix::unistd::Uid::current().as_raw() {
        let fix = format!("as root: chown {} {shown}", nix::unistd::Uid::current());
        return fail(name, format!("{shown} belongs to user {owner}"), &[fix]);
    }
    if mode & 0o022 == 0 {
        return pass(name, format!("{shown}, mode {mode:o}"));
    }
    fail(
        name,
        format!("{shown} has mode {mode:o}: others may write to it"),
        &[format!("chmod go-w {shown}")],
    )
}

fn key(identity: &Identity, ssh: &Ssh) -> Check {
    let name = "key";
    let shown = quoted(&identity.private.to_string_lossy());
    if identity.would_be_made() {
        let fix = format!("make and copy it: llmsrv ssh --copy-id {}", ssh.destination);
        return fail(name, format!("{shown} is not there yet"), &[fix]);
    }
    if let Ok(facts) = fs::metadata(&identity.private) {
        let mode = facts.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return fail(
                name,
                format!("{shown} has mode {mode:o}: ssh does not use keys that others may read"),
                &[format!("chmod 600 {shown}")],
            );
        }
    }
    match identity.inspect() {
        Ok(key) if key.is_encrypted => pass(name, format!("{shown}, with a passphrase")),
        Ok(_) => pass(name, shown),
        Err(error) => fail(name, &error, &error.fixes()),
    }
}

async fn agent(interrupt: &mut Interrupt) -> Result<Check, Error> {
    let name = "agent";
    let output = match children::output(Command::new("ssh-add").arg("-l"), interrupt).await {
        Ok(output) => output,
        Err(Error::NoClient(_)) => return Ok(skip(name, "there is no program `ssh-add`")),
        Err(error) => return Err(error),
    };
    Ok(match output.status.code() {
        Some(0) => match output.stdout.lines().count() {
            // Hosts allow six attempts by default, and each key is one.
            n_keys @ 6.. => fail(
                name,
                format!("it has {n_keys} keys; most hosts give up after the sixth"),
                &["offer one only: llmsrv ssh -i FILE …; or empty it: ssh-add -D".into()],
            ),
            n_keys => pass(name, format!("keys: {n_keys}")),
        },
        Some(1) => pass(name, "it has no keys"),
        _ => skip(name, "there is none"),
    })
}

async fn network(settings: &Settings, ssh: &Ssh) -> Vec<Check> {
    if settings.is_proxied {
        let why = "another host or program leads there";
        return vec![skip("name", why), skip("port", why)];
    }
    let place = (settings.hostname.as_str(), settings.port);
    let told = |name, trouble: KnownError| {
        let fixes = trouble.fixes(ssh, settings);
        fail(name, trouble, &fixes)
    };
    let addresses: Vec<_> = match timeout(TIMEOUT, lookup_host(place)).await {
        Ok(Ok(addresses)) => addresses.collect(),
        _ => Vec::new(),
    };
    let Some(first) = addresses.first() else {
        return vec![
            told("name", KnownError::UnknownName),
            skip("port", "the name does not resolve"),
        ];
    };
    let name = pass("name", format!("{} is {}", settings.hostname, first.ip()));
    let port = match timeout(TIMEOUT, TcpStream::connect(addresses.as_slice())).await {
        Ok(Ok(_)) => pass("port", format!("{} takes connections", settings.port)),
        Ok(Err(error)) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => told("port", KnownError::Refused),
            std::io::ErrorKind::HostUnreachable | std::io::ErrorKind::NetworkUnreachable => {
                told("port", KnownError::NoRoute)
            }
            _ => fail("port", error, &[]),
        },
        Err(_) => told("port", KnownError::TimedOut),
    };
    vec![name, port]
}

/// Tells what ssh saw of the host.
fn login(
    log: &str,
    trouble: Option<&KnownError>,
    ssh: &Ssh,
    settings: &Settings,
    tell: &mut dyn FnMut(Check),
) {
    let told = |name, trouble: &KnownError| fail(name, trouble, &trouble.fixes(ssh, settings));
    if let Some(
        trouble @ (KnownError::HostKeyChanged { .. }
        | KnownError::HostKeyUnknown { .. }
        | KnownError::HostKeyRevoked),
    ) = trouble
    {
        tell(told("host key", trouble));
        for name in ["keys allowed", "login"] {
            tell(skip(name, "the host's key comes first"));
        }
        return;
    }
    let known = "Server host key: ";
    match between(log, known, "\n") {
        Some(key) => tell(pass("host key", format!("known: {}", key.trim()))),
        None => tell(skip("host key", "the connection did not come that far")),
    }
    match between(log, "Authentications that can continue: ", "\n").map(str::trim) {
        Some(methods) if methods.split(',').any(|method| method == "publickey") => {
            tell(pass("keys allowed", format!("the host offers: {methods}")));
        }
        Some(methods) => {
            let denied = KnownError::Denied {
                methods: methods.split(',').map(str::to_owned).collect(),
            };
            tell(told("keys allowed", &denied));
        }
        None => tell(skip("keys allowed", "the host did not say")),
    }
    match trouble {
        None => {
            let with =
                between(log, "Server accepts key: ", "\n").map_or("without a key", str::trim);
            tell(pass("login", with));
        }
        Some(trouble @ KnownError::Denied { .. }) => {
            let copy = format!("copy the key: llmsrv ssh --copy-id {}", ssh.destination);
            let mut fixes = vec![copy];
            fixes.extend(trouble.fixes(ssh, settings));
            fixes.pop(); // it would name this very command
            tell(fail("login", trouble, &fixes));
        }
        Some(trouble) => tell(told("login", trouble)),
    }
}

fn pass(name: &'static str, detail: impl ToString) -> Check {
    Check {
        name,
        outcome: Outcome::Pass,
        detail: detail.to_string(),
        fixes: Vec::new(),
    }
}

fn fail(name: &'static str, detail: impl ToString, fixes: &[String]) -> Check {
    Check {
        name,
        outcome: Outcome::Fail,
        detail: detail.to_string(),
        fixes: fixes.to_vec(),
    }
}

fn skip(name: &'static str, why: &str) -> Check {
    Check {
        name,
        outcome: Outcome::Skip,
        detail: why.to_owned(),
        fixes: Vec::new(),
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);
