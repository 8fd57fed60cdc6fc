//! `llmsrv imatrix`

use llmsrv_bench::TextOptions;
use llmsrv_convert::Imatrix;
use llmsrv_engine::LoadOptions;

use super::bench;
use crate::{cli::ImatrixArgs, context::Context, failure::Failure, local, term, text};

/// Reads a text with a model and writes how large the inputs of its matrices are.
pub fn run(context: &Context, args: &ImatrixArgs) -> Result<(), Failure> {
    let text = text::read(&args.file)?;
    let subject = bench::subjects(context, std::slice::from_ref(&args.what))?.pop();
    let Some(subject) = subject else {
        return Err(Failure::usage("no model is named"));
    };
    let config = &context.config().server;
    let options = TextOptions {
        window: args.window,
        most_windows: args.chunks,
        load: LoadOptions {
            n_threads: args.threads.filter(|n| *n > 0).unwrap_or(context.threads()),
            kv_cache_type: config.kv_cache_type.clone(),
            activation_precision: local::activation_precision(config),
            ..LoadOptions::default()
        },
    };
    let cannot = |failure: Failure| failure.context(format!("cannot measure {}", subject.name));
    let (loaded, sums) =
        llmsrv_models::load_observed(&subject.weights, &options.load, args.process_output)
            .map_err(|error| cannot(Failure::from(anyhow::Error::new(error))))?;
    let mut steps = bench::steps(context.global.quiet);
    let mut progress = |done: usize, total: usize| {
        let bytes = text.len() as u64;
        steps.amount(
            "reading the text",
            bytes * done as u64 / total.max(1) as u64,
            bytes,
        );
    };
    let n_chunks = llmsrv_bench::read(loaded, &text, &options, args.process_output, &mut progress)
        .map_err(|error| cannot(bench::with_hint(error)))?;
    steps.stop();
    let dataset = args.file.file_name().unwrap_or_default().to_string_lossy();
    let (n_chunks, window) = (n_chunks as u32, args.window as u32);
    let mut imatrix = Imatrix::new(vec![dataset.into_owned()], n_chunks, window);
    for (name, sum) in sums.tensors() {
        // What the model holds and never computes with has nothing to say.
        if sum.rows.iter().any(|rows| *rows > 0) {
            let added = imatrix.add(&name, &sum.squares, &sum.rows);
            added.map_err(anyhow::Error::new)?;
        }
    }
    let written = imatrix.write(&args.output).map_err(anyhow::Error::new);
    let path = args.output.display();
    written.map_err(|error| error.context(format!("cannot write {path}")))?;
    if args.json {
        term::json(&serde_json::json!({
            "file": args.output, "tensors": imatrix.len(), "windows": n_chunks, "window": window,
        }))?;
    } else if !context.global.quiet {
        let n_tensors = imatrix.len();
        term::note(format_args!(
            "{path}: {n_tensors} tensors, {n_chunks} windows of {window} tokens"
        ));
    }
    Ok(())
}
