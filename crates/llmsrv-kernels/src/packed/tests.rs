//! Packed products against plain arithmetic on the same numbers, and against each other.

use llmsrv_gguf::TensorType;
use proptest::prelude::*;

use super::{ActivationFormat, Activations, Arena, Gate, Gemm, Packed, Residual, grouped_gemm};
use crate::{
    Error, Instructions, Pool, Weight, add_scaled, dequantize, gelu_mul, quantize, rms_norm,
    silu_mul,
};

const TYPES: [TensorType; 25] = [
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::IQ4_NL,
    TensorType::MXFP4,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
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
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
];

fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next() * next()).collect()
}

/// Weights of a type as random as its format allows: any scales, minimums and quants.
fn weights(ty: TensorType, rows: usize, cols: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; rows * cols / ty.block_len() * ty.block_bytes()];
    if quantize(ty, &values(rows * cols, seed), &mut bytes).is_ok() {
        return bytes;
    }
    // Nothing writes this type: any bytes, with scales that make weights of up to about 1.
    let scales: &[(usize, f32)] = match ty {
        TensorType::IQ4_NL => &[(0, 8e-3)],
        TensorType::IQ4_XS => &[(0, 3e-4)],
        TensorType::Q2_K => &[(80, 3e-2), (82, 5e-2)],
        TensorType::Q3_K => &[(108, 8e-3)],
        TensorType::IQ1_S => &[(0, 6e-2)],
        TensorType::IQ2_XXS | TensorType::IQ2_XS | TensorType::IQ2_S => &[(0, 6e-3)],
        TensorType::IQ3_XXS | TensorType::IQ3_S => &[(0, 2e-3)],
        TensorType::TQ1_0 => &[(52, 0.5)],
        TensorType::TQ2_0 => &[(64, 0.5)],
        _ => &[],
    };
    bytes = any_bytes(bytes.len(), seed);
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        if ty == TensorType::MXFP4 {
            // Powers of two from 1/128 to 1/16, whose steps go up to 6.
            block[0] = 120 + block[0] % 4;
        }
        if ty == TensorType::IQ1_M {
            // The scale is in the upper halves of four bytes: here 2^-4 and a little more.
            for (byte, four_bits) in [(51, 0), (53, 12), (55, 2)] {
                block[byte] = block[byte] & 15 | four_bits << 4;
            }
        }
        for (at, scale) in scales {
            // Their lower bits stay as they are.
            block[at + 1] = half::f16::from_f32(*scale).to_le_bytes()[1];
        }
    }
    bytes
}

fn any_bytes(len: usize, seed: u64) -> Vec<u8> {
    let values = values(len, seed);
    values.iter().map(|x| (x.to_bits() >> 3) as u8).collect()
}

fn multiply(
    weight: &Weight<'_>,
    x: &[f32],
    tier: Instructions,
    n_threads: usize,
) -> (Activations, Vec<f32>) {
    multiply_with(Residual::Dropped, weight, x, tier, n_threads)
}

fn multiply_with(
    residual: Residual,
    weight: &Weight<'_>,
    x: &[f32],
    tier: Instructions,
    n_threads: usize,
) -> (Activations, Vec<f32>) {
    let pool = Pool::new(n_threads);
    let packed = Packed::new(weight, &mut Arena::default(), &pool).unwrap();
    let mut activations = Activations::default();
    activations
        .quantize_at(tier, x, weight.cols, (packed.kind(), residual), &pool)
        .unwrap();
    let mut out = vec![f32::NAN; x.len() / weight.cols * weight.rows];
    let product = Gemm::new(&packed, &activations, &mut out);
    grouped_gemm(tier, &mut [product], &pool).unwrap();
    (activations, out)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_are_right_and_the_same_everywhere(
        kind in 0..TYPES.len(),
        rows in 1_usize..70,
        blocks in 1_usize..6,
        n in 1_usize..21,
        seed: u64,
    ) {
        let ty = TYPES[kind];
        // Numbers with a floating point need not fill blocks.
        let cols = if ty.block_len() == 1 { 13 * blocks } else { blocks * ty.block_len() };
        let bytes = weights(ty, rows, cols, seed);
        let weight = Weight { ty, rows, cols, bytes: &bytes };
        let mut unpacked = vec![0.0; rows * cols];
        dequantize(ty, &bytes, &mut unpacked).unwrap();
        let x = values(n * cols, seed ^ 1);
        let (_, scalar) = multiply(&weight, &x, Instructions::Scalar, 1);
        for t in 0..n {
            let x = &x[t * cols..][..cols];
            for r in 0..rows {
                let row = &unpacked[r * cols..][..cols];
                let exact: f64 = row.iter().zip(x).map(|(a, b)| f64::from(a * b)).sum();
                // Every activation is off by at most half a step.
                let bound: f64 = row
                    .chunks(ty.block_len())
                    .zip(x.chunks(ty.block_len()))
                    .map(|(row, x)| {
                        let largest = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                        let step = match ActivationFormat::of(ty).unwrap() {
                            ActivationFormat::Q8Block32 | ActivationFormat::Q8Block256 => largest / 127.0,
                            ActivationFormat::Bf16 => largest / 128.0,
                            ActivationFormat::F32 => 0.0,
                        };
                        row.iter().map(|w| f64::from(w.abs() * step * 0.5001)).sum::<f64>()
                    })
                    .sum();
                let got = f64::from(scalar[t * rows + r]);
                prop_assert!((got - exact).abs() <= bound + 1e-4, "{ty} {t} {r}: {got} {exact} {bound}");
            }
        }
        for tier in Instructions::ALL.iter().filter(|tier| tier.are_available()) {
            for n_threads in [1, 3] {
                let (_, out) = multiply(&weight, &x, *tier, n_threads);
                prop_assert_eq!(bits(&out), bits(&scalar), "{:?}", tier);
            }
            let alone = &x[(n - 1) * cols..];
            let (_, out) = multiply(&weight, alone, *tier, 2);
            prop_assert_eq!(bits(&out), bits(&scalar[(n - 1) * rows..]), "{:?} alone", tier);
        }
    }

    /// Two rows of bytes, or of BF16, are a row of 16 bits.
    #[test]
    fn rows_with_their_residuals_are_nearly_exact(
        kind in 0_usize..3,
        blocks in 1_usize..5,
        n in 1_usize..11,
        seed: u64,
    ) {
        let ty = [TensorType::Q4_K, TensorType::Q8_0, TensorType::BF16][kind];
        let kind = ActivationFormat::of(ty).unwrap();
        let (rows, cols) = (21, blocks * kind.block_len() - if kind == ActivationFormat::Bf16 { 7 } else { 0 });
        let bytes = weights(ty, rows, cols, seed);
        let weight = Weight { ty, rows, cols, bytes: &bytes };
        let mut unpacked = vec![0.0; rows * cols];
        dequantize(ty, &bytes, &mut unpacked).unwrap();
        let x = values(n * cols, seed ^ 1);
        let (_, out) = multiply_with(Residual::Kept, &weight, &x, Instructions::best(), 2);
        for (x, out) in x.chunks(cols).zip(out.chunks(rows)) {
            let largest = x.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
            for (row, got) in unpacked.chunks(cols).zip(out) {
                let exact: f64 = row.iter().zip(x).map(|(a, b)| f64::from(a * b)).sum();
                let weights: f32 = row.iter().map(|w| w.abs()).sum();
                let bound = f64::from(weights * largest / 127.0 / 127.0) + 1e-4;
                prop_assert!((f64::from(*got) - exact).abs() <= bound, "{got} {exact} {bound}");
            }
        }
        for tier in Instructions::ALL.iter().filter(|tier| tier.are_available()) {
            let (_, same) = multiply_with(Residual::Kept, &weight, &x, *tier, 1);
            prop_assert_eq!(bits(&same), bits(&out), "{:?}", tier);
        }
        let (_, alone) = multiply_with(Residual::Kept, &weight, &x[(n - 1) * cols..], Instructions::best(), 1);
        prop_assert_eq!(bits(&alone), bits(&out[(n - 1) * rows..]));
    }

    /// Bytes that no encoder makes: all quants, scales of any sign.
    #[test]
    fn any_bytes_give_the_same_everywhere(kind in 0..TYPES.len(), rows in 1_usize..20, seed: u64) {
        let (ty, n) = (TYPES[kind], 3);
        let cols = 2 * ActivationFormat::of(ty).unwrap().block_len();
        let mut bytes = any_bytes(rows * cols / ty.block_len() * ty.block_bytes(), seed);
        // Scales that are infinite or not a number are for another test.
        for pair in bytes.chunks_exact_mut(2) {
            if pair[1] & 0x7c == 0x7c || ty.block_len() == 1 {
                pair[1] &= !0x40;
            }
            // The scale of IQ1_M is in the upper halves of four such bytes.
            if ty == TensorType::IQ1_M {
                pair[1] &= !0x40;
            }
            // Nor is BF16 below the smallest normal number.
            if ty == TensorType::BF16 {
                pair[1] |= 0x20;
            }
        }
        // Nor are scales of MXFP4 whose products do not fit f32.
        if ty == TensorType::MXFP4 {
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                block[0] = block[0].min(200);
            }
        }
        let weight = Weight { ty, rows, cols, bytes: &bytes };
        let mut unpacked = vec![0.0; rows * cols];
        dequantize(ty, &bytes, &mut unpacked).unwrap();
        // Activations that are whole numbers with the largest magnitude 127 lose nothing.
        let x: Vec<f32> = values(n * cols, seed ^ 2)
            .iter()
            .enumerate()
            .map(|(at, x)| if at % 32 == 0 { 127.0 } else { (x * 127.0).round() })
            .collect();
        let (_, scalar) = multiply(&weight, &x, Instructions::Scalar, 1);
        for t in 0..n {
            for r in 0..rows {
                let pairs = unpacked[r * cols..][..cols].iter().zip(&x[t * cols..][..cols]);
                let products = pairs.map(|(w, x)| f64::from(*w) * f64::from(*x));
                let (sum, size) = products.fold((0.0, 0.0), |(sum, size), p| (sum + p, size + p.abs()));
                let got = f64::from(scalar[t * rows + r]);
                prop_assert!((got - sum).abs() <= 1e-5 * size + 1e-9, "{ty}: {got} {sum} {size}");
            }
        }
        for tier in Instructions::ALL.iter().filter(|tier| tier.are_available()) {
            let (_, out) = multiply(&weight, &x, *tier, 1);
            prop_assert_eq!(bits(&out), bits(&scalar), "{:?}", tier);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is done on the way from one product to the next gives the bits of operations of their own.
    #[test]
    fn fused_operations_are_those_one_after_another(
        kind in 0..TYPES.len(),
        rows in 1_usize..70,
        blocks in 1_usize..4,
        n in 1_usize..20,
        (gelu, keep) in any::<(bool, bool)>(),
        n_threads in 1_usize..4,
        seed: u64,
    ) {
        let (ty, pool) = (TYPES[kind], Pool::new(n_threads));
        let kind = ActivationFormat::of(ty).unwrap();
        let cols = if ty.block_len() == 1 { 13 * blocks } else { blocks * kind.block_len() };
        let mut arena = Arena::default();
        let mut packed = |seed| {
            let bytes = weights(ty, rows, cols, seed);
            Packed::new(&Weight { ty, rows, cols, bytes: &bytes }, &mut arena, &pool).unwrap()
        };
        let (first, second) = (packed(seed), packed(seed ^ 7));
        let (x, weight, bias) = (values(n * cols, seed ^ 1), values(cols, seed ^ 2), values(rows, seed ^ 3));
        let before = values(n * rows, seed ^ 4);

        let mut normed = vec![0.0; x.len()];
        rms_norm(&x, &weight, 1e-5, &mut normed);
        let (mut plain, mut fused) = (Activations::default(), Activations::default());
        let residual = if keep { Residual::Kept } else { Residual::Dropped };
        plain.quantize(&normed, cols, kind, residual, &pool).unwrap();
        fused.quantize_normed(&x, &weight, 1e-5, kind, residual, &pool).unwrap();
        let product = |weights: &Packed, x: &Activations| {
            let mut out = vec![f32::NAN; n * rows];
            weights.multiply(x, &mut out, &pool).unwrap();
            out
        };
        let expected = product(&first, &plain);
        prop_assert_eq!(bits(&product(&first, &fused)), bits(&expected));

        let compute = |product: Gemm<'_>| grouped_gemm(Instructions::best(), &mut [product], &pool).unwrap();
        let mut with_bias = expected.clone();
        for row in with_bias.chunks_mut(rows) {
            add_scaled(row, &bias, 1.0);
        }
        let mut out = vec![f32::NAN; n * rows];
        compute(Gemm { bias: &bias, ..Gemm::new(&first, &fused, &mut out) });
        prop_assert_eq!(bits(&out), bits(&with_bias));

        let mut sum = before.clone();
        add_scaled(&mut sum, &with_bias, 0.3);
        let mut out = before.clone();
        compute(Gemm { bias: &bias, add: Some(0.3), ..Gemm::new(&first, &fused, &mut out) });
        prop_assert_eq!(bits(&out), bits(&sum));

        let mut activated = with_bias.clone();
        let activation = if gelu { Gate::Gelu } else { Gate::Silu };
        match activation {
            Gate::Gelu => crate::gelu(&mut activated),
            Gate::Silu => crate::silu(&mut activated),
        }
        let mut out = vec![f32::NAN; n * rows];
        compute(Gemm { bias: &bias, activation: Some(activation), ..Gemm::new(&first, &fused, &mut out) });
        prop_assert_eq!(bits(&out), bits(&activated));

        let mut gated = product(&second, &fused);
        let gate = if gelu { Gate::Gelu } else { Gate::Silu };
        match gate {
            Gate::Silu => silu_mul(&mut gated, &with_bias),
            Gate::Gelu => gelu_mul(&mut gated, &with_bias),
        }
        let mut out = vec![f32::NAN; n * rows];
        compute(Gemm { bias: &bias, gate: Some((&second, gate)), ..Gemm::new(&first, &fused, &mut out) });
        prop_assert_eq!(bits(&out), bits(&gated));
    }
}

/// Q8Block256 rows of few tokens are cut into parts for the threads.
#[test]
fn parts_of_a_row_are_those_of_the_whole() {
    for (kind, n) in [
        (ActivationFormat::Q8Block32, 8),
        (ActivationFormat::Q8Block256, 3),
        (ActivationFormat::Bf16, 5),
    ] {
        let cols = 14_336;
        let (x, weight) = (values(n * cols, 1), values(cols, 2));
        let packed = [1, 3].map(|n_threads| {
            let pool = Pool::new(n_threads);
            let ty = match kind {
                ActivationFormat::Q8Block32 => TensorType::Q8_0,
                ActivationFormat::Q8Block256 => TensorType::Q6_K,
                ActivationFormat::F32 | ActivationFormat::Bf16 => TensorType::BF16,
            };
            let bytes = weights(ty, 2, cols, 3);
            let weights = Weight {
                ty,
                rows: 2,
                cols,
                bytes: &bytes,
            };
            let weights = Packed::new(&weights, &mut Arena::default(), &pool).unwrap();
            let mut activations = Activations::default();
            // One token at a time is never cut.
            let alone = x.chunks(cols).flat_map(|x| {
                let mut out = [0.0; 2];
                let done = activations.quantize_normed(
                    x,
                    &weight,
                    1e-6,
                    kind,
                    Residual::Dropped,
                    &Pool::new(1),
                );
                done.unwrap();
                weights.multiply(&activations, &mut out, &pool).unwrap();
                out
            });
            let alone: Vec<f32> = alone.collect();
            activations
                .quantize_normed(&x, &weight, 1e-6, kind, Residual::Dropped, &pool)
                .unwrap();
            let mut out = vec![0.0; 2 * n];
            weights.multiply(&activations, &mut out, &pool).unwrap();
            assert_eq!(bits(&out), bits(&alone), "{kind:?} {n_threads}");
            bits(&out)
        });
        assert_eq!(packed[0], packed[1]);
    }
}

#[test]
fn extreme_activations_are_neither_hidden_nor_fatal() {
    for ty in [TensorType::Q8_0, TensorType::BF16] {
        extreme_activations(ty);
    }
}

fn extreme_activations(ty: TensorType) {
    let (rows, cols) = (3, 64);
    let bytes = weights(ty, rows, cols, 5);
    let weight = Weight {
        ty,
        rows,
        cols,
        bytes: &bytes,
    };
    for (value, finite) in [
        (0.0, true),
        (1e-40, true),
        (3e38, true),
        (f32::NAN, false),
        (f32::INFINITY, false),
    ] {
        let mut x = values(cols, 1);
        x[7] = value;
        for tier in Instructions::ALL.iter().filter(|tier| tier.are_available()) {
            let (_, out) = multiply(&weight, &x, *tier, 1);
            assert!(
                out.iter().all(|y| y.is_finite() == finite),
                "{ty} {value} {tier:?} {out:?}"
            );
        }
    }
    let (_, out) = multiply(&weight, &vec![0.0; cols], Instructions::best(), 1);
    assert_eq!(out, [0.0; 3]);
}

#[test]
fn products_together_are_as_each_alone() {
    let pool = Pool::new(2);
    let mut arena = Arena::default();
    let x = values(5 * 512, 3);
    let mut packed = |ty, rows, seed| {
        let bytes = weights(ty, rows, 512, seed);
        let weight = Weight {
            ty,
            rows,
            cols: 512,
            bytes: &bytes,
        };
        Packed::new(&weight, &mut arena, &pool).unwrap()
    };
    let (q, k) = (
        packed(TensorType::Q8_0, 300, 1),
        packed(TensorType::Q4_K, 33, 2),
    );
    let (mut short, mut long) = (Activations::default(), Activations::default());
    short
        .quantize(
            &x,
            512,
            ActivationFormat::Q8Block32,
            Residual::Dropped,
            &pool,
        )
        .unwrap();
    long.quantize(
        &x,
        512,
        ActivationFormat::Q8Block256,
        Residual::Dropped,
        &pool,
    )
    .unwrap();
    let mut alone = [vec![0.0; 5 * 300], vec![0.0; 5 * 33]];
    q.multiply(&short, &mut alone[0], &pool).unwrap();
    k.multiply(&long, &mut alone[1], &pool).unwrap();
    let mut together = [vec![0.0; 5 * 300], vec![0.0; 5 * 33]];
    let [first, second] = &mut together;
    let mut products = [Gemm::new(&q, &short, first), Gemm::new(&k, &long, second)];
    grouped_gemm(Instructions::best(), &mut products, &pool).unwrap();
    assert_eq!(together, alone);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let pool = Pool::new(1);
    let mut arena = Arena::default();
    let bytes = weights(TensorType::Q4_0, 4, 64, 1);
    let weight = |ty, rows, cols| Weight {
        ty,
        rows,
        cols,
        bytes: &bytes,
    };
    let packed = Packed::new(&weight(TensorType::Q4_0, 4, 64), &mut arena, &pool).unwrap();
    assert!(Packed::new(&weight(TensorType::Q4_0, 5, 64), &mut arena, &pool).is_err());
    assert!(Packed::new(&weight(TensorType::Q4_0, 4, 65), &mut arena, &pool).is_err());
    let error = Packed::new(&weight(TensorType::Q8_K, 4, 64), &mut arena, &pool).unwrap_err();
    assert_eq!(error, Error::Unsupported(TensorType::Q8_K));
    let mut x = Activations::default();
    assert!(
        x.quantize(
            &[1.0; 65],
            65,
            ActivationFormat::Q8Block32,
            Residual::Dropped,
            &pool
        )
        .is_err()
    );
    assert!(
        x.quantize(
            &[1.0; 65],
            64,
            ActivationFormat::Q8Block32,
            Residual::Dropped,
            &pool
        )
        .is_err()
    );
    assert!(
        x.quantize(
            &[1.0; 64],
            64,
            ActivationFormat::Q8Block256,
            Residual::Dropped,
            &pool
        )
        .is_err()
    );
    x.quantize(
        &[1.0; 128],
        64,
        ActivationFormat::Q8Block32,
        Residual::Dropped,
        &pool,
    )
    .unwrap();
    assert!(packed.multiply(&x, &mut [0.0; 8], &pool).is_ok());
    assert!(packed.multiply(&x, &mut [0.0; 7], &pool).is_err());
    let other = Packed::new(&weight(TensorType::Q4_0, 2, 128), &mut arena, &pool).unwrap();
    let mut out = [0.0; 8];
    for (bias, gate) in [(&[1.0; 3][..], None), (&[], Some((&other, Gate::Silu)))] {
        let product = Gemm {
            bias,
            gate,
            ..Gemm::new(&packed, &x, &mut out)
        };
        assert!(grouped_gemm(Instructions::best(), &mut [product], &pool).is_err());
    }
    x.quantize(
        &[1.0; 32],
        32,
        ActivationFormat::Q8Block32,
        Residual::Dropped,
        &pool,
    )
    .unwrap();
    assert!(packed.multiply(&x, &mut [0.0; 4], &pool).is_err());
    x.quantize(
        &[1.0; 256],
        256,
        ActivationFormat::Q8Block256,
        Residual::Dropped,
        &pool,
    )
    .unwrap();
    assert!(packed.multiply(&x, &mut [0.0; 16], &pool).is_err());
}

/// Some instructions want the bytes of two tokens side by side, and others do not.
#[test]
fn activations_for_other_instructions_are_an_error() {
    let (bytes, pool) = (weights(TensorType::Q4_0, 4, 64, 1), Pool::new(1));
    let weight = Weight {
        ty: TensorType::Q4_0,
        rows: 4,
        cols: 64,
        bytes: &bytes,
    };
    let packed = Packed::new(&weight, &mut Arena::default(), &pool).unwrap();
    let (mut x, mut out) = (Activations::default(), [0.0; 8]);
    for made_for in Instructions::ALL {
        let made = x.quantize_at(
            *made_for,
            &[1.0; 128],
            64,
            (ActivationFormat::Q8Block32, Residual::Dropped),
            &pool,
        );
        if !made_for.are_available() {
            assert_eq!(made, Err(Error::Unavailable(*made_for)));
            continue;
        }
        for tier in Instructions::ALL {
            let product = Gemm::new(&packed, &x, &mut out);
            let done = grouped_gemm(*tier, &mut [product], &pool);
            let fits = tier.are_available() && tier.wants_pairs() == made_for.wants_pairs();
            assert_eq!(done.is_ok(), fits, "{made_for:?} {tier:?}");
        }
    }
}

/// What a model will take is computed from the header of its file, before anything is packed.
#[test]
fn packed_weights_take_the_memory_that_is_said() {
    for ty in TYPES {
        let (rows, cols) = (32, 512);
        let bytes = weights(ty, rows, cols, 2);
        let weight = Weight {
            ty,
            rows,
            cols,
            bytes: &bytes,
        };
        let packed = Packed::new(&weight, &mut Arena::default(), &Pool::new(1)).unwrap();
        let n_blocks = bytes.len() / ty.block_bytes();
        assert_eq!(packed.bytes(), n_blocks * ty.resident_block_bytes(), "{ty}");
    }
}
