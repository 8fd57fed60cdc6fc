//! Taking up changes while the server runs: settings at SIGHUP; keys and certificates also when
//! their files change. What cannot be used changes nothing and is reported.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use llmsrv_config::{Loaded, ServerConfig};
use llmsrv_server::{App, Keys, Tls};
use tokio::signal::unix::Signal;

use crate::{
    context::Context,
    failure::{Code, Failure},
    local, logging, notify, term,
};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Reads certificate and key, if the settings name them.
pub fn tls(config: &ServerConfig) -> Result<Option<Tls>, Failure> {
    let Some((certificate, key)) = pair(config)? else {
        return Ok(None);
    };
    let made = Tls::new(&read(certificate)?, &read(key)?);
    let made = made.with_context(|| format!("cannot serve https with {}", certificate.display()));
    made.map(Some).map_err(config_failure)
}

/// Takes up changes for a running server.
pub struct Reloader<'a> {
    context: &'a Context,
    running: Loaded,
    app: App,
    tls: Option<Tls>,
    keys: Keys,
    log: logging::Control,
    /// The files as they were taken up last.
    used: Files,
    /// The files as they were seen last.
    seen: Files,
}

/// The content of the files that are looked at; `None` = cannot be read.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    keys: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl<'a> Reloader<'a> {
    /// Prepares to change a server that runs with the settings of `context`.
    pub fn new(
        context: &'a Context,
        app: App,
        tls: Option<Tls>,
        keys: Keys,
        log: logging::Control,
    ) -> Reloader<'a> {
        let running = context.loaded.clone();
        let files = Files::read(&running.config.server);
        Reloader {
            context,
            running,
            app,
            tls,
            keys,
            log,
            used: files.clone(),
            seen: files,
        }
    }

    /// Takes up changes until the terminal of the server is closed.
    pub async fn run(mut self, hangup: &mut Signal) {
        let has_terminal = term::stdin_is_terminal();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // The same signal says that the terminal is gone; then it is none any more.
                _ = hangup.recv() => if has_terminal && !term::stdin_is_terminal() {
                    return;
                } else {
                    notify::reloading();
                    self.reload();
                    notify::ready_again();
                },
                _ = look.tick() => self.look(),
            }
        }
    }

    /// Reads everything again.
    fn reload(&mut self) {
        let (fresh, folders) = match self.context.read_again() {
            Ok(fresh) => fresh,
            Err(failure) => {
                tracing::error!(error = %failure, "the settings have mistakes; the old ones stay");
                return;
            }
        };
        for warning in &fresh.warnings {
            tracing::warn!(%warning, "settings");
        }
        if fresh.config.upstreams != self.running.config.upstreams {
            match local::upstreams(&fresh.config.upstreams) {
                Ok(_) => self
                    .running
                    .config
                    .upstreams
                    .clone_from(&fresh.config.upstreams),
                Err(failure) => tracing::error!(error = %failure, "the old [upstream] tables stay"),
            }
        }
        let changes = self.running.take_up(fresh, &folders);
        for setting in &changes.waiting {
            tracing::warn!(
                setting = setting.name,
                "the new value counts from the next start"
            );
        }
        let server = &self.running.config.server;
        if let Err(failure) = self.log.set(server) {
            tracing::error!(error = %failure, "the log filter stays as it was");
        }
        self.seen = Files::read(server);
        self.used = self.seen.clone();
        self.take_up_keys();
        self.take_up_tls();
        let applied: Vec<&str> = changes.applied.iter().map(|setting| setting.name).collect();
        tracing::info!(changed = ?applied, "settings read again");
    }

    /// Looks whether keys or certificates have changed.
    fn look(&mut self) {
        let now = Files::read(&self.running.config.server);
        // What is still being written, or a pair of which one half is new, is not taken up: it has
        // to look the same twice.
        let settled = now == self.seen;
        self.seen = now;
        if !settled || self.seen == self.used {
            return;
        }
        let before = std::mem::replace(&mut self.used, self.seen.clone());
        if before.keys != self.used.keys {
            self.take_up_keys();
        }
        if (&before.certificate, &before.key) != (&self.used.certificate, &self.used.key) {
            self.take_up_tls();
        }
    }

    /// Reads the keys again and gives the server its settings with them.
    fn take_up_keys(&mut self) {
        let server = &self.running.config.server;
        match local::keys(server) {
            // A file that went away must not open a server that was closed.
            Ok(keys) if self.keys.are_required() && !keys.are_required() => tracing::warn!(
                "there are no keys any more; those of before stay until the next start"
            ),
            Ok(keys) => {
                if keys.are_required() {
                    tracing::info!(keys = keys.count(), "keys read");
                }
                self.keys = keys;
            }
            Err(failure) => tracing::error!(error = %failure, "the old keys stay"),
        }
        match local::settings(&self.running.config, self.keys.clone()) {
            Ok(settings) => self.app.reload(settings),
            Err(failure) => tracing::error!(error = %failure, "the old settings stay"),
        }
    }

    fn take_up_tls(&self) {
        let replaced = match (&self.tls, pair(&self.running.config.server)) {
            (_, Err(failure)) => Err(failure),
            (None, Ok(None)) => return,
            (Some(_), Ok(None)) | (None, Ok(Some(_))) => Err(Failure::new(
                Code::Config,
                "a server cannot change between http and https while it runs",
            )),
            (Some(tls), Ok(Some((certificate, key)))) => {
                read(certificate).and_then(|certificate| {
                    tls.replace(&certificate, &read(key)?)
                        .map_err(config_failure)
                })
            }
        };
        match replaced {
            Ok(()) => tracing::info!("certificate read"),
            Err(failure) => tracing::error!(error = %failure, "the old certificate stays"),
        }
    }
}

impl Files {
    fn read(config: &ServerConfig) -> Files {
        let optional = |path: &Option<_>| path.as_deref().and_then(|path| std::fs::read(path).ok());
        Files {
            keys: std::fs::read(&config.keys_file).ok(),
            certificate: optional(&config.tls_cert),
            key: optional(&config.tls_key),
        }
    }
}

/// Returns the files of certificate and key; one without the other is a mistake.
fn pair(config: &ServerConfig) -> Result<Option<(&Path, &Path)>, Failure> {
    let missing = |there: &str, missing: &str| {
        Failure::new(
            Code::Config,
            format!("{there} is set, and {missing} is not"),
        )
        .hint("https needs a certificate and its key")
    };
    match (&config.tls_cert, &config.tls_key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (Some(_), None) => Err(missing("LLMSRV_TLS_CERT", "LLMSRV_TLS_KEY")),
        (None, Some(_)) => Err(missing("LLMSRV_TLS_KEY", "LLMSRV_TLS_CERT")),
        (None, None) if config.host.tls => Err(Failure::new(
            Code::Config,
            format!(
                "the address {} says https, but there is no certificate",
                config.host
            ),
        )
        .hint("set LLMSRV_TLS_CERT and LLMSRV_TLS_KEY, or leave `https://` out")),
        (None, None) => Ok(None),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .with_context(|| format!("cannot read {}", path.display()))
        .map_err(config_failure)
}

fn config_failure(error: impl Into<anyhow::Error>) -> Failure {
    Failure {
        code: Code::Config,
        error: error.into(),
        hint: None,
    }
}
