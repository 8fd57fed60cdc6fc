//! Attention of queries over the keys and values of their sequences in paged memory.
//!
//! Softmax runs online over blocks of keys (<https://arxiv.org/abs/2205.14135>). All query heads of a key
//! head, and several rows of a prompt, share each block that is read. Sums run over the blocks of a
//! segment of 256 positions, counted from position 0 of the sequence, and then over the segments in
//! order. So the order of all sums depends on what a query sees alone, and the result is the same bit for
//! bit however the sequence was cut into steps, whoever computes beside, and on however many threads.

mod product;
mod softmax;
mod step;

use std::{cell::RefCell, ops::Range};

use self::step::{Step, WorkItem};
use crate::{Error, KV_BLOCK, PagedKv, Pool, Tier, pool::Parts};

/// How queries meet keys in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention<'a> {
    /// Query heads, a multiple of the key heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Factor of the scores before the softmax, mostly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Bounds the scores: `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Positions that a query sees, its own included; `None` = all.
    pub window: Option<usize>,
    /// A score of each query head (`n_heads` in all) that takes part in its softmax and has no value.
    pub sinks: Option<&'a [f32]>,
}

/// Where a row of queries stands in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Position in the sequence, from 0.
    pub position: usize,
    /// It attends to the positions before this one: its own plus one, or further where rows see
    /// each other.
    pub end: usize,
    /// Where the blocks of its sequence begin in [`Queries::blocks`].
    pub first_block: usize,
    /// How many there are: at least `end.div_ceil(KV_BLOCK)`.
    pub n_blocks: usize,
}

/// The rows of queries of a step.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// Row by row; those of one sequence follow each other.
    pub rows: &'a [Query],
    /// The blocks of one sequence after the other, each in order.
    pub blocks: &'a [u32],
}

impl<'a> Queries<'a> {
    /// Returns the blocks of the sequence of a row; none if they are not there.
    fn blocks_of(&self, row: &Query) -> &'a [u32] {
        let blocks = self.blocks.get(row.first_block..);
        blocks
            .and_then(|blocks| blocks.get(..row.n_blocks))
            .unwrap_or_default()
    }
}

/// Attends from every row of `query` (`[queries.rows.len(), n_heads * head_dim]`) to the stored positions before
/// its end; `out` has the same shape.
///
/// # Errors
///
/// [`Error::Length`] if there is no such layer or block, the heads are not those of the layer, `n_heads`
/// is no multiple of `n_kv_heads`, a row has too few blocks or ends before its own position, or a slice
/// has another length. Nothing is written then.
pub fn attend(
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    queries: Queries<'_>,
    attention: &Attention<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    attend_at(
        Tier::best(),
        kv,
        layer,
        query,
        queries,
        attention,
        out,
        pool,
    )
}

/// As [`attend`], with the instructions of a tier.
#[expect(clippy::too_many_arguments, reason = "one more than above")]
fn attend_at(
    tier: Tier,
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    queries: Queries<'_>,
    attention: &Attention<'_>,
    out: &mut [f32],
    pool: &Pool,
) -> Result<(), Error> {
    check(kv, layer, query, queries, attention, out)?;
    let group = attention.n_heads / attention.n_kv_heads;
    let step = Step {
        tier,
        kv,
        layer,
        query,
        queries,
        attention: *attention,
        group,
        width: attention.head_dim.next_multiple_of(KV_BLOCK),
    };
    let out = Parts::new(out);
    ITEMS.with_borrow_mut(|items| {
        items.clear();
        // Later rows see more, so they come first; tasks of one head follow each other.
        for head in 0..attention.n_kv_heads {
            let tiles = row_tiles(queries.rows, (MAX_QUERIES / group).max(1));
            items.extend(tiles.map(|rows| step.item(head, rows)));
        }
        let work: usize = items.iter().map(|item| item.work(&step)).sum();
        if work < PARALLEL_WORK {
            for item in &*items {
                step.whole(item, &out);
            }
        } else if items.len() >= UNITS_PER_THREAD * pool.n_threads()
            || !step.in_parts(items, &out, pool)
        {
            let items = &items[..];
            pool.for_each_task(items.len(), |idx| step.whole(&items[idx], &out));
        }
    });
    Ok(())
}

fn check(
    kv: &PagedKv,
    layer: usize,
    query: &[f32],
    queries: Queries<'_>,
    attention: &Attention<'_>,
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
    fit("layers", layer, kv.n_layers(), layer < kv.n_layers())?;
    let stored = kv.heads(layer);
    fit("key heads", n_kv_heads, stored.0, n_kv_heads == stored.0)?;
    fit(
        "elements of a head",
        head_dim,
        stored.1,
        head_dim == stored.1,
    )?;
    let n_sinks = attention.sinks.map_or(n_heads, <[f32]>::len);
    fit("sinks", n_sinks, n_heads, n_sinks == n_heads)?;
    let shared = n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads) && head_dim > 0;
    fit("query heads", n_heads, n_kv_heads, shared && n_heads > 0)?;
    let len = queries.rows.len() * n_heads * head_dim;
    fit(
        "elements of the queries",
        query.len(),
        len,
        query.len() == len,
    )?;
    fit("elements of the results", out.len(), len, out.len() == len)?;
    for row in queries.rows {
        let (blocks, n_blocks) = (queries.blocks_of(row), row.end.div_ceil(KV_BLOCK));
        let enough = blocks.len() >= n_blocks && row.end > row.position;
        fit("blocks of a sequence", blocks.len(), n_blocks, enough)?;
        let highest = blocks[..n_blocks].iter().copied().max().unwrap_or(0) as usize;
        fit("blocks", highest, kv.n_blocks(), highest < kv.n_blocks())?;
    }
    Ok(())
}

/// Cuts rows that follow each other in one sequence into tiles of at most `max_rows`, the last one first.
fn row_tiles(rows: &[Query], max_rows: usize) -> impl Iterator<Item = Range<usize>> {
    let mut end = rows.len();
    let sequences =
        rows.chunk_by(|a, b| a.first_block == b.first_block && a.n_blocks == b.n_blocks);
    sequences.rev().flat_map(move |sequence| {
        let start = end - sequence.len();
        let tiles = (start..end).step_by(max_rows).rev();
        let tiles_end = std::mem::replace(&mut end, start);
        tiles.map(move |row| row..tiles_end.min(row + max_rows))
    })
}

thread_local! {
    /// Of the caller, for its memory.
    static ITEMS: RefCell<Vec<WorkItem>> = const { RefCell::new(Vec::new()) };
}

/// Positions whose scores meet the maximum together; whole blocks.
const ROW_PANEL: usize = 4 * KV_BLOCK;
/// Positions whose values are summed before they are joined with those before; whole row panels.
const SEGMENT: usize = 256;
/// Queries that share what is read of keys and values: their sums fit the first cache.
const MAX_QUERIES: usize = 48;
/// With fewer, some threads would wait for others.
const UNITS_PER_THREAD: usize = 4;
/// Less work than this is over before a second thread has begun.
const PARALLEL_WORK: usize = 1 << 16;

#[cfg(test)]
mod tests;
