//! Bookkeeping of recurrent states, for models that keep one beside their keys and values.
//!
//! Keys and values of a prefix are enough to go on from any position of it. A recurrent state is that
//! of one position, and it changes with every token. So each running sequence has a slot of its own,
//! and *checkpoints* are copies of a slot at the end of a block. A checkpoint belongs to what that
//! block holds: a prefix is found up to its last block with a checkpoint, and what comes after is
//! computed again. A checkpoint may be forgotten alone, the one unused for the longest time first;
//! with its block it always is.

use std::collections::BTreeMap;

use super::Blocks;
use crate::{BlockId, StateId};

/// All state slots of one model.
#[derive(Debug)]
pub(super) struct States {
    bound: usize,
    slots: Vec<Slot>,
    free: Vec<StateId>,
    /// Checkpoints that nobody is about to copy, by the time of their last use.
    idle: BTreeMap<u64, StateId>,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    content: Holder,
    /// Sequences that are about to copy the checkpoint.
    readers: u32,
    last_use: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// A running sequence, or a step that is about to fill it.
    Sequence,
    /// The content of a block.
    Block(BlockId),
}

impl States {
    pub(super) fn new(bound: usize) -> States {
        States {
            bound: bound.min(u32::MAX as usize),
            slots: Vec::new(),
            free: Vec::new(),
            idle: BTreeMap::new(),
            clock: 0,
        }
    }

    /// Returns a slot for a sequence, and the block whose checkpoint had to be forgotten for it.
    fn take(&mut self) -> Option<(StateId, Option<BlockId>)> {
        if self.free.is_empty() && self.slots.len() < self.bound {
            self.free.push(StateId(self.slots.len() as u32));
            self.slots.push(Slot {
                content: Holder::Nobody,
                readers: 0,
                last_use: 0,
            });
        }
        let mut lost = None;
        let id = if let Some(id) = self.free.pop() {
            id
        } else {
            let (_, id) = self.idle.pop_first()?;
            if let Holder::Block(block) = self.slot(id).content {
                lost = Some(block);
            }
            id
        };
        self.slot_mut(id).content = Holder::Sequence;
        Some((id, lost))
    }

    fn give_back(&mut self, id: StateId) {
        debug_assert_eq!(self.slot(id).content, Holder::Sequence);
        self.slot_mut(id).content = Holder::Nobody;
        self.free.push(id);
    }

    fn keep(&mut self, id: StateId, block: BlockId) {
        self.slot_mut(id).content = Holder::Block(block);
        self.rest(id);
    }

    /// Makes a checkpoint the one used last.
    fn rest(&mut self, id: StateId) {
        self.clock += 1;
        let clock = self.clock;
        self.slot_mut(id).last_use = clock;
        self.idle.insert(clock, id);
    }

    fn wake(&mut self, id: StateId) {
        let last_use = self.slot(id).last_use;
        self.idle.remove(&last_use);
    }

    /// Forgets the checkpoint of a content that is gone. Who is about to copy one uses its block.
    pub(super) fn forget(&mut self, id: StateId) {
        debug_assert_eq!(self.slot(id).readers, 0, "a checkpoint in use is forgotten");
        self.wake(id);
        self.slot_mut(id).content = Holder::Nobody;
        self.free.push(id);
    }

    pub(super) fn retain(&mut self, id: StateId) {
        self.wake(id);
        self.slot_mut(id).readers += 1;
    }

    fn release(&mut self, id: StateId) {
        let slot = self.slot_mut(id);
        slot.readers -= 1;
        if slot.readers == 0 {
            self.rest(id);
        }
    }

    fn slot(&self, id: StateId) -> &Slot {
        &self.slots[id.0 as usize]
    }

    fn slot_mut(&mut self, id: StateId) -> &mut Slot {
        &mut self.slots[id.0 as usize]
    }
}

impl Blocks {
    /// Keeps books of up to `bound` recurrent states: those of running sequences, and checkpoints.
    #[must_use]
    pub fn with_states(mut self, bound: usize) -> Blocks {
        self.states = Some(States::new(bound));
        self
    }

    /// Returns whether sequences have a recurrent state.
    pub fn have_states(&self) -> bool {
        self.states.is_some()
    }

    /// Returns a state slot that nobody else uses, if need be that of the oldest checkpoint.
    pub(crate) fn take_state(&mut self) -> Option<StateId> {
        let (id, lost) = self.states.as_mut()?.take()?;
        if let Some(block) = lost
            && let Some(content) = &mut self.block_mut(block).content
        {
            content.state = None;
        }
        Some(id)
    }

    /// Takes back a state slot that was taken.
    pub(crate) fn give_back_state(&mut self, id: StateId) {
        if let Some(states) = &mut self.states {
            states.give_back(id);
        }
    }

    /// Makes a slot, whose state is the one after `block`, the checkpoint of what the block holds. The
    /// slot becomes free if there is one already, or if the block will not be found.
    pub(crate) fn keep_state(&mut self, block: BlockId, id: StateId) {
        match &mut self.block_mut(block).content {
            Some(content) if content.state.is_none() => content.state = Some(id),
            _ => return self.give_back_state(id),
        }
        if let Some(states) = &mut self.states {
            states.keep(id, block);
        }
    }

    /// Takes a checkpoint from its block to fill its slot with another; `false` if it is no longer
    /// there, or somebody is about to copy it.
    pub(crate) fn take_checkpoint(&mut self, block: BlockId, id: StateId) -> bool {
        let Some(states) = &mut self.states else {
            return false;
        };
        let slot = states.slot(id);
        if slot.content != Holder::Block(block) || slot.readers > 0 {
            return false;
        }
        states.wake(id);
        states.slot_mut(id).content = Holder::Sequence;
        if let Some(content) = &mut self.block_mut(block).content {
            content.state = None;
        }
        true
    }

    /// Says that a checkpoint which [`Blocks::find_prefix`] found is copied, or not wanted.
    pub(crate) fn release_state(&mut self, id: StateId) {
        if let Some(states) = &mut self.states {
            states.release(id);
        }
    }

    /// Forgets the state slots from `bound` on, which hold nothing, and makes no more than that.
    pub(crate) fn shrink_states(&mut self, bound: usize) {
        let Some(states) = &mut self.states else {
            return;
        };
        states.bound = states.bound.min(bound);
        states.free.retain(|id| (id.0 as usize) < bound);
        let mut rest = states.slots.iter().skip(bound);
        debug_assert!(rest.all(|slot| slot.content == Holder::Nobody));
        states.slots.truncate(bound);
    }

    /// Lets there be `bound` state slots again.
    pub(crate) fn raise_state_bound(&mut self, bound: usize) {
        if let Some(states) = &mut self.states {
            states.bound = states.bound.max(bound.min(u32::MAX as usize));
        }
    }

    /// Returns the number of state slots that exist; ids are smaller than this.
    pub fn total_states(&self) -> usize {
        self.states.as_ref().map_or(0, |states| states.slots.len())
    }

    /// Returns the number of checkpoints.
    pub fn checkpoints(&self) -> usize {
        let slots = self.states.iter().flat_map(|states| &states.slots);
        let is_checkpoint = |slot: &&Slot| matches!(slot.content, Holder::Block(_));
        slots.filter(is_checkpoint).count()
    }

    /// Checks that the books agree with what sequences hold and are about to copy; panics if not.
    pub fn assert_states_consistent(
        &self,
        held: impl Iterator<Item = StateId>,
        read: impl Iterator<Item = StateId>,
    ) {
        let Some(states) = &self.states else {
            return;
        };
        let (mut n_held, mut n_read) = (vec![0; states.slots.len()], vec![0; states.slots.len()]);
        for id in held {
            n_held[id.0 as usize] += 1;
        }
        for id in read {
            n_read[id.0 as usize] += 1;
        }
        assert!(
            states.slots.len() <= states.bound,
            "more states than the bound"
        );
        for (idx, slot) in states.slots.iter().enumerate() {
            let id = StateId(idx as u32);
            let is_held = slot.content == Holder::Sequence;
            assert_eq!(
                n_held[idx],
                usize::from(is_held),
                "a state has a wrong holder"
            );
            assert_eq!(slot.readers, n_read[idx], "wrong number of readers");
            assert_eq!(
                states.free.contains(&id),
                slot.content == Holder::Nobody,
                "a free state is not, or is lost"
            );
            let is_idle = states.idle.get(&slot.last_use) == Some(&id);
            let Holder::Block(block) = slot.content else {
                assert!(!is_idle && slot.readers == 0, "no checkpoint");
                continue;
            };
            assert_eq!(is_idle, slot.readers == 0, "a checkpoint is lost");
            let content = self.block(block).content.as_ref();
            assert_eq!(
                content.and_then(|content| content.state),
                Some(id),
                "a checkpoint without its block"
            );
        }
        let contents = self.pool.iter().filter_map(|block| block.content.as_ref());
        let n_kept = contents.filter(|content| content.state.is_some()).count();
        assert_eq!(n_kept, self.checkpoints(), "a checkpoint is kept twice");
        assert_eq!(
            states.idle.len(),
            states
                .slots
                .iter()
                .filter(|slot| matches!(slot.content, Holder::Block(_)) && slot.readers == 0)
                .count(),
            "an idle checkpoint is lost"
        );
    }
}
