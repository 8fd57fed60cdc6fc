//! Attention of queries over the keys and values of their sequences in paged memory.
//!
//! Softmax runs online over tiles (<https://arxiv.org/abs/2205.14135>): a tile is a block, counted from
//! position 0 of the sequence. So the order of all sums depends on what the query sees alone, and the
//! result is the same bit for bit however the sequence was cut into steps and whoever computes beside.

use std::cell::RefCell;

use crate::{Error, PagedKv, Pool, dot};

/// How queries meet keys in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of the key heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Bounds the scores: `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, its own included.
    pub window: Option<usize>,
}

/// One query row.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Its position.
    pub position: usize,
    /// It attends to the positions before this one: its own plus one, or further where rows see
    /// each other.
    pub end: usize,
    /// The blocks of its sequence, in order.
    pub blocks: &'a [u32],
}

/// Attends from every row of `query` (`[rows][n_heads * head_dim]`) to the stored positions before its
/// end; the result has the same shape.
pub fn attend(
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    rows: &[Query<'_>],
    attention: &Attention,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    let Attention {
        n_heads,
        n_kv_heads,
        head_dim,
        ..
    } = *attention;
    let width = n_heads * head_dim;
    let (kv_width, packed_len) = kv.row();
    if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) || n_kv_heads * head_dim != kv_width {
        return Err(Error::Length {
            what: "elements of all key heads",
            got: n_kv_heads * head_dim,
            expected: kv_width,
        });
    }
    if !head_dim.is_multiple_of(packed_len) {
        let expected = head_dim.next_multiple_of(packed_len);
        return Err(Error::Length {
            what: "elements of a head",
            got: head_dim,
            expected,
        });
    }
    for (what, len) in [
        ("elements of the queries", query.len()),
        ("elements of the results", out.len()),
    ] {
        if len != rows.len() * width {
            return Err(Error::Length {
                what,
                got: len,
                expected: rows.len() * width,
            });
        }
    }
    for row in rows {
        let expected = row.end.div_ceil(kv.block_size());
        if row.blocks.len() < expected || row.end <= row.position {
            return Err(Error::Length {
                what: "blocks of a sequence",
                got: row.blocks.len(),
                expected,
            });
        }
    }
    let group = n_heads / n_kv_heads * head_dim;
    let work: usize = rows
        .iter()
        .map(|row| row.end.min(attention.window.unwrap_or(usize::MAX)) * width)
        .sum();
    pool.for_each_chunk_mut(out, group, work >= PARALLEL_WORK, |index, out| {
        let (row, kv_head) = (index / n_kv_heads, index % n_kv_heads);
        let query = &query[index * group..][..group];
        SCRATCH.with_borrow_mut(|scratch| {
            attend_group(
                kv, layer, kv_head, query, &rows[row], attention, scratch, out,
            );
        });
    });
    Ok(())
}

/// Memory of one thread.
#[derive(Default)]
struct Scratch {
    tile: Vec<f32>,
    scores: Vec<f32>,
    states: Vec<State>,
}

/// Where the softmax of one head stands.
#[derive(Clone, Copy)]
struct State {
    max: f32,
    sum: f32,
}

/// The query heads that share one key head.
#[expect(clippy::too_many_arguments, reason = "one call of the loop above")]
fn attend_group(
    kv: &PagedKv,
    layer: usize,
    kv_head: usize,
    query: &[f32],
    row: &Query<'_>,
    attention: &Attention,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let (head_dim, block_size) = (attention.head_dim, kv.block_size());
    let elements = kv_head * head_dim..(kv_head + 1) * head_dim;
    let Scratch {
        tile,
        scores,
        states,
    } = scratch;
    tile.resize(block_size * head_dim, 0.0);
    states.clear();
    states.resize(
        query.len() / head_dim,
        State {
            max: f32::NEG_INFINITY,
            sum: 0.0,
        },
    );
    out.fill(0.0);

    let end = row.end;
    let first = attention
        .window
        .map_or(0, |window| (row.position + 1).saturating_sub(window));
    for block_idx in first / block_size..end.div_ceil(block_size) {
        let start = block_idx * block_size;
        let slots = first.max(start) - start..end.min(start + block_size) - start;
        let block = row.blocks[block_idx];
        let tile = &mut tile[..slots.len() * head_dim];
        scores.resize(query.len() / head_dim * slots.len(), 0.0);
        // Values take the place of the keys once all scores of the tile are known.
        for (slot, key) in slots.clone().zip(tile.chunks_exact_mut(head_dim)) {
            kv.read_key(layer, block, slot, elements.clone(), key);
        }

        for (query, scores) in query
            .chunks_exact(head_dim)
            .zip(scores.chunks_exact_mut(slots.len()))
        {
            for (score, key) in scores.iter_mut().zip(tile.chunks_exact(head_dim)) {
                let raw = dot(query, key) * attention.scale;
                *score = attention
                    .softcap
                    .map_or(raw, |cap| cap * (raw / cap).tanh());
            }
        }
        for (slot, value) in slots.clone().zip(tile.chunks_exact_mut(head_dim)) {
            kv.read_value(layer, block, slot, elements.clone(), value);
        }
        let heads = states.iter_mut().zip(scores.chunks_exact(slots.len()));
        for ((state, scores), out) in heads.zip(out.chunks_exact_mut(head_dim)) {
            state.add_tile(scores, tile, out);
        }
    }
    for (state, out) in states.iter().zip(out.chunks_exact_mut(head_dim)) {
        let inverse = 1.0 / state.sum;
        for value in out {
            *value *= inverse;
        }
    }
}

impl State {
    /// Takes in the scores and values of a tile; `out` is the sum of values so far.
    fn add_tile(&mut self, scores: &[f32], values: &[f32], out: &mut [f32]) {
        let max = scores.iter().copied().fold(self.max, f32::max);
        let before = if self.max == f32::NEG_INFINITY {
            0.0
        } else {
            (self.max - max).exp()
        };
        self.max = max;
        self.sum *= before;
        for value in &mut *out {
            *value *= before;
        }
        for (score, value) in scores.iter().zip(values.chunks_exact(out.len())) {
            let weight = (score - max).exp();
            self.sum += weight;
            for (out, value) in out.iter_mut().zip(value) {
                *out += weight * value;
            }
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Less work than this is over before a second thread is awake.
const PARALLEL_WORK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use llmsrv_gguf::TensorType;
    use proptest::prelude::*;

    use super::*;

    const BLOCK_SIZE: usize = 8;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0)
            .collect()
    }

    /// One layer (the second of two) with `n` positions in blocks that are out of order.
    fn stored(n: usize, width: usize, ty: TensorType) -> (PagedKv, Vec<u32>, Vec<f32>, Vec<f32>) {
        let mut kv = PagedKv::new(2, BLOCK_SIZE, width, ty).unwrap();
        let n_blocks = n.div_ceil(BLOCK_SIZE);
        kv.reserve(n_blocks + 20).unwrap();
        let blocks: Vec<u32> = (0..n_blocks as u32)
            .map(|block| n_blocks as u32 + 19 - block)
            .collect();
        let (keys, rows) = (values(n * width, 1), values(n * width, 2));
        for position in 0..n {
            let at = position * width..(position + 1) * width;
            let block = blocks[position / BLOCK_SIZE];
            kv.write(
                1,
                block,
                position % BLOCK_SIZE,
                &keys[at.clone()],
                &rows[at],
            )
            .unwrap();
        }
        (kv, blocks, keys, rows)
    }

    /// The textbook formula.
    fn naive(
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        position: usize,
        end: usize,
        a: &Attention,
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
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
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

    const TYPES: [(TensorType, f64); 4] = [
        (TensorType::F32, 1e-4),
        (TensorType::F16, 5e-3),
        (TensorType::Q8_0, 0.15),
        (TensorType::Q4_0, 1.5),
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn as_the_textbook_says(
            n in 1_usize..60, n_kv_heads in 1_usize..3, group in 1_usize..4, ty in 0..4_usize,
            window in prop::option::of(1_usize..40), ahead in prop_oneof![Just(0_usize), 1_usize..20], softcap in prop::option::of(1.0_f32..30.0),
        ) {
            let (ty, tolerance) = TYPES[ty];
            let a = Attention { n_heads: n_kv_heads * group, n_kv_heads, head_dim: 32, scale: 0.1, softcap, window };
            let (kv, blocks, keys, rows) = stored(n, n_kv_heads * 32, ty);
            let query = values(a.n_heads * 32, 9);
            let mut out = vec![0.0; query.len()];
            let position = n - 1 - ahead.min(n - 1);
            let row = Query { position, end: n, blocks: &blocks };
            attend(&kv, 1, &query, &[row], &a, &mut out, &Pool::new(1)).unwrap();
            for (got, expected) in out.iter().zip(naive(&query, &keys, &rows, position, n, &a)) {
                prop_assert!((f64::from(*got) - expected).abs() < tolerance, "{ty}: {got} {expected}");
            }
        }
    }

    #[test]
    fn neither_company_nor_threads_change_a_bit() {
        let a = Attention {
            n_heads: 8,
            n_kv_heads: 2,
            head_dim: 32,
            scale: 0.2,
            softcap: None,
            window: Some(50),
        };
        let (kv, blocks, ..) = stored(90, 64, TensorType::F16);
        let query = values(90 * 256, 5);
        let rows: Vec<Query<'_>> = (0..90)
            .map(|position| Query {
                position,
                end: position + 1,
                blocks: &blocks,
            })
            .collect();
        let run = |query: &[f32], rows: &[Query<'_>], n_threads| {
            let mut out = vec![0.0; query.len()];
            attend(&kv, 1, query, rows, &a, &mut out, &Pool::new(n_threads)).unwrap();
            out
        };
        let together = run(&query, &rows, 1);
        assert_eq!(together, run(&query, &rows, 3));
        for position in 0..90 {
            let at = position * 256..(position + 1) * 256;
            assert_eq!(
                together[at.clone()],
                run(&query[at], &rows[position..=position], 1)
            );
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
        };
        let (mut kv, blocks, ..) = stored(20, 64, TensorType::F32);
        let query = values(64, 5);
        let row = Query {
            position: 19,
            end: 20,
            blocks: &blocks,
        };
        let run = |kv: &PagedKv| {
            let mut out = vec![0.0; 64];
            attend(kv, 1, &query, &[row], &a, &mut out, &Pool::new(1)).unwrap();
            out
        };
        let before = run(&kv);
        kv.reserve(500).unwrap();
        assert_eq!(before, run(&kv));
        assert!(kv.write(0, 10_000, 0, &[0.0; 64], &[0.0; 64]).is_err());
        assert!(kv.write(0, 0, 0, &[0.0; 63], &[0.0; 64]).is_err());
        let far = Query {
            position: 99,
            end: 100,
            blocks: &blocks,
        };
        assert!(attend(&kv, 1, &query, &[far], &a, &mut [0.0; 64], &Pool::new(1)).is_err());
        assert!(
            attend(
                &kv,
                1,
                &query,
                &[row, row],
                &a,
                &mut [0.0; 64],
                &Pool::new(1)
            )
            .is_err()
        );
    }
}
