//! One step of computation, described by ids only: the same plan drives every model and device.

use std::{ops::Range, sync::Arc};

use crate::{Image, TokenId};

/// Names one block of KV-cache memory; the memory itself belongs to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Names the memory of one recurrent state over all layers; the memory itself belongs to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// A step for several sequences: flat rows, cut into one span per sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Tokens to compute, all sequences one after the other; one row each.
    pub tokens: Vec<TokenId>,
    /// Position in its sequence of each row; same length as `tokens`.
    pub positions: Vec<u32>,
    /// Each row attends to the positions of its sequence before this one; same length as `tokens`.
    /// It is the row's own position plus one, but in an image whose rows see each other.
    pub ends: Vec<u32>,
    /// Time, height and width of each row, by which some models rotate in place of its position. Empty
    /// if all three are the position, in every row of the step.
    pub coordinates: Vec<[u32; 3]>,
    /// Rows whose input is an image's in place of a token's; ascending.
    pub images: Vec<ImageRows>,
    /// One span for each sequence, in row order, covering all rows; never empty spans.
    pub spans: Vec<Span>,
    /// Row indices (into `tokens`, ascending) whose logits are wanted.
    pub logit_rows: Vec<u32>,
}

/// Rows of a step that come from an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRows {
    /// Rows of the plan.
    pub rows: Range<usize>,
    /// Row of the image that the first of them is.
    pub first: usize,
    /// Where they come from.
    pub image: Arc<Image>,
}

/// The rows of one sequence in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Rows of the plan that belong to this sequence.
    pub rows: Range<usize>,
    /// Position of the first row. Keys and values of positions `0..start` are in the cache already.
    pub start: u32,
    /// KV blocks of the sequence: position `p` lives in `blocks[p / block_size]` at slot
    /// `p % block_size`. Covers at least `start + rows.len()` positions.
    pub blocks: Vec<BlockId>,
    /// A block whose first `start % block_size` positions are those of this sequence. They are
    /// copied to the block of `start` before anything of the step is computed.
    pub tail: Option<BlockId>,
    /// The recurrent state of the sequence, for models that have one.
    pub state: Option<SpanState>,
}

/// What happens to the recurrent state of a sequence in a step.
///
/// No slot that is read in a step (`from`) is written in it, and none is written by two spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanState {
    /// Where the state lives. It is that of the rows before the span, but for a span that starts at
    /// position 0, which starts from zeros whatever is there, and one with `from`.
    pub slot: StateId,
    /// The state to start from: it is copied to `slot` before anything of the step is computed.
    pub from: Option<StateId>,
    /// Checkpoints, ascending: after so many rows of the span the state is copied to that slot, too.
    pub saves: Vec<(usize, StateId)>,
}

impl SpanState {
    /// Goes on with the state in `slot`, and keeps no checkpoint.
    pub fn new(slot: StateId) -> SpanState {
        SpanState {
            slot,
            from: None,
            saves: Vec::new(),
        }
    }
}

impl StepPlan {
    /// Empties the plan and keeps its buffers.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.ends.clear();
        self.coordinates.clear();
        self.images.clear();
        self.spans.clear();
        self.logit_rows.clear();
    }

    /// Returns time, height and width of a row of the plan.
    pub fn coordinate(&self, row: usize) -> [u32; 3] {
        let known = self.coordinates.get(row).copied();
        known.unwrap_or_else(|| [self.positions.get(row).copied().unwrap_or_default(); 3])
    }
}

impl Span {
    /// Number of positions in the cache once the step is done.
    pub fn kv_len(&self) -> usize {
        self.start as usize + self.rows.len()
    }

    /// Returns what is to be copied before the step is computed: from where, to where, and how many
    /// positions. `None` also if that makes no sense.
    pub fn copy(&self, block_size: usize) -> Option<(BlockId, BlockId, usize)> {
        let start = self.start as usize;
        let to = self.blocks.get(start / block_size)?;
        let n_positions = start % block_size;
        let from = self.tail.filter(|_| n_positions > 0)?;
        Some((from, *to, n_positions))
    }
}
