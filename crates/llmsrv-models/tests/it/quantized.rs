//! Every type of weights: the CPU kernels against candle on the same values unpacked to f32.

use crate::tiny::{all_logits, difference, wide};
use llmsrv_engine::LoadOptions;
use llmsrv_gguf::TensorType;

const TYPES: [TensorType; 16] = [
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
];

#[test]
fn all_weight_types_agree_with_plain_arithmetic() {
    let folder = tempfile::tempdir().unwrap();
    for dtype in TYPES {
        let case = wide(dtype);
        let path = case.write(folder.path());
        let [prompt, _] = case.prompts();
        let logits = |device: &str, kv_cache_type: &str| {
            let options = LoadOptions {
                kv_cache_type: kv_cache_type.into(),
                n_threads: 2,
                device: device.into(),
                ..LoadOptions::default()
            };
            let mut loaded = llmsrv_models::load(&path, &options).unwrap();
            all_logits(&mut *loaded.model, &prompt)
        };
        let candle = logits("candle", "f32");
        for (kv_cache_type, tolerance) in [("f32", 1e-4), ("f16", 1e-2)] {
            let cpu = logits("cpu", kv_cache_type);
            for (cpu, candle) in cpu.iter().zip(&candle) {
                let difference = difference(cpu, candle);
                let name = dtype.name();
                assert!(
                    difference < tolerance,
                    "{name} {kv_cache_type}: {difference}"
                );
            }
        }
    }
}
