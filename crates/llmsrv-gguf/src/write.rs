//! Writing model files, version 3, little-endian: the same input gives the same bytes.

use std::{
    collections::HashSet,
    io::{self, Write},
};

use crate::{
    Array, Error, Metadata, TensorType, Value,
    header::{DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS},
};

/// Collects metadata and tensors and writes them as a file.
#[derive(Clone, Debug)]
pub struct Writer {
    layout: Layout,
    data: Vec<Vec<u8>>,
}

/// A file to be written: its metadata, and its tensors without their data.
///
/// [`Layout::start`] writes all that comes before the data; the data follows piece by piece, so that
/// a file larger than memory can be made.
#[derive(Clone, Debug)]
pub struct Layout {
    metadata: Metadata,
    alignment: u64,
    tensors: Vec<Tensor>,
    names: HashSet<String>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    dtype: TensorType,
    bytes: u64,
}

/// A file that is being written. Takes the data of all tensors of its [`Layout`], in that order.
#[derive(Debug)]
pub struct Stream<W> {
    out: W,
    alignment: u64,
    /// Bytes of the tensors that are not complete, last one first.
    sizes: Vec<u64>,
    /// Bytes that the tensor in progress still needs.
    missing: u64,
    at: u64,
}

impl Writer {
    /// Begins a file with these keys. `general.alignment` is respected.
    pub fn new(metadata: Metadata) -> Writer {
        Writer {
            layout: Layout::new(metadata),
            data: Vec::new(),
        }
    }

    /// Adds a tensor. `shape[0]` is the length of a row; `data` must have exactly the bytes that
    /// shape and type ask for.
    pub fn tensor(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: TensorType,
        data: Vec<u8>,
    ) -> Result<(), Error> {
        check_dimensions(name, shape)?;
        if size(shape, dtype) != Some(data.len() as u64) {
            return Err(invalid(name, "the data does not fit shape and type"));
        }
        self.layout.tensor(name, shape, dtype)?;
        self.data.push(data);
        Ok(())
    }

    /// Writes the whole file.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut stream = self.layout.start(out)?;
        for data in &self.data {
            stream.write_all(data)?;
        }
        stream.finish().map(|_| ())
    }

    /// Returns the whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

impl Layout {
    /// Begins a file with these keys. `general.alignment` is respected.
    pub fn new(metadata: Metadata) -> Layout {
        let alignment = metadata
            .u64("general.alignment")
            .filter(|value| value.is_power_of_two());
        Layout {
            metadata,
            alignment: alignment.unwrap_or(DEFAULT_ALIGNMENT),
            tensors: Vec::new(),
            names: HashSet::new(),
        }
    }

    /// Announces a tensor. `shape[0]` is the length of a row.
    pub fn tensor(&mut self, name: &str, shape: &[u64], dtype: TensorType) -> Result<(), Error> {
        check_dimensions(name, shape)?;
        let bytes =
            size(shape, dtype).ok_or_else(|| invalid(name, "the type does not fit this shape"))?;
        if !self.names.insert(name.to_owned()) {
            return Err(invalid(name, "one of this name is there already"));
        }
        self.tensors.push(Tensor {
            name: name.to_owned(),
            shape: shape.to_vec(),
            dtype,
            bytes,
        });
        Ok(())
    }

    /// Returns the bytes of data of all tensors, without what aligns them.
    pub fn data_bytes(&self) -> u64 {
        let sizes = self.tensors.iter().map(|tensor| tensor.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes everything before the data of the first tensor.
    pub fn start<W: Write>(&self, mut out: W) -> io::Result<Stream<W>> {
        let header = self.header();
        out.write_all(&header)?;
        let mut stream = Stream {
            out,
            alignment: self.alignment,
            sizes: self
                .tensors
                .iter()
                .rev()
                .map(|tensor| tensor.bytes)
                .collect(),
            missing: 0,
            at: header.len() as u64,
        };
        stream.next_tensor()?;
        Ok(stream)
    }

    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&3_u32.to_le_bytes());
        out.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            put_bytes(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            put_bytes(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.shape.len() as u32).to_le_bytes());
            for size in &tensor.shape {
                out.extend_from_slice(&size.to_le_bytes());
            }
            out.extend_from_slice(&tensor.dtype.id().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            offset = (offset + tensor.bytes).next_multiple_of(self.alignment);
        }
        out
    }
}

impl<W: Write> Stream<W> {
    /// Writes more of the data; it may end one tensor and begin the next.
    pub fn write_all(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            if self.missing == 0 {
                let message = "more data than the tensors have";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            let n_bytes = self.missing.min(data.len() as u64);
            let (piece, rest) = data.split_at(n_bytes as usize);
            self.out.write_all(piece)?;
            self.at += n_bytes;
            self.missing -= n_bytes;
            data = rest;
            if self.missing == 0 {
                self.next_tensor()?;
            }
        }
        Ok(())
    }

    /// Ends the file; it is an error if data is missing.
    pub fn finish(mut self) -> io::Result<W> {
        if self.missing > 0 {
            let message = "less data than the tensors have";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// Aligns and goes to the next tensor that has data.
    fn next_tensor(&mut self) -> io::Result<()> {
        let padded = self.at.next_multiple_of(self.alignment);
        let mut padding = padded - self.at;
        while padding > 0 {
            let n_bytes = padding.min(ZEROS.len() as u64);
            self.out.write_all(&ZEROS[..n_bytes as usize])?;
            padding -= n_bytes;
        }
        self.at = padded;
        while self.missing == 0
            && let Some(bytes) = self.sizes.pop()
        {
            self.missing = bytes;
        }
        Ok(())
    }
}

const ZEROS: [u8; 256] = [0; 256];

/// Refuses shapes that no reader takes.
fn check_dimensions(name: &str, shape: &[u64]) -> Result<(), Error> {
    if shape.is_empty() || shape.len() > MAX_DIMS as usize {
        return Err(invalid(name, "one to four dimensions are possible"));
    }
    if shape.contains(&0) {
        return Err(invalid(name, "it has no elements"));
    }
    Ok(())
}

fn invalid(name: &str, what: &str) -> Error {
    Error::Invalid(format!("tensor `{name}`: {what}"))
}

/// Bytes of the data; `None` if the type cannot have this shape.
fn size(shape: &[u64], dtype: TensorType) -> Option<u64> {
    let n_elements = shape
        .iter()
        .try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    shape
        .first()
        .is_some_and(|row_len| row_len.is_multiple_of(dtype.block_len() as u64))
        .then(|| dtype.bytes_for(n_elements))?
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut scalar = |kind: u32, bytes: &[u8]| {
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Value::U8(value) => scalar(0, &value.to_le_bytes()),
        Value::I8(value) => scalar(1, &value.to_le_bytes()),
        Value::U16(value) => scalar(2, &value.to_le_bytes()),
        Value::I16(value) => scalar(3, &value.to_le_bytes()),
        Value::U32(value) => scalar(4, &value.to_le_bytes()),
        Value::I32(value) => scalar(5, &value.to_le_bytes()),
        Value::F32(value) => scalar(6, &value.to_le_bytes()),
        Value::Bool(value) => scalar(7, &[u8::from(*value)]),
        Value::String(text) => {
            scalar(8, &[]);
            put_bytes(out, text.as_bytes());
        }
        Value::Array(array) => {
            scalar(9, &[]);
            put_array(out, array);
        }
        Value::U64(value) => scalar(10, &value.to_le_bytes()),
        Value::I64(value) => scalar(11, &value.to_le_bytes()),
        Value::F64(value) => scalar(12, &value.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    macro_rules! numbers {
        ($kind:literal, $values:expr) => {{
            out.extend_from_slice(&u32::to_le_bytes($kind));
            out.extend_from_slice(&($values.len() as u64).to_le_bytes());
            for value in $values {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }};
    }
    match array {
        Array::U8(values) => numbers!(0, values),
        Array::I8(values) => numbers!(1, values),
        Array::U16(values) => numbers!(2, values),
        Array::I16(values) => numbers!(3, values),
        Array::U32(values) => numbers!(4, values),
        Array::I32(values) => numbers!(5, values),
        Array::F32(values) => numbers!(6, values),
        Array::Bool(values) => {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
            numbers!(7, &bytes);
        }
        Array::Strings(strings) => {
            out.extend_from_slice(&8_u32.to_le_bytes());
            out.extend_from_slice(&(strings.len() as u64).to_le_bytes());
            for string in strings.iter() {
                put_bytes(out, string);
            }
        }
        Array::Nested(arrays) => {
            out.extend_from_slice(&9_u32.to_le_bytes());
            out.extend_from_slice(&(arrays.len() as u64).to_le_bytes());
            for array in arrays {
                put_array(out, array);
            }
        }
        Array::U64(values) => numbers!(10, values),
        Array::I64(values) => numbers!(11, values),
        Array::F64(values) => numbers!(12, values),
    }
}
