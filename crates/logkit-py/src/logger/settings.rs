//! How the native logger below a Python one is made, and made again in a forked process.

use std::sync::Arc;

use llmsrv_config::{Inputs, LogkitConfig, Request};
use logkit::{
    Builder, ConsoleTime, Durability, InjectionScanner, Level, OnFull, Redactor, SpanId, Tags, spec,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyString};

use super::console::NativeConsole;
use crate::redaction::Redaction;

/// Memory that waiting entries may take.
const MAX_BYTES: usize = 64 << 20;

/// All that is said of a logger but its sinks.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) level: Level,
    pub(super) propagate: bool,
    /// Lines on stderr.
    pub(super) console: bool,
    pub(super) redaction: Redaction,
    pub(super) binary_meta: bool,
    pub(super) queue: usize,
    pub(super) on_full: OnFull,
    pub(super) durability: Durability,
    pub(super) tags: Tags,
    pub(super) root: Option<SpanId>,
    pub(super) native_console: NativeConsole,
    /// Wraps all native sinks: a model explains errors, or arguments are scanned.
    pub(super) wrap: Option<Arc<LogkitConfig>>,
}

impl Settings {
    /// What holds unless something else is said: the policies are those of the process.
    pub(super) fn new(name: &str, level: Level) -> Settings {
        let config = of_process();
        let mut settings = Settings {
            name: name.to_owned(),
            level,
            propagate: true,
            console: true,
            redaction: Redaction {
                redactor: Some(Redactor::shared()),
                judge: None,
            },
            binary_meta: false,
            queue: 65_536,
            on_full: OnFull::default(),
            durability: Durability::default(),
            tags: Tags::default(),
            root: None,
            native_console: NativeConsole::new(ConsoleTime::default(), true),
            wrap: None,
        };
        if let Some(config) = config {
            settings.read(&config);
        }
        settings
    }

    /// Takes over the settings of the process, but for the level, the sinks and the tags.
    pub(super) fn read(&mut self, config: &LogkitConfig) {
        self.queue = config.queue;
        self.on_full = config
            .on_full
            .as_deref()
            .and_then(OnFull::parse)
            .unwrap_or_default();
        self.durability = Durability::parse(&config.durability).unwrap_or_default();
        self.root = config.parent_id.as_deref().and_then(|id| id.parse().ok());
        if !config.redact {
            self.redaction = Redaction::OFF;
        }
        let said = |what: &str| config.console_time.iter().any(|word| word == what);
        let time = ConsoleTime {
            millis: said("ms"),
            utc: said("utc"),
        };
        self.native_console = NativeConsole::new(time, config.ambient.no_color);
    }

    /// Takes over what arguments say.
    pub(super) fn policies(
        &mut self,
        on_full: Option<&str>,
        durability: Option<&str>,
        queue: Option<usize>,
    ) -> PyResult<()> {
        if let Some(name) = on_full {
            self.on_full = OnFull::parse(name)
                .ok_or_else(|| wrong("on_full", name, "block, drop_new or drop_old"))?;
        }
        if let Some(name) = durability {
            self.durability = Durability::parse(name)
                .ok_or_else(|| wrong("durability", name, "buffered, crash, sync or full"))?;
        }
        if let Some(queue) = queue {
            self.queue = queue;
        }
        Ok(())
    }

    /// Describes the native logger, without its sinks.
    pub(super) fn describe(&self, journal: Option<String>) -> Builder {
        let mut builder = logkit::Logger::builder()
            .name(&self.name)
            .level(self.level.clone())
            .queue(self.queue, MAX_BYTES)
            .on_full(self.on_full)
            .durability(self.durability)
            .tags(self.tags.clone())
            .redactor(self.redaction.redactor.as_deref().cloned());
        if let Some(prefix) = journal {
            builder = builder.journal(prefix);
        }
        if let Some(config) = &self.wrap {
            builder = logkit::with_model(builder, config);
            if config.detect_injection && config.llm_model.is_none() {
                builder = builder.wrap(|sink| Box::new(InjectionScanner::new(sink)));
            }
        }
        if self.console {
            builder = builder.console(self.native_console.sink());
        }
        builder
    }

    /// Takes over what sinks want, where nothing else is said: when their entries are safe, and where those
    /// are kept that are not written yet. Returns the latter.
    pub(super) fn wishes(&mut self, sinks: &[Bound<'_, PyAny>]) -> Option<String> {
        let wishes: Vec<_> = sinks.iter().map(crate::sinks::wishes).collect();
        if self.durability == Durability::Buffered
            && let Some(durability) = wishes.iter().find_map(|(durability, _)| *durability)
        {
            self.durability = durability;
        }
        let wanted = self.durability == Durability::Crash;
        let file = wanted
            .then(|| wishes.into_iter().find_map(|(_, file)| file))
            .flatten()?;
        Some(format!("{}.crash", file.display()))
    }
}

fn wrong(name: &str, value: &str, right: &str) -> PyErr {
    PyValueError::new_err(format!("{name} is {right}, not '{value}'"))
}

/// `True` is what holds anyway, unless the settings of the process say something else.
pub(super) fn is_true(value: &Bound<'_, PyAny>) -> bool {
    value.extract::<bool>().unwrap_or(false)
}

/// Reads `repr` or `meta`.
pub(super) fn binary_meta(name: &str) -> PyResult<bool> {
    match name {
        "repr" => Ok(false),
        "meta" => Ok(true),
        other => Err(wrong("binary", other, "'repr' or 'meta'")),
    }
}

/// A sink, or the one that a text describes.
pub(super) fn sink_of<'py>(sink: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !sink.is_instance_of::<PyString>() {
        return Ok(sink.clone());
    }
    let native = sink.py().import("logkit._native")?;
    native.call_method1("sink_from_spec", (sink,))
}

/// What is wrong with a text that shall describe a sink.
pub(super) fn check(spec: &str) -> PyResult<()> {
    spec::check(spec).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The settings of the process; `None` if there is something wrong with them, which `configure` says.
fn of_process() -> Option<LogkitConfig> {
    let inputs = Inputs::from_process(Request::default()).ok()?;
    Some(llmsrv_config::load(&inputs).ok()?.config.logkit)
}
