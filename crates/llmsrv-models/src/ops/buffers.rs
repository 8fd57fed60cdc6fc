//! Activation memory that is used again: once every size has been seen, no buffer is allocated.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use parking_lot::Mutex;

/// A store of idle buffers. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    idle: Arc<Mutex<Vec<Vec<Line>>>>,
}

/// A cache line: vectors that are read and written lie in one, not in two.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// A matrix of f32 whose memory returns to its [`Buffers`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// At least as many as the elements need.
    lines: Vec<Line>,
    len: usize,
    width: usize,
    home: Buffers,
}

impl Buffers {
    /// Returns a buffer of `n_rows` rows of `width` elements with any content.
    pub(crate) fn take(&self, n_rows: usize, width: usize) -> Buffer {
        let len = n_rows * width;
        let n_lines = len.div_ceil(LINE);
        let mut idle = self.idle.lock();
        // The smallest that is large enough, else the largest, which then grows.
        let best = (0..idle.len()).min_by_key(|idx| {
            let there = idle.get(*idx).map_or(0, Vec::len);
            if there >= n_lines {
                (false, there)
            } else {
                (true, usize::MAX - there)
            }
        });
        let mut lines = best.map(|idx| idle.swap_remove(idx)).unwrap_or_default();
        drop(idle);
        if lines.len() < n_lines {
            lines.resize(n_lines, Line::zeroed());
        }
        Buffer {
            lines,
            len,
            width,
            home: self.clone(),
        }
    }

    /// Gives back the memory of idle buffers.
    pub(crate) fn release(&self) {
        let mut idle = self.idle.lock();
        idle.clear();
    }

    #[cfg(test)]
    fn lengths(&self) -> Vec<usize> {
        let idle = self.idle.lock();
        idle.iter().map(Vec::len).collect()
    }
}

impl Buffer {
    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.len / self.width.max(1)
    }

    /// Returns the elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns all elements, row by row.
    pub(crate) fn values(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    /// Returns all elements, row by row.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }

    /// Returns one row; empty if there is no such row.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let start = row * self.width;
        self.values()
            .get(start..start + self.width)
            .unwrap_or_default()
    }

    /// Returns one row; empty if there is no such row.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let start = row * self.width;
        let end = start + self.width;
        self.values_mut().get_mut(start..end).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut idle = self.home.idle.lock();
        idle.push(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let buffers = Buffers::default();
        let step = || {
            let a = buffers.take(4, 100);
            let b = buffers.take(4, 10);
            drop(a);
            let c = buffers.take(1, 300);
            assert_eq!((b.n_rows(), c.width()), (4, 300));
        };
        step();
        let warm = buffers.lengths();
        step();
        assert_eq!(buffers.lengths().len(), warm.len());
        assert_eq!(
            buffers.lengths().iter().sum::<usize>(),
            warm.iter().sum::<usize>()
        );
        buffers.release();
        assert!(buffers.lengths().is_empty());
    }

    #[test]
    fn rows_beyond_the_end_are_empty() {
        let mut buffer = Buffers::default().take(2, 3);
        buffer.row_mut(1).fill(1.0);
        assert_eq!(buffer.row(1), [1.0; 3]);
        assert!(buffer.row(2).is_empty() && buffer.row_mut(2).is_empty());
    }
}
