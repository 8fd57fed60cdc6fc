use proptest::prelude::*;

use super::*;

fn text(tokens: &[TokenId]) -> Chunk<'_> {
    Chunk::new(tokens, &[], 0..tokens.len())
}

/// Looks for a prefix and gives it back. Returns its length, and from where its end is to be copied.
fn found(blocks: &mut Blocks, tokens: &[TokenId]) -> (usize, Option<BlockId>) {
    let mut table = Vec::new();
    let prefix = blocks.find_prefix(tokens, &[], &mut table);
    if let Some(id) = prefix.tail {
        blocks.give_back(id);
    }
    blocks.release_all(&mut table);
    (prefix.n_tokens, prefix.tail)
}

#[test]
fn a_prefix_is_found_only_after_its_parent() {
    let mut blocks = Blocks::new(2, 4, 4, true);
    let mut table = Vec::new();
    assert!(blocks.allocate(3, &mut table));
    blocks.register(&mut table, 0, text(&[1, 2]));
    blocks.register(&mut table, 1, text(&[3, 4]));
    assert_eq!(found(&mut blocks, &[1, 2, 3, 4, 9]), (4, None));
    for (tokens, found_now) in [
        (vec![3, 4, 9], (0, None)),
        // The last token stays to be computed.
        (vec![1, 2, 3, 4], (3, Some(table[1]))),
        (vec![1, 2], (1, Some(table[0]))),
        (vec![1, 2, 3], (2, None)),
        (vec![1], (0, None)),
        (vec![], (0, None)),
        (vec![1, 4, 3, 4], (1, Some(table[0]))),
        (vec![1, 2, 4, 3, 9], (2, None)),
        (vec![1, 2, 3, 5, 9], (3, Some(table[1]))),
    ] {
        assert_eq!(found(&mut blocks, &tokens), found_now, "{tokens:?}");
    }
    blocks.assert_consistent(table.iter().copied());
}

#[test]
fn a_block_that_is_not_full_gives_way_to_more() {
    let mut blocks = Blocks::new(4, 4, 4, true);
    let end = |blocks: &mut Blocks, tokens: &[TokenId]| {
        let mut table = Vec::new();
        assert!(blocks.allocate(1, &mut table));
        blocks.register(&mut table, 0, text(tokens));
        let id = table[0];
        blocks.release_all(&mut table);
        blocks.assert_consistent(std::iter::empty());
        id
    };
    let two = end(&mut blocks, &[1, 2]);
    assert_eq!(found(&mut blocks, &[1, 2, 3, 4, 5]), (2, Some(two)));
    assert_eq!(found(&mut blocks, &[1, 3]), (1, Some(two)));
    let three = end(&mut blocks, &[1, 2, 3]);
    assert_eq!(blocks.cached(), 1, "the shorter one is forgotten");
    assert_eq!(found(&mut blocks, &[1, 2, 3, 4, 5]), (3, Some(three)));
    end(&mut blocks, &[1, 2]);
    assert_eq!(blocks.cached(), 1, "what is there is not kept twice");
    let other = end(&mut blocks, &[1, 2, 9]);
    assert_eq!(found(&mut blocks, &[1, 2, 9, 9]), (3, Some(other)));
    let full = end(&mut blocks, &[1, 2, 3, 4]);
    assert_eq!(blocks.cached(), 2);
    assert_eq!(found(&mut blocks, &[1, 2, 3, 4, 5]), (4, None));
    assert_eq!(found(&mut blocks, &[1, 2, 3, 4]), (3, Some(full)));
    // Who is about to copy keeps it.
    let mut table = Vec::new();
    let prefix = blocks.find_prefix(&[1, 2, 9, 9], &[], &mut table);
    assert!(blocks.allocate(3, &mut table) && !blocks.allocate(1, &mut table));
    blocks.assert_consistent(table.iter().copied().chain(prefix.tail));
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
    let prefix = blocks.find_prefix(&[7, 8, 9, 1], &[], &mut found);
    assert_eq!(prefix.n_tokens, 2);
    assert!(!blocks.allocate(1, &mut table), "all three are in use");
    blocks.assert_consistent(table.iter().chain(&found).copied());
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
    blocks.assert_consistent(tables.iter().flatten().copied());
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
            let found = blocks.find_prefix(tokens, &[], &mut table);
            let n_full = found.n_tokens / block_size;
            prop_assert!(found.n_tokens < tokens.len() && table.len() == n_full);
            for (idx, id) in table.iter().enumerate() {
                prop_assert_eq!(&memory[id], &tokens[..(idx + 1) * block_size]);
            }
            if let Some(id) = found.tail {
                prop_assert!(memory[&id].starts_with(&tokens[..found.n_tokens]));
                blocks.assert_consistent(table.iter().copied().chain([id]));
                blocks.give_back(id);
            }
            let n_missing = tokens.len().div_ceil(block_size) - table.len();
            if blocks.allocate(n_missing, &mut table) {
                for idx in n_full..table.len() {
                    let end = ((idx + 1) * block_size).min(tokens.len());
                    memory.insert(table[idx], tokens[..end].to_vec());
                    blocks.register(&mut table, idx, text(&tokens[idx * block_size..end]));
                    prop_assert_eq!(&memory[&table[idx]], &tokens[..end]);
                }
            }
            blocks.assert_consistent(table.iter().copied());
            blocks.release_all(&mut table);
            blocks.assert_consistent(std::iter::empty());
        }
    }
}
