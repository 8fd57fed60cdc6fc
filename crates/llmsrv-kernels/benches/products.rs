//! Products of packed weights: `cargo bench -p llmsrv-kernels --bench products [-- NAME...]`.
//!
//! `stream/*`: weights read per second for few tokens, out of memory (256 MiB of weights).
//! `tiles/*`: operations per second for many tokens.
//! `quantize/*`, `pack/*`: the other two costs. `n_threads=1` sets the threads, `tier=Avx2` the
//! instructions of the products. Each figure is the median of several runs and, in brackets, the best;
//! the limits of the machine are measured first.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports and fails so"
)]

use std::time::Instant;

use llmsrv_gguf::TensorType;
use llmsrv_kernels::{
    ActivationFormat, Activations, Arena, Gemm, Instructions, Packed, Pool, Residual, Weight,
    grouped_gemm, probe,
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

fn main() {
    let arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let arguments: Vec<String> = arguments.collect();
    let n_threads = arguments
        .iter()
        .find_map(|a| a.strip_prefix("n_threads=")?.parse().ok());
    let tier = arguments.iter().find_map(|a| {
        let name = a.strip_prefix("tier=")?;
        let tier = Instructions::ALL.iter().find(|t| format!("{t:?}") == name);
        Some(*tier.unwrap())
    });
    let tier = tier.unwrap_or(Instructions::best());
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let pool = Pool::new(n_threads.unwrap_or(0));
    let n_threads = pool.n_threads();
    println!("{n_threads} threads, {tier:?}");
    let read = probe::BandwidthProbe::new().bytes_per_second(n_threads);
    let peak = probe::int8_peak(n_threads).ops_per_second;
    let float_peak = probe::float_peak(n_threads).ops_per_second;
    println!(
        "limits: {:.1} GB/s, {:.0} Gop/s in bytes, {:.0} in floats",
        read / 1e9,
        peak / 1e9,
        float_peak / 1e9
    );
    let report = |name: String, amount: f64, unit: &str, times: &[f64]| {
        let rate = |seconds: f64| amount / seconds / 1e9;
        let (median, best) = (rate(times[times.len() / 2]), rate(times[0]));
        println!("{name:22} {median:8.2} {unit} ({best:.2})");
    };
    for ty in TYPES {
        let cols = cols(ty);
        for n in [1, 2, 3, 4, 6, 8, 16] {
            let name = format!("stream/{ty}/{n}");
            if wanted(&name) {
                let row_bytes = cols * ty.block_bytes() / ty.block_len();
                let case = Case::new(ty, (256 << 20) / row_bytes, cols, n, tier, &pool);
                let times = case.times(&pool, 9);
                report(name, case.packed.bytes() as f64, "GB/s", &times);
            }
        }
    }
    for ty in TYPES {
        for (cols, n) in [(256, 512), (896, 512), (2048, 64), (2048, 512), (8192, 512)] {
            let name = format!("tiles/{ty}/{cols}/{n}");
            if wanted(&name) && cols % ty.block_len() == 0 {
                let case = Case::new(ty, 2048, cols, n, tier, &pool);
                let times = case.times(&pool, 9);
                report(name, 2.0 * (2048 * cols * n) as f64, "Gop/s", &times);
            }
        }
    }
    let values = vec![0.7; 2048 * 512];
    for kind in ActivationFormat::ALL {
        for residual in [Residual::Dropped, Residual::Kept] {
            let name = format!("quantize/{kind:?}/{residual:?}");
            if wanted(&name) {
                let mut x = Activations::default();
                let times = times(9, || {
                    x.quantize(&values, 2048, kind, residual, &pool).unwrap();
                });
                report(name, values.len() as f64, "G elements/s", &times);
            }
        }
    }
    for ty in TYPES {
        let name = format!("pack/{ty}");
        if wanted(&name) {
            let (bytes, mut arena) = (weights(ty, 8192, 2048), Arena::default());
            let weight = Weight {
                ty,
                rows: 8192,
                cols: 2048,
                bytes: &bytes,
            };
            let times = times(5, || drop(Packed::new(&weight, &mut arena, &pool).unwrap()));
            report(name, bytes.len() as f64, "GB/s", &times);
        }
    }
}

/// The width of a small model, where the type can have it.
fn cols(ty: TensorType) -> usize {
    if ty.block_len() == 256 { 2048 } else { 896 }
}

/// Speed does not depend on the values, except that no scale is denormal.
fn weights(ty: TensorType, rows: usize, cols: usize) -> Vec<u8> {
    vec![0x35; rows * cols / ty.block_len() * ty.block_bytes()]
}

struct Case {
    tier: Instructions,
    packed: Packed,
    x: Activations,
}

impl Case {
    fn new(
        ty: TensorType,
        rows: usize,
        cols: usize,
        n: usize,
        tier: Instructions,
        pool: &Pool,
    ) -> Case {
        let weight = Weight {
            ty,
            rows,
            cols,
            bytes: &weights(ty, rows, cols),
        };
        let packed = Packed::new(&weight, &mut Arena::default(), pool).unwrap();
        let mut x = Activations::default();
        let values: Vec<f32> = (0..n * cols).map(|i| (i % 97) as f32 - 48.0).collect();
        x.quantize_at(
            tier,
            &values,
            cols,
            (packed.kind(), Residual::Dropped),
            pool,
        )
        .unwrap();
        Case { tier, packed, x }
    }

    fn times(&self, pool: &Pool, n: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.x.n_rows() * self.packed.n_rows()];
        times(n, || {
            let product = Gemm::new(&self.packed, &self.x, &mut out);
            grouped_gemm(self.tier, &mut [product], pool).unwrap();
        })
    }
}

/// Seconds of each run, the shortest first.
fn times(n: usize, mut work: impl FnMut()) -> Vec<f64> {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}
