//! All threads compute, and compute right.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Error, Stop, rate};

/// How the processor bore its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// Threads that computed.
    pub threads: usize,
    /// How long.
    pub time: Duration,
    /// Multiplications with an addition, half of whole numbers and half of fractions, of all
    /// threads in a second.
    pub steps_per_second: f64,
    /// The same within the first fifth of the time.
    pub early: f64,
    /// The same within the last fifth: less of it means heat, or other programs.
    pub late: f64,
    /// Results that were wrong: the processor or the memory fails.
    pub wrong: u64,
}

/// Computes with so many threads for so long.
pub fn cpu(threads: usize, duration: Duration, stop: &Stop) -> Result<Cpu, Error> {
    let (rounds, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    let expected = round(SEED);
    let begun = Instant::now();
    let mut seen = vec![(Duration::ZERO, 0)];
    thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                while !stop.is_wanted() && begun.elapsed() < duration {
                    if round(black_box(SEED)) != expected {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            };
            let started = thread::Builder::new().spawn_scoped(scope, work);
            if let Err(error) = started {
                stop.now();
                return Err(Error::Thread(error));
            }
        }
        while !stop.is_wanted() && begun.elapsed() < duration {
            thread::sleep(LOOK_EVERY.min(duration.saturating_sub(begun.elapsed())));
            seen.push((begun.elapsed(), rounds.load(Ordering::Relaxed)));
        }
        Ok(())
    })?;
    let time = begun.elapsed();
    let steps = |rounds: f64| rounds * STEPS as f64;
    Ok(Cpu {
        threads,
        time,
        steps_per_second: steps(rate(rounds.into_inner(), time)),
        early: steps(between(&seen, 0.0, 0.2)),
        late: steps(between(&seen, 0.8, 1.0)),
        wrong: wrong.into_inner(),
    })
}

/// Returns the rounds in a second between two parts of the time.
fn between(seen: &[(Duration, u64)], from: f64, to: f64) -> f64 {
    let end = seen.last().map_or(Duration::ZERO, |(time, _)| *time);
    let at = |part: f64| {
        let due = end.mul_f64(part);
        let after = seen.iter().position(|(time, _)| *time >= due);
        seen[after.unwrap_or(seen.len() - 1)]
    };
    let ((from, n_from), (to, n_to)) = (at(from), at(to));
    rate(n_to.saturating_sub(n_from), to.saturating_sub(from))
}

/// A piece of work whose result is known: eight chains of whole numbers and eight of fractions, so
/// that the units for both are busy.
fn round(seed: u64) -> u64 {
    let mut whole: [u64; LANES] = std::array::from_fn(|lane| seed + lane as u64);
    let mut parts: [f64; LANES] = std::array::from_fn(|lane| 1.0 + lane as f64 / 16.0);
    for _ in 0..STEPS / (2 * LANES) {
        for lane in 0..LANES {
            // The generator of Knuth's MMIX, and a map that stays between 0 and 1.
            whole[lane] = whole[lane]
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            parts[lane] = 0.25 + parts[lane] * (0.75 - 0.5 * parts[lane] * 0.5);
        }
    }
    let whole = whole.iter().fold(0, |sum: u64, x| sum.rotate_left(7) ^ x);
    parts
        .iter()
        .fold(whole, |sum, x| sum.rotate_left(9) ^ x.to_bits())
}

const SEED: u64 = 0x9e37_79b9;
const LANES: usize = 8;
/// Steps of a round: less than a millisecond of work.
const STEPS: usize = 1 << 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_and_right_until_the_time_is_over() {
        let seen = cpu(2, Duration::from_millis(300), &Stop::default()).unwrap();
        assert_eq!((seen.threads, seen.wrong), (2, 0));
        assert!(seen.time >= Duration::from_millis(300) && seen.time < Duration::from_secs(30));
        assert!(seen.steps_per_second > 1e5, "{seen:?}");
    }

    #[test]
    fn it_stops_when_told() {
        let stop = Stop::default();
        stop.now();
        let seen = cpu(1, Duration::from_hours(1), &stop).unwrap();
        assert!(seen.time < Duration::from_mins(1), "{seen:?}");
    }

    #[test]
    fn a_different_beginning_gives_a_different_result() {
        assert_eq!(round(1), round(1));
        assert_ne!(round(1), round(2));
    }

    #[test]
    fn rates_are_those_of_their_part_of_the_time() {
        let second = Duration::from_secs;
        let seen = [
            (second(0), 0),
            (second(2), 200),
            (second(8), 500),
            (second(10), 560),
        ];
        assert_eq!(between(&seen, 0.0, 0.2), 100.0);
        assert_eq!(between(&seen, 0.8, 1.0), 30.0);
        assert_eq!(between(&seen[..1], 0.0, 0.2), 0.0);
    }
}
