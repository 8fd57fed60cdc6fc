//! A model file of floats to one of fewer bits, tensor by tensor.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    ops::ControlFlow,
    path::Path,
};

use llmsrv_gguf::{GgufFile, Layout, Metadata, Stream, TensorInfo, TensorType};
use llmsrv_kernels::Pool;

use crate::{Error, Progress, Target, mixture::Mixture, rows::Repack};

/// Writes the model of `source` to `destination` with the types of `target`.
///
/// A few rows are in memory at a time. `progress` is told the bytes of the source that are done and
/// their total. Whatever fails, a destination that was begun is removed.
///
/// # Errors
/// [`Error::AlreadyQuantized`] if a tensor of the source is not F16, BF16 or F32.
pub fn quantize(
    source: &Path,
    destination: &Path,
    target: Target,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let source = GgufFile::open(source)?;
    let header = source.header();
    check(&source)?;
    let mixture = Mixture::new(header, target);
    let mut layout = Layout::new(metadata(&source, target));
    let mut types = Vec::with_capacity(header.tensors.len());
    for tensor in &header.tensors {
        let ty = mixture.choose(tensor);
        layout.tensor(&tensor.name, &tensor.shape, ty)?;
        types.push(ty);
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
                pack(tensor, data, ty, &pool, out, &mut advance)?;
            }
        }
        Ok(())
    })
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

/// Converts the rows of a tensor, many at a time on all threads.
fn pack(
    tensor: &TensorInfo,
    data: &[u8],
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
    for rows in data.chunks((repack.batch_rows() * repack.row_bytes().0).max(1)) {
        repack
            .run(rows, &mut packed, pool)
            .map_err(|_| invalid(NOT_FINITE))?;
        out.write_all(&packed)?;
        advance(rows.len() as u64)?;
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
fn metadata(source: &GgufFile, target: Target) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in source.metadata().iter() {
        if !key.starts_with("split.") {
            metadata.set(key, value.clone());
        }
    }
    metadata.set("general.file_type", target.file_type());
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    metadata
}

/// Version of the layouts of blocks.
pub(crate) const QUANTIZATION_VERSION: u32 = 2;
pub(crate) const COPY_BYTES: usize = 16 << 20;
/// What is wrong with a tensor whose values cannot be converted.
pub(crate) const NOT_FINITE: &str = "has values that are not finite or too large for the type";
