//! Bookkeeping of KV blocks: who uses which, what is in them, which may be taken next.
//!
//! Blocks are ids; the memory belongs to the model. A block that is full and computed is
//! *registered* under what it holds: its own tokens and the registration of the block before it.
//! So the registrations form a tree of prefixes. Example, with blocks of two tokens:
//!
//! ```text
//! sequence  a b | c d | e         block 0 = (root, "ab") -> content 1
//!                                 block 1 = (content 1, "cd") -> content 2
//! later     a b | c d | x         finds blocks 0 and 1, computes only "x"
//! later     c d | ...             finds nothing: "cd" is known only after content 1
//! ```
//!
//! The last block of a sequence that ends is registered with as much as it holds. A registered block
//! is never written again, so of a block that is equal only at its beginning that part is copied:
//!
//! ```text
//! later     a b | c x             finds block 0, copies "c" from block 1, computes only "x"
//! ```
//!
//! The index is a hash map, but a hit counts only when parent and tokens are equal, so equal
//! hashes never mix two prompts. Content numbers are never used twice, so a child cannot be found
//! through a block that was given away and refilled. A block without users stays registered and
//! is given away last, the one unused for the longest time first.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use states::States;

use crate::{
    BlockId, ImageSpan, StateId, TokenId,
    image::{self, ImagePart},
};

mod states;

/// All blocks of one model.
#[derive(Debug)]
pub struct Blocks {
    block_size: usize,
    bound: usize,
    /// Size up to which the pool grows rather than forgets content.
    keep: usize,
    reuse: bool,
    pool: Vec<Block>,
    /// Unused blocks without content.
    fresh: Vec<BlockId>,
    /// Unused blocks with content, by the time of their release.
    cached: BTreeMap<u64, BlockId>,
    /// Hash of parent and tokens to the full block that holds them.
    index: HashMap<u64, BlockId>,
    /// What may follow a content, full or not.
    children: HashMap<ContentId, Vec<BlockId>>,
    hasher: RandomState,
    /// All ones, but for tests that want hashes to collide.
    hash_mask: u64,
    clock: u64,
    last_content: ContentId,
    /// For models with a recurrent state.
    states: Option<States>,
}

/// Names what a registered block holds; 0 is the empty prefix.
type ContentId = u64;

const ROOT: ContentId = 0;

#[derive(Debug, Default)]
struct Block {
    users: u32,
    released: u64,
    content: Option<Content>,
}

#[derive(Debug)]
struct Content {
    id: ContentId,
    parent: ContentId,
    tokens: Box<[TokenId]>,
    images: Vec<ImagePart>,
    hash: u64,
    /// The recurrent state after it.
    state: Option<StateId>,
}

/// What is known of the beginning of a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Tokens that need not be computed.
    pub n_tokens: usize,
    /// The block to copy those of them from that do not fill a block; the caller is one of its
    /// users until that is done.
    pub tail: Option<BlockId>,
    /// The recurrent state after those tokens, for models that have one; the caller is one of its readers
    /// until it is copied.
    pub state: Option<StateId>,
    /// Tokens whose keys and values are known: more than `n_tokens` where no state is known for them.
    pub n_stored: usize,
}

/// What one block holds: tokens, and the images that lie over them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chunk<'a> {
    tokens: &'a [TokenId],
    images: Vec<ImagePart>,
}

impl<'a> Chunk<'a> {
    /// Cuts a range, which is a block or its beginning, out of a sequence.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond `tokens`.
    pub fn new(tokens: &'a [TokenId], images: &[ImageSpan], range: Range<usize>) -> Chunk<'a> {
        Chunk {
            tokens: &tokens[range.clone()],
            images: image::parts(images, range),
        }
    }
}

impl Blocks {
    /// Makes a pool of `initial` blocks of `block_size` tokens that may grow to `bound` blocks.
    /// With `reuse` off nothing is ever found again.
    pub fn new(block_size: usize, initial: usize, bound: usize, reuse: bool) -> Blocks {
        let mut blocks = Blocks {
            block_size: block_size.max(1),
            bound: bound.min(u32::MAX as usize),
            keep: usize::MAX,
            reuse,
            pool: Vec::new(),
            fresh: Vec::new(),
            cached: BTreeMap::new(),
            index: HashMap::new(),
            children: HashMap::new(),
            hasher: RandomState::new(),
            hash_mask: u64::MAX,
            clock: 0,
            last_content: ROOT,
            states: None,
        };
        blocks.grow(initial.min(bound));
        blocks
    }

    /// Sets the size up to which the pool grows rather than forgets content.
    #[must_use]
    pub fn keeping(mut self, n_blocks: usize) -> Blocks {
        self.keep = n_blocks;
        self
    }

    /// Appends `n` blocks that nobody else uses to `table`, or nothing when there are not so many.
    pub fn allocate(&mut self, n: usize, table: &mut Vec<BlockId>) -> bool {
        if n > self.available() {
            return false;
        }
        let must_grow = n > self.fresh.len() + self.cached();
        let may_grow = n > self.fresh.len() && self.pool.len() < self.keep;
        if (must_grow || may_grow) && self.pool.len() < self.bound {
            // By half, so that a long generation does not ask the model again and again.
            let wanted = (n - self.fresh.len()).max(self.pool.len() / 2);
            self.grow(wanted.min(self.bound - self.pool.len()));
        }
        for _ in 0..n {
            let Some(id) = self.fresh.pop().or_else(|| self.evict()) else {
                debug_assert!(false, "available() counted a block that is not there");
                return false;
            };
            self.block_mut(id).users = 1;
            table.push(id);
        }
        true
    }

    /// Finds the longest registered prefix of `tokens` with `images`, adds its full blocks to `table`
    /// (which is empty) and the caller to the users of all of them. At least the last token is left
    /// to be computed, for its logits. For models with a recurrent state the prefix ends where one is
    /// kept.
    pub fn find_prefix(
        &mut self,
        tokens: &[TokenId],
        images: &[ImageSpan],
        table: &mut Vec<BlockId>,
    ) -> Prefix {
        debug_assert!(table.is_empty());
        let mut parent = ROOT;
        let n_most = tokens.len().saturating_sub(1);
        for idx in 0..n_most / self.block_size {
            let block = idx * self.block_size..(idx + 1) * self.block_size;
            let chunk = Chunk::new(tokens, images, block);
            let Some((id, content)) = self.find(parent, &chunk) else {
                break;
            };
            parent = content;
            self.retain(id);
            table.push(id);
        }
        let n_full = table.len() * self.block_size;
        if self.have_states() {
            return self.find_state(table);
        }
        let rest = n_full..n_most.min(n_full + self.block_size);
        let tail = self.find_beginning(parent, &Chunk::new(tokens, images, rest));
        if let Some((id, _)) = tail {
            self.retain(id);
        }
        Prefix {
            n_tokens: n_full + tail.map_or(0, |(_, n)| n),
            tail: tail.map(|(id, _)| id),
            state: None,
            n_stored: n_full,
        }
    }

    /// Cuts a prefix of full blocks to its last one with a checkpoint.
    fn find_state(&mut self, table: &mut Vec<BlockId>) -> Prefix {
        let n_stored = table.len() * self.block_size;
        let mut state = None;
        while let Some(id) = table.last().copied() {
            let content = self.block(id).content.as_ref();
            state = content.and_then(|content| content.state);
            if state.is_some() {
                break;
            }
            table.pop();
            self.release(id);
        }
        if let (Some(states), Some(id)) = (&mut self.states, state) {
            states.retain(id);
        }
        Prefix {
            n_tokens: table.len() * self.block_size,
            tail: None,
            state,
            n_stored,
        }
    }

    /// Registers block `block_idx` of `table`, which is computed, as holding `chunk` after the blocks
    /// before it. If another block holds the same already, the table gets that one and its own
    /// becomes free: each content is kept once. A chunk that does not fill its block is registered
    /// only when nobody writes to the block any more.
    pub fn register(&mut self, table: &mut [BlockId], block_idx: usize, chunk: Chunk<'_>) {
        debug_assert!((1..=self.block_size).contains(&chunk.tokens.len()));
        if !self.reuse {
            return;
        }
        let parent = match block_idx
            .checked_sub(1)
            .map(|idx| &self.block(table[idx]).content)
        {
            None => ROOT,
            Some(Some(content)) => content.id,
            // After a hash collision the rest of a sequence stays private.
            Some(None) => return,
        };
        let own = table[block_idx];
        let is_full = chunk.tokens.len() == self.block_size;
        if let Some((twin, _)) = self.find(parent, &chunk).filter(|_| is_full) {
            if twin != own {
                self.retain(twin);
                self.release(own);
                table[block_idx] = twin;
            }
            return;
        }
        let hash = self.hash(parent, &chunk);
        if is_full {
            if self.index.contains_key(&hash) {
                return;
            }
            self.index.insert(hash, own);
        } else if let Some((_, n)) = self.find_beginning(parent, &chunk)
            && n == chunk.tokens.len()
        {
            return;
        }
        self.forget_beginnings(parent, &chunk);
        self.last_content += 1;
        let content = Content {
            id: self.last_content,
            parent,
            tokens: chunk.tokens.into(),
            images: chunk.images,
            hash,
            state: None,
        };
        self.children.entry(parent).or_default().push(own);
        self.block_mut(own).content = Some(content);
    }

    /// Takes a user away from a block; without users it may be given to others.
    pub fn give_back(&mut self, id: BlockId) {
        self.release(id);
    }

    /// Takes a user away from each block of `table` and empties it. The last block goes first, so
    /// that the ends of prefixes are given away before their beginnings.
    pub fn release_all(&mut self, table: &mut Vec<BlockId>) {
        while let Some(id) = table.pop() {
            self.release(id);
        }
    }

    /// Lets the pool grow to `bound` blocks again.
    pub fn raise_bound(&mut self, bound: usize) {
        self.bound = self.bound.max(bound.min(u32::MAX as usize));
    }

    /// Lowers the bound to `bound` blocks and forgets the ids above; nobody may use them.
    pub fn shrink(&mut self, bound: usize) {
        self.bound = self.bound.min(bound);
        let kept = |id: &BlockId| (id.0 as usize) < bound;
        self.fresh.retain(kept);
        self.cached.retain(|_, id| kept(id));
        self.index.retain(|_, id| kept(id));
        self.children.retain(|_, ids| {
            ids.retain(kept);
            !ids.is_empty()
        });
        debug_assert!(self.pool.iter().skip(bound).all(|block| block.users == 0));
        let gone = self.pool.iter().skip(bound);
        let gone = gone.filter_map(|block| block.content.as_ref()?.state);
        for state in gone.collect::<Vec<_>>() {
            self.forget_state(state);
        }
        self.pool.truncate(bound);
    }

    /// Returns how many blocks [`Blocks::allocate`] could hand out now.
    pub fn available(&self) -> usize {
        self.fresh.len() + self.cached.len() + (self.bound - self.pool.len())
    }

    /// Returns whether what is registered is ever found again.
    pub fn finds_prefixes(&self) -> bool {
        self.reuse
    }

    /// Returns the number of tokens in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Returns the number of blocks that exist; ids are smaller than this.
    pub fn total(&self) -> usize {
        self.pool.len()
    }

    /// Returns the largest number of blocks there may be.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Returns the number of blocks with users.
    pub fn used(&self) -> usize {
        self.pool.len() - self.fresh.len() - self.cached.len()
    }

    /// Returns the number of unused blocks whose content can be found.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Checks that what all users hold and the books agree; panics if not.
    pub fn assert_consistent(&self, held: impl Iterator<Item = BlockId>) {
        let mut users = vec![0; self.pool.len()];
        for id in held {
            users[id.0 as usize] += 1;
        }
        assert!(self.pool.len() <= self.bound, "more blocks than the bound");
        for (block, users) in self.pool.iter().zip(users) {
            assert_eq!(block.users, users, "wrong number of users");
        }
        for id in &self.fresh {
            assert!(
                self.block(*id).users == 0 && self.block(*id).content.is_none(),
                "a fresh block is not"
            );
        }
        for (released, id) in &self.cached {
            let block = self.block(*id);
            assert!(
                block.users == 0 && block.content.is_some() && block.released == *released,
                "a cached block is not"
            );
        }
        let unused = self.pool.iter().filter(|block| block.users == 0).count();
        assert_eq!(
            unused,
            self.fresh.len() + self.cached.len(),
            "a block is lost or listed twice"
        );
        let mut n_registered = 0;
        for block in &self.pool {
            let Some(content) = &block.content else {
                continue;
            };
            n_registered += 1;
            let siblings = self.children.get(&content.parent);
            assert!(
                siblings.is_some_and(|ids| ids.iter().any(|id| {
                    let sibling = self.block(*id).content.as_ref();
                    sibling.is_some_and(|sibling| sibling.id == content.id)
                })),
                "a content is not among those of its parent"
            );
        }
        let n_listed: usize = self.children.values().map(Vec::len).sum();
        assert_eq!(n_registered, n_listed, "a content that is gone is listed");
        let is_full = |block: &&Block| {
            let content = block.content.as_ref();
            content.is_some_and(|content| content.tokens.len() == self.block_size)
        };
        let n_full = self.pool.iter().filter(is_full).count();
        assert_eq!(n_full, self.index.len(), "index and blocks disagree");
        for (hash, id) in &self.index {
            assert!(
                self.block(*id)
                    .content
                    .as_ref()
                    .is_some_and(|content| content.hash == *hash)
            );
        }
    }

    /// Leaves one bit of each hash.
    #[cfg(test)]
    pub(crate) fn make_hashes_collide(&mut self) {
        self.hash_mask = 1;
    }

    fn grow(&mut self, n: usize) {
        let first = self.pool.len();
        self.pool.resize_with(first + n, Block::default);
        self.fresh
            .extend((first..first + n).rev().map(|idx| BlockId(idx as u32)));
    }

    fn retain(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.users += 1;
        if block.users == 1 {
            let released = block.released;
            self.cached.remove(&released);
        }
    }

    fn release(&mut self, id: BlockId) {
        self.clock += 1;
        let clock = self.clock;
        let block = self.block_mut(id);
        block.users -= 1;
        if block.users > 0 {
            return;
        }
        block.released = clock;
        if block.content.is_some() {
            self.cached.insert(clock, id);
        } else {
            self.fresh.push(id);
        }
    }

    /// Forgets the content that was unused for the longest time and returns its block.
    fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.cached.pop_first()?;
        self.forget(id);
        Some(id)
    }

    /// Forgets what a block holds.
    fn forget(&mut self, id: BlockId) {
        let Some(content) = self.block_mut(id).content.take() else {
            return;
        };
        if let Some(state) = content.state {
            self.forget_state(state);
        }
        if content.tokens.len() == self.block_size {
            self.index.remove(&content.hash);
        }
        if let Some(siblings) = self.children.get_mut(&content.parent) {
            siblings.retain(|other| *other != id);
            if siblings.is_empty() {
                self.children.remove(&content.parent);
            }
        }
    }

    fn forget_state(&mut self, id: StateId) {
        if let Some(states) = &mut self.states {
            states.forget(id);
        }
    }

    /// Forgets unused blocks that hold no more than a beginning of `chunk`, which is about to be
    /// registered.
    fn forget_beginnings(&mut self, parent: ContentId, chunk: &Chunk<'_>) {
        let Some(siblings) = self.children.get(&parent) else {
            return;
        };
        let is_less = |id: &BlockId| {
            let block = self.block(*id);
            let content = block.content.as_ref();
            block.users == 0
                && content.is_some_and(|content| {
                    let n = content.tokens.len();
                    n < self.block_size && content.common(chunk) == n
                })
        };
        let less: Vec<BlockId> = siblings.iter().copied().filter(is_less).collect();
        for id in less {
            self.forget(id);
            let released = self.block(id).released;
            self.cached.remove(&released);
            self.fresh.push(id);
        }
    }

    /// Returns the block after `parent` that has most of the beginning of `chunk`, and how many
    /// tokens.
    fn find_beginning(&self, parent: ContentId, chunk: &Chunk<'_>) -> Option<(BlockId, usize)> {
        let siblings = self.children.get(&parent)?.iter();
        let common = |id: &BlockId| Some((*id, self.block(*id).content.as_ref()?.common(chunk)));
        let longest = siblings.filter_map(common).max_by_key(|(_, n)| *n);
        longest.filter(|(_, n)| *n > 0)
    }

    fn find(&self, parent: ContentId, chunk: &Chunk<'_>) -> Option<(BlockId, ContentId)> {
        let id = *self.index.get(&self.hash(parent, chunk))?;
        let content = self.block(id).content.as_ref()?;
        let same = content.parent == parent
            && *content.tokens == *chunk.tokens
            && content.images == chunk.images;
        same.then_some((id, content.id))
    }

    fn hash(&self, parent: ContentId, chunk: &Chunk<'_>) -> u64 {
        self.hasher.hash_one((parent, chunk)) & self.hash_mask
    }

    fn block(&self, id: BlockId) -> &Block {
        &self.pool[id.0 as usize]
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.pool[id.0 as usize]
    }
}

impl Content {
    /// Returns the number of tokens at the beginning that are the same as those of `chunk`.
    fn common(&self, chunk: &Chunk<'_>) -> usize {
        let pairs = self.tokens.iter().zip(chunk.tokens);
        let n_tokens = pairs.take_while(|(own, other)| own == other).count();
        image::common(&self.images, &chunk.images, n_tokens)
    }
}

#[cfg(test)]
mod tests;
