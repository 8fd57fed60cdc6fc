//! Quantised formats: unpacking bit for bit as an independent implementation, packing within the
//! error that its steps allow.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use llmsrv_gguf::TensorType;
use llmsrv_kernels::{Error, dequantize, quantize, supported};
use proptest::prelude::*;
use serde_json::Value;

fn type_named(name: &str) -> TensorType {
    *TensorType::ALL.iter().find(|ty| ty.name() == name).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn every_format_unpacks_as_the_reference() {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/quant.json")).unwrap();
    let fixture = fixture.as_object().unwrap();
    let n_supported = TensorType::ALL.iter().filter(|ty| supported(**ty)).count();
    assert_eq!(
        fixture.len() + 1,
        n_supported,
        "all but F32 are in the fixture"
    );
    for (name, case) in fixture {
        let bytes = unhex(case["bytes"].as_str().unwrap());
        let expected: Vec<u32> = case["bits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bits| bits.as_u64().unwrap() as u32)
            .collect();
        let mut out = vec![0.0; expected.len()];
        dequantize(type_named(name), &bytes, &mut out).unwrap();
        for (at, (got, expected)) in out.iter().zip(expected).enumerate() {
            assert_eq!(
                got.to_bits(),
                expected,
                "{name}[{at}]: {got} for {}",
                f32::from_bits(expected)
            );
        }
    }
}

/// Largest error of a packed value, as a share of the largest magnitude in its block.
const PACKED: &[(TensorType, f32)] = &[
    (TensorType::F32, 0.0),
    (TensorType::F16, 0.0005),
    (TensorType::BF16, 0.004),
    (TensorType::Q8_0, 0.005),
    (TensorType::Q5_0, 0.066),
    (TensorType::Q5_1, 0.035),
    (TensorType::Q4_0, 0.131),
    (TensorType::Q4_1, 0.07),
];

proptest! {
    #[test]
    fn packing_loses_no_more_than_a_step(values in prop::collection::vec(-100.0_f32..100.0, 64)) {
        for (ty, share) in PACKED {
            let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
            quantize(*ty, &values, &mut bytes).unwrap();
            let mut back = vec![0.0; values.len()];
            dequantize(*ty, &bytes, &mut back).unwrap();
            for (block, (values, back)) in values.chunks(32).zip(back.chunks(32)).enumerate() {
                let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
                for (value, back) in values.iter().zip(back) {
                    prop_assert!((value - back).abs() <= share * largest * 1.01 + 1e-6, "{ty} block {block}: {value} {back}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_unpack_and_wrong_lengths_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..600), n in 0_usize..600) {
        for ty in TensorType::ALL {
            let mut out = vec![0.0; n];
            let fits = n.is_multiple_of(ty.block_len()) && bytes.len() == n / ty.block_len() * ty.block_bytes();
            match dequantize(*ty, &bytes, &mut out) {
                Ok(()) => prop_assert!(fits && supported(*ty)),
                Err(Error::Unsupported(_)) => prop_assert!(!supported(*ty)),
                Err(_) => prop_assert!(!fits),
            }
            let blocks = bytes.len() / ty.block_bytes();
            let mut out = vec![0.0; blocks * ty.block_len()];
            if supported(*ty) {
                prop_assert!(dequantize(*ty, &bytes[..blocks * ty.block_bytes()], &mut out).is_ok());
            }
        }
    }
}
