//! Memory for keys and values, in blocks of positions that a sequence strings together as it likes.

use std::ops::Range;

use llmsrv_gguf::TensorType;

use crate::{Error, quant};

/// Keys and values of all layers of a model, by block.
///
/// Memory comes in chunks of blocks: growing moves nothing, and what was never written costs nothing.
#[derive(Debug)]
pub struct PagedKv {
    ty: TensorType,
    n_layers: usize,
    block_size: usize,
    /// Elements of a position in one layer, of the keys and of the values alike.
    width: usize,
    row_bytes: usize,
    chunks: Vec<Vec<u8>>,
}

impl PagedKv {
    /// Prepares for `n_layers` layers, blocks of `block_size` positions, and rows of `width` elements
    /// that are stored as `ty`. There is no memory yet.
    pub fn new(
        n_layers: usize,
        block_size: usize,
        width: usize,
        ty: TensorType,
    ) -> Result<PagedKv, Error> {
        if !quant::supported(ty) {
            return Err(Error::Unsupported(ty));
        }
        if block_size == 0 || !width.is_multiple_of(ty.block_len()) {
            let expected = width.next_multiple_of(ty.block_len());
            return Err(Error::Length {
                what: "elements of a key",
                got: width,
                expected,
            });
        }
        let row_bytes = width / ty.block_len() * ty.block_bytes();
        Ok(PagedKv {
            ty,
            n_layers,
            block_size,
            width,
            row_bytes,
            chunks: Vec::new(),
        })
    }

    /// Returns the bytes of one block over all layers.
    pub fn block_bytes(&self) -> usize {
        2 * self.n_layers * self.block_size * self.row_bytes
    }

    /// Makes room for blocks `0..n_blocks`; what is stored stays where it is.
    pub fn reserve(&mut self, n_blocks: usize) -> Result<(), Error> {
        let n_chunks = n_blocks.div_ceil(CHUNK_BLOCKS);
        let bytes = self
            .block_bytes()
            .checked_mul(CHUNK_BLOCKS)
            .ok_or(Error::OutOfMemory(usize::MAX))?;
        while self.chunks.len() < n_chunks {
            // Asked for first, since the zeroed memory below comes without an answer.
            Vec::<u8>::new()
                .try_reserve_exact(bytes)
                .map_err(|_| Error::OutOfMemory(bytes))?;
            self.chunks.push(vec![0; bytes]);
        }
        Ok(())
    }

    /// Stores key and value of one position. Numbers that the type cannot hold are rounded.
    pub fn write(
        &mut self,
        layer: usize,
        block: u32,
        slot: usize,
        key: &[f32],
        value: &[f32],
    ) -> Result<(), Error> {
        for (part, row) in [key, value].into_iter().enumerate() {
            if row.len() != self.width {
                return Err(Error::Length {
                    what: "elements of a key or value",
                    got: row.len(),
                    expected: self.width,
                });
            }
            let (ty, range) = (self.ty, self.range(layer, part, block, slot));
            let chunk = self.chunks.get_mut(block as usize / CHUNK_BLOCKS);
            let out = chunk
                .and_then(|chunk| chunk.get_mut(range))
                .ok_or(Error::Length {
                    what: "blocks",
                    got: block as usize,
                    expected: 0,
                })?;
            quant::quantize(ty, row, out)?;
        }
        Ok(())
    }

    /// Unpacks elements `at` of the keys of one position.
    pub(crate) fn read_key(
        &self,
        layer: usize,
        block: u32,
        slot: usize,
        at: Range<usize>,
        out: &mut [f32],
    ) {
        self.read(layer, 0, block, slot, at, out);
    }

    /// Unpacks elements `at` of the values of one position.
    pub(crate) fn read_value(
        &self,
        layer: usize,
        block: u32,
        slot: usize,
        at: Range<usize>,
        out: &mut [f32],
    ) {
        self.read(layer, 1, block, slot, at, out);
    }

    /// Positions in a block.
    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    /// Elements of a row, and how many of them are stored together.
    pub(crate) fn row(&self) -> (usize, usize) {
        (self.width, self.ty.block_len())
    }

    fn read(
        &self,
        layer: usize,
        part: usize,
        block: u32,
        slot: usize,
        at: Range<usize>,
        out: &mut [f32],
    ) {
        let start = self.range(layer, part, block, slot).start;
        let bytes_of = |elements: usize| elements / self.ty.block_len() * self.ty.block_bytes();
        let range = start + bytes_of(at.start)..start + bytes_of(at.end);
        let bytes = self
            .chunks
            .get(block as usize / CHUNK_BLOCKS)
            .and_then(|chunk| chunk.get(range));
        let read = bytes.map(|bytes| quant::dequantize(self.ty, bytes, out));
        debug_assert!(
            matches!(read, Some(Ok(()))),
            "block {block} slot {slot}: {read:?}"
        );
    }

    /// Where the row of a position lies in its chunk.
    fn range(&self, layer: usize, part: usize, block: u32, slot: usize) -> Range<usize> {
        let block = block as usize % CHUNK_BLOCKS;
        let row = ((block * self.n_layers + layer) * 2 + part) * self.block_size + slot;
        row * self.row_bytes..(row + 1) * self.row_bytes
    }
}

/// Blocks that are allocated together.
const CHUNK_BLOCKS: usize = 16;
