//! Every type of weights: the CPU kernels against candle on the same values unpacked to f32.

use std::path::Path;

use crate::tiny::{Case, all_logits, difference, wide};
use llmsrv_engine::{ActivationPrecision, LoadOptions};
use llmsrv_gguf::TensorType;

const TYPES: [TensorType; 29] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::MXFP4,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::IQ1_S,
    TensorType::IQ1_M,
    TensorType::IQ2_XXS,
    TensorType::IQ2_XS,
    TensorType::IQ2_S,
    TensorType::IQ3_XXS,
    TensorType::IQ3_S,
    TensorType::TQ1_0,
    TensorType::TQ2_0,
    TensorType::NVFP4,
    TensorType::Q8_K,
    TensorType::Q1_0,
    TensorType::Q2_0,
];

#[test]
fn all_weight_types_agree_with_plain_arithmetic() {
    let folder = tempfile::tempdir().unwrap();
    for dtype in TYPES {
        let case = wide(dtype);
        let candle = logits(
            folder.path(),
            &case,
            "candle",
            "f32",
            ActivationPrecision::F32,
        );
        for (kv_cache_type, tolerance) in [("f32", 1e-4), ("f16", 1e-2)] {
            let cpu = logits(
                folder.path(),
                &case,
                "cpu",
                kv_cache_type,
                ActivationPrecision::F32,
            );
            let worst = worst(&cpu, &candle);
            assert!(worst < tolerance, "{dtype} {kv_cache_type}: {worst}");
        }
    }
}

/// Activations of 8 bits lose little, of 16 bits next to nothing. Without experts, since a small error may choose other ones.
#[test]
fn fast_arithmetic_stays_close_for_all_weight_types() {
    let folder = tempfile::tempdir().unwrap();
    for dtype in TYPES {
        let mut case = wide(dtype);
        case.keys = &[];
        case.parts.n_experts = 0;
        let exact = logits(folder.path(), &case, "cpu", "f32", ActivationPrecision::F32);
        let fast = logits(
            folder.path(),
            &case,
            "cpu",
            "f32",
            ActivationPrecision::Int8,
        );
        let relative = relative(&fast, &exact);
        // What is lost in each product grows on its way through random layers. A wrong bit anywhere
        // would cost far more.
        println!("{dtype}: {relative:.1e}");
        assert!(relative < 6e-2, "{dtype}: {relative}");
        let fine = logits(
            folder.path(),
            &case,
            "cpu",
            "f32",
            ActivationPrecision::Int16,
        );
        let relative = self::relative(&fine, &exact);
        println!("{dtype}, 16 bits: {relative:.1e}");
        assert!(relative < 1e-3, "{dtype}: {relative}");
    }
}

fn logits(
    folder: &Path,
    case: &Case,
    device: &str,
    kv_cache_type: &str,
    activation_precision: ActivationPrecision,
) -> Vec<Vec<f32>> {
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 2,
        device: device.into(),
        activation_precision,
        ..LoadOptions::default()
    };
    let [prompt, _] = case.prompts();
    let mut loaded = llmsrv_models::load(&case.write(folder), &options).unwrap();
    all_logits(&mut *loaded.model, &prompt)
}

fn worst(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let differences = found.iter().zip(expected).map(|(a, b)| difference(a, b));
    differences.fold(0.0, f32::max)
}

/// The length of all differences as a share of the length of what is expected.
fn relative(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    let (off, all) = pairs.fold((0.0, 0.0), |(off, all), (a, b)| {
        (off + (a - b) * (a - b), all + b * b)
    });
    (off / all).sqrt()
}
