//! Memory is filled with numbers that are known, and read again.

use std::{
    hint::black_box,
    path::{Component, Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use procfs::{Current as _, Meminfo};

use super::{Error, Stop, rate};

/// What was seen of the memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes that were tested: never more than what was free, less a reserve.
    pub tested: u64,
    /// Threads that wrote and read.
    pub threads: usize,
    /// How long.
    pub time: Duration,
    /// Times that all of it was written and read, of the slowest thread.
    pub passes: u64,
    /// Bytes written in a second, by all threads.
    pub write_rate: f64,
    /// Bytes read in a second, by all threads.
    pub read_rate: f64,
    /// Words of 8 bytes that were not what was written: the memory fails.
    pub wrong: u64,
}

/// Writes and reads `asked` bytes with so many threads for so long; less where the time is too short
/// to have them all. A fifth of what is free is left alone.
pub fn memory(
    asked: u64,
    threads: usize,
    duration: Duration,
    stop: &Stop,
) -> Result<Memory, Error> {
    let free = free_bytes().ok_or(Error::Unknown)?;
    let tested = asked.min(free / 5 * 4);
    let threads = threads.max(1);
    let share = tested / threads as u64 / WORD;
    if share == 0 {
        return Err(Error::Full { free });
    }
    let begun = Instant::now();
    let workers = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..threads {
            let workers = &workers;
            let work = move || {
                let seen = worker(share, number as u64, begun, duration, stop);
                if let Ok(mut workers) = workers.lock() {
                    workers.push(seen);
                }
            };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                stop.now();
                return Err(Error::Thread(error));
            }
        }
        Ok(())
    })?;
    let workers = workers.into_inner().unwrap_or_default();
    let sum = |of: fn(&Worker) -> u64| workers.iter().map(of).sum::<u64>();
    let rates = |bytes: fn(&Worker) -> u64, time: fn(&Worker) -> Duration| {
        workers.iter().map(|it| rate(bytes(it), time(it))).sum()
    };
    Ok(Memory {
        asked,
        tested: sum(|it| it.had),
        threads,
        time: begun.elapsed(),
        passes: workers.iter().map(|it| it.passes).min().unwrap_or(0),
        write_rate: rates(|it| it.written, |it| it.writing),
        read_rate: rates(|it| it.read, |it| it.reading),
        wrong: sum(|it| it.wrong),
    })
}

/// What one thread did, in bytes.
#[derive(Default)]
struct Worker {
    had: u64,
    passes: u64,
    written: u64,
    read: u64,
    writing: Duration,
    reading: Duration,
    wrong: u64,
}

fn worker(words: u64, number: u64, begun: Instant, duration: Duration, stop: &Stop) -> Worker {
    let mut seen = Worker::default();
    let mut blocks = take(words, begun, duration, stop);
    seen.had = blocks.iter().map(|block| block.len() as u64 * WORD).sum();
    for pass in 0.. {
        if stop.is_wanted() || (pass > 0 && begun.elapsed() >= duration) {
            break;
        }
        let key = number << 32 | pass;
        for (at, block) in blocks.iter_mut().enumerate() {
            if stop.is_wanted() {
                return seen;
            }
            let now = Instant::now();
            let first = at as u64 * BLOCK_WORDS;
            for (word, i) in block.iter_mut().zip(first..) {
                *word = pattern(key, i);
            }
            seen.writing += now.elapsed();
            seen.written += block.len() as u64 * WORD;
        }
        for (at, block) in blocks.iter().enumerate() {
            if stop.is_wanted() {
                return seen;
            }
            let now = Instant::now();
            let first = at as u64 * BLOCK_WORDS;
            // Else the compiler may know what is in it.
            let words = black_box(block).iter().zip(first..);
            seen.wrong += words.filter(|(word, i)| **word != pattern(key, *i)).count() as u64;
            seen.reading += now.elapsed();
            seen.read += block.len() as u64 * WORD;
        }
        seen.passes += 1;
    }
    seen
}

/// Takes memory block by block; less than asked when others take what was free, and when it takes
/// more than a third of the time: what was taken has to be written and read as well.
fn take(words: u64, begun: Instant, duration: Duration, stop: &Stop) -> Vec<Vec<u64>> {
    let mut blocks = Vec::new();
    let mut left = words;
    let is_in_time = || begun.elapsed() < duration / 3;
    while left > 0 && !stop.is_wanted() && (blocks.is_empty() || is_in_time()) {
        let n_words = left.min(BLOCK_WORDS);
        if free_bytes().is_none_or(|free| free / 2 < n_words * WORD) {
            break;
        }
        let mut block: Vec<u64> = Vec::new();
        if block.try_reserve_exact(n_words as usize).is_err() {
            break;
        }
        // Pages are there from now on, and not only promised.
        block.resize(n_words as usize, u64::MAX);
        blocks.push(block);
        left -= n_words;
    }
    blocks
}

/// The number that belongs to a place; its bits differ from pass to pass.
fn pattern(key: u64, place: u64) -> u64 {
    (place ^ key.rotate_left(48)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key
}

/// Returns the memory that can be had without swapping, in bytes: of the machine, or of the control
/// group this process is in where that is less.
pub fn free_bytes() -> Option<u64> {
    let machine = Meminfo::current().ok().and_then(|it| it.mem_available);
    match (machine, group_free()) {
        (Some(machine), Some(group)) => Some(machine.min(group)),
        (machine, group) => machine.or(group),
    }
}

/// What the control group (version 2) and those around it leave.
fn group_free() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own: PathBuf = Path::new(own)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let root = Path::new("/sys/fs/cgroup");
    own.ancestors()
        .filter_map(|group| {
            let number = |name: &str| -> Option<u64> {
                let text = std::fs::read_to_string(root.join(group).join(name)).ok()?;
                text.trim().parse().ok()
            };
            Some(number("memory.max")?.saturating_sub(number("memory.current")?))
        })
        .min()
}

const WORD: u64 = 8;
/// 32 MiB: small enough to stop soon.
const BLOCK_WORDS: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let seen = memory(8 << 20, 2, Duration::ZERO, &Stop::default()).unwrap();
        assert_eq!((seen.asked, seen.tested, seen.wrong), (8 << 20, 8 << 20, 0));
        assert_eq!(seen.passes, 1);
        assert!(seen.write_rate > 0.0 && seen.read_rate > 0.0, "{seen:?}");
    }

    #[test]
    fn a_short_time_is_kept_by_testing_less() {
        let free = free_bytes().unwrap();
        let asked = (free / 5 * 4).min(1 << 30);
        let seen = memory(asked, 1, Duration::ZERO, &Stop::default()).unwrap();
        assert_eq!((seen.tested, seen.passes), (BLOCK_WORDS * WORD, 1));
    }

    #[test]
    fn more_than_there_is_becomes_what_is_free() {
        let free = free_bytes().unwrap();
        let stop = Stop::default();
        stop.now();
        let seen = memory(u64::MAX, 1, Duration::from_hours(1), &stop).unwrap();
        assert_eq!((seen.tested, seen.passes), (0, 0), "nothing after the stop");
        assert!(free > 1 << 20);
    }

    #[test]
    fn every_place_and_pass_has_a_number_of_its_own() {
        for pass in 0..4 {
            let mut numbers: Vec<u64> = (0..10_000).map(|i| pattern(pass, i)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 10_000);
            assert_ne!(pattern(pass, 5), pattern(pass + 1, 5));
        }
    }
}
