//! Which commands must wait for others, from what they read and write.
//!
//! Commands in one queue may run at the same time unless a barrier stands between them. One stands where a
//! command reads or writes what an earlier one wrote since the last barrier, or writes what one read.

use std::ops::Range;

/// A part of a buffer: its number, and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The buffer.
    pub buffer: u64,
    /// Bytes of it.
    pub bytes: Range<u64>,
}

/// What commands since the last barrier touched.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    read: Vec<Span>,
    written: Vec<Span>,
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        self.buffer == other.buffer
            && self.bytes.start < other.bytes.end
            && other.bytes.start < self.bytes.end
    }
}

impl Hazards {
    /// Takes note of a command; returns whether a barrier must stand before it.
    pub(crate) fn next(&mut self, reads: &[Span], writes: &[Span]) -> bool {
        let touched = |by: &[Span], all: &[Span]| {
            by.iter()
                .any(|span| all.iter().any(|other| span.overlaps(other)))
        };
        let must_wait = touched(reads, &self.written)
            || touched(writes, &self.written)
            || touched(writes, &self.read);
        if must_wait {
            self.clear();
        }
        self.read.extend_from_slice(reads);
        self.written.extend_from_slice(writes);
        must_wait
    }

    /// A barrier stands after all commands so far.
    pub(crate) fn clear(&mut self) {
        self.read.clear();
        self.written.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads and writes of one command.
    type Touches = (Vec<Span>, Vec<Span>);

    fn spans() -> impl Strategy<Value = Vec<Span>> {
        let span = (0_u64..3, 0_u64..8, 1_u64..5).prop_map(|(buffer, start, len)| Span {
            buffer,
            bytes: start..start + len,
        });
        prop::collection::vec(span, 0..3)
    }

    /// Whether two commands must not run at the same time, byte by byte.
    fn conflict(a: &Touches, b: &Touches) -> bool {
        let bytes = |spans: &[Span]| -> Vec<(u64, u64)> {
            let all = spans.iter();
            all.flat_map(|span| span.bytes.clone().map(|byte| (span.buffer, byte)))
                .collect()
        };
        let meet = |a: &[Span], b: &[Span]| bytes(a).iter().any(|byte| bytes(b).contains(byte));
        meet(&a.1, &b.0) || meet(&a.0, &b.1) || meet(&a.1, &b.1)
    }

    proptest! {
        #[test]
        fn a_barrier_stands_where_it_must_and_nowhere_else(commands in prop::collection::vec((spans(), spans()), 1..12)) {
            let mut hazards = Hazards::default();
            // Commands since the last barrier.
            let mut together: Vec<&Touches> = Vec::new();
            for command in &commands {
                let expected = together.iter().any(|other| conflict(other, command));
                prop_assert_eq!(hazards.next(&command.0, &command.1), expected);
                if expected {
                    together.clear();
                }
                together.push(command);
            }
        }
    }
}
