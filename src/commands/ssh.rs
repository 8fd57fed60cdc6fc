//! `llmsrv ssh`: tells what `llmsrv-ssh` does and becomes ssh for the session.

use std::{process::ExitCode, time::Duration};

use llmsrv_api::client::{self, Client};
use llmsrv_config::Folders;
use llmsrv_ssh::{
    Error, Forward, Interrupt, NewHosts, Session, Settings, Ssh,
    control::Control,
    doctor::{self, Check},
    forward,
    key::Origin,
    login::{Event, Login, Surroundings},
    plan::{self, Plan},
};
use serde_json::json;

use crate::{
    checks::{self, Totals},
    cli::{GlobalArgs, SshArgs},
    failure::{Code, Failure},
    term,
};

/// Logs in, or does a part of it.
pub fn run(global: &GlobalArgs, args: SshArgs) -> Result<ExitCode, Failure> {
    if args.json && !args.doctor && !args.dry_run {
        return Err(Failure::usage("--json goes with --doctor or --dry-run"));
    }
    let ssh = Ssh {
        destination: args.destination.clone(),
        port: global.port,
        identity: args.identity.clone(),
        jump: args.jump.clone(),
        config: args.ssh_config.clone(),
        new_hosts: if args.accept_new {
            NewHosts::Accept
        } else {
            NewHosts::AsConfigured
        },
        elsewhere: None,
    };
    let surroundings = surroundings()?;
    let task = Task {
        ssh: &ssh,
        surroundings: &surroundings,
        args: &args,
        quiet: global.quiet,
    };
    // Ends before the session, so that ssh gets the signals as it expects them.
    let next = {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(task.run())?
    };
    match next {
        Next::Exit(code) => Ok(code),
        Next::Session(session, control) => {
            let error = session.exec(&ssh, control);
            Err(failure(error, &ssh, &Settings::of(&ssh)))
        }
    }
}

/// What is left to do.
enum Next {
    Exit(ExitCode),
    Session(Session, Control),
}

struct Task<'a> {
    ssh: &'a Ssh,
    surroundings: &'a Surroundings,
    args: &'a SshArgs,
    quiet: bool,
}

impl Task<'_> {
    async fn run(&self) -> Result<Next, Failure> {
        let mut interrupt = Interrupt::listen()?;
        if self.args.doctor {
            return self.doctor(&mut interrupt).await;
        }
        let mut settings = Settings::of(self.ssh);
        let done = self.steps(&mut settings, &mut interrupt).await;
        match done {
            Ok(next) => Ok(next),
            Err(Stop::Ssh(Error::Interrupted(signal))) => Ok(Next::Exit(ended_by(signal))),
            Err(Stop::Ssh(error)) => Err(failure(error, self.ssh, &settings)),
            Err(Stop::Other(failure)) => Err(failure),
        }
    }

    async fn steps(
        &self,
        settings: &mut Settings,
        interrupt: &mut Interrupt,
    ) -> Result<Next, Stop> {
        *settings = self.ssh.settings(interrupt).await?;
        let session = Session {
            command: self.args.command.clone(),
            terminal: self.args.tty,
        };
        if self.args.dry_run {
            let session = (!self.args.copy_id).then_some(&session);
            let plan = plan::plan(self.ssh, settings, self.surroundings, session)?;
            self.show(&plan, settings)?;
            return Ok(Next::Exit(ExitCode::SUCCESS));
        }
        let mut login = Login {
            ssh: self.ssh,
            settings,
            surroundings: self.surroundings,
            interrupt,
            tell: &mut |event| self.tell(&event),
        };
        if self.args.copy_id {
            login.copy_only().await?;
            return Ok(Next::Exit(ExitCode::SUCCESS));
        }
        let mut control = login.session().await?;
        if let Some(forward) = self.args.forward {
            let forward = forward.unwrap_or_default();
            let code = self.tunnel(&mut control, forward, interrupt).await?;
            if let Some(code) = code {
                return Ok(Next::Exit(code));
            }
        }
        Ok(Next::Session(session, control))
    }

    /// Opens the tunnel, checks it, and without a command holds it. Returns nothing if a session
    /// follows.
    async fn tunnel(
        &self,
        control: &mut Control,
        forward: Forward,
        interrupt: &mut Interrupt,
    ) -> Result<Option<ExitCode>, Stop> {
        let probe = forward::Probe::open(control, forward, interrupt).await?;
        let host = &self.ssh.destination;
        let version = interrupt.unless(version(probe.port())).await?;
        probe.close(control, interrupt).await?;
        let version = version.map_err(|why| {
            let text = format!(
                "nothing answers at port {} of {host}: {why}",
                forward.remote
            );
            Failure::new(Code::Unreachable, text)
                .hint("start a server there: llmsrv serve; another port: --forward LOCAL:REMOTE")
        })?;
        let port = forward::open(control, forward, interrupt).await?;
        let url = format!("http://127.0.0.1:{port}");
        let is_held = self.args.command.is_empty();
        if is_held {
            term::line(&url).map_err(Failure::from)?;
        }
        let until = if is_held { "; Ctrl-C ends it" } else { "" };
        self.note(format_args!("{url} is {version} of {host}{until}"));
        if !is_held {
            return Ok(None);
        }
        interrupt.unless(control.closed()).await?;
        let text = format!("the connection to {host} ended");
        Err(Failure::new(Code::NoConnection, text).into())
    }

    async fn doctor(&self, interrupt: &mut Interrupt) -> Result<Next, Failure> {
        let mut made: Vec<Check> = Vec::new();
        let mut shown = Ok(());
        let mut tell = |check: Check| {
            if shown.is_ok() && !self.args.json && !self.quiet {
                let text = format_args!("{:<13} {}", check.name, check.detail);
                shown = checks::show(made.len() + 1, check.outcome, text, &check.fixes);
            }
            made.push(check);
        };
        match doctor::examine(self.ssh, self.surroundings, interrupt, &mut tell).await {
            Ok(()) => {}
            Err(Error::Interrupted(signal)) => return Ok(Next::Exit(ended_by(signal))),
            Err(error) => return Err(failure(error, self.ssh, &Settings::of(self.ssh))),
        }
        shown?;
        let totals = Totals::of(made.iter().map(|check| check.outcome));
        if self.args.json {
            let list: Vec<_> = made
                .iter()
                .map(|check| {
                    json!({
                        "name": check.name,
                        "outcome": checks::word(check.outcome),
                        "detail": check.detail,
                        "fixes": check.fixes,
                    })
                })
                .collect();
            term::json(&json!({
                "destination": self.ssh.destination.to_string(),
                "checks": list,
                "passed": totals.passed,
                "failed": totals.failed,
                "skipped": totals.skipped,
            }))?;
        } else if !self.quiet {
            totals.show()?;
        }
        Ok(Next::Exit(totals.status()))
    }

    fn show(&self, plan: &Plan, settings: &Settings) -> Result<(), Failure> {
        let Settings {
            user,
            hostname,
            port,
            ..
        } = settings;
        if self.args.json {
            let steps: Vec<_> = plan
                .steps
                .iter()
                .map(|step| {
                    json!({
                        "what": step.what,
                        "when": step.when.word(),
                        "command": step.command,
                    })
                })
                .collect();
            term::json(&json!({
                "destination": self.ssh.destination.to_string(),
                "user": user,
                "hostname": hostname,
                "port": port,
                "key": plan.key,
                "key_would_be_made": plan.would_be_made,
                "steps": steps,
            }))?;
            return Ok(());
        }
        term::line(format_args!("{user}@{hostname}, port {port}"))?;
        for (index, step) in plan.steps.iter().enumerate() {
            term::line(format_args!(
                "{}. {} ({})",
                index + 1,
                step.what,
                step.when.word()
            ))?;
            if let Some(command) = &step.command {
                term::line(format_args!("   {command}"))?;
            }
        }
        Ok(())
    }

    fn tell(&self, event: &Event) {
        let destination = &self.ssh.destination;
        match event {
            Event::Key { public, key } => match key.origin {
                Origin::Made => {
                    self.note(format_args!(
                        "made the key {}",
                        public.with_extension("").display()
                    ));
                }
                Origin::Derived => self.note(format_args!("wrote {}", public.display())),
                Origin::Found => {}
            },
            Event::OneKeyOnly(file) => self.note(format_args!(
                "the agent has too many keys for this host; trying {} alone",
                file.display()
            )),
            Event::AskingToCopy(public) => self.note(format_args!(
                "{destination} refuses the keys; its password is needed once, to copy {}",
                public.display()
            )),
            Event::NoKeysThere => self.note(format_args!(
                "{destination} offers no login with keys, so none is copied"
            )),
            Event::Copied(installed) => {
                self.note(if installed.is_new {
                    "key installed"
                } else {
                    "key already installed"
                });
                if installed.is_home_open {
                    term::warning(format_args!(
                        "others may write to the home directory there, so sshd refuses keys; \
                         there: chmod go-w ~"
                    ));
                }
            }
            Event::Works => self.note("key already installed"),
            Event::Encrypted(file) => self.note(format_args!(
                "the key has a passphrase; to type it once a day: ssh-add {}",
                file.display()
            )),
            Event::StillRefused => {
                term::warning("the host has the key and still refuses it");
                for fix in Error::StillRefused.fixes(self.ssh, &Settings::of(self.ssh)) {
                    term::note(format_args!("  {fix}"));
                }
            }
            _ => {}
        }
    }

    fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            term::note(text);
        }
    }
}

/// Why the steps stopped: what ssh says, or the rest.
enum Stop {
    Ssh(Error),
    Other(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Ssh(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Other(failure)
    }
}

fn surroundings() -> Result<Surroundings, Failure> {
    let home = Folders::from_process().home.ok_or_else(|| {
        Failure::new(Code::NoConnection, "there is no home directory for the key").hint("set HOME")
    })?;
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty");
    Ok(Surroundings {
        home,
        sockets: std::env::temp_dir(),
        can_ask: terminal.is_ok() || llmsrv_config::has_ask_program(),
    })
}

/// Returns what answers at a tunnel, or why nothing does.
async fn version(port: u16) -> Result<String, String> {
    let client = Client::new(&format!("http://127.0.0.1:{port}"), None)
        .map_err(|error| error.to_string())?;
    match tokio::time::timeout(TIMEOUT, client.version()).await {
        Ok(Ok(version)) => Ok(format!("version {version}")),
        // One that asks for a key is there.
        Ok(Err(client::Error::Status {
            status: status @ (401 | 403),
            ..
        })) => Ok(format!("a server that asks for a key (status {status})")),
        // sshd closes what it cannot connect.
        Ok(Err(client::Error::Broken(_))) => Err("no program listens there".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

fn failure(error: Error, ssh: &Ssh, settings: &Settings) -> Failure {
    let fixes = error.fixes(ssh, settings);
    let failure = Failure {
        code: Code::NoConnection,
        error: anyhow::Error::new(error),
        hint: None,
    };
    if fixes.is_empty() {
        return failure;
    }
    failure.hint(fixes.join("\n      "))
}

fn ended_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// How long the server behind a tunnel may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
