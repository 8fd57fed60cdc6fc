//! The recurrent state of a sequence: its slot, from where it starts, and where checkpoints are made.
//!
//! A checkpoint costs a copy and a slot, so there are few of them, where something is likely to branch
//! off:
//!
//! * near the end of a prompt. Not at the very end: the next turn of a chat often replaces the opening
//!   of the answer, which the template wrote there;
//! * where the keys and values of a prefix were known and no state was: what is the same in two
//!   prompts, the instructions of a system for example, is likely to be it in a third one;
//! * at a few places on the way through a long prompt;
//! * now and then while an answer is written, each in place of the one before, for an agent whose next
//!   prompt holds the whole answer.

use super::Sequence;
use crate::{
    BlockId, SpanState, StateId,
    blocks::{Blocks, Prefix},
};

/// The recurrent state of a running sequence.
#[derive(Debug)]
pub(super) struct LiveState {
    slot: StateId,
    /// The checkpoint from which it is still to be copied.
    from: Option<StateId>,
    /// Tokens whose keys and values were known when the sequence started.
    n_stored: usize,
    /// Checkpoints of the step that is planned: after which token of the sequence, and where.
    saves: Vec<(usize, StateId)>,
    /// The last checkpoint within the answer, and its block.
    rolling: Option<(BlockId, StateId)>,
    /// A step is planned and not known to be computed: nobody knows what is in the slot.
    in_step: bool,
}

impl Sequence {
    /// Takes a slot for a sequence that starts with a prefix; `false` = there is none.
    pub(super) fn take_state(&mut self, found: &Prefix, blocks: &mut Blocks) -> bool {
        let (slot, from) = match (blocks.take_state(), found.state) {
            (Some(slot), from) => (slot, from),
            (None, None) => return false,
            (None, Some(checkpoint)) => {
                // The only slot there is: it is gone on with in place of a copy.
                blocks.release_state(checkpoint);
                let block = self.blocks.last();
                if !block.is_some_and(|block| blocks.take_checkpoint(*block, checkpoint)) {
                    return false;
                }
                (checkpoint, None)
            }
        };
        self.state = Some(LiveState {
            slot,
            from,
            n_stored: found.n_stored,
            saves: Vec::new(),
            rolling: None,
            in_step: false,
        });
        true
    }

    /// Chooses the checkpoints of a step that computes the next `n_rows` tokens.
    pub(crate) fn plan_state(&mut self, n_rows: usize, blocks: &mut Blocks) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        for (_, id) in state.saves.drain(..) {
            // Of a step that was planned and not computed.
            blocks.give_back_state(id);
        }
        state.in_step = true;
        let (block_size, end) = (blocks.block_size(), self.computed + n_rows);
        if !blocks.finds_prefixes() {
            // Nobody would find them.
        } else if self.pending() > 1 {
            let marks = self.marks(state.n_stored, block_size);
            for at in marks.filter(|at| (self.computed + 1..=end).contains(at)) {
                state.saves.extend(blocks.take_state().map(|id| (at, id)));
            }
            state.saves.sort_unstable();
        } else if end.is_multiple_of(ROLLING_BLOCKS * block_size) {
            let last = state.rolling.take();
            let last = last.filter(|(block, id)| blocks.take_checkpoint(*block, *id));
            let slot = last.map(|(_, id)| id).or_else(|| blocks.take_state());
            state.saves.extend(slot.map(|id| (end, id)));
        }
        self.state = Some(state);
    }

    /// Returns the positions within the tokens where checkpoints are wanted, each once.
    fn marks(&self, n_stored: usize, block_size: usize) -> impl Iterator<Item = usize> + use<> {
        let n_tokens = self.tokens.len();
        let margin = NEAR_THE_END.min(block_size);
        let near_the_end = n_tokens.saturating_sub(margin) / block_size * block_size;
        // The marks of a prompt that grows are among those it had.
        let n_blocks = n_tokens / block_size;
        let period = (n_blocks / MOST_ON_THE_WAY + 1)
            .next_power_of_two()
            .max(WAY_BLOCKS);
        let period = period * block_size;
        let on_the_way = (1..=n_tokens / period).map(move |n| n * period);
        let rest = [near_the_end, n_stored].into_iter().enumerate();
        let rest = rest.filter(move |(idx, at)| {
            *at > 0 && !at.is_multiple_of(period) && (*idx == 0 || *at != near_the_end)
        });
        on_the_way.chain(rest.map(|(_, at)| at))
    }

    /// Returns the last position, at most `most`, where this sequence makes a checkpoint while it reads
    /// its prompt; 0 = nowhere.
    pub(super) fn last_mark(&self, most: usize, block_size: usize) -> usize {
        let n_stored = self.state.as_ref().map_or(0, |state| state.n_stored);
        let marks = self.marks(n_stored, block_size);
        marks.filter(|at| *at <= most).max().unwrap_or(0)
    }

    /// Notes that the planned step is computed, and its blocks are registered.
    pub(super) fn commit_state(&mut self, blocks: &mut Blocks) {
        let Some(mut state) = self.state.take() else {
            return;
        };
        state.in_step = false;
        if let Some(id) = state.from.take() {
            blocks.release_state(id);
        }
        let is_written = self.pending() == 0;
        for (at, id) in state.saves.drain(..) {
            match self.blocks.get(at / blocks.block_size() - 1) {
                Some(block) => {
                    blocks.keep_state(*block, id);
                    if is_written && at == self.computed {
                        state.rolling = Some((*block, id));
                    }
                }
                None => blocks.give_back_state(id),
            }
        }
        self.state = Some(state);
    }

    /// Gives the slot back: as a checkpoint where it is the state at the end of a block.
    pub(super) fn drop_state(&mut self, blocks: &mut Blocks) {
        let Some(state) = self.state.take() else {
            return;
        };
        for (_, id) in state.saves {
            blocks.give_back_state(id);
        }
        let is_known = !state.in_step && state.from.is_none() && blocks.finds_prefixes();
        if let Some(id) = state.from {
            blocks.release_state(id);
        }
        let n_full = self.computed / blocks.block_size();
        let is_whole = n_full > 0 && self.computed.is_multiple_of(blocks.block_size());
        match self.blocks.get(n_full.wrapping_sub(1)) {
            Some(block) if is_known && is_whole => blocks.keep_state(*block, state.slot),
            _ => blocks.give_back_state(state.slot),
        }
    }

    /// Returns what the planned step does to the state.
    pub(crate) fn span_state(&self) -> Option<SpanState> {
        let state = self.state.as_ref()?;
        let saves = state.saves.iter();
        Some(SpanState {
            slot: state.slot,
            from: state.from,
            saves: saves.map(|(at, id)| (at - self.computed, *id)).collect(),
        })
    }

    /// Returns the state slots that the sequence holds.
    pub fn held_states(&self) -> impl Iterator<Item = StateId> {
        let states = self.state.iter();
        states.flat_map(|state| {
            let saves = state.saves.iter().map(|(_, id)| *id);
            saves.chain([state.slot])
        })
    }

    /// Returns the checkpoint that the sequence is about to copy.
    pub fn read_state(&self) -> Option<StateId> {
        self.state.as_ref()?.from
    }
}

/// Tokens of a prompt after its checkpoint near the end, at least; a block where those are smaller.
const NEAR_THE_END: usize = 16;
/// Blocks between checkpoints of a long prompt, at least.
const WAY_BLOCKS: usize = 64;
/// Checkpoints on the way through a prompt, at most.
const MOST_ON_THE_WAY: usize = 4;
/// Blocks between checkpoints of an answer.
const ROLLING_BLOCKS: usize = 8;
