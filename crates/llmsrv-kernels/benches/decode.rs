//! One token through all matrices of a model, in the order of a step, and nothing else of the step:
//! `cargo bench -p llmsrv-kernels --bench decode [-- SHAPE...]` (`1b`, `8b-part`; `n_threads=1` sets the threads).
//!
//! What is lost here against the limit is lost between matrices: parts that end at different times, and
//! streams that begin anew. Runs and limits alternate, so both see the same machine.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports and fails so"
)]

use std::time::Instant;

use llmsrv_gguf::TensorType::{self, Q4_K, Q6_K};
use llmsrv_kernels::{
    Activations, Arena, Gemm, Instructions, Packed, Pool, Residual, Weight, grouped_gemm, probe,
};

/// Width, width of keys and of values, hidden width, layers, vocabulary.
const SHAPES: [(&str, [usize; 5]); 2] = [
    ("1b", [2048, 512, 8192, 16, 128_256]),
    ("8b-part", [4096, 1024, 14_336, 6, 32_000]),
];

fn main() {
    let arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let arguments: Vec<String> = arguments.collect();
    let n_threads = arguments
        .iter()
        .find_map(|a| a.strip_prefix("n_threads=")?.parse().ok());
    let names: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let pool = Pool::new(n_threads.unwrap_or(0));
    let reader = probe::BandwidthProbe::new();
    for (name, shape) in SHAPES {
        if !names.is_empty() && !names.iter().any(|n| *n == name) {
            continue;
        }
        let model = Model::new(shape, &pool);
        let mut step = Step::new(shape);
        let mut rates: [Vec<f64>; 2] = Default::default();
        model.step(&mut step, &pool);
        for _ in 0..15 {
            rates[0].push(reader.bytes_per_second(pool.n_threads()) / 1e9);
            let start = Instant::now();
            for _ in 0..4 {
                model.step(&mut step, &pool);
            }
            let seconds = start.elapsed().as_secs_f64() / 4.0;
            rates[1].push(model.bytes() as f64 / seconds / 1e9);
        }
        for rates in &mut rates {
            rates.sort_by(f64::total_cmp);
        }
        let [limit, rates] = rates;
        println!(
            "{name}: {:.1} GB/s ({:.1} to {:.1}), limit {:.1} ({:.1} to {:.1}), {:.0} %",
            rates[7],
            rates[0],
            rates[14],
            limit[7],
            limit[0],
            limit[14],
            100.0 * rates[7] / limit[7]
        );
    }
}

/// Groups of matrices that are multiplied together.
struct Model {
    groups: Vec<Vec<Packed>>,
}

impl Model {
    fn new([width, kv, hidden, n_layers, vocabulary]: [usize; 5], pool: &Pool) -> Model {
        let mut arena = Arena::default();
        let mut matrix = |ty: TensorType, rows: usize, cols: usize| {
            let bytes = vec![0x35; rows * cols / ty.block_len() * ty.block_bytes()];
            let weight = Weight {
                ty,
                rows,
                cols,
                bytes: &bytes,
            };
            Packed::new(&weight, &mut arena, pool).unwrap()
        };
        let mut groups = Vec::new();
        for layer in 0..n_layers {
            let fine = if layer % 2 == 0 { Q6_K } else { Q4_K };
            groups.push(vec![
                matrix(Q4_K, width, width),
                matrix(Q4_K, kv, width),
                matrix(fine, kv, width),
            ]);
            groups.push(vec![matrix(Q4_K, width, width)]);
            groups.push(vec![
                matrix(Q4_K, hidden, width),
                matrix(Q4_K, hidden, width),
            ]);
            groups.push(vec![matrix(fine, width, hidden)]);
        }
        groups.push(vec![matrix(Q6_K, vocabulary, width)]);
        Model { groups }
    }

    fn bytes(&self) -> usize {
        self.groups.iter().flatten().map(Packed::bytes).sum()
    }

    fn step(&self, step: &mut Step, pool: &Pool) {
        for group in &self.groups {
            let n_results = step.out.len() / group.len();
            let mut outs = step.out.chunks_mut(n_results);
            let mut products: Vec<Gemm<'_>> = group
                .iter()
                .map(|weights| {
                    let mut x = step.x.iter();
                    let x = x.find(|x| x.n_cols() == weights.n_cols()).unwrap();
                    let out = outs.next().unwrap();
                    Gemm::new(weights, x, &mut out[..weights.n_rows()])
                })
                .collect();
            grouped_gemm(Instructions::best(), &mut products, pool).unwrap();
        }
    }
}

/// Activations of both widths, and room for results.
struct Step {
    x: [Activations; 2],
    out: Vec<f32>,
}

impl Step {
    fn new([width, _, hidden, _, vocabulary]: [usize; 5]) -> Step {
        let of_width = |n_cols: usize| {
            let values: Vec<f32> = (0..n_cols).map(|i| (i % 97) as f32 - 48.0).collect();
            let mut x = Activations::default();
            let kind = llmsrv_kernels::ActivationFormat::Q8Block256;
            x.quantize(&values, n_cols, kind, Residual::Dropped, &Pool::new(1))
                .unwrap();
            x
        };
        Step {
            x: [of_width(width), of_width(hidden)],
            out: vec![0.0; vocabulary.max(3 * hidden)],
        }
    }
}
