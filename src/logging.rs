//! Where log lines go and which are written.

use llmsrv_config::{Config, ServerConfig, Verbosity};
use logkit::Logger;
use tracing_subscriber::{
    EnvFilter, Layer, layer::SubscriberExt as _, registry::LookupSpan, reload,
    util::SubscriberInitExt as _,
};

use crate::{
    failure::{Code, Failure},
    request_log, term,
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
pub struct Control {
    set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
    requests: Option<Logger>,
}

impl Control {
    /// Takes up the log settings of a server.
    pub fn set(&self, server: &ServerConfig) -> Result<(), Failure> {
        let filter = filter(server, Style::Server)?;
        (self.set)(filter).map_err(Failure::failed)
    }

    /// Returns what stores requests, to be closed at the end of the program.
    pub fn requests(&self) -> Option<Logger> {
        self.requests.clone()
    }
}

/// Starts logging to stderr, and that of a server's requests where the settings say.
pub fn start(config: &Config, style: Style) -> Result<Control, Failure> {
    let server = &config.server;
    let (filter, handle) = reload::Layer::new(filter(server, style)?);
    let lines = lines(server.log_json());
    let requests = match style {
        Style::Server => request_log::open(config)?,
        Style::Command => None,
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(requests.clone().map(request_log::layer))
        .init();
    Ok(Control {
        set: Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string())),
        requests,
    })
}

/// Starts logging in a worker of a process whose filter is given.
pub fn start_worker(filter: &str, as_json: bool) -> Result<(), Failure> {
    let lines = lines(as_json).with_filter(parse(filter)?);
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}

/// Writes lines to stderr.
fn lines<S>(as_json: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // A terminal that went away is no reason to panic.
        .log_internal_errors(false)
        .with_ansi(term::stderr_has_color());
    if as_json {
        lines.json().boxed()
    } else {
        lines.boxed()
    }
}

fn filter(server: &ServerConfig, style: Style) -> Result<EnvFilter, Failure> {
    parse(filter_text(server, style))
}

/// Returns the filter of log lines as text.
pub fn filter_text(server: &ServerConfig, style: Style) -> &str {
    match (&server.log, server.debug, style) {
        (Some(filter), _, _) => filter.as_str(),
        (None, Verbosity::Trace, _) => "info,llmsrv=trace",
        (None, Verbosity::Debug, _) => "info,llmsrv=debug",
        (None, Verbosity::Info, Style::Server) => "warn,llmsrv=info",
        (None, Verbosity::Info, Style::Command) => "off",
    }
}

fn parse(filter: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(
            Code::Config,
            format!("LLMSRV_LOG: `{filter}` is not a log filter: {error}"),
        )
    })
}
