//! Sinks from text: `db:logs.db`, `csv:logs.csv?max_bytes=10m`.

use std::path::PathBuf;

use logkit::{
    ConsoleTime, Durability, OtlpOptions, SinkError, TerminalForm, WebhookFormat, WebhookOptions,
    spec::{self, Options, SpecError},
};
use pyo3::{PyClass, exceptions::PyValueError, prelude::*};

use super::{
    alerts::WebhookSink,
    arguments as given,
    files::{CsvSink, DbSink, JsonSink, MarkdownSink},
    handle::{Made, Traits},
    metrics::MetricsSink,
    native::{Draft, NativeSink, raised},
    plain::TerminalSink,
    remote::{OtlpSink, PostgresSink, RemoteSink, SyslogSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sink_from_spec, module)?)
}

/// The sink that a text such as `"db:logs.db"` describes. A `ValueError` says what is wrong with the
/// text, an `OSError` that its file cannot be opened.
#[pyfunction]
fn sink_from_spec<'py>(py: Python<'py>, spec: &str) -> PyResult<Bound<'py, PyAny>> {
    spec::check(spec).map_err(wrong)?;
    let settings = given::settings();
    let spec = spec.trim();
    // It was checked: what has no colon has no path either.
    let (kind, path) = spec.split_once(':').unwrap_or((spec, ""));
    let path = path.trim();
    match kind.trim().to_lowercase().as_str() {
        "db" | "sqlite" => file(py, "db", spec, |db_path| DbSink {
            db_path,
            table: "logs".to_owned(),
        }),
        "csv" => file(py, "csv", spec, |file_path| CsvSink { file_path }),
        "md" | "markdown" => file(py, "md", spec, |file_path| MarkdownSink { file_path }),
        "json" | "jsonl" => file(py, "json", spec, |file_path| JsonSink { file_path }),
        "metrics" | "prometheus" => {
            let options = spec::metrics_options(spec, path).map_err(wrong)?;
            object(py, MetricsSink::draft(options, None)?, MetricsSink)
        }
        "terminal" => {
            let form = TerminalForm::parse(path)
                .ok_or_else(|| wrong(SpecError::Invalid(spec.to_owned())))?;
            let about = logkit::repr::repr_str(path);
            object(py, TerminalSink::draft(py, form, about), TerminalSink)
        }
        "webhook" => {
            let named = settings.and_then(|settings| settings.webhook_format);
            let options = WebhookOptions {
                format: named.as_deref().and_then(WebhookFormat::parse),
                ..WebhookOptions::default()
            };
            let draft = WebhookSink::draft(path.to_owned(), options, None)?;
            object(py, draft, WebhookSink)
        }
        "otlp" => {
            let draft = OtlpSink::draft(path.to_owned(), OtlpOptions::default());
            object(py, draft, OtlpSink)
        }
        "postgres" | "postgresql" => object(py, PostgresSink::draft(spec.to_owned()), PostgresSink),
        "syslog" => {
            let path = match path {
                "" => logkit::SyslogSink::PATH,
                path => path,
            };
            let (draft, class) = SyslogSink::draft(py, path.into(), None)?;
            object(py, draft, class)
        }
        // The kind is the scheme of the address.
        _ => {
            let key = settings.and_then(|settings| settings.api_key);
            let key = key.map(|key| key.expose().to_owned());
            object(py, RemoteSink::draft(spec.to_owned(), key), RemoteSink)
        }
    }
}

fn object<'py, T>(py: Python<'py>, draft: Draft<'py>, class: T) -> PyResult<Bound<'py, PyAny>>
where
    T: PyClass<BaseType = NativeSink>,
{
    Bound::new(py, draft.make(py, class)?).map(Bound::into_any)
}

/// A sink with a file, whose options are in the text.
fn file<'py, T>(
    py: Python<'py>,
    name: &'static str,
    spec: &str,
    class: impl FnOnce(PathBuf) -> T,
) -> PyResult<Bound<'py, PyAny>>
where
    T: PyClass<BaseType = NativeSink>,
{
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let rest = rest.trim();
    // What follows a question mark may be options: the core knows.
    let (path, options) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
    let path = path.to_owned();
    let place = given::place(PathBuf::from(&path))?;
    let whole = format!("{kind}:{}{options}", place.display());
    let opening = Options {
        durability: durability(),
        time: ConsoleTime::default(),
        webhook_format: None,
        api_key: None,
        safe_formulas: false,
    };
    let draft = Draft {
        name,
        about: given::quoted(path.as_ref()),
        delegate: None,
        traits: Traits {
            database: (name == "db").then(|| place.clone()),
            file: Some(place),
            ..Traits::default()
        },
        recipe: Box::new(move |_| {
            let sink = spec::open(&whole, &opening).map_err(source)?;
            Ok(Made {
                sink,
                metrics: None,
            })
        }),
        is_eager: true,
    };
    object(py, draft, class(PathBuf::from(path)))
}

fn durability() -> Durability {
    let settings = given::settings();
    settings
        .and_then(|settings| Durability::parse(&settings.durability))
        .unwrap_or_default()
}

fn source(error: SpecError) -> SinkError {
    match error {
        SpecError::Open { source, .. } => source,
        error => SinkError::Other(error.to_string()),
    }
}

fn wrong(error: SpecError) -> PyErr {
    match error {
        SpecError::Open { source, .. } => raised(source),
        error => PyValueError::new_err(error.to_string()),
    }
}
