//! A model file of floats to one of fewer bits, tensor by tensor.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    ops::ControlFlow,
    path::Path,
};

use llmsrv_gguf::{GgufFile, Header, Layout, Metadata, Stream, TensorInfo, TensorType};
use llmsrv_kernels::Pool;

use crate::{Error, Imatrix, Progress, Target, mixture::Mixture, rows::Repack};

/// Writes the model of `source` to `destination` with the types of `target`. With an importance matrix the errors of
/// weights count as much as the inputs of their columns are large.
///
/// A few rows are in memory at a time. `progress` is told the bytes of the source that are done and
/// their total. Whatever fails, a destination that was begun is removed.
///
/// # Errors
/// [`Error::AlreadyQuantized`] if a tensor of the source is not F16, BF16 or F32; [`Error::NeedsImatrix`] if the target
/// is nothing without an importance matrix, or that has nothing to say of a tensor that needs it; [`Error::Invalid`] if
/// it is of another model.
pub fn quantize(
    source: &Path,
    destination: &Path,
    target: Target,
    imatrix: Option<&Imatrix>,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let source = GgufFile::open(source)?;
    let header = source.header();
    check(&source)?;
    let types = plan(header, target, imatrix)?;
    let mut layout = Layout::new(metadata(&source, target, imatrix));
    for (tensor, ty) in header.tensors.iter().zip(&types) {
        layout.tensor(&tensor.name, &tensor.shape, *ty)?;
    }
    create(destination, &layout, |out| {
        let pool = Pool::new(0);
        let total = header.tensors.iter().map(|tensor| tensor.bytes).sum();
        let mut done = 0;
        for (tensor, ty) in header.tensors.iter().zip(types) {
            let mut advance = |n_bytes| {
                done += n_bytes;
                go_on(progress(done, total))
            };
            let data = source.data(tensor);
            if ty == tensor.dtype {
                for piece in data.chunks(COPY_BYTES) {
                    out.write_all(piece)?;
                    advance(piece.len() as u64)?;
                }
            } else {
                let weights = match imatrix {
                    Some(imatrix) => imatrix.weights(tensor),
                    None => None,
                };
                pack(
                    tensor,
                    (data, weights.as_deref()),
                    ty,
                    &pool,
                    out,
                    &mut advance,
                )?;
            }
        }
        Ok(())
    })
}

/// Chooses the type of each tensor.
///
/// # Errors
/// [`Error::NeedsImatrix`] and [`Error::Invalid`] as [`quantize`].
pub fn plan(
    header: &Header,
    target: Target,
    imatrix: Option<&Imatrix>,
) -> Result<Vec<TensorType>, Error> {
    if let Some(imatrix) = imatrix {
        imatrix.check_fits(header)?;
    }
    let mixture = Mixture::new(header, target, imatrix.is_some());
    let choose = |tensor: &TensorInfo| {
        let ty = mixture.choose(tensor);
        let is_known = imatrix.is_some_and(|imatrix| imatrix.knows(tensor));
        if ty != tensor.dtype && !is_known && mixture.needs_imatrix(tensor, ty) {
            return Err(Error::NeedsImatrix {
                target,
                tensor: imatrix.map(|_| tensor.name.clone()),
            });
        }
        Ok(ty)
    };
    header.tensors.iter().map(choose).collect()
}

/// Creates `destination`, lets `write` fill it, and removes it again if that fails. A device that was
/// there stays, whatever happens.
pub(crate) fn create(
    destination: &Path,
    layout: &Layout,
    write: impl FnOnce(&mut Stream<BufWriter<File>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let file = File::create(destination)?;
    let is_file = file.metadata()?.is_file();
    let begun = || -> Result<(), Error> {
        let mut stream = layout.start(BufWriter::new(file))?;
        write(&mut stream)?;
        let mut out = stream.finish()?;
        out.flush()?;
        Ok(())
    };
    begun().inspect_err(|_| {
        if is_file {
            // The first error is the one to tell.
            let _ = fs::remove_file(destination);
        }
    })
}

pub(crate) fn go_on(answer: ControlFlow<()>) -> Result<(), Error> {
    match answer {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Cancelled),
    }
}

/// Converts the rows of a tensor, many at a time on all threads. There may be weights for the columns of each of its
/// matrices.
fn pack(
    tensor: &TensorInfo,
    (data, weights): (&[u8], Option<&[f32]>),
    ty: TensorType,
    pool: &Pool,
    out: &mut Stream<BufWriter<File>>,
    advance: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let invalid = |what: &str| Error::Invalid(format!("tensor {} {what}", tensor.name));
    let repack = Repack {
        row_len: usize::try_from(tensor.row_len()).map_err(|_| invalid("has huge rows"))?,
        from: tensor.dtype,
        to: ty,
        offset: 0.0,
    };
    let mut packed = Vec::new();
    let n_matrices = weights.map_or(1, |weights| weights.len() / repack.row_len.max(1));
    let matrices = data.chunks((data.len() / n_matrices.max(1)).max(1));
    for (idx, matrix) in matrices.enumerate() {
        let weights = weights.and_then(|weights| weights.chunks(repack.row_len.max(1)).nth(idx));
        for rows in matrix.chunks((repack.batch_rows() * repack.row_bytes().0).max(1)) {
            repack
                .run(rows, weights, &mut packed, pool)
                .map_err(|_| invalid(NOT_FINITE))?;
            out.write_all(&packed)?;
            advance(rows.len() as u64)?;
        }
    }
    Ok(())
}

/// Refuses what cannot be quantised, or not as a whole.
fn check(source: &GgufFile) -> Result<(), Error> {
    let header = source.header();
    if header
        .metadata
        .u64("split.count")
        .is_some_and(|count| count > 1)
    {
        let message = "this is one part of a model in several files; join them first";
        return Err(Error::Unsupported(message.into()));
    }
    if header.metadata.architecture() == Some("clip") {
        return Err(Error::Unsupported("projectors are not quantized".into()));
    }
    let is_unknown = |tensor: &&TensorInfo| matches!(tensor.dtype, TensorType::Unknown(_));
    if let Some(tensor) = header.tensors.iter().find(is_unknown) {
        let TensorInfo { name, dtype, .. } = tensor;
        let message = format!("tensor {name} is of type {dtype}");
        return Err(Error::Unsupported(message));
    }
    let is_packed = |tensor: &&TensorInfo| tensor.dtype.block_len() > 1;
    if let Some(tensor) = header.tensors.iter().find(is_packed) {
        return Err(Error::AlreadyQuantized(tensor.dtype));
    }
    Ok(())
}

/// The keys of the source; those that say how it was stored are set anew.
fn metadata(source: &GgufFile, target: Target, imatrix: Option<&Imatrix>) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in source.metadata().iter() {
        if !key.starts_with("split.") {
            metadata.set(key, value.clone());
        }
    }
    metadata.set("general.file_type", target.file_type());
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    if let Some(imatrix) = imatrix {
        if let Some(dataset) = imatrix.datasets.last() {
            metadata.set("quantize.imatrix.dataset", dataset.as_str());
        }
        let n_entries = u32::try_from(imatrix.len()).unwrap_or(u32::MAX);
        metadata.set("quantize.imatrix.entries_count", n_entries);
        metadata.set("quantize.imatrix.chunks_count", imatrix.n_chunks);
    }
    metadata
}

/// Version of the layouts of blocks.
pub(crate) const QUANTIZATION_VERSION: u32 = 2;
pub(crate) const COPY_BYTES: usize = 16 << 20;
/// What is wrong with a tensor whose values cannot be converted.
pub(crate) const NOT_FINITE: &str = "has values that are not finite or too large for the type";
