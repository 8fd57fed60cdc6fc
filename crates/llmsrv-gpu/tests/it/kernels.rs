//! Kernels against their twins, bit for bit, with shapes drawn at random.

use std::sync::{Mutex, MutexGuard, OnceLock};

use llmsrv_gguf::TensorType;
use llmsrv_gpu::{
    Arithmetic, Attention, Choice, DeltaRule, Error, Function, Gpu, Kind, Matrix, Round,
    SelectiveScan, ShortConv, States, StepRow, Stretch, Tensor, counts,
};
use llmsrv_kernels::{Activations, Arena, Packed, Pool, Residual, Weight};
use proptest::{prelude::*, test_runner::Config};

use crate::twin::{self, Layout};

/// The device of all tests: pipelines are made once.
pub(crate) fn gpu() -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    let open = || {
        let choice = Choice {
            software: true,
            vendor: true,
            ..Choice::default()
        };
        Mutex::new(
            Gpu::open(&choice, 0).expect("a Vulkan device, for example of mesa-vulkan-drivers"),
        )
    };
    GPU.get_or_init(open)
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Numbers that look random, from -1 to 1.
pub(crate) fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

pub(crate) fn read(gpu: &mut Gpu, x: &Tensor, n: usize) -> Vec<f32> {
    let mut out = vec![0.0; n];
    gpu.read(x, &mut out).unwrap();
    out
}

/// Equal to the last bit where the device does not fuse, else nearly.
pub(crate) fn check(gpu: &Gpu, found: &[f32], expected: &[f32]) -> Result<(), TestCaseError> {
    check_within(gpu, found, expected, 2e-4)
}

/// As [`check`]; on a card results may be off by so much.
pub(crate) fn check_within(
    gpu: &Gpu,
    found: &[f32],
    expected: &[f32],
    off: f32,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.len(), expected.len());
    let exact = gpu.device().kind == Kind::Software;
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.to_bits() == expected.to_bits() || (*found == 0.0 && *expected == 0.0);
        let close = (found - expected).abs() <= off * expected.abs().max(1.0);
        prop_assert!(same || (!exact && close), "{i}: {found} is not {expected}");
    }
    Ok(())
}

pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

/// The types with kernels, and the order in which these take weights.
pub(crate) const TYPES: [(TensorType, Layout); 28] = [
    (TensorType::F32, Layout::Values),
    (TensorType::F16, Layout::Values),
    (TensorType::BF16, Layout::Values),
    (TensorType::Q8_0, Layout::Units(in_order)),
    (TensorType::Q4_0, Layout::Units(in_halves)),
    (TensorType::Q4_1, Layout::Units(in_halves)),
    (TensorType::Q5_0, Layout::Units(in_halves)),
    (TensorType::Q5_1, Layout::Units(in_halves)),
    (TensorType::Q4_K, Layout::Units(in_pairs_of_32)),
    (TensorType::Q5_K, Layout::Units(in_pairs_of_32)),
    (TensorType::Q6_K, Layout::Units(in_pairs_of_64)),
    (TensorType::Q2_K, Layout::Units(in_pairs_of_32)),
    (TensorType::Q3_K, Layout::Units(in_pairs_of_32)),
    (TensorType::IQ4_NL, Layout::Units(in_halves)),
    (TensorType::IQ4_XS, Layout::Units(in_halves)),
    (TensorType::MXFP4, Layout::Units(in_halves)),
    (TensorType::TQ2_0, Layout::Units(in_pairs_of_32)),
    (TensorType::TQ1_0, Layout::Units(in_order)),
    (TensorType::IQ1_S, Layout::Units(in_order)),
    (TensorType::IQ1_M, Layout::Units(in_order)),
    (TensorType::IQ2_XXS, Layout::Units(in_order)),
    (TensorType::IQ2_XS, Layout::Units(in_order)),
    (TensorType::IQ2_S, Layout::Units(in_order)),
    (TensorType::IQ3_XXS, Layout::Units(in_order)),
    (TensorType::IQ3_S, Layout::Units(in_order)),
    (TensorType::Q1_0, Layout::Units(in_order)),
    (TensorType::Q2_0, Layout::Units(in_order)),
    (TensorType::NVFP4, Layout::Units(in_pairs_of_8)),
];

fn in_order(u: usize) -> [usize; 2] {
    [2 * u, 2 * u + 1]
}

fn in_halves(u: usize) -> [usize; 2] {
    let first = u / 4 * 8 + u % 4;
    [first, first + 4]
}

fn in_pairs_of_8(u: usize) -> [usize; 2] {
    let first = u / 2 * 4 + u % 2;
    [first, first + 2]
}

fn in_pairs_of_32(u: usize) -> [usize; 2] {
    let first = u / 32 * 64 + u % 32 / 8 * 16 + u % 8;
    [first, first + 8]
}

fn in_pairs_of_64(u: usize) -> [usize; 2] {
    let first = u / 32 * 64 + u % 32 / 16 * 32 + u % 16;
    [first, first + 16]
}

/// Weights in blocks of a type; of one that nobody writes here, any bytes with scales around 1.
pub(crate) fn packed(dtype: TensorType, weights: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; weights.len() / dtype.block_len() * dtype.block_bytes()];
    if llmsrv_kernels::quantize(dtype, weights, &mut bytes).is_ok() {
        return bytes;
    }
    for (byte, weight) in bytes.iter_mut().zip(weights) {
        *byte =
            weight.to_bits().to_le_bytes()[2].wrapping_mul(37) ^ weight.to_bits().to_le_bytes()[1];
    }
    for (n, block) in bytes.chunks_mut(dtype.block_bytes()).enumerate() {
        let n = n as u8 % 8;
        // The upper byte of a scale of half precision, between a quarter and one.
        match dtype {
            TensorType::MXFP4 => block[0] = 120 + n,
            // Scales of four.
            TensorType::NVFP4 => block[..4].copy_from_slice(&[0x30 + n, 0x41, 0x07, 0x7f]),
            TensorType::TQ1_0 => block[53] = 0x34 + n % 4,
            TensorType::TQ2_0 => block[65] = 0x34 + n % 4,
            TensorType::IQ1_M => {
                block[53] = (4 + n % 4) << 4;
                block[55] = 0x30;
            }
            _ => block[1] = 0x34 + n % 4,
        }
    }
    bytes
}

/// Puts a matrix onto the device for products in the given arithmetic.
pub(crate) fn matrix(
    gpu: &mut Gpu,
    arithmetic: Arithmetic,
    dtype: TensorType,
    (n_out, n_in): (usize, usize),
    bytes: &[u8],
) -> Matrix {
    gpu.set_arithmetic(arithmetic);
    let made = gpu.matrix(dtype, n_out, n_in, bytes, &llmsrv_kernels::codebook(dtype));
    gpu.set_arithmetic(Arithmetic::F32);
    made.unwrap()
}

/// A product with one row of weights, in the given arithmetic if its type has it.
pub(crate) fn product(
    arithmetic: Arithmetic,
    (dtype, layout): (TensorType, Layout),
    (bytes, weights): (&[u8], &[f32]),
    x: &[f32],
) -> f32 {
    let int8 = match arithmetic {
        Arithmetic::F32 => None,
        Arithmetic::Int8 => twin::int8_product::<false>(dtype, bytes, x),
    };
    int8.unwrap_or_else(|| twin::dot(weights, x, layout))
}

pub(crate) fn arithmetic() -> impl Strategy<Value = Arithmetic> {
    prop_oneof![Just(Arithmetic::F32), Just(Arithmetic::Int8)]
}

/// Any type; half of the time one with integer products.
pub(crate) fn any_type() -> impl Strategy<Value = (TensorType, Layout)> {
    let int8 = TYPES.map(|(dtype, layout)| {
        twin::INT8
            .iter()
            .any(|(of, ..)| *of == dtype)
            .then_some((dtype, layout))
    });
    let int8: Vec<_> = int8.into_iter().flatten().collect();
    assert_eq!(int8.len(), twin::INT8.len());
    prop_oneof![prop::sample::select(&TYPES[..]), prop::sample::select(int8)]
}

proptest! {
    #![proptest_config(config(160))]

    /// So a device that multiplies and adds with one rounding gives the CPU's bits.
    #[test]
    fn integer_products_are_those_of_the_cpu(kind in 0..twin::INT8.len(), n_rows in 1_usize..6, n_out in 1_usize..24, blocks in 1_usize..5, seed in any::<u64>()) {
        let (dtype, ..) = twin::INT8[kind];
        let n_in = blocks * dtype.block_len();
        let bytes = packed(dtype, &numbers(seed, n_out * n_in));
        let mut x = numbers(seed ^ 1, n_rows * n_in);
        // A block of zeros, which has no scale.
        x[..dtype.block_len()].fill(0.0);
        let pool = Pool::new(1);
        let weight = Weight { ty: dtype, rows: n_out, cols: n_in, bytes: &bytes };
        let on_cpu = Packed::new(&weight, &mut Arena::default(), &pool).unwrap();
        let mut activations = Activations::default();
        activations.quantize(&x, n_in, on_cpu.kind(), Residual::Dropped, &pool).unwrap();
        let mut found = vec![0.0; n_rows * n_out];
        on_cpu.multiply(&activations, &mut found, &pool).unwrap();
        let mut expected = Vec::new();
        for x in x.chunks(n_in) {
            let rows = bytes.chunks(bytes.len() / n_out);
            expected.extend(rows.filter_map(|row| twin::int8_product::<true>(dtype, row, x)));
        }
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&found), bits(&expected));
    }

    #[test]
    fn products((dtype, layout) in any_type(), arithmetic in arithmetic(), n_rows in prop_oneof![1_usize..20, 1_usize..80], n_out in prop_oneof![1_usize..24, 60_usize..140], blocks in 1_usize..5, seed in any::<u64>(), (with_bias, scaled) in any::<(bool, bool)>(), tiles_from in 2_usize..40) {
        // Odd lengths where a block is one weight.
        let n_in = if dtype.block_len() == 1 { blocks * 37 } else { blocks * dtype.block_len() };
        let mut weights = numbers(seed, n_out * n_in);
        let bytes = packed(dtype, &weights);
        llmsrv_kernels::dequantize(dtype, &bytes, &mut weights).unwrap();
        let x = numbers(seed ^ 1, n_rows * n_in);
        let bias = numbers(seed ^ 2, n_out);
        let before = numbers(seed ^ 3, n_rows * n_out);

        let gpu = &mut *gpu();
        gpu.set_tiles_from(tiles_from);
        let factor = if scaled { 0.3 } else { 1.0 };
        let matrix = matrix(gpu, arithmetic, dtype, (n_out, n_in), &bytes).scaled(factor);
        let on_device = gpu.rows(&x, n_in).unwrap();
        let bias_vector = gpu.vector(&bias).unwrap();
        let bias_vector = with_bias.then_some(&bias_vector);
        let y = gpu.linear(&on_device, &matrix, bias_vector).unwrap();
        let mut sum = gpu.rows(&before, n_out).unwrap();
        gpu.add_linear(&mut sum, &on_device, &matrix, bias_vector, 0.5).unwrap();

        let mut expected = Vec::new();
        for row in x.chunks(n_in) {
            let rows = bytes.chunks(bytes.len() / n_out).zip(weights.chunks(n_in));
            for (n, weights) in rows.enumerate() {
                let product = product(arithmetic, (dtype, layout), weights, row) * factor;
                expected.push(if with_bias { product + bias[n] } else { product });
            }
        }
        let found = read(gpu, &y, n_rows * n_out);
        check(gpu, &found, &expected)?;
        let sums: Vec<f32> = before.iter().zip(&expected).map(|(before, y)| before + 0.5 * y).collect();
        let found_sums = read(gpu, &sum, n_rows * n_out);
        check(gpu, &found_sums, &sums)?;
        // A row alone has the same bits as beside others, whatever kernel computes it.
        let row = n_rows / 2;
        let alone = gpu.rows(&x[row * n_in..][..n_in], n_in).unwrap();
        let alone = gpu.linear(&alone, &matrix, bias_vector).unwrap();
        let alone = read(gpu, &alone, n_out);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&alone), bits(&found[row * n_out..][..n_out]));
    }

    #[test]
    fn products_of_several_matrices(
        (dtype, _) in any_type(),
        arithmetic in arithmetic(),
        n_rows in 1_usize..24,
        outputs in prop::collection::vec(1_usize..20, 1..6),
        (with_bias, apart) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let other = if apart { TensorType::F16 } else { dtype };
        let is_rounded = |dtype: TensorType| {
            arithmetic == Arithmetic::Int8 && twin::INT8.iter().any(|(of, ..)| *of == dtype)
        };
        let n_in = if dtype.block_len() == 1 { 74 } else { 2 * dtype.block_len() };
        let gpu = &mut *gpu();
        let mut matrices = Vec::new();
        for (idx, n_out) in outputs.iter().enumerate() {
            // One in the middle of another type, which no kernel takes together with the others.
            let dtype = if idx == 1 { other } else { dtype };
            let bytes = packed(dtype, &numbers(seed ^ idx as u64, n_out * n_in));
            let matrix = matrix(gpu, arithmetic, dtype, (*n_out, n_in), &bytes);
            let bias = gpu.vector(&numbers(seed ^ 0x77 ^ idx as u64, *n_out)).unwrap();
            matrices.push((matrix, (with_bias && idx != 2).then_some(bias)));
        }
        let factors: Vec<_> = matrices.iter().map(|(matrix, bias)| (matrix, bias.as_ref())).collect();
        let x = gpu.rows(&numbers(seed ^ 5, n_rows * n_in), n_in).unwrap();
        let before = counts().dispatches;
        let together = gpu.linears(&x, &factors).unwrap();
        let n_kernels = counts().dispatches - before;
        let bits = |values: Vec<f32>| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for ((matrix, bias), (found, n_out)) in factors.iter().zip(together.iter().zip(&outputs)) {
            let alone = gpu.linear(&x, matrix, *bias).unwrap();
            let alone = bits(read(gpu, &alone, n_rows * n_out));
            prop_assert_eq!(bits(read(gpu, found, n_rows * n_out)), alone);
        }
        // They were put onto the device one behind the other, so as few kernels as their number and types allow, and one
        // that rounds.
        let n_apart = usize::from(outputs.len() > 1 && other != dtype);
        let expected = (outputs.len() - n_apart).div_ceil(4) + n_apart + usize::from(is_rounded(dtype));
        prop_assert_eq!(n_kernels, expected as u64);
        // A gate and what it multiplies.
        let mut pair = Vec::new();
        for (seed, dtype) in [(seed ^ 0x100, dtype), (seed ^ 0x101, other)] {
            let bytes = packed(dtype, &numbers(seed, outputs[0] * n_in));
            pair.push(matrix(gpu, arithmetic, dtype, (outputs[0], n_in), &bytes));
        }
        let bias = matrices[0].1.as_ref();
        for function in [Function::Silu, Function::ClampedSwiglu] {
            let before = counts().dispatches;
            let fused = gpu.gated_linear(&x, (&pair[0], bias), (&pair[1], None), function).unwrap();
            let n_kernels = counts().dispatches - before;
            let n_rounded = u64::from(is_rounded(dtype));
            prop_assert_eq!(n_kernels, n_rounded + if other == dtype { 1 } else { 3 });
            let mut gate = gpu.linear(&x, &pair[0], bias).unwrap();
            let up = gpu.linear(&x, &pair[1], None).unwrap();
            gpu.gated(&mut gate, &up, function).unwrap();
            let expected = bits(read(gpu, &gate, n_rows * outputs[0]));
            prop_assert_eq!(bits(read(gpu, &fused, n_rows * outputs[0])), expected);
        }
    }

    /// A norm that rounds its rows, too, has the bits of one that does not, and what it rounds those of the other kernel;
    /// rows that are changed after it are rounded anew.
    #[test]
    fn norms_round_their_rows(n_rows in 1_usize..8, blocks in 1_usize..6, seed in any::<u64>()) {
        let (n_in, n_out) = (256 * blocks, 5);
        let values = numbers(seed, n_rows * n_in);
        let bytes = packed(TensorType::Q4_K, &numbers(seed ^ 1, n_out * n_in));
        let gpu = &mut *gpu();
        let weight = gpu.vector(&numbers(seed ^ 2, n_in)).unwrap();
        let x = gpu.rows(&values, n_in).unwrap();
        let plain = gpu.rms_norm(&x, &weight, 1e-5).unwrap();
        let plain = read(gpu, &plain, values.len());
        let before = gpu.arithmetic();
        gpu.set_arithmetic(Arithmetic::Int8);
        let matrix = gpu.matrix(TensorType::Q4_K, n_out, n_in, &bytes, &[]).unwrap();
        let mut normed = gpu.rms_norm(&x, &weight, 1e-5).unwrap();
        let found = read(gpu, &normed, values.len());
        let product = |gpu: &mut Gpu, x: &Tensor| {
            let out = gpu.linear(x, &matrix, None).unwrap();
            read(gpu, &out, n_rows * n_out)
        };
        let of_norm = product(gpu, &normed);
        let again = gpu.rows(&plain, n_in).unwrap();
        let of_rows = product(gpu, &again);
        gpu.activate(&mut normed, Function::Relu).unwrap();
        let of_changed = product(gpu, &normed);
        let changed: Vec<f32> = plain.iter().map(|x| x.max(0.0)).collect();
        let changed = gpu.rows(&changed, n_in).unwrap();
        let of_changed_rows = product(gpu, &changed);
        gpu.set_arithmetic(before);
        prop_assert_eq!(found, plain);
        prop_assert_eq!(of_norm, of_rows);
        prop_assert_eq!(of_changed, of_changed_rows);
    }

    #[test]
    fn norms(n_rows in 1_usize..8, heads in 1_usize..4, len in 1_usize..300, seed in any::<u64>()) {
        let x = numbers(seed, n_rows * heads * len);
        let (weight, bias) = (numbers(seed ^ 1, len), numbers(seed ^ 2, len));
        let gpu = &mut *gpu();
        let on_device = gpu.rows(&x, heads * len).unwrap();
        let (weights, biases) = (gpu.vector(&weight).unwrap(), gpu.vector(&bias).unwrap());
        let rms = gpu.rms_norm(&on_device, &weights, 1e-5).unwrap();
        let layer = gpu.layer_norm(&on_device, &weights, Some(&biases), 1e-5).unwrap();
        let of = |norm: &dyn Fn(&[f32]) -> Vec<f32>| x.chunks(len).flat_map(norm).collect::<Vec<_>>();
        let rms = read(gpu, &rms, x.len());
        check(gpu, &rms, &of(&|x| twin::rms_norm(x, &weight, 1e-5)))?;
        let parts = numbers(seed ^ 3, heads * len);
        let grouped = gpu.vector(&parts).unwrap();
        let grouped = gpu.grouped_norm(&on_device, &grouped, heads, 1e-5).unwrap();
        let found = read(gpu, &grouped, x.len());
        let stretches = x.chunks(len).zip(parts.chunks(len).cycle());
        check(gpu, &found, &stretches.flat_map(|(x, weight)| twin::rms_norm(x, weight, 1e-5)).collect::<Vec<_>>())?;
        let layer = read(gpu, &layer, x.len());
        check(gpu, &layer, &of(&|x| twin::layer_norm(x, &weight, &bias, 1e-5)))?;

        // Several at once, the second of another length.
        let other = numbers(seed ^ 4, n_rows * heads * len);
        let all = gpu.vector(&parts).unwrap();
        let mut tensors = [&x, &other, &x].map(|x| gpu.rows(x, heads * len).unwrap());
        let of_tensors = [&weights, &all, &weights];
        gpu.rms_norms(tensors.iter_mut().zip(of_tensors).collect(), 1e-5).unwrap();
        let other: Vec<f32> = other.chunks(heads * len).flat_map(|x| twin::rms_norm(x, &parts, 1e-5)).collect();
        for (found, expected) in tensors.iter().zip([&rms, &other, &rms]) {
            let found = read(gpu, found, x.len());
            check(gpu, &found, expected)?;
        }

        // Added to others, and normed again.
        let before = numbers(seed ^ 5, n_rows * heads * len);
        let next = numbers(seed ^ 6, heads * len);
        let next_weight = gpu.vector(&next).unwrap();
        for next_weight in [None, Some(&next_weight)] {
            let mut sum = gpu.rows(&before, heads * len).unwrap();
            let normed = gpu.add_normed(&mut sum, (&on_device, &all), 1e-5, 0.3, next_weight).unwrap();
            let rows = x.chunks(heads * len).flat_map(|x| twin::rms_norm(x, &parts, 1e-5));
            let expected: Vec<f32> = before.iter().zip(rows).map(|(x, y)| x + 0.3 * y).collect();
            let found = read(gpu, &sum, x.len());
            check(gpu, &found, &expected)?;
            prop_assert_eq!(normed.is_some(), next_weight.is_some());
            if let Some(normed) = normed {
                let expected: Vec<f32> = expected.chunks(heads * len).flat_map(|x| twin::rms_norm(x, &next, 1e-5)).collect();
                let found = read(gpu, &normed, x.len());
                check(gpu, &found, &expected)?;
            }
        }
    }

    #[test]
    fn single_elements(n_rows in 1_usize..9, width in 1_usize..90, seed in any::<u64>()) {
        let n = n_rows * width;
        let x: Vec<f32> = numbers(seed, n).iter().map(|x| x * 12.0).collect();
        let y: Vec<f32> = numbers(seed ^ 1, n).iter().map(|x| x * 12.0).collect();
        let gpu = &mut *gpu();
        let other = gpu.rows(&y, width).unwrap();
        let functions = [Function::Silu, Function::Gelu, Function::ClampedSwiglu, Function::ReluSquared, Function::Sigmoid, Function::Tanh, Function::Identity, Function::Relu];
        for function in functions {
            let mut gate = gpu.rows(&x, width).unwrap();
            gpu.gated(&mut gate, &other, function).unwrap();
            let up = |y: f32| if function == Function::ClampedSwiglu { y.clamp(-7.0, 7.0) + 1.0 } else { y };
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| twin::activated(function, *x) * up(*y)).collect();
            let found = read(gpu, &gate, n);
            check(gpu, &found, &expected)?;
            let mut alone = gpu.rows(&x, width).unwrap();
            gpu.activate(&mut alone, function).unwrap();
            let expected: Vec<f32> = x.iter().map(|x| twin::activated(function, *x)).collect();
            let found = read(gpu, &alone, n);
            check(gpu, &found, &expected)?;
        }
        let mut sum = gpu.rows(&x, width).unwrap();
        gpu.add(&mut sum, &other, 0.25).unwrap();
        let found = read(gpu, &sum, n);
        check(gpu, &found, &x.iter().zip(&y).map(|(x, y)| x + 0.25 * y).collect::<Vec<_>>())?;

        let factors = numbers(seed ^ 2, n_rows);
        let mut scaled = gpu.rows(&x, width).unwrap();
        gpu.scale_rows(&mut scaled, &factors).unwrap();
        let times = |factor: &dyn Fn(usize) -> f32| (0..n).map(|i| x[i] * factor(i / width)).collect::<Vec<_>>();
        let found = read(gpu, &scaled, n);
        check(gpu, &found, &times(&|row| factors[row]))?;
        let gate = gpu.rows(&factors, 1).unwrap();
        let mut gated = gpu.rows(&x, width).unwrap();
        gpu.sigmoid_gate(&mut gated, &gate).unwrap();
        let found = read(gpu, &gated, n);
        check(gpu, &found, &times(&|row| 1.0 / (1.0 + twin::exponential(-factors[row]))))?;
    }

    #[test]
    fn streams(n_rows in 1_usize..9, width in 1_usize..200, (n, first) in (1_usize..10, 0_usize..3), seed in any::<u64>()) {
        let gpu = &mut *gpu();
        let values: Vec<Vec<f32>> = (0..n as u64).map(|i| numbers(seed ^ i, n_rows * width)).collect();
        let tensors: Vec<Tensor> = values.iter().map(|x| gpu.rows(x, width).unwrap()).collect();
        let scores = numbers(seed ^ 0x20, n_rows * n);
        let n_factors = first + n;
        let weights = numbers(seed ^ 0x21, n_factors * (n + 1));
        let (on_device, weights_on_device) = (gpu.rows(&scores, n).unwrap(), gpu.vector(&weights).unwrap());
        let factors = gpu.stream_factors(&on_device, &weights_on_device).unwrap();
        let expected: Vec<f32> = scores.chunks(n).flat_map(|scores| weights.chunks(n + 1).map(|weights| twin::stream_factor(weights, scores))).collect();
        let found = read(gpu, &factors, n_rows * n_factors);
        check(gpu, &found, &expected)?;

        let parts: Vec<&Tensor> = tensors.iter().collect();
        let sum = gpu.weighted_sum(&parts, &factors, first).unwrap();
        let of_row = |i: usize| &expected[i / width * n_factors + first..][..n];
        let sums = (0..n_rows * width).map(|i| values.iter().zip(of_row(i)).fold(0.0, |sum, (x, factor)| sum + factor * x[i]));
        let found = read(gpu, &sum, n_rows * width);
        check(gpu, &found, &sums.collect::<Vec<_>>())?;

        let of_columns = numbers(seed ^ 0x22, width);
        let vector = gpu.vector(&of_columns).unwrap();
        let scaled = gpu.scale_columns(&tensors[0], &vector).unwrap();
        let found = read(gpu, &scaled, n_rows * width);
        let products = values[0].iter().zip(of_columns.iter().cycle()).map(|(x, factor)| x * factor);
        let scaled_values: Vec<f32> = products.collect();
        check(gpu, &found, &scaled_values)?;

        let like = &values[n - 1];
        let ratios = gpu.length_ratios(&scaled, &tensors[n - 1]).unwrap();
        let rows = scaled_values.chunks(width).zip(like.chunks(width));
        let expected: Vec<f32> = rows.map(|(x, like)| twin::length_ratio(x, like)).collect();
        let found = read(gpu, &ratios, n_rows);
        check(gpu, &found, &expected)?;

        let mut peaks = gpu.rows(&values[0], width).unwrap();
        gpu.peaks(&mut peaks, 0.4).unwrap();
        let expected: Vec<f32> = values[0].chunks(width).flat_map(|x| twin::peaks(x, 0.4)).collect();
        let found = read(gpu, &peaks, n_rows * width);
        check(gpu, &found, &expected)?;
    }

    #[test]
    fn rows_and_columns(n_rows in 1_usize..9, width in 1_usize..90, first in 0_usize..80, seed in any::<u64>()) {
        let x = numbers(seed, n_rows * width);
        let gpu = &mut *gpu();
        let mut on_device = gpu.rows(&x, width).unwrap();
        let first = first % width;
        let columns = gpu.columns(&on_device, first, width - first).unwrap();
        let joined = gpu.join(&[&columns, &on_device, &columns]).unwrap();
        let expected: Vec<f32> = x.chunks(width).flat_map(|row| [&row[first..], row, &row[first..]].concat()).collect();
        prop_assert_eq!(read(gpu, &joined, expected.len()), expected);
        let mut bounded = gpu.rows(&x, width).unwrap();
        gpu.clamp(&mut bounded, [-0.25, 0.5]).unwrap();
        let expected: Vec<f32> = x.iter().map(|x| x.clamp(-0.25, 0.5)).collect();
        prop_assert_eq!(read(gpu, &bounded, expected.len()), expected);
        let expected: Vec<f32> = x.chunks(width).flat_map(|row| row[first..].to_vec()).collect();
        prop_assert_eq!(read(gpu, &columns, expected.len()), expected);
        let rows: Vec<u32> = (0..n_rows as u32).rev().step_by(2).collect();
        let gathered = gpu.gather_rows(&on_device, &rows).unwrap();
        let expected: Vec<f32> = rows.iter().flat_map(|row| x[*row as usize * width..][..width].to_vec()).collect();
        prop_assert_eq!(read(gpu, &gathered, expected.len()), expected.clone());
        let mut zeros = gpu.zeros(n_rows, width).unwrap();
        gpu.add_to_rows(&mut zeros, &rows, &gathered).unwrap();
        let found = read(gpu, &zeros, n_rows * width);
        for (row, found) in found.chunks(width).enumerate() {
            let expected = if rows.contains(&(row as u32)) { x[row * width..][..width].to_vec() } else { vec![0.0; width] };
            prop_assert_eq!(found, expected);
        }
        gpu.put_rows(&mut on_device, n_rows - 1, &expected[..width]).unwrap();
        let found = read(gpu, &on_device, n_rows * width);
        prop_assert_eq!(&found[(n_rows - 1) * width..], &expected[..width]);
    }

}

/// Stretches of sequences of these lengths, all cut at `cut`, where the state is kept in the slot behind all others.
fn rounds(lengths: &[usize], cut: usize) -> Vec<Round> {
    let mut rounds = vec![(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    let mut first = 0;
    for (slot, len) in (0..).zip(lengths) {
        let cut = if slot == 0 { cut.min(*len) } else { *len };
        for (round, (at, n_rows)) in [(0, cut), (cut, len - cut)].into_iter().enumerate() {
            if n_rows > 0 {
                rounds[round].0.push(Stretch {
                    slot,
                    first: first + at as u32,
                    n_rows: n_rows as u32,
                });
            }
        }
        first += *len as u32;
    }
    rounds[0].1.push((0, lengths.len() as u32));
    rounds
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn states(
        lengths in prop::collection::vec(1_usize..9, 1..4),
        cut in 1_usize..9,
        (n_groups, group, dim, n_kept, taps) in (1_usize..4, 1_usize..4, 1_usize..90, 1_usize..20, 2_usize..6),
        (silu, with_bias, interleaved) in any::<(bool, bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let n_heads = n_groups * group;
        let n: usize = lengths.iter().sum();
        let cut = cut.min(lengths[0]);
        // Convolution, rule and scan have a layer each; the state of the latter two lies behind something else.
        let lens = [(taps - 1) * dim, 0, 3 + n_heads * dim * dim, 5 + n_heads * n_kept * dim];
        let gpu = &mut *gpu();
        let mut slots = States::new(&lens);
        gpu.reserve_states(&mut slots, 1).unwrap();
        gpu.reserve_states(&mut slots, lengths.len() + 1).unwrap();
        for slot in 0..=lengths.len() {
            gpu.clear_state(&slots, slot as u32).unwrap();
        }
        let x = numbers(seed, n * dim);
        let (kernel, bias) = (numbers(seed ^ 1, taps * dim), numbers(seed ^ 2, dim));
        let width = (2 * n_groups + n_heads) * dim;
        let qkv = numbers(seed ^ 3, n * width);
        let (alpha, beta) = (numbers(seed ^ 4, n * n_heads), numbers(seed ^ 5, n * n_heads));
        let decay: Vec<f32> = numbers(seed ^ 6, n_heads).iter().map(|x| -x.abs() * 3.0).collect();
        let decay_bias: Vec<f32> = numbers(seed ^ 7, n_heads).iter().map(|x| x * 25.0).collect();
        let scan_width = n_heads * dim + 2 * n_groups * n_kept;
        let rows = numbers(seed ^ 8, n * scan_width);
        let skip = numbers(seed ^ 9, n_heads);
        let (mut convolved, mut ruled, mut scanned) = (Vec::new(), Vec::new(), Vec::new());
        // All together, then the first sequence goes on from where its state was kept.
        let again = vec![(vec![Stretch { slot: 0, first: 0, n_rows: (lengths[0] - cut) as u32 }], Vec::new())];
        for (stretches, from) in [(rounds(&lengths, cut), 0), (again, cut)] {
            let n = if from == 0 { n } else { lengths[0] - from };
            if n == 0 { continue; }
            if from > 0 { gpu.copy_state(&slots, lengths.len() as u32, 0).unwrap(); }
            let stretches = gpu.stretches(&slots, stretches).unwrap();
            let part = |all: &[f32], width: usize| all[from * width..][..n * width].to_vec();
            let vectors = [&kernel, &bias, &decay, &decay_bias, &skip].map(|values| gpu.vector(values).unwrap());
            let [taps, bias, decay, decay_bias, skip] = &vectors;
            let on_device = gpu.rows(&part(&x, dim), dim).unwrap();
            let conv = ShortConv { taps, bias: with_bias.then_some(bias), silu };
            let out = gpu.short_conv((&slots, 0), &on_device, &conv, &stretches).unwrap();
            convolved.push(read(gpu, &out, n * dim));
            let rule = DeltaRule { n_key_heads: n_groups, n_value_heads: n_heads, head_dim: dim, interleaved, decay, decay_bias, eps: 1e-6 };
            let on_device = gpu.rows(&part(&qkv, width), width).unwrap();
            let gates = [&alpha, &beta].map(|gate| gpu.rows(&part(gate, n_heads), n_heads).unwrap());
            let out = gpu.delta_rule((&slots, 2, 3), &on_device, (&gates[0], &gates[1]), &rule, &stretches).unwrap();
            ruled.push(read(gpu, &out, n * n_heads * dim));
            let scan = SelectiveScan { n_heads, head_dim: dim, state_dim: n_kept, n_groups, decay, step_bias: decay_bias, skip };
            let on_device = gpu.rows(&part(&rows, scan_width), scan_width).unwrap();
            let out = gpu.selective_scan((&slots, 3, 5), &on_device, &gates[0], &scan, &stretches).unwrap();
            scanned.push(read(gpu, &out, n * n_heads * dim));
        }
        let mut expected = [vec![0.0; n * dim], vec![0.0; n * n_heads * dim], vec![0.0; n * n_heads * dim]];
        let mut first = 0;
        for len in &lengths {
            for channel in 0..dim {
                let of_channel: Vec<f32> = (first..first + len).map(|row| x[row * dim + channel]).collect();
                let taps: Vec<f32> = kernel.chunks(dim).map(|row| row[channel]).collect();
                let bias = if with_bias { bias[channel] } else { 0.0 };
                let mut before = vec![0.0; taps.len() - 1];
                for (row, y) in (first..).zip(twin::short_conv(&of_channel, &mut before, (&taps, bias), silu)) {
                    expected[0][row * dim + channel] = y;
                }
            }
            for head in 0..n_heads {
                let key_head = if interleaved { head % n_groups } else { head / group };
                let (mut state, mut kept) = (vec![0.0; dim * dim], vec![0.0; n_kept * dim]);
                for row in first..first + len {
                    let of = |at: usize| &qkv[row * width + at * dim..][..dim];
                    let parts = (of(key_head), of(n_groups + key_head), of(2 * n_groups + head));
                    let at = row * n_heads + head;
                    let forget = decay[head] * twin::softplus(alpha[at] + decay_bias[head]);
                    let y = twin::delta_rule(parts, (forget, beta[at]), 1e-6, &mut state);
                    expected[1][at * dim..][..dim].copy_from_slice(&y);
                    let x = &rows[row * scan_width..][..scan_width];
                    let (heads, others) = x.split_at(n_heads * dim);
                    let (written, read) = others.split_at(n_groups * n_kept);
                    let of_group = |x: &[f32]| x[head / group * n_kept..][..n_kept].to_vec();
                    let step = twin::softplus(alpha[at] + decay_bias[head]);
                    let of_head = (step, decay[head], skip[head]);
                    let y = twin::selective_scan(&heads[head * dim..][..dim], (&of_group(written), &of_group(read)), of_head, &mut kept);
                    expected[2][at * dim..][..dim].copy_from_slice(&y);
                }
            }
            first += len;
        }
        for (found, expected) in [convolved, ruled, scanned].iter().zip(&expected) {
            check(gpu, &found[0], expected)?;
            let width = expected.len() / n;
            if let Some(again) = found.get(1) {
                check(gpu, again, &expected[cut * width..lengths[0] * width])?;
            }
        }
        // What goes beyond 20 is itself, and far below it is nothing.
        for x in [-200.0_f32, -30.0, -1.0, 0.0, 1.0, 19.0, 30.0] {
            let exact = f64::from(x).exp().ln_1p();
            prop_assert!((f64::from(twin::softplus(x)) - exact).abs() <= 2e-7 * exact.max(1e-30), "{x}");
        }
    }
}

#[test]
fn blocks_are_copied_in_all_layers() {
    let gpu = &mut *gpu();
    let shape = Attention {
        n_heads: 1,
        n_kv_heads: 1,
        head_dim: 2,
        scale: 1.0,
        softcap: None,
        window: None,
        chunk: None,
        causal: false,
    };
    let mut cache = gpu.cache(4, &[2, 2], TensorType::F16).unwrap();
    assert_eq!(cache.block_bytes(), 4 * 2 * 2 * 2 * 2);
    gpu.reserve(&mut cache, 3).unwrap();
    let step_in = |gpu: &mut Gpu, block: u32| {
        let row = StepRow {
            position: 0,
            end: 1,
            sequence: 0,
        };
        gpu.step(&cache, &[row], &[vec![block]]).unwrap()
    };
    let first = step_in(gpu, 0);
    for (layer, value) in [(0, [1.0, 2.0]), (1, [3.0, 4.0])] {
        let (key, value) = (
            gpu.rows(&[0.0; 2], 2).unwrap(),
            gpu.rows(&value, 2).unwrap(),
        );
        gpu.store((&cache, layer), (&key, &value), None, None, &first, &shape)
            .unwrap();
    }
    gpu.copy_block(&cache, 0, 2).unwrap();
    let copied = step_in(gpu, 2);
    for (layer, expected) in [(0, [1.0, 2.0]), (1, [3.0, 4.0])] {
        let query = gpu.rows(&[1.0; 2], 2).unwrap();
        let out = gpu
            .attend(&cache, layer, &query, None, &copied, &shape)
            .unwrap();
        assert_eq!(read(gpu, &out, 2), expected);
    }
}

/// Products of one input need not wait for each other; what reads them waits once for all.
#[test]
fn barriers_stand_only_where_something_waits() {
    let gpu = &mut *gpu();
    let matrix = gpu.matrix(TensorType::F32, 2, 2, &[0; 16], &[]).unwrap();
    let weight = gpu.vector(&[1.0; 2]).unwrap();
    let x = gpu.rows(&[1.0; 4], 2).unwrap();
    gpu.finish().unwrap();
    let before = counts();
    let normed = gpu.rms_norm(&x, &weight, 1e-5).unwrap();
    let mut gate = gpu.linear(&normed, &matrix, None).unwrap();
    let up = gpu.linear(&normed, &matrix, None).unwrap();
    let other = gpu.linear(&normed, &matrix, None).unwrap();
    gpu.gated(&mut gate, &up, Function::Silu).unwrap();
    gpu.add(&mut gate, &other, 1.0).unwrap();
    let after = counts();
    assert_eq!(after.dispatches - before.dispatches, 6);
    assert_eq!(after.barriers - before.barriers, 3);
    gpu.finish().unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let gpu = &mut *gpu();
    let x = gpu.rows(&[1.0; 6], 3).unwrap();
    let y = gpu.rows(&[1.0; 6], 2).unwrap();
    let matrix = gpu.matrix(TensorType::F32, 2, 2, &[0; 16], &[]).unwrap();
    let short = gpu.vector(&[1.0]).unwrap();
    let is_refused = |error: Error| matches!(error, Error::Unsupported(_));
    assert!(is_refused(gpu.linear(&x, &matrix, None).unwrap_err()));
    assert!(is_refused(
        gpu.linear(&y, &matrix, Some(&short)).unwrap_err()
    ));
    assert!(is_refused(
        gpu.matrix(TensorType::F32, 2, 2, &[0; 15], &[])
            .unwrap_err()
    ));
    assert!(is_refused(
        gpu.matrix(TensorType::IQ1_S, 1, 256, &[0; 50], &[])
            .unwrap_err()
    ));
    assert!(is_refused(gpu.gather_rows(&x, &[2]).unwrap_err()));
    assert!(is_refused(gpu.columns(&x, 2, 2).unwrap_err()));
    let cache = gpu.cache(32, &[2], TensorType::F16).unwrap();
    assert!(is_refused(
        gpu.cache(32, &[3], TensorType::F16).unwrap_err()
    ));
    assert!(is_refused(
        gpu.cache(32, &[48], TensorType::Q8_0).unwrap_err()
    ));
    assert!(is_refused(
        gpu.cache(32, &[64], TensorType::Q4_0).unwrap_err()
    ));
    let row = StepRow {
        position: 0,
        end: 1,
        sequence: 0,
    };
    assert!(
        is_refused(gpu.step(&cache, &[row], &[vec![0]]).unwrap_err()),
        "a block that is not there"
    );
    assert!(is_refused(gpu.step(&cache, &[row], &[vec![]]).unwrap_err()));
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let gpu = &mut *gpu();
    let before = gpu.taken_bytes();
    let mut cache = gpu.cache(32, &[4096], TensorType::F16).unwrap();
    let error = gpu.reserve(&mut cache, 1 << 24).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert_eq!(gpu.taken_bytes(), before);
    let all = gpu.free_bytes();
    let choice = Choice {
        software: true,
        vendor: true,
        leave_free_bytes: u64::MAX,
        ..Choice::default()
    };
    assert!(all > 0);
    let mut greedy = Gpu::open(&choice, 0).unwrap();
    assert!(matches!(
        greedy.vector(&[1.0]).unwrap_err(),
        Error::OutOfMemory { .. }
    ));
}

#[test]
fn no_software_device_without_permission() {
    let error = Gpu::open(&Choice::default(), 0).err();
    // A machine of the tests may have a real GPU.
    if let Some(error) = error {
        assert!(error.to_string().contains("computes on the CPU"), "{error}");
    }
}
