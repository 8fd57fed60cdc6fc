//! What runs between the matrix products, for one token and for a prompt, on one thread.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use llmsrv_kernels::{RopeStyle, add_scaled, gelu_mul, rms_norm, rotate, silu_mul};

fn values(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| (i * 7919 % 2003) as f32 / 200.0 - 5.0)
        .collect()
}

fn elementwise(criterion: &mut Criterion) {
    for len in [4864, 512 * 4864] {
        let mut group = criterion.benchmark_group("elementwise");
        group.throughput(Throughput::Elements(len as u64));
        let (mut x, y, weight) = (values(len), values(len), values(4864));
        let mut out = vec![0.0; len];
        group.bench_function(BenchmarkId::new("rms_norm", len), |bencher| {
            bencher.iter(|| rms_norm(&y, &weight, 1e-5, &mut out));
        });
        group.bench_function(BenchmarkId::new("add_scaled", len), |bencher| {
            bencher.iter(|| add_scaled(&mut x, &y, 1e-9));
        });
        group.bench_function(BenchmarkId::new("rotate", len), |bencher| {
            let (cos, sin) = (vec![1.0; 32], vec![0.0; 32]);
            bencher.iter(|| rotate(&mut x, 64, RopeStyle::HalfSplit, &cos, &sin));
        });
        // Fresh values each time: results that underflow would be slower.
        group.bench_function(BenchmarkId::new("copy and silu_mul", len), |bencher| {
            bencher.iter(|| {
                x.copy_from_slice(&y);
                silu_mul(&mut x, &y);
            });
        });
        group.bench_function(BenchmarkId::new("copy and gelu_mul", len), |bencher| {
            bencher.iter(|| {
                x.copy_from_slice(&y);
                gelu_mul(&mut x, &y);
            });
        });
    }
}

criterion_group!(benches, elementwise);
criterion_main!(benches);
