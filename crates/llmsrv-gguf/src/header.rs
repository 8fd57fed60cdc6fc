//! The bounded parser of everything before the tensor data.

use std::{collections::HashSet, fmt};

use crate::{Array, Error, Metadata, StringArray, TensorInfo, TensorType, Value};

/// Everything a file says about itself. Offsets and sizes of tensors lie within the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Version of the format, 2 or 3.
    pub version: u32,
    /// Keys and values.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// Tensor data begins at multiples of this many bytes.
    pub alignment: u64,
    /// Where tensor data begins in the file.
    pub data_start: u64,
}

impl Header {
    /// Parses the header at the start of `bytes`, of a file that is `file_len` bytes long.
    ///
    /// Time and memory are bounded by the length of `bytes`, of which no more than 256 MiB are
    /// read, and by the numbers of keys, tensors and nested arrays.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Header, Error> {
        let mut reader = Reader {
            rest: bytes.get(..MAX_HEADER_BYTES).unwrap_or(bytes),
            is_cut: bytes.len() > MAX_HEADER_BYTES,
            what: What::Header,
            n_arrays: 0,
        };
        let readable = reader.rest.len();
        if reader.take(4)? != MAGIC {
            return Err(Error::Magic);
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(Error::Version(version));
        }
        let n_tensors = reader.few(MIN_TENSOR_BYTES, MAX_TENSORS, "tensors")?;
        let n_keys = reader.few(MIN_KEY_BYTES, MAX_KEYS, "keys")?;

        let mut metadata = Metadata::new();
        for index in 0..n_keys {
            reader.what = What::Key(index);
            let key = reader.text(MAX_NAME_BYTES)?;
            reader.what = What::NamedKey(key);
            let kind = reader.u32()?;
            let value = reader.value(kind, 0)?;
            if metadata.get(key).is_some() {
                return Err(Error::Invalid(format!(
                    "key `{}` appears twice",
                    shown(key)
                )));
            }
            metadata.set(key, value);
        }

        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(_) => match metadata.u64("general.alignment") {
                Some(value) if value.is_power_of_two() && value <= MAX_ALIGNMENT => value,
                _ => {
                    return Err(Error::Invalid(
                        "general.alignment is not a sensible power of two".into(),
                    ));
                }
            },
        };

        let mut tensors = Vec::with_capacity(n_tensors);
        let mut names = HashSet::with_capacity(n_tensors);
        for index in 0..n_tensors {
            reader.what = What::Tensor(index);
            let tensor = reader.tensor()?;
            if !names.insert(tensor.name.clone()) {
                return Err(Error::Invalid(format!(
                    "tensor `{}` appears twice",
                    shown(&tensor.name)
                )));
            }
            tensors.push(tensor);
        }

        let header_len = (readable - reader.rest.len()) as u64;
        let data_start = header_len.next_multiple_of(alignment);
        place(&mut tensors, data_start, alignment, file_len)?;
        Ok(Header {
            version,
            metadata,
            tensors,
            alignment,
            data_start,
        })
    }

    /// Returns the tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Returns the number of weights: the elements of all tensors.
    pub fn parameter_count(&self) -> u64 {
        self.tensors
            .iter()
            .map(TensorInfo::n_elements)
            .fold(0, u64::saturating_add)
    }

    /// Returns the name of the quantisation mix as users know it, for example `Q4_K_M`.
    pub fn file_type_name(&self) -> String {
        let declared = self.metadata.u32("general.file_type");
        if let Some((_, name)) = FILE_TYPES.iter().find(|(id, _)| Some(*id) == declared) {
            return (*name).to_owned();
        }
        // The type that holds most elements.
        let mut sums: Vec<(TensorType, u64)> = Vec::new();
        for tensor in &self.tensors {
            match sums.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype) {
                Some((_, sum)) => *sum = sum.saturating_add(tensor.n_elements()),
                None => sums.push((tensor.dtype, tensor.n_elements())),
            }
        }
        sums.into_iter()
            .max_by_key(|(_, sum)| *sum)
            .map_or("unknown".into(), |(dtype, _)| dtype.name().to_owned())
    }
}

/// Turns offsets within the data part into offsets within the file and checks that they fit.
fn place(
    tensors: &mut [TensorInfo],
    data_start: u64,
    alignment: u64,
    file_len: u64,
) -> Result<(), Error> {
    for tensor in tensors.iter_mut() {
        let name = shown(&tensor.name);
        if !tensor.offset.is_multiple_of(alignment) {
            return Err(Error::Invalid(format!("tensor `{name}` is not aligned")));
        }
        let start = data_start.checked_add(tensor.offset);
        let end = start.and_then(|start| start.checked_add(tensor.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => tensor.offset = start,
            _ => return Err(Error::Truncated(format!("tensor `{name}`"))),
        }
    }
    bound_unknown(tensors, file_len);
    let mut ranges: Vec<(u64, u64, &str)> = tensors
        .iter()
        .map(|tensor| {
            (
                tensor.offset,
                tensor.offset + tensor.bytes,
                tensor.name.as_str(),
            )
        })
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if pair[1].0 < pair[0].1 {
            let (a, b) = (shown(pair[0].2), shown(pair[1].2));
            return Err(Error::Invalid(format!("tensors `{a}` and `{b}` overlap")));
        }
    }
    Ok(())
}

/// Says of tensors of unknown type, whose size no one can compute, that they end where the next begins.
fn bound_unknown(tensors: &mut [TensorInfo], file_len: u64) {
    let is_unknown = |tensor: &TensorInfo| matches!(tensor.dtype, TensorType::Unknown(_));
    if !tensors.iter().any(is_unknown) {
        return;
    }
    let mut starts: Vec<u64> = tensors.iter().map(|tensor| tensor.offset).collect();
    starts.sort_unstable();
    for tensor in tensors.iter_mut().filter(|tensor| is_unknown(tensor)) {
        let next = starts.partition_point(|start| *start <= tensor.offset);
        tensor.bytes = starts.get(next).unwrap_or(&file_len) - tensor.offset;
    }
}

/// Reads from the front; an attempt to read past the end names what was being read.
struct Reader<'a> {
    rest: &'a [u8],
    /// Whether the file goes on behind what may be read.
    is_cut: bool,
    what: What<'a>,
    /// Arrays within arrays so far.
    n_arrays: usize,
}

/// What is being read; it becomes text only if something is wrong with it.
#[derive(Clone, Copy)]
enum What<'a> {
    Header,
    Key(usize),
    NamedKey(&'a str),
    Tensor(usize),
    NamedTensor(&'a str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Header => f.write_str("the header"),
            What::Key(index) => write!(f, "key {index}"),
            What::NamedKey(name) => write!(f, "key `{}`", shown(name)),
            What::Tensor(index) => write!(f, "tensor {index}"),
            What::NamedTensor(name) => write!(f, "tensor `{}`", shown(name)),
        }
    }
}

impl<'a> Reader<'a> {
    fn take(&mut self, n_bytes: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n_bytes)
            .ok_or_else(|| self.ended())?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| self.ended())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn ended(&self) -> Error {
        if self.is_cut {
            return Error::Invalid(format!(
                "the header is larger than {} MiB",
                MAX_HEADER_BYTES >> 20
            ));
        }
        Error::Truncated(self.what.to_string())
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a count of things that take at least `min_bytes` each, so that it can be believed.
    fn count(&mut self, min_bytes: usize, things: &str) -> Result<usize, Error> {
        let count = self.u64()?;
        let possible = (self.rest.len() / min_bytes) as u64;
        if count > possible {
            if self.is_cut {
                return Err(self.ended());
            }
            return Err(Error::Truncated(format!(
                "{}: {count} {things} are announced",
                self.what
            )));
        }
        Ok(count as usize)
    }

    /// Reads a count of things of which no file has more than `most`.
    fn few(&mut self, min_bytes: usize, most: usize, things: &str) -> Result<usize, Error> {
        let count = self.count(min_bytes, things)?;
        if count > most {
            return Err(Error::Invalid(format!(
                "{} announces {count} {things}, and at most {most} are read",
                self.what
            )));
        }
        Ok(count)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let len = self.count(1, "bytes")?;
        self.take(len)
    }

    fn text(&mut self, max_bytes: usize) -> Result<&'a str, Error> {
        let bytes = self.bytes()?;
        if bytes.len() > max_bytes {
            return Err(Error::Invalid(format!(
                "the name of {} is too long",
                self.what
            )));
        }
        std::str::from_utf8(bytes)
            .map_err(|_| Error::Invalid(format!("{} is not UTF-8 text", self.what)))
    }

    fn value(&mut self, kind: u32, depth: usize) -> Result<Value, Error> {
        Ok(match kind {
            0 => Value::U8(self.array::<1>()?[0]),
            1 => Value::I8(i8::from_le_bytes(self.array()?)),
            2 => Value::U16(u16::from_le_bytes(self.array()?)),
            3 => Value::I16(i16::from_le_bytes(self.array()?)),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(i32::from_le_bytes(self.array()?)),
            6 => Value::F32(f32::from_le_bytes(self.array()?)),
            7 => Value::Bool(self.array::<1>()?[0] != 0),
            8 => Value::String(self.text(usize::MAX)?.to_owned()),
            9 => Value::Array(self.values(depth)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(i64::from_le_bytes(self.array()?)),
            12 => Value::F64(f64::from_le_bytes(self.array()?)),
            _ => {
                return Err(Error::Invalid(format!(
                    "{} has the unknown type {kind}",
                    self.what
                )));
            }
        })
    }

    fn values(&mut self, depth: usize) -> Result<Array, Error> {
        let kind = self.u32()?;
        Ok(match kind {
            0 => Array::U8(self.numbers(u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(f32::from_le_bytes)?),
            7 => Array::Bool(self.numbers(|[byte]: [u8; 1]| byte != 0)?),
            8 => {
                let count = self.count(8, "strings")?;
                let mut strings = StringArray::new();
                for _ in 0..count {
                    strings.push(self.bytes()?);
                }
                Array::Strings(strings)
            }
            9 if depth < MAX_NESTING => {
                let most = MAX_ARRAYS - self.n_arrays;
                let count = self.few(MIN_ARRAY_BYTES, most, "arrays")?;
                self.n_arrays += count;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.values(depth + 1)?);
                }
                Array::Nested(arrays)
            }
            9 => {
                return Err(Error::Invalid(format!(
                    "{} nests arrays too deeply",
                    self.what
                )));
            }
            10 => Array::U64(self.numbers(u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(f64::from_le_bytes)?),
            _ => {
                return Err(Error::Invalid(format!(
                    "{} has elements of the unknown type {kind}",
                    self.what
                )));
            }
        })
    }

    fn numbers<const N: usize, T>(&mut self, from: impl Fn([u8; N]) -> T) -> Result<Vec<T>, Error> {
        let count = self.count(N, "elements")?;
        let bytes = self.take(count * N)?;
        Ok(bytes
            .as_chunks::<N>()
            .0
            .iter()
            .map(|chunk| from(*chunk))
            .collect())
    }

    /// Reads the description of a tensor; its offset counts from the start of the data part.
    fn tensor(&mut self) -> Result<TensorInfo, Error> {
        let name = self.text(MAX_NAME_BYTES)?;
        self.what = What::NamedTensor(name);
        let n_dims = self.u32()?;
        if !(1..=MAX_DIMS).contains(&n_dims) {
            return Err(Error::Invalid(format!(
                "{} has {n_dims} dimensions",
                self.what
            )));
        }
        let mut shape = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            shape.push(self.u64()?);
        }
        let type_id = self.u32()?;
        let dtype = TensorType::from_id(type_id);
        let offset = self.u64()?;
        let bytes = shape
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size))
            // Without a size of zero no part of the product is larger than the whole.
            .filter(|_| !shape.contains(&0) && shape[0].is_multiple_of(dtype.block_len() as u64))
            .and_then(|n_elements| match dtype {
                TensorType::Unknown(_) => Some(0),
                dtype => dtype.bytes_for(n_elements),
            })
            .ok_or_else(|| {
                Error::Invalid(format!(
                    "{} of type {dtype} cannot have shape {shape:?}",
                    self.what
                ))
            })?;
        Ok(TensorInfo {
            name: name.to_owned(),
            shape,
            dtype,
            offset,
            bytes,
        })
    }
}

/// A name as it can stand in a one-line message.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.chars().nth(80).is_some() {
        text.push('…');
    }
    text
}

pub(crate) const MAGIC: &[u8] = b"GGUF";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
pub(crate) const MAX_DIMS: u32 = 4;
/// The largest headers, of vocabularies with hundreds of thousands of tokens, are a tenth of this.
const MAX_HEADER_BYTES: usize = 256 << 20;
/// Published files have about fifty.
const MAX_KEYS: usize = 1 << 16;
/// Published files have some thousand at most.
const MAX_TENSORS: usize = 1 << 16;
/// Arrays within arrays: no published file has any.
const MAX_ARRAYS: usize = 1 << 16;
const MAX_ALIGNMENT: u64 = 1 << 20;
const MAX_NAME_BYTES: usize = 65_535;
const MAX_NESTING: usize = 4;
/// Name length, dimensions, one size, type, offset.
const MIN_TENSOR_BYTES: usize = 8 + 4 + 8 + 4 + 8;
/// Key length, type, a value of one byte.
const MIN_KEY_BYTES: usize = 8 + 4 + 1;
/// Element type, count.
const MIN_ARRAY_BYTES: usize = 4 + 8;

/// `general.file_type` and the names users know, as in llama.cpp's list of mixes.
const FILE_TYPES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4_MOE"),
    (39, "NVFP4"),
    (40, "Q1_0"),
    (41, "Q2_0"),
];
