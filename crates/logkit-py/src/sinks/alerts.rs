//! Alerts to chat services.

use logkit::{WebhookFormat, WebhookOptions};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WebhookSink>()
}

/// Announces entries of some levels with a POST request; every entry goes to `delegate`.
///
/// `format` is `"slack"`, `"discord"`, `"teams"` or `"raw"`. Alerts wait in a queue, are tried again if
/// the service is away, and equal ones are sent once a minute at most. Nothing tells the address.
#[pyclass(name = "WebhookSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct WebhookSink;

#[pymethods]
impl WebhookSink {
    #[new]
    #[pyo3(signature = (url, delegate = None, levels = None, headers = None, timeout = 5.0, format = "slack"))]
    fn new(
        py: Python<'_>,
        url: String,
        delegate: Option<Bound<'_, PyAny>>,
        levels: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
        timeout: f64,
        format: &str,
    ) -> PyResult<PyClassInitializer<WebhookSink>> {
        let Some(format) = WebhookFormat::parse(format) else {
            return Err(PyValueError::new_err(format!(
                "format is 'slack', 'discord', 'teams' or 'raw', not '{format}'"
            )));
        };
        let mut options = WebhookOptions {
            timeout: given::seconds("timeout", timeout)?,
            format: Some(format),
            ..WebhookOptions::default()
        };
        if let Some(levels) = levels {
            options.levels = given::levels(levels)?;
        }
        if let Some(headers) = headers {
            options.headers = given::headers(headers)?;
        }
        WebhookSink::draft(url, options, delegate)?.make(py, WebhookSink)
    }
}

impl WebhookSink {
    pub(super) fn draft(
        url: String,
        options: WebhookOptions,
        delegate: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Draft<'_>> {
        let traits = Traits {
            polls: true,
            ..Traits::default()
        };
        let child = given::delegate(delegate.as_ref())?;
        let (traits, recipe) = given::with_delegate(traits, child.as_ref(), move |_| {
            Ok(Made::new(logkit::WebhookSink::new(&url, options.clone())?))
        });
        Ok(Draft {
            name: "webhook",
            // The address is a secret.
            about: "…".to_owned(),
            delegate,
            traits,
            recipe,
            is_eager: true,
        })
    }
}
