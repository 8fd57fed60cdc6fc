//! Mixtures of experts against their twin, bit for bit.

use llmsrv_gguf::TensorType;
use llmsrv_gpu::{
    Arithmetic, Expert, Experts, Function, Gating, Gpu, MIXTURE_ROWS, Matrix, Routing, Vector,
    counts,
};
use proptest::prelude::*;

use crate::{
    kernels::{
        any_type, arithmetic, check_within, config, gpu, matrix, numbers, packed, product, read,
    },
    twin::{self, Layout},
};

/// A mixture of experts as drawn: what the kernels and the twin compute.
struct Mixture {
    dtype: TensorType,
    arithmetic: Arithmetic,
    n_experts: usize,
    width: usize,
    hidden: usize,
    routing: Routing,
    function: Function,
    gated: bool,
    with_bias: bool,
    selection_bias: Option<Vec<f32>>,
    scales: Option<Vec<f32>>,
    seed: u64,
}

/// One matrix of all experts: as they are packed, their weights, factors and biases.
struct Stack {
    packed: Vec<Vec<u8>>,
    weights: Vec<Vec<f32>>,
    n_in: usize,
    biases: Vec<Vec<f32>>,
}

impl Mixture {
    fn stack(&self, n_out: usize, n_in: usize, seed: u64) -> Stack {
        let seeds =
            (0..self.n_experts as u64).map(|expert| self.seed ^ (seed << 32) ^ (expert << 8));
        let seeds: Vec<u64> = seeds.collect();
        let packed = seeds
            .iter()
            .map(|seed| packed(self.dtype, &numbers(*seed, n_out * n_in)));
        let packed: Vec<Vec<u8>> = packed.collect();
        let unpacked = packed.iter().map(|bytes| {
            let mut weights = vec![0.0; n_out * n_in];
            llmsrv_kernels::dequantize(self.dtype, bytes, &mut weights).unwrap();
            weights
        });
        Stack {
            weights: unpacked.collect(),
            biases: seeds.iter().map(|seed| numbers(seed ^ 1, n_out)).collect(),
            packed,
            n_in,
        }
    }

    /// Those of each expert are multiplied with a factor of its own.
    fn factor(expert: usize) -> f32 {
        1.0 + expert as f32 / 16.0
    }

    /// Gates, what they multiply, and the matrices back.
    fn stacks(&self) -> [Stack; 3] {
        [
            self.stack(self.hidden, self.width, 1),
            self.stack(self.hidden, self.width, 2),
            self.stack(self.width, self.hidden, 3),
        ]
    }

    fn load(&self, gpu: &mut Gpu, stacks: &[Stack; 3]) -> Experts {
        // The tests' weights lie in pieces of memory, of which one may end between two experts.
        let mut made = std::iter::repeat_with(|| self.try_load(gpu, stacks));
        made.by_ref()
            .take(3)
            .flatten()
            .next()
            .expect("experts in one piece")
    }

    fn try_load(&self, gpu: &mut Gpu, stacks: &[Stack; 3]) -> Option<Experts> {
        let on_device = stacks.each_ref().map(|stack| -> Vec<(Matrix, Vector)> {
            let each = stack.packed.iter().zip(&stack.biases).enumerate();
            let each = each.map(|(expert, (bytes, bias))| {
                let shape = (bias.len(), stack.n_in);
                let matrix = matrix(gpu, self.arithmetic, self.dtype, shape, bytes);
                let matrix = matrix.scaled(Mixture::factor(expert));
                (matrix, gpu.vector(bias).unwrap())
            });
            each.collect()
        });
        let of = |stack: usize, expert: usize| {
            let (matrix, bias) = &on_device[stack][expert];
            (matrix, self.with_bias.then_some(bias))
        };
        let experts = (0..self.n_experts).map(|expert| Expert {
            gate: self.gated.then(|| of(0, expert)),
            up: of(1, expert),
            down: of(2, expert),
        });
        let experts: Vec<Expert<'_>> = experts.collect();
        let (bias, scales) = (self.selection_bias.as_deref(), self.scales.as_deref());
        gpu.experts(&experts, self.routing, self.function, bias, scales)
            .unwrap()
    }

    fn product(&self, stack: &Stack, expert: usize, x: &[f32], layout: Layout) -> Vec<f32> {
        let (packed, biases) = (&stack.packed[expert], &stack.biases[expert]);
        let rows = packed
            .chunks(packed.len() / biases.len())
            .zip(stack.weights[expert].chunks(stack.n_in))
            .zip(biases);
        let each = rows.map(|(row, bias)| {
            let product =
                product(self.arithmetic, (self.dtype, layout), row, x) * Mixture::factor(expert);
            if self.with_bias {
                product + bias
            } else {
                product
            }
        });
        each.collect()
    }

    /// What the experts of a row give.
    fn row(&self, stacks: &[Stack; 3], x: &[f32], scores: &[f32], layout: Layout) -> Vec<f32> {
        let [gates, ups, downs] = stacks;
        let mut sum = vec![0.0; self.width];
        for (expert, factor) in twin::choose(scores, self.selection_bias.as_deref(), &self.routing)
        {
            let weighed = self.routing.weigh_input;
            let x: Vec<f32> = x
                .iter()
                .map(|x| if weighed { x * factor } else { *x })
                .collect();
            let mut hidden = self.product(ups, expert, &x, layout);
            if self.gated {
                let gate = self.product(gates, expert, &x, layout);
                for (up, gate) in hidden.iter_mut().zip(gate) {
                    *up *= twin::activated(self.function, gate);
                }
            } else {
                for x in &mut hidden {
                    *x = twin::activated(self.function, *x);
                }
            }
            for (sum, mut y) in sum
                .iter_mut()
                .zip(self.product(downs, expert, &hidden, layout))
            {
                if let Some(scales) = &self.scales {
                    y *= scales[expert];
                }
                if !weighed {
                    y *= factor;
                }
                *sum += y;
            }
        }
        sum
    }

    /// Compares what rows get with the twin's, and with what they get alone. With `ties` many scores are equal.
    fn check(&self, n_rows: usize, layout: Layout, ties: bool) -> Result<(), TestCaseError> {
        let x = numbers(self.seed ^ 0x11, n_rows * self.width);
        let scores = numbers(self.seed ^ 0x12, n_rows * self.n_experts).into_iter();
        let scores = scores.map(|score| {
            if ties {
                (score * 2.0).round()
            } else {
                score * 4.0
            }
        });
        let scores: Vec<f32> = scores.collect();
        let stacks = self.stacks();
        let gpu = &mut *gpu();
        let experts = self.load(gpu, &stacks);
        let mut mix = |x: &[f32], scores: &[f32]| {
            let on_device = gpu.rows(x, self.width).unwrap();
            let scores = gpu.rows(scores, self.n_experts).unwrap();
            let waits = counts().waits;
            let sum = gpu.mixture(&on_device, &scores, &experts).unwrap();
            assert_eq!(counts().waits, waits, "the host waits for what rows choose");
            read(gpu, &sum, x.len())
        };
        let found = mix(&x, &scores);
        let of_row = |row: usize| {
            (
                &x[row * self.width..][..self.width],
                &scores[row * self.n_experts..][..self.n_experts],
            )
        };
        let row = n_rows / 2;
        let alone = mix(of_row(row).0, of_row(row).1);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&alone), bits(&found[row * self.width..][..self.width]));
        let expected =
            (0..n_rows).flat_map(|row| self.row(&stacks, of_row(row).0, of_row(row).1, layout));
        let expected: Vec<f32> = expected.collect();
        // A hidden element that lies halfway between two bytes becomes either.
        let off = match self.arithmetic {
            Arithmetic::F32 => 2e-4,
            Arithmetic::Int8 => 1e-2,
        };
        check_within(gpu, &found, &expected, off)
    }
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn mixtures_of_experts(
        (dtype, layout) in any_type(),
        (arithmetic, n_rows, gating, seed) in (arithmetic(), 1_usize..24, 0_usize..3, any::<u64>()),
        (n_groups, size, n_used, n_groups_used) in (1_usize..4, 1_usize..4, 1_usize..5, 1_usize..4),
        (grouped, normalize, weigh_input, gated) in any::<(bool, bool, bool, bool)>(),
        (with_bias, biased, scaled, ties) in any::<(bool, bool, bool, bool)>(),
    ) {
        let n_experts = n_groups * size;
        let n_used = n_used.min(n_experts);
        let gating = [Gating::Softmax, Gating::Sigmoid, Gating::SparseMixer][gating];
        let plain = gating == Gating::SparseMixer;
        let (width, hidden) = match dtype.block_len() {
            1 => (37, 21),
            block => (block.max(64), block.max(128)),
        };
        let mixture = Mixture {
            dtype,
            arithmetic,
            n_experts,
            width,
            hidden,
            routing: Routing {
                n_used,
                gating,
                // Groups of one have a worth of their own.
                groups: (grouped && !plain).then(|| (n_groups, n_groups_used.max(n_used.div_ceil(size)).min(n_groups))),
                normalize,
                scale: 1.5,
                weigh_input,
            },
            function: if gated { Function::Silu } else { Function::ReluSquared },
            gated,
            with_bias,
            selection_bias: (biased && !plain).then(|| numbers(seed ^ 7, n_experts)),
            scales: scaled.then(|| numbers(seed ^ 8, n_experts)),
            seed,
        };
        mixture.check(n_rows, layout, ties)?;
    }
}

proptest! {
    #![proptest_config(config(12))]

    /// More experts than lanes choose, and more rows than go through experts together.
    #[test]
    fn mixtures_of_many_experts(n_experts in prop_oneof![100_usize..400, Just(1024)], n_used in 1_usize..33, many_rows in any::<bool>(), (sigmoid, ties) in any::<(bool, bool)>(), seed in any::<u64>()) {
        let mixture = Mixture {
            dtype: TensorType::F32,
            arithmetic: Arithmetic::F32,
            n_experts,
            width: 5,
            hidden: 3,
            routing: Routing {
                n_used,
                gating: if sigmoid { Gating::Sigmoid } else { Gating::Softmax },
                groups: None,
                normalize: true,
                scale: 1.0,
                weigh_input: false,
            },
            function: Function::Silu,
            gated: true,
            with_bias: false,
            selection_bias: None,
            scales: None,
            seed,
        };
        let n_rows = if many_rows { MIXTURE_ROWS + 70 } else { 9 };
        mixture.check(n_rows, Layout::Values, ties)?;
    }
}

/// Scores that are no numbers, or too large, still choose as many experts as they must, the same ones each time.
#[test]
fn broken_scores_choose_experts_all_the_same() {
    let gpu = &mut *gpu();
    let mixture = |groups, gating| Mixture {
        dtype: TensorType::F32,
        arithmetic: Arithmetic::F32,
        n_experts: 4,
        width: 2,
        hidden: 2,
        routing: Routing {
            n_used: 2,
            gating,
            groups,
            normalize: true,
            scale: 1.0,
            weigh_input: false,
        },
        function: Function::Identity,
        gated: true,
        with_bias: false,
        selection_bias: None,
        scales: None,
        seed: 3,
    };
    for (groups, gating) in [
        (None, Gating::Softmax),
        (None, Gating::SparseMixer),
        (Some((2, 1)), Gating::Sigmoid),
    ] {
        let mixture = mixture(groups, gating);
        let experts = mixture.load(gpu, &mixture.stacks());
        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for n_rows in [1, 20] {
                let x = gpu.rows(&vec![1.0; 2 * n_rows], 2).unwrap();
                let scores = gpu.rows(&vec![score; 4 * n_rows], 4).unwrap();
                let sum = gpu.mixture(&x, &scores, &experts).unwrap();
                let found = read(gpu, &sum, 2 * n_rows);
                let bits = |row: &[f32]| [row[0].to_bits(), row[1].to_bits()];
                let mut rows = found.chunks(2).map(bits);
                let first = rows.next().unwrap();
                assert!(rows.all(|row| row == first), "{score}");
            }
        }
    }
}
