//! The memory of recurrent states on the CPU.

use std::ops::Range;

use llmsrv_engine::{ModelError, SpanState, StateId, StepPlan};
use llmsrv_kernels::Stretch;

use super::Result;

/// The states of all sequences, each over all layers.
#[derive(Debug)]
pub(crate) struct States {
    /// Where the state of each layer lies.
    ranges: Vec<Range<usize>>,
    slots: Vec<Vec<f32>>,
}

impl States {
    /// Prepares for states that lie as [`crate::arch::ArchConfig::state_ranges`] says.
    pub(crate) fn new(ranges: Vec<Range<usize>>) -> States {
        States {
            ranges,
            slots: Vec::new(),
        }
    }

    /// Returns the bytes of one state.
    pub(crate) fn bytes(&self) -> usize {
        self.len() * size_of::<f32>()
    }

    fn len(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// Makes room for `n_states` states and keeps those that exist.
    pub(crate) fn reserve(&mut self, n_states: usize) -> Result<()> {
        let len = self.len();
        while self.slots.len() < n_states {
            let mut slot = Vec::new();
            let reserved = slot.try_reserve_exact(len);
            reserved.map_err(|_| ModelError::OutOfStates(n_states))?;
            slot.resize(len, 0.0);
            self.slots.push(slot);
        }
        Ok(())
    }

    /// Sets a state to zeros.
    pub(crate) fn clear(&mut self, id: StateId) -> Result<()> {
        let slot = self.slots.get_mut(id.0 as usize).ok_or_else(lost)?;
        slot.fill(0.0);
        Ok(())
    }

    /// Copies a state.
    pub(crate) fn copy(&mut self, from: StateId, to: StateId) -> Result<()> {
        let len = self.len();
        self.copy_part(from, to, 0..len)
    }

    fn copy_part(&mut self, from: StateId, to: StateId, part: Range<usize>) -> Result<()> {
        let pair = [from, to].map(|id| id.0 as usize);
        let [from, to] = self.slots.get_disjoint_mut(pair).map_err(|_| lost())?;
        match (from.get(part.clone()), to.get_mut(part)) {
            (Some(from), Some(to)) => to.copy_from_slice(from),
            _ => return Err(lost()),
        }
        Ok(())
    }

    /// Calls `work` with the rows of all sequences of a step and their states: of `layer`, `len`
    /// elements from `first` on. Where checkpoints are made the rows are cut, so it may be called more
    /// than once.
    pub(crate) fn for_each_stretch(
        &mut self,
        layer: usize,
        (first, len): (usize, usize),
        plan: &StepPlan,
        mut work: impl FnMut(&mut [Stretch<'_>]) -> Result<()>,
    ) -> Result<()> {
        let range = self.ranges.get(layer).cloned().ok_or_else(lost)?;
        let part = range.start + first..range.start + first + len;
        if part.end > range.end {
            return Err(lost());
        }
        let n_rounds = plan.spans.iter().filter_map(|span| span.state.as_ref());
        let n_rounds = n_rounds.map(|state| state.saves.len() + 1).max();
        for round in 0..n_rounds.unwrap_or(0) {
            let mut taken = Vec::with_capacity(plan.spans.len());
            for span in &plan.spans {
                let Some(state) = &span.state else {
                    continue;
                };
                let rows = rows_of(state, span.rows.len(), round);
                if rows.is_empty() {
                    continue;
                }
                let slot = self.slots.get_mut(state.slot.0 as usize);
                let slot = slot.map(std::mem::take).ok_or_else(lost)?;
                let rows = span.rows.start + rows.start..span.rows.start + rows.end;
                taken.push((state.slot, rows, slot));
            }
            let stretches = taken.iter_mut().map(|(_, rows, slot)| Stretch {
                rows: rows.clone(),
                state: slot.get_mut(part.clone()).unwrap_or_default(),
            });
            let mut stretches: Vec<Stretch<'_>> = stretches.collect();
            let done = work(&mut stretches);
            for (id, _, slot) in taken {
                if let Some(place) = self.slots.get_mut(id.0 as usize) {
                    *place = slot;
                }
            }
            done?;
            for state in plan.spans.iter().filter_map(|span| span.state.as_ref()) {
                if let Some((_, to)) = state.saves.get(round) {
                    self.copy_part(state.slot, *to, part.clone())?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the rows of a span between two checkpoints.
pub(super) fn rows_of(state: &SpanState, n_rows: usize, round: usize) -> Range<usize> {
    let end = |round: usize| state.saves.get(round).map_or(n_rows, |(n_rows, _)| *n_rows);
    let start = round.checked_sub(1).map_or(0, end);
    start..end(round)
}

fn lost() -> ModelError {
    ModelError::Compute("a recurrent state that is not there".into())
}
