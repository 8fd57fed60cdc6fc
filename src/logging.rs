//! Where log lines go and which are written.

use llmsrv_config::{Config, ServerConfig, Verbosity};
use tracing_subscriber::EnvFilter;

use crate::{
    failure::{Code, Failure},
    term,
};

/// What kind of command logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A server: its log is what operators read.
    Server,
    /// A command: only errors, unless more is asked for.
    Command,
}

/// Changes which lines are written while the program runs.
pub struct Control(Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl Control {
    /// Takes up the log settings of a server.
    pub fn set(&self, server: &ServerConfig) -> Result<(), Failure> {
        let filter = filter(server, Style::Server)?;
        self.0(filter).map_err(|error| Failure::new(Code::Failed, error))
    }
}

/// Starts logging to stderr.
pub fn start(config: &Config, style: Style) -> Result<Control, Failure> {
    let server = &config.server;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(server, style)?)
        .with_writer(std::io::stderr)
        // A terminal that went away is no reason to panic.
        .log_internal_errors(false)
        .with_ansi(term::stderr_has_color());
    Ok(if server.log_json {
        let builder = builder.json().with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Control(Box::new(move |filter| {
            handle.reload(filter).map_err(|error| error.to_string())
        }))
    } else {
        let builder = builder.with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        Control(Box::new(move |filter| {
            handle.reload(filter).map_err(|error| error.to_string())
        }))
    })
}

fn filter(server: &ServerConfig, style: Style) -> Result<EnvFilter, Failure> {
    let filter = match (&server.log, server.verbosity, style) {
        (Some(filter), _, _) => filter.as_str(),
        (None, Verbosity::Trace, _) => "info,llmsrv=trace",
        (None, Verbosity::Debug, _) => "info,llmsrv=debug",
        (None, Verbosity::Info, Style::Server) => "warn,llmsrv=info",
        (None, Verbosity::Info, Style::Command) => "off",
    };
    EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(
            Code::Config,
            format!("LLMSRV_LOG: `{filter}` is no log filter: {error}"),
        )
    })
}
