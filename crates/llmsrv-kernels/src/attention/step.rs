//! One call: its queries in units, each over its segments.
#![expect(unsafe_code, reason = "tasks write rows of one result")]

use std::{cell::RefCell, f32::consts::LOG2_E, iter::repeat_n, ops::Range};

use super::{
    Attention, Query, SEGMENT, STRIP,
    product::{Elements, Panel, Rows, multiply},
    softmax::{State, merge, take_strip},
};
use crate::{
    KV_BLOCK, PagedKv, Pool, Tier,
    brain::{expand, round_all},
    kv::{Part, Tiles},
    pool::Parts,
};

/// One call.
pub(super) struct Step<'a> {
    pub(super) tier: Tier,
    pub(super) kv: &'a PagedKv,
    pub(super) layer: usize,
    pub(super) query: &'a [f32],
    pub(super) rows: &'a [Query<'a>],
    pub(super) attention: Attention<'a>,
    /// Query heads of a key head.
    pub(super) group: usize,
    /// Elements of a head, padded to whole tiles.
    pub(super) width: usize,
}

/// Rows of one sequence and one key head; a query is one of its query heads in one of the rows.
pub(super) struct Unit {
    kv_head: usize,
    rows: Range<usize>,
    /// Positions that at least one row sees.
    seen: Range<usize>,
    /// How many blocks ahead of their use memory is asked for them.
    n_ahead: usize,
}

impl Unit {
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
    brain_queries: Vec<u16>,
    scores: Vec<f32>,
    /// The weights that the scores became, as numbers of bf16.
    brain_weights: Vec<u16>,
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
    pub(super) fn unit(&self, kv_head: usize, rows: Range<usize>) -> Unit {
        let first = rows.clone().map(|row| self.seen(row).start).min();
        let end = rows.clone().map(|row| self.seen(row).end).max();
        // Few queries take little time for a block, so that the answers pile up; and blocks of many bytes
        // drive each other out of the first cache. With more queries all this hardly matters, and whole
        // strips have the least overhead.
        let n_ahead = if rows.len() * self.group > FEW_QUERIES {
            STRIP / KV_BLOCK
        } else {
            (TILES_AHEAD * KV_BLOCK / self.width).clamp(1, STRIP / KV_BLOCK)
        };
        Unit {
            kv_head,
            rows,
            n_ahead,
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
    pub(super) fn whole(&self, unit: &Unit, out: &Parts<'_, f32>) {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut all = std::mem::take(&mut scratch.all);
            let mut segment = std::mem::take(&mut scratch.segment);
            let n_queries = unit.rows.len() * self.group;
            all.reset(n_queries, self.width);
            self.gather(unit, scratch);
            let mut segments = unit.segments();
            if let Some(first) = segments.next() {
                self.segment(unit, first, scratch, &mut all.states, &mut all.sums);
            }
            for idx in segments {
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
    pub(super) fn in_parts(&self, units: &[Unit], out: &Parts<'_, f32>, pool: &Pool) -> bool {
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
                        self.gather(unit, scratch);
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

    /// Collects the queries of a unit, scaled so that the scores are to the base 2, or can be capped.
    fn gather(&self, unit: &Unit, scratch: &mut Scratch) {
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
            brain_queries,
            ..
        } = scratch;
        queries.clear();
        for row in unit.rows.clone() {
            for query in self.query[self.of_row(unit, row)].chunks_exact(head_dim) {
                queries.extend(query.iter().map(|value| value * scale));
                queries.extend(repeat_n(0.0, self.width - head_dim));
            }
        }
        if self.kv.is_brain() {
            brain_queries.resize(queries.len(), 0);
            round_all(self.tier, queries, brain_queries);
        }
        if self.kv.is_brain() && !self.has_instruction() {
            for (query, rounded) in queries.iter_mut().zip(brain_queries) {
                *query = expand(*rounded);
            }
        }
    }

    /// Tells whether numbers of bf16 are multiplied as they are.
    fn has_instruction(&self) -> bool {
        self.tier == Tier::Avx512Bf16
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
        let Scratch {
            queries,
            brain_queries,
            scores,
            brain_weights,
            keep,
            visible,
            tiles,
            ..
        } = scratch;
        let n_queries = states.len();
        scores.resize(n_queries * STRIP, 0.0);
        keep.resize(n_queries, 0.0);
        tiles.resize(STRIP / KV_BLOCK * self.width * KV_BLOCK, 0.0);
        let is_brain = self.kv.is_brain();
        brain_weights.resize(if is_brain { scores.len() } else { 0 }, 0);
        let has_instruction = is_brain && self.has_instruction();
        let queries = Rows {
            values: if has_instruction {
                Elements::Brain(brain_queries)
            } else {
                Elements::F32(queries)
            },
            stride: self.width,
            n: n_queries,
        };
        let start = unit.seen.start.max(segment * SEGMENT);
        let end = unit.seen.end.min((segment + 1) * SEGMENT);
        for strip in start / STRIP..end.div_ceil(STRIP) {
            let first = strip * STRIP;
            let column = |position: usize| position.saturating_sub(first).min(STRIP);
            let columns = |seen: &Range<usize>| column(seen.start)..column(seen.end);
            self.score(unit, columns(&unit.seen), first, queries, tiles, scores);
            visible.clear();
            for row in unit.rows.clone() {
                visible.extend(repeat_n(columns(&self.seen(row)), self.group));
            }
            let softcap = self.attention.softcap;
            take_strip(
                self.tier,
                scores,
                brain_weights,
                visible,
                softcap,
                states,
                keep,
            );
            let columns = columns(&unit.seen);
            let weights = Rows {
                values: if has_instruction {
                    Elements::Brain(brain_weights)
                } else {
                    Elements::F32(scores)
                },
                stride: STRIP,
                n: n_queries,
            };
            let mut keep = &keep[..];
            let len = unit.n_ahead * KV_BLOCK;
            for start in (0..STRIP).step_by(len) {
                let columns = columns.start.max(start)..columns.end.min(start + len);
                if !columns.is_empty() {
                    self.sum(unit, columns, first, weights, keep, tiles, sums);
                    keep = &KEEP_ALL[..n_queries.min(FEW_QUERIES)];
                }
            }
        }
    }

    /// Computes the scores of the blocks with these columns of the strip that begins at position
    /// `first`.
    fn score(
        &self,
        unit: &Unit,
        columns: Range<usize>,
        first: usize,
        queries: Rows<'_>,
        memory: &mut [f32],
        scores: &mut [f32],
    ) {
        for column in (0..STRIP).step_by(KV_BLOCK) {
            if column + KV_BLOCK <= columns.start || column >= columns.end {
                continue;
            }
            let block_idx = (first + column) / KV_BLOCK;
            let Some(keys) = self.stored(unit, block_idx, Part::Keys) else {
                continue;
            };
            let memory = &mut memory[..self.width * KV_BLOCK];
            let keys = self.unpacked(keys, Part::Keys, memory);
            // Padding of the last tile of keys is not multiplied, but to make a pair.
            let rows = 0..self.attention.head_dim.next_multiple_of(2);
            let panel = Panel {
                rows: keys.rows(rows.clone()),
                first: 0,
                ahead: self.ahead(unit, block_idx, Part::Keys).rows(rows),
            };
            let scores = &mut scores[column..];
            multiply(self.tier, queries, &[panel], None, scores, STRIP);
        }
    }

    /// Adds the values of these columns of the strip. Other columns may hold anything.
    #[expect(clippy::too_many_arguments, reason = "one part of the loop above")]
    fn sum(
        &self,
        unit: &Unit,
        columns: Range<usize>,
        first: usize,
        weights: Rows<'_>,
        keep: &[f32],
        memory: &mut [f32],
        sums: &mut [f32],
    ) {
        let mut of_blocks = [(Tiles::NONE, Tiles::NONE); STRIP / KV_BLOCK];
        let memory = memory.chunks_exact_mut(self.width * KV_BLOCK);
        for ((idx, (values, ahead)), memory) in of_blocks.iter_mut().enumerate().zip(memory) {
            let block_idx = first / KV_BLOCK + idx;
            if idx * KV_BLOCK >= columns.end || (idx + 1) * KV_BLOCK <= columns.start {
                continue;
            }
            if let Some(stored) = self.stored(unit, block_idx, Part::Values) {
                *values = self.unpacked(stored, Part::Values, memory);
            }
            *ahead = self.ahead(unit, block_idx, Part::Values);
        }
        // Of a pair that is not wholly visible only one half is multiplied: the other may be no number.
        let is_odd = |column: usize| self.kv.is_brain() && !column.is_multiple_of(2);
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
                rows: Tiles::Brain(pair),
                first,
                ahead: Tiles::NONE,
            };
            let mut panels = [Panel::NONE; STRIP / KV_BLOCK + 2];
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

    /// Returns what is needed `n_ahead` blocks after this one, in the order of use: the keys of a strip, its
    /// values, the keys of the next.
    fn ahead(&self, unit: &Unit, block_idx: usize, part: Part) -> Tiles<'_> {
        const N_BLOCKS: usize = STRIP / KV_BLOCK;
        let idx = block_idx % N_BLOCKS + unit.n_ahead;
        let first = block_idx - block_idx % N_BLOCKS;
        let (block_idx, part) = match part {
            _ if idx < N_BLOCKS => (first + idx, part),
            Part::Keys => (first + idx - N_BLOCKS, Part::Values),
            Part::Values => (first + idx, Part::Keys),
        };
        if block_idx * KV_BLOCK >= unit.seen.end {
            return Tiles::NONE;
        }
        self.stored(unit, block_idx, part).unwrap_or(Tiles::NONE)
    }

    /// Returns the tiles of a block of the unit's sequence.
    fn stored(&self, unit: &Unit, block_idx: usize, part: Part) -> Option<Tiles<'_>> {
        let block = self.rows[unit.rows.start].blocks.get(block_idx)?;
        Some(self.kv.tiles(self.layer, *block, unit.kv_head, part))
    }

    /// Returns tiles to compute with, in `memory` if they were packed.
    fn unpacked<'b>(&self, tiles: Tiles<'b>, part: Part, memory: &'b mut [f32]) -> Tiles<'b> {
        match tiles {
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
        let mut of_queries = of_queries.enumerate().map(|(idx, (state, sums))| {
            let sink = self.attention.sinks.map_or(0.0, |sinks| {
                let sink = sinks[unit.kv_head * self.group + idx % self.group];
                (sink * LOG2_E - state.max).exp2()
            });
            (1.0 / (state.sum() + sink), &sums[..head_dim])
        });
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

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// Of the caller, for all tasks.
    static PARTIAL: RefCell<Partial> = RefCell::default();
}

/// What sums are multiplied by that stay as they are.
const KEEP_ALL: [f32; FEW_QUERIES] = [1.0; FEW_QUERIES];
/// Queries of one token.
const FEW_QUERIES: usize = 12;
/// Tiles for which memory is asked ahead of their use, for few queries.
const TILES_AHEAD: usize = 8;
/// Elements of the results of parts.
const MAX_PARTIAL: usize = 1 << 21;
