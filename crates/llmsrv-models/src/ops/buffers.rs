//! Activation memory that is used again: once every size has been seen, no buffer is allocated.

use std::sync::Arc;

use parking_lot::Mutex;

/// A store of idle buffers. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    idle: Arc<Mutex<Vec<Vec<f32>>>>,
}

/// A matrix of f32 whose memory returns to its [`Buffers`] when it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    values: Vec<f32>,
    width: usize,
    home: Buffers,
}

impl Buffers {
    /// Returns a buffer of `n_rows` rows of `width` elements with any content.
    pub(crate) fn take(&self, n_rows: usize, width: usize) -> Buffer {
        let len = n_rows * width;
        let mut idle = self.idle.lock();
        // The smallest that is large enough, else the largest, which then grows.
        let best = (0..idle.len()).min_by_key(|idx| {
            let capacity = idle.get(*idx).map_or(0, Vec::capacity);
            if capacity >= len {
                (false, capacity)
            } else {
                (true, usize::MAX - capacity)
            }
        });
        let mut values = best.map(|idx| idle.swap_remove(idx)).unwrap_or_default();
        drop(idle);
        values.resize(len, 0.0);
        Buffer {
            values,
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
    fn capacities(&self) -> Vec<usize> {
        let idle = self.idle.lock();
        idle.iter().map(Vec::capacity).collect()
    }
}

impl Buffer {
    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Returns the elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns all elements, row by row.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns all elements, row by row.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Returns one row; empty if there is no such row.
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        let start = row * self.width;
        self.values
            .get(start..start + self.width)
            .unwrap_or_default()
    }

    /// Returns one row; empty if there is no such row.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let start = row * self.width;
        let row = self.values.get_mut(start..start + self.width);
        row.unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        let mut idle = self.home.idle.lock();
        idle.push(values);
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
        let warm = buffers.capacities();
        step();
        assert_eq!(buffers.capacities().len(), warm.len());
        assert_eq!(
            buffers.capacities().iter().sum::<usize>(),
            warm.iter().sum::<usize>()
        );
        buffers.release();
        assert!(buffers.capacities().is_empty());
    }

    #[test]
    fn rows_beyond_the_end_are_empty() {
        let mut buffer = Buffers::default().take(2, 3);
        buffer.row_mut(1).fill(1.0);
        assert_eq!(buffer.row(1), [1.0; 3]);
        assert!(buffer.row(2).is_empty() && buffer.row_mut(2).is_empty());
    }
}
