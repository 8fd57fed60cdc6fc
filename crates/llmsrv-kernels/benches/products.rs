//! Products of packed weights beside the limits of the machine: `cargo bench -p llmsrv-kernels`.
//!
//! `stream/*`: weights read per second for few tokens, out of memory (256 MiB of weights).
//! `tiles/*`: operations per second for many tokens.
//! A part of a name as the argument selects; `n_threads=1` sets the threads.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports and fails so"
)]

use std::time::{Duration, Instant};

use llmsrv_gguf::TensorType;
use llmsrv_kernels::{Activations, Arena, Packed, Pool, ReadProbe, Weight, dot_peak};

const TYPES: [TensorType; 8] = [
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
];

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let n_threads = arguments
        .iter()
        .find_map(|a| a.strip_prefix("n_threads=")?.parse().ok());
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    let pool = Pool::new(n_threads.unwrap_or(0));
    println!("{} threads", pool.n_threads());
    let probe = ReadProbe::new(512 << 20, &pool).unwrap();
    let (mut read, mut peak) = (limits(&probe, &pool), 0.0);
    println!("limit: read {:.1} GB/s", read / 1e9);
    for ty in TYPES {
        for n in [1, 2, 3, 4, 6, 8, 16] {
            let name = format!("stream/{ty}/{n}");
            if !wanted(&name) {
                continue;
            }
            let cols = if ty.block_len() == 32 { 896 } else { 2048 };
            let case = Case::new(
                ty,
                (256 << 20) / (cols * ty.block_bytes() / ty.block_len()),
                cols,
                n,
                &pool,
            );
            let seconds = case.median(&pool, 7);
            let rate = case.packed.bytes() as f64 / seconds;
            println!(
                "{name:20} {:6.1} GB/s  {:3.0} % of reading",
                rate / 1e9,
                100.0 * rate / read
            );
        }
        read = read.max(limits(&probe, &pool));
    }
    for ty in TYPES {
        for (cols, n) in [(896, 512), (2048, 64), (2048, 512), (8192, 512)] {
            let name = format!("tiles/{ty}/{cols}/{n}");
            if !wanted(&name) || cols % ty.block_len() != 0 {
                continue;
            }
            peak = f64::max(peak, dot_peak(&pool, Duration::from_millis(30)));
            let case = Case::new(ty, 2048, cols, n, &pool);
            let seconds = case.median(&pool, 9);
            let rate = 2.0 * (2048 * cols * n) as f64 / seconds;
            println!(
                "{name:20} {:6.1} Gop/s {:3.0} % of {:.0}",
                rate / 1e9,
                100.0 * rate / peak,
                peak / 1e9
            );
        }
    }
    if wanted("quantize") {
        let x = vec![0.7; 2048 * 512];
        for block_len in [32, 256] {
            let mut activations = Activations::default();
            let seconds = median(9, || {
                activations.quantize(&x, 2048, block_len, &pool).unwrap()
            });
            println!(
                "quantize/{block_len:3} {:6.2} Gel/s",
                x.len() as f64 / seconds / 1e9
            );
        }
    }
    if wanted("pack") {
        for ty in TYPES {
            let bytes = vec![0x35; 8192 * 2048 / ty.block_len() * ty.block_bytes()];
            let weight = Weight {
                ty,
                rows: 8192,
                cols: 2048,
                bytes: &bytes,
            };
            let seconds = median(5, || {
                drop(Packed::new(&weight, &mut Arena::default(), &pool).unwrap())
            });
            println!("pack/{ty} {:6.2} GB/s", bytes.len() as f64 / seconds / 1e9);
        }
    }
}

/// Returns the best of a few readings of all memory.
fn limits(probe: &ReadProbe, pool: &Pool) -> f64 {
    (0..5).map(|_| probe.run(pool)).fold(0.0, f64::max)
}

struct Case {
    packed: Packed,
    x: Activations,
    n: usize,
}

impl Case {
    fn new(ty: TensorType, rows: usize, cols: usize, n: usize, pool: &Pool) -> Case {
        // Speed does not depend on the values, except that no scale is denormal.
        let bytes = vec![0x35; rows * cols / ty.block_len() * ty.block_bytes()];
        let weight = Weight {
            ty,
            rows,
            cols,
            bytes: &bytes,
        };
        let packed = Packed::new(&weight, &mut Arena::default(), pool).unwrap();
        let mut x = Activations::default();
        let values: Vec<f32> = (0..n * cols).map(|i| (i % 97) as f32 - 48.0).collect();
        x.quantize(&values, cols, ty.block_len(), pool).unwrap();
        Case { packed, x, n }
    }

    fn median(&self, pool: &Pool, n: usize) -> f64 {
        let mut out = vec![0.0; self.n * self.packed.n_rows()];
        median(n, || self.packed.multiply(&self.x, &mut out, pool).unwrap())
    }
}

fn median(n: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..n)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    if std::env::var_os("BEST").is_some() {
        times[0]
    } else {
        times[n / 2]
    }
}
