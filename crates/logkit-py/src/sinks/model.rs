//! A model explains errors.

use std::sync::Arc;

use llmsrv_config::Secret;
use logkit::{LlmOptions, LlmServers, OnAnalysis, Sink};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::live::{Action, later};
use super::{
    arguments as given,
    handle::{Made, Traits},
    native::{Draft, NativeSink},
    plain::Nothing,
};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LlmSink>()
}

/// Lets a model explain errors, and looks for prompt injections.
///
/// `model` is `"llmsrv/NAME"` or `"ollama/NAME"` (the local server, `LLMSRV_HOST`), `"anthropic/NAME"`,
/// `"openai/NAME"` or a bare name (`OPENAI_BASE_URL`). An entry whose level is in `analyze_levels` and
/// that has an exception goes to `delegate` at once, and its row in a database gets the answer later;
/// other sinks receive it with its answer, or without after `timeout` seconds. With `async_mode=False`
/// the entry waits for the answer. `on_analysis(entry, text)` is called with each answer. An entry in
/// which a prompt injection was found is marked, and shown to no model unless `analyze_injected` is set.
#[pyclass(name = "LLMSink", extends = NativeSink, frozen, subclass, module = "logkit._native")]
pub(crate) struct LlmSink;

/// Entries that may wait for an answer.
const HOLDS: usize = 4096;

#[pymethods]
impl LlmSink {
    #[new]
    #[pyo3(signature = (model, *, delegate = None, system_prompt = None, analyze_levels = None, on_analysis = None, async_mode = true, detect_injection = true, timeout = 30.0, max_tokens = 200, temperature = 0.3, analyze_injected = false))]
    fn new(
        py: Python<'_>,
        model: String,
        delegate: Option<Bound<'_, PyAny>>,
        system_prompt: Option<String>,
        analyze_levels: Option<&Bound<'_, PyAny>>,
        on_analysis: Option<Bound<'_, PyAny>>,
        async_mode: bool,
        detect_injection: bool,
        timeout: f64,
        max_tokens: i64,
        temperature: f64,
        analyze_injected: bool,
    ) -> PyResult<PyClassInitializer<LlmSink>> {
        let levels = analyze_levels.map(given::levels).transpose()?;
        let told = on_analysis
            .map(|told| given::function("on_analysis", told))
            .transpose()?;
        let timeout = given::seconds("timeout", timeout)?;
        let max_tokens = given::at_least("max_tokens", 1, max_tokens)?;
        let max_tokens = u32::try_from(max_tokens).unwrap_or(u32::MAX);
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(PyValueError::new_err(format!(
                "temperature is a number from 0 on, not {temperature}"
            )));
        }
        if model.trim().is_empty() && levels.as_ref().is_none_or(|levels| !levels.is_empty()) {
            return Err(PyValueError::new_err("model is empty"));
        }
        let servers = servers();
        let about = logkit::repr::repr_str(&model);
        let describe = move || LlmOptions {
            system_prompt: system_prompt.clone(),
            analyze_levels: levels.clone().unwrap_or_else(|| vec![logkit::Level::Error]),
            on_analysis: told.as_ref().map(teller),
            is_async: async_mode,
            detect_injection,
            analyze_injected,
            timeout,
            max_tokens,
            temperature,
            ..LlmOptions::new(&model, servers.clone())
        };
        let child = given::delegate(delegate.as_ref())?;
        let traits = Traits {
            polls: true,
            holds: HOLDS,
            ..Traits::default()
        };
        let traits = match &child {
            Some(child) => traits.and(&child.traits()),
            None => traits,
        };
        let draft = Draft {
            name: "llm",
            about,
            delegate,
            traits,
            recipe: Box::new(move |_| {
                let sink: Box<dyn Sink> = match &child {
                    Some(child) => child.sink(),
                    None => Box::new(Nothing),
                };
                Ok(Made::new(logkit::LlmSink::new(describe(), sink)))
            }),
            is_eager: false,
        };
        draft.make(py, LlmSink)
    }
}

/// Calls the Python function once no lock is held.
fn teller(told: &Arc<Py<PyAny>>) -> OnAnalysis {
    let told = Arc::clone(told);
    Box::new(move |entry, _text| {
        later(Action::Analysis {
            told: Arc::clone(&told),
            entry: Box::new(entry.clone()),
        });
    })
}

/// Where models are, as the environment says.
fn servers() -> LlmServers {
    let models = given::ambient().models;
    let exposed = |secret: Option<Secret>| secret.map(|secret| secret.expose().to_owned());
    LlmServers {
        local: models.local,
        openai: exposed(models.openai),
        openai_key: exposed(models.openai_key),
        anthropic: exposed(models.anthropic),
        anthropic_key: exposed(models.anthropic_key),
    }
}
