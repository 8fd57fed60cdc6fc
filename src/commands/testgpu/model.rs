//! The built-in model on each GPU, against the CPU.

use std::{fs, path::Path, time::Instant};

use llmsrv_devices::{Api, Check, DeviceInfo, Outcome};
use llmsrv_engine::{ActivationPrecision, BlockId, GpuOptions, LoadOptions, Model, Span, StepPlan};
use llmsrv_worker::Launcher;

use crate::{embedded, failure::Failure};

/// The category of `testgpu`.
pub const CATEGORY: &str = "model";

/// Loads the built-in model onto each device of Vulkan, in a process of its own, and compares what it says of a text
/// with the CPU. Calls `on` after each.
pub fn check(
    devices: &[DeviceInfo],
    workers: &Launcher,
    on: &mut dyn FnMut(Check),
) -> Result<(), Failure> {
    let skip = |why: &str| Check::skip(CATEGORY, CATEGORY, why);
    let mut devices = devices
        .iter()
        .filter(|device| device.api == Api::Vulkan)
        .peekable();
    if devices.peek().is_none() {
        on(skip(
            "models are computed through Vulkan, which has no device here",
        ));
        return Ok(());
    }
    let Some(weights) = embedded::weights() else {
        on(skip("this program was built without a model"));
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.gguf");
    fs::write(&path, weights)?;
    let options = LoadOptions {
        // As the GPU does it: neither rounds activations.
        activation_precision: ActivationPrecision::F32,
        kv_cache_type: "f16".into(),
        ..LoadOptions::default()
    };
    let mut cpu = llmsrv_models::load(&path, &options)
        .map_err(anyhow::Error::new)?
        .model;
    let right = logits(&mut *cpu).map_err(anyhow::Error::new)?;
    for device in devices {
        let options = LoadOptions {
            device: "vulkan".into(),
            gpu: GpuOptions {
                vendor: true,
                software: true,
                visible: Some(vec![device.index.to_string()]),
                ..GpuOptions::default()
            },
            ..options.clone()
        };
        let check = on_a_gpu(device, workers, &path, &options, &right);
        let passed = check.outcome == Outcome::Pass;
        on(check);
        if passed {
            measured(device, workers, &options.gpu)
                .into_iter()
                .for_each(&mut *on);
        }
    }
    Ok(())
}

/// Says what was measured of a GPU.
fn measured(device: &DeviceInfo, workers: &Launcher, options: &GpuOptions) -> Vec<Check> {
    let gpus = workers.gpus(options.clone()).unwrap_or_default();
    let Some(limits) = gpus.first().and_then(|gpu| gpu.limits) else {
        return Vec::new();
    };
    let check = |what: &str, value: u64, unit: &str, detail: &str| {
        let name = format!("{} {what}", device.label());
        Check {
            value: Some(value as f64 / 1e9),
            unit: Some(unit.to_owned()),
            ..Check::new(CATEGORY, name, Outcome::Info, detail)
        }
    };
    let slower = if limits.is_slower() {
        "slower than the CPU"
    } else {
        "faster than the CPU"
    };
    vec![
        check("memory read", limits.read, "GB/s", slower),
        check(
            "f32 fma",
            limits.float,
            "GFLOP/s",
            "a multiplication and a sum are two",
        ),
        check(
            "memory read by the CPU",
            limits.cpu_read,
            "GB/s",
            "all cores",
        ),
    ]
}

fn on_a_gpu(
    device: &DeviceInfo,
    workers: &Launcher,
    path: &Path,
    options: &LoadOptions,
    right: &[f32],
) -> Check {
    let check = |outcome, detail: String| {
        let name = format!("{} built-in model", device.label());
        Check::new(CATEGORY, name, outcome, detail)
    };
    let begun = Instant::now();
    let mut model = match workers.load(path, options) {
        Ok(model) => model,
        Err(error) => return check(Outcome::Fail, error.to_string()),
    };
    let load_ms = begun.elapsed().as_millis();
    let found = match logits(&mut *model) {
        Ok(found) => found,
        Err(error) => return check(Outcome::Fail, error.to_string()),
    };
    let difference = difference(&found, right);
    if difference.is_nan() || difference > LARGEST_DIFFERENCE {
        let detail = format!("logits of {N_TOKENS} tokens differ by {difference} from the CPU's");
        return check(Outcome::Fail, detail).hint("try another version of the GPU's driver");
    }
    let detail = format!(
        "loaded in {load_ms} ms; logits of {N_TOKENS} tokens are within {difference:.0e} of the CPU's"
    );
    check(Outcome::Pass, detail)
}

/// Computes the logits of all tokens of a fixed text.
fn logits(model: &mut dyn Model) -> Result<Vec<f32>, llmsrv_engine::ModelError> {
    let (vocab_size, block_size) = (model.spec().vocab_size, model.spec().block_size);
    let n_blocks = N_TOKENS.div_ceil(block_size.max(1));
    model.reserve_blocks(n_blocks)?;
    let n = N_TOKENS as u32;
    let plan = StepPlan {
        tokens: (0..N_TOKENS)
            .map(|at| (at * vocab_size / N_TOKENS) as u32)
            .collect(),
        positions: (0..n).collect(),
        ends: (1..=n).collect(),
        spans: vec![Span {
            rows: 0..N_TOKENS,
            start: 0,
            blocks: (0..n_blocks as u32).map(BlockId).collect(),
            tail: None,
            state: None,
        }],
        logit_rows: (0..n).collect(),
        ..StepPlan::default()
    };
    let mut logits = vec![0.0; N_TOKENS * vocab_size];
    model.forward(&plan, &mut logits)?;
    Ok(logits)
}

/// Returns the largest difference, as a part of the largest number.
fn difference(found: &[f32], right: &[f32]) -> f32 {
    let largest = right
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    let pairs = found.iter().zip(right);
    // `max` would not see what is no number.
    let worst = pairs.fold(0.0_f32, |most, (a, b)| {
        let apart = (a - b).abs();
        if apart.is_nan() || apart > most {
            apart
        } else {
            most
        }
    });
    worst / largest.max(f32::MIN_POSITIVE)
}

const N_TOKENS: usize = 48;
/// Sums have another order, and keys and values are rounded to f16 in between.
const LARGEST_DIFFERENCE: f32 = 5e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_that_is_wrong_or_none_is_seen() {
        assert_eq!(difference(&[1.0, -4.0], &[1.0, -4.0]), 0.0);
        assert_eq!(difference(&[2.0, -4.0], &[1.0, -4.0]), 0.25);
        assert!(difference(&[f32::NAN, -4.0], &[1.0, -4.0]).is_nan());
    }
}
