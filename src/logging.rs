//! Where log lines go and which are written.

use llmsrv_config::{Config, Verbosity};
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

/// Starts logging to stderr.
pub fn start(config: &Config, style: Style) -> Result<(), Failure> {
    let server = &config.server;
    let filter = match (&server.log, server.verbosity, style) {
        (Some(filter), _, _) => filter.as_str(),
        (None, Verbosity::Trace, _) => "info,llmsrv=trace",
        (None, Verbosity::Debug, _) => "info,llmsrv=debug",
        (None, Verbosity::Info, Style::Server) => "warn,llmsrv=info",
        (None, Verbosity::Info, Style::Command) => "off",
    };
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(
            Code::Config,
            format!("LLMSRV_LOG: `{filter}` is no log filter: {error}"),
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(term::stderr_has_color());
    if server.log_json {
        builder.json().init();
    } else {
        builder.init();
    }
    Ok(())
}
