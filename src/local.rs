//! Putting the server together from its parts, and a server for this process alone.

use std::{ffi::OsString, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use llmsrv_config::{Config, Folders, Secret, ServerConfig, UpstreamConfig, keys::KeyFile};
use llmsrv_devices::{Sysroot, permissions};
use llmsrv_engine::{
    ActivationPrecision, GpuArithmetic, GpuOptions, LoadError, LoadOptions, Loaded, Loader, Model,
    Offload, Speculation,
};
use llmsrv_models::Companions;
use llmsrv_registry::Mirror;
use llmsrv_server::{ApiKey, App, DraftModel, Gpus, Keys, Settings, Upstream};
use llmsrv_store::{Digest, Layer, LayerKind, Manifest, ModelName, OpenOptions, Store};
use llmsrv_worker::{Launcher, Limits};
use rand::TryRngCore as _;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{
    about::VERSION,
    context::{Context, threads},
    embedded,
    failure::{Code, Failure},
    logging::{self, Style},
    machine,
    npu::{self, Missing},
};

/// What a command does with the folder of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only looks: nothing is written.
    Look,
    /// It works with the models there are. The usual folder is made, one that somebody named is
    /// not: its name may be mistyped.
    Use,
    /// It adds models: the folder is made.
    Add,
}

/// Fails where the folder of the models was named by somebody and is not there.
pub fn check_folder(context: &Context, access: Access) -> Result<(), Failure> {
    let folder = &context.config().server.models;
    if access == Access::Add || !context.is_set("LLMSRV_MODELS") || folder.is_dir() {
        return Ok(());
    }
    let text = format!("no such folder: {}", folder.display());
    Err(Failure::failed(text)
        .hint("--models or LLMSRV_MODELS names it; `llmsrv pull` and `llmsrv create` make one"))
}

/// Opens the store to look at it. Where there is none yet, the built-in model is shown from a
/// folder that is gone afterwards; in the usual folder, what an interrupted start left is completed.
fn look_at_store(context: &Context) -> Result<(Store, Option<TempDir>), Failure> {
    let config = &context.config().server;
    if config.models.is_dir() && !context.is_set("LLMSRV_MODELS") {
        return Ok((open_store(config, Prune::No)?, None));
    }
    if config.models.is_dir() {
        let mut options = options(config, Prune::No)?;
        options.look_only = true;
        let opened = Store::open(&config.models, options);
        return Ok((opened.with_context(|| unusable(config))?, None));
    }
    let folder = tempfile::tempdir()?;
    let config = ServerConfig {
        models: folder.path().to_owned(),
        ..config.clone()
    };
    Ok((open_store(&config, Prune::No)?, Some(folder)))
}

fn unusable(config: &ServerConfig) -> String {
    format!("cannot use the models folder {}", config.models.display())
}

/// Opens the store and puts the built-in model into it.
pub fn open_store(config: &ServerConfig, prune: Prune) -> Result<Store, Failure> {
    let store =
        Store::open(&config.models, options(config, prune)?).with_context(|| unusable(config))?;
    if !config.no_embedded {
        embedded::install(&store).map_err(|failure| failure.context(unusable(config)))?;
    }
    Ok(store)
}

fn options(config: &ServerConfig, prune: Prune) -> Result<OpenOptions, Failure> {
    let default_model = match &config.default_model {
        None => None,
        Some(name) => Some(name.parse::<ModelName>().map_err(|error| {
            Failure::new(Code::Config, format!("LLMSRV_DEFAULT_MODEL: {error}"))
        })?),
    };
    Ok(OpenOptions {
        fallback: config.models_fallback.clone(),
        prune: !config.noprune,
        prune_at_open: prune == Prune::Yes,
        default_model,
        look_only: false,
        read_facts: llmsrv_models::facts,
    })
}

/// Makes a store in `folder` with the file as its only model.
pub fn lend(folder: &Path, weights: &Path, name: &str) -> Result<Store, Failure> {
    let options = OpenOptions {
        read_facts: llmsrv_models::facts,
        ..OpenOptions::default()
    };
    let store = Store::open(folder, options)?;
    let size = weights.metadata()?.len();
    // The name of a blob that nobody else will see; reading all of a file takes long.
    let digest = Digest::of(format!("{} {size}", weights.display()).as_bytes());
    store.link_blob(weights, &digest)?;
    let layers = vec![Layer::new(LayerKind::Model, digest, size)];
    let config = store.put_config(&layers)?;
    let name: ModelName = name.parse()?;
    store.put_manifest(&name, &Manifest::new(config, layers).to_bytes())?;
    Ok(store)
}

/// Whether to look for files that no model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// A server does it when it starts.
    Yes,
    /// A command has no time for it.
    No,
}

/// Builds the server over a store.
pub fn app(settings: Settings, store: Store, workers: Launcher) -> App {
    let loader: Loader = Arc::new(move |path, options| load(&workers, path, options));
    App::new(settings, store, loader)
}

/// Loads a model: onto a GPU or an NPU in a process of its own, because drivers crash and hang.
fn load(workers: &Launcher, path: &Path, options: &LoadOptions) -> Result<Loaded, LoadError> {
    if options.npu.is_some() && llmsrv_models::is_encoder(path) {
        return load_encoder(workers, path, options);
    }
    if options.device != "vulkan" || options.offload.is_nothing() {
        return llmsrv_models::load(path, options);
    }
    with_companions(workers.load(path, options)?, path, options)
}

/// Loads an encoder onto the NPU, or else for the CPU.
fn load_encoder(
    workers: &Launcher,
    path: &Path,
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    let on = |device: &str| LoadOptions {
        device: device.to_owned(),
        ..options.clone()
    };
    match workers.load(path, &on("npu")) {
        Ok(model) => with_companions(model, path, options),
        Err(error) => {
            let provider = options.npu.as_ref().map(|npu| npu.provider.as_str());
            tracing::warn!(
                %error,
                provider,
                "the model is computed on the CPU, because the NPU cannot; \
                 `llmsrv testnpu` says whether it and ONNX Runtime work"
            );
            llmsrv_models::load(path, &on("cpu"))
        }
    }
}

/// Adds what stands beside a model that another process computes.
fn with_companions(
    model: Box<dyn Model>,
    path: &Path,
    options: &LoadOptions,
) -> Result<Loaded, LoadError> {
    let Companions { tokenizer, vision } = llmsrv_models::load_companions(path, options)?;
    Ok(Loaded {
        model,
        draft: None,
        tokenizer,
        vision,
    })
}

/// Returns what starts the processes that compute on a GPU.
pub fn workers(config: &ServerConfig, style: Style) -> Launcher {
    let mut arguments: Vec<OsString> = vec!["gpu-worker".into()];
    if config.log_json() {
        arguments.push("--log-json".into());
    }
    arguments.push("--".into());
    arguments.push(logging::filter_text(config, style).into());
    let limits = Limits {
        step: config.gpu_timeout,
        load: config.load_timeout,
    };
    // Of the very program that runs, also where its file was replaced since.
    Launcher::new("/proc/self/exe".into(), arguments, limits)
}

/// Collects the keys of the settings and of the keys file.
pub fn keys(config: &ServerConfig) -> Result<Keys, Failure> {
    let entries = KeyFile::new(&config.keys_file)
        .read()
        .map_err(|error| Failure {
            code: Code::Config,
            error: anyhow::Error::new(error).context("cannot use the keys file"),
            hint: Some("it says who may call the server: repair it, or remove it".to_owned()),
        })?;
    if entries.is_none() && config.api_keys.is_empty() {
        return Ok(Keys::default());
    }
    let from_file = entries.into_iter().flatten().map(|entry| ApiKey {
        name: entry.name.into(),
        role: entry.role,
        digest: entry.sha256,
    });
    let plain = config.api_keys.iter().map(Secret::expose);
    Ok(Keys::required(
        ApiKey::plain(plain).chain(from_file).collect(),
    ))
}

/// Reads the names of the models of the servers behind this one.
pub fn upstreams(configs: &[UpstreamConfig]) -> Result<Vec<Upstream>, Failure> {
    let upstream = |config: &UpstreamConfig| {
        Upstream::new(config.clone()).map_err(|error| {
            let place = format!("upstream.{}.models: {error}", config.name);
            Failure::new(Code::Config, place)
                .hint("give it a name of your own: models = { name = \"its name\" }")
        })
    };
    configs.iter().map(upstream).collect()
}

/// Says the settings in the server's own words.
pub fn settings(config: &Config, keys: Keys) -> Result<Settings, Failure> {
    let (upstreams, npu) = (upstreams(&config.upstreams)?, npu::find(config));
    let config = &config.server;
    Ok(Settings {
        keys,
        load: LoadOptions {
            kv_cache_type: config.kv_cache_type.clone(),
            n_threads: config.threads,
            device: config.device.clone(),
            gpu: gpu(config),
            offload: Offload {
                n_layers: usize::try_from(config.num_gpu).ok(),
                n_cpu_moe: config.num_cpu_moe,
                main_gpu: config.main_gpu,
                spread: config.sched_spread,
                split: None,
            },
            npu: npu.and_then(Result::ok),
            activation_precision: activation_precision(config),
            // Each model brings its own.
            projector: None,
            adapters: Vec::new(),
        },
        gpus: None,
        without_gpus: None,
        speculation: match config.speculation.as_str() {
            "off" => Speculation::Off,
            _ => Speculation::Auto,
        },
        draft_models: draft_models(&config.draft_models)?,
        version: config
            .version_string
            .clone()
            .unwrap_or_else(|| format!("0.33.0-llmsrv.{VERSION}")),
        listens_on_loopback: config.host.is_loopback(),
        registry: registry(config)?,
        upstreams,
        catalogue: Some(machine::source(threads(config))),
        config: config.clone(),
    })
}

/// Says how the CPU multiplies.
pub fn activation_precision(config: &ServerConfig) -> ActivationPrecision {
    match config.cpu_arithmetic.as_str() {
        "fast" => ActivationPrecision::Int8,
        "fine" => ActivationPrecision::Int16,
        "exact" => ActivationPrecision::F32,
        _ => ActivationPrecision::Auto,
    }
}

/// Says which GPUs models may be loaded to, and how they compute.
pub fn gpu(config: &ServerConfig) -> GpuOptions {
    GpuOptions {
        arithmetic: match config.gpu_arithmetic.as_str() {
            "int8" => GpuArithmetic::Int8,
            "exact" => GpuArithmetic::Exact,
            _ => GpuArithmetic::Auto,
        },
        vendor: config.vendor_gpu == Some(true),
        software: config.gpu_allow_software,
        leave_free_bytes: config.gpu_overhead,
        limit_bytes: config.gpu_memory_limit,
        visible: config.visible_gpus.clone(),
        nvidia: config.visible_nvidia_gpus.clone(),
        checked: Some(Folders::from_process().cache.join("gpu-drivers")),
    }
}

/// Gives models the memory of GPUs beside that of the machine: of those that were asked for, or, where nothing was said,
/// of those that read memory faster than the CPU. Warns if there is no NPU, where one was asked for.
pub fn use_accelerators(config: &Config, settings: &mut Settings, workers: &Launcher) {
    if settings.load.npu.is_none()
        && let Some(Err(Missing { what, hint })) = npu::find(config)
    {
        tracing::warn!(
            hint,
            "LLMSRV_NPU: models are computed without an NPU: {what}"
        );
    }
    let automatic = match settings.load.device.as_str() {
        "vulkan" => false,
        // Else no driver is touched.
        "auto" if settings.load.gpu.software || shows_gpu() => true,
        _ => return,
    };
    // A driver that hangs must not hold up a start for which nobody asked for it.
    let limit = config.server.load_timeout.unwrap_or(LONGEST_LOOK);
    let workers = if automatic {
        &workers.clone().with_limits(Limits {
            load: Some(limit.min(LONGEST_LOOK)),
            ..Limits::default()
        })
    } else {
        workers
    };
    let gpus = match workers.gpus(settings.load.gpu.clone()) {
        Ok(gpus) => gpus,
        Err(error) if !automatic => return tracing::warn!(%error, "no model can be loaded"),
        Err(error @ LoadError::GpuNotAllowed(_)) => {
            return tracing::info!(%error, "models are computed on the CPU");
        }
        Err(error) => {
            tracing::warn!(%error, "models are computed on the CPU");
            settings.without_gpus = Some(error.to_string());
            return;
        }
    };
    for gpu in &gpus {
        if let Some(limits) = &gpu.limits {
            let device = &gpu.name;
            tracing::info!(device, "what the GPU can do at most: {limits}");
        }
    }
    let limits = gpus.first().and_then(|gpu| gpu.limits);
    if automatic && limits.is_none_or(|limits| limits.is_slower()) {
        return tracing::info!(
            "models are computed on the CPU, since the GPU is not known to be faster; LLMSRV_GPU=1 takes it nevertheless"
        );
    }
    settings.gpus = Some(Gpus {
        memory: gpus.iter().map(|gpu| gpu.free_bytes).collect(),
        plan: llmsrv_models::plan,
        automatic,
    });
}

/// How long a start looks at GPUs that nobody asked for: services have to be ready after 90 seconds.
const LONGEST_LOOK: Duration = Duration::from_mins(1);

/// Tells whether the system shows a GPU, without asking a driver.
fn shows_gpu() -> bool {
    let nodes = permissions::nodes(&Sysroot::machine());
    nodes.iter().any(permissions::Node::is_gpu)
}

/// Reads the draft models.
fn draft_models(texts: &[String]) -> Result<Vec<DraftModel>, Failure> {
    let wrong = |error: String| Failure::new(Code::Config, format!("LLMSRV_DRAFT_MODEL: {error}"));
    texts
        .iter()
        .map(|text| text.parse().map_err(wrong))
        .collect()
}

/// Says how registries are used.
pub fn registry(config: &ServerConfig) -> Result<llmsrv_registry::Settings, Failure> {
    let wrong = |name: &str, error: String| Failure::new(Code::Config, format!("{name}: {error}"));
    let mirrors: Result<Vec<Mirror>, String> =
        config.mirrors.iter().map(|text| text.parse()).collect();
    let hub: Result<Mirror, String> = format!("hf.co={}", config.hf_endpoint).parse();
    Ok(llmsrv_registry::Settings {
        allowed: config.registries.clone(),
        mirrors: mirrors.map_err(|error| wrong("LLMSRV_MIRRORS", error))?,
        key_files: config.registry_keys.clone(),
        hub_url: hub.map_err(|error| wrong("LLMSRV_HF_ENDPOINT", error))?.url,
        hub_token: config
            .hf_token
            .as_ref()
            .map(|token| token.expose().to_owned()),
        refusal: Some(llmsrv_models::refusal),
        ..llmsrv_registry::Settings::default()
    })
}

/// A server inside this process, on a free loopback port, with a key that nobody else knows.
pub struct Local {
    url: String,
    key: String,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    /// Store of a command that only looks, where there was none.
    _folder: Option<TempDir>,
}

impl Local {
    /// Starts it.
    pub async fn start(context: &Context, access: Access) -> Result<Local, Failure> {
        check_folder(context, access)?;
        let config = &context.config().server;
        let (store, folder) = match access {
            Access::Look => look_at_store(context)?,
            Access::Use | Access::Add => (open_store(config, Prune::No)?, None),
        };
        let mut settings = settings(context.config(), Keys::default())?;
        let workers = workers(config, Style::Command);
        if matches!(access, Access::Use) {
            use_accelerators(context.config(), &mut settings, &workers);
        }
        let local = Local::over(settings, store, workers).await?;
        Ok(Local {
            _folder: folder,
            ..local
        })
    }

    /// Starts one whose only model is a file, under the name `name`.
    pub async fn over_file(context: &Context, file: &Path, name: &str) -> Result<Local, Failure> {
        let near = file.canonicalize()?;
        let near = near.parent().unwrap_or(Path::new("."));
        let hint = "`llmsrv create NAME --from FILE` makes a model of it";
        // Beside the file, so that it is linked and not copied.
        let folder = tempfile::Builder::new()
            .prefix(".llmsrv-run-")
            .tempdir_in(near)
            .map_err(|error| Failure::from(error).hint(hint))?;
        let store = lend(folder.path(), file, name).map_err(|failure| failure.hint(hint))?;
        let mut settings = settings(context.config(), Keys::default())?;
        let config = &context.config().server;
        let workers = workers(config, Style::Command);
        use_accelerators(context.config(), &mut settings, &workers);
        let local = Local::over(settings, store, workers).await?;
        Ok(Local {
            _folder: Some(folder),
            ..local
        })
    }

    /// Starts one over a store. Whatever keys the settings have, its own takes their place.
    pub async fn over(
        mut settings: Settings,
        store: Store,
        workers: Launcher,
    ) -> Result<Local, Failure> {
        let mut bytes = [0_u8; 16];
        rand::rngs::OsRng.try_fill_bytes(&mut bytes)?;
        let key = format!("{:032x}", u128::from_ne_bytes(bytes));
        settings.keys = Keys::plain([key.as_str()]);
        settings.listens_on_loopback = true;
        settings.config.rate_limit = None;
        let app = app(settings, store, workers);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let stopped = async {
                // An error means that the command has ended, too.
                let _ = stopped.await;
            };
            if let Err(error) = llmsrv_server::serve(listener, app, stopped).await {
                tracing::error!(%error, "server inside the command");
            }
        });
        Ok(Local {
            url,
            key,
            stop,
            server,
            _folder: None,
        })
    }

    /// Returns the address of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the key it asks for.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Ends it.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.server.await;
    }
}
