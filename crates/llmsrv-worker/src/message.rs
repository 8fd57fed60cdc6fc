//! What server and worker say to each other, as bytes. Both are the same program, so there are no versions; what is
//! read is checked all the same, because a driver may have written anywhere in the worker's memory.

use std::{
    ffi::OsString, ops::Range, os::unix::ffi::OsStringExt as _, path::PathBuf, sync::Arc,
    time::Duration,
};

use llmsrv_engine::{
    ActivationPrecision, Adapter, BlockId, EmbeddingSpec, GpuOptions, GpuShare, Image, ImageRows,
    LoadError, LoadOptions, ModelError, ModelSpec, NpuOptions, Offload, Pooling, Span, SpanState,
    StateId, StepPlan,
};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent what is no message")]
pub(crate) struct Malformed;

/// What the server wants.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    /// Say how many bytes each GPU has free.
    FreeBytes(GpuOptions),
    /// Load the model of a file; its images are read by the server.
    Load(OsString, Box<LoadOptions>),
    ReserveBlocks(usize),
    ReserveStates(usize),
    Forward(StepPlan),
    Embed(StepPlan),
}

/// What a worker answers.
#[derive(Debug)]
pub(crate) enum Reply {
    FreeBytes(Vec<u64>),
    Loaded(ModelSpec),
    NotLoaded(LoadError),
    Done,
    /// Logits or hidden values.
    Rows(Vec<f32>),
    Failed(ModelError),
}

/// Bytes that a reply may have beside its rows: numbers, and a text.
pub(crate) const MOST_BESIDE_ROWS: u64 = 1 << 16;
/// Bytes of a text; the rest is cut off.
const LONGEST_TEXT: usize = 1 << 15;

impl Request {
    /// Writes a request for a step, without a copy of the plan.
    pub(crate) fn write_step(to: &mut Vec<u8>, plan: &StepPlan, embed: bool) {
        to.clear();
        to.push(if embed { 5 } else { 4 });
        write_plan(to, plan);
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.clear();
        match self {
            Request::FreeBytes(gpu) => {
                to.push(0);
                write_gpu(to, gpu);
            }
            Request::Load(path, options) => {
                to.push(1);
                bytes(to, path.as_encoded_bytes());
                write_options(to, options);
            }
            Request::ReserveBlocks(n) => {
                to.push(2);
                number(to, *n as u64);
            }
            Request::ReserveStates(n) => {
                to.push(3);
                number(to, *n as u64);
            }
            Request::Forward(plan) => Request::write_step(to, plan, false),
            Request::Embed(plan) => Request::write_step(to, plan, true),
        }
    }

    pub(crate) fn read(from: &[u8]) -> Result<Request, Malformed> {
        let mut from = Reader(from);
        let request = match from.byte()? {
            0 => Request::FreeBytes(read_gpu(&mut from)?),
            1 => Request::Load(
                OsString::from_vec(from.bytes()?.to_vec()),
                Box::new(read_options(&mut from)?),
            ),
            2 => Request::ReserveBlocks(from.count()?),
            3 => Request::ReserveStates(from.count()?),
            4 => Request::Forward(read_plan(&mut from)?),
            5 => Request::Embed(read_plan(&mut from)?),
            _ => return Err(Malformed),
        };
        from.end(request)
    }
}

impl Reply {
    /// Writes a reply of rows, without a copy of them.
    pub(crate) fn write_rows(to: &mut Vec<u8>, rows: &[f32]) {
        to.clear();
        to.push(4);
        to.extend_from_slice(bytemuck::cast_slice(rows));
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        to.clear();
        match self {
            Reply::FreeBytes(gpus) => {
                to.push(0);
                number(to, gpus.len() as u64);
                for free in gpus {
                    number(to, *free);
                }
            }
            Reply::Loaded(spec) => {
                to.push(1);
                write_spec(to, spec);
            }
            Reply::NotLoaded(error) => {
                to.push(2);
                write_load_error(to, error);
            }
            Reply::Done => to.push(3),
            Reply::Rows(rows) => Reply::write_rows(to, rows),
            Reply::Failed(error) => {
                to.push(5);
                write_model_error(to, error);
            }
        }
    }

    /// Reads a reply to a step: its rows go to `rows`, which has the length that they must have.
    pub(crate) fn read_rows(from: &[u8], rows: &mut [f32]) -> Result<Reply, Malformed> {
        match from.split_first() {
            Some((4, found)) => {
                let rows: &mut [u8] = bytemuck::cast_slice_mut(rows);
                if found.len() != rows.len() {
                    return Err(Malformed);
                }
                rows.copy_from_slice(found);
                Ok(Reply::Done)
            }
            _ => Reply::read(from),
        }
    }

    /// Reads a reply without rows.
    pub(crate) fn read(from: &[u8]) -> Result<Reply, Malformed> {
        let mut from = Reader(from);
        let reply = match from.byte()? {
            0 => Reply::FreeBytes(from.list(Reader::number)?),
            1 => Reply::Loaded(read_spec(&mut from)?),
            2 => Reply::NotLoaded(read_load_error(&mut from)?),
            3 => Reply::Done,
            5 => Reply::Failed(read_model_error(&mut from)?),
            _ => return Err(Malformed),
        };
        from.end(reply)
    }
}

fn write_gpu(to: &mut Vec<u8>, gpu: &GpuOptions) {
    to.push(u8::from(gpu.vendor));
    to.push(u8::from(gpu.software));
    number(to, gpu.leave_free_bytes);
    option(to, gpu.limit_bytes, number);
    for names in [&gpu.visible, &gpu.nvidia] {
        option(to, names.as_ref(), |to, names| {
            number(to, names.len() as u64);
            for name in names {
                text(to, name);
            }
        });
    }
    option(to, gpu.checked.as_ref(), |to, file| {
        bytes(to, file.as_os_str().as_encoded_bytes());
    });
}

fn read_gpu(from: &mut Reader<'_>) -> Result<GpuOptions, Malformed> {
    Ok(GpuOptions {
        vendor: from.flag()?,
        software: from.flag()?,
        leave_free_bytes: from.number()?,
        limit_bytes: from.option(Reader::number)?,
        visible: from.option(|from| from.list(Reader::text))?,
        nvidia: from.option(|from| from.list(Reader::text))?,
        checked: from.option(Reader::path)?,
    })
}

fn write_offload(to: &mut Vec<u8>, offload: &Offload) {
    option(to, offload.n_layers, |to, n| number(to, n as u64));
    number(to, offload.n_cpu_moe as u64);
    number(to, offload.main_gpu as u64);
    to.push(u8::from(offload.spread));
    option(to, offload.split.as_ref(), |to, split| {
        number(to, split.len() as u64);
        for n in split {
            number(to, *n as u64);
        }
    });
}

fn read_offload(from: &mut Reader<'_>) -> Result<Offload, Malformed> {
    Ok(Offload {
        n_layers: from.option(Reader::count)?,
        n_cpu_moe: from.count()?,
        main_gpu: from.count()?,
        spread: from.flag()?,
        split: from.option(|from| from.list(Reader::count))?,
    })
}

fn write_options(to: &mut Vec<u8>, options: &LoadOptions) {
    text(to, &options.kv_cache_type);
    number(to, options.n_threads as u64);
    text(to, &options.device);
    write_gpu(to, &options.gpu);
    write_offload(to, &options.offload);
    option(to, options.npu.as_ref(), |to, npu| {
        bytes(to, npu.runtime.as_os_str().as_encoded_bytes());
        text(to, &npu.provider);
        option(to, npu.cache.as_ref(), |to, folder| {
            bytes(to, folder.as_os_str().as_encoded_bytes());
        });
    });
    to.push(match options.activation_precision {
        ActivationPrecision::Auto => 0,
        ActivationPrecision::Int8 => 1,
        ActivationPrecision::Int16 => 2,
        ActivationPrecision::F32 => 3,
    });
    number(to, options.adapters.len() as u64);
    for adapter in &options.adapters {
        bytes(to, adapter.path.as_os_str().as_encoded_bytes());
        to.extend_from_slice(&adapter.scale.to_le_bytes());
    }
}

fn read_options(from: &mut Reader<'_>) -> Result<LoadOptions, Malformed> {
    Ok(LoadOptions {
        kv_cache_type: from.text()?,
        n_threads: from.count()?,
        device: from.text()?,
        gpu: read_gpu(from)?,
        offload: read_offload(from)?,
        npu: from.option(|from| {
            Ok(NpuOptions {
                runtime: from.path()?,
                provider: from.text()?,
                cache: from.option(Reader::path)?,
            })
        })?,
        activation_precision: match from.byte()? {
            0 => ActivationPrecision::Auto,
            1 => ActivationPrecision::Int8,
            2 => ActivationPrecision::Int16,
            3 => ActivationPrecision::F32,
            _ => return Err(Malformed),
        },
        projector: None,
        adapters: from.list(|from| {
            Ok(Adapter {
                path: from.path()?,
                scale: f32::from_le_bytes(from.array()?),
            })
        })?,
    })
}

fn write_spec(to: &mut Vec<u8>, spec: &ModelSpec) {
    let counts = [
        spec.vocab_size,
        spec.block_size,
        spec.context_length,
        spec.kv_block_bytes,
        spec.state_bytes,
    ];
    for count in counts {
        number(to, count as u64);
    }
    number(to, spec.weight_bytes);
    number(to, spec.n_layers as u64);
    number(to, spec.gpus.len() as u64);
    for gpu in &spec.gpus {
        number(to, gpu.n_layers as u64);
        number(to, gpu.weight_bytes);
        number(to, gpu.kv_block_bytes as u64);
        number(to, gpu.state_bytes as u64);
    }
    to.push(u8::from(spec.npu));
    to.push(u8::from(spec.embedding.is_some()));
    if let Some(embedding) = spec.embedding {
        number(to, embedding.width as u64);
        to.push(match embedding.pooling {
            Pooling::Mean => 0,
            Pooling::Cls => 1,
            Pooling::Last => 2,
            Pooling::Rank => 3,
        });
        to.push(u8::from(embedding.bidirectional));
    }
}

fn read_spec(from: &mut Reader<'_>) -> Result<ModelSpec, Malformed> {
    Ok(ModelSpec {
        vocab_size: from.count()?,
        block_size: from.count()?,
        context_length: from.count()?,
        kv_block_bytes: from.count()?,
        state_bytes: from.count()?,
        weight_bytes: from.number()?,
        n_layers: from.count()?,
        gpus: from.list(|from| {
            Ok(GpuShare {
                n_layers: from.count()?,
                weight_bytes: from.number()?,
                kv_block_bytes: from.count()?,
                state_bytes: from.count()?,
            })
        })?,
        npu: from.flag()?,
        embedding: from.option(|from| {
            Ok(EmbeddingSpec {
                width: from.count()?,
                pooling: match from.byte()? {
                    0 => Pooling::Mean,
                    1 => Pooling::Cls,
                    2 => Pooling::Last,
                    3 => Pooling::Rank,
                    _ => return Err(Malformed),
                },
                bidirectional: from.flag()?,
            })
        })?,
    })
}

fn write_load_error(to: &mut Vec<u8>, error: &LoadError) {
    let (kind, message) = match error {
        LoadError::Invalid(message) => (0, message.clone()),
        LoadError::Gpu(message) => (1, message.clone()),
        LoadError::Io(error) => (2, error.to_string()),
        LoadError::DeviceLost { reason, .. } => (3, reason.clone()),
        LoadError::Unsupported(message) => (4, message.clone()),
        error => (4, error.to_string()),
    };
    to.push(kind);
    text(to, &message);
}

fn read_load_error(from: &mut Reader<'_>) -> Result<LoadError, Malformed> {
    let (kind, message) = (from.byte()?, from.text()?);
    Ok(match kind {
        0 => LoadError::Invalid(message),
        1 => LoadError::Gpu(message),
        2 => LoadError::Io(std::io::Error::other(message)),
        3 => LoadError::DeviceLost {
            reason: message,
            retry_after: Duration::ZERO,
        },
        4 => LoadError::Unsupported(message),
        _ => return Err(Malformed),
    })
}

fn write_model_error(to: &mut Vec<u8>, error: &ModelError) {
    let (kind, count, message) = match error {
        ModelError::OutOfMemory(n) => (0, *n, String::new()),
        ModelError::OutOfStates(n) => (1, *n, String::new()),
        ModelError::DeviceLost(reason) => (2, 0, reason.clone()),
        ModelError::NoEmbeddings => (3, 0, String::new()),
        ModelError::NoText => (4, 0, String::new()),
        ModelError::Compute(message) => (5, 0, message.clone()),
        error => (5, 0, error.to_string()),
    };
    to.push(kind);
    number(to, count as u64);
    text(to, &message);
}

fn read_model_error(from: &mut Reader<'_>) -> Result<ModelError, Malformed> {
    let (kind, count, message) = (from.byte()?, from.count()?, from.text()?);
    Ok(match kind {
        0 => ModelError::OutOfMemory(count),
        1 => ModelError::OutOfStates(count),
        2 => ModelError::DeviceLost(message),
        3 => ModelError::NoEmbeddings,
        4 => ModelError::NoText,
        5 => ModelError::Compute(message),
        _ => return Err(Malformed),
    })
}

fn write_plan(to: &mut Vec<u8>, plan: &StepPlan) {
    for words in [&plan.tokens, &plan.positions, &plan.ends, &plan.logit_rows] {
        number(to, words.len() as u64);
        to.extend_from_slice(bytemuck::cast_slice(words));
    }
    number(to, plan.coordinates.len() as u64);
    to.extend_from_slice(bytemuck::cast_slice(&plan.coordinates));
    number(to, plan.images.len() as u64);
    for ImageRows { rows, first, image } in &plan.images {
        range(to, rows);
        to.extend_from_slice(&image.digest);
        to.push(u8::from(image.whole));
        // Only the rows of this step travel, as an image of their own.
        let width = image.embedding.len() / image.rows.max(1);
        let start = first.saturating_mul(width);
        let end = start.saturating_add(rows.len().saturating_mul(width));
        let values = image.embedding.get(start..end).unwrap_or_default();
        number(to, values.len() as u64);
        to.extend_from_slice(bytemuck::cast_slice(values));
    }
    number(to, plan.spans.len() as u64);
    for span in &plan.spans {
        range(to, &span.rows);
        number(to, u64::from(span.start));
        number(to, span.blocks.len() as u64);
        for block in &span.blocks {
            number(to, u64::from(block.0));
        }
        option(to, span.tail, |to, block| number(to, u64::from(block.0)));
        option(to, span.state.as_ref(), |to, state| {
            number(to, u64::from(state.slot.0));
            option(to, state.from, |to, id| number(to, u64::from(id.0)));
            number(to, state.saves.len() as u64);
            for (n_rows, id) in &state.saves {
                number(to, *n_rows as u64);
                number(to, u64::from(id.0));
            }
        });
    }
}

fn read_plan(from: &mut Reader<'_>) -> Result<StepPlan, Malformed> {
    Ok(StepPlan {
        tokens: from.words()?,
        positions: from.words()?,
        ends: from.words()?,
        logit_rows: from.words()?,
        coordinates: from.words()?,
        images: from.list(|from| {
            let rows = from.range()?;
            let image = Image {
                digest: from.array()?,
                whole: from.flag()?,
                rows: rows.len(),
                embedding: from.words()?,
                // What it says is in the coordinates of the plan.
                grid: None,
            };
            Ok(ImageRows {
                rows,
                first: 0,
                image: Arc::new(image),
            })
        })?,
        spans: from.list(|from| {
            Ok(Span {
                rows: from.range()?,
                start: from.word()?,
                blocks: from.list(|from| from.word().map(BlockId))?,
                tail: from.option(|from| from.word().map(BlockId))?,
                state: from.option(|from| {
                    Ok(SpanState {
                        slot: StateId(from.word()?),
                        from: from.option(|from| from.word().map(StateId))?,
                        saves: from.list(|from| Ok((from.count()?, StateId(from.word()?))))?,
                    })
                })?,
            })
        })?,
    })
}

fn number(to: &mut Vec<u8>, number: u64) {
    to.extend_from_slice(&number.to_le_bytes());
}

fn range(to: &mut Vec<u8>, range: &Range<usize>) {
    number(to, range.start as u64);
    number(to, range.end as u64);
}

fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

fn text(to: &mut Vec<u8>, text: &str) {
    bytes(
        to,
        text.get(..text.floor_char_boundary(LONGEST_TEXT))
            .unwrap_or_default()
            .as_bytes(),
    );
}

fn option<T>(to: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    to.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(to, value);
    }
}

/// What of a message is not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }

    fn range(&mut self) -> Result<Range<usize>, Malformed> {
        Ok(self.count()?..self.count()?)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.count()?;
        self.take(n)
    }

    fn path(&mut self) -> Result<PathBuf, Malformed> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()).into())
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads numbers, or groups of them, of one size.
    fn words<T: bytemuck::AnyBitPattern>(&mut self) -> Result<Vec<T>, Malformed> {
        let n_bytes = self.count()?.checked_mul(size_of::<T>());
        let bytes = self.take(n_bytes.ok_or(Malformed)?)?;
        let words = bytes.chunks_exact(size_of::<T>());
        Ok(words.map(bytemuck::pod_read_unaligned).collect())
    }

    /// Reads a list. Its memory grows with what is there, whatever its length claims to be.
    fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let n = self.number()?;
        let mut list = Vec::new();
        for _ in 0..n {
            list.push(read(self)?);
        }
        Ok(list)
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        Ok(if self.flag()? {
            Some(read(self)?)
        } else {
            None
        })
    }

    /// Ends a message, which must have been read whole.
    fn end<T>(self, message: T) -> Result<T, Malformed> {
        if self.0.is_empty() {
            Ok(message)
        } else {
            Err(Malformed)
        }
    }
}

#[cfg(test)]
mod tests;
