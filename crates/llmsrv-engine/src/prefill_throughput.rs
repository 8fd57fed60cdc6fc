//! How much of a prompt a step reads while others wait for their next token.
//!
//! A running answer gets one token in each step, so the step that reads a piece of a long prompt is
//! the gap between two of its tokens. How long a row of a prompt takes depends on the model and the
//! machine by a factor of a hundred, so it is measured.

use std::time::Duration;

/// What a row of a prompt takes, as measured lately.
#[derive(Debug, Default)]
pub(crate) struct PrefillThroughput {
    /// Seconds; 0 = never measured.
    per_row: f32,
}

impl PrefillThroughput {
    /// Notes how long a step with a piece of a prompt took.
    pub(crate) fn note(&mut self, n_rows: usize, took: Duration) {
        if n_rows < FEWEST {
            // The weights are read once for a step, whatever its rows: few say little of many.
            return;
        }
        let now = took.as_secs_f32() / n_rows as f32;
        self.per_row = match self.per_row {
            0.0 => now,
            // One step during which the machine did something else says little.
            known => known + (now.min(4.0 * known) - known) / MEMORY,
        };
    }

    /// Returns how many rows take about `target`; never so few that a prompt does not get on.
    pub(crate) fn rows_within(&self, target: Duration) -> usize {
        if self.per_row == 0.0 {
            return UNKNOWN;
        }
        ((target.as_secs_f32() / self.per_row) as usize).max(FEWEST)
    }

    /// Returns what so many rows are expected to take; nothing while that is not known.
    pub(crate) fn seconds(&self, n_rows: usize) -> f32 {
        self.per_row * n_rows as f32
    }
}

/// Rows for which the products are about as fast as for many.
const FEWEST: usize = 32;
/// Rows of the first piece that is read beside others.
const UNKNOWN: usize = 64;
/// Over how many samples the average goes.
const MEMORY: f32 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_what_they_take() {
        let target = Duration::from_millis(200);
        let mut throughput = PrefillThroughput::default();
        assert_eq!(throughput.rows_within(target), UNKNOWN);
        throughput.note(FEWEST - 1, Duration::from_secs(9));
        assert_eq!(throughput.rows_within(target), UNKNOWN);
        for _ in 0..50 {
            throughput.note(100, Duration::from_millis(100));
        }
        assert!((199..=200).contains(&throughput.rows_within(target)));
        for _ in 0..50 {
            throughput.note(100, Duration::from_millis(200));
        }
        assert!((99..=100).contains(&throughput.rows_within(target)));
        throughput.note(100, Duration::from_hours(1));
        assert!(
            throughput.rows_within(target) > FEWEST,
            "one step says little"
        );
        for _ in 0..50 {
            throughput.note(100, Duration::from_secs(10));
        }
        assert_eq!(throughput.rows_within(target), FEWEST);
    }
}
