//! What the scheduler knows of a request: its tokens, and how many of them are computed.
//!
//! There are no phases. A new prompt, a half-computed prompt, the next token, the return after a
//! preemption and a shifted context are all the same: `tokens` is longer than `computed`.

use crate::{
    BlockId, ImageSpan, TokenId,
    blocks::{Blocks, Chunk, Prefix},
    image,
};

mod state;

use state::LiveState;

/// One request inside the scheduler.
#[derive(Debug, Default)]
pub struct Sequence {
    tokens: Vec<TokenId>,
    images: Vec<ImageSpan>,
    /// Draft tokens of the tokens after those; they are computed with the next token.
    draft: Vec<TokenId>,
    computed: usize,
    blocks: Vec<BlockId>,
    /// The block from which the last computed tokens are still to be copied.
    tail: Option<BlockId>,
    /// Its recurrent state while it is running, for models that have one.
    state: Option<LiveState>,
    ended: bool,
    /// Not even what the prefix cache has is left out.
    in_full: bool,
}

impl Sequence {
    /// Makes a sequence of which nothing is computed. `images` lie within `tokens`.
    pub fn new(tokens: Vec<TokenId>, images: Vec<ImageSpan>) -> Sequence {
        debug_assert!(image::are_sound(&images, tokens.len()));
        Sequence {
            tokens,
            images,
            ..Sequence::default()
        }
    }

    /// Makes a sequence of which every token is computed, whatever the prefix cache has.
    pub fn computed_in_full(tokens: Vec<TokenId>) -> Sequence {
        Sequence {
            in_full: true,
            ..Sequence::new(tokens, Vec::new())
        }
    }

    /// Gets the blocks for all tokens, first from the prefix cache if it has none yet. Changes
    /// nothing and returns `false` when there is no room.
    pub fn acquire(&mut self, blocks: &mut Blocks) -> bool {
        let starts = self.blocks.is_empty();
        if starts {
            let found = if self.in_full {
                Prefix::default()
            } else {
                blocks.find_prefix(&self.tokens, &self.images, &mut self.blocks)
            };
            (self.computed, self.tail) = (found.n_tokens, found.tail);
            if blocks.have_states() && !self.take_state(&found, blocks) {
                self.release(blocks);
                return false;
            }
        }
        let n_blocks = self.tokens.len().div_ceil(blocks.block_size());
        let n_missing = n_blocks.saturating_sub(self.blocks.len());
        let mut fits = blocks.allocate(n_missing, &mut self.blocks);
        if !fits && starts && self.tail.is_some() {
            // The block to copy from may be the one that is missing.
            self.computed = self.blocks.len() * blocks.block_size();
            self.drop_tail(blocks);
            fits = blocks.allocate(n_missing, &mut self.blocks);
        }
        if !fits && starts {
            self.release(blocks);
        }
        fits
    }

    /// Returns whether most of this sequence, which is not running, is what `other` is about to compute.
    pub fn waits_for(&self, other: &Sequence, blocks: &Blocks) -> bool {
        let is_reading = other.is_running() && other.pending() > 1;
        if self.is_running() || self.in_full || !is_reading || !blocks.finds_prefixes() {
            return false;
        }
        let n_most = self.tokens.len().saturating_sub(1);
        let pairs = self.tokens[..n_most].iter().zip(&other.tokens);
        let n_common = pairs.take_while(|(own, other)| own == other).count();
        let mut n_shared = n_common - n_common % blocks.block_size();
        if blocks.have_states() {
            n_shared = other.last_mark(n_shared, blocks.block_size());
        }
        2 * n_shared.saturating_sub(other.computed) >= self.tokens.len()
    }

    /// Sets the draft tokens that are computed with the next token.
    pub fn set_draft(&mut self, draft_tokens: &[TokenId]) {
        self.draft.clear();
        self.draft.extend_from_slice(draft_tokens);
    }

    /// Keeps as many draft tokens as there is room for in a step and in the blocks of the sequence. None
    /// takes a block of its own: that memory may be wanted for real tokens.
    pub fn fit_draft(&mut self, n_rows: usize, blocks: &Blocks) {
        let n_slots = self.blocks.len() * blocks.block_size();
        let n_free = n_slots.saturating_sub(self.tokens.len());
        self.draft.truncate(n_rows.min(n_free));
    }

    /// Returns the draft tokens.
    pub fn draft(&self) -> &[TokenId] {
        &self.draft
    }

    /// Notes that the next `n_rows` tokens are computed.
    pub fn commit(&mut self, n_rows: usize, blocks: &mut Blocks) {
        self.drop_tail(blocks);
        let block_size = blocks.block_size();
        let first_full = self.computed / block_size;
        self.computed += n_rows;
        debug_assert!(self.computed <= self.tokens.len());
        for block_idx in first_full..self.computed / block_size {
            let range = block_idx * block_size..(block_idx + 1) * block_size;
            let chunk = Chunk::new(&self.tokens, &self.images, range);
            blocks.register(&mut self.blocks, block_idx, chunk);
        }
        self.commit_state(blocks);
    }

    /// Appends a generated token.
    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    /// Makes room in a full context: drops half of the tokens after the first `n_keep`, the
    /// oldest ones; an image goes as a whole. Positions change, so all of it is computed again (but
    /// for what the prefix cache has).
    pub fn shift(&mut self, n_keep: usize, blocks: &mut Blocks) {
        self.release(blocks);
        let n_keep = n_keep.min(self.tokens.len().saturating_sub(2));
        let n_drop = ((self.tokens.len() - n_keep) / 2).max(1);
        let dropped = image::widened(&self.images, n_keep..n_keep + n_drop);
        self.tokens.drain(dropped.clone());
        image::remove(&mut self.images, dropped);
    }

    /// Gives all blocks back; everything is to be computed again, but for what is found again in the
    /// prefix cache, which gets the block that is not full, too.
    pub fn release(&mut self, blocks: &mut Blocks) {
        let block_size = blocks.block_size();
        let full = self.computed / block_size;
        let last = full * block_size..self.computed;
        // What is still to be copied is not there. Where there is a recurrent state, half a block is never
        // found.
        if !last.is_empty() && self.tail.is_none() && !blocks.have_states() {
            let chunk = Chunk::new(&self.tokens, &self.images, last);
            blocks.register(&mut self.blocks, full, chunk);
        }
        self.drop_tail(blocks);
        self.drop_state(blocks);
        blocks.release_all(&mut self.blocks);
        self.computed = 0;
        self.draft.clear();
    }

    fn drop_tail(&mut self, blocks: &mut Blocks) {
        if let Some(id) = self.tail.take() {
            blocks.give_back(id);
        }
    }

    /// Marks the sequence as over; it is not planned again.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns whether the sequence is over.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns prompt and generated tokens, as the model sees them.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Returns the images within the tokens.
    pub fn images(&self) -> &[ImageSpan] {
        &self.images
    }

    /// Returns how many of the next tokens to compute where there is room for `n_rows`: an image
    /// whose rows see each other is not cut, even if it takes more room.
    pub fn uncut(&self, n_rows: usize) -> usize {
        let cut = image::across(&self.images, self.computed + n_rows);
        match cut.filter(|span| span.image.whole) {
            Some(span) if span.at > self.computed => span.at - self.computed,
            Some(span) => span.end() - self.computed,
            None => n_rows,
        }
    }

    /// Returns how many tokens are in the KV cache.
    pub fn computed(&self) -> usize {
        self.computed
    }

    /// Returns how many tokens are still to be computed.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Returns the KV blocks, in the order of positions; none while the sequence waits.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the block from which the last computed tokens are to be copied before more is
    /// computed.
    pub fn tail(&self) -> Option<BlockId> {
        self.tail
    }

    /// Returns all blocks that the sequence is a user of.
    pub fn held(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.iter().copied().chain(self.tail)
    }

    /// Returns whether the sequence has its place in the KV cache.
    pub fn is_running(&self) -> bool {
        !self.blocks.is_empty()
    }
}
