use std::{
    panic::catch_unwind,
    sync::atomic::AtomicU32,
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use super::*;

#[test]
fn every_chunk_is_worked_on_once() {
    for n_threads in [1, 2, 5] {
        let pool = Pool::new(n_threads);
        assert_eq!(pool.n_threads(), n_threads);
        for parallel in [false, true] {
            let mut values = vec![0; 1003];
            pool.for_each_chunk_mut(&mut values, 10, parallel, |index, chunk| {
                for value in chunk {
                    *value += index + 1;
                }
            });
            let is_right = |(at, value): (usize, &usize)| *value == at / 10 + 1;
            assert!(values.iter().enumerate().all(is_right));
        }
    }
}

/// Regions of all sizes, now close together, now after a sleep, are complete when they return.
#[test]
fn thousands_of_regions_lose_no_task() {
    for n_threads in [2, 3, 8] {
        let pool = Pool::new(n_threads);
        let counts: Vec<AtomicU32> = (0..40).map(|_| AtomicU32::new(0)).collect();
        for round in 0..3000_u32 {
            let n_tasks = round as usize * 7 % 41;
            pool.for_each_task(n_tasks, |task| {
                counts[task].fetch_add(1, Ordering::Relaxed);
                if (task as u32 + round).is_multiple_of(64) {
                    std::thread::yield_now();
                }
            });
            for (task, count) in counts.iter().enumerate() {
                assert_eq!(count.swap(0, Ordering::Relaxed), u32::from(task < n_tasks));
            }
            if round.is_multiple_of(500) {
                sleep(Duration::from_millis(1));
            }
        }
    }
}

#[test]
fn several_callers_and_calls_from_tasks_are_all_served() {
    let pool = Pool::new(3);
    let total = AtomicUsize::new(0);
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.for_each_task(5, |_| {
                        pool.for_each_task(3, |_| {
                            total.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 4 * 200 * 15);
}

#[test]
fn a_panic_reaches_the_caller_after_the_other_tasks() {
    let pool = Pool::new(3);
    for _ in 0..50 {
        let n_ended = AtomicUsize::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            pool.for_each_task(20, |task| {
                assert!(task != 11, "task eleven");
                n_ended.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"task eleven"));
        assert_eq!(n_ended.into_inner(), 19);
        let mut after = [0; 8];
        pool.for_each_chunk_mut(&mut after, 1, true, |index, value| value[0] = index);
        assert_eq!(after, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn one_slow_task_does_not_hold_up_the_others() {
    let pool = Pool::new(2);
    let by_thread = Mutex::new(std::collections::HashMap::new());
    pool.for_each_task(100, |task| {
        let begin = Instant::now();
        while task == 0 && lock(&by_thread).values().sum::<usize>() < 98 {
            assert!(begin.elapsed() < Duration::from_secs(20), "the others wait");
            sleep(Duration::from_millis(1));
        }
        let thread = std::thread::current().id();
        *lock(&by_thread).entry(thread).or_insert(0) += 1;
    });
    let by_thread = by_thread.into_inner().unwrap();
    let most = by_thread.values().copied().max().unwrap();
    assert!(most >= 98, "the other thread did the rest: {by_thread:?}");
}

#[test]
fn an_idle_pool_sleeps() {
    let pool = Pool::new(4);
    pool.for_each_task(100, |_| {});
    let begin = Instant::now();
    while pool.shared.n_asleep.load(Ordering::SeqCst) < 3 {
        assert!(begin.elapsed() < Duration::from_secs(20), "still awake");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_task_and_one_task_need_no_other_thread() {
    let pool = Pool::new(2);
    pool.for_each_task(0, |_| unreachable!());
    let caller = std::thread::current().id();
    pool.for_each_task(1, |task| {
        assert_eq!((task, std::thread::current().id()), (0, caller));
    });
    pool.for_each_chunk_mut(&mut [(); 0], 0, true, |_, _| unreachable!());
}
