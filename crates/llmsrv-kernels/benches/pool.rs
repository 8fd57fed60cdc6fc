//! What a parallel region costs beside its work: with threads awake, and with threads asleep.

use std::{hint::black_box, thread::sleep, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use llmsrv_kernels::Pool;

fn regions(criterion: &mut Criterion) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for n_threads in [1, cores] {
        let pool = Pool::new(n_threads);
        let n_tasks = 4 * n_threads;
        criterion.bench_function(
            &format!("region of {n_tasks} tasks, {n_threads} awake"),
            |bencher| {
                bencher.iter(|| pool.for_each_task(n_tasks, |task| _ = black_box(task)));
            },
        );
    }
    let pool = Pool::new(cores);
    // Each task is long enough that a second thread is worth waking.
    let busy = |_| (0..5000_u32).for_each(|i| _ = black_box(i));
    criterion.bench_function("40 tasks of some microseconds, one thread", |bencher| {
        bencher.iter(|| (0..40).for_each(busy));
    });
    criterion.bench_function("40 tasks of some microseconds, all awake", |bencher| {
        bencher.iter(|| pool.for_each_task(40, busy));
    });
    criterion.bench_function("40 tasks of some microseconds, others asleep", |bencher| {
        bencher.iter_custom(|n| {
            let mut total = Duration::ZERO;
            for _ in 0..n {
                sleep(Duration::from_micros(300));
                let begin = std::time::Instant::now();
                pool.for_each_task(40, busy);
                total += begin.elapsed();
            }
            total
        });
    });
}

criterion_group!(benches, regions);
criterion_main!(benches);
