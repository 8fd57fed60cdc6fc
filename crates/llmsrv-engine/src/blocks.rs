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
//! The index is a hash map, but a hit counts only when parent and tokens are equal, so equal
//! hashes never mix two prompts. Content numbers are never used twice, so a child cannot be found
//! through a block that was given away and refilled. A block without users stays registered and
//! is given away last, the one unused for the longest time first.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    ops::Range,
};

use crate::{
    BlockId, ImageSpan, TokenId,
    image::{self, ImagePart},
};

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
    /// Hash of parent and tokens to the block that holds them.
    index: HashMap<u64, BlockId>,
    hasher: RandomState,
    /// All ones, but for tests that want hashes to collide.
    hash_mask: u64,
    clock: u64,
    last_content: ContentId,
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
}

/// What one full block holds: tokens, and the images that lie over them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chunk<'a> {
    tokens: &'a [TokenId],
    images: Vec<ImagePart>,
}

impl<'a> Chunk<'a> {
    /// Cuts a range, which is a block, out of a sequence.
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
            hasher: RandomState::new(),
            hash_mask: u64::MAX,
            clock: 0,
            last_content: ROOT,
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

    /// Finds the longest registered prefix of `tokens` with `images`, adds its blocks to `table` (which is
    /// empty) and the caller to their users. Returns the number of tokens found, always a
    /// multiple of the block size and less than `tokens.len()`: the last token is to be computed
    /// for its logits.
    pub fn find_prefix(
        &mut self,
        tokens: &[TokenId],
        images: &[ImageSpan],
        table: &mut Vec<BlockId>,
    ) -> usize {
        debug_assert!(table.is_empty());
        let mut parent = ROOT;
        let n_full = tokens.len().saturating_sub(1) / self.block_size;
        for idx in 0..n_full {
            let block = idx * self.block_size..(idx + 1) * self.block_size;
            let chunk = Chunk::new(tokens, images, block);
            let Some((id, content)) = self.find(parent, &chunk) else {
                break;
            };
            parent = content;
            self.retain(id);
            table.push(id);
        }
        table.len() * self.block_size
    }

    /// Registers block `block_idx` of `table`, which is full and computed, as holding `chunk`
    /// after the blocks before it. If another block holds the same already, the table gets that
    /// one and its own becomes free: each content is kept once.
    pub fn register(&mut self, table: &mut [BlockId], block_idx: usize, chunk: Chunk<'_>) {
        debug_assert_eq!(chunk.tokens.len(), self.block_size);
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
        if let Some((twin, _)) = self.find(parent, &chunk) {
            if twin != own {
                self.retain(twin);
                self.release(own);
                table[block_idx] = twin;
            }
            return;
        }
        let hash = self.hash(parent, &chunk);
        if self.index.contains_key(&hash) {
            return;
        }
        self.index.insert(hash, own);
        self.last_content += 1;
        let content = Content {
            id: self.last_content,
            parent,
            tokens: chunk.tokens.into(),
            images: chunk.images,
            hash,
        };
        self.block_mut(own).content = Some(content);
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
        debug_assert!(self.pool.iter().skip(bound).all(|block| block.users == 0));
        self.pool.truncate(bound);
    }

    /// Returns how many blocks [`Blocks::allocate`] could hand out now.
    pub fn available(&self) -> usize {
        self.fresh.len() + self.cached.len() + (self.bound - self.pool.len())
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

    /// Checks that the tables of all users and the books agree; panics if not.
    pub fn assert_consistent<'a>(&self, tables: impl Iterator<Item = &'a [BlockId]>) {
        let mut users = vec![0; self.pool.len()];
        for id in tables.flatten() {
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
        let registered = self
            .pool
            .iter()
            .filter(|block| block.content.is_some())
            .count();
        assert_eq!(registered, self.index.len(), "index and blocks disagree");
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
        if let Some(content) = self.block_mut(id).content.take() {
            self.index.remove(&content.hash);
        }
        Some(id)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(tokens: &[TokenId]) -> Chunk<'_> {
        Chunk::new(tokens, &[], 0..tokens.len())
    }

    fn ids(table: &[BlockId]) -> Vec<u32> {
        table.iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_prefix_is_found_only_after_its_parent() {
        let mut blocks = Blocks::new(2, 4, 4, true);
        let mut table = Vec::new();
        assert!(blocks.allocate(3, &mut table));
        blocks.register(&mut table, 0, text(&[1, 2]));
        blocks.register(&mut table, 1, text(&[3, 4]));
        let mut found = Vec::new();
        assert_eq!(blocks.find_prefix(&[1, 2, 3, 4, 9], &[], &mut found), 4);
        assert_eq!(ids(&found), ids(&table[..2]));
        blocks.release_all(&mut found);
        assert_eq!(
            blocks.find_prefix(&[1, 2, 3, 4], &[], &mut found),
            2,
            "the last token stays to be computed"
        );
        blocks.release_all(&mut found);
        for (tokens, n) in [
            (vec![3, 4, 9], 0),
            (vec![1, 2], 0),
            (vec![1, 2, 3], 2),
            (vec![], 0),
            (vec![1, 2, 4, 3, 9], 2),
        ] {
            assert_eq!(
                blocks.find_prefix(&tokens, &[], &mut found),
                n,
                "{tokens:?}"
            );
            blocks.release_all(&mut found);
        }
        blocks.assert_consistent([table.as_slice()].into_iter());
    }

    #[test]
    fn the_oldest_end_of_a_prefix_is_given_away_first() {
        let mut blocks = Blocks::new(1, 3, 3, true);
        let mut table = Vec::new();
        assert!(blocks.allocate(3, &mut table));
        for (idx, token) in [7, 8, 9].into_iter().enumerate() {
            blocks.register(&mut table, idx, text(&[token]));
        }
        blocks.release_all(&mut table);
        assert_eq!(
            (blocks.used(), blocks.cached(), blocks.available()),
            (0, 3, 3)
        );
        assert!(blocks.allocate(1, &mut table));
        let mut found = Vec::new();
        assert_eq!(blocks.find_prefix(&[7, 8, 9, 1], &[], &mut found), 2);
        assert!(!blocks.allocate(1, &mut table), "all three are in use");
        blocks.assert_consistent([table.as_slice(), &found].into_iter());
    }

    #[test]
    fn equal_contents_are_kept_once() {
        let mut blocks = Blocks::new(1, 4, 4, true);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        assert!(blocks.allocate(2, &mut one) && blocks.allocate(2, &mut two));
        for table in [&mut one, &mut two] {
            blocks.register(table, 0, text(&[5]));
            blocks.register(table, 1, text(&[6]));
        }
        assert_eq!(one, two);
        assert_eq!((blocks.used(), blocks.available()), (2, 2));
    }

    #[test]
    fn the_pool_grows_to_its_bound() {
        let mut blocks = Blocks::new(16, 2, 5, true);
        let mut table = Vec::new();
        assert_eq!((blocks.total(), blocks.available()), (2, 5));
        assert!(blocks.allocate(3, &mut table));
        assert!(
            !blocks.allocate(3, &mut table),
            "nothing is taken when not all is there"
        );
        assert_eq!(table.len(), 3);
        assert!(blocks.allocate(2, &mut table));
        assert_eq!((blocks.total(), blocks.available()), (5, 0));
        blocks.release_all(&mut table);
        blocks.shrink(2);
        assert_eq!(
            (blocks.total(), blocks.available(), blocks.bound()),
            (2, 2, 2)
        );
        blocks.assert_consistent(std::iter::empty());
    }

    #[test]
    fn beyond_what_it_may_keep_the_pool_grows_only_for_need() {
        let mut blocks = Blocks::new(1, 0, 8, true).keeping(2);
        let fill = |blocks: &mut Blocks, n: u32| {
            let mut table = Vec::new();
            assert!(blocks.allocate(2, &mut table));
            blocks.register(&mut table, 0, text(&[n]));
            blocks.register(&mut table, 1, text(&[n]));
            table
        };
        for n in 0..10 {
            let mut table = fill(&mut blocks, n);
            blocks.release_all(&mut table);
            assert_eq!(blocks.total(), 2, "old content is forgotten");
        }
        let tables = [fill(&mut blocks, 20), fill(&mut blocks, 21)];
        assert!(blocks.total() >= 4, "content in use is not");
        blocks.assert_consistent(tables.iter().map(Vec::as_slice));
    }

    #[test]
    fn a_bound_that_fell_rises_again() {
        let mut blocks = Blocks::new(1, 2, 8, true);
        blocks.shrink(2);
        assert!(!blocks.allocate(3, &mut Vec::new()));
        blocks.raise_bound(4);
        assert!(blocks.allocate(4, &mut Vec::new()) && blocks.bound() == 4);
    }

    proptest! {
        /// Hashes of one bit: nearly all of them collide, only the comparison tells contents apart.
        #[test]
        fn colliding_hashes_do_not_mix_contents(
            sequences in prop::collection::vec(prop::collection::vec(0u32..2, 1..12), 1..20),
            block_size in 1usize..4,
            bound in 6usize..20,
        ) {
            let mut blocks = Blocks::new(block_size, 0, bound, true);
            blocks.make_hashes_collide();
            // What is in each block, as the model would have it: the whole prefix.
            let mut memory: HashMap<BlockId, Vec<TokenId>> = HashMap::new();
            for tokens in &sequences {
                let mut table = Vec::new();
                let n_found = blocks.find_prefix(tokens, &[], &mut table);
                prop_assert!(n_found < tokens.len() && n_found.is_multiple_of(block_size));
                for (idx, id) in table.iter().enumerate() {
                    prop_assert_eq!(&memory[id], &tokens[..(idx + 1) * block_size]);
                }
                let n_missing = tokens.len().div_ceil(block_size) - table.len();
                if blocks.allocate(n_missing, &mut table) {
                    for idx in n_found / block_size..tokens.len() / block_size {
                        let end = (idx + 1) * block_size;
                        memory.insert(table[idx], tokens[..end].to_vec());
                        blocks.register(&mut table, idx, text(&tokens[end - block_size..end]));
                        prop_assert_eq!(&memory[&table[idx]], &tokens[..end]);
                    }
                }
                blocks.assert_consistent([table.as_slice()].into_iter());
                blocks.release_all(&mut table);
                blocks.assert_consistent(std::iter::empty());
            }
        }
    }
}
