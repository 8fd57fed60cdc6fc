//! Positions, the cache of keys and values, and attention over it.

use llmsrv_gguf::TensorType;

use super::{Gpu, LANES, MOST_GROUPS, Scratch, Tensor, Vector, groups, mismatch, unsupported};
use crate::{
    Error,
    recorder::{Access, Region, Work},
};

/// Cosines and sines for all rows of a step.
#[derive(Debug)]
pub struct Angles {
    tensor: Tensor,
    n_pairs: usize,
    interleaved: bool,
}

/// Keys and values in blocks of positions, for all layers.
#[derive(Debug)]
pub struct Cache {
    dtype: TensorType,
    /// Positions of a block.
    block: usize,
    n_blocks: usize,
    /// Elements of the keys of a position in each layer, and the memory of keys and values.
    layers: Vec<(usize, Option<[Region; 2]>)>,
}

/// Where the rows of a step are in their sequences, on the device.
#[derive(Debug)]
pub struct Step {
    n_rows: usize,
    memory: Scratch,
    /// The most positions that a row sees.
    deepest: usize,
    /// Those that all rows see together.
    n_seen: u64,
    /// Positions of a block of the cache; 0: rows see the keys of each other.
    block: usize,
    /// Its rows, where keys and values are in a cache.
    rows: Vec<StepRow>,
}

/// A row of a step, for [`Gpu::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// Position in its sequence.
    pub position: u32,
    /// End of the positions that it sees.
    pub end: u32,
    /// Its sequence, an index into the tables.
    pub sequence: usize,
}

/// Which elements of a head form a pair that is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Neighbours.
    Interleaved,
    /// One of each half of what is rotated.
    Halves,
}

/// Shapes of queries and keys in one layer, and how they meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads, a multiple of `n_kv_heads`.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head; even, at most [`LARGEST_HEAD`].
    pub head_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// Bounds the scores.
    pub softcap: Option<f32>,
    /// Positions that a query sees, its own included.
    pub window: Option<usize>,
    /// Length of the stretches of positions of which a query sees its own; wins over a window.
    pub chunk: Option<usize>,
    /// A query sees nothing behind itself, whatever end its row has.
    pub causal: bool,
}

/// Returns the bytes that keys (or values) of so many elements take in a cache; `None` of a type, or a number of elements,
/// that none is kept of: f16 takes even numbers, `Q8_0` whole blocks of 32.
pub fn kept_bytes(dtype: TensorType, width: usize) -> Option<u64> {
    match dtype {
        TensorType::F16 if width.is_multiple_of(2) => Some(2 * width as u64),
        // The scales, of two bytes each, in whole words.
        TensorType::Q8_0 if width.is_multiple_of(32) => {
            Some(width as u64 + 4 * width.div_ceil(64) as u64)
        }
        _ => None,
    }
}

/// The most elements that a head may have.
pub const LARGEST_HEAD: usize = 640;

impl Gpu {
    /// Puts cosines and sines, `[rows, pairs]` each, onto the device.
    pub fn angles(
        &mut self,
        cos: &[f32],
        sin: &[f32],
        n_pairs: usize,
        pairs: Pairs,
    ) -> Result<Angles, Error> {
        if cos.len() != sin.len() || n_pairs == 0 || !cos.len().is_multiple_of(n_pairs) {
            return Err(mismatch("angles"));
        }
        let mut tensor = self.rows(&[cos, sin].concat(), n_pairs)?;
        tensor.n_rows /= 2;
        Ok(Angles {
            tensor,
            n_pairs,
            interleaved: pairs == Pairs::Interleaved,
        })
    }

    /// Rotates every head of `head_dim` elements.
    pub fn rotate(
        &mut self,
        x: &mut Tensor,
        angles: &Angles,
        head_dim: usize,
    ) -> Result<(), Error> {
        let fits = head_dim > 0
            && x.width.is_multiple_of(head_dim)
            && 2 * angles.n_pairs <= head_dim
            && angles.tensor.n_rows == x.n_rows;
        if !fits {
            return Err(mismatch("a rotation"));
        }
        let n_heads = x.width / head_dim;
        let params = [
            x.n_rows as u32,
            n_heads as u32,
            0,
            head_dim as u32,
            angles.n_pairs as u32,
            angles.flags(),
            0,
            0,
            0,
            0,
            0,
        ];
        let n = x.n_rows * n_heads * angles.n_pairs;
        let [across, down] = groups(n.div_ceil(LANES));
        let mut bindings = [Access::None; 7];
        (bindings[1], bindings[6]) = (angles.read(), x.write());
        let work = Work::new(n as u64, 2 * x.bytes());
        self.recorder
            .dispatch("rotate", &bindings, &params, [across, down, 1], work)
    }

    /// Makes a KV cache without blocks. `widths` are the elements of the keys of a position in each layer.
    pub fn cache(&self, block: usize, widths: &[usize], dtype: TensorType) -> Result<Cache, Error> {
        if let Some(width) = widths
            .iter()
            .find(|width| kept_bytes(dtype, **width).is_none())
        {
            return Err(unsupported(format!("{width} elements of keys in {dtype}")));
        }
        Ok(Cache {
            dtype,
            block: block.max(1),
            n_blocks: 0,
            layers: widths.iter().map(|width| (*width, None)).collect(),
        })
    }

    /// Makes room for blocks `0..n_blocks` and keeps those that exist.
    pub fn reserve(&mut self, cache: &mut Cache, n_blocks: usize) -> Result<(), Error> {
        if n_blocks <= cache.n_blocks {
            return Ok(());
        }
        let (block, dtype) = (cache.block, cache.dtype);
        let bytes = |width: usize, n_blocks: usize| {
            (n_blocks * block) as u64 * kept_bytes(dtype, width).unwrap_or(0)
        };
        for (width, _) in &cache.layers {
            if bytes(*width, n_blocks) > self.recorder.max_binding() {
                return Err(Error::OutOfMemory {
                    device: self.device().name.clone(),
                    needed_bytes: bytes(*width, n_blocks),
                    free_bytes: self.recorder.max_binding(),
                });
            }
        }
        let n_before = cache.n_blocks;
        let sizes: Vec<(u64, u64)> = cache
            .layers
            .iter()
            .map(|(width, _)| (bytes(*width, n_before), bytes(*width, n_blocks)))
            .collect();
        // One layer after another, so that no more than one exists twice. A layer that is longer than the others
        // because a later one found no memory does no harm.
        for ((_, memory), (old_bytes, new_bytes)) in cache.layers.iter_mut().zip(sizes) {
            if memory.is_some_and(|[keys, _]| keys.bytes >= new_bytes) {
                continue;
            }
            let keys = self.recorder.allocate(new_bytes)?;
            let values = match self.recorder.allocate(new_bytes) {
                Ok(values) => values,
                Err(error) => {
                    self.recorder.free(&[keys])?;
                    return Err(error);
                }
            };
            let [keys, values] = [keys, values].map(|buffer| Region {
                buffer,
                start: 0,
                bytes: new_bytes,
            });
            if let Some(old) = *memory {
                for (from, to) in old.into_iter().zip([keys, values]) {
                    let kept = Region {
                        bytes: old_bytes,
                        ..from
                    };
                    self.recorder.copy(
                        kept,
                        Region {
                            bytes: old_bytes,
                            ..to
                        },
                    )?;
                }
                self.recorder.free(&old.map(|region| region.buffer))?;
            }
            *memory = Some([keys, values]);
        }
        cache.n_blocks = n_blocks;
        Ok(())
    }

    /// Copies what is stored in a block, in all layers, to another one.
    pub fn copy_block(&mut self, cache: &Cache, from: u32, to: u32) -> Result<(), Error> {
        if from.max(to) as usize >= cache.n_blocks {
            return Err(mismatch("a block"));
        }
        if from == to {
            return Ok(());
        }
        for (width, memory) in &cache.layers {
            let bytes = cache.block as u64 * kept_bytes(cache.dtype, *width).unwrap_or(0);
            for region in memory.iter().flatten() {
                let block = |id: u32| Region {
                    start: u64::from(id) * bytes,
                    bytes,
                    ..*region
                };
                self.recorder.copy(block(from), block(to))?;
            }
        }
        Ok(())
    }

    /// Puts onto the device where the rows of a step are: `tables` has the block ids of each sequence.
    pub fn step(
        &mut self,
        cache: &Cache,
        rows: &[StepRow],
        tables: &[Vec<u32>],
    ) -> Result<Step, Error> {
        let mut starts = Vec::with_capacity(tables.len());
        let mut next = rows.len() * 4;
        for table in tables {
            starts.push(next);
            next += table.len();
        }
        let mut words: Vec<u32> = Vec::with_capacity(next);
        let (mut deepest, mut n_seen) = (0, 0);
        for row in rows {
            let table = tables.get(row.sequence).zip(starts.get(row.sequence));
            let block =
                |table: &[u32], position: u32| table.get(position as usize / cache.block).copied();
            let found = table.and_then(|(table, start)| {
                let last = row.end.max(row.position + 1) - 1;
                Some((start, block(table, row.position)?, block(table, last)?))
            });
            let Some((start, own, _)) = found else {
                return Err(mismatch("a table of blocks"));
            };
            let slot = own * cache.block as u32 + row.position % cache.block as u32;
            words.extend([row.position, row.end, *start as u32, slot]);
            deepest = deepest.max(row.end as usize);
            n_seen += u64::from(row.end);
        }
        for table in tables {
            if table.iter().any(|block| *block as usize >= cache.n_blocks) {
                return Err(mismatch("a block"));
            }
            words.extend(table);
        }
        let memory = self.scratch(words.len().max(1) * 4)?;
        self.recorder
            .upload(bytemuck::cast_slice(&words), memory.region)?;
        Ok(Step {
            n_rows: rows.len(),
            memory,
            deepest,
            n_seen,
            block: cache.block,
            rows: rows.to_vec(),
        })
    }

    /// As [`Gpu::step`], of whole sequences, of each so many rows, that see all of themselves and of which nothing is
    /// stored.
    pub fn whole_step(&mut self, lengths: &[usize]) -> Result<Step, Error> {
        let mut words: Vec<u32> = Vec::with_capacity(lengths.iter().sum::<usize>() * 4);
        let mut first = 0;
        for len in lengths.iter().map(|len| *len as u32) {
            words.extend((0..len).flat_map(|position| [position, len, first, 0]));
            first += len;
        }
        let memory = self.scratch(words.len().max(1) * 4)?;
        self.recorder
            .upload(bytemuck::cast_slice(&words), memory.region)?;
        Ok(Step {
            n_rows: first as usize,
            memory,
            deepest: lengths.iter().max().copied().unwrap_or(0),
            n_seen: lengths.iter().map(|len| (len * len) as u64).sum(),
            block: 0,
            rows: Vec::new(),
        })
    }

    /// Stores keys, rotated, and values of the rows of a step, and rotates their queries, if they are given.
    /// `shape` is that of the layer.
    pub fn store(
        &mut self,
        (cache, layer): (&Cache, usize),
        (key, value): (&Tensor, &Tensor),
        query: Option<&mut Tensor>,
        angles: Option<&Angles>,
        step: &Step,
        shape: &Attention,
    ) -> Result<(), Error> {
        let [keys, values] = cache.memory(layer, shape)?;
        let width = shape.n_kv_heads * shape.head_dim;
        let has_rows = |x: &Tensor| x.width == width && x.n_rows == step.n_rows;
        let turns = |angles: &Angles| {
            2 * angles.n_pairs <= shape.head_dim && angles.tensor.n_rows == step.n_rows
        };
        if !has_rows(key) || !has_rows(value) || !angles.is_none_or(turns) {
            return Err(mismatch("keys"));
        }
        // Without angles they stay as they are.
        let query = query.filter(|_| angles.is_some());
        let query_width = shape.n_heads * shape.head_dim;
        if query
            .as_ref()
            .is_some_and(|query| query.width != query_width || query.n_rows != step.n_rows)
        {
            return Err(mismatch("queries"));
        }
        let params = [
            step.n_rows as u32,
            shape.n_heads as u32,
            shape.n_kv_heads as u32,
            shape.head_dim as u32,
            angles.map_or(0, |angles| angles.n_pairs as u32),
            angles.map_or(0, Angles::flags) + if query.is_some() { TURNS } else { 0 },
            0,
            cache.block as u32,
            0,
            0,
            0,
        ];
        let bindings = [
            Access::Write(keys),
            // The kernel reads none where it is told so; a binding of something there must be.
            angles.map_or(key.read(), Angles::read),
            key.read(),
            step.read(),
            value.read(),
            Access::Write(values),
            query.as_ref().map_or(Access::None, |query| query.write()),
        ];
        let rotated = query.as_ref().map_or(0, |query| 2 * query.bytes());
        let turned = query
            .and(angles)
            .map_or(0, |angles| angles.n_pairs * shape.n_heads);
        let (kernel, n_lanes) = match cache.dtype {
            TensorType::Q8_0 => ("store_q8_0", width.div_ceil(64)),
            _ => ("store_f16", width / 2),
        };
        let n = step.n_rows * (n_lanes + turned);
        let kept = 2 * step.n_rows as u64 * kept_bytes(cache.dtype, width).unwrap_or(0);
        let work = Work::new(n as u64, key.bytes() + value.bytes() + kept + rotated);
        let [across, down] = groups(n.div_ceil(LANES));
        self.recorder
            .dispatch(kernel, &bindings, &params, [across, down, 1], work)
    }

    /// Attends from every query to the stored positions of its sequence before its end. The score in `sinks` of each head
    /// takes part in the softmax and has no value.
    pub fn attend(
        &mut self,
        cache: &Cache,
        layer: usize,
        query: &Tensor,
        sinks: Option<&Vector>,
        step: &Step,
        shape: &Attention,
    ) -> Result<Tensor, Error> {
        let [keys, values] = cache.memory(layer, shape)?;
        if step.block != cache.block || sinks.is_some_and(|sinks| sinks.len != shape.n_heads) {
            return Err(mismatch("a step"));
        }
        let how = How {
            kernel: match cache.dtype {
                TensorType::Q8_0 => "attend_q8_0",
                _ => "attend_f16",
            },
            of_parts: Some(match cache.dtype {
                TensorType::Q8_0 => "attend_part_q8_0",
                _ => "attend_part_f16",
            }),
            of_heads: sinks.map(|sinks| sinks.region),
            kept_bytes: cache.layers.get(layer).map_or(0, |(width, _)| {
                2 * kept_bytes(cache.dtype, *width).unwrap_or(0)
            }),
            flags: u32::from(sinks.is_some()) * 4
                + u32::from(shape.causal) * 8
                + u32::from(shape.chunk.is_some()) * 128,
        };
        self.attend_to(query, [keys, values], step, shape, &how)
    }

    /// Attends from every row of whole sequences to the keys and values of all rows of its own; nothing is stored. A
    /// window is as wide behind a query as before it. With `slopes` the scores of each head fall by so much for each
    /// position of distance.
    pub fn attend_whole(
        &mut self,
        query: &Tensor,
        (key, value): (&Tensor, &Tensor),
        slopes: Option<&[f32]>,
        step: &Step,
        shape: &Attention,
    ) -> Result<Tensor, Error> {
        key.same_shape(value)?;
        let width = shape.n_kv_heads * shape.head_dim;
        if step.block != 0 || key.width != width || key.n_rows != step.n_rows || !shape.is_head() {
            return Err(mismatch("keys"));
        }
        if slopes.is_some_and(|slopes| slopes.len() != shape.n_heads) {
            return Err(mismatch("slopes"));
        }
        let slopes = slopes.map(|slopes| self.rows(slopes, slopes.len()));
        let slopes = slopes.transpose()?;
        let kept = [key, value].map(|x| x.region);
        let how = How {
            kernel: "attend_f32",
            // There are as many rows as positions: enough workgroups.
            of_parts: None,
            of_heads: slopes.as_ref().map(|slopes| slopes.region),
            kept_bytes: 8 * width as u64,
            flags: u32::from(slopes.is_some()) * 32 + u32::from(shape.window.is_some()) * 16,
        };
        self.attend_to(query, kept, step, shape, &how)
    }

    fn attend_to(
        &mut self,
        query: &Tensor,
        [keys, values]: [Region; 2],
        step: &Step,
        shape: &Attention,
        how: &How,
    ) -> Result<Tensor, Error> {
        let fits = query.width == shape.n_heads * shape.head_dim
            && query.n_rows == step.n_rows
            && shape.n_heads.is_multiple_of(shape.n_kv_heads);
        if !fits || shape.n_heads > MOST_GROUPS || step.n_rows > MOST_GROUPS {
            return Err(mismatch("queries"));
        }
        let split = how.of_parts.zip(parts_to_split(step, shape));
        let out = self.tensor(query.n_rows, query.width)?;
        let params = [
            step.n_rows as u32,
            shape.n_heads as u32,
            shape.n_kv_heads as u32,
            shape.head_dim as u32,
            0,
            how.flags,
            shape.chunk.or(shape.window).map_or(0, bounded),
            step.block as u32,
            shape.scale.to_bits(),
            shape.softcap.unwrap_or(0.0).to_bits(),
            split.map_or(0, |(_, n_parts)| n_parts as u32),
        ];
        let of_heads = how.of_heads.map_or(query.read(), Access::Read);
        let bindings = |out: &Tensor| {
            [
                out.write(),
                of_heads,
                query.read(),
                step.read(),
                Access::Read(keys),
                Access::Read(values),
            ]
        };
        let seen = shape.chunk.or(shape.window);
        let depth = seen.unwrap_or(usize::MAX).min(step.deepest) as u64;
        let n_seen = step.n_seen.min(step.n_rows as u64 * depth);
        let n_products = 2 * query.n_elements() as u64 * depth;
        let read_bytes = query.bytes() + n_seen * how.kept_bytes;
        let groups = |n_parts: usize| [shape.n_heads as u32, step.n_rows as u32, n_parts as u32];
        let Some((kernel, n_parts)) = split else {
            let work = Work::new(n_products, read_bytes + out.bytes());
            self.recorder
                .dispatch(how.kernel, &bindings(&out), &params, groups(1), work)?;
            return Ok(out);
        };
        let n = step.n_rows * shape.n_heads * n_parts;
        let parts = self.tensor(n, shape.head_dim + BESIDE_VALUES)?;
        let work = Work::new(n_products, read_bytes + parts.bytes());
        self.recorder
            .dispatch(kernel, &bindings(&parts), &params, groups(n_parts), work)?;
        let bindings = [out.write(), of_heads, parts.read(), step.read()];
        let work = Work::new(parts.n_elements() as u64, parts.bytes() + out.bytes());
        self.recorder
            .dispatch("join_parts", &bindings, &params, groups(1), work)?;
        Ok(out)
    }
}

/// Returns how many workgroups share the positions of each row and head, if it is more than one. No bit depends on it.
fn parts_to_split(step: &Step, shape: &Attention) -> Option<usize> {
    let n_groups = step.n_rows * shape.n_heads;
    if n_groups >= ENOUGH_GROUPS {
        return None;
    }
    let n_parts = step.rows.iter().map(|row| shape.parts_of(row));
    let n_parts = n_parts.max().unwrap_or(0);
    let bytes = 4 * (n_groups * n_parts * (shape.head_dim + BESIDE_VALUES)) as u64;
    let is_split = n_parts > 1 && n_parts <= MOST_GROUPS && bytes <= MOST_PART_BYTES;
    is_split.then_some(n_parts)
}

/// Returns the most bytes that parts of attention take in a layer, where sequences have at most so many positions.
pub fn part_bytes(n_heads: usize, head_dim: usize, n_positions: usize) -> u64 {
    let n_parts = n_positions.div_ceil(PART);
    if n_parts < 2 {
        return 0;
    }
    let n_groups = (ENOUGH_GROUPS - 1) / n_heads.max(1) * n_heads;
    let words = (n_groups as u64).saturating_mul(n_parts as u64);
    let bytes = words.saturating_mul(4 * (head_dim + BESIDE_VALUES) as u64);
    bytes.min(MOST_PART_BYTES)
}

/// More positions than there are, and the sum of two of them, are numbers of kernels, too.
fn bounded(n_positions: usize) -> u32 {
    n_positions.clamp(1, 1 << 30) as u32
}

/// As in `attention.wgsl`.
const TURNS: u32 = 64;
/// Positions of a part, as in `attention.wgsl`.
const PART: usize = 256;
/// Beside the values of a part: the highest score, and the sum of what its scores count.
const BESIDE_VALUES: usize = 2;
/// So many workgroups keep a large card busy: 128 multiprocessors with four of two warps each. It was chosen from what is
/// known of cards, not measured on one.
const ENOUGH_GROUPS: usize = 512;
/// Parts of a step take no more memory. Of 32 heads with 128 elements that is one row with half a million positions, or
/// fifteen with 34,000 each.
const MOST_PART_BYTES: u64 = 32 << 20;

/// What differs between kinds of attention.
struct How {
    kernel: &'static str,
    /// The one that takes a part of what a row sees.
    of_parts: Option<&'static str>,
    /// Sinks, or slopes.
    of_heads: Option<Region>,
    /// Of the keys and values of a position.
    kept_bytes: u64,
    /// As in `attention.wgsl`.
    flags: u32,
}

impl Attention {
    /// Returns how many parts a row of a step sees something of, as `parts_of` in `attention.wgsl`.
    fn parts_of(&self, row: &StepRow) -> usize {
        let (position, end) = (row.position as usize, row.end as usize);
        let end = if self.causal {
            end.min(position + 1)
        } else {
            end
        };
        let first = match (self.chunk, self.window) {
            (Some(chunk), _) => position - position % chunk.max(1),
            (None, Some(window)) => (position + 1).saturating_sub(window),
            (None, None) => 0,
        };
        end.div_ceil(PART).saturating_sub(first / PART).max(1)
    }

    fn is_head(&self) -> bool {
        self.head_dim.is_multiple_of(2) && (2..=LARGEST_HEAD).contains(&self.head_dim)
    }
}

impl Angles {
    fn flags(&self) -> u32 {
        2 + u32::from(self.interleaved)
    }

    fn read(&self) -> Access {
        self.tensor.read()
    }
}

impl Step {
    fn read(&self) -> Access {
        Access::Read(self.memory.region)
    }
}

impl Cache {
    /// Returns the bytes of a block over all layers.
    pub fn block_bytes(&self) -> usize {
        let bytes = self
            .layers
            .iter()
            .map(|(width, _)| kept_bytes(self.dtype, *width));
        2 * self.block * bytes.flatten().sum::<u64>() as usize
    }

    fn memory(&self, layer: usize, shape: &Attention) -> Result<[Region; 2], Error> {
        let width = shape.n_kv_heads * shape.head_dim;
        match self.layers.get(layer) {
            Some((found, Some(memory))) if *found == width && shape.is_head() => Ok(*memory),
            _ => Err(mismatch("a layer")),
        }
    }
}
