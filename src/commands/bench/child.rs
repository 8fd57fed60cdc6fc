//! What a new process takes: from exec to the model's first computed token.

use std::{
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use llmsrv_bench::{Figure, Options, Process};
use llmsrv_engine::{BlockId, LoadOptions, Span, SpanState, StateId, StepPlan};

use super::Subject;
use crate::{context::Context, failure::Failure, term};

/// Starts the program anew for each round.
pub fn measure(
    context: &Context,
    subject: &Subject,
    options: &Options,
) -> Result<Process, Failure> {
    let program = std::env::current_exe()?;
    let visible = options.load.gpu.visible.as_ref();
    let gpu = visible.and_then(|names| names.first());
    let gpu = gpu.filter(|_| options.gpu.is_some());
    let (mut ready, mut resident_bytes) = (Vec::new(), 0);
    for _ in 0..options.rounds {
        let mut command = Command::new(&program);
        command
            .args(["--quiet", "bench", "--threads"])
            .arg(options.load.n_threads.to_string())
            .arg("--ready")
            .arg(&subject.weights)
            .args(gpu.iter().map(|name| format!("--gpu={name}")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if let Some(file) = &context.global.config {
            command.arg("--config").arg(file);
        }
        let start = Instant::now();
        let mut child = command.spawn()?;
        let mut text = String::new();
        if let Some(stdout) = &mut child.stdout {
            let mut first = [0];
            // The line is printed at once when the token is there.
            stdout.read_exact(&mut first)?;
            ready.push(start.elapsed().as_secs_f64());
            text.push(char::from(first[0]));
            stdout.read_to_string(&mut text)?;
        }
        let status = child.wait()?;
        if !status.success() {
            return Err(Failure::failed(format!("it ended with {status}")));
        }
        resident_bytes = text.trim().parse()?;
    }
    Ok(Process {
        ready: Figure::of(ready),
        resident_bytes,
    })
}

/// Is such a process.
pub fn load(path: &Path, options: &LoadOptions) -> Result<(), Failure> {
    let mut model = llmsrv_models::load(path, options)?.model;
    model.reserve_blocks(1)?;
    let keeps_state = model.spec().state_bytes > 0;
    if keeps_state {
        model.reserve_states(1)?;
    }
    let plan = StepPlan {
        tokens: vec![1],
        positions: vec![0],
        ends: vec![1],
        coordinates: Vec::new(),
        spans: vec![Span {
            rows: 0..1,
            start: 0,
            blocks: vec![BlockId(0)],
            tail: None,
            state: keeps_state.then(|| SpanState::new(StateId(0))),
        }],
        logit_rows: vec![0],
        ..StepPlan::default()
    };
    let mut logits = vec![0.0; model.spec().vocab_size];
    model.forward(&plan, &mut logits)?;
    term::line(resident_bytes())?;
    Ok(())
}

/// Returns the resident memory of this process, the mapped parts of files included; 0 = unknown.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
