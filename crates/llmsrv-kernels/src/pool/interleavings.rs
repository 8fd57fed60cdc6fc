//! The protocol of taking, sleeping and waking, in a great many of the orders in which its steps may
//! happen. A lost wake-up would be a deadlock, which the scheduler of the test reports: without the
//! lock in `Shared::wake` each of these tests finds one at once. Not all orders are tried; even for one
//! worker and one region of two tasks there are more than two million.
//!
//! Memory is sequentially consistent here: the weaker orderings of the counters are not put to the
//! test. Threads never wait awake, since a clock has no place in an enumeration.
//!
//! ```sh
//! RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
//!     cargo test -p llmsrv-kernels --lib pool::interleavings
//! ```

use std::sync::Arc;

use shuttle::{check_dfs, check_pct, check_random, thread};

use super::*;

/// Lets `n_workers` and the caller compute regions of so many tasks, one after another.
fn regions(n_workers: usize, sizes: &[usize]) {
    let shared = Arc::new(Shared::new(SpinWait::new(false)));
    let workers: Vec<_> = (0..n_workers)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work())
        })
        .collect();
    for &n_tasks in sizes {
        // Counters of the system: what tasks do is no step of the protocol.
        let counts: Vec<_> = (0..n_tasks)
            .map(|_| std::sync::atomic::AtomicUsize::new(0))
            .collect();
        let turn = lock(&shared.turn);
        shared.region(&turn, n_tasks, &|task: usize| {
            counts[task].fetch_add(1, Ordering::Relaxed);
        });
        drop(turn);
        for count in counts {
            assert_eq!(count.into_inner(), 1, "each task is done once");
        }
    }
    shared.stop();
    for worker in workers {
        worker.join().unwrap();
    }
}

#[test]
fn orders_of_one_region_and_one_worker_one_after_another() {
    check_dfs(|| regions(1, &[2]), Some(5 * MANY_ORDERS));
}

#[test]
fn many_orders_of_several_regions_and_workers() {
    check_random(|| regions(2, &[3, 2]), MANY_ORDERS);
    check_random(|| regions(1, &[2, 2, 3]), MANY_ORDERS);
    // Few changes of thread, at the worst places.
    check_pct(|| regions(2, &[2, 3]), MANY_ORDERS, 3);
}

#[test]
fn a_panic_in_any_order_reaches_the_caller() {
    let panics = || {
        let shared = Arc::new(Shared::new(SpinWait::new(false)));
        let worker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.work())
        };
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let turn = lock(&shared.turn);
            shared.region(&turn, 2, &|task: usize| assert!(task != 1, "told to"));
        }));
        assert!(caught.is_err());
        shared.stop();
        worker.join().unwrap();
    };
    check_random(panics, MANY_ORDERS / 10);
}

const MANY_ORDERS: usize = 100_000;
