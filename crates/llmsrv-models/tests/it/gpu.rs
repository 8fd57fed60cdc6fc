//! Whole models on a GPU: on a machine without one, on lavapipe, which computes on the CPU.

use llmsrv_engine::{ActivationPrecision, GpuOptions, LoadError, LoadOptions, Model, Place};
use llmsrv_gguf::TensorType;

use crate::{
    equivalence::{SOFTWARE, check_copy, check_last, check_model, load_on},
    tiny::{CASES, Case, EMBEDDERS, Parts, all_logits, argmax, difference, wide},
    tiny_encoder::ENCODERS,
};

/// Both sides compute in f32 with a KV cache of f16, and differ in the order of sums alone. That is some 1e-6; but a key
/// or value that it moves over a boundary of f16 changes by a two-thousandth.
const TOLERANCE: f32 = 1e-3;

fn on_the_cpu(case: &Case) -> Box<dyn Model> {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions {
        kv_cache_type: "f16".into(),
        n_threads: 2,
        device: "cpu".into(),
        activation_precision: ActivationPrecision::F32,
        ..LoadOptions::default()
    };
    llmsrv_models::load(&case.write(folder.path()), &options)
        .unwrap()
        .model
}

/// The families that a GPU computes: those without a recurrent state, latent attention, several
/// residual streams, attention in chunks, bounded values, gates without what is negative and scales beside
/// tensors.
fn computed() -> impl Iterator<Item = &'static Case> {
    let cases = CASES.iter().filter(|case| case.parts.latent.is_none());
    let cases = cases.filter(|case| case.parts.streams == 0 && case.name != "llama4");
    let cases = cases.filter(|case| !["dbrx", "smallthinker"].contains(&case.architecture));
    let cases = cases.filter(|case| !case.parts.scales);
    cases.filter(|case| !keeps_state(case))
}

fn keeps_state(case: &Case) -> bool {
    on_the_cpu(case).spec().state_bytes > 0
}

fn check_logits(case: &Case) {
    let mut gpu = load_on(case, "auto", "vulkan");
    assert_eq!(gpu.spec().place, Place::Gpu);
    let mut cpu = on_the_cpu(case);
    for tokens in case.prompts() {
        let (found, expected) = (
            all_logits(&mut *gpu, &tokens),
            all_logits(&mut *cpu, &tokens),
        );
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let off = difference(found, expected);
            assert!(
                off < TOLERANCE,
                "{}: position {position} is off by {off}",
                case.name
            );
        }
        let last = |rows: &[Vec<f32>]| argmax(rows.last().unwrap());
        assert_eq!(last(&found), last(&expected), "{}", case.name);
    }
}

#[test]
fn every_family_has_the_logits_of_the_cpu() {
    for case in computed() {
        check_logits(case);
    }
}

#[test]
fn every_type_has_the_logits_of_the_cpu() {
    for dtype in TYPES {
        let dense = Case {
            parts: Parts {
                n_experts: 0,
                ..wide(dtype).parts
            },
            ..wide(dtype)
        };
        check_logits(&dense);
    }
    check_logits(&wide(TensorType::Q4_K));
}

#[test]
fn batches_and_pieces_change_no_bit() {
    for case in computed() {
        let mut model = load_on(case, "auto", "vulkan");
        check_model(case.name, &mut *model, &[40, 33, 1], &[7, 1, 16, 3]);
        check_last(case, &mut *model);
    }
    for dtype in TYPES {
        let mut model = load_on(&wide(dtype), "auto", "vulkan");
        check_model(dtype.name(), &mut *model, &[70, 33, 1], &[1, 9, 30]);
    }
}

/// Blocks of a common beginning are shared, and the one in which sequences part is copied.
#[test]
fn a_copy_changes_no_bit() {
    for (case, lengths) in computed().zip(
        [(45, 20, 30), (64, 3, 3), (1, 40, 1), (70, 9, 50)]
            .into_iter()
            .cycle(),
    ) {
        check_copy(&mut *load_on(case, "auto", "vulkan"), lengths);
    }
}

fn refusal(path: &std::path::Path, gpu: GpuOptions) -> String {
    let options = LoadOptions {
        device: "vulkan".into(),
        gpu,
        ..LoadOptions::default()
    };
    match llmsrv_models::load(path, &options) {
        Err(LoadError::Gpu(reason)) => reason,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was loaded"),
    }
}

#[test]
fn what_cannot_be_computed_is_refused_with_a_reason_and_a_cure() {
    let folder = tempfile::tempdir().unwrap();
    let path = CASES[0].write(folder.path());
    let no_memory = GpuOptions {
        leave_free_bytes: u64::MAX,
        ..SOFTWARE
    };
    let reason = refusal(&path, no_memory);
    assert!(
        reason.contains("0 bytes of memory free") && reason.contains("LLMSRV_GPU=0"),
        "{reason}"
    );

    // A machine of the tests may have a real GPU, which is then used.
    if llmsrv_models::gpu_memory(GpuOptions::default()).is_err() {
        let reason = refusal(&path, GpuOptions::default());
        assert!(
            reason.contains("computes on the CPU") && reason.contains("LLMSRV_GPU=0"),
            "{reason}"
        );
    }

    let case = CASES.iter().find(|case| keeps_state(case)).unwrap();
    let reason = refusal(&case.write(folder.path()), SOFTWARE);
    assert!(reason.contains("recurrent state"), "{reason}");

    let streams = CASES.iter().find(|case| case.parts.streams > 0).unwrap();
    let reason = refusal(&streams.write(folder.path()), SOFTWARE);
    assert!(reason.contains("residual streams"), "{reason}");

    let chunks = CASES.iter().find(|case| case.name == "llama4").unwrap();
    let reason = refusal(&chunks.write(folder.path()), SOFTWARE);
    assert!(reason.contains("attention in chunks"), "{reason}");

    for scaled in CASES.iter().filter(|case| case.parts.scales) {
        let reason = refusal(&scaled.write(folder.path()), SOFTWARE);
        assert!(reason.contains("is a scale"), "{reason}");
    }

    let latent = CASES.iter().find(|case| case.parts.latent.is_some());
    let reason = refusal(&latent.unwrap().write(folder.path()), SOFTWARE);
    assert!(
        reason.contains("latent attention") && reason.contains("LLMSRV_GPU=0"),
        "{reason}"
    );

    let path = wide(TensorType::Q8_K).write(folder.path());
    let reason = refusal(&path, SOFTWARE);
    assert!(reason.contains("is of type Q8_K"), "{reason}");

    let reason = refusal(&EMBEDDERS[0].write(folder.path()), SOFTWARE);
    let name = EMBEDDERS[0].architecture;
    let expected = format!("encoders, such as {name}");
    assert!(reason.contains(&expected), "{reason}");

    let path = folder.path().join("encoder.gguf");
    std::fs::write(&path, ENCODERS[0].file().bytes()).unwrap();
    let reason = refusal(&path, SOFTWARE);
    assert!(reason.contains("encoders"), "{reason}");
}

/// The types for which there are kernels.
const TYPES: [TensorType; 28] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q8_0,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::MXFP4,
    TensorType::TQ2_0,
    TensorType::TQ1_0,
    TensorType::IQ1_S,
    TensorType::IQ1_M,
    TensorType::IQ2_XXS,
    TensorType::IQ2_XS,
    TensorType::IQ2_S,
    TensorType::IQ3_XXS,
    TensorType::IQ3_S,
    TensorType::Q1_0,
    TensorType::Q2_0,
    TensorType::NVFP4,
];
