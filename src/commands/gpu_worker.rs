//! `llmsrv gpu-worker`: computes a model on a GPU, for the server that started it.

use crate::{cli::GpuWorkerArgs, failure::Failure, logging};

/// Serves its stdin, a socket.
pub fn run(args: &GpuWorkerArgs) -> Result<(), Failure> {
    logging::start_worker(&args.log, args.log_json)?;
    llmsrv_worker::serve(
        |gpu| llmsrv_models::usable_gpus(&gpu),
        |path, options| llmsrv_models::load(path, options).map(|loaded| loaded.model),
    )?;
    Ok(())
}
