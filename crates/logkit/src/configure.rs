//! A logger from settings.

use std::{io::IsTerminal, path::Path};

use llmsrv_config::{Inputs, LogkitConfig, Request};

use crate::{
    Builder, ConsoleSink, ConsoleTime, Durability, InjectionScanner, Level, Logger, OnFull, Tags,
    lock::Mutex,
    logger::default::set_default_logger,
    spec::{self, Options, SpecError},
    stderr::notice,
};
#[cfg(feature = "llm")]
use crate::{LlmOptions, LlmServers, LlmSink};

/// What the program itself says; settings win where they say something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Name of the logger.
    pub name: String,
    /// Where entries go unless settings say so; `None` or nothing = the console only.
    pub sinks: Option<Vec<String>>,
    /// Environment of all entries, such as `production`; `None` = detected.
    pub environment: Option<String>,
    /// Version of the program in all entries; `None` = what the environment says, else empty.
    pub version: Option<String>,
    /// Take the commit that git has checked out as the version, unless something else says it.
    pub git: bool,
    /// Write a line on the console too if there are sinks.
    pub console: bool,
    /// Replace the logger of an earlier call.
    pub force: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            name: "logkit".into(),
            sinks: None,
            environment: None,
            version: None,
            git: false,
            console: true,
            force: false,
        }
    }
}

/// Makes the logger that the settings describe, and the default logger of it. A second call returns
/// the same logger unless `force` is set, which flushes and closes the one before.
///
/// A sink that cannot be opened is told on stderr and left out.
///
/// # Errors
///
/// A specification makes no sense ([`SpecError::Invalid`], [`SpecError::Unknown`],
/// [`SpecError::BadOption`]) or needs what this build lacks ([`SpecError::NotBuilt`]). Nothing is
/// changed then.
pub fn configure(config: &LogkitConfig, setup: Setup) -> Result<Logger, SpecError> {
    static MADE: Mutex<Option<Logger>> = Mutex::new(None);
    let mut made = MADE.lock();
    if let Some(logger) = &*made
        && !setup.force
    {
        return Ok(logger.clone());
    }
    let logger = build(config, &setup)?;
    if let Some(before) = made.replace(logger.clone()) {
        before.close();
    }
    set_default_logger(logger.clone());
    Ok(logger)
}

/// The logger that the settings describe; it is nobody's default. A sink that cannot be opened is
/// told on stderr and left out.
///
/// # Errors
///
/// As [`configure()`].
pub fn build(config: &LogkitConfig, setup: &Setup) -> Result<Logger, SpecError> {
    let (again, setup_again) = (config.clone(), setup.clone());
    let builder = describe(config, setup)?.after_fork(move || {
        // It made sense before, so it does now.
        describe(&again, &setup_again).unwrap_or_default()
    });
    Ok(builder.build())
}

fn describe(config: &LogkitConfig, setup: &Setup) -> Result<Builder, SpecError> {
    let durability = Durability::parse(&config.durability).unwrap_or_default();
    let said = |what: &str| config.console_time.iter().any(|word| word == what);
    let time = ConsoleTime {
        millis: said("ms"),
        utc: said("utc"),
    };
    let options = Options {
        durability,
        time,
        webhook_format: config.webhook_format.clone(),
        api_key: config.api_key.as_ref().map(|key| key.expose().to_owned()),
        safe_formulas: false,
    };
    let specs = match &setup.sinks {
        Some(specs) => specs,
        None => &config.sinks,
    };
    let mut builder = Logger::builder()
        .name(&setup.name)
        .level(Level::parse(&config.level))
        .queue(config.queue, crate::logger::MAX_BYTES)
        .on_full(
            config
                .on_full
                .as_deref()
                .and_then(OnFull::parse)
                .unwrap_or_default(),
        )
        .durability(durability)
        .tags(setup.tags(config));
    if !config.redact {
        builder = builder.redactor(None);
    }
    if let Some(path) = specs.iter().find_map(|spec| spec::file_of(spec)) {
        builder = builder.journal(format!("{path}.crash"));
    }
    let mut n_sinks = 0;
    // Settings of their own name two more sinks.
    let webhook = config
        .webhook_url
        .as_ref()
        .map(|url| format!("webhook:{}", url.expose()));
    let metrics = config.metrics_port.map(|port| format!("metrics:{port}"));
    for spec in specs.iter().chain(&webhook).chain(&metrics) {
        match spec::open(spec, &options) {
            Ok(sink) => {
                builder = builder.sink(sink);
                n_sinks += 1;
            }
            Err(SpecError::Open { spec, source }) => notice(&format!("{spec}: {source}")),
            Err(error) => return Err(error),
        }
    }
    builder = with_model(builder, config);
    if config.detect_injection && config.llm_model.is_none() {
        builder = builder.wrap(|sink| Box::new(InjectionScanner::new(sink)));
    }
    if setup.console || n_sinks == 0 {
        let colors = std::io::stderr().is_terminal() && !config.ambient.no_color;
        builder = builder.console(ConsoleSink::stderr().time(time).colors(colors));
    }
    Ok(builder)
}

/// Lets a model explain errors, if one is set.
#[cfg(feature = "llm")]
pub fn with_model(builder: Builder, config: &LogkitConfig) -> Builder {
    let Some(model) = &config.llm_model else {
        return builder;
    };
    let models = &config.ambient.models;
    let exposed = |secret: &Option<llmsrv_config::Secret>| {
        secret.as_ref().map(|secret| secret.expose().to_owned())
    };
    let servers = LlmServers {
        local: models.local.clone(),
        openai: exposed(&models.openai),
        openai_key: exposed(&models.openai_key),
        anthropic: exposed(&models.anthropic),
        anthropic_key: exposed(&models.anthropic_key),
    };
    let options = LlmOptions::new(model, servers);
    builder.wrap(move |sink| Box::new(LlmSink::new(options, sink)))
}

/// Lets a model explain errors, if one is set.
#[cfg(not(feature = "llm"))]
pub fn with_model(builder: Builder, config: &LogkitConfig) -> Builder {
    if config.llm_model.is_some() {
        notice("no model explains errors: this build lacks the feature 'llm'");
    }
    builder
}

impl Setup {
    /// The tags of all entries: settings, else what is said here, else what the surroundings say.
    pub fn tags(&self, config: &LogkitConfig) -> Tags {
        let pick = |setting: &Option<String>, argument: &Option<String>| {
            setting
                .clone()
                .or_else(|| argument.clone())
                .unwrap_or_default()
        };
        let tags = Tags::new(
            &pick(&config.env, &self.environment),
            config.trace_id.as_deref().unwrap_or_default(),
            &pick(&config.version, &self.version),
        )
        .or(Tags::detected(&config.ambient));
        if self.git { tags.git() } else { tags }
    }
}

/// The settings of this process: its environment, the settings file, and with `env_file` a file of
/// `NAME=value` lines, which must exist and ranks below the environment.
///
/// # Errors
///
/// Every mistake that was found: a file that must exist and cannot be read, and settings that are
/// unknown or have no valid value.
pub fn load_env(env_file: Option<&Path>) -> Result<LogkitConfig, llmsrv_config::Errors> {
    let inputs = Inputs::from_process(Request {
        env_file: env_file.map(Path::to_owned),
        ..Request::default()
    })?;
    Ok(llmsrv_config::load(&inputs)?.config.logkit)
}
