//! One call: its queries in items, each over its segments.
#![expect(unsafe_code, reason = "tasks write rows of one result")]

use std::{cell::RefCell, f32::consts::LOG2_E, iter::repeat_n, ops::Range};

use super::{
    Attention, Queries, ROW_PANEL, SEGMENT,
    product::{Elements, Panel, Rows, multiply, reads_q8},
    softmax::{State, merge, take_row_panel},
};
use crate::{
    KV_BLOCK, PagedKv, Pool, Tier,
    bf16::{expand, round_all},
    kv::{Part, Tiles},
    pool::Parts,
};

/// One call.
pub(super) struct Step<'a> {
    pub(super) tier: Tier,
    pub(super) kv: &'a PagedKv,
    pub(super) layer: usize,
    pub(super) query: &'a [f32],
    pub(super) queries: Queries<'a>,
    pub(super) attention: Attention<'a>,
    /// Query heads of a key head.
    pub(super) group: usize,
    /// Elements of a head, padded to whole tiles.
    pub(super) width: usize,
}

/// Rows of one sequence and one key head; a query is one of its query heads in one of the rows.
pub(super) struct WorkItem {
    kv_head: usize,
    rows: Range<usize>,
    /// Positions that at least one row sees.
    seen: Range<usize>,
    /// How many blocks ahead of their use memory is asked for them.
    prefetch_distance: usize,
}

impl WorkItem {
    fn segments(&self) -> Range<usize> {
        self.seen.start / SEGMENT..self.seen.end.div_ceil(SEGMENT)
    }

    /// Multiplications of keys.
    pub(super) fn work(&self, step: &Step<'_>) -> usize {
        self.seen.len() * self.rows.len() * step.group * step.width
    }
}

/// Memory of one thread.
#[derive(Default)]
struct Scratch {
    /// `width` elements each.
    queries: Vec<f32>,
    /// The same as numbers of bf16, where the cache has such.
    bf16_queries: Vec<u16>,
    scores: Vec<f32>,
    /// The weights that the scores became, as numbers of bf16.
    bf16_weights: Vec<u16>,
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
    pub(super) fn item(&self, kv_head: usize, rows: Range<usize>) -> WorkItem {
        let first = rows.clone().map(|row| self.seen(row).start).min();
        let end = rows.clone().map(|row| self.seen(row).end).max();
        // Few queries take little time for a block, so that the answers pile up; and blocks of many bytes
        // drive each other out of the first cache. With more queries all this hardly matters, and whole
        // row panels have the least overhead.
        let prefetch_distance = if rows.len() * self.group > FEW_QUERIES {
            ROW_PANEL / KV_BLOCK
        } else {
            (TILES_AHEAD * KV_BLOCK / self.width).clamp(1, ROW_PANEL / KV_BLOCK)
        };
        WorkItem {
            kv_head,
            rows,
            prefetch_distance,
            seen: first.unwrap_or(0)..end.unwrap_or(0),
        }
    }

    /// The positions that a row sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let row = &self.queries.rows[row];
        let first = |window: usize| (row.position + 1).saturating_sub(window);
        self.attention.window.map_or(0, first)..row.end
    }

    /// Computes an item segment by segment.
    pub(super) fn whole(&self, item: &WorkItem, out: &Parts<'_, f32>) {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut all = std::mem::take(&mut scratch.all);
            let mut segment = std::mem::take(&mut scratch.segment);
            let n_queries = item.rows.len() * self.group;
            all.reset(n_queries, self.width);
            self.gather(item, scratch);
            let mut segments = item.segments();
            if let Some(first) = segments.next() {
                self.segment(item, first, scratch, &mut all.states, &mut all.sums);
            }
            for idx in segments {
                segment.reset(n_queries, self.width);
                let (states, sums) = (&mut segment.states[..], &mut segment.sums[..]);
                self.segment(item, idx, scratch, states, sums);
                merge(
                    self.tier,
                    &mut all.states,
                    &mut all.sums,
                    states,
                    sums,
                    self.width,
                );
            }
            self.finish(item, &all.states, &all.sums, out);
            scratch.all = all;
            scratch.segment = segment;
        });
    }

    /// Computes the segments of all items as tasks of their own. Returns false, with nothing done, if
    /// there is nothing to split or their results would need too much memory.
    pub(super) fn in_parts(&self, items: &[WorkItem], out: &Parts<'_, f32>, pool: &Pool) -> bool {
        let n_tasks: usize = items.iter().map(|item| item.segments().len()).sum();
        let max_queries = items.iter().map(|item| item.rows.len() * self.group).max();
        let max_queries = max_queries.unwrap_or(0);
        if n_tasks == items.len() || n_tasks * max_queries * self.width > MAX_PARTIAL {
            return false;
        }
        PARTIAL.with_borrow_mut(|(partial, tasks)| {
            tasks.clear();
            for (idx, item) in items.iter().enumerate() {
                tasks.extend(item.segments().map(|segment| (idx, segment)));
            }
            partial.reset(n_tasks * max_queries, self.width);
            let (Partial { states, sums }, tasks) = (partial, &tasks[..]);
            let (of_task, all) = (max_queries * self.width, self.width);
            {
                let (states, sums) = (Parts::new(states), Parts::new(sums));
                pool.for_each_task(tasks.len(), |task| {
                    let (item, segment) = tasks[task];
                    let item = &items[item];
                    let n_queries = item.rows.len() * self.group;
                    let first = task * max_queries;
                    // SAFETY: the queries of each task are its own.
                    let states = unsafe { states.part(first..first + n_queries) };
                    // SAFETY: as above.
                    let sums = unsafe { sums.part(first * all..(first + n_queries) * all) };
                    SCRATCH.with_borrow_mut(|scratch| {
                        self.gather(item, scratch);
                        self.segment(item, segment, scratch, states, sums);
                    });
                });
            }
            let mut task = 0;
            for item in items {
                let n_queries = item.rows.len() * self.group;
                let (first, n_segments) = (task, item.segments().len());
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
                self.finish(item, &head[..n_queries], head_sums, out);
            }
        });
        true
    }

    /// Collects the queries of an item, scaled so that the scores are to the base 2, or can be capped.
    fn gather(&self, item: &WorkItem, scratch: &mut Scratch) {
        let Attention {
            head_dim,
            scale,
            softcap,
            ..
        } = self.attention;
        let scale = match softcap {
            Some(_) => scale,
            None => scale * LOG2_E,
        };
        let Scratch {
            queries,
            bf16_queries,
            ..
        } = scratch;
        queries.clear();
        for row in item.rows.clone() {
            for query in self.query[self.of_row(item, row)].chunks_exact(head_dim) {
                queries.extend(query.iter().map(|value| value * scale));
                queries.extend(repeat_n(0.0, self.width - head_dim));
            }
        }
        if self.kv.is_bf16() {
            bf16_queries.resize(queries.len(), 0);
            round_all(self.tier, queries, bf16_queries);
        }
        if self.kv.is_bf16() && !self.has_instruction() {
            for (query, rounded) in queries.iter_mut().zip(bf16_queries) {
                *query = expand(*rounded);
            }
        }
    }

    /// Tells whether numbers of bf16 are multiplied as they are.
    fn has_instruction(&self) -> bool {
        self.tier == Tier::Avx512Bf16
    }

    /// Where the queries of a row lie, and its results.
    fn of_row(&self, item: &WorkItem, row: usize) -> Range<usize> {
        let len = self.group * self.attention.head_dim;
        let start = (row * self.attention.n_kv_heads + item.kv_head) * len;
        start..start + len
    }

    /// Attends to the keys of one segment. `states` and `sums` are empty before.
    fn segment(
        &self,
        item: &WorkItem,
        segment: usize,
        scratch: &mut Scratch,
        states: &mut [State],
        sums: &mut [f32],
    ) {
        let Scratch {
            queries,
            bf16_queries,
            scores,
            bf16_weights,
            keep,
            visible,
            tiles,
            ..
        } = scratch;
        let n_queries = states.len();
        scores.resize(n_queries * ROW_PANEL, 0.0);
        keep.resize(n_queries, 0.0);
        tiles.resize(ROW_PANEL / KV_BLOCK * self.width * KV_BLOCK, 0.0);
        let is_bf16 = self.kv.is_bf16();
        bf16_weights.resize(if is_bf16 { scores.len() } else { 0 }, 0);
        let has_instruction = is_bf16 && self.has_instruction();
        let queries = Rows {
            values: if has_instruction {
                Elements::Bf16(bf16_queries)
            } else {
                Elements::F32(queries)
            },
            stride: self.width,
            n: n_queries,
        };
        let start = item.seen.start.max(segment * SEGMENT);
        let end = item.seen.end.min((segment + 1) * SEGMENT);
        for row_panel in start / ROW_PANEL..end.div_ceil(ROW_PANEL) {
            let first = row_panel * ROW_PANEL;
            let column = |position: usize| position.saturating_sub(first).min(ROW_PANEL);
            let columns = |seen: &Range<usize>| column(seen.start)..column(seen.end);
            self.score(item, columns(&item.seen), first, queries, tiles, scores);
            visible.clear();
            for row in item.rows.clone() {
                visible.extend(repeat_n(columns(&self.seen(row)), self.group));
            }
            let softcap = self.attention.softcap;
            take_row_panel(
                self.tier,
                scores,
                bf16_weights,
                visible,
                softcap,
                states,
                keep,
            );
            let columns = columns(&item.seen);
            let weights = Rows {
                values: if has_instruction {
                    Elements::Bf16(bf16_weights)
                } else {
                    Elements::F32(scores)
                },
                stride: ROW_PANEL,
                n: n_queries,
            };
            let mut keep = &keep[..];
            let len = item.prefetch_distance * KV_BLOCK;
            for start in (0..ROW_PANEL).step_by(len) {
                let columns = columns.start.max(start)..columns.end.min(start + len);
                if !columns.is_empty() {
                    self.sum(item, columns, first, weights, keep, tiles, sums);
                    keep = &KEEP_ALL[..n_queries.min(FEW_QUERIES)];
                }
            }
        }
    }

    /// Computes the scores of the blocks with these columns of the row panel that begins at position
    /// `first`.
    fn score(
        &self,
        item: &WorkItem,
        columns: Range<usize>,
        first: usize,
        queries: Rows<'_>,
        memory: &mut [f32],
        scores: &mut [f32],
    ) {
        for column in (0..ROW_PANEL).step_by(KV_BLOCK) {
            if column + KV_BLOCK <= columns.start || column >= columns.end {
                continue;
            }
            let block_idx = (first + column) / KV_BLOCK;
            let Some(keys) = self.stored(item, block_idx, Part::Keys) else {
                continue;
            };
            let memory = &mut memory[..self.width * KV_BLOCK];
            let keys = self.unpacked(keys, Part::Keys, memory);
            // Padding of the last tile of keys is not multiplied, but to make a pair.
            let rows = 0..self.attention.head_dim.next_multiple_of(2);
            let panel = Panel {
                rows: keys.rows(rows.clone()),
                first: 0,
                ahead: self.ahead(item, block_idx, Part::Keys).rows(rows),
            };
            let scores = &mut scores[column..];
            multiply(self.tier, queries, &[panel], None, scores, ROW_PANEL);
        }
    }

    /// Adds the values of these columns of the row panel. Other columns may hold anything.
    #[expect(clippy::too_many_arguments, reason = "one part of the loop above")]
    fn sum(
        &self,
        item: &WorkItem,
        columns: Range<usize>,
        first: usize,
        weights: Rows<'_>,
        keep: &[f32],
        memory: &mut [f32],
        sums: &mut [f32],
    ) {
        let mut of_blocks = [(Tiles::NONE, Tiles::NONE); ROW_PANEL / KV_BLOCK];
        let memory = memory.chunks_exact_mut(self.width * KV_BLOCK);
        for ((idx, (values, ahead)), memory) in of_blocks.iter_mut().enumerate().zip(memory) {
            let block_idx = first / KV_BLOCK + idx;
            if idx * KV_BLOCK >= columns.end || (idx + 1) * KV_BLOCK <= columns.start {
                continue;
            }
            if let Some(stored) = self.stored(item, block_idx, Part::Values) {
                *values = self.unpacked(stored, Part::Values, memory);
            }
            *ahead = self.ahead(item, block_idx, Part::Values);
        }
        // Of a pair that is not wholly visible only one half is multiplied: the other may be a NaN.
        let is_odd = |column: usize| self.kv.is_bf16() && !column.is_multiple_of(2);
        let whole = columns.start + usize::from(is_odd(columns.start))
            ..columns.end - usize::from(is_odd(columns.end));
        for at in (0..self.width).step_by(KV_BLOCK) {
            let alone = |column: usize| {
                let (values, _) = of_blocks[column / KV_BLOCK];
                values.alone(at + column % KV_BLOCK)
            };
            let first_edge = is_odd(columns.start).then(|| alone(columns.start));
            let last_edge = is_odd(columns.end).then(|| alone(columns.end - 1));
            let edge = |pair, first| Panel {
                rows: Tiles::Bf16(pair),
                first,
                ahead: Tiles::NONE,
            };
            let mut panels = [Panel::NONE; ROW_PANEL / KV_BLOCK + 2];
            let mut n_panels = 0;
            let mut add = |panel| {
                panels[n_panels] = panel;
                n_panels += 1;
            };
            if let Some(pair) = &first_edge {
                add(edge(pair, columns.start - 1));
            }
            for (idx, (values, ahead)) in of_blocks.iter().enumerate() {
                let column = idx * KV_BLOCK;
                let slots = whole.start.max(column)..whole.end.min(column + KV_BLOCK);
                if slots.is_empty() || values.n_rows() == 0 {
                    continue;
                }
                let rows = at + slots.start - column..at + slots.end - column;
                add(Panel {
                    rows: values.rows(rows.clone()),
                    first: slots.start,
                    ahead: ahead.rows(rows),
                });
            }
            if let Some(pair) = &last_edge {
                add(edge(pair, columns.end - 1));
            }
            let (panels, sums) = (&panels[..n_panels], &mut sums[at..]);
            multiply(self.tier, weights, panels, Some(keep), sums, self.width);
        }
    }

    /// Returns what is needed `prefetch_distance` blocks after this one, in the order of use: the keys of a row panel, its
    /// values, the keys of the next.
    fn ahead(&self, item: &WorkItem, block_idx: usize, part: Part) -> Tiles<'_> {
        const N_BLOCKS: usize = ROW_PANEL / KV_BLOCK;
        let idx = block_idx % N_BLOCKS + item.prefetch_distance;
        let first = block_idx - block_idx % N_BLOCKS;
        let (block_idx, part) = match part {
            _ if idx < N_BLOCKS => (first + idx, part),
            Part::Keys => (first + idx - N_BLOCKS, Part::Values),
            Part::Values => (first + idx, Part::Keys),
        };
        if block_idx * KV_BLOCK >= item.seen.end {
            return Tiles::NONE;
        }
        self.stored(item, block_idx, part).unwrap_or(Tiles::NONE)
    }

    /// Returns the tiles of a block of the item's sequence.
    fn stored(&self, item: &WorkItem, block_idx: usize, part: Part) -> Option<Tiles<'_>> {
        let block = self
            .queries
            .blocks_of(&self.queries.rows[item.rows.start])
            .get(block_idx)?;
        Some(self.kv.tiles(self.layer, *block, item.kv_head, part))
    }

    /// Returns tiles to compute with, in `memory` if they were packed.
    fn unpacked<'b>(&self, tiles: Tiles<'b>, part: Part, memory: &'b mut [f32]) -> Tiles<'b> {
        match tiles {
            Tiles::Packed(bytes) => {
                self.kv.unpack(part, bytes, memory);
                Tiles::F32(memory)
            }
            Tiles::Q8(rows) if !reads_q8(self.tier) => {
                rows.unpack(memory);
                Tiles::F32(memory)
            }
            tiles => tiles,
        }
    }

    /// Writes the results of an item.
    fn finish(&self, item: &WorkItem, states: &[State], sums: &[f32], out: &Parts<'_, f32>) {
        let head_dim = self.attention.head_dim;
        let of_queries = states.iter().zip(sums.chunks_exact(self.width));
        let mut of_queries = of_queries.enumerate().map(|(idx, (state, sums))| {
            let sink = self.attention.sinks.map_or(0.0, |sinks| {
                let sink = sinks[item.kv_head * self.group + idx % self.group];
                (sink * LOG2_E - state.max).exp2()
            });
            (1.0 / (state.sum() + sink), &sums[..head_dim])
        });
        for row in item.rows.clone() {
            // SAFETY: no other item has this row and this head.
            let out = unsafe { out.part(self.of_row(item, row)) };
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

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Of the caller, for all tasks; which item and segment each of them is.
    static PARTIAL: RefCell<(Partial, Vec<(usize, usize)>)> = RefCell::default();
}

/// What sums are multiplied by that stay as they are.
const KEEP_ALL: [f32; FEW_QUERIES] = [1.0; FEW_QUERIES];
/// Queries of one token.
const FEW_QUERIES: usize = 12;
/// Tiles for which memory is asked ahead of their use, for few queries.
const TILES_AHEAD: usize = 8;
/// Elements of the results of parts.
const MAX_PARTIAL: usize = 1 << 21;
