//! The request log as entries of the call logger: the server half says in `tracing` events what it
//! answered, the logging half stores it, and neither knows of the other.

use std::fmt::Debug;

use llmsrv_config::{Config, LogkitConfig};
use logkit::{Entry, Level, Logger, repr};
use serde_json::{Map, Value, json};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

use crate::failure::{Code, Failure};

/// Where the server writes a line for each request.
const TARGET: &str = "llmsrv::request";

/// Turns the lines about requests into entries.
pub struct RequestLog(Logger);

impl RequestLog {
    /// Opens the sinks of the settings; `None` if there are none.
    pub fn open(config: &Config) -> Result<Option<RequestLog>, Failure> {
        let specs = &config.server.request_log;
        if specs.is_empty() {
            return Ok(None);
        }
        let wrong = |error| Failure::new(Code::Config, format!("LLMSRV_REQUEST_LOG: {error}"));
        let logkit = LogkitConfig {
            sinks: specs.clone(),
            // Requests are the server's business at every level.
            level: "debug".to_owned(),
            // An error of a request is no error of this program, and asking a model about it
            // would be one more request.
            llm_model: None,
            webhook_url: None,
            metrics_port: None,
            ..config.logkit.clone()
        };
        let setup = logkit::Setup {
            name: "llmsrv".to_owned(),
            console: false,
            ..logkit::Setup::default()
        };
        let logger = logkit::build(&logkit, &setup).map_err(wrong)?;
        Ok(Some(RequestLog(logger)))
    }
}

impl RequestLog {
    /// Returns the logger, which has to be closed when the server ends.
    pub fn logger(&self) -> Logger {
        self.0.clone()
    }

    /// Keeps everything else away, so that it costs nothing.
    pub fn filtered<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        // Probes are told at a lower level; they come all the time and say nothing.
        self.with_filter(filter_fn(|metadata| {
            metadata.target() == TARGET && *metadata.level() <= tracing::Level::INFO
        }))
    }
}

impl<S: Subscriber> Layer<S> for RequestLog {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.emit(entry(fields.0));
    }
}

/// A request as a call: the route is the function, the status what it returned.
fn entry(mut fields: Map<String, Value>) -> Entry {
    let mut text = |name: &str| match fields.remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (method, path) = (text("method"), text("path"));
    let status = fields.get("status").and_then(Value::as_u64).unwrap_or(0);
    let ms = fields.remove("ms").and_then(|ms| ms.as_f64());
    let mut entry = Entry {
        level: match status {
            500.. => Level::Error,
            400.. => Level::Warning,
            _ => Level::Info,
        },
        function_name: path.clone().into(),
        module: TARGET.into(),
        args: repr::repr_tuple(&[method.clone(), path]).into(),
        arg_types: "str, str".into(),
        return_value: status.to_string().into(),
        return_type: "int".into(),
        duration_ms: ms,
        extra: fields,
        ..Entry::default()
    };
    entry.extra.insert("method".into(), json!(method));
    if status >= 500 {
        entry.exception = format!("answered {status}").into();
        entry.exception_type = "HttpStatus".into();
    }
    entry
}

/// Collects the fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0
            .insert(field.name().to_owned(), json!(format!("{value:?}")));
    }
}
