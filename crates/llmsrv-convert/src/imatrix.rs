//! Importance matrices: how large the inputs of each column of a model's matrices are, over a text.
//!
//! The file format is llama.cpp's (`tools/imatrix`): a GGUF file whose `general.type` is `imatrix`, with two tensors for
//! each tensor of the model, `NAME.in_sum2` (`[matrices, columns]`: sums of squares) and `NAME.counts` (`[matrices, 1]`:
//! how many rows were summed); a tensor has several matrices where it holds experts. Its older format, without a magic
//! number, is read, too: a number of entries, and for each of them its name, a number of calls, a number of values, and
//! the values: mean squares times the calls.

use std::{collections::BTreeMap, fs, io::Read as _, path::Path};

use llmsrv_gguf::{
    Array, GgufFile, Header, Metadata, StringArray, TensorInfo, TensorType, Value, Writer,
};

use crate::Error;

/// An importance matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    tensors: BTreeMap<String, Sums>,
    /// The texts that were read, as their files were named.
    pub datasets: Vec<String>,
    /// Windows of text that were read.
    pub n_chunks: u32,
    /// Tokens of a window.
    pub chunk_size: u32,
}

/// What is known of the inputs of a tensor.
#[derive(Clone, Debug, PartialEq)]
struct Sums {
    /// `[matrices, columns]`.
    squares: Vec<f32>,
    /// Rows that were summed, for each matrix.
    rows: Vec<f32>,
}

impl Imatrix {
    /// Begins one without tensors.
    pub fn new(datasets: Vec<String>, n_chunks: u32, chunk_size: u32) -> Imatrix {
        Imatrix {
            tensors: BTreeMap::new(),
            datasets,
            n_chunks,
            chunk_size,
        }
    }

    /// Adds a tensor of the model: sums of squares, `[matrices, columns]`, and how many rows were summed for each
    /// matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the sums are not as many for each matrix, or not numbers that sums of squares can be.
    pub fn add(&mut self, name: &str, squares: &[f64], rows: &[u64]) -> Result<(), Error> {
        let squares = squares.iter().map(|sum| *sum as f32).collect();
        let rows = rows.iter().map(|n| *n as f32).collect();
        self.insert(name, Sums { squares, rows })
    }

    fn insert(&mut self, name: &str, sums: Sums) -> Result<(), Error> {
        let (n_squares, n_rows) = (sums.squares.len(), sums.rows.len());
        if n_rows == 0 || n_squares == 0 || !n_squares.is_multiple_of(n_rows) {
            return Err(invalid(
                name,
                &format!("has {n_squares} sums for {n_rows} counts"),
            ));
        }
        let is_sum = |value: &f32| value.is_finite() && *value >= 0.0;
        if !sums.squares.iter().chain(&sums.rows).all(is_sum) {
            return Err(invalid(
                name,
                "has sums of squares or counts that are no such numbers",
            ));
        }
        self.tensors.insert(name.to_owned(), sums);
        Ok(())
    }

    /// Returns the number of tensors.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Tells whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Refuses one of another model: with none of its tensors, or with other columns.
    pub(crate) fn check_fits(&self, header: &Header) -> Result<(), Error> {
        let mut known = header
            .tensors
            .iter()
            .filter(|tensor| self.knows(tensor))
            .peekable();
        if known.peek().is_none() {
            let message =
                "the importance matrix is of another model: it has none of this one's tensors";
            return Err(Error::Invalid(message.into()));
        }
        for tensor in known {
            let n_matrices = tensor.shape.iter().skip(2).product::<u64>();
            let expected = tensor.row_len().saturating_mul(n_matrices);
            let found = self
                .tensors
                .get(&tensor.name)
                .map_or(0, |sums| sums.squares.len());
            if found as u64 != expected {
                let name = &tensor.name;
                return Err(Error::Invalid(format!(
                    "the importance matrix is of another model: tensor {name} has {expected} columns, and there it has {found}"
                )));
            }
        }
        Ok(())
    }

    /// Tells whether something is known of a tensor.
    pub(crate) fn knows(&self, tensor: &TensorInfo) -> bool {
        self.tensors.contains_key(&tensor.name)
    }

    /// Returns the weights of the columns of a tensor, for each of its matrices: mean squares as shares of their mean,
    /// all above zero. A matrix that no row has met has equal ones. `None` of a tensor of which nothing is known.
    pub(crate) fn weights(&self, tensor: &TensorInfo) -> Option<Vec<f32>> {
        let sums = self.tensors.get(&tensor.name)?;
        // Older files have one count for all matrices of a tensor.
        let per_count = sums.squares.len() / sums.rows.len().max(1);
        let mut weights = Vec::with_capacity(sums.squares.len());
        for (squares, rows) in sums.squares.chunks(per_count.max(1)).zip(&sums.rows) {
            let mean = squares.iter().sum::<f32>() / squares.len().max(1) as f32;
            let is_known = *rows > 0.0 && mean.is_finite() && mean > 0.0;
            // A column that was always zero may not be in another text.
            let of = |square: &f32| square.max(mean * LEAST_SHARE) / mean;
            weights.extend(
                squares
                    .iter()
                    .map(|square| if is_known { of(square) } else { 1.0 }),
            );
        }
        Some(weights)
    }

    /// Reads a file of either format.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] and [`Error::Gguf`] of a file that is no importance matrix or contradicts itself, in one line.
    pub fn read(path: &Path) -> Result<Imatrix, Error> {
        let mut file = fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.by_ref().take(4).read_to_end(&mut bytes)?;
        if bytes == MAGIC {
            let file = GgufFile::open(path)?;
            return from_gguf(file.header(), |tensor| file.data(tensor));
        }
        file.take(MOST_OLD_BYTES).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_OLD_BYTES {
            return Err(not_one());
        }
        from_old(&bytes)
    }

    /// As [`Imatrix::read`], of the bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`Imatrix::read`].
    pub fn parse(bytes: &[u8]) -> Result<Imatrix, Error> {
        if !bytes.starts_with(MAGIC) {
            return from_old(bytes);
        }
        let header = Header::parse(bytes, bytes.len() as u64)?;
        from_gguf(&header, |tensor| {
            let start = usize::try_from(tensor.offset).unwrap_or(usize::MAX);
            let end = start.saturating_add(usize::try_from(tensor.bytes).unwrap_or(usize::MAX));
            bytes.get(start..end).unwrap_or_default()
        })
    }

    /// Writes a GGUF file. Under its name there is a whole file, or what was there before.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut part = path.to_owned();
        part.as_mut_os_string().push(".part");
        let written = fs::write(&part, self.to_bytes()?).and_then(|()| fs::rename(&part, path));
        written.inspect_err(|_| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&part);
        })?;
        Ok(())
    }

    /// Returns a GGUF file.
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`] if a name is no name of a tensor.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut metadata = Metadata::new();
        let mut datasets = StringArray::new();
        for dataset in &self.datasets {
            datasets.push(dataset.as_bytes());
        }
        metadata.set("general.type", "imatrix");
        metadata.set(DATASETS, Value::Array(Array::Strings(datasets)));
        metadata.set(CHUNKS, self.n_chunks);
        metadata.set(CHUNK_SIZE, self.chunk_size);
        let mut writer = Writer::new(metadata);
        for (name, sums) in &self.tensors {
            let n_matrices = sums.rows.len();
            let width = sums.squares.len() / n_matrices.max(1);
            for (end, values, width) in [(SUMS, &sums.squares, width), (COUNTS, &sums.rows, 1)] {
                let bytes = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect();
                let shape = [width as u64, n_matrices as u64];
                writer.tensor(&format!("{name}{end}"), &shape, TensorType::F32, bytes)?;
            }
        }
        Ok(writer.to_bytes()?)
    }
}

fn from_gguf<'a>(
    header: &Header,
    data: impl Fn(&TensorInfo) -> &'a [u8],
) -> Result<Imatrix, Error> {
    let metadata = &header.metadata;
    if metadata.str("general.type") != Some("imatrix") {
        return Err(not_one());
    }
    let datasets = metadata
        .strings(DATASETS)
        .into_iter()
        .flat_map(StringArray::iter);
    let mut imatrix = Imatrix::new(
        datasets
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
        metadata.u32(CHUNKS).unwrap_or(0),
        metadata.u32(CHUNK_SIZE).unwrap_or(0),
    );
    let values = |tensor: &TensorInfo| {
        if tensor.dtype != TensorType::F32 {
            return Err(invalid(
                &tensor.name,
                &format!("is of type {}, not F32", tensor.dtype),
            ));
        }
        let values = data(tensor).as_chunks().0.iter();
        Ok(values.map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    for tensor in &header.tensors {
        let Some(name) = tensor.name.strip_suffix(SUMS) else {
            continue;
        };
        let counts = header.tensor(&format!("{name}{COUNTS}"));
        let counts = counts.ok_or_else(|| invalid(name, "has sums and no counts"))?;
        let sums = Sums {
            squares: values(tensor)?,
            rows: values(counts)?,
        };
        imatrix.insert(name, sums)?;
    }
    if imatrix.is_empty() {
        return Err(Error::Invalid(
            "the importance matrix has no tensors".into(),
        ));
    }
    Ok(imatrix)
}

fn from_old(bytes: &[u8]) -> Result<Imatrix, Error> {
    let mut rest = bytes;
    let mut imatrix = Imatrix::default();
    // An entry takes twelve bytes and its name.
    let n_entries = number(&mut rest).filter(|n| (1..=bytes.len() / 12).contains(n));
    for _ in 0..n_entries.ok_or_else(not_one)? {
        let name = number(&mut rest).filter(|len| *len <= LONGEST_NAME);
        let name = name
            .and_then(|len| rest.split_off(..len))
            .ok_or_else(not_one)?;
        let name = std::str::from_utf8(name).map_err(|_| not_one())?;
        let calls = number(&mut rest).ok_or_else(not_one)?;
        let bytes = number(&mut rest).and_then(|n| rest.split_off(..n.checked_mul(4)?));
        let values = bytes.ok_or_else(not_one)?.as_chunks().0.iter();
        let sums = Sums {
            squares: values.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            rows: vec![calls as f32],
        };
        imatrix.insert(name, sums)?;
    }
    // What follows is how many windows were read, and the name of the text.
    imatrix.n_chunks = number(&mut rest)
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(0);
    let name = number(&mut rest).and_then(|len| rest.split_off(..len));
    imatrix.datasets = name
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .into_iter()
        .collect();
    Ok(imatrix)
}

/// Takes a number of four bytes that is not negative.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    usize::try_from(i32::from_le_bytes(*bytes)).ok()
}

fn not_one() -> Error {
    Error::Invalid("the file is no importance matrix".into())
}

fn invalid(name: &str, what: &str) -> Error {
    let name: String = name.chars().take(SHOWN).collect();
    Error::Invalid(format!("the importance matrix is damaged: {name:?} {what}"))
}

const MAGIC: &[u8] = b"GGUF";
const DATASETS: &str = "imatrix.datasets";
const CHUNKS: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
/// What a column counts at least, as a share of the mean.
const LEAST_SHARE: f32 = 1e-6;
/// Files of the older format are read into memory.
const MOST_OLD_BYTES: u64 = 2 << 30;
const LONGEST_NAME: usize = 256;
/// Characters of a name that messages show.
const SHOWN: usize = 64;
