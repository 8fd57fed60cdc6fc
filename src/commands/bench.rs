//! `llmsrv bench`

mod child;
mod http;
mod make;
mod print;
mod quality;

pub use quality::with_hint;

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use llmsrv_bench::{GpuReport, Limits, ModelReport, Options, PeerSpec, Report, Step, Test};
use llmsrv_engine::{GpuOptions, LoadOptions, Loader};

use crate::{
    about::VERSION,
    cli::{BEST, BenchArgs},
    connect::runtime,
    context::Context,
    failure::Failure,
    local::{self, Access, Prune},
    term,
};

/// A model to be measured.
pub struct Subject {
    /// As it was typed.
    pub name: String,
    /// The file.
    pub weights: PathBuf,
    /// Its name in the store, unless a file was typed.
    stored: bool,
}

/// Measures models, or makes one to be measured.
pub fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let threads = match args.threads {
        None | Some(0) => context.threads(),
        Some(threads) => threads,
    };
    let mut load = LoadOptions {
        n_threads: threads,
        kv_cache_type: context.config().server.kv_cache_type.clone(),
        device: context.config().server.device.clone(),
        gpu: local::gpu(&context.config().server),
        activation_precision: local::activation_precision(&context.config().server),
        ..LoadOptions::default()
    };
    if let Some(named) = &args.gpu {
        load.device = "vulkan".into();
        load.gpu = gpu(load.gpu, named)?;
    }
    if let Some(path) = &args.ready {
        return child::load(path, &load);
    }
    if let Some(shape) = &args.make_model {
        return make::run(shape, args, context.global.quiet);
    }
    if args.limits {
        let gpu = args.gpu.is_some();
        let gpu = gpu.then(|| llmsrv_models::gpu_choice(&load.gpu));
        let found = llmsrv_bench::limits(threads, gpu.as_ref(), args.rounds as usize);
        let found = found.map_err(anyhow::Error::new)?;
        return print::report(&report(threads, found, Vec::new()), args);
    }
    if let Some(text) = &args.perplexity {
        return quality::run(context, args, text, load);
    }
    let options = options(args, load)?;
    let subjects = subjects(context, &args.what)?;
    let mut steps = steps(context.global.quiet);
    let (mut limits, mut gpu) = (Limits::default(), None);
    let mut models = Vec::new();
    for subject in &subjects {
        let failed = || format!("cannot measure {}", subject.name);
        let mut options = options.clone();
        if let Some(choice) = &mut options.gpu {
            // The limits are those of the arithmetic that the model has.
            let arithmetic = llmsrv_models::gpu_arithmetic(&subject.weights, &options.load);
            options.load.gpu.arithmetic = arithmetic.with_context(failed)?;
            *choice = llmsrv_models::gpu_choice(&options.load.gpu);
        }
        let (model, found, device) =
            measure(context, subject, &options, args, &mut steps).with_context(failed)?;
        limits = merged(limits, found);
        gpu = gpu.or(device);
        models.push(model);
    }
    steps.stop();
    print::report(&report(threads, (limits, gpu), models), args)
}

/// Names the GPU that is measured.
fn gpu(mut allowed: GpuOptions, named: &str) -> Result<GpuOptions, Failure> {
    if named != BEST {
        allowed.visible = Some(vec![named.to_owned()]);
    }
    let best = llmsrv_models::best_gpu(&allowed).map_err(anyhow::Error::new);
    best.map_err(|error| {
        let error = match named {
            BEST => error,
            named => error.context(format!("--gpu={named}, in place of LLMSRV_VISIBLE_GPUS")),
        };
        Failure::from(error).hint("llmsrv testgpu lists the devices and says what works")
    })
}

/// Shows progress to people who watch, and to nobody else.
pub fn steps(quiet: bool) -> term::Steps {
    if quiet || !term::stderr_is_terminal() {
        term::Steps::hidden()
    } else {
        term::Steps::for_people()
    }
}

fn report(
    threads: usize,
    (limits, gpu): (Limits, Option<GpuReport>),
    models: Vec<ModelReport>,
) -> Report {
    Report {
        version: VERSION.to_owned(),
        threads,
        limits,
        gpu,
        models,
    }
}

/// Joins the samples of two models.
fn merged(mut limits: Limits, more: Limits) -> Limits {
    let join = |a: &mut llmsrv_bench::Figure, b: llmsrv_bench::Figure| {
        let mut samples = std::mem::take(&mut a.samples);
        samples.extend(b.samples);
        *a = llmsrv_bench::Figure::of(samples);
    };
    join(&mut limits.read, more.read);
    join(&mut limits.int8, more.int8);
    join(&mut limits.float, more.float);
    Limits {
        int8_instruction: more.int8_instruction,
        float_instruction: more.float_instruction,
        ..limits
    }
}

fn options(args: &BenchArgs, load: LoadOptions) -> Result<Options, Failure> {
    let tests = Test::matrix(&args.pp, &args.tg, &args.depth, &args.batch);
    if tests.is_empty() {
        return Err(Failure::usage("there is nothing to measure")
            .hint("give --pp or --tg (-n) a number of tokens above 0"));
    }
    const MOST_TOKENS: usize = 1 << 20;
    if tests
        .iter()
        .any(|test| test.positions() > MOST_TOKENS || test.sequences() > 1024)
    {
        return Err(
            Failure::usage("a test is larger than anything that can be measured")
                .hint("at most 1048576 tokens and 1024 sequences"),
        );
    }
    let mut peers: Vec<PeerSpec> = args.peer.iter().cloned().map(PeerSpec::Command).collect();
    for interpreter in &args.peer_python {
        let python = |repack| PeerSpec::Python {
            interpreter: interpreter.clone(),
            repack,
        };
        peers.push(python(true));
        if args.peer_unpacked {
            peers.push(python(false));
        }
    }
    Ok(Options {
        tests,
        first_token: if args.quick { 0 } else { 512 },
        rounds: args.rounds as usize,
        gpu: args
            .gpu
            .is_some()
            .then(|| llmsrv_models::gpu_choice(&load.gpu)),
        load,
        peers,
    })
}

/// Finds what was typed: files, or models of the store.
pub fn subjects(context: &Context, typed: &[String]) -> Result<Vec<Subject>, Failure> {
    let default = ["default".to_owned()];
    let typed = if typed.is_empty() { &default } else { typed };
    local::check_folder(context, Access::Use)?;
    let store = local::open_store(&context.config().server, Prune::No)?;
    let subject = |name: &String| {
        let path = PathBuf::from(name);
        if path.is_file() {
            return Ok(Subject {
                name: path
                    .file_stem()
                    .map_or_else(|| name.clone(), |stem| stem.to_string_lossy().into_owned()),
                weights: path,
                stored: false,
            });
        }
        let missing = || format!("{name} is neither a file nor a model here");
        let model = name
            .parse()
            .map_err(anyhow::Error::new)
            .and_then(|name| Ok(store.model(&name)?))
            .with_context(missing)?;
        Ok(Subject {
            name: name.clone(),
            weights: model.weights,
            stored: true,
        })
    };
    typed.iter().map(subject).collect()
}

fn measure(
    context: &Context,
    subject: &Subject,
    options: &Options,
    args: &BenchArgs,
    steps: &mut term::Steps,
) -> anyhow::Result<(ModelReport, Limits, Option<GpuReport>)> {
    let loader: Loader = Arc::new(llmsrv_models::load);
    let mut progress = |step: Step| {
        let text = match step {
            Step::Load(1) => "loading".to_owned(),
            Step::Load(n) => format!("loading in {n} engines"),
            Step::Test(test) => test.to_string(),
            Step::FirstToken => "first token".to_owned(),
        };
        let status = format!("{}: {text}", subject.name);
        // Nothing but a broken pipe can happen to a line for people.
        let _ = steps.step(&llmsrv_api::progress::Progress::step(status));
    };
    let waits = runtime().map_err(|failure| failure.error)?;
    let mut serve = |streamer: llmsrv_bench::Streamer, report: &mut ModelReport| {
        let ending = streamer.ending();
        if !args.quick {
            match http::compare(context, subject, options, &streamer) {
                Ok(stream) => report.stream = Some(stream),
                Err(failure) => report
                    .notes
                    .push(format!("HTTP was not measured: {failure}")),
            }
        }
        drop(streamer);
        // A driver must not be unloaded by the engine's thread while this process ends.
        waits.block_on(ending.wait());
        if args.quick {
            return Ok(());
        }
        match child::measure(context, subject, options) {
            Ok(process) => report.process = Some(process),
            Err(failure) => report
                .notes
                .push(format!("a new process was not measured: {failure}")),
        }
        Ok(())
    };
    Ok(llmsrv_bench::bench_model(
        &subject.name,
        &subject.weights,
        &loader,
        options,
        &mut progress,
        &mut serve,
    )?)
}
