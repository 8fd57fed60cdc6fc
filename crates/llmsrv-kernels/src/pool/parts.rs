//! A slice that tasks share out among themselves.
#![expect(
    unsafe_code,
    reason = "the compiler cannot see that parts are disjoint"
)]

use std::{marker::PhantomData, ops::Range, slice::from_raw_parts_mut};

/// A mutable slice of which each task takes its own parts.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(values: &'a mut [T]) -> Parts<'a, T> {
        Parts {
            start: values.as_mut_ptr(),
            len: values.len(),
            values: PhantomData,
        }
    }

    /// Returns one part.
    ///
    /// # Safety
    /// While it is used, no other part in use contains one of its elements.
    ///
    /// # Panics
    /// If the slice has no such part.
    #[expect(
        clippy::mut_from_ref,
        reason = "parts are disjoint, as the caller promises"
    )]
    pub(crate) unsafe fn part(&self, at: Range<usize>) -> &mut [T] {
        assert!(at.start <= at.end && at.end <= self.len);
        // SAFETY: the part lies within the slice, which is borrowed as long as this; nobody else uses
        // its elements, as the caller promises.
        unsafe { from_raw_parts_mut(self.start.add(at.start), at.end - at.start) }
    }
}

// SAFETY: each element is used by one thread at a time, which is as if it was sent there.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
