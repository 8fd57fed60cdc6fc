//! What the allocator of glibc holds, and how it gives it back.
#![expect(
    unsafe_code,
    reason = "the allocator is asked in C; its functions take no pointers and may be called from any thread"
)]

use std::{fs, thread, time::Duration};

/// Starts the thread. Without it everything works and more memory stays.
pub(crate) fn start() {
    // What lies free at the end of a thread's memory goes back when it is freed or not at all. Left
    // to itself the allocator raises these thresholds to 64 MiB as soon as it sees large blocks.
    set(libc::M_TRIM_THRESHOLD, WORTH_AT_ONCE);
    set(libc::M_MMAP_THRESHOLD, WORTH_AT_ONCE);
    set(libc::M_ARENA_MAX, MOST_ARENAS);
    let watch = || {
        let mut last = (0, 0);
        loop {
            thread::sleep(EVERY);
            let now = (free_bytes(), resident_bytes());
            if is_worth_it(last, now) {
                trim();
                last = (free_bytes(), resident_bytes());
            }
        }
    };
    let _ = thread::Builder::new()
        .name("memory".into())
        .stack_size(128 << 10)
        .spawn(watch);
}

/// Tells whether much is free that was not when it was given back last. What was given back still
/// counts as free; so nothing has to be done while both figures stay what they were then.
fn is_worth_it((old_free, old_resident): (usize, usize), (free, resident): (usize, usize)) -> bool {
    free >= WORTH && (free.abs_diff(old_free) >= WORTH || resident >= old_resident + WORTH)
}

/// Returns the bytes that are free within the allocator, in the memory of all threads.
fn free_bytes() -> usize {
    // SAFETY: It takes the allocator's own locks and returns a structure of integers.
    let info = unsafe { libc::mallinfo() };
    // The field wraps at 4 GiB; only its changes matter.
    info.fordblks.cast_unsigned() as usize
}

/// Sets a parameter of the allocator; one that is refused stays as it was.
fn set(parameter: libc::c_int, value: libc::c_int) {
    // SAFETY: It takes the allocator's own locks and two integers.
    unsafe { libc::mallopt(parameter, value) };
}

/// Gives the system all whole pages that are free.
fn trim() {
    // SAFETY: It takes the allocator's own locks; pages that hold anything stay.
    unsafe { libc::malloc_trim(0) };
}

fn resident_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    pages.unwrap_or(0) * PAGE
}

const EVERY: Duration = Duration::from_secs(2);
/// Less is not worth the work.
const WORTH: usize = 2 << 20;
/// The same for one thread and at once, and for a block with pages of its own.
const WORTH_AT_ONCE: libc::c_int = 1 << 20;
/// Threads share memory in so many groups; each may keep what is not worth the work.
const MOST_ARENAS: libc::c_int = 8;
/// Of a page, at least; it only scales what is compared with itself.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_goes_back_once() {
        // Small blocks, one in a hundred of them kept: they come from the heap, and it cannot shrink.
        let mut blocks: Vec<Vec<u8>> = (0..400_000).map(|_| vec![1; 300]).collect();
        let full = resident_bytes();
        let mut n = 0;
        blocks.retain(|_| {
            n += 1;
            n % 100 == 0
        });
        assert!(free_bytes() > 64 << 20, "{}", free_bytes());
        trim();
        let kept = resident_bytes();
        assert!(kept + (64 << 20) < full, "{full} {kept}");
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), 4000 * 300);
    }

    #[test]
    fn only_changes_are_worth_it() {
        const MIB: usize = 1 << 20;
        assert!(!is_worth_it((0, 0), (MIB, 100 * MIB)));
        assert!(is_worth_it((0, 0), (200 * MIB, 300 * MIB)));
        let after = (200 * MIB, 100 * MIB);
        assert!(!is_worth_it(after, after));
        assert!(!is_worth_it(after, (201 * MIB, 101 * MIB)));
        assert!(is_worth_it(after, (200 * MIB, 300 * MIB)), "freed again");
        assert!(is_worth_it(after, (300 * MIB, 100 * MIB)));
        assert!(!is_worth_it(after, (MIB, 300 * MIB)), "in use");
    }
}
