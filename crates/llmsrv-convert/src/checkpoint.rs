//! Tensors in safetensors files: <https://huggingface.co/docs/safetensors>.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
};

use llmsrv_gguf::{TensorType, json};
use safetensors::{Dtype, tensor::Metadata};

use crate::{
    Error,
    files::{Files, MAX_VALUES},
};

/// The tensors of all files of a model.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    parts: Vec<File>,
    tensors: BTreeMap<String, Tensor>,
}

/// Where a tensor lies and what it looks like.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Name in the file.
    pub(crate) name: String,
    /// Sizes, the longest stride first: the last is the length of a row.
    pub(crate) shape: Vec<u64>,
    dtype: Dtype,
    part: usize,
    start: u64,
}

impl Checkpoint {
    /// Reads the headers of all files with weights and checks them against the sizes of the files.
    pub(crate) fn open(files: &Files<'_>) -> Result<Checkpoint, Error> {
        let mut checkpoint = Checkpoint {
            parts: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for (name, path) in files.weights() {
            checkpoint.add(name, File::open(path)?)?;
        }
        if checkpoint.tensors.is_empty() {
            return Err(Error::MissingFile("a safetensors file with weights"));
        }
        if let Some(index) = files.json("model.safetensors.index.json")?
            && let Some(map) = index.get("weight_map").and_then(|map| map.as_object())
            && let Some(missing) = map
                .keys()
                .find(|name| !checkpoint.tensors.contains_key(*name))
        {
            return Err(Error::Invalid(format!(
                "tensor {} of the index is in none of the files",
                shown(missing)
            )));
        }
        Ok(checkpoint)
    }

    fn add(&mut self, file_name: &str, mut file: File) -> Result<(), Error> {
        let file_name = shown(file_name);
        let invalid =
            |what: &str| Error::Invalid(format!("{file_name} is not a safetensors file: {what}"));
        let file_len = file.metadata()?.len();
        let mut len = [0; 8];
        if file_len < 8 {
            return Err(invalid("it is too short"));
        }
        file.read_exact(&mut len)?;
        let header_len = u64::from_le_bytes(len);
        if header_len > MAX_HEADER_BYTES {
            return Err(invalid("its header is larger than 16 MiB"));
        }
        if header_len > file_len - 8 {
            return Err(invalid("its header is longer than the file"));
        }
        let mut header = vec![0; header_len as usize];
        file.read_exact(&mut header)?;
        json::check(&header, MAX_VALUES).map_err(|what| invalid(&what))?;
        // Reading it checks that shapes, types and ranges agree.
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| invalid(&error.to_string()))?;
        if self.tensors.len() + metadata.tensors().len() > MAX_TENSORS {
            return Err(invalid("it has more than 65,536 tensors"));
        }
        let data_start = 8 + header_len;
        if metadata.data_len() as u64 > file_len - data_start {
            return Err(invalid("it ends before its data"));
        }
        let part = self.parts.len();
        for (name, info) in metadata.tensors() {
            let tensor = Tensor {
                shape: info.shape.iter().map(|size| *size as u64).collect(),
                dtype: info.dtype,
                part,
                start: data_start + info.data_offsets.0 as u64,
                name: name.clone(),
            };
            if self.tensors.contains_key(&name) {
                let message = format!("tensor {} is in two files", shown(&name));
                return Err(Error::Invalid(message));
            }
            self.tensors.insert(name, tensor);
        }
        self.parts.push(file);
        Ok(())
    }

    /// Returns all tensors by name.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// Reads some rows of a tensor, as they lie in the file.
    pub(crate) fn read_rows(
        &mut self,
        tensor: &Tensor,
        first: u64,
        n_rows: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let outside = || Error::Invalid(format!("tensor {} is too large", shown(&tensor.name)));
        let row_bytes = tensor.row_len() * tensor.dtype()?.block_bytes() as u64;
        let len = row_bytes.checked_mul(n_rows).ok_or_else(outside)?;
        out.resize(usize::try_from(len).map_err(|_| outside())?, 0);
        let file = self.parts.get_mut(tensor.part).ok_or_else(outside)?;
        file.seek(SeekFrom::Start(tensor.start + first * row_bytes))?;
        file.read_exact(out)?;
        Ok(())
    }
}

impl Tensor {
    /// Returns the type of the elements, if it is one that weights have.
    pub(crate) fn dtype(&self) -> Result<TensorType, Error> {
        match self.dtype {
            Dtype::F32 => Ok(TensorType::F32),
            Dtype::F16 => Ok(TensorType::F16),
            Dtype::BF16 => Ok(TensorType::BF16),
            other => Err(Error::Unsupported(format!(
                "tensor {} is of type {other:?}; F32, F16 and BF16 can be converted",
                shown(&self.name)
            ))),
        }
    }

    /// Returns the length of a row; a vector has rows of one element.
    pub(crate) fn row_len(&self) -> u64 {
        match self.shape.as_slice() {
            [] | [_] => 1,
            [.., last] => *last,
        }
    }

    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> u64 {
        match self.shape.as_slice() {
            [len] => *len,
            shape => shape.iter().rev().skip(1).product(),
        }
    }
}

/// A name of a file or tensor as it can stand in a one-line message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

/// Published files have less than one.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// In all files of a model: as many as a model file may have.
const MAX_TENSORS: usize = 1 << 16;
