//! The server's side: starts workers, and stands for the model that one of them computes.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use llmsrv_engine::{
    GpuOptions, GpuShare, LoadError, LoadOptions, Model, ModelError, ModelSpec, OnLoss, StepPlan,
    UsableGpu,
};
use parking_lot::Mutex;

use crate::{
    frame::{Deadline, Frames},
    message::{MOST_BESIDE_ROWS, Malformed, Reply, Request},
    process::{Process, Program},
};

/// Starts workers.
#[derive(Clone)]
pub struct Launcher {
    program: Program,
    limits: Limits,
    /// Models whose worker was lost while it loaded them.
    failures: Arc<Mutex<HashMap<PathBuf, Failure>>>,
}

/// How long a worker may take; `None` = for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For one step.
    pub step: Option<Duration>,
    /// For loading a model.
    pub load: Option<Duration>,
}

/// Losses of one model in a row.
struct Failure {
    n: u32,
    reason: String,
    until: Instant,
}

impl Launcher {
    /// Workers are processes of `program`, which calls [`crate::serve`] when it is started with `arguments`.
    pub fn new(program: PathBuf, arguments: Vec<OsString>, limits: Limits) -> Launcher {
        Launcher {
            program: Program {
                path: program,
                arguments,
            },
            limits,
            failures: Arc::default(),
        }
    }

    /// Lets workers take so long instead.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Launcher {
        Launcher { limits, ..self }
    }

    /// Returns the GPUs that models may be loaded to, as a worker sees them, the best one first.
    ///
    /// # Errors
    ///
    /// [`LoadError::Gpu`] or [`LoadError::GpuNotAllowed`] if there is no GPU that can be used;
    /// [`LoadError::DeviceLost`] if the driver took the worker with it.
    pub fn gpus(&self, options: GpuOptions) -> Result<Vec<UsableGpu>, LoadError> {
        let mut worker = self.start()?;
        let request = Request::Gpus(options);
        match worker.ask(&request, self.limits.load.or(Some(PROBE))) {
            Ok(Reply::Gpus(gpus)) if (1..=MOST_GPUS).contains(&gpus.len()) => Ok(gpus),
            Ok(Reply::NotLoaded(error)) => Err(error),
            Ok(_) => Err(lost(worker.lose(&no_answer()), Duration::ZERO)),
            Err(reason) => Err(lost(reason, Duration::ZERO)),
        }
    }

    /// Loads the model of a file in a worker of its own. Images are not read there.
    ///
    /// # Errors
    ///
    /// What the worker says; [`LoadError::DeviceLost`] if the worker ends, says nonsense, or takes too long. After that
    /// the same model is refused at once for a while, longer each time: a driver that always crashes costs little.
    pub fn load(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn Model>, LoadError> {
        self.check(path)?;
        let mut worker = self.start()?;
        let options = LoadOptions {
            projector: None,
            ..options.clone()
        };
        let request = Request::Load(path.as_os_str().to_owned(), Box::new(options));
        let reason = match worker.ask(&request, self.limits.load) {
            Ok(Reply::Loaded(spec)) if is_sensible(&spec) => {
                self.failures().remove(path);
                return Ok(Box::new(RemoteModel {
                    spec,
                    worker,
                    limit: self.limits.step,
                }));
            }
            Ok(Reply::NotLoaded(LoadError::DeviceLost { reason, .. })) | Err(reason) => reason,
            Ok(Reply::NotLoaded(error)) => return Err(error),
            Ok(_) => worker.lose(&no_answer()),
        };
        Err(self.note(path, reason))
    }

    fn start(&self) -> Result<Worker, LoadError> {
        let (process, socket) = Process::start(&self.program).map_err(LoadError::Io)?;
        Ok(Worker {
            process,
            frames: Some(Frames::new(socket)),
            frame: Vec::new(),
            lost: String::new(),
        })
    }

    /// Refuses a model whose worker was lost just now.
    fn check(&self, path: &Path) -> Result<(), LoadError> {
        let failures = self.failures();
        let Some(failure) = failures.get(path) else {
            return Ok(());
        };
        match failure.until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => Err(lost(failure.reason.clone(), left)),
            _ => Ok(()),
        }
    }

    fn note(&self, path: &Path, reason: String) -> LoadError {
        let mut failures = self.failures();
        let n = failures.get(path).map_or(1, |failure| failure.n + 1);
        let pause = FIRST_PAUSE.saturating_mul(1 << (n - 1).min(16));
        let pause = pause.min(LONGEST_PAUSE);
        let failure = Failure {
            n,
            reason: reason.clone(),
            until: Instant::now() + pause,
        };
        failures.insert(path.to_owned(), failure);
        lost(reason, pause)
    }

    fn failures(&self) -> parking_lot::MutexGuard<'_, HashMap<PathBuf, Failure>> {
        self.failures.lock()
    }
}

/// A model that a worker computes.
struct RemoteModel {
    spec: ModelSpec,
    worker: Worker,
    limit: Option<Duration>,
}

impl RemoteModel {
    fn reserve(&mut self, request: &Request) -> Result<(), ModelError> {
        match self.worker.ask(request, self.limit) {
            Ok(Reply::Done) => Ok(()),
            Ok(reply) => Err(self.worker.refused(reply)),
            Err(reason) => Err(ModelError::DeviceLost(reason)),
        }
    }
}

impl Model for RemoteModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        self.reserve(&Request::ReserveBlocks(n_blocks))
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        self.reserve(&Request::ReserveStates(n_states))
    }

    fn forward(&mut self, plan: &StepPlan, logits: &mut [f32]) -> Result<(), ModelError> {
        check_length(plan, logits, self.spec.vocab_size)?;
        self.worker.step(plan, false, logits, self.limit)
    }

    fn embed(&mut self, plan: &StepPlan, rows: &mut [f32]) -> Result<(), ModelError> {
        let embedding = self.spec.embedding.ok_or(ModelError::NoEmbeddings)?;
        check_length(plan, rows, embedding.width)?;
        self.worker.step(plan, true, rows, self.limit)
    }

    fn on_loss(&mut self, tell: OnLoss) {
        self.worker.process.on_end(tell);
    }
}

/// A worker process and the socket to it.
struct Worker {
    process: Process,
    /// `None` once the worker is lost.
    frames: Option<Frames>,
    /// The last message.
    frame: Vec<u8>,
    /// Why it is lost.
    lost: String,
}

impl Worker {
    /// Asks and waits for a reply without rows. The error says why the worker is lost.
    fn ask(&mut self, request: &Request, limit: Option<Duration>) -> Result<Reply, String> {
        request.write(&mut self.frame);
        let outcome = self.exchange(MOST_BESIDE_ROWS, limit);
        outcome
            .and_then(|()| Reply::read(&self.frame).map_err(malformed))
            .map_err(|error| self.lose(&error))
    }

    /// Lets the worker compute a step.
    fn step(
        &mut self,
        plan: &StepPlan,
        embed: bool,
        rows: &mut [f32],
        limit: Option<Duration>,
    ) -> Result<(), ModelError> {
        Request::write_step(&mut self.frame, plan, embed);
        let most = (size_of_val(rows) as u64).saturating_add(MOST_BESIDE_ROWS);
        let outcome = self.exchange(most, limit);
        let outcome = outcome.and_then(|()| Reply::read_rows(&self.frame, rows).map_err(malformed));
        match outcome {
            // It stands for rows that were read.
            Ok(Reply::Done) if self.frame.first() == Some(&4) => Ok(()),
            Ok(reply) => Err(self.refused(reply)),
            Err(error) => Err(ModelError::DeviceLost(self.lose(&error))),
        }
    }

    /// Sends the message in `frame`, and receives the answer into it.
    fn exchange(&mut self, most: u64, limit: Option<Duration>) -> io::Result<()> {
        let deadline: Deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let frames = self.frames.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        frames.send(&self.frame, deadline)?;
        frames.receive(&mut self.frame, most, deadline)
    }

    /// Returns what a reply that is not the wanted one means.
    fn refused(&mut self, reply: Reply) -> ModelError {
        match reply {
            Reply::Failed(ModelError::DeviceLost(reason)) => {
                self.give_up(reason.clone());
                ModelError::DeviceLost(reason)
            }
            Reply::Failed(error) => error,
            _ => ModelError::DeviceLost(self.lose(&no_answer())),
        }
    }

    /// Ends the worker. Returns why it is lost.
    fn lose(&mut self, error: &io::Error) -> String {
        if self.frames.is_some() {
            // One that broke off is ending already: how says more than that it did.
            let (patience, what) = match error.kind() {
                io::ErrorKind::TimedOut => (Duration::ZERO, Some("no answer in time".to_owned())),
                io::ErrorKind::InvalidData => (Duration::ZERO, Some(error.to_string())),
                _ => (GRACE, None),
            };
            self.frames = None;
            let how = self.process.end(patience);
            let stuck = || "its process cannot be ended".to_owned();
            self.lost = match (what, how) {
                (Some(what), Some(_)) => what,
                (Some(what), None) => format!("{what}; {}", stuck()),
                (None, how) => how.unwrap_or_else(stuck),
            };
        }
        self.lost.clone()
    }

    /// Ends a worker whose device is lost.
    fn give_up(&mut self, reason: String) {
        self.frames = None;
        self.process.end(Duration::ZERO);
        self.lost = reason;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker ends when its socket does. Its memory is free when it has ended, not before.
        let was_there = self.frames.take().is_some();
        if was_there && self.process.end(GRACE).is_none() {
            tracing::warn!("a worker cannot be ended: the memory of its model stays taken");
        }
    }
}

fn check_length(plan: &StepPlan, rows: &[f32], width: usize) -> Result<(), ModelError> {
    if plan.logit_rows.len().checked_mul(width) == Some(rows.len()) {
        return Ok(());
    }
    let message = "invalid plan: the result has another length than the plan asks for";
    Err(ModelError::Compute(message.into()))
}

/// Whether numbers of a worker can be computed with: the engine divides by some and multiplies others.
fn is_sensible(spec: &ModelSpec) -> bool {
    let is_count = |n: usize| (1..=1 << 32).contains(&n);
    let width = spec.embedding.map_or(1, |embedding| embedding.width);
    let is_share = |gpu: &GpuShare| {
        gpu.n_layers <= spec.n_layers
            && gpu.weight_bytes <= spec.weight_bytes
            && gpu.kv_block_bytes <= spec.kv_block_bytes
            && gpu.state_bytes <= spec.state_bytes
    };
    [spec.vocab_size, spec.block_size, spec.context_length, width]
        .into_iter()
        .all(is_count)
        && spec.kv_block_bytes <= 1 << 40
        && spec.state_bytes <= 1 << 40
        && spec.weight_bytes <= 1 << 50
        && spec.n_layers <= 1 << 32
        && spec.gpus.len() <= MOST_GPUS
        && spec.gpus.iter().all(is_share)
}

fn malformed(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn no_answer() -> io::Error {
    malformed(Malformed)
}

fn lost(reason: String, retry_after: Duration) -> LoadError {
    LoadError::DeviceLost {
        reason,
        retry_after,
    }
}

/// GPUs that a model is shared out to at most.
const MOST_GPUS: usize = 1 << 10;
/// How long a worker may take to say what memory there is, where nothing is set.
const PROBE: Duration = Duration::from_mins(1);
/// How long a worker may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long a model is refused after its worker was lost while it loaded; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
