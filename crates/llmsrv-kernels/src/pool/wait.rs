//! Waiting awake, as long as that does good.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Decides how long a thread waits awake before it sleeps.
///
/// To wake a thread takes longer than most of what a decoder does between two regions, so a short wait
/// awake pays, but not where it keeps another thread from its core. A waiting thread that finds itself
/// set back in time was taken off its core for another: then nobody waits awake for a while.
#[derive(Debug)]
pub(super) struct SpinWait {
    /// Whether there is a core for every thread.
    has_cores: bool,
    /// Waits that are still to be spent asleep.
    n_asleep: AtomicU32,
}

impl SpinWait {
    pub(super) fn new(has_cores: bool) -> SpinWait {
        SpinWait {
            has_cores,
            n_asleep: AtomicU32::new(0),
        }
    }

    /// Waits until `is_over`; gives up, with false, when the caller should sleep instead.
    pub(super) fn wait(&self, is_over: impl Fn() -> bool) -> bool {
        if is_over() {
            return true;
        }
        if !self.has_cores || self.is_crowded() {
            return false;
        }
        let begin = Instant::now();
        let mut before = begin;
        loop {
            for _ in 0..LOOKS {
                if is_over() {
                    return true;
                }
                spin_loop();
            }
            let now = Instant::now();
            if now - before >= ABSENCE {
                self.n_asleep.store(CROWDED_WAITS, Ordering::Relaxed);
                return is_over();
            }
            if now - begin >= AWAKE {
                return is_over();
            }
            before = now;
        }
    }

    fn is_crowded(&self) -> bool {
        let n_asleep = self.n_asleep.load(Ordering::Relaxed);
        if n_asleep == 0 {
            return false;
        }
        // Threads that count at the same time may count once; it is a rough measure.
        self.n_asleep.store(n_asleep - 1, Ordering::Relaxed);
        true
    }
}

/// How long a thread waits awake.
const AWAKE: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock; about a microsecond.
const LOOKS: u32 = 32;
/// Who was away for so long between two looks had lost its core. The system gives slices of
/// milliseconds; an interrupt is over in a few microseconds.
const ABSENCE: Duration = Duration::from_micros(250);
/// Waits that are spent asleep once a core was lost: some steps of a decoder.
const CROWDED_WAITS: u32 = 1000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn who_lost_its_core_sleeps_for_a_while() {
        let spin_wait = SpinWait::new(true);
        assert!(spin_wait.wait(|| true));
        assert!(!spin_wait.wait(|| false));
        let looks = Cell::new(0);
        let looked = |after| {
            looks.set(0);
            spin_wait.wait(|| {
                looks.set(looks.get() + 1);
                looks.get() > after
            })
        };
        assert!(looked(3), "one who waits sees the end");
        // As if the core was lost between two looks.
        spin_wait.wait(|| {
            looks.set(looks.get() + 1);
            if looks.get() == 7 {
                std::thread::sleep(2 * ABSENCE);
            }
            false
        });
        for _ in 0..CROWDED_WAITS {
            assert!(!looked(1));
            assert_eq!(looks.get(), 1, "no second look");
        }
        assert!(looked(3));
    }

    #[test]
    fn nobody_waits_awake_without_a_core() {
        let n_looks = Cell::new(0);
        let spin_wait = SpinWait::new(false);
        assert!(!spin_wait.wait(|| {
            n_looks.set(n_looks.get() + 1);
            false
        }));
        assert_eq!(n_looks.get(), 1);
    }
}
