//! What server and worker say to each other, as bytes. Both are the same program, so there are no versions; what is
//! read is checked all the same, because a driver may have written anywhere in the worker's memory.

use std::{
    ffi::OsString, io, ops::Range, os::unix::ffi::OsStringExt as _, path::PathBuf, sync::Arc,
    time::Duration,
};

use llmsrv_engine::{
    ActivationPrecision, Adapter, BlockId, EmbeddingSpec, GpuArithmetic, GpuLimits, GpuOptions,
    GpuShare, Image, ImageRows, LoadError, LoadOptions, ModelError, ModelSpec, NpuOptions, Offload,
    Pooling, Span, SpanState, StateId, StepPlan, UsableGpu,
};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it sent what is no message")]
pub(crate) struct Malformed;

/// What the server wants.
#[derive(Debug, PartialEq)]
pub(crate) enum Request {
    /// Say which GPUs there are.
    Gpus(GpuOptions),
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
    Gpus(Vec<UsableGpu>),
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
        write_as(to, if embed { 5 } else { 4 }, plan);
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Request::Gpus(gpu) => write_as(to, 0, gpu),
            Request::Load(path, options) => {
                write_as(to, 1, path);
                options.write(to);
            }
            Request::ReserveBlocks(n) => write_as(to, 2, n),
            Request::ReserveStates(n) => write_as(to, 3, n),
            Request::Forward(plan) => Request::write_step(to, plan, false),
            Request::Embed(plan) => Request::write_step(to, plan, true),
        }
    }

    pub(crate) fn read(from: &[u8]) -> Result<Request, Malformed> {
        let mut from = Reader(from);
        let request = match from.byte()? {
            0 => Request::Gpus(Wire::read(&mut from)?),
            1 => Request::Load(Wire::read(&mut from)?, Box::new(Wire::read(&mut from)?)),
            2 => Request::ReserveBlocks(Wire::read(&mut from)?),
            3 => Request::ReserveStates(Wire::read(&mut from)?),
            4 => Request::Forward(Wire::read(&mut from)?),
            5 => Request::Embed(Wire::read(&mut from)?),
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
        match self {
            Reply::Gpus(gpus) => write_as(to, 0, gpus),
            Reply::Loaded(spec) => write_as(to, 1, spec),
            Reply::NotLoaded(error) => write_as(to, 2, error),
            Reply::Done => {
                to.clear();
                to.push(3);
            }
            Reply::Rows(rows) => Reply::write_rows(to, rows),
            Reply::Failed(error) => write_as(to, 5, error),
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
            0 => Reply::Gpus(Wire::read(&mut from)?),
            1 => Reply::Loaded(Wire::read(&mut from)?),
            2 => Reply::NotLoaded(Wire::read(&mut from)?),
            3 => Reply::Done,
            5 => Reply::Failed(Wire::read(&mut from)?),
            _ => return Err(Malformed),
        };
        from.end(reply)
    }
}

/// Begins a message: its kind, then what it is about.
fn write_as(to: &mut Vec<u8>, kind: u8, what: &impl Wire) {
    to.clear();
    to.push(kind);
    what.write(to);
}

/// What can be part of a message.
trait Wire: Sized {
    fn write(&self, to: &mut Vec<u8>);

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Sends the fields of a struct one after the other. What follows a semicolon stays behind and is this on the other
/// side.
macro_rules! fields {
    ($($type:ident { $($field:ident),* $(; $left:ident: $value:expr)? })*) => {$(
        impl Wire for $type {
            fn write(&self, to: &mut Vec<u8>) {
                let $type { $($field,)* $($left: _)? } = self;
                $($field.write(to);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                Ok($type { $($field: Wire::read(from)?,)* $($left: $value)? })
            }
        }
    )*};
}

fields! {
    GpuOptions { arithmetic, vendor, software, leave_free_bytes, limit_bytes, visible, nvidia, checked }
    UsableGpu { name, free_bytes, limits }
    GpuLimits { read, float, cpu_read, tiles_from, matrices }
    Offload { n_layers, n_cpu_moe, main_gpu, spread, split }
    NpuOptions { runtime, provider, cache }
    Adapter { path, scale }
    LoadOptions {
        kv_cache_type, n_threads, device, gpu, offload, npu, activation_precision, adapters;
        projector: None
    }
    ModelSpec {
        vocab_size, block_size, context_length, kv_block_bytes, state_bytes, weight_bytes, embedding, n_layers, gpus,
        npu
    }
    GpuShare { n_layers, weight_bytes, kv_block_bytes, state_bytes }
    EmbeddingSpec { width, pooling, bidirectional }
    Span { rows, start, blocks, tail, state }
    SpanState { slot, from, saves }
}

/// Sends one of a few things as a byte.
macro_rules! choices {
    ($($type:ident { $($choice:ident = $code:literal)* })*) => {$(
        impl Wire for $type {
            fn write(&self, to: &mut Vec<u8>) {
                to.push(match self { $($type::$choice => $code),* });
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                Ok(match from.byte()? {
                    $($code => $type::$choice,)*
                    _ => return Err(Malformed),
                })
            }
        }
    )*};
}

choices! {
    ActivationPrecision { Auto = 0 Int8 = 1 Int16 = 2 F32 = 3 }
    GpuArithmetic { Exact = 0 Int8 = 1 Auto = 2 }
    Pooling { Mean = 0 Cls = 1 Last = 2 Rank = 3 }
}

impl Wire for bool {
    fn write(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<bool, Malformed> {
        match from.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Wire for $type {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                from.array().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

numbers! { u8 u32 u64 usize f32 }

macro_rules! ids {
    ($($type:ident)*) => {$(
        impl Wire for $type {
            fn write(&self, to: &mut Vec<u8>) {
                self.0.write(to);
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                Wire::read(from).map($type)
            }
        }
    )*};
}

ids! { BlockId StateId }

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
        self.1.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<(A, B), Malformed> {
        Ok((Wire::read(from)?, Wire::read(from)?))
    }
}

impl Wire for Range<usize> {
    fn write(&self, to: &mut Vec<u8>) {
        self.start.write(to);
        self.end.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Range<usize>, Malformed> {
        Ok(Wire::read(from)?..Wire::read(from)?)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.is_some().write(to);
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        bool::read(from)?.then(|| T::read(from)).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) {
        self.len().write(to);
        for value in self {
            value.write(to);
        }
    }

    /// Its memory grows with what is there, whatever its length claims to be.
    fn read(from: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
        let n = usize::read(from)?;
        let mut list = Vec::new();
        for _ in 0..n {
            list.push(T::read(from)?);
        }
        Ok(list)
    }
}

impl Wire for String {
    fn write(&self, to: &mut Vec<u8>) {
        let text = self.get(..self.floor_char_boundary(LONGEST_TEXT));
        write_words(to, text.unwrap_or_default().as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(&from.words::<u8>()?).into_owned())
    }
}

impl Wire for OsString {
    fn write(&self, to: &mut Vec<u8>) {
        write_words(to, self.as_encoded_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<OsString, Malformed> {
        from.words().map(OsString::from_vec)
    }
}

impl Wire for PathBuf {
    fn write(&self, to: &mut Vec<u8>) {
        write_words(to, self.as_os_str().as_encoded_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<PathBuf, Malformed> {
        OsString::read(from).map(PathBuf::from)
    }
}

impl Wire for LoadError {
    fn write(&self, to: &mut Vec<u8>) {
        let (kind, message): (u8, String) = match self {
            LoadError::Invalid(message) => (0, message.clone()),
            LoadError::Gpu(message) => (1, message.clone()),
            LoadError::Io(error) => (2, error.to_string()),
            LoadError::DeviceLost { reason, .. } => (3, reason.clone()),
            LoadError::Unsupported(message) => (4, message.clone()),
            LoadError::GpuNotAllowed(message) => (5, message.clone()),
            error => (4, error.to_string()),
        };
        (kind, message).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<LoadError, Malformed> {
        let (kind, message) = Wire::read(from)?;
        Ok(match kind {
            0_u8 => LoadError::Invalid(message),
            1 => LoadError::Gpu(message),
            2 => LoadError::Io(io::Error::other(message)),
            3 => LoadError::DeviceLost {
                reason: message,
                retry_after: Duration::ZERO,
            },
            4 => LoadError::Unsupported(message),
            5 => LoadError::GpuNotAllowed(message),
            _ => return Err(Malformed),
        })
    }
}

impl Wire for ModelError {
    fn write(&self, to: &mut Vec<u8>) {
        let (kind, count, message): (u8, usize, String) = match self {
            ModelError::OutOfMemory(n) => (0, *n, String::new()),
            ModelError::OutOfStates(n) => (1, *n, String::new()),
            ModelError::DeviceLost(reason) => (2, 0, reason.clone()),
            ModelError::NoEmbeddings => (3, 0, String::new()),
            ModelError::NoText => (4, 0, String::new()),
            ModelError::Compute(message) => (5, 0, message.clone()),
            error => (5, 0, error.to_string()),
        };
        (kind, (count, message)).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<ModelError, Malformed> {
        let (kind, (count, message)) = Wire::read(from)?;
        Ok(match kind {
            0_u8 => ModelError::OutOfMemory(count),
            1 => ModelError::OutOfStates(count),
            2 => ModelError::DeviceLost(message),
            3 => ModelError::NoEmbeddings,
            4 => ModelError::NoText,
            5 => ModelError::Compute(message),
            _ => return Err(Malformed),
        })
    }
}

/// Its long lists travel as they lie in memory.
impl Wire for StepPlan {
    fn write(&self, to: &mut Vec<u8>) {
        for words in [&self.tokens, &self.positions, &self.ends, &self.logit_rows] {
            write_words(to, words);
        }
        write_words(to, &self.coordinates);
        self.images.write(to);
        self.spans.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<StepPlan, Malformed> {
        Ok(StepPlan {
            tokens: from.words()?,
            positions: from.words()?,
            ends: from.words()?,
            logit_rows: from.words()?,
            coordinates: from.words()?,
            images: Wire::read(from)?,
            spans: Wire::read(from)?,
        })
    }
}

/// Only the rows of this step travel, as an image of their own.
impl Wire for ImageRows {
    fn write(&self, to: &mut Vec<u8>) {
        let ImageRows { rows, first, image } = self;
        rows.write(to);
        to.extend_from_slice(&image.digest);
        image.whole.write(to);
        let width = image.embedding.len() / image.rows.max(1);
        let start = first.saturating_mul(width);
        let end = start.saturating_add(rows.len().saturating_mul(width));
        write_words(to, image.embedding.get(start..end).unwrap_or_default());
    }

    fn read(from: &mut Reader<'_>) -> Result<ImageRows, Malformed> {
        let rows = Range::read(from)?;
        let image = Image {
            digest: from.array()?,
            whole: Wire::read(from)?,
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
    }
}

/// Writes numbers, or groups of them, of one size.
fn write_words<T: bytemuck::NoUninit>(to: &mut Vec<u8>, words: &[T]) {
    words.len().write(to);
    to.extend_from_slice(bytemuck::cast_slice(words));
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
        u8::read(self)
    }

    /// Reads what [`write_words`] wrote.
    fn words<T: bytemuck::AnyBitPattern>(&mut self) -> Result<Vec<T>, Malformed> {
        let n_bytes = usize::read(self)?.checked_mul(size_of::<T>());
        let bytes = self.take(n_bytes.ok_or(Malformed)?)?;
        let words = bytes.chunks_exact(size_of::<T>());
        Ok(words.map(bytemuck::pod_read_unaligned).collect())
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
