//! ONNX Runtime: its library, the processor that computes, and models that are loaded to it.

use std::path::{Path, PathBuf};

use ort::{
    environment::Environment,
    ep,
    session::{Session as OrtSession, builder::SessionBuilder},
    value::{DynValue, Tensor},
};
use parking_lot::Mutex;

use crate::{Error, Processor, Value};

/// The library of ONNX Runtime with one processor.
#[derive(Clone)]
pub struct Runtime {
    environment: Environment,
    processor: Processor,
    n_threads: Option<usize>,
    cache: Option<PathBuf>,
}

/// The one environment that a process may have, and the library that it is of.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

impl Runtime {
    /// Loads the library. A process can have one of them; a second name for it is refused.
    ///
    /// # Errors
    ///
    /// [`Error::Runtime`] if it is no library of ONNX Runtime, too old, or another one was loaded before.
    pub fn load(library: &Path, processor: Processor) -> Result<Runtime, Error> {
        let mut loaded = LOADED.lock();
        let environment = match &*loaded {
            Some((known, environment)) if known == library => environment.clone(),
            Some((known, _)) => {
                let why = format!("{} is loaded already", known.display());
                return Err(Error::Runtime("loading ONNX Runtime", why));
            }
            None => {
                let environment = ort::init_from(library)
                    .map_err(failed("loading ONNX Runtime"))?
                    .with_name("llmsrv")
                    .with_telemetry(false)
                    .build()
                    .map_err(failed("starting ONNX Runtime"))?;
                *loaded = Some((library.to_owned(), environment.clone()));
                environment
            }
        };
        Ok(Runtime {
            environment,
            processor,
            n_threads: None,
            cache: None,
        })
    }

    /// Lets so many threads compute what the CPU computes; 0 = as the library chooses.
    #[must_use]
    pub fn with_threads(self, n_threads: usize) -> Runtime {
        let n_threads = Some(n_threads).filter(|n| *n > 0);
        Runtime { n_threads, ..self }
    }

    /// Lets providers keep compiled models in a folder, so that a model of before is there at once.
    #[must_use]
    pub fn with_cache(self, folder: Option<PathBuf>) -> Runtime {
        Runtime {
            cache: folder,
            ..self
        }
    }

    /// Loads a model, which [`crate::Graph::to_bytes`] has made.
    ///
    /// # Errors
    ///
    /// [`Error::Runtime`] if the provider is missing in the library, finds no device, or cannot compute all of the model.
    pub fn session(&self, model: &[u8]) -> Result<Session, Error> {
        let session = self
            .builder()?
            .commit_from_memory(model)
            .map_err(failed("loading the model"))?;
        Ok(Session { session })
    }

    /// Prepares for a model. With another processor than the CPU, the CPU does nothing: a model that would need it is
    /// refused.
    pub(crate) fn builder(&self) -> Result<SessionBuilder, Error> {
        let cache = || self.cache.as_ref().map(|folder| folder.display());
        let provider = match self.processor {
            Processor::Cpu => None,
            Processor::OpenVino => {
                let mut provider = ep::OpenVINO::default().with_device_type("NPU");
                if let Some(folder) = cache() {
                    provider = provider.with_cache_dir(folder);
                }
                Some(provider.build())
            }
            Processor::Vitis => {
                let mut provider = ep::Vitis::default();
                if let Some(folder) = cache() {
                    provider = provider.with_cache_dir(folder);
                }
                Some(provider.build())
            }
            Processor::Qnn => Some(
                ep::QNN::default()
                    .with_backend_path("libQnnHtp.so")
                    .with_htp_fp16_precision(true)
                    .build(),
            ),
        };
        let mut builder = OrtSession::builder(&self.environment).map_err(failed("a session"))?;
        if let Some(n_threads) = self.n_threads {
            builder = builder
                .with_intra_threads(n_threads)
                .map_err(|error| failed("a session")(error))?;
        }
        if let Some(provider) = provider {
            builder = builder
                .with_execution_providers([provider.error_on_failure()])
                .map_err(|error| failed("the execution provider")(error))?
                .with_disable_cpu_fallback()
                .map_err(|error| failed("a session")(error))?;
        }
        Ok(builder)
    }
}

/// A model that is loaded.
pub struct Session {
    session: OrtSession,
}

impl Session {
    /// Computes the one output of a model of its inputs: each with its shape. `out` gets as many of the first elements
    /// as it has.
    ///
    /// # Errors
    ///
    /// [`Error::Runtime`] if the library refuses an input, fails, or gives fewer elements.
    pub fn run(
        &mut self,
        inputs: &[(Value, &[usize], &[f32])],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let given = inputs.iter().map(|(value, shape, values)| {
            let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
            let tensor = Tensor::from_array((shape, values.to_vec()));
            let tensor = tensor.map_err(failed("an input"))?;
            Ok((value.name(), tensor.into_dyn()))
        });
        let given: Vec<(String, DynValue)> = given.collect::<Result<_, Error>>()?;
        let outputs = self
            .session
            .run(given)
            .map_err(failed("running the model"))?;
        let (_, values) = outputs
            .values()
            .next()
            .map(|value| {
                value
                    .try_extract_tensor::<f32>()
                    .map(|(shape, values)| (shape.clone(), values.to_vec()))
            })
            .ok_or_else(|| Error::Runtime("running the model", "it has no output".into()))?
            .map_err(failed("the output"))?;
        let first = values.get(..out.len()).ok_or_else(|| {
            Error::Runtime("the output", "it has fewer elements than its shape".into())
        })?;
        out.copy_from_slice(first);
        Ok(())
    }
}

pub(crate) fn failed<E: std::fmt::Display>(doing: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::Runtime(doing, error.to_string())
}
