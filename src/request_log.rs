//! The request log as entries of the call logger: the server half says in `tracing` events what it
//! answered, the logging half stores it, and neither knows of the other.

use llmsrv_config::{Config, LogkitConfig};
use logkit::Logger;
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use crate::failure::{Code, Failure};

/// Where the server writes a line for each request.
const TARGET: &str = "llmsrv::request";

/// Opens the sinks of the settings; `None` if there are none. The logger has to be closed at the end.
pub fn open(config: &Config) -> Result<Option<Logger>, Failure> {
    let specs = &config.server.request_log;
    if specs.is_empty() {
        return Ok(None);
    }
    let wrong = |error| Failure::new(Code::Config, format!("LLMSRV_REQUEST_LOG: {error}"));
    let logkit = LogkitConfig {
        sinks: specs.clone(),
        // What the user's own programs announce, explain and count is another matter; a model
        // asked about a request would be one more request.
        webhook_url: None,
        llm_model: None,
        metrics_port: None,
        ..config.logkit.clone()
    };
    let setup = logkit::Setup {
        name: "llmsrv".to_owned(),
        console: false,
        ..logkit::Setup::default()
    };
    Ok(Some(logkit::build(&logkit, &setup).map_err(wrong)?))
}

/// Hands the lines about requests to a logger, and nothing else.
pub fn layer<S>(logger: Logger) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // Probes are told at a lower level; they come all the time and say nothing.
    logkit::tracing_layer(logger).with_filter(filter_fn(|metadata| {
        metadata.target() == TARGET && *metadata.level() <= tracing::Level::INFO
    }))
}
