//! Writing model files, version 3, little-endian: the same input gives the same bytes.

use std::io::{self, Write};

use crate::{
    Array, Error, Metadata, TensorType, Value,
    header::{DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS},
};

/// Collects metadata and tensors and writes them as a file.
#[derive(Clone, Debug)]
pub struct Writer {
    metadata: Metadata,
    alignment: u64,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    dtype: TensorType,
    data: Vec<u8>,
}

impl Writer {
    /// Begins a file with these keys. `general.alignment` is respected.
    pub fn new(metadata: Metadata) -> Writer {
        let alignment = metadata
            .u64("general.alignment")
            .filter(|value| value.is_power_of_two());
        Writer {
            metadata,
            alignment: alignment.unwrap_or(DEFAULT_ALIGNMENT),
            tensors: Vec::new(),
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
        let invalid = |text: &str| Error::Invalid(format!("tensor `{name}`: {text}"));
        if shape.is_empty() || shape.len() > MAX_DIMS as usize {
            return Err(invalid("one to four dimensions are possible"));
        }
        let n_elements = shape
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size));
        let bytes = n_elements
            .filter(|_| shape[0].is_multiple_of(dtype.block_len() as u64))
            .and_then(|n_elements| dtype.bytes_for(n_elements));
        if bytes != Some(data.len() as u64) {
            return Err(invalid("the data does not fit shape and type"));
        }
        self.tensors.push(Tensor {
            name: name.to_owned(),
            shape: shape.to_vec(),
            dtype,
            data,
        });
        Ok(())
    }

    /// Writes the whole file.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = self.header();
        out.write_all(&header)?;
        let mut at = header.len() as u64;
        pad(out, &mut at, self.alignment)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            at += tensor.data.len() as u64;
            pad(out, &mut at, self.alignment)?;
        }
        Ok(())
    }

    /// Returns the whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
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
            offset = (offset + tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }
}

fn pad(out: &mut dyn Write, at: &mut u64, alignment: u64) -> io::Result<()> {
    let padded = at.next_multiple_of(alignment);
    out.write_all(&vec![0; (padded - *at) as usize])?;
    *at = padded;
    Ok(())
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
