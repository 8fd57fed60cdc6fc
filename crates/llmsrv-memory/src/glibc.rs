//! What the allocator of glibc holds, and how it gives it back.
#![expect(
    unsafe_code,
    reason = "the allocator is asked in C; its functions may be called from any thread"
)]

use std::{fs, mem, sync::OnceLock, thread, time::Duration};

/// Starts the thread. Without it everything works and more memory stays.
pub(crate) fn start() {
    // What lies free at the end of a thread's memory goes back when it is freed or not at all. Left
    // to itself the allocator raises these thresholds to 64 MiB as soon as it sees large blocks.
    set(libc::M_TRIM_THRESHOLD, WORTH_AT_ONCE);
    set(libc::M_MMAP_THRESHOLD, WORTH_AT_ONCE);
    set(libc::M_ARENA_MAX, MOST_ARENAS);
    let watch = || {
        let mut kept = 0;
        loop {
            thread::sleep(EVERY);
            let now = held_bytes();
            if is_worth_it(kept, now) {
                trim();
                kept = held_bytes();
            } else {
                kept = kept.min(now);
            }
        }
    };
    let _ = thread::Builder::new()
        .name("memory".into())
        .stack_size(128 << 10)
        .spawn(watch);
}

/// Tells whether much more is held for nothing than what stayed when memory was given back last: single free
/// blocks between others in use stay.
fn is_worth_it(kept: usize, held: usize) -> bool {
    held >= kept + WORTH
}

/// Returns the bytes of memory that the process has to itself beyond those in use by the allocator's callers.
/// Other mappings count, too; they only grow or shrink what stays.
fn held_bytes() -> usize {
    own_bytes().saturating_sub(used_bytes())
}

/// Returns the bytes that the allocator's callers have, in the memory of all threads.
fn used_bytes() -> usize {
    used_bytes_by(mallinfo2())
}

/// The same by a function that may not be there. The one that always is counts in 32 bits: what is missing then is a
/// multiple of 4 GiB, which at worst gives memory back once more than it is worth.
fn used_bytes_by(mallinfo2: Option<Mallinfo2>) -> usize {
    if let Some(mallinfo2) = mallinfo2 {
        // SAFETY: It takes the allocator's own locks and returns a structure of integers.
        let info = unsafe { mallinfo2() };
        return info.uordblks + info.hblkhd;
    }
    // SAFETY: As above.
    let info = unsafe { libc::mallinfo() };
    info.uordblks as u32 as usize + info.hblkhd as u32 as usize
}

type Mallinfo2 = unsafe extern "C" fn() -> libc::mallinfo2;

/// Finds the function in glibc 2.33 and newer. A program that just called it would not start with an older one.
fn mallinfo2() -> Option<Mallinfo2> {
    static FOUND: OnceLock<Option<Mallinfo2>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: The name ends with a zero, and no function of that name has another type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr());
            (!found.is_null()).then(|| mem::transmute::<*mut libc::c_void, Mallinfo2>(found))
        }
    })
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

/// Returns the bytes of resident memory that are no copy of a file.
fn own_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) << 10
}

const EVERY: Duration = Duration::from_secs(2);
/// Less is not worth the work.
const WORTH: usize = 2 << 20;
/// The same for one thread and at once, and for a block with pages of its own.
const WORTH_AT_ONCE: libc::c_int = 1 << 20;
/// Threads share memory in so many groups; each may keep what is not worth the work.
const MOST_ARENAS: libc::c_int = 8;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_was_freed_goes_back_once() {
        // Small blocks, one in a hundred of them kept: they come from the heap, and it cannot shrink.
        let mut blocks: Vec<Vec<u8>> = (0..400_000).map(|_| vec![1; 300]).collect();
        let full = own_bytes();
        let mut n = 0;
        blocks.retain(|_| {
            n += 1;
            n % 100 == 0
        });
        assert!(held_bytes() > 64 << 20, "{}", held_bytes());
        trim();
        let kept = own_bytes();
        assert!(kept + (64 << 20) < full, "{full} {kept}");
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), 4000 * 300);
    }

    #[test]
    fn an_old_library_counts_the_same() {
        let block = vec![1_u8; 8 << 20];
        let (new, old) = (used_bytes_by(mallinfo2()), used_bytes_by(None));
        assert!(old >= block.len() && new >= block.len(), "{old} {new}");
        // Other tests run meanwhile.
        assert!(new.abs_diff(old) < 200 << 20, "{old} {new}");
        // A library that is new enough has the function.
        let versions = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let version = String::from_utf8(versions.unwrap().stdout).unwrap();
        let (_, minor) = version.trim().split_once("2.").unwrap();
        assert_eq!(minor.parse::<u32>().unwrap() >= 33, mallinfo2().is_some());
    }

    #[test]
    fn only_what_came_since_is_worth_it() {
        const MIB: usize = 1 << 20;
        assert!(!is_worth_it(0, MIB));
        assert!(is_worth_it(0, 200 * MIB));
        assert!(
            !is_worth_it(100 * MIB, 101 * MIB),
            "it stayed the last time"
        );
        assert!(is_worth_it(100 * MIB, 140 * MIB), "freed again");
    }
}
