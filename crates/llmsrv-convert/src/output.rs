//! Tensors of a checkpoint on their way into a model file.

use std::{fs::File, io::BufWriter, path::Path};

use llmsrv_gguf::{Layout, Metadata, Stream, TensorType};
use llmsrv_kernels::Pool;

use crate::{
    Error, Progress,
    checkpoint::{Checkpoint, Tensor, shown},
    families::Family,
    quantize::{NOT_FINITE, create, go_on},
    rows::Repack,
};

/// A tensor of the model file.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    /// The first is the length of a row.
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: TensorType,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// Tensors of the checkpoint, one above the other.
    Tensors {
        tensors: Vec<Tensor>,
        /// Rows of a head whose halves are to be interleaved; 0 = rows stay as they are.
        head_rows: u64,
        /// Added to every value.
        offset: f32,
    },
    Values(Vec<f32>),
}

impl Output {
    fn source_bytes(&self) -> u64 {
        match &self.content {
            Content::Tensors { tensors, .. } => {
                let bytes = |tensor: &Tensor| tensor.n_rows() * tensor.row_len() * 4;
                tensors.iter().map(bytes).fold(0, u64::saturating_add)
            }
            Content::Values(values) => 4 * values.len() as u64,
        }
    }
}

/// Returns the rows of a head of `tensor`, which becomes the tensor `name` of the file; 0 if its rows
/// keep their order.
pub(crate) fn head_rows(
    name: &str,
    tensor: &Tensor,
    family: &Family,
    heads: u32,
    kv_heads: u32,
) -> Result<u64, Error> {
    let heads = match name.split('.').nth(2) {
        Some("attn_q") if family.interleaved => u64::from(heads),
        Some("attn_k") if family.interleaved => u64::from(kv_heads),
        _ => return Ok(0),
    };
    let rows = tensor.n_rows() / heads.max(1);
    if rows * heads != tensor.n_rows() || !rows.is_multiple_of(2) || rows > MAX_HEAD_ROWS {
        let name = shown(&tensor.name);
        let message = format!("tensor {name} does not have {heads} heads");
        return Err(Error::Invalid(message));
    }
    Ok(rows)
}

/// Writes a file of these tensors.
pub(crate) fn write(
    destination: &Path,
    metadata: Metadata,
    outputs: &[Output],
    checkpoint: &mut Checkpoint,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let mut layout = Layout::new(metadata);
    for output in outputs {
        layout.tensor(&output.name, &output.shape, output.dtype)?;
    }
    create(destination, &layout, |out| {
        let mut writer = Writer {
            checkpoint,
            out,
            pool: Pool::new(0),
            progress,
            total: outputs.iter().map(Output::source_bytes).sum(),
            done: 0,
        };
        outputs.iter().try_for_each(|output| writer.write(output))
    })
}

/// Writes tensors one after the other.
struct Writer<'a, 'p> {
    checkpoint: &'a mut Checkpoint,
    out: &'a mut Stream<BufWriter<File>>,
    pool: Pool,
    progress: &'a mut Progress<'p>,
    total: u64,
    done: u64,
}

impl Writer<'_, '_> {
    fn write(&mut self, output: &Output) -> Result<(), Error> {
        match &output.content {
            Content::Values(values) => {
                let bytes: Vec<u8> = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                self.out.write_all(&bytes)?;
                self.advance(bytes.len() as u64)
            }
            Content::Tensors {
                tensors,
                head_rows,
                offset,
            } => tensors
                .iter()
                .try_for_each(|tensor| self.rows(tensor, output.dtype, *head_rows, *offset)),
        }
    }

    fn rows(
        &mut self,
        tensor: &Tensor,
        to: TensorType,
        head_rows: u64,
        offset: f32,
    ) -> Result<(), Error> {
        let invalid = |what: &str| Error::Invalid(format!("tensor {} {what}", shown(&tensor.name)));
        let repack = Repack {
            row_len: usize::try_from(tensor.row_len()).map_err(|_| invalid("has huge rows"))?,
            from: tensor.dtype()?,
            to,
            offset,
        };
        let unit = head_rows.max(1);
        let batch = (repack.batch_rows() as u64 / unit).max(1) * unit;
        let (mut rows, mut turned, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        while first < tensor.n_rows() {
            let n_rows = batch.min(tensor.n_rows() - first);
            self.checkpoint
                .read_rows(tensor, first, n_rows, &mut rows)?;
            if head_rows > 0 {
                interleave(&rows, head_rows as usize, repack.row_bytes().0, &mut turned);
                std::mem::swap(&mut rows, &mut turned);
            }
            repack
                .run(&rows, None, &mut packed, &self.pool)
                .map_err(|_| invalid(NOT_FINITE))?;
            self.out.write_all(&packed)?;
            self.advance(n_rows * tensor.row_len() * 4)?;
            first += n_rows;
        }
        Ok(())
    }

    fn advance(&mut self, n_bytes: u64) -> Result<(), Error> {
        self.done += n_bytes;
        go_on((self.progress)(self.done, self.total))
    }
}

/// Interleaves the two halves of the rows of each head: published weights rotate the first half with
/// the second, files of these families each row with its neighbour.
fn interleave(rows: &[u8], head_rows: usize, row_bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    if row_bytes == 0 {
        return;
    }
    for head in rows.chunks_exact(head_rows * row_bytes) {
        let (first, second) = head.split_at(head_rows / 2 * row_bytes);
        for (a, b) in first
            .chunks_exact(row_bytes)
            .zip(second.chunks_exact(row_bytes))
        {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
}

/// Far above every published model; bounds what is in memory.
const MAX_HEAD_ROWS: u64 = 1 << 14;
