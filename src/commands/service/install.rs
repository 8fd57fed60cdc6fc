//! Installing the service, and removing it again.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use llmsrv_config::{Folders, sudo_user};
use llmsrv_host::{
    Account,
    command::Cmd,
    has_group,
    plan::{Skip, Step},
    systemd::Scope,
    unit::{self, ACCOUNT, DEVICE_GROUPS, Listen, NAME},
};

use super::scope;
use crate::{
    cli::{ApplyArgs, InstallArgs},
    commands::firewall,
    context::Context,
    failure::Failure,
    steps::{self, carry_out},
    term,
};

/// Plans the installation.
pub fn install_steps(context: &Context, args: &InstallArgs) -> Result<Vec<Step>, Failure> {
    let scope = scope(args.manner.user);
    let folder = folder(context, scope);
    if !args.manner.dry_run {
        check_manager(scope)?;
        steps::check_rights(&folder)?;
    }
    let account = account(args, scope)?;
    let mut steps = Vec::new();
    if account.is_missing {
        let line = format!("u {ACCOUNT} - \"llmsrv, a local language-model server\" {HOME}");
        let make = Cmd::new("systemd-sysusers", ["--inline", &line]);
        steps.push(Step::run(format!("make the system user {ACCOUNT}"), make));
    }
    let options = unit::Options {
        scope,
        binary: std::env::current_exe().context("this program does not know its own path")?,
        groups: DEVICE_GROUPS
            .iter()
            // A group that is missing would keep the service from starting.
            .filter(|group| has_group(group))
            .map(|group| (*group).to_owned())
            .collect(),
        address: listen(context, args)?,
        models: models(context, &account, scope)?,
        account: (account.name, account.group),
    };
    let text = options.text().map_err(|error| {
        Failure::from(error).hint("install the program, or put the models, where the service sees them, such as /usr/local/bin and /srv")
    })?;
    steps.extend([
        Step::write("write the unit", folder.join(NAME), text),
        Step::run("let systemd read it", scope.systemctl(&["daemon-reload"])).skip(Skip::Unchanged),
        enable_step(scope),
    ]);
    Ok(steps)
}

fn enable_step(scope: Scope) -> Step {
    let is_enabled = scope.systemctl(&["is-enabled", "--quiet", NAME]);
    Step::run("let it start with the machine", scope.verb("enable")).skip(Skip::If(is_enabled))
}

/// Fails if there is no manager to install for.
pub(super) fn check_manager(scope: Scope) -> Result<(), Failure> {
    if scope == Scope::User && sudo_user().is_some() {
        let text = "under sudo, --user would mean root";
        return Err(Failure::usage(text).hint("type it without sudo"));
    }
    if scope.is_there() {
        return Ok(());
    }
    let text = match scope {
        Scope::System => "systemd does not run this machine",
        Scope::User => "no systemd runs for this user",
    };
    Err(Failure::failed(text)
        .hint("`llmsrv serve --background` serves without it; --dry-run shows the unit"))
}

/// Where the unit is written to.
fn folder(context: &Context, scope: Scope) -> PathBuf {
    match (&context.config().host.unit_dir, scope) {
        (Some(folder), _) => folder.clone(),
        (None, Scope::System) => "/etc/systemd/system".into(),
        (None, Scope::User) => {
            let config = Folders::from_process().config;
            let base = config.parent().unwrap_or(Path::new("/"));
            base.join("systemd/user")
        }
    }
}

/// The account the service will have.
struct Runs {
    name: String,
    group: String,
    uid: Option<u32>,
    is_missing: bool,
}

fn account(args: &InstallArgs, scope: Scope) -> Result<Runs, Failure> {
    let name = match (&args.run_as, scope) {
        (Some(name), _) => name.clone(),
        (None, Scope::System) => sudo_user().unwrap_or_else(|| ACCOUNT.to_owned()),
        (None, Scope::User) => Account::this().map_or_else(String::new, |account| account.name),
    };
    match Account::find(&name) {
        Some(account) => Ok(Runs {
            name: account.name,
            group: account.group,
            uid: Some(account.uid),
            is_missing: false,
        }),
        None if name == ACCOUNT || scope == Scope::User => Ok(Runs {
            group: name.clone(),
            is_missing: scope == Scope::System,
            uid: None,
            name,
        }),
        None => Err(Failure::usage(format!("this machine has no user {name}"))),
    }
}

/// Where the service shall listen; `None` if nothing was said.
fn listen(context: &Context, args: &InstallArgs) -> Result<Option<Listen>, Failure> {
    let (global, network) = (&context.global, args.network);
    if !network && global.host.is_none() && global.port.is_none() {
        return Ok(None);
    }
    let host = &context.config().server.host;
    if host.port == 0 {
        return Err(Failure::usage("a service needs a fixed port"));
    }
    let mut host = host.clone();
    if global.host.is_none() {
        let everywhere_or_here = if network { "0.0.0.0" } else { "127.0.0.1" };
        everywhere_or_here.clone_into(&mut host.host);
    } else if network && host.is_loopback() {
        let text = format!(
            "{} is for this machine alone: --network contradicts it",
            host.host
        );
        return Err(Failure::usage(text));
    }
    Ok(Some(Listen {
        address: host.authority(),
        port: host.port,
        every_origin: args.every_origin,
    }))
}

/// The folder of the models, if one was named; it must be there for the account.
fn models(context: &Context, account: &Runs, scope: Scope) -> Result<Option<PathBuf>, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    if context.global.models.is_none() {
        return Ok(None);
    }
    let path = std::path::absolute(&context.config().server.models)?;
    if scope == Scope::User {
        return Ok(Some(path));
    }
    let shown = path.display();
    let hint = format!("make it: sudo install -d -o {} {shown}", account.name);
    match std::fs::metadata(&path) {
        Ok(metadata) if !metadata.is_dir() => {
            Err(Failure::usage(format!("{shown} is not a folder")))
        }
        Ok(metadata) => {
            if account.uid != Some(metadata.uid()) {
                term::warning(format_args!(
                    "{shown} belongs to another user than {}, which may not be able to pull models",
                    account.name
                ));
            }
            Ok(Some(path))
        }
        Err(error) => Err(Failure::from(error)
            .context(format!("cannot use {shown}"))
            .hint(hint)),
    }
}

/// What to know after an installation.
pub(super) fn say_installed(context: &Context, args: &InstallArgs) {
    if args.manner.json || args.manner.dry_run || context.global.quiet {
        return;
    }
    let user = if args.manner.user { " --user" } else { "" };
    let sudo = if args.manner.user { "" } else { "sudo " };
    term::note(format_args!(
        "`{sudo}llmsrv service start{user}` starts it, `llmsrv logs -f` shows what it does"
    ));
    if args.manner.user {
        term::note("it ends when you log out, unless `loginctl enable-linger` was said");
    }
}

/// Warns of a service that will be open, whether or not less is to be printed.
pub(super) fn warn_if_open(context: &Context, args: &InstallArgs) {
    let Some(listen) = listen(context, args).ok().flatten() else {
        return;
    };
    if args.manner.dry_run || listen.is_loopback() {
        return;
    }
    let scope = scope(args.manner.user);
    let account = account(args, scope).ok().filter(|_| scope == Scope::System);
    let account = account.as_ref().map(|account| account.name.as_str());
    warn_of_network(&listen.address, account);
}

/// The API asks for nothing unless keys are there: of the user, or of the service's account.
pub fn warn_of_network(address: &str, account: Option<&str>) {
    let how = match account {
        None => "llmsrv key add NAME".to_owned(),
        Some(account) => {
            format!("sudo -u {account} llmsrv key add NAME --set server.keys_file={HOME}/keys.toml")
        }
    };
    term::warning(format_args!(
        "open to the network without keys: whoever reaches {address} can use the models; `{how}` makes a key"
    ));
}

/// Stops the service and removes its unit.
pub(super) fn uninstall(
    context: &Context,
    manner: ApplyArgs,
    no_firewall: bool,
) -> Result<(), Failure> {
    let scope = scope(manner.user);
    let (unit, folder) = (scope.unit(), folder(context, scope));
    if !manner.dry_run {
        check_manager(scope)?;
        steps::check_rights(&folder)?;
    }
    let mut steps = Vec::new();
    if unit.is_some() {
        let disable = scope.systemctl(&["disable", "--now", NAME]);
        steps.push(Step::run(
            "stop it, and start it with the machine no more",
            disable,
        ));
    }
    steps.extend([
        Step::remove("remove the unit", folder.join(NAME)),
        Step::run("let systemd forget it", scope.systemctl(&["daemon-reload"]))
            .skip(Skip::Unchanged),
    ]);
    if !no_firewall && scope == Scope::System {
        // Where the port is not told nothing was let in for it.
        let port = unit.and_then(|unit| unit.address).and_then(|address| {
            let address = llmsrv_config::Address::parse(&address).ok()?;
            (!address.is_loopback()).then_some(address.port)
        });
        steps.extend(port.map(firewall::remove_steps).into_iter().flatten());
    }
    carry_out(context, manner, &steps)?;
    if !manner.json && !manner.dry_run && !context.global.quiet {
        term::note(match scope {
            Scope::System => format!("models and keys stay in {HOME}"),
            Scope::User => "models and keys stay".to_owned(),
        });
    }
    Ok(())
}

/// Home of the service.
const HOME: &str = "/var/lib/llmsrv";
