//! Memory for keys and values, in blocks of positions that a sequence strings together as it likes.
//!
//! A block holds 32 positions. What one head stores there is cut into tiles of 32 rows of 32 elements,
//! made for [`crate::attention`]: in a tile of keys the elements of a row are those of 32 positions, in
//! a tile of values those of 32 dimensions. So scores and sums of values are products with a row of a
//! tile, and no vector is ever summed across.
//!
//! Instructions for bf16 add two products at once, so its tiles hold their rows in pairs: an element of
//! one row beside that of the next.
#![expect(
    unsafe_code,
    reason = "threads write what different heads store in the same blocks"
)]

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use half::{f16, slice::HalfFloatSliceExt};
use llmsrv_gguf::TensorType;
use smallvec::SmallVec;

use crate::{
    Error, Pool, RopeStyle, bf16,
    packed::{Arena, Region},
    pool::Parts,
    quant, rotate,
};

/// Positions in a block, and rows and columns of a tile.
pub const KV_BLOCK: usize = 32;

/// Keys and values of all layers of a model, by block.
///
/// Memory comes in chunks of blocks, on large pages where the system has them: growing moves nothing, and
/// a page that was never written costs nothing.
#[derive(Debug)]
pub struct PagedKv {
    shape: Shape,
    arena: Arena,
    chunks: Vec<Region>,
}

/// The size of everything in a cache.
#[derive(Clone, Debug)]
struct Shape {
    ty: TensorType,
    layers: Vec<LayerShape>,
    tile_bytes: usize,
    block_bytes: usize,
}

/// The size of what one layer stores.
#[derive(Clone, Copy, Debug, Default)]
struct LayerShape {
    n_heads: usize,
    head_dim: usize,
    /// Where it begins in a block.
    start: usize,
    /// Bytes of the keys of a head in a block, and as many of the values: whole tiles, of which the last
    /// may be padded.
    part_bytes: usize,
}

/// Where a position is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of the block.
    pub block: u32,
    /// The position within it, below [`KV_BLOCK`].
    pub slot: usize,
}

/// Angles by which the keys of rows are rotated.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Which elements of a head turn together.
    pub style: RopeStyle,
    /// How many pairs of a head turn, at most half of its elements.
    pub n_pairs: usize,
    /// Cosines: `[rows, n_pairs]`.
    pub cos: &'a [f32],
    /// Sines: `[rows, n_pairs]`.
    pub sin: &'a [f32],
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Keys,
    Values,
}

/// The tiles of one head in one block, one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tiles<'a> {
    F32(&'a [f32]),
    /// The bits of f16.
    F16(&'a [u16]),
    /// The bits of bf16, by pairs of rows: `[row / 2][column][row % 2]`.
    Bf16(&'a [u16]),
    Q8(Q8Rows<'a>),
    /// To be unpacked first, by [`PagedKv::unpack`].
    Packed(&'a [u8]),
}

impl<'a> Tiles<'a> {
    /// No rows.
    pub(crate) const NONE: Tiles<'static> = Tiles::F32(&[]);

    /// Returns the pair of rows that holds this one, with zeros in place of the other; zeros alone where
    /// there are no pairs.
    pub(crate) fn alone(self, row: usize) -> [u16; 2 * KV_BLOCK] {
        let mut pair = [0; 2 * KV_BLOCK];
        if let Tiles::Bf16(tiles) = self {
            let stored = &tiles[row / 2 * pair.len()..][..pair.len()];
            for idx in (row % 2..pair.len()).step_by(2) {
                pair[idx] = stored[idx];
            }
        }
        pair
    }

    /// Returns the number of rows; 0 of packed tiles.
    pub(crate) fn n_rows(self) -> usize {
        match self {
            Tiles::F32(tiles) => tiles.len() / KV_BLOCK,
            Tiles::F16(tiles) | Tiles::Bf16(tiles) => tiles.len() / KV_BLOCK,
            Tiles::Q8(rows) => rows.n,
            Tiles::Packed(_) => 0,
        }
    }

    /// Returns some of the rows; nothing of packed tiles and of none. Pairs are not cut.
    pub(crate) fn rows(self, rows: Range<usize>) -> Tiles<'a> {
        let at = rows.start * KV_BLOCK..rows.end * KV_BLOCK;
        match self {
            Tiles::F32([]) | Tiles::Packed(_) => Tiles::NONE,
            Tiles::F32(tiles) => Tiles::F32(&tiles[at]),
            Tiles::F16(tiles) => Tiles::F16(&tiles[at]),
            Tiles::Bf16(tiles) => {
                debug_assert!(
                    [rows.start, rows.end]
                        .iter()
                        .all(|row| row.is_multiple_of(2))
                );
                Tiles::Bf16(&tiles[at])
            }
            Tiles::Q8(of) => Tiles::Q8(of.rows(rows)),
        }
    }
}

impl PagedKv {
    /// Prepares for layers with so many heads of so many elements (`(n_heads, head_dim)`), which are
    /// stored as `ty`. There is no memory yet.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if keys and values cannot be stored as `ty`, whose blocks must divide
    /// [`KV_BLOCK`]; [`Error::OutOfMemory`] if the size of a block does not fit a number.
    pub fn new(layers: &[(usize, usize)], ty: TensorType) -> Result<PagedKv, Error> {
        if !quant::supported(ty) || !KV_BLOCK.is_multiple_of(ty.block_len()) {
            return Err(Error::Unsupported(ty));
        }
        let tile_bytes = KV_BLOCK * row_bytes(ty);
        let mut block_bytes = 0_usize;
        let layers = layers.iter().map(|&(n_heads, head_dim)| {
            let layer = LayerShape {
                n_heads,
                head_dim,
                start: block_bytes,
                part_bytes: head_dim.div_ceil(KV_BLOCK).checked_mul(tile_bytes)?,
            };
            let of_heads = layer.part_bytes.checked_mul(n_heads.checked_mul(2)?)?;
            block_bytes = block_bytes.checked_add(of_heads)?;
            Some(layer)
        });
        let layers = layers.collect::<Option<Vec<_>>>();
        let layers = layers.ok_or(Error::OutOfMemory(usize::MAX))?;
        let shape = Shape {
            ty,
            layers,
            tile_bytes,
            block_bytes,
        };
        Ok(PagedKv {
            shape,
            arena: Arena::default(),
            chunks: Vec::new(),
        })
    }

    /// Makes room for blocks `0..n_blocks`; what is stored stays where it is. Fewer than there are
    /// change nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the system has no memory for all of them; some may have been added.
    pub fn reserve(&mut self, n_blocks: usize) -> Result<(), Error> {
        let n_chunks = n_blocks.div_ceil(CHUNK_BLOCKS);
        let bytes = self
            .block_bytes()
            .checked_mul(CHUNK_BLOCKS)
            .ok_or(Error::OutOfMemory(usize::MAX))?;
        while self.chunks.len() < n_chunks {
            self.chunks.push(self.arena.take(bytes)?);
        }
        Ok(())
    }

    /// Stores keys and values of positions and rotates the keys on the way. `keys` and `values` are
    /// `[slot_mapping.len(), n_heads * head_dim]`. Numbers that the type cannot hold are rounded. No
    /// place is named twice.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if there is no such layer or place, or a slice has another length;
    /// [`Error::Unsupported`] if the type can be read and not written, as MXFP4.
    pub fn append(
        &mut self,
        layer: usize,
        slot_mapping: &[Slot],
        keys: &[f32],
        values: &[f32],
        rotation: Option<&Rotation<'_>>,
        pool: &Pool,
    ) -> Result<(), Error> {
        let n_layers = self.shape.layers.len();
        let of_layer = self.shape.layers.get(layer).copied();
        let of_layer = of_layer.ok_or(Error::Length {
            what: "layers",
            got: layer,
            expected: n_layers,
        })?;
        let n_blocks = self.n_blocks();
        let PagedKv { shape, chunks, .. } = self;
        let width = of_layer.n_heads * of_layer.head_dim;
        let n_pairs = rotation.map_or(0, |rotation| rotation.n_pairs);
        let (n_cos, n_sin) = rotation.map_or((0, 0), |turn| (turn.cos.len(), turn.sin.len()));
        for (what, got, expected) in [
            ("elements of keys", keys.len(), slot_mapping.len() * width),
            (
                "elements of values",
                values.len(),
                slot_mapping.len() * width,
            ),
            ("cosines of a rotation", n_cos, slot_mapping.len() * n_pairs),
            ("sines of a rotation", n_sin, slot_mapping.len() * n_pairs),
        ] {
            if got != expected {
                return Err(Error::Length {
                    what,
                    got,
                    expected,
                });
            }
        }
        let is_there = |place: &Slot| (place.block as usize) < n_blocks && place.slot < KV_BLOCK;
        if !slot_mapping.iter().all(is_there) {
            return Err(Error::Length {
                what: "blocks",
                got: slot_mapping
                    .iter()
                    .map(|p| p.block as usize)
                    .max()
                    .unwrap_or(0),
                expected: n_blocks,
            });
        }
        let head_dim = of_layer.head_dim;
        let chunks: SmallVec<[Parts<'_, u8>; 64]> = chunks
            .iter_mut()
            .map(|chunk| Parts::new(chunk.bytes_mut()))
            .collect();
        let store = |head: usize| -> Result<(), Error> {
            let mut rotated = SmallVec::<[f32; 576]>::new();
            for (row, place) in slot_mapping.iter().enumerate() {
                let of_row = row * width + head * head_dim;
                let mut key = &keys[of_row..][..head_dim];
                if let Some(Rotation {
                    style,
                    n_pairs,
                    cos,
                    sin,
                }) = rotation
                {
                    rotated.clear();
                    rotated.extend_from_slice(key);
                    let of_row = row * n_pairs..(row + 1) * n_pairs;
                    let (cos, sin) = (&cos[of_row.clone()], &sin[of_row]);
                    rotate(&mut rotated, head_dim, *style, cos, sin);
                    key = &rotated;
                }
                let value = &values[of_row..][..head_dim];
                for (part, elements) in [(Part::Keys, key), (Part::Values, value)] {
                    let at = shape.offset(layer, place.block, head, part);
                    // SAFETY: what a head stores in a block is its own, and each has one task.
                    let tiles = unsafe {
                        let chunk = &chunks[place.block as usize / CHUNK_BLOCKS];
                        chunk.part(at..at + of_layer.part_bytes)
                    };
                    let mut tiles = tiles.chunks_exact_mut(shape.tile_bytes);
                    let (whole, rest) = elements.as_chunks();
                    for (elements, tile) in whole.iter().zip(&mut tiles) {
                        shape.put(part, place.slot, elements, tile)?;
                    }
                    if let Some(tile) = tiles.next() {
                        let mut padded = [0.0; KV_BLOCK];
                        padded[..rest.len()].copy_from_slice(rest);
                        shape.put(part, place.slot, &padded, tile)?;
                    }
                }
            }
            Ok(())
        };
        let outcome = Mutex::new(Ok(()));
        let store = |head: usize| {
            let stored = store(head);
            if stored.is_err() {
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = stored;
            }
        };
        if keys.len() >= PARALLEL_WORK {
            pool.for_each_task(of_layer.n_heads, store);
        } else {
            (0..of_layer.n_heads).for_each(store);
        }
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what is stored in a block, in all layers, to another one.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if one of the blocks was not reserved.
    pub fn copy(&mut self, from: u32, to: u32) -> Result<(), Error> {
        let n_blocks = self.chunks.len() * CHUNK_BLOCKS;
        for block in [from, to] {
            if block as usize >= n_blocks {
                return Err(Error::Length {
                    what: "blocks",
                    got: block as usize,
                    expected: n_blocks,
                });
            }
        }
        let n_bytes = self.block_bytes();
        let place = |block: u32| {
            let block = block as usize;
            let at = block % CHUNK_BLOCKS * n_bytes;
            (block / CHUNK_BLOCKS, at..at + n_bytes)
        };
        let ((from_chunk, from), (to_chunk, to)) = (place(from), place(to));
        match self.chunks.get_disjoint_mut([from_chunk, to_chunk]) {
            Ok([source, target]) => target.bytes_mut()[to].copy_from_slice(&source.bytes()[from]),
            // Both are in the same chunk.
            Err(_) => self.chunks[from_chunk]
                .bytes_mut()
                .copy_within(from, to.start),
        }
        Ok(())
    }

    /// Returns the bytes of one block over all layers.
    pub fn block_bytes(&self) -> usize {
        self.shape.block_bytes
    }

    /// Returns the number of heads of a layer and the elements of each.
    pub(crate) fn heads(&self, layer: usize) -> (usize, usize) {
        let layer = self.shape.layers.get(layer);
        layer.map_or((0, 0), |layer| (layer.n_heads, layer.head_dim))
    }

    /// Tells whether what is stored are numbers of bf16, which meet others of bf16.
    pub(crate) fn is_bf16(&self) -> bool {
        self.shape.ty == TensorType::BF16
    }

    /// Returns the number of blocks that may be stored and read.
    pub(crate) fn n_blocks(&self) -> usize {
        self.chunks.len() * CHUNK_BLOCKS
    }

    /// Returns the number of layers.
    pub(crate) fn n_layers(&self) -> usize {
        self.shape.layers.len()
    }

    /// Returns what a head stored in a block. There must be such a layer, block and head.
    pub(crate) fn tiles(&self, layer: usize, block: u32, head: usize, part: Part) -> Tiles<'_> {
        let at = self.shape.offset(layer, block, head, part);
        let chunk = self.chunks[block as usize / CHUNK_BLOCKS].bytes();
        let bytes = &chunk[at..at + self.shape.layers[layer].part_bytes];
        match self.shape.ty {
            TensorType::F32 => Tiles::F32(bytemuck::cast_slice(bytes)),
            TensorType::F16 => Tiles::F16(bytemuck::cast_slice(bytes)),
            TensorType::BF16 => Tiles::Bf16(bytemuck::cast_slice(bytes)),
            TensorType::Q8_0 => Tiles::Q8(Q8Rows::new(part, bytes)),
            _ => Tiles::Packed(bytes),
        }
    }

    /// Unpacks tiles to f32. `out` has [`TILE`] elements for each.
    pub(crate) fn unpack(&self, part: Part, tiles: &[u8], out: &mut [f32]) {
        let (out, _) = out.as_chunks_mut::<TILE>();
        let tiles = tiles.chunks_exact(self.shape.tile_bytes);
        for (tile, out) in tiles.zip(out) {
            // The type is supported and the tile is whole, so this cannot fail.
            let unpacked = quant::dequantize(self.shape.ty, tile, out);
            debug_assert!(unpacked.is_ok(), "{unpacked:?}");
            if part == Part::Keys {
                transpose(out);
            }
        }
    }
}

impl Shape {
    /// Where they begin in their chunk.
    fn offset(&self, layer: usize, block: u32, head: usize, part: Part) -> usize {
        let block = block as usize % CHUNK_BLOCKS;
        let layer = &self.layers[layer];
        let of_head = (2 * head + usize::from(part == Part::Values)) * layer.part_bytes;
        block * self.block_bytes + layer.start + of_head
    }

    /// Stores the elements of one position.
    fn put(
        &self,
        part: Part,
        slot: usize,
        row: &[f32; KV_BLOCK],
        tile: &mut [u8],
    ) -> Result<(), Error> {
        match self.ty {
            TensorType::F32 => put_elements(part, slot, row, bytemuck::cast_slice_mut(tile)),
            TensorType::F16 => {
                let mut halves = [f16::ZERO; KV_BLOCK];
                halves.convert_from_f32_slice(row);
                let tile = bytemuck::cast_slice_mut::<u8, u16>(tile);
                put_elements(part, slot, &halves.map(f16::to_bits), tile);
            }
            TensorType::BF16 => {
                let tile = bytemuck::cast_slice_mut::<u8, u16>(tile);
                put_pairs(part, slot, &row.map(bf16::round), tile);
            }
            TensorType::Q8_0 => put_q8(part, slot, row, tile)?,
            ty => {
                let at = slot * row_bytes(ty);
                quant::quantize(ty, row, &mut tile[at..at + row_bytes(ty)])?;
            }
        }
        Ok(())
    }
}

/// A position is a column in a tile of keys and a row in a tile of values.
fn put_elements<T: Copy>(part: Part, slot: usize, elements: &[T; KV_BLOCK], tile: &mut [T]) {
    match part {
        Part::Keys => {
            let rows = tile.as_chunks_mut::<KV_BLOCK>().0.iter_mut();
            for (row, element) in rows.zip(elements) {
                row[slot] = *element;
            }
        }
        Part::Values => tile[slot * KV_BLOCK..][..KV_BLOCK].copy_from_slice(elements),
    }
}

/// As [`put_elements`], in a tile that holds its rows in pairs.
fn put_pairs(part: Part, slot: usize, elements: &[u16; KV_BLOCK], tile: &mut [u16]) {
    let pairs = tile.as_chunks_mut::<{ 2 * KV_BLOCK }>().0;
    match part {
        Part::Keys => {
            for (pair, elements) in pairs.iter_mut().zip(elements.as_chunks::<2>().0) {
                pair[2 * slot..][..2].copy_from_slice(elements);
            }
        }
        Part::Values => {
            let columns = pairs[slot / 2].as_chunks_mut::<2>().0;
            for (column, element) in columns.iter_mut().zip(elements) {
                column[slot % 2] = *element;
            }
        }
    }
}

fn transpose(tile: &mut [f32; TILE]) {
    for row in 1..KV_BLOCK {
        for column in 0..row {
            tile.swap(row * KV_BLOCK + column, column * KV_BLOCK + row);
        }
    }
}

/// Rows of tiles of Q8_0, one tile after another.
///
/// ```text
/// tile   32 scales, f16 | 32 rows of 32 codes, i8          scales are those of the positions:
///                                                          of the columns of keys, the rows of values
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Q8Rows<'a> {
    part: Part,
    tiles: &'a [u8],
    first: usize,
    n: usize,
}

/// Rows of one tile of Q8_0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Q8Piece<'a> {
    /// The bits of f16, one for each position of the tile.
    pub scales: &'a [u8; Q8_SCALES],
    /// Which row of the tile the first one is.
    pub first: usize,
    pub rows: &'a [[u8; KV_BLOCK]],
}

/// Bytes of the scales of a tile.
pub(crate) const Q8_SCALES: usize = 2 * KV_BLOCK;
const Q8_TILE: usize = Q8_SCALES + TILE;

impl<'a> Q8Rows<'a> {
    fn new(part: Part, tiles: &'a [u8]) -> Q8Rows<'a> {
        Q8Rows {
            part,
            tiles,
            first: 0,
            n: tiles.len() / Q8_TILE * KV_BLOCK,
        }
    }

    /// Whether these are keys or values.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn part(self) -> Part {
        self.part
    }

    fn rows(self, rows: Range<usize>) -> Q8Rows<'a> {
        assert!(rows.start <= rows.end && rows.end <= self.n);
        Q8Rows {
            first: self.first + rows.start,
            n: rows.end - rows.start,
            ..self
        }
    }

    /// Cuts the rows where tiles end.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Q8Piece<'a>> {
        let end = self.first + self.n;
        let tiles = self.first / KV_BLOCK..end.div_ceil(KV_BLOCK);
        tiles.filter_map(move |idx| {
            let tile = self.tiles.get(idx * Q8_TILE..)?;
            let (scales, codes) = tile.split_first_chunk()?;
            let rows = codes.as_chunks::<KV_BLOCK>().0;
            let first = self.first.saturating_sub(idx * KV_BLOCK);
            Some(Q8Piece {
                scales,
                first,
                rows: rows.get(first..KV_BLOCK.min(end - idx * KV_BLOCK))?,
            })
        })
    }

    /// About the memory of the rows, so many bytes for each.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn memory(self) -> (*const u8, usize, usize) {
        let row_bytes = Q8_TILE / KV_BLOCK;
        let start = self.tiles.as_ptr().wrapping_add(self.first * row_bytes);
        (start, row_bytes, self.n)
    }

    /// Unpacks the rows to the first elements of `out`.
    pub(crate) fn unpack(self, out: &mut [f32]) {
        let mut out = out.as_chunks_mut::<KV_BLOCK>().0.iter_mut();
        for piece in self.pieces() {
            let scales = piece.scales.as_chunks::<2>().0;
            let scales = std::array::from_fn::<f32, KV_BLOCK, _>(|idx| {
                f16::from_le_bytes(scales[idx]).to_f32()
            });
            for (idx, (codes, out)) in piece.rows.iter().zip(&mut out).enumerate() {
                for column in 0..KV_BLOCK {
                    let scale = match self.part {
                        Part::Keys => scales[column],
                        Part::Values => scales[piece.first + idx],
                    };
                    out[column] = f32::from(codes[column].cast_signed()) * scale;
                }
            }
        }
    }
}

fn put_q8(part: Part, slot: usize, row: &[f32; KV_BLOCK], tile: &mut [u8]) -> Result<(), Error> {
    let mut block = [0; 2 + KV_BLOCK];
    quant::quantize(TensorType::Q8_0, row, &mut block)?;
    let (scales, codes) = tile.split_at_mut(Q8_SCALES);
    scales[2 * slot..][..2].copy_from_slice(&block[..2]);
    let mut of_row = [0; KV_BLOCK];
    of_row.copy_from_slice(&block[2..]);
    put_elements(part, slot, &of_row, codes);
    Ok(())
}

/// Bytes of a row of a tile.
fn row_bytes(ty: TensorType) -> usize {
    KV_BLOCK / ty.block_len() * ty.block_bytes()
}

/// Elements of a tile.
pub(crate) const TILE: usize = KV_BLOCK * KV_BLOCK;
/// Blocks that are allocated together.
const CHUNK_BLOCKS: usize = 16;
/// Elements of keys from which on a second thread pays.
const PARALLEL_WORK: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// However many threads store, and whatever is rotated on the way or before.
    #[test]
    fn what_is_stored_together_is_what_is_stored_alone() {
        for (ty, head_dim) in [
            (TensorType::BF16, 48),
            (TensorType::F16, 64),
            (TensorType::Q8_0, 32),
        ] {
            let (n_rows, n_heads, n_pairs) = (90, 5, 14);
            let width = n_heads * head_dim;
            let value = |i: usize| ((i * 7919) % 2003) as f32 / 500.0 - 2.0;
            let keys: Vec<f32> = (0..n_rows * width).map(value).collect();
            let values: Vec<f32> = (0..n_rows * width).map(|i| value(i + 3)).collect();
            let cos: Vec<f32> = (0..n_rows * n_pairs).map(|i| value(i + 5).cos()).collect();
            let sin: Vec<f32> = (0..n_rows * n_pairs).map(|i| value(i + 5).sin()).collect();
            let slot_mapping: Vec<Slot> = (0..n_rows)
                .map(|row| Slot {
                    block: (7 - row / KV_BLOCK) as u32,
                    slot: row % KV_BLOCK,
                })
                .collect();
            let rotation = Rotation {
                style: RopeStyle::HalfSplit,
                n_pairs,
                cos: &cos,
                sin: &sin,
            };
            let stored = |n_threads: usize, together: bool| {
                let mut kv = PagedKv::new(&[(n_heads, head_dim); 2], ty).unwrap();
                kv.reserve(8).unwrap();
                let pool = Pool::new(n_threads);
                if together {
                    kv.append(1, &slot_mapping, &keys, &values, Some(&rotation), &pool)
                        .unwrap();
                } else {
                    let mut keys = keys.clone();
                    for (row, key) in keys.chunks_mut(width).enumerate() {
                        let at = row * n_pairs..(row + 1) * n_pairs;
                        rotate(
                            key,
                            head_dim,
                            RopeStyle::HalfSplit,
                            &cos[at.clone()],
                            &sin[at],
                        );
                    }
                    for (row, place) in slot_mapping.iter().enumerate() {
                        let at = row * width..(row + 1) * width;
                        let (key, value) = (&keys[at.clone()], &values[at]);
                        kv.append(1, &[*place], key, value, None, &pool).unwrap();
                    }
                }
                kv.chunks[0].bytes().to_vec()
            };
            let expected = stored(1, false);
            assert!(
                stored(1, true) == expected && stored(3, true) == expected,
                "{ty}"
            );
        }
    }

    #[test]
    fn a_copied_block_holds_the_same_wherever_it_lies() {
        for ty in [
            TensorType::F32,
            TensorType::F16,
            TensorType::BF16,
            TensorType::Q8_0,
        ] {
            let mut kv = PagedKv::new(&[(3, 48); 2], ty).unwrap();
            kv.reserve(2 * CHUNK_BLOCKS).unwrap();
            let row = |n: usize| -> Vec<f32> { (0..144).map(|i| (i * n) as f32 / 99.0).collect() };
            for layer in 0..2 {
                let slot_mapping: Vec<Slot> =
                    (0..KV_BLOCK).map(|slot| Slot { block: 3, slot }).collect();
                let keys: Vec<f32> = (0..KV_BLOCK).flat_map(|slot| row(layer + slot)).collect();
                let values: Vec<f32> = (0..KV_BLOCK)
                    .flat_map(|slot| row(layer + 2 * slot))
                    .collect();
                kv.append(layer, &slot_mapping, &keys, &values, None, &Pool::new(1))
                    .unwrap();
            }
            let last = 2 * CHUNK_BLOCKS as u32 - 1;
            let stored = |kv: &PagedKv, block: u32| -> Vec<u8> {
                let chunk = kv.chunks[block as usize / CHUNK_BLOCKS].bytes();
                let at = block as usize % CHUNK_BLOCKS * kv.block_bytes();
                chunk[at..at + kv.block_bytes()].to_vec()
            };
            let expected = stored(&kv, 3);
            // Within a chunk, to another one, back, and onto itself.
            for (from, to) in [(3, 7), (7, last), (last, 0), (0, 0)] {
                kv.copy(from, to).unwrap();
                assert_eq!(stored(&kv, to), expected, "{from} to {to}");
            }
            assert!(kv.copy(last + 1, 0).is_err() && kv.copy(0, last + 1).is_err());
        }
    }
}
