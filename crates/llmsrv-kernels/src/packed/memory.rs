//! Memory for packed weights and the KV cache: on large pages where the system has them, since reading
//! them is what a token costs, and address translation is a fifth of it on small pages.
#![expect(
    unsafe_code,
    reason = "memory from the system, whose parts are written by several threads"
)]

use std::{ptr::NonNull, sync::Arc};

use crate::Error;

/// Hands out parts of large mappings, so that small matrices share large pages.
#[derive(Debug, Default)]
pub struct Arena {
    current: Option<Arc<Mapping>>,
    used: usize,
}

/// A part of a mapping that belongs to its owner alone. It begins at a cache line, filled with zeros.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Arc<Mapping>,
    start: usize,
    len: usize,
}

/// Memory from the system.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Arena {
    /// Takes `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<Region, Error> {
        let mapping = match &self.current {
            Some(mapping) if len <= mapping.len - self.used => mapping.clone(),
            _ => {
                let mapping = Arc::new(Mapping::new(len.max(MAPPING))?);
                self.used = 0;
                self.current.insert(mapping).clone()
            }
        };
        let start = self.used;
        self.used = (start + len).next_multiple_of(LINE).min(mapping.len);
        Ok(Region {
            mapping,
            start,
            len,
        })
    }
}

impl Region {
    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the arena gave this part of the mapping to nobody else, and it lives as long.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    /// Returns the bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the arena keeps parts within their mapping.
        unsafe { self.mapping.start.add(self.start).as_ptr() }
    }
}

// SAFETY: a mapping is plain memory; who may write to which part of it is the matter of regions.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes to ask the system for at once. What is not used of them is never made resident.
const MAPPING: usize = 64 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

#[cfg(target_os = "linux")]
mod system {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{Error, Mapping, NonNull};

    /// Bytes of a large page, on x86-64 and mostly elsewhere.
    const LARGE_PAGE: usize = 2 << 20;

    impl Mapping {
        /// Maps memory that begins at a large page.
        pub(super) fn new(len: usize) -> Result<Mapping, Error> {
            let failed = |_| Error::OutOfMemory(len);
            let len = len
                .checked_next_multiple_of(LARGE_PAGE)
                .ok_or(Error::OutOfMemory(len))?;
            let all = len.checked_add(LARGE_PAGE).ok_or(Error::OutOfMemory(len))?;
            let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping, at a place of the system's choice.
            let begin = unsafe { mmap_anonymous(std::ptr::null_mut(), all, access, kind) };
            let begin = begin.map_err(failed)?.cast::<u8>();
            let before = begin.align_offset(LARGE_PAGE);
            // SAFETY: what is cut off lies within the new mapping, and nobody knows of it. That large
            // pages are refused is no error.
            unsafe {
                let start = begin.add(before);
                if before > 0 {
                    munmap(begin.cast(), before).map_err(failed)?;
                }
                if before < LARGE_PAGE {
                    munmap(start.add(len).cast(), LARGE_PAGE - before).map_err(failed)?;
                }
                let _ = madvise(start.cast(), len, Advice::LinuxHugepage);
                let start = NonNull::new(start).ok_or(Error::OutOfMemory(len))?;
                Ok(Mapping { start, len })
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping was made above, and whoever had a part of it had a share of it.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::{Error, LINE, Mapping, NonNull};

    impl Mapping {
        /// Takes zeroed memory from the allocator.
        pub(super) fn new(len: usize) -> Result<Mapping, Error> {
            let layout = Layout::from_size_align(len, LINE).map_err(|_| Error::OutOfMemory(len))?;
            // SAFETY: the length is not zero: a mapping has at least `MAPPING` bytes.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) });
            let start = start.ok_or(Error::OutOfMemory(len))?;
            Ok(Mapping { start, len })
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the layout it was allocated with, which was valid then.
            unsafe {
                let layout = Layout::from_size_align_unchecked(self.len, LINE);
                dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_apart_zeroed_and_outlive_their_arena() {
        let mut arena = Arena::default();
        let lens = [100, 1, 64, MAPPING - 300, 1000, MAPPING + 5, 0, 7];
        let mut regions: Vec<Region> = lens.iter().map(|len| arena.take(*len).unwrap()).collect();
        drop(arena);
        for (idx, region) in regions.iter_mut().enumerate() {
            let bytes = region.bytes_mut();
            assert_eq!(bytes.len(), lens[idx]);
            assert_eq!(bytes.as_ptr().addr() % LINE, 0);
            assert!(bytes.iter().take(2000).all(|byte| *byte == 0));
            let len = bytes.len();
            bytes[..len.min(2000)].fill(idx as u8 + 1);
        }
        for (idx, region) in regions.iter().enumerate() {
            assert!(
                region
                    .bytes()
                    .iter()
                    .take(2000)
                    .all(|byte| *byte == idx as u8 + 1)
            );
        }
    }
}
