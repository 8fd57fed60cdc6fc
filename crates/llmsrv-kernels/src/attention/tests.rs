use llmsrv_gguf::TensorType;
use proptest::prelude::*;

use super::*;
use crate::Slot;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0)
        .collect()
}

/// One layer (the second of two) with `n` positions in blocks that are out of order.
fn stored(
    n: usize,
    (n_heads, head_dim): (usize, usize),
    ty: TensorType,
) -> (PagedKv, Vec<u32>, Vec<f32>, Vec<f32>) {
    let width = n_heads * head_dim;
    let mut kv = PagedKv::new(&[(n_heads, 2 * head_dim), (n_heads, head_dim)], ty).unwrap();
    let n_blocks = n.div_ceil(KV_BLOCK);
    kv.reserve(n_blocks + 20).unwrap();
    let blocks: Vec<u32> = (0..n_blocks as u32)
        .map(|block| n_blocks as u32 + 19 - block)
        .collect();
    let (keys, rows) = (values(n * width, 1), values(n * width, 2));
    // Slots beyond the end hold what another sequence left.
    let wild = vec![f32::MAX; width];
    for position in 0..n_blocks * KV_BLOCK {
        let at = position * width..(position + 1) * width;
        let (key, value) = if position < n {
            (&keys[at.clone()], &rows[at])
        } else {
            (&wild[..], &wild[..])
        };
        let (block, slot) = (blocks[position / KV_BLOCK], position % KV_BLOCK);
        write(&mut kv, 1, Slot { block, slot }, key, value).unwrap();
    }
    (kv, blocks, keys, rows)
}

/// Stores one position.
fn write(
    kv: &mut PagedKv,
    layer: usize,
    place: Slot,
    key: &[f32],
    value: &[f32],
) -> Result<(), Error> {
    kv.append(layer, &[place], key, value, None, &Pool::new(1))
}

/// The textbook formula.
fn naive(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    position: usize,
    end: usize,
    a: &Attention<'_>,
) -> Vec<f64> {
    let (hd, width) = (a.head_dim, a.n_kv_heads * a.head_dim);
    let first = a
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let mut out = vec![0.0; query.len()];
    for head in 0..a.n_heads {
        let kv_head = head / (a.n_heads / a.n_kv_heads);
        let scores: Vec<f64> = (first..end)
            .map(|p| {
                let score: f64 = (0..hd)
                    .map(|i| {
                        f64::from(query[head * hd + i])
                            * f64::from(keys[p * width + kv_head * hd + i])
                    })
                    .sum();
                let score = score * f64::from(a.scale);
                a.softcap.map_or(score, |cap| {
                    f64::from(cap) * (score / f64::from(cap)).tanh()
                })
            })
            .collect();
        let sink = a
            .sinks
            .map_or(f64::NEG_INFINITY, |sinks| f64::from(sinks[head]));
        let max = scores.iter().copied().fold(sink, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        let sum = sum + (sink - max).exp();
        for (idx, score) in scores.iter().enumerate() {
            let weight = (score - max).exp() / sum;
            for i in 0..hd {
                out[head * hd + i] +=
                    weight * f64::from(values[(first + idx) * width + kv_head * hd + i]);
            }
        }
    }
    out
}

const TYPES: [(TensorType, f64); 5] = [
    (TensorType::F32, 1e-4),
    (TensorType::F16, 5e-3),
    (TensorType::BF16, 5e-2),
    (TensorType::Q8_0, 0.15),
    (TensorType::Q4_0, 1.5),
];

const HEAD_DIMS: [usize; 8] = [16, 32, 33, 40, 64, 80, 128, 512];

fn rows(positions: Range<usize>, blocks: Range<usize>) -> Vec<Query> {
    let row = |position| Query {
        position,
        end: position + 1,
        first_block: blocks.start,
        n_blocks: blocks.len(),
    };
    positions.map(row).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn as_the_textbook_says(
        n in prop_oneof![1_usize..90, 250_usize..530], n_kv_heads in 1_usize..3, group in 1_usize..8, ty in 0..TYPES.len(),
        head_dim in 0..HEAD_DIMS.len(), window in prop::option::of(1_usize..300), ahead in prop_oneof![Just(0_usize), 1_usize..20],
        softcap in prop::option::of(1.0_f32..30.0), has_sinks in any::<bool>(),
    ) {
        let sinks = values(n_kv_heads * group, 3);
        let ((ty, tolerance), head_dim) = (TYPES[ty], HEAD_DIMS[head_dim]);
        let a = Attention { n_heads: n_kv_heads * group, n_kv_heads, head_dim, scale: 0.1, softcap, window, sinks: has_sinks.then_some(&sinks[..]) };
        let (kv, blocks, keys, rows) = stored(n, (n_kv_heads, head_dim), ty);
        let query = values(a.n_heads * head_dim, 9);
        let mut out = vec![0.0; query.len()];
        let position = n - 1 - ahead.min(n - 1);
        let rows_of_one = [Query { position, end: n, first_block: 0, n_blocks: blocks.len() }];
        let queries = Queries { rows: &rows_of_one, blocks: &blocks };
        attend(&kv, 1, &query, queries, &a, &mut out, &Pool::new(1)).unwrap();
        for (got, expected) in out.iter().zip(naive(&query, &keys, &rows, position, n, &a)) {
            prop_assert!((f64::from(*got) - expected).abs() < tolerance, "{ty}: {got} {expected}");
        }
    }

    /// A prompt in one step, or cut anywhere, or row by row; on one thread or several, with whole
    /// sequences or their segments as tasks; and by every tier: always the same bits.
    #[test]
    fn neither_company_nor_cuts_nor_threads_nor_tiers_change_a_bit(
        n in 1_usize..700, cut in 0_usize..700, n_kv_heads in 1_usize..4, group in 1_usize..8, ty in 0..TYPES.len(),
        head_dim in 0..HEAD_DIMS.len(), window in prop::option::of(1_usize..400), softcap in prop::option::of(1.0_f32..30.0), has_sinks in any::<bool>(),
    ) {
        let sinks = values(n_kv_heads * group, 3);
        let (ty, head_dim) = (TYPES[ty].0, HEAD_DIMS[head_dim]);
        let a = Attention { n_heads: n_kv_heads * group, n_kv_heads, head_dim, scale: 0.2, softcap, window, sinks: has_sinks.then_some(&sinks[..]) };
        let (kv, blocks, ..) = stored(n, (n_kv_heads, head_dim), ty);
        // The last rows of a longer prompt.
        let first = n.saturating_sub(30);
        let width = a.n_heads * head_dim;
        let query = values((n - first) * width, 5);
        let pools: Vec<Pool> = [1, 3].into_iter().map(Pool::new).collect();
        let run = |tier, positions: Range<usize>, pool: usize| {
            let query = &query[(positions.start - first) * width..(positions.end - first) * width];
            let mut out = vec![0.0; query.len()];
            let rows = rows(positions, 0..blocks.len());
            let queries = Queries { rows: &rows, blocks: &blocks };
            attend_at(tier, &kv, 1, query, queries, &a, &mut out, &pools[pool]).unwrap();
            out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let together = run(Tier::best(), first..n, 0);
        prop_assert_eq!(&together, &run(Tier::best(), first..n, 1));
        let cut = cut.clamp(first, n);
        let halves = [run(Tier::best(), first..cut, 0), run(Tier::best(), cut..n, 1)].concat();
        prop_assert_eq!(&together, &halves);
        for position in [first, usize::midpoint(first, n), n - 1] {
            let alone = run(Tier::best(), position..position + 1, 1);
            prop_assert_eq!(&together[(position - first) * width..][..width], &alone[..]);
        }
        for tier in Tier::VECTORS.into_iter().filter(|tier| tier.is_available()) {
            prop_assert_eq!(&together, &run(tier, first..n, 0), "{:?}", tier);
        }
        // Without fused products a score differs in its last bit, and a weight that bf16 rounds may go the other way.
        let tolerance = if ty == TensorType::BF16 { 2e-3 } else { 1e-4 };
        for (plain, best) in run(Tier::Scalar, n - 1..n, 0).iter().zip(&together[(n - 1 - first) * width..]) {
            let (plain, best) = (f32::from_bits(*plain), f32::from_bits(*best));
            prop_assert!((plain - best).abs() < tolerance, "{plain} {best}");
        }
    }
}

#[test]
fn sequences_of_one_step_do_not_meet() {
    let a = Attention {
        n_heads: 6,
        n_kv_heads: 2,
        head_dim: 32,
        scale: 0.3,
        softcap: None,
        window: None,
        sinks: None,
    };
    let (kv, blocks, ..) = stored(600, (2, 32), TensorType::F16);
    // Three sequences over different blocks, of different lengths.
    let sequences = [(0..7, 150..200), (7..8, 0..3), (2..blocks.len(), 400..401)];
    let all: Vec<Query> = sequences
        .into_iter()
        .flat_map(|(blocks, positions)| rows(positions, blocks))
        .collect();
    let query = values(all.len() * 192, 5);
    let run = |query: &[f32], rows: &[Query]| {
        let mut out = vec![0.0; query.len()];
        let queries = Queries {
            rows,
            blocks: &blocks,
        };
        attend(&kv, 1, query, queries, &a, &mut out, &Pool::new(2)).unwrap();
        out
    };
    let together = run(&query, &all);
    for (idx, row) in all.iter().enumerate() {
        let at = idx * 192..(idx + 1) * 192;
        assert_eq!(
            together[at.clone()],
            run(&query[at], std::slice::from_ref(row))
        );
    }
}

/// What no number was ever written to may hold anything, and so may what other sequences left.
#[test]
fn what_is_not_visible_may_be_no_number() {
    let width = 40;
    for ty in [TensorType::F32, TensorType::F16, TensorType::BF16] {
        for n in [1_usize, 2, 31, 32, 33, 129, 257, 300] {
            for window in [None, Some(1), Some(2), Some(33), Some(130), Some(256)] {
                let a = Attention {
                    n_heads: 3,
                    n_kv_heads: 1,
                    head_dim: width,
                    scale: 0.1,
                    softcap: None,
                    window,
                    sinks: None,
                };
                for n_rows in [1, 2.min(n)] {
                    let seen = (n - n_rows + 1).saturating_sub(window.unwrap_or(n))..n;
                    let run = |beside: f32| {
                        let (mut kv, blocks, keys, rows_of) = stored(n, (1, width), ty);
                        for position in 0..blocks.len() * KV_BLOCK {
                            let at = position * width..(position + 1) * width;
                            let beside = vec![beside; width];
                            let (key, value) = if seen.contains(&position) {
                                (&keys[at.clone()], &rows_of[at])
                            } else {
                                (&beside[..], &beside[..])
                            };
                            let (block, slot) = (blocks[position / KV_BLOCK], position % KV_BLOCK);
                            write(&mut kv, 1, Slot { block, slot }, key, value).unwrap();
                        }
                        let query = values(n_rows * 3 * width, 5);
                        let mut out = vec![0.0; query.len()];
                        let rows = rows(n - n_rows..n, 0..blocks.len());
                        let queries = Queries {
                            rows: &rows,
                            blocks: &blocks,
                        };
                        attend(&kv, 1, &query, queries, &a, &mut out, &Pool::new(1)).unwrap();
                        out
                    };
                    let expected = run(0.0);
                    assert!(expected.iter().all(|value| value.is_finite()));
                    for beside in [f32::NAN, f32::INFINITY] {
                        assert_eq!(run(beside), expected, "{ty} {n} {window:?} {beside}");
                    }
                }
            }
        }
    }
}

#[test]
fn growing_keeps_what_is_stored_and_wrong_lengths_are_errors() {
    let a = Attention {
        n_heads: 2,
        n_kv_heads: 2,
        head_dim: 32,
        scale: 1.0,
        softcap: None,
        window: None,
        sinks: None,
    };
    let (mut kv, mut blocks, ..) = stored(20, (2, 32), TensorType::F32);
    let n_blocks = blocks.len();
    // One that is not there.
    blocks.push(60_000);
    let query = values(64, 5);
    let row = Query {
        position: 19,
        end: 20,
        first_block: 0,
        n_blocks,
    };
    let run = |kv: &PagedKv, layer: usize, rows: &[Query], a: &Attention<'_>| {
        let mut out = vec![0.0; 64];
        let queries = Queries {
            rows,
            blocks: &blocks,
        };
        attend(kv, layer, &query, queries, a, &mut out, &Pool::new(1)).map(|()| out)
    };
    let before = run(&kv, 1, &[row], &a).unwrap();
    kv.reserve(500).unwrap();
    assert_eq!(before, run(&kv, 1, &[row], &a).unwrap());
    for (layer, block, slot, n) in [
        (0, 10_000, 0, 64),
        (2, 0, 0, 64),
        (0, 0, KV_BLOCK, 64),
        (0, 0, 0, 63),
    ] {
        let place = Slot { block, slot };
        assert!(write(&mut kv, layer, place, &[0.0; 64][..n], &[0.0; 64]).is_err());
    }
    let far = Query {
        position: 99,
        end: 100,
        ..row
    };
    assert!(run(&kv, 1, &[far], &a).is_err());
    assert!(run(&kv, 1, &[row, row], &a).is_err());
    assert!(run(&kv, 2, &[row], &a).is_err());
    let unknown = Query {
        first_block: n_blocks,
        n_blocks: 1,
        ..row
    };
    assert!(run(&kv, 1, &[unknown], &a).is_err());
    let beyond = Query {
        first_block: n_blocks + 2,
        ..row
    };
    assert!(run(&kv, 1, &[beyond], &a).is_err());
    for (n_heads, n_kv_heads, head_dim) in [(2, 0, 32), (1, 2, 64), (2, 1, 64), (0, 2, 32)] {
        let wrong = Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            ..a
        };
        assert!(run(&kv, 1, &[row], &wrong).is_err());
    }
    let short = Attention {
        sinks: Some(&[0.5]),
        ..a
    };
    assert!(run(&kv, 1, &[row], &short).is_err());
    assert!(PagedKv::new(&[(1, 256)], TensorType::Q4_K).is_err());
    assert!(PagedKv::new(&[(usize::MAX, 256)], TensorType::F16).is_err());
}
