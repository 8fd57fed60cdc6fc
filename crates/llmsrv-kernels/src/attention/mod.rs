//! Attention of queries over the keys and values of their sequences in paged memory.
//!
//! Softmax runs online over blocks of keys (<https://arxiv.org/abs/2205.14135>). All query heads of a key
//! head, and several rows of a prompt, share each block that is read. Sums run over the blocks of a
//! segment of 256 positions, counted from position 0 of the sequence, and then over the segments in
//! order. So the order of all sums depends on what a query sees alone, and the result is the same bit for
//! bit however the sequence was cut into steps, whoever computes beside, and on however many threads.
#![expect(unsafe_code, reason = "tasks write rows of one result")]

mod product;
mod softmax;

use std::{cell::RefCell, ops::Range};

use self::{
    product::{Rows, multiply},
    softmax::{State, merge, take_block},
};
use crate::{
    Error, KV_BLOCK, PagedKv, Pool, Tier,
    kv::{Part, Tiles},
    pool::Parts,
};

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
    attend_at(Tier::best(), kv, layer, query, rows, attention, out, pool)
}

/// As [`attend`], with the instructions of a tier.
#[expect(clippy::too_many_arguments, reason = "one more than above")]
fn attend_at(
    tier: Tier,
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    rows: &[Query<'_>],
    attention: &Attention,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    check(kv, layer, query, rows, attention, out)?;
    let group = attention.n_heads / attention.n_kv_heads;
    let step = Step {
        tier,
        kv,
        layer,
        query,
        rows,
        attention: *attention,
        group,
        width: attention.head_dim.next_multiple_of(KV_BLOCK),
    };
    let tiles = row_tiles(rows, (MAX_QUERIES / group).max(1));
    // Later rows see more, so they come first; tasks of one head follow each other.
    let units: Vec<Unit> = (0..attention.n_kv_heads)
        .flat_map(|head| tiles.iter().rev().map(move |rows| (head, rows.clone())))
        .map(|(head, rows)| step.unit(head, rows))
        .collect();
    let work: usize = units.iter().map(|unit| unit.work(&step)).sum();
    let out = Parts::new(out);
    if work < PARALLEL_WORK {
        for unit in &units {
            step.whole(unit, &out);
        }
    } else if units.len() >= UNITS_PER_THREAD * pool.n_threads()
        || !step.in_parts(&units, &out, pool)
    {
        pool.for_each_task(units.len(), |idx| step.whole(&units[idx], &out));
    }
    Ok(())
}

fn check(
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    rows: &[Query<'_>],
    attention: &Attention,
    out: &[f32],
) -> Result<(), Error> {
    let Attention {
        n_heads,
        n_kv_heads,
        head_dim,
        ..
    } = *attention;
    let fit = |what, got, expected, fits| {
        if fits {
            return Ok(());
        }
        Err(Error::Length {
            what,
            got,
            expected,
        })
    };
    let stored = kv.heads();
    fit("key heads", n_kv_heads, stored.0, n_kv_heads == stored.0)?;
    fit(
        "elements of a head",
        head_dim,
        stored.1,
        head_dim == stored.1,
    )?;
    fit("layers", layer, kv.n_layers(), layer < kv.n_layers())?;
    let shared = n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads) && head_dim > 0;
    fit("query heads", n_heads, n_kv_heads, shared && n_heads > 0)?;
    let len = rows.len() * n_heads * head_dim;
    fit(
        "elements of the queries",
        query.len(),
        len,
        query.len() == len,
    )?;
    fit("elements of the results", out.len(), len, out.len() == len)?;
    for row in rows {
        let n_blocks = row.end.div_ceil(KV_BLOCK);
        let enough = row.blocks.len() >= n_blocks && row.end > row.position;
        fit("blocks of a sequence", row.blocks.len(), n_blocks, enough)?;
        let highest = row.blocks[..n_blocks].iter().copied().max().unwrap_or(0) as usize;
        fit("blocks", highest, kv.n_blocks(), highest < kv.n_blocks())?;
    }
    Ok(())
}

/// Cuts rows that follow each other in one sequence into tiles of at most `max_rows`.
fn row_tiles(rows: &[Query<'_>], max_rows: usize) -> Vec<Range<usize>> {
    let mut tiles = Vec::new();
    for sequence in rows.chunk_by(|a, b| std::ptr::eq(a.blocks, b.blocks)) {
        let start = tiles.last().map_or(0, |tile: &Range<usize>| tile.end);
        let end = start + sequence.len();
        tiles.extend(
            (start..end)
                .step_by(max_rows)
                .map(|row| row..end.min(row + max_rows)),
        );
    }
    tiles
}

/// One call.
struct Step<'a> {
    tier: Tier,
    kv: &'a PagedKv,
    layer: usize,
    query: &'a [f32],
    rows: &'a [Query<'a>],
    attention: Attention,
    /// Query heads of a key head.
    group: usize,
    /// Elements of a head, padded to whole tiles.
    width: usize,
}

/// Rows of one sequence and one key head; a query is one of its query heads in one of the rows.
struct Unit {
    kv_head: usize,
    rows: Range<usize>,
    /// Positions that at least one row sees.
    seen: Range<usize>,
}

impl Unit {
    fn segments(&self) -> Range<usize> {
        self.seen.start / SEGMENT..self.seen.end.div_ceil(SEGMENT)
    }

    /// Multiplications of keys.
    fn work(&self, step: &Step<'_>) -> usize {
        self.seen.len() * self.rows.len() * step.group * step.width
    }
}

/// Memory of one thread.
#[derive(Default)]
struct Scratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    keep: Vec<f32>,
    visible: Vec<Range<usize>>,
    /// Unpacked tiles.
    tiles: Vec<f32>,
    segment: Partial,
    all: Partial,
}

/// What part of the keys gave.
#[derive(Default)]
struct Partial {
    states: Vec<State>,
    /// Of values times weights: `width` elements for each query.
    sums: Vec<f32>,
}

impl Partial {
    fn reset(&mut self, n_queries: usize, width: usize) {
        self.states.clear();
        self.states.resize(n_queries, State::EMPTY);
        self.sums.clear();
        self.sums.resize(n_queries * width, 0.0);
    }
}

impl Step<'_> {
    fn unit(&self, kv_head: usize, rows: Range<usize>) -> Unit {
        let first = rows.clone().map(|row| self.seen(row).start).min();
        let end = rows.clone().map(|row| self.seen(row).end).max();
        Unit {
            kv_head,
            rows,
            seen: first.unwrap_or(0)..end.unwrap_or(0),
        }
    }

    /// The positions that a row sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let row = &self.rows[row];
        let first = |window: usize| (row.position + 1).saturating_sub(window);
        self.attention.window.map_or(0, first)..row.end
    }

    /// Computes a unit segment by segment.
    fn whole(&self, unit: &Unit, out: &Parts<'_, f32>) {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut all = std::mem::take(&mut scratch.all);
            let mut segment = std::mem::take(&mut scratch.segment);
            let n_queries = unit.rows.len() * self.group;
            all.reset(n_queries, self.width);
            self.gather(unit, &mut scratch.queries);
            for idx in unit.segments() {
                segment.reset(n_queries, self.width);
                let (states, sums) = (&mut segment.states[..], &mut segment.sums[..]);
                self.segment(unit, idx, scratch, states, sums);
                merge(
                    self.tier,
                    &mut all.states,
                    &mut all.sums,
                    states,
                    sums,
                    self.width,
                );
            }
            self.finish(unit, &all.states, &all.sums, out);
            scratch.all = all;
            scratch.segment = segment;
        });
    }

    /// Computes the segments of all units as tasks of their own. Returns false, with nothing done, if
    /// there is nothing to split or their results would need too much memory.
    fn in_parts(&self, units: &[Unit], out: &Parts<'_, f32>, pool: &Pool) -> bool {
        let tasks: Vec<(&Unit, usize)> = units
            .iter()
            .flat_map(|unit| unit.segments().map(move |segment| (unit, segment)))
            .collect();
        let max_queries = units.iter().map(|unit| unit.rows.len() * self.group).max();
        let max_queries = max_queries.unwrap_or(0);
        if tasks.len() == units.len() || tasks.len() * max_queries * self.width > MAX_PARTIAL {
            return false;
        }
        PARTIAL.with_borrow_mut(|partial| {
            partial.reset(tasks.len() * max_queries, self.width);
            let Partial { states, sums } = partial;
            let (of_task, all) = (max_queries * self.width, self.width);
            {
                let (states, sums) = (Parts::new(states), Parts::new(sums));
                pool.for_each_task(tasks.len(), |task| {
                    let (unit, segment) = tasks[task];
                    let n_queries = unit.rows.len() * self.group;
                    let first = task * max_queries;
                    // SAFETY: the queries of each task are its own.
                    let states = unsafe { states.part(first..first + n_queries) };
                    // SAFETY: as above.
                    let sums = unsafe { sums.part(first * all..(first + n_queries) * all) };
                    SCRATCH.with_borrow_mut(|scratch| {
                        self.gather(unit, &mut scratch.queries);
                        self.segment(unit, segment, scratch, states, sums);
                    });
                });
            }
            let mut task = 0;
            for unit in units {
                let n_queries = unit.rows.len() * self.group;
                let (first, n_segments) = (task, unit.segments().len());
                task += n_segments;
                let (head, rest) = states[first * max_queries..].split_at_mut(max_queries);
                let (head_sums, rest_sums) = sums[first * of_task..].split_at_mut(of_task);
                let head_sums = &mut head_sums[..n_queries * self.width];
                for idx in 0..n_segments - 1 {
                    let later = &rest[idx * max_queries..][..n_queries];
                    let later_sums = &rest_sums[idx * of_task..][..n_queries * self.width];
                    let head = &mut head[..n_queries];
                    merge(self.tier, head, head_sums, later, later_sums, self.width);
                }
                self.finish(unit, &head[..n_queries], head_sums, out);
            }
        });
        true
    }

    /// Collects the queries of a unit, scaled.
    fn gather(&self, unit: &Unit, queries: &mut Vec<f32>) {
        queries.clear();
        for row in unit.rows.clone() {
            let scaled = self.query[self.of_row(unit, row)].iter();
            queries.extend(scaled.map(|value| value * self.attention.scale));
        }
    }

    /// Where the queries of a row lie, and its results.
    fn of_row(&self, unit: &Unit, row: usize) -> Range<usize> {
        let len = self.group * self.attention.head_dim;
        let start = (row * self.attention.n_kv_heads + unit.kv_head) * len;
        start..start + len
    }

    /// Attends to the keys of one segment. `states` and `sums` are empty before.
    fn segment(
        &self,
        unit: &Unit,
        segment: usize,
        scratch: &mut Scratch,
        states: &mut [State],
        sums: &mut [f32],
    ) {
        let Attention {
            head_dim, softcap, ..
        } = self.attention;
        let Scratch {
            queries,
            scores,
            keep,
            visible,
            tiles,
            ..
        } = scratch;
        let n_queries = states.len();
        scores.resize(n_queries * KV_BLOCK, 0.0);
        keep.resize(n_queries, 0.0);
        let blocks = self.rows[unit.rows.start].blocks;
        let start = unit.seen.start.max(segment * SEGMENT);
        let end = unit.seen.end.min((segment + 1) * SEGMENT);
        let queries = Rows {
            values: queries,
            stride: head_dim,
            n: n_queries,
        };
        for block_idx in start / KV_BLOCK..end.div_ceil(KV_BLOCK) {
            let first = block_idx * KV_BLOCK;
            let slots = |seen: &Range<usize>| {
                let slot = |position: usize| position.saturating_sub(first).min(KV_BLOCK);
                slot(seen.start)..slot(seen.end)
            };
            visible.clear();
            for row in unit.rows.clone() {
                visible.extend(std::iter::repeat_n(slots(&self.seen(row)), self.group));
            }
            let block = blocks[block_idx];
            let keys = self.tiles(unit, block, Part::Keys, tiles);
            // Padding of the last tile of keys is not multiplied.
            let keys = rows_of(keys, 0..head_dim);
            multiply(self.tier, queries, keys, None, scores, KV_BLOCK);
            take_block(self.tier, scores, visible, softcap, states, keep);

            let values = self.tiles(unit, block, Part::Values, tiles);
            // Slots that no row sees may hold anything.
            let slots = slots(&unit.seen);
            let weights = Rows {
                values: &scores[slots.start..],
                stride: KV_BLOCK,
                n: n_queries,
            };
            for tile in 0..self.width / KV_BLOCK {
                let of_tile = tile * KV_BLOCK;
                let values = rows_of(values, of_tile + slots.start..of_tile + slots.end);
                let sums = &mut sums[of_tile..];
                multiply(self.tier, weights, values, Some(keep), sums, self.width);
            }
        }
    }

    /// Returns the tiles of a block, unpacked into `memory` if need be.
    fn tiles<'b>(
        &'b self,
        unit: &Unit,
        block: u32,
        part: Part,
        memory: &'b mut Vec<f32>,
    ) -> Tiles<'b> {
        match self.kv.tiles(self.layer, block, unit.kv_head, part) {
            Tiles::Packed(bytes) => {
                self.kv.unpack(self.tier, part, bytes, memory);
                Tiles::F32(memory)
            }
            tiles => tiles,
        }
    }

    /// Writes the results of a unit.
    fn finish(&self, unit: &Unit, states: &[State], sums: &[f32], out: &Parts<'_, f32>) {
        let head_dim = self.attention.head_dim;
        let of_queries = states.iter().zip(sums.chunks_exact(self.width));
        let mut of_queries = of_queries.map(|(state, sums)| (1.0 / state.sum, &sums[..head_dim]));
        for row in unit.rows.clone() {
            // SAFETY: no other unit has this row and this head.
            let out = unsafe { out.part(self.of_row(unit, row)) };
            for (out, (inverse, sums)) in out.chunks_exact_mut(head_dim).zip(&mut of_queries) {
                for (out, sum) in out.iter_mut().zip(sums) {
                    // Adding 0 makes the sign of 0 certain: a sum that underflows may lose it when
                    // weights of 0 are added for the sake of other rows.
                    *out = sum * inverse + 0.0;
                }
            }
        }
    }
}

/// Some rows of tiles.
fn rows_of(tiles: Tiles<'_>, rows: Range<usize>) -> Tiles<'_> {
    let at = rows.start * KV_BLOCK..rows.end * KV_BLOCK;
    match tiles {
        Tiles::F32(tiles) => Tiles::F32(&tiles[at]),
        Tiles::F16(tiles) => Tiles::F16(&tiles[at]),
        Tiles::Packed(tiles) => Tiles::Packed(tiles),
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Of the caller, for all tasks.
    static PARTIAL: RefCell<Partial> = RefCell::default();
}

/// Positions whose values are summed before they are joined with those before.
const SEGMENT: usize = 256;
/// Queries that share what is read of keys and values: their sums fit the first cache.
const MAX_QUERIES: usize = 48;
/// With fewer, some threads would wait for others.
const UNITS_PER_THREAD: usize = 4;
/// Elements of the results of parts.
const MAX_PARTIAL: usize = 1 << 21;
/// Less work than this is over before a second thread has begun.
const PARALLEL_WORK: usize = 1 << 16;

#[cfg(test)]
mod tests;
