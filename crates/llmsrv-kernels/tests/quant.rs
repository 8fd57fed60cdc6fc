//! Quantised formats: unpacking bit for bit as an independent implementation, packing within the
//! error that its steps allow.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use llmsrv_gguf::TensorType;
use llmsrv_kernels::{Error, dequantize, quantize, quantize_weighted, supported};
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
    (TensorType::Q6_K, 0.045),
    (TensorType::Q5_K, 0.08),
    (TensorType::Q4_K, 0.14),
    (TensorType::Q3_K, 0.27),
    (TensorType::Q2_K, 0.68),
    (TensorType::IQ4_NL, 0.14),
    (TensorType::IQ4_XS, 0.17),
];

/// Root mean square of the error as a share of that of the values, by the reference quantiser (the
/// `quantize_row_*_ref` functions of ggml, October 2026) on the values of [`samples`].
const REFERENCE: &[(TensorType, [f64; 3])] = &[
    (TensorType::Q4_0, [0.084_588, 0.137_808, 0.110_226]),
    (TensorType::Q4_1, [0.077_573, 0.095_521, 0.114_627]),
    (TensorType::Q5_0, [0.042_081, 0.069_481, 0.059_677]),
    (TensorType::Q5_1, [0.037_486, 0.046_276, 0.055_074]),
    (TensorType::Q8_0, [0.005_266_2, 0.008_735_9, 0.008_600_1]),
    (TensorType::Q4_K, [0.070_724, 0.089_322, 0.090_466]),
    (TensorType::Q5_K, [0.035_776, 0.044_870, 0.049_688]),
    (TensorType::Q6_K, [0.017_499, 0.025_685, 0.024_300]),
];

/// Nearly normal values; the same with every 97th eight times as large; and their cubes.
fn samples() -> [Vec<f32>; 3] {
    let mut state = 1_u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    };
    let normal: Vec<f32> = (0..256 * 1024)
        .map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32)
        .collect();
    let far = |(at, value): (usize, &f32)| if at % 97 == 0 { 8.0 * value } else { *value };
    let with_outliers = normal.iter().enumerate().map(far).collect();
    let cubes = normal.iter().map(|value| value.powi(3) * 0.01).collect();
    [normal, with_outliers, cubes]
}

#[test]
fn packing_loses_no_more_than_the_reference() {
    let samples = samples();
    for (ty, expected) in REFERENCE {
        for (values, expected) in samples.iter().zip(expected) {
            let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
            quantize(*ty, values, &mut bytes).unwrap();
            let mut back = vec![0.0; values.len()];
            dequantize(*ty, &bytes, &mut back).unwrap();
            let (mut lost, mut all) = (0.0, 0.0);
            for (value, back) in values.iter().zip(&back) {
                lost += f64::from(value - back).powi(2);
                all += f64::from(*value).powi(2);
            }
            let share = (lost / all).sqrt();
            println!(
                "{ty}: {share:.6}, reference {expected:.6}, ratio {:.4}",
                share / expected
            );
            assert!(share < expected * 1.01, "{ty}: {share} {expected}");
        }
    }
}

#[test]
fn constant_and_extreme_blocks_survive() {
    for ty in [
        TensorType::Q2_K,
        TensorType::Q3_K,
        TensorType::Q4_K,
        TensorType::Q5_K,
        TensorType::Q6_K,
        TensorType::IQ4_NL,
        TensorType::IQ4_XS,
        TensorType::IQ3_S,
        TensorType::IQ2_S,
    ] {
        // A grid has few points whose elements are all alike.
        let tolerance = if ty.name().starts_with("IQ4") || ty.name().starts_with('Q') {
            0.01
        } else {
            0.25
        };
        for value in [0.0, 1.0, -1.0, 1e-30, -1e30, 3e7, f32::MIN_POSITIVE] {
            let values = [value; 256];
            let mut bytes = vec![0; 256 / ty.block_len() * ty.block_bytes()];
            quantize(ty, &values, &mut bytes).unwrap();
            let mut back = [f32::NAN; 256];
            dequantize(ty, &bytes, &mut back).unwrap();
            for back in back {
                assert!(back.is_finite(), "{ty}: {value} became {back}");
                if value.abs() <= 1.0 && value.abs() > 1e-3 || value == 0.0 {
                    assert!(
                        (back - value).abs() <= tolerance,
                        "{ty}: {value} became {back}"
                    );
                }
            }
        }
    }
}

/// Types whose encoders weigh errors.
const WEIGHED: &[TensorType] = &[
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::IQ3_S,
    TensorType::IQ3_XXS,
    TensorType::IQ2_S,
    TensorType::IQ2_XS,
    TensorType::IQ2_XXS,
];

/// What is left of rows that were packed, with or without weights.
fn packed_and_back(ty: TensorType, values: &[f32], weights: Option<&[f32]>) -> Vec<f32> {
    let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
    match weights {
        Some(weights) => quantize_weighted(ty, values, weights, &mut bytes).unwrap(),
        None => quantize(ty, values, &mut bytes).unwrap(),
    }
    let mut back = vec![0.0; values.len()];
    dequantize(ty, &bytes, &mut back).unwrap();
    back
}

/// The sum of squares of what was lost, columns weighted.
fn lost(values: &[f32], back: &[f32], weights: &[f32]) -> f64 {
    let columns = weights.iter().cycle();
    let pairs = values.iter().zip(back).zip(columns);
    pairs
        .map(|((value, back), weight)| f64::from(*weight) * f64::from(value - back).powi(2))
        .sum()
}

/// Every point of a grid, at every scale of a stretch, is found again.
#[test]
fn blocks_of_grids_survive_being_packed_again() {
    let mut state = 7_u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for ty in [
        TensorType::IQ3_S,
        TensorType::IQ3_XXS,
        TensorType::IQ2_S,
        TensorType::IQ2_XS,
        TensorType::IQ2_XXS,
    ] {
        let mut bytes: Vec<u8> = (0..64 * ty.block_bytes()).map(|_| byte()).collect();
        for block in bytes.chunks_mut(ty.block_bytes()) {
            block[..2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
        }
        let mut values = vec![0.0; 64 * 256];
        dequantize(ty, &bytes, &mut values).unwrap();
        let back = packed_and_back(ty, &values, None);
        let ones = [1.0; 256];
        let share = lost(&values, &back, &ones) / lost(&values, &vec![0.0; values.len()], &ones);
        println!("{ty}: {share:.6}");
        assert!(share < 0.01, "{ty}: {share}");
    }
}

/// Shares of normal values that are lost, as root mean squares; far above them a search finds poor points.
#[test]
fn points_of_grids_are_close() {
    let [normal, ..] = samples();
    let values = &normal[..256 * 64];
    for (ty, most) in [
        (TensorType::IQ3_S, 0.2),
        (TensorType::IQ3_XXS, 0.27),
        (TensorType::IQ2_S, 0.37),
        (TensorType::IQ2_XS, 0.41),
        (TensorType::IQ2_XXS, 0.47),
    ] {
        let back = packed_and_back(ty, values, None);
        let ones = [1.0; 256];
        let share = lost(values, &back, &ones) / lost(values, &vec![0.0; values.len()], &ones);
        let share = share.sqrt();
        println!("{ty}: {share:.4}");
        assert!(share < most, "{ty}: {share}");
    }
}

#[test]
fn weights_must_be_those_of_a_row() {
    let mut out = [0; 144];
    for n_weights in [0, 32, 100, 512] {
        let weights = vec![1.0; n_weights];
        let result = quantize_weighted(TensorType::Q4_K, &[1.0; 256], &weights, &mut out);
        assert!(matches!(result, Err(Error::Length { .. })), "{n_weights}");
    }
    let result = quantize_weighted(TensorType::IQ1_S, &[1.0; 256], &[1.0; 256], &mut out[..50]);
    assert!(matches!(result, Err(Error::Unsupported(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn weights_lower_the_error_where_they_are(
        values in prop::collection::vec(-1.0_f32..1.0, 8 * 512),
        exponents in prop::collection::vec(-6.0_f32..6.0, 512),
    ) {
        // Nearly normal, as weights of models are.
        let values: Vec<f32> = values.iter().map(|value| value * value * value + 0.2 * value).collect();
        let weights: Vec<f32> = exponents.iter().map(|exponent| exponent.exp()).collect();
        for ty in WEIGHED {
            let weighted = lost(&values, &packed_and_back(*ty, &values, Some(&weights)), &weights);
            let plain = lost(&values, &packed_and_back(*ty, &values, None), &weights);
            prop_assert!(weighted <= plain, "{ty}: {weighted} {plain}");
        }
    }
}

proptest! {
    #[test]
    fn packing_loses_no_more_than_a_step(values in prop::collection::vec(-100.0_f32..100.0, 256)) {
        for (ty, share) in PACKED {
            let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
            quantize(*ty, &values, &mut bytes).unwrap();
            let mut back = vec![0.0; values.len()];
            dequantize(*ty, &bytes, &mut back).unwrap();
            let len = ty.block_len().max(32);
            for (block, (values, back)) in values.chunks(len).zip(back.chunks(len)).enumerate() {
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
