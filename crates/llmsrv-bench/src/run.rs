//! One run: every test in rounds, ours and the others' in turn, with the limits measured between.

use std::{path::Path, time::Instant};

use llmsrv_engine::{EngineOptions, LoadOptions, Loader, spawn};
use llmsrv_gguf::GgufFile;
use llmsrv_gpu::Choice;
use llmsrv_kernels::probe::{BandwidthProbe, float_peak, int8_peak};

use crate::{
    Cost, Error, Figure, GpuReport, KernelReport, Limits, ModelReport, PeerFigure, PeerSpec,
    Streamer, Test, TestReport,
    gpu::{self, GpuProbe},
    peer::{Machine, Peer},
    raw::Raw,
    serving,
};

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Speeds.
    pub tests: Vec<Test>,
    /// Length of the prompts whose first token is waited for; 0 = not measured.
    pub first_token: usize,
    /// Rounds of every test.
    pub rounds: usize,
    /// How the model is loaded; with the number of threads.
    pub load: LoadOptions,
    /// Other engines.
    pub peers: Vec<PeerSpec>,
    /// The model is loaded to this GPU, whose limits count.
    pub gpu: Option<Choice>,
}

/// What is done at the moment, for people who wait.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The model is loaded by this many engines.
    Load(usize),
    /// A test begins.
    Test(Test),
    /// The time to the first token is measured.
    FirstToken,
}

/// Samples of what can be done at most.
enum Probes {
    /// By the CPU.
    Cpu(CpuProbe),
    /// By a GPU.
    Gpu(Box<GpuProbe>),
}

/// Samples of what the CPU can do.
struct CpuProbe {
    memory: BandwidthProbe,
    threads: usize,
    read: Vec<f64>,
    int8: Vec<f64>,
    float: Vec<f64>,
}

/// Measures what the machine can do, so many times: the GPU, if one is named.
///
/// # Errors
/// [`Error::Gpu`].
pub fn limits(
    threads: usize,
    gpu: Option<&Choice>,
    rounds: usize,
) -> Result<(Limits, Option<GpuReport>), Error> {
    let mut probes = Probes::new(threads, gpu)?;
    for _ in 0..rounds.max(1) {
        probes.sample()?;
    }
    probes.limits()
}

/// Measures how many bytes of memory so many threads read in a second.
pub fn bandwidth(threads: usize) -> f64 {
    BandwidthProbe::new().bytes_per_second(threads)
}

/// Measures one model. `serve` measures what needs more than this crate, with the engine at hand.
pub fn bench_model(
    name: &str,
    path: &Path,
    loader: &Loader,
    options: &Options,
    progress: &mut dyn FnMut(Step),
    serve: &mut dyn FnMut(Streamer, &mut ModelReport) -> Result<(), Error>,
) -> Result<(ModelReport, Limits, Option<GpuReport>), Error> {
    let threads = options.load.n_threads;
    let mut peers = Vec::new();
    progress(Step::Load(1 + options.peers.len()));
    let mut loads = Vec::new();
    let mut load = || {
        let start = Instant::now();
        let loaded = loader(path, &options.load)?;
        loads.push(start.elapsed().as_secs_f64());
        Ok::<_, Error>(loaded)
    };
    let loaded = load()?;
    let spec = loaded.model.spec().clone();
    let (cost, architecture) = {
        let file = GgufFile::open(path)?;
        let kv_bytes = spec.kv_block_bytes as f64 / spec.block_size.max(1) as f64;
        let cost = Cost::of(file.header(), kv_bytes);
        let architecture = file
            .metadata()
            .architecture()
            .unwrap_or_default()
            .to_owned();
        (cost, architecture)
    };
    let mut notes = Vec::new();
    let fits = |test: &Test| test.positions() <= spec.context_length;
    let (tests, too_long): (Vec<Test>, Vec<Test>) =
        options.tests.iter().partition(|test| fits(test));
    if !too_long.is_empty() {
        let names: Vec<String> = too_long.iter().map(Test::to_string).collect();
        let (names, room) = (names.join(", "), spec.context_length);
        notes.push(format!(
            "not measured, the model has room for {room} tokens: {names}"
        ));
    }
    let mut raw = Raw::new(loaded.model, &tests)?;
    let mut probes = Probes::new(threads, options.gpu.as_ref())?;
    let machine = Machine {
        threads,
        gpu: probes.gpu().map(|device| device.number),
    };
    for spec in &options.peers {
        peers.push(Peer::start(spec, path, machine, &tests)?);
    }
    if let Probes::Gpu(probe) = &probes {
        notes.extend(probe.notes(&spec));
    }
    notes.extend(peers.iter().filter_map(|peer| peer.note.clone()));

    let mut samples = Vec::new();
    let mut kernels = Vec::new();
    for &test in &tests {
        samples.push(rounds(
            test,
            options.rounds,
            &mut raw,
            &mut peers,
            &mut probes,
            progress,
        )?);
        kernels.push(match &probes {
            Probes::Gpu(probe) if probe.times_kernels() => gpu::timed(|| raw.run(test))?,
            _ => Vec::new(),
        });
    }
    let names: Vec<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    // Their threads and their memory must not be in the way of what follows.
    drop((raw, peers));
    let (limits, gpu) = probes.limits()?;

    let mut report = ModelReport {
        model: name.to_owned(),
        architecture,
        weight_bytes: cost.total_bytes,
        n_weights: cost.n_weights,
        load: Figure::default(),
        tests: Vec::new(),
        first_token: None,
        stream: None,
        process: None,
        notes,
    };
    for ((&test, (ours, theirs)), times) in tests.iter().zip(samples).zip(kernels) {
        let (speed, limit) = (Figure::of(ours), cost.limit(test, &limits));
        let peers = names
            .iter()
            .zip(theirs)
            .filter(|(_, speeds)| !speeds.is_empty());
        report.tests.push(TestReport {
            test: test.to_string(),
            kind: Some(test),
            share: speed.median / limit,
            limit,
            peers: peers
                .map(|(name, speeds)| {
                    let theirs = Figure::of(speeds);
                    PeerFigure {
                        name: name.clone(),
                        ratio: speed.median / theirs.median,
                        speed: theirs,
                    }
                })
                .collect(),
            speed,
            kernels: KernelReport::all(&times),
        });
    }

    let prompt = options
        .first_token
        .min(spec.context_length.saturating_sub(2));
    progress(Step::FirstToken);
    let engine = spawn(load()?, EngineOptions::default());
    if prompt > 0 {
        report.first_token = Some(serving::first_token(&engine, prompt, options.rounds)?);
    }
    report.load = Figure::of(loads);
    serve(Streamer { engine }, &mut report)?;
    Ok((report, limits, gpu))
}

/// Speeds of ours and of each other engine.
type Samples = (Vec<f64>, Vec<Vec<f64>>);

fn rounds(
    test: Test,
    n_rounds: usize,
    raw: &mut Raw,
    peers: &mut [Peer],
    probes: &mut Probes,
    progress: &mut dyn FnMut(Step),
) -> Result<Samples, Error> {
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); peers.len()];
    progress(Step::Test(test));
    raw.prepare(test)?;
    for peer in peers.iter_mut() {
        peer.prepare(test)?;
    }
    for _ in 0..n_rounds {
        probes.sample()?;
        let seconds = raw.run(test)?.as_secs_f64();
        ours.push(test.tokens() as f64 / seconds);
        for (peer, speeds) in peers.iter_mut().zip(&mut theirs) {
            speeds.extend(peer.run(test)?);
        }
    }
    Ok((ours, theirs))
}

impl Probes {
    fn new(threads: usize, gpu: Option<&Choice>) -> Result<Probes, Error> {
        Ok(match gpu {
            Some(choice) => Probes::Gpu(Box::new(GpuProbe::open(choice)?)),
            None => Probes::Cpu(CpuProbe::new(threads)),
        })
    }

    fn gpu(&self) -> Option<&llmsrv_gpu::Found> {
        match self {
            Probes::Gpu(probe) => Some(probe.device()),
            Probes::Cpu(_) => None,
        }
    }

    fn sample(&mut self) -> Result<(), Error> {
        match self {
            Probes::Gpu(probe) => probe.sample(),
            Probes::Cpu(probe) => {
                probe.sample();
                Ok(())
            }
        }
    }

    fn limits(self) -> Result<(Limits, Option<GpuReport>), Error> {
        Ok(match self {
            Probes::Gpu(probe) => {
                let (limits, report) = probe.report()?;
                (limits, Some(report))
            }
            Probes::Cpu(probe) => (probe.limits(), None),
        })
    }
}

impl CpuProbe {
    fn new(threads: usize) -> CpuProbe {
        CpuProbe {
            memory: BandwidthProbe::new(),
            threads: match threads {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                threads => threads,
            },
            read: Vec::new(),
            int8: Vec::new(),
            float: Vec::new(),
        }
    }

    fn sample(&mut self) {
        self.read.push(self.memory.bytes_per_second(self.threads));
        self.int8.push(int8_peak(self.threads).ops_per_second);
        self.float.push(float_peak(self.threads).ops_per_second);
    }

    fn limits(mut self) -> Limits {
        if self.read.is_empty() {
            self.sample();
        }
        Limits {
            read: Figure::of(self.read),
            int8: Figure::of(self.int8),
            int8_instruction: int8_peak(1).instruction,
            float: Figure::of(self.float),
            float_instruction: float_peak(1).instruction,
        }
    }
}
