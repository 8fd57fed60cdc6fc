//! Known answers: every kernel computes something small, and what comes of it is compared with what is right. A driver
//! that compiles one of them wrongly is so found before a model becomes senseless text.
//!
//! The answers are in `answers.bin`, numbers of f32 one case after the other. A test makes them with Mesa's lavapipe,
//! whose results other tests compare with plain Rust to the last bit.

use llmsrv_gguf::TensorType;

use crate::{
    Angles, Arithmetic, Attention, DeltaRule, Error, Expert, Function, Gating, Gpu, Pairs, Routing,
    SelectiveScan, ShortConv, States, StepRow, Stretch, Tensor,
    gpu::{TILES_FROM, kernels_of},
    spirv::PACKED,
};

/// Returns the codebook of a type, as [`Gpu::matrix`] takes it.
pub type Codebook<'a> = &'a dyn Fn(TensorType) -> Vec<u16>;

/// Computes something with some kernels. What they read is the same each time.
type Compute = fn(&mut Gpu) -> Result<Vec<Tensor>, Error>;

/// Kernels that are no products, which [`products`] computes: their names, how far results may be off as a part of the
/// largest one, and what computes with them.
const CASES: &[(&str, f32, Compute)] = &[
    ("rms_norm", CLOSE, |gpu| {
        let (x, weight) = (rows(gpu, 1, 3, 70)?, gpu.vector(&numbers(2, 35))?);
        let parts = gpu.vector(&numbers(3, 70))?;
        Ok(vec![
            gpu.rms_norm(&x, &weight, 1e-5)?,
            gpu.grouped_norm(&x, &parts, 2, 1e-5)?,
        ])
    }),
    ("rms_norms", CLOSE, |gpu| {
        let mut x = [
            rows(gpu, 1, 3, 70)?,
            rows(gpu, 2, 3, 35)?,
            rows(gpu, 3, 3, 70)?,
        ];
        let weights = [gpu.vector(&numbers(4, 35))?, gpu.vector(&numbers(5, 70))?];
        let [first, second] = &weights;
        let parts = x.iter_mut().zip([first, first, second]);
        gpu.rms_norms(parts.collect(), 1e-5)?;
        Ok(x.into())
    }),
    ("add_normed", CLOSE, |gpu| {
        let (mut x, y) = (rows(gpu, 1, 3, 70)?, rows(gpu, 2, 3, 70)?);
        let weights = [gpu.vector(&numbers(3, 70))?, gpu.vector(&numbers(4, 70))?];
        let [of_y, next] = &weights;
        gpu.add_normed(&mut x, (&y, of_y), 1e-5, 0.75, None)?;
        let normed = gpu.add_normed(&mut x, (&y, of_y), 1e-5, 0.75, Some(next))?;
        Ok([x].into_iter().chain(normed).collect())
    }),
    ("layer_norm", CLOSE, |gpu| {
        let (x, weight) = (rows(gpu, 1, 3, 70)?, gpu.vector(&numbers(2, 70))?);
        let bias = gpu.vector(&numbers(3, 70))?;
        Ok(vec![
            gpu.layer_norm(&x, &weight, None, 1e-5)?,
            gpu.layer_norm(&x, &weight, Some(&bias), 1e-5)?,
        ])
    }),
    ("activate", CLOSE, |gpu| {
        let activated = FUNCTIONS.map(|function| {
            let mut x = gpu.rows(&large(1, 40), 40)?;
            gpu.activate(&mut x, function).map(|()| x)
        });
        activated.into_iter().collect()
    }),
    ("gated", CLOSE, |gpu| {
        let gated = FUNCTIONS.map(|function| {
            let (mut x, up) = (gpu.rows(&large(1, 40), 40)?, gpu.rows(&large(2, 40), 40)?);
            gpu.gated(&mut x, &up, function).map(|()| x)
        });
        gated.into_iter().collect()
    }),
    ("add", CLOSE, |gpu| {
        let (mut x, y) = (rows(gpu, 1, 3, 30)?, rows(gpu, 2, 3, 30)?);
        gpu.add(&mut x, &y, 0.75)?;
        Ok(vec![x])
    }),
    ("scale_rows", CLOSE, |gpu| {
        let (mut x, mut y) = (rows(gpu, 1, 3, 30)?, rows(gpu, 2, 3, 30)?);
        gpu.scale_rows(&mut x, &[0.5, -2.0, 0.0])?;
        let gate = rows(gpu, 3, 3, 1)?;
        gpu.sigmoid_gate(&mut y, &gate)?;
        Ok(vec![x, y])
    }),
    ("scale_columns", CLOSE, |gpu| {
        let (x, factors) = (rows(gpu, 1, 3, 30)?, gpu.vector(&numbers(2, 30))?);
        Ok(vec![gpu.scale_columns(&x, &factors)?])
    }),
    ("weighted_sum", CLOSE, |gpu| {
        let parts = [1, 2, 3, 4, 5].map(|seed| rows(gpu, seed, 3, 30));
        let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&Tensor> = parts.iter().collect();
        let factors = rows(gpu, 6, 3, 7)?;
        Ok(vec![gpu.weighted_sum(&parts, &factors, 1)?])
    }),
    ("stream_factors", CLOSE, |gpu| {
        let (scores, weights) = (rows(gpu, 1, 3, 4)?, gpu.vector(&numbers(2, 35))?);
        Ok(vec![gpu.stream_factors(&scores, &weights)?])
    }),
    ("length_ratios", CLOSE, |gpu| {
        let (x, like) = (rows(gpu, 1, 3, 70)?, rows(gpu, 2, 3, 70)?);
        Ok(vec![gpu.length_ratios(&x, &like)?])
    }),
    ("peaks", CLOSE, |gpu| {
        let mut x = rows(gpu, 1, 3, 70)?;
        gpu.peaks(&mut x, 0.5)?;
        Ok(vec![x])
    }),
    ("zero", CLOSE, |gpu| {
        // In memory that held other numbers just now.
        drop(rows(gpu, 1, 3, 30)?);
        Ok(vec![gpu.zeros(3, 30)?])
    }),
    ("columns", CLOSE, |gpu| {
        let x = rows(gpu, 1, 3, 30)?;
        Ok(vec![gpu.columns(&x, 7, 11)?])
    }),
    ("put_columns", CLOSE, |gpu| {
        let (x, y) = (rows(gpu, 1, 3, 30)?, rows(gpu, 2, 3, 5)?);
        Ok(vec![gpu.join(&[&y, &x, &y])?])
    }),
    ("bound", CLOSE, |gpu| {
        let mut x = rows(gpu, 1, 3, 30)?;
        gpu.clamp(&mut x, [-0.25, 0.5])?;
        Ok(vec![x])
    }),
    ("gather_rows", CLOSE, |gpu| {
        let x = rows(gpu, 1, 4, 30)?;
        Ok(vec![gpu.gather_rows(&x, &[3, 0, 3])?])
    }),
    ("add_to_rows", CLOSE, |gpu| {
        let (mut x, y) = (rows(gpu, 1, 4, 30)?, rows(gpu, 2, 2, 30)?);
        gpu.add_to_rows(&mut x, &[3, 1], &y)?;
        Ok(vec![x])
    }),
    ("rotate", CLOSE, |gpu| {
        let turned = [Pairs::Halves, Pairs::Interleaved].map(|pairs| {
            let mut x = rows(gpu, 1, 3, 40)?;
            let angles = angles(gpu, 3, 8, pairs)?;
            gpu.rotate(&mut x, &angles, 20).map(|()| x)
        });
        turned.into_iter().collect()
    }),
    (
        "store_f16, attend_f16, attend_part_f16, join_parts",
        ROUNDED,
        |gpu| attended(gpu, TensorType::F16),
    ),
    (
        "store_q8_0, attend_q8_0, attend_part_q8_0, join_parts",
        ROUNDED,
        |gpu| attended(gpu, TensorType::Q8_0),
    ),
    ("attend_f32", CLOSE, |gpu| {
        let step = gpu.whole_step(&[70, 3])?;
        let query = rows(gpu, 1, 73, WIDTH)?;
        let (key, value) = (rows(gpu, 2, 73, KV_WIDTH)?, rows(gpu, 3, 73, KV_WIDTH)?);
        let shape = Attention {
            causal: false,
            ..SHAPE
        };
        let near = Attention {
            window: Some(9),
            ..shape
        };
        let (kv, slopes) = ((&key, &value), [0.25, 0.5]);
        let all = gpu.attend_whole(&query, kv, None, &step, &shape)?;
        let some = gpu.attend_whole(&query, kv, Some(&slopes), &step, &near)?;
        // Of many rows a few say enough.
        [&all, &some]
            .map(|x| gpu.gather_rows(x, &[0, 69, 72]))
            .into_iter()
            .collect()
    }),
    ("short_conv", CLOSE, |gpu| {
        let (n, n_taps) = (20, 3);
        let states = states(gpu, (n_taps - 1) * n)?;
        let (taps, bias) = (
            gpu.vector(&numbers(2, n_taps * n))?,
            gpu.vector(&numbers(3, n))?,
        );
        let conv = ShortConv {
            taps: &taps,
            bias: Some(&bias),
            silu: true,
        };
        twice(gpu, &states, n, |gpu, x, stretches| {
            gpu.short_conv((&states, 0), x, &conv, stretches)
        })
    }),
    ("delta_rule", CLOSE, |gpu| {
        let (n_keys, n_values, dim) = (1, 2, 8);
        let states = states(gpu, n_values * dim * dim)?;
        let (decay, decay_bias) = (gpu.vector(&[-0.5, -1.5])?, gpu.vector(&numbers(3, 2))?);
        let gates = (rows(gpu, 4, 4, n_values)?, rows(gpu, 5, 4, n_values)?);
        let rule = |interleaved| DeltaRule {
            n_key_heads: n_keys,
            n_value_heads: n_values,
            head_dim: dim,
            interleaved,
            decay: &decay,
            decay_bias: &decay_bias,
            eps: 1e-6,
        };
        let width = (2 * n_keys + n_values) * dim;
        twice(gpu, &states, width, |gpu, x, stretches| {
            let gates = (&gates.0, &gates.1);
            gpu.delta_rule((&states, 0, 0), x, gates, &rule(true), stretches)
        })
    }),
    ("selective_scan", CLOSE, |gpu| {
        let (n_heads, dim, n_kept, n_groups) = (2, 8, 5, 1);
        let states = states(gpu, n_heads * n_kept * dim)?;
        let (decay, step_bias) = (gpu.vector(&[-0.5, -1.5])?, gpu.vector(&numbers(3, 2))?);
        let skip = gpu.vector(&numbers(4, 2))?;
        let steps = rows(gpu, 5, 4, n_heads)?;
        let scan = SelectiveScan {
            n_heads,
            head_dim: dim,
            state_dim: n_kept,
            n_groups,
            decay: &decay,
            step_bias: &step_bias,
            skip: &skip,
        };
        let width = n_heads * dim + 2 * n_groups * n_kept;
        twice(gpu, &states, width, |gpu, x, stretches| {
            gpu.selective_scan((&states, 0, 0), x, &steps, &scan, stretches)
        })
    }),
    (
        "choose_experts, sort_pairs, weigh_pairs, sum_pairs",
        CLOSE,
        |gpu| {
            let weighed = Routing {
                n_used: 2,
                gating: Gating::Softmax,
                groups: None,
                normalize: true,
                scale: 1.5,
                weigh_input: false,
            };
            let weighing = Routing {
                gating: Gating::Sigmoid,
                groups: Some((3, 2)),
                normalize: false,
                weigh_input: true,
                ..weighed
            };
            let mixer = Routing {
                gating: Gating::SparseMixer,
                ..weighed
            };
            // Rows that are computed one by one, and so many that they are sorted.
            [(weighed, 3), (weighing, 3), (weighed, 12), (mixer, 12)]
                .map(|(routing, n_rows)| mixture(gpu, routing, n_rows))
                .into_iter()
                .collect()
        },
    ),
];

/// A byte of a block that is no free choice: where it is, which of its bits are, and what the others are.
type Pinned = (usize, u8, u8);

/// The types of weights, with what makes numbers of usual sizes of any bytes. Most are the upper bytes of scales in half
/// precision, from a quarter to a half.
const PINNED: &[(TensorType, &[Pinned])] = &[
    (TensorType::F32, &[(3, 0x80, 0x3f)]),
    (TensorType::F16, &[(1, 0x83, 0x34)]),
    (TensorType::BF16, &[(1, 0x80, 0x3f)]),
    (TensorType::Q4_0, &[(1, 3, 0x34)]),
    (TensorType::Q4_1, &[(1, 3, 0x34), (3, 3, 0x34)]),
    (TensorType::Q5_0, &[(1, 3, 0x34)]),
    (TensorType::Q5_1, &[(1, 3, 0x34), (3, 3, 0x34)]),
    (TensorType::Q8_0, &[(1, 3, 0x34)]),
    (TensorType::Q2_K, &[(81, 3, 0x34), (83, 3, 0x34)]),
    (TensorType::Q3_K, &[(109, 3, 0x34)]),
    (TensorType::Q4_K, &[(1, 3, 0x34), (3, 3, 0x34)]),
    (TensorType::Q5_K, &[(1, 3, 0x34), (3, 3, 0x34)]),
    (TensorType::Q6_K, &[(209, 3, 0x34)]),
    (TensorType::IQ4_NL, &[(1, 3, 0x34)]),
    (TensorType::IQ4_XS, &[(1, 3, 0x34)]),
    (TensorType::MXFP4, &[(0, 7, 0x78)]),
    (
        TensorType::NVFP4,
        &[(0, 7, 0x30), (1, 7, 0x40), (2, 7, 0x38), (3, 7, 0x28)],
    ),
    (TensorType::TQ1_0, &[(53, 3, 0x34)]),
    (TensorType::TQ2_0, &[(65, 3, 0x34)]),
    (TensorType::IQ1_S, &[(1, 3, 0x34)]),
    (TensorType::IQ1_M, &[(53, 0x0f, 0x40), (55, 0x0f, 0x30)]),
    (TensorType::IQ2_XXS, &[(1, 3, 0x34)]),
    (TensorType::IQ2_XS, &[(1, 3, 0x34)]),
    (TensorType::IQ2_S, &[(1, 3, 0x34)]),
    (TensorType::IQ3_XXS, &[(1, 3, 0x34)]),
    (TensorType::IQ3_S, &[(1, 3, 0x34)]),
    (TensorType::Q1_0, &[(1, 3, 0x34)]),
    (TensorType::Q2_0, &[(1, 3, 0x34)]),
];

impl Gpu {
    /// Computes with every kernel that a model may use in the arithmetic that was chosen, and compares the results with what is right. The memory that it
    /// takes is free again when this GPU is closed.
    ///
    /// # Errors
    /// [`Error::Wrong`] with the first kernel whose results are wrong; [`Error::OutOfMemory`], or a failure of the device.
    pub fn check_answers(&mut self, codebook: Codebook<'_>) -> Result<(), Error> {
        let mut known = ANSWERS.as_chunks::<4>().0.iter();
        self.each_answer(codebook, &mut |gpu, kernel, tolerance, found| {
            let right: Vec<f32> = known
                .by_ref()
                .take(found.len())
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect();
            if is_right(found, &right, tolerance) {
                return Ok(());
            }
            let device = gpu.device();
            Err(Error::Wrong {
                device: device.name.clone(),
                driver: device.driver.clone(),
                kernel: kernel.to_owned(),
            })
        })
    }

    /// Computes each case and calls `with` with its kernels, how far results may be off, and the results.
    fn each_answer(&mut self, codebook: Codebook<'_>, with: With<'_>) -> Result<(), Error> {
        // The few weights need no piece of memory of the usual size.
        self.expect(vec![16 << 20; 4]);
        for (dtype, pinned) in PINNED {
            products(self, *dtype, pinned, codebook, with)?;
        }
        for (kernels, tolerance, compute) in CASES {
            let results = compute(self)?;
            let mut found = Vec::new();
            for result in &results {
                let mut values = vec![0.0; result.n_rows() * result.width()];
                self.read(result, &mut values)?;
                found.append(&mut values);
            }
            with(self, kernels, *tolerance, &found)?;
        }
        // The last ones, because not everybody asks.
        if self.arithmetic() == Arithmetic::Int8 {
            for (dtype, pinned) in PINNED {
                int8_products(self, *dtype, pinned, with)?;
            }
            let [normed, product] = norm_and_product(self)?;
            with(self, "rms_norm_256", CLOSE, &normed)?;
            with(self, "rms_norm_256, dot_q4_k_8", ROUNDED, &product)?;
        }
        Ok(())
    }
}

/// What is done with the results of a case.
type With<'a> = &'a mut dyn FnMut(&Gpu, &str, f32, &[f32]) -> Result<(), Error>;

/// Computes products of one row and of several, which are two kernels.
fn products(
    gpu: &mut Gpu,
    dtype: TensorType,
    pinned: &[Pinned],
    codebook: Codebook<'_>,
    with: With<'_>,
) -> Result<(), Error> {
    let kernels = kernels_of(dtype, Arithmetic::F32).map(|kernels| kernels.few);
    for (kernel, n_rows) in kernels.unwrap_or_default().into_iter().zip([1, 9]) {
        let with_codebook = (dtype, pinned, &codebook(dtype)[..]);
        let found = product(gpu, Arithmetic::F32, with_codebook, n_rows)?;
        with(gpu, kernel, CLOSE, &found)?;
    }
    Ok(())
}

/// As [`products`], in integers: of one row, of several and of many.
fn int8_products(
    gpu: &mut Gpu,
    dtype: TensorType,
    pinned: &[Pinned],
    with: With<'_>,
) -> Result<(), Error> {
    let Some(kernels) = kernels_of(dtype, Arithmetic::Int8) else {
        return Ok(());
    };
    let Some(int8) = kernels.int8 else {
        return Ok(());
    };
    let [one, several] = kernels.few;
    for (kernel, n_rows) in [(one, 1), (several, 9), (int8.many, TILES_FROM)] {
        let found = product(gpu, Arithmetic::Int8, (dtype, pinned, &[]), n_rows)?;
        let kernels = format!("{}, {kernel}", int8.quantize);
        with(gpu, &kernels, CLOSE, &found)?;
    }
    Ok(())
}

/// Adds the product of some rows with a matrix to other rows.
fn product(
    gpu: &mut Gpu,
    arithmetic: Arithmetic,
    (dtype, pinned, codebook): (TensorType, &[Pinned], &[u16]),
    n_rows: usize,
) -> Result<Vec<f32>, Error> {
    let n_out = 5;
    let n_in = match dtype.block_len() {
        1 => 37,
        len => 2 * len.max(64),
    };
    let bytes = weights(dtype, pinned, n_out * n_in);
    let before = gpu.arithmetic();
    gpu.set_arithmetic(arithmetic);
    let matrix = gpu.matrix(dtype, n_out, n_in, &bytes, codebook);
    gpu.set_arithmetic(before);
    let matrix = matrix?;
    let bias = gpu.vector(&numbers(3, n_out))?;
    // Of each 32 numbers the largest is 63/64. Then none is halfway between two bytes, where a last bit of a driver's
    // division would decide.
    let x = numbers(1, n_rows * n_in).into_iter().enumerate();
    let x = x.map(|(i, x)| {
        if i % n_in % 32 == 0 {
            63.0 / 64.0
        } else {
            x.max(-63.0 / 64.0)
        }
    });
    let x: Vec<f32> = x.collect();
    let (x, mut sum) = (gpu.rows(&x, n_in)?, rows(gpu, 2, n_rows, n_out)?);
    gpu.add_linear(&mut sum, &x, &matrix, Some(&bias), 0.5)?;
    let mut found = vec![0.0; n_rows * n_out];
    gpu.read(&sum, &mut found)?;
    Ok(found)
}

/// Returns so many weights as a file has them.
fn weights(dtype: TensorType, pinned: &[Pinned], n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = random(dtype.id().into())
        .map(|x| (x >> 56) as u8)
        .take(n / dtype.block_len() * dtype.block_bytes())
        .collect();
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for (at, kept, set) in pinned {
            if let Some(byte) = block.get_mut(*at) {
                *byte = *byte & kept | set;
            }
        }
    }
    bytes
}

/// Norms rows, which rounds them, too, and multiplies what they were rounded to.
fn norm_and_product(gpu: &mut Gpu) -> Result<[Vec<f32>; 2], Error> {
    let (n_rows, n_out, n_in) = (3, 5, 768);
    let dtype = TensorType::Q4_K;
    let pinned = PINNED.iter().find(|(pinned, _)| *pinned == dtype);
    let bytes = weights(
        dtype,
        pinned.map_or(&[], |(_, pinned)| *pinned),
        n_out * n_in,
    );
    let matrix = gpu.matrix(dtype, n_out, n_in, &bytes, &[])?;
    let (x, weight) = (rows(gpu, 1, n_rows, n_in)?, gpu.vector(&numbers(2, n_in))?);
    let normed = gpu.rms_norm(&x, &weight, 1e-5)?;
    let product = gpu.linear(&normed, &matrix, None)?;
    let mut found = [vec![0.0; n_rows * n_in], vec![0.0; n_rows * n_out]];
    for (result, found) in [normed, product].iter().zip(&mut found) {
        gpu.read(result, found)?;
    }
    Ok(found)
}

/// Sends rows through six experts.
fn mixture(gpu: &mut Gpu, routing: Routing, n_rows: usize) -> Result<Tensor, Error> {
    let (n, width, hidden) = (6, 12, 10);
    let mut matrices = Vec::new();
    for seed in 0..3 * n as u64 {
        let shape = if seed % 3 == 2 {
            [width, hidden]
        } else {
            [hidden, width]
        };
        let weights = numbers(20 + seed, width * hidden);
        let bytes = bytemuck::cast_slice(&weights);
        matrices.push(gpu.matrix(TensorType::F32, shape[0], shape[1], bytes, &[])?);
    }
    let experts = matrices.as_chunks::<3>().0.iter();
    let experts = experts.map(|[gate, up, down]| Expert {
        gate: Some((gate, None)),
        up: (up, None),
        down: (down, None),
    });
    let experts: Vec<Expert<'_>> = experts.collect();
    let (bias, scales) = (numbers(4, n), numbers(5, n));
    let (bias, scales) = (Some(&bias[..]), Some(&scales[..]));
    let made = gpu.experts(&experts, routing, Function::Silu, bias, scales)?;
    let made = made.ok_or_else(|| Error::Unsupported("experts are not near each other".into()))?;
    // No two scores of a row are the same.
    let scores: Vec<f32> = numbers(6, n_rows * n)
        .iter()
        .zip((0..n).cycle())
        .map(|(score, expert)| 2.0 * score + expert as f32 / 512.0)
        .collect();
    let (x, scores) = (rows(gpu, 1, n_rows, width)?, gpu.rows(&scores, n)?);
    gpu.mixture(&x, &scores, &made)
}

/// Stores sequences in a cache and attends from the last positions: of two short ones, of a long one by workgroups that
/// share its positions, and of all rows, which are so many that each has one workgroup for all that it sees.
fn attended(gpu: &mut Gpu, dtype: TensorType) -> Result<Vec<Tensor>, Error> {
    let mut cache = gpu.cache(32, &[KV_WIDTH], dtype)?;
    gpu.reserve(&mut cache, 14)?;
    let tables = [vec![2, 0, 3], vec![1], (4..14).rev().collect()];
    let row = |sequence, position| StepRow {
        position,
        end: position + 1,
        sequence,
    };
    let rows_of = |sequence, len| (0..len).map(move |at| row(sequence, at));
    let all: Vec<StepRow> = rows_of(0, 70)
        .chain(rows_of(1, 3))
        .chain(rows_of(2, 300))
        .collect();
    let step = gpu.step(&cache, &all, &tables)?;
    let mut query = rows(gpu, 1, all.len(), WIDTH)?;
    let kv = (
        rows(gpu, 2, all.len(), KV_WIDTH)?,
        rows(gpu, 3, all.len(), KV_WIDTH)?,
    );
    let angles = angles(gpu, all.len(), 8, Pairs::Halves)?;
    let turned = Some(&mut query);
    let to = (&cache, 0);
    gpu.store(to, (&kv.0, &kv.1), turned, Some(&angles), &step, &SHAPE)?;
    let sinks = gpu.vector(&[0.5, -1.0])?;
    let bounded = Attention {
        window: Some(40),
        softcap: Some(3.0),
        ..SHAPE
    };
    let within = Attention {
        chunk: Some(50),
        ..SHAPE
    };
    let near = [row(0, 69), row(1, 2)];
    let far = [row(2, 299), row(2, 257)];
    let mut results = Vec::new();
    for (rows, places) in [(near, [69, 72]), (far, [372, 330])] {
        let query = gpu.gather_rows(&query, &places)?;
        let step = gpu.step(&cache, &rows, &tables)?;
        for (sinks, shape) in [
            (None, SHAPE),
            (Some(&sinks), bounded),
            (Some(&sinks), within),
        ] {
            results.push(gpu.attend(&cache, 0, &query, sinks, &step, &shape)?);
        }
    }
    let of_all = gpu.attend(&cache, 0, &query, Some(&sinks), &step, &SHAPE)?;
    results.push(gpu.gather_rows(&of_all, &[69, 330, 372])?);
    Ok(results)
}

/// States of two sequences in one layer, all zeros.
fn states(gpu: &mut Gpu, len: usize) -> Result<States, Error> {
    let mut states = States::new(&[len]);
    gpu.reserve_states(&mut states, 2)?;
    gpu.clear_state(&states, 0)?;
    gpu.clear_state(&states, 1)?;
    Ok(states)
}

/// Sends four rows through the states, of one sequence three, and then once more, where the states are others.
fn twice(
    gpu: &mut Gpu,
    states: &States,
    width: usize,
    mut compute: impl FnMut(&mut Gpu, &Tensor, &crate::Stretches) -> Result<Tensor, Error>,
) -> Result<Vec<Tensor>, Error> {
    let stretch = |slot, first, n_rows| Stretch {
        slot,
        first,
        n_rows,
    };
    let round = (vec![stretch(0, 0, 3), stretch(1, 3, 1)], Vec::new());
    let stretches = gpu.stretches(states, vec![round])?;
    let x = rows(gpu, 1, 4, width)?;
    let first = compute(gpu, &x, &stretches)?;
    Ok(vec![first, compute(gpu, &x, &stretches)?])
}

fn rows(gpu: &mut Gpu, seed: u64, n_rows: usize, width: usize) -> Result<Tensor, Error> {
    gpu.rows(&numbers(seed, n_rows * width), width)
}

/// Angles whose cosines and sines are short numbers, so that what is rotated is short, too, and rounds the same way
/// everywhere. A kernel does not ask whether they belong together.
fn angles(gpu: &mut Gpu, n_rows: usize, n_pairs: usize, pairs: Pairs) -> Result<Angles, Error> {
    let of = |seed| -> Vec<f32> {
        let numbers = random(seed).map(|x| (x >> 61) as f32 / 4.0 - 1.0);
        numbers.take(n_rows * n_pairs).collect()
    };
    gpu.angles(&of(11), &of(12), n_pairs, pairs)
}

/// Numbers from -1 to 1 in steps of a 64th.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let numbers = random(seed).map(|x| (x >> 57) as f32 / 64.0 - 1.0);
    numbers.take(n).collect()
}

/// Numbers from -12 to 12.
fn large(seed: u64, n: usize) -> Vec<f32> {
    numbers(seed, n).iter().map(|x| 12.0 * x).collect()
}

/// Marsaglia's xorshift.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// Tells whether results are what they should be: `tolerance` is a part of the largest of them.
fn is_right(found: &[f32], right: &[f32], tolerance: f32) -> bool {
    let largest = right.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let mut pairs = found.iter().zip(right);
    found.len() == right.len()
        && pairs.all(|(found, right)| (found - right).abs() <= tolerance * largest)
}

/// Returns the kernels as they are part of the program, and their answers: where these bytes are the same, so is what a
/// driver makes of them.
pub fn kernel_bytes() -> [&'static [u8]; 2] {
    [PACKED, ANSWERS]
}

const ANSWERS: &[u8] = include_bytes!("answers.bin");

const FUNCTIONS: [Function; 8] = [
    Function::Silu,
    Function::Gelu,
    Function::ClampedSwiglu,
    Function::ReluSquared,
    Function::Sigmoid,
    Function::Tanh,
    Function::Identity,
    Function::Relu,
];

const SHAPE: Attention = Attention {
    n_heads: 2,
    n_kv_heads: 1,
    head_dim: 32,
    scale: 0.5,
    softcap: None,
    window: None,
    chunk: None,
    causal: true,
};
const WIDTH: usize = SHAPE.n_heads * SHAPE.head_dim;
const KV_WIDTH: usize = SHAPE.n_kv_heads * SHAPE.head_dim;

/// Drivers fuse products and sums or not, and divide and take roots within some units of the last place.
const CLOSE: f32 = 1e-4;
/// Keys and values are kept with few digits, and drivers differ in how they round to half precision.
const ROUNDED: f32 = 4e-3;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::{Choice, gpu::CANARY, spirv::MODULES};

    fn open() -> Gpu {
        let choice = Choice {
            arithmetic: Arithmetic::Int8,
            software: true,
            vendor: true,
            ..Choice::default()
        };
        let gpu =
            Gpu::open(&choice, 0).expect("a Vulkan device, for example of mesa-vulkan-drivers");
        assert_eq!(
            gpu.arithmetic(),
            Arithmetic::Int8,
            "integer dot products: Mesa 22.0 or later has them"
        );
        gpu
    }

    /// Kernels of models, but for those on matrix units, which `Probe::matrices_pay` compares with these.
    fn kernels() -> impl Iterator<Item = &'static str> {
        let names = MODULES.iter().map(|(name, _)| *name);
        names.filter(|name| !name.starts_with("probe_") && !name.starts_with("mma_"))
    }

    fn codebook(dtype: TensorType) -> Vec<u16> {
        llmsrv_kernels::codebook(dtype)
    }

    /// After a change of a kernel or a case: `GENERATE=1 cargo test -p llmsrv-gpu --lib answers`
    #[test]
    fn every_kernel_gives_its_known_answer() {
        let mut gpu = open();
        if std::env::var_os("GENERATE").is_some() {
            let mut all = Vec::new();
            gpu.each_answer(&codebook, &mut |_, _, _, found| {
                all.extend(found.iter().flat_map(|x| x.to_le_bytes()));
                Ok(())
            })
            .unwrap();
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/answers.bin");
            fs::write(path, all).unwrap();
            return;
        }
        gpu.check_answers(&codebook).unwrap();
        let used: BTreeSet<&str> = gpu.recorder.kernels().into_iter().collect();
        let all: BTreeSet<&str> = kernels().collect();
        assert_eq!(used, all, "every kernel has a case in CASES or PINNED");
        let mut n_answers = 0;
        gpu.each_answer(&codebook, &mut |_, kernel, _, found| {
            let is_number = found.iter().all(|x| x.abs() < 1e5);
            assert!(is_number, "{kernel}: {found:?}");
            n_answers += found.len();
            Ok(())
        })
        .unwrap();
        assert_eq!(4 * n_answers, ANSWERS.len());
    }

    /// What a compiler of a driver may do wrong is taken for any kernel: it is found, and the kernel named.
    #[test]
    fn a_kernel_that_computes_something_else_is_found_and_named() {
        let mut gpu = open();
        for kernel in kernels() {
            gpu.recorder.change(Some(kernel)).unwrap();
            let found = match gpu.check_answers(&codebook) {
                Err(Error::Wrong { kernel, .. }) => kernel,
                other => panic!("{kernel}: {other:?}"),
            };
            assert!(
                found.split(", ").any(|name| name == kernel),
                "{kernel}: {found}"
            );
        }
    }

    /// Bindings end where memory does, which is behind the results: only a kernel keeps its lanes from writing there.
    #[test]
    fn no_kernel_writes_behind_its_results() {
        let mut gpu = open();
        gpu.watched = Some(Vec::new());
        let mut n_watched = 0;
        gpu.each_answer(&codebook, &mut |_, _, _, _| Ok(()))
            .unwrap();
        for (region, used) in gpu.watched.take().unwrap() {
            let mut bytes = vec![0; region.bytes as usize];
            gpu.recorder.read(region, &mut bytes).unwrap();
            let rest = &bytes[used as usize..];
            assert!(rest.iter().all(|byte| *byte == CANARY), "{region:?}");
            n_watched += usize::from(!rest.is_empty());
        }
        assert!(n_watched > 200, "{n_watched}");
    }

    #[test]
    fn what_is_no_number_is_not_right() {
        assert!(is_right(&[1.0, -2.0], &[1.0001, -2.0], 1e-4));
        assert!(!is_right(&[1.0, -2.0], &[1.001, -2.0], 1e-4));
        assert!(!is_right(&[f32::NAN], &[1.0], 1e-4));
        assert!(!is_right(&[1.0], &[], 1e-4));
        assert!(is_right(&[0.0], &[0.0], 1e-4));
    }
}
