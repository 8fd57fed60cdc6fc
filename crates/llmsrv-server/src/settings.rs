//! The settings of a server, and those that can be replaced while it runs.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use llmsrv_api::catalogue::Catalogue;
use llmsrv_config::ServerConfig;
use llmsrv_engine::{LoadError, LoadOptions, Plan, Speculation};
use llmsrv_store::ModelName;
use tokio::sync::watch;

use crate::{
    keys::Keys,
    rate::Limiter,
    upstream::{Upstream, Upstreams},
};

/// Everything that can be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings of the table; those that need more than their text are in the fields below.
    pub config: ServerConfig,
    /// Keys of which every request must carry one.
    pub keys: Keys,
    /// How models are loaded.
    pub load: LoadOptions,
    /// The GPUs that they are loaded to; what it is when the server starts counts. `None` = there are none.
    pub gpus: Option<Gpus>,
    /// Why models are loaded for the CPU, where the machine has a GPU that nobody forbade. What it is when the server
    /// starts counts.
    pub without_gpus: Option<String>,
    /// Speculative decoding.
    pub speculation: Speculation,
    /// Draft models.
    pub draft_models: Vec<DraftModel>,
    /// What `/api/version` reports.
    pub version: String,
    /// Only this machine can connect.
    pub listens_on_loopback: bool,
    /// How registries are used.
    pub registry: llmsrv_registry::Settings,
    /// Servers that answer for some models.
    pub upstreams: Vec<Upstream>,
    /// What `/api/catalogue` lists; `None` = nothing.
    pub catalogue: Option<CatalogueSource>,
}

/// The GPUs that models are loaded to.
#[derive(Clone, Debug)]
pub struct Gpus {
    /// Bytes of each that models may take.
    pub memory: Vec<u64>,
    /// Shares a model out.
    pub plan: Planner,
    /// Nobody asked for them: what they cannot do, the CPU does.
    pub automatic: bool,
}

/// Says what of the model of a file lies on GPUs with so many bytes, and what it takes there and in the memory of the
/// machine. The last argument is the tokens whose keys and values are to fit, of those that a model was trained for.
pub type Planner =
    fn(&Path, &LoadOptions, &[u64], &dyn Fn(usize) -> usize) -> Result<Plan, LoadError>;

/// Makes the list of models that can be pulled. It may measure the machine for a moment.
#[derive(Clone)]
pub struct CatalogueSource(Arc<dyn Fn() -> Catalogue + Send + Sync>);

impl CatalogueSource {
    /// Takes what makes the list.
    pub fn new(make: impl Fn() -> Catalogue + Send + Sync + 'static) -> CatalogueSource {
        CatalogueSource(Arc::new(make))
    }

    pub(crate) fn list(&self) -> Catalogue {
        (self.0)()
    }
}

impl fmt::Debug for CatalogueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CatalogueSource")
    }
}

impl Default for Settings {
    /// Those of a server for this machine alone.
    fn default() -> Settings {
        Settings {
            config: ServerConfig::default(),
            keys: Keys::default(),
            load: LoadOptions::default(),
            gpus: None,
            without_gpus: None,
            speculation: Speculation::Auto,
            draft_models: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listens_on_loopback: true,
            registry: llmsrv_registry::Settings::default(),
            upstreams: Vec::new(),
            catalogue: None,
        }
    }
}

impl Settings {
    /// Returns how many requests one model answers at the same time. They are computed together over
    /// shared memory, so more than one costs nothing until it is used.
    pub(crate) fn parallel(&self) -> usize {
        match self.config.num_parallel {
            0 => DEFAULT_PARALLEL,
            parallel => parallel,
        }
    }

    /// Returns the context in tokens for what a request asks; `otherwise` where neither it nor a
    /// setting says.
    pub(crate) fn context(&self, asked: Option<i64>, otherwise: usize) -> usize {
        let default = match self.config.context_length {
            0 => otherwise,
            length => length,
        };
        let asked = asked
            .filter(|asked| *asked > 0)
            .and_then(|asked| usize::try_from(asked).ok());
        asked.unwrap_or(default).max(MIN_CONTEXT)
    }

    /// Returns the tokens for which a model has memory from the moment it is loaded; more is taken
    /// when a prompt needs it.
    pub(crate) fn reserved_context(&self) -> usize {
        self.context(None, DEFAULT_CONTEXT)
    }
}

/// A draft model, written `DRAFT` or `MODEL=DRAFT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftModel {
    /// The model it drafts for; `None` = every one with the same vocabulary.
    pub of: Option<ModelName>,
    /// The small model.
    pub name: ModelName,
}

impl FromStr for DraftModel {
    type Err = String;

    fn from_str(text: &str) -> Result<DraftModel, String> {
        let name = |name: &str| {
            name.trim().parse::<ModelName>().map_err(|_| {
                format!("'{name}' is no model name; write DRAFT, or MODEL=DRAFT for one model")
            })
        };
        Ok(match text.split_once('=') {
            Some((of, draft)) => DraftModel {
                of: Some(name(of)?),
                name: name(draft)?,
            },
            None => DraftModel {
                of: None,
                name: name(text)?,
            },
        })
    }
}

/// What can be replaced while the server runs.
pub(crate) struct ReloadableSettings {
    settings: ArcSwap<Settings>,
    limiter: ArcSwapOption<Limiter>,
    /// Told to those who check their health.
    upstreams: watch::Sender<Arc<Upstreams>>,
}

impl ReloadableSettings {
    pub(crate) fn new(settings: Settings) -> ReloadableSettings {
        let limiter = settings.config.rate_limit.map(Limiter::new).map(Arc::new);
        let upstreams = Upstreams::new(&settings.upstreams, &Upstreams::default());
        ReloadableSettings {
            upstreams: watch::Sender::new(Arc::new(upstreams)),
            settings: ArcSwap::from_pointee(settings),
            limiter: ArcSwapOption::new(limiter),
        }
    }

    /// Returns the settings that hold now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Returns the servers that answer for models now.
    pub(crate) fn upstreams(&self) -> watch::Receiver<Arc<Upstreams>> {
        self.upstreams.subscribe()
    }

    /// Returns what counts requests, if anything does.
    pub(crate) fn limiter(&self) -> Option<Arc<Limiter>> {
        self.limiter.load_full()
    }

    /// Replaces them. A limit that stays the same goes on counting.
    pub(crate) fn replace(&self, settings: Settings) {
        let rate = settings.config.rate_limit;
        if settings.upstreams != self.settings().upstreams {
            let upstreams = Upstreams::new(&settings.upstreams, &self.upstreams.borrow());
            self.upstreams.send_replace(Arc::new(upstreams));
        }
        self.settings.store(Arc::new(settings));
        if rate != self.limiter().map(|limiter| limiter.rate) {
            let limiter = rate.map(Limiter::new).map(Arc::new);
            self.limiter.store(limiter);
        }
    }
}

/// What Ollama gives every model on a machine without a large GPU.
const DEFAULT_CONTEXT: usize = 4096;
const MIN_CONTEXT: usize = 4;
const DEFAULT_PARALLEL: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_are_named_for_all_or_for_one() {
        let parse = |text: &str| text.parse::<DraftModel>();
        let name = |text: &str| text.parse::<ModelName>().unwrap();
        assert_eq!(
            parse("small:1b").unwrap(),
            DraftModel {
                of: None,
                name: name("small:1b")
            }
        );
        assert_eq!(
            parse("big = small").unwrap(),
            DraftModel {
                of: Some(name("big")),
                name: name("small")
            }
        );
        for wrong in ["", "=small", "big=", "a=b=c"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
