//! The worker's side: does what the server asks, until the server hangs up.

use std::{
    io::{self, IsTerminal as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
};

use llmsrv_engine::{GpuOptions, LoadError, LoadOptions, Model, ModelError, StepPlan, UsableGpu};

use crate::{
    frame::Frames,
    message::{Reply, Request},
};

/// What a worker can do.
pub(crate) trait Device {
    fn gpus(&self, options: GpuOptions) -> Result<Vec<UsableGpu>, LoadError>;
    fn load(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn Model>, LoadError>;
}

impl<F, L> Device for (F, L)
where
    F: Fn(GpuOptions) -> Result<Vec<UsableGpu>, LoadError>,
    L: Fn(&Path, &LoadOptions) -> Result<Box<dyn Model>, LoadError>,
{
    fn gpus(&self, options: GpuOptions) -> Result<Vec<UsableGpu>, LoadError> {
        (self.0)(options)
    }

    fn load(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn Model>, LoadError> {
        (self.1)(path, options)
    }
}

/// Is a worker: serves the socket that this process has as its stdin, until the other side closes it. The process ends
/// with the one that started it, even where a driver hangs.
///
/// # Errors
///
/// Stdin is no socket: a person has called this.
pub fn serve(
    gpus: impl Fn(GpuOptions) -> Result<Vec<UsableGpu>, LoadError>,
    load: impl Fn(&Path, &LoadOptions) -> Result<Box<dyn Model>, LoadError>,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // Managers of services send these to all processes of a server; requests are to finish first.
    let mut to_server = nix::sys::signal::SigSet::empty();
    to_server.add(nix::sys::signal::Signal::SIGTERM);
    to_server.add(nix::sys::signal::Signal::SIGINT);
    to_server.add(nix::sys::signal::Signal::SIGHUP);
    to_server.thread_block()?;
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(io::Error::other("this command is for the server alone"));
    }
    let socket = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
    serve_socket(socket, &(gpus, load))
}

/// Serves a socket until the other side closes it.
pub(crate) fn serve_socket(socket: UnixStream, device: &impl Device) -> io::Result<()> {
    let mut frames = Frames::new(socket);
    let (mut frame, mut rows) = (Vec::new(), Vec::new());
    let mut model: Option<Box<dyn Model>> = None;
    loop {
        match frames.receive(&mut frame, u64::MAX, None) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let request = Request::read(&frame).map_err(io::Error::other)?;
        let reply = match (request, &mut model) {
            (Request::Gpus(options), _) => match device.gpus(options) {
                Ok(gpus) => Reply::Gpus(gpus),
                Err(error) => Reply::NotLoaded(error),
            },
            (Request::Load(path, options), _) => match device.load(Path::new(&path), &options) {
                Ok(loaded) => {
                    let spec = loaded.spec().clone();
                    model = Some(loaded);
                    Reply::Loaded(spec)
                }
                Err(error) => Reply::NotLoaded(error),
            },
            (_, None) => return Err(io::Error::other("there is no model yet")),
            (Request::ReserveBlocks(n), Some(model)) => done(model.reserve_blocks(n)),
            (Request::ReserveStates(n), Some(model)) => done(model.reserve_states(n)),
            (Request::Forward(plan), Some(model)) => {
                let width = model.spec().vocab_size;
                step(&plan, width, &mut rows, |rows| model.forward(&plan, rows))
            }
            (Request::Embed(plan), Some(model)) => {
                let width = model
                    .spec()
                    .embedding
                    .map_or(0, |embedding| embedding.width);
                step(&plan, width, &mut rows, |rows| model.embed(&plan, rows))
            }
        };
        match reply {
            Reply::Rows(computed) => {
                Reply::write_rows(&mut frame, &computed);
                rows = computed;
            }
            reply => reply.write(&mut frame),
        }
        frames.send(&frame, None)?;
    }
}

fn done(outcome: Result<(), ModelError>) -> Reply {
    match outcome {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(error),
    }
}

/// Computes rows of `width` into a buffer of before, which becomes the reply.
fn step(
    plan: &StepPlan,
    width: usize,
    buffer: &mut Vec<f32>,
    compute: impl FnOnce(&mut [f32]) -> Result<(), ModelError>,
) -> Reply {
    let mut rows = std::mem::take(buffer);
    rows.resize(plan.logit_rows.len().saturating_mul(width), 0.0);
    match compute(&mut rows) {
        Ok(()) => Reply::Rows(rows),
        Err(error) => Reply::Failed(error),
    }
}
