//! Checked access to a model file: every complaint is one line that names the key or the tensor.

use std::{cell::RefCell, collections::HashSet, ops::Range, sync::Arc};

use llmsrv_engine::LoadError;
use llmsrv_gguf::{GgufFile, StringArray, TensorInfo, TensorType};

/// What reading a model file gives.
pub(crate) type Result<T, E = LoadError> = std::result::Result<T, E>;

/// A model file of one architecture.
pub(crate) struct Source {
    file: Arc<GgufFile>,
    architecture: String,
    used: RefCell<HashSet<String>>,
}

/// Some rows of a matrix in the file.
#[derive(Clone, Debug)]
pub(crate) struct FileMatrix {
    /// The file that holds the values.
    pub file: Arc<GgufFile>,
    /// The tensor of which this is a part.
    pub tensor: Arc<TensorInfo>,
    /// Number of rows: elements of the product.
    pub n_rows: usize,
    /// Elements of a row: elements of the input.
    pub n_cols: usize,
    /// Where the rows are within the tensor.
    range: Range<usize>,
    /// The rows, where they do not lie beside each other in the file, or not in this form.
    gathered: Option<Arc<[u8]>>,
    /// What a copy takes beyond the values in the file that it was made of.
    extra_bytes: usize,
    /// Multiplies all values: types with small scales have files say another one beside a tensor.
    pub scale: f32,
}

impl Source {
    /// Wraps a file whose `general.architecture` is `architecture`.
    pub(crate) fn new(file: Arc<GgufFile>, architecture: &str) -> Source {
        Source {
            file,
            architecture: architecture.to_owned(),
            used: RefCell::default(),
        }
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> Arc<GgufFile> {
        self.file.clone()
    }

    /// Returns the architecture that keys begin with.
    pub(crate) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Returns a required number of things: at least 1 and at most 2^31 - 1.
    pub(crate) fn count(&self, key: &str) -> Result<usize> {
        match self.optional_count(key)? {
            Some(count) => Ok(count),
            None => Err(invalid(format!("{} is missing", self.full(key)))),
        }
    }

    /// Returns a number of things; 0 counts as absent. A list of equal numbers, one for each
    /// layer, is taken as that number.
    pub(crate) fn optional_count(&self, key: &str) -> Result<Option<usize>> {
        let key = self.full(key);
        let metadata = self.file.metadata();
        if metadata.get(&key).is_none() {
            return Ok(None);
        }
        let count = match (metadata.u64(&key), metadata.i64s(&key)) {
            (Some(count), _) => count,
            (None, Some(list)) => {
                let first = list.first().copied().unwrap_or(0);
                if list.iter().any(|item| *item != first) {
                    let message = format!("{key} differs between layers");
                    return Err(LoadError::Unsupported(message));
                }
                u64::try_from(first).map_err(|_| invalid(format!("{key} is negative")))?
            }
            (None, None) => return Err(invalid(format!("{key} is not a whole number"))),
        };
        match i32::try_from(count) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count as usize)),
            Err(_) => Err(invalid(format!("{key} is {count}, which is too large"))),
        }
    }

    /// Returns a number of things for each of `n` layers: a list, or one number that holds for all. No
    /// layer has 0 of them.
    pub(crate) fn counts(&self, key: &str, n: usize) -> Result<Option<Vec<usize>>> {
        let counts = self.counts_or_none(key, n)?;
        let layer = counts.iter().flatten().position(|count| *count == 0);
        match layer {
            None => Ok(counts),
            Some(layer) => {
                let key = self.full(key);
                Err(invalid(format!("{key} is 0 in layer {layer}")))
            }
        }
    }

    /// As [`Source::counts`], but layers may have 0 of them.
    pub(crate) fn counts_or_none(&self, key: &str, n: usize) -> Result<Option<Vec<usize>>> {
        let full = self.full(key);
        let Some(list) = self.file.metadata().i64s(&full) else {
            let count = self.optional_count(key)?;
            return Ok(count.map(|count| vec![count; n]));
        };
        if list.len() < n {
            let found = list.len();
            return Err(invalid(format!(
                "{full} has {found} entries for {n} layers"
            )));
        }
        let counts = list.iter().take(n).enumerate().map(|(layer, count)| {
            let small = i32::try_from(*count).ok();
            small
                .and_then(|count| usize::try_from(count).ok())
                .ok_or_else(|| invalid(format!("{full} is {count} in layer {layer}")))
        });
        counts.collect::<Result<_, _>>().map(Some)
    }

    /// Returns a finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f32>> {
        let key = self.full(key);
        let metadata = self.file.metadata();
        if metadata.get(&key).is_none() {
            return Ok(None);
        }
        let number = match (metadata.f64(&key), metadata.u64(&key)) {
            (Some(number), _) => number as f32,
            (None, Some(number)) => number as f32,
            (None, None) => return Err(invalid(format!("{key} is not a number"))),
        };
        if number.is_finite() {
            Ok(Some(number))
        } else {
            Err(invalid(format!("{key} is not finite")))
        }
    }

    /// Returns a finite number above 0; 0 counts as absent.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f32>> {
        match self.number(key)? {
            Some(number) if number < 0.0 => Err(invalid(format!("{} is negative", self.full(key)))),
            number => Ok(number.filter(|number| *number > 0.0)),
        }
    }

    /// Returns the first of several keys that is above 0: programs that write model files do not
    /// agree on every name.
    pub(crate) fn first_positive(&self, keys: &[&str]) -> Result<Option<f32>> {
        for key in keys {
            if let Some(number) = self.positive(key)? {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Returns a text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.file.metadata().str(&self.full(key))
    }

    /// Returns a yes or no.
    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.file.metadata().bool(&self.full(key))
    }

    /// Returns a list of yes and no, one for each layer.
    pub(crate) fn flags(&self, key: &str) -> Option<Vec<bool>> {
        self.file.metadata().bools(&self.full(key))
    }

    /// Returns a list of whole numbers.
    pub(crate) fn integers(&self, key: &str) -> Option<Vec<i64>> {
        self.file.metadata().i64s(&self.full(key))
    }

    /// Returns the tokens that are never predicted.
    pub(crate) fn suppressed_tokens(&self) -> Vec<u32> {
        let listed = self.file.metadata().i64s("tokenizer.ggml.suppress_tokens");
        let ids = listed.unwrap_or_default().into_iter();
        ids.filter_map(|id| id.try_into().ok()).collect()
    }

    /// Returns the names of the scores that a classifier gives; none where the file does not say.
    pub(crate) fn labels(&self) -> Vec<String> {
        let key = self.full("classifier.output_labels");
        let labels = self.file.metadata().strings(&key);
        let labels = labels.iter().flat_map(|labels| labels.iter());
        labels
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect()
    }

    /// Returns the number of a token.
    pub(crate) fn token(&self, text: &str) -> Option<usize> {
        let tokens = self.file.metadata().strings("tokenizer.ggml.tokens")?;
        tokens.iter().position(|token| token == text.as_bytes())
    }

    /// Returns the number of tokens.
    pub(crate) fn n_tokens(&self) -> usize {
        let tokens = self.file.metadata().strings("tokenizer.ggml.tokens");
        tokens.map_or(0, StringArray::len)
    }

    /// Returns a list of numbers.
    pub(crate) fn numbers(&self, key: &str) -> Option<Vec<f32>> {
        self.file.metadata().f32s(&self.full(key))
    }

    /// Returns whether the file has a key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.file.metadata().get(&self.full(key)).is_some()
    }

    /// Returns the full name of a key of this architecture.
    pub(crate) fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// Returns how many tensors the file has.
    pub(crate) fn n_tensors(&self) -> usize {
        self.file.header().tensors.len()
    }

    /// Returns the size of all tensors in bytes.
    pub(crate) fn tensor_bytes(&self) -> u64 {
        let tensors = self.file.header().tensors.iter();
        tensors.fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes))
    }

    /// Returns whether most of the file are weights of whole numbers.
    pub(crate) fn is_quantized(&self) -> bool {
        let floats = [TensorType::F32, TensorType::F16, TensorType::BF16];
        let tensors = self.file.header().tensors.iter();
        let tensors = tensors.filter(|tensor| floats.contains(&tensor.dtype));
        let bytes = tensors.fold(0, |sum: u64, tensor| sum.saturating_add(tensor.bytes));
        bytes < self.tensor_bytes() / 2
    }

    /// Returns whether the file has a tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// Returns the number of rows of a tensor.
    pub(crate) fn n_rows(&self, name: &str) -> Option<usize> {
        let tensor = self.file.tensor(name)?;
        tensor.shape.get(1).copied()?.try_into().ok()
    }

    /// Returns the elements of a row of a tensor.
    pub(crate) fn row_length(&self, name: &str) -> Option<usize> {
        let tensor = self.file.tensor(name)?;
        tensor.shape.first().copied()?.try_into().ok()
    }

    /// Returns the values of a required vector.
    pub(crate) fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>> {
        match self.optional_vector(name, len)? {
            Some(values) => Ok(values),
            None => Err(missing(name)),
        }
    }

    /// Returns all values of a required small matrix, row after row.
    pub(crate) fn grid(&self, name: &str, n_cols: usize, n_rows: usize) -> Result<Vec<f32>> {
        let tensor = self.file.tensor(name).ok_or_else(|| missing(name))?;
        self.check(tensor, &[n_cols, n_rows])?;
        let mut values = vec![0.0; n_cols * n_rows];
        llmsrv_kernels::dequantize(tensor.dtype, self.file.data(tensor), &mut values)
            .map_err(|error| invalid(format!("tensor {name}: {error}")))?;
        Ok(values)
    }

    /// Returns the values of a vector; one without elements counts as absent.
    pub(crate) fn optional_vector(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>> {
        let tensor = self.file.tensor(name);
        let Some(tensor) = tensor.filter(|tensor| tensor.n_elements() > 0) else {
            return Ok(None);
        };
        self.check(tensor, &[len])?;
        let mut values = vec![0.0; len];
        llmsrv_kernels::dequantize(tensor.dtype, self.file.data(tensor), &mut values)
            .map_err(|error| invalid(format!("tensor {name}: {error}")))?;
        Ok(Some(values))
    }

    /// Returns the rows of a matrix that a file may lack.
    pub(crate) fn optional_rows(
        &self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Option<Vec<Vec<f32>>>> {
        if !self.has(name) {
            return Ok(None);
        }
        let matrix = self.matrix(name, n_rows, n_cols)?;
        let rows = (0..n_rows).map(|row| {
            let mut values = vec![0.0; n_cols];
            matrix.read_row(row, &mut values);
            values
        });
        Ok(Some(rows.collect()))
    }

    /// Says that a tensor has a meaning, though nothing is read from it.
    pub(crate) fn ignore(&self, name: &str) {
        self.used.borrow_mut().insert(name.to_owned());
    }

    /// As [`Source::ignore`], of all tensors of a layer.
    pub(crate) fn ignore_layer(&self, idx: usize) {
        let prefix = format!("blk.{idx}.");
        let names = self.file.header().tensors.iter().map(|tensor| &tensor.name);
        let of_layer = names.filter(|name| name.starts_with(&prefix));
        self.used.borrow_mut().extend(of_layer.cloned());
    }

    /// Returns a required matrix of `n_rows` rows.
    pub(crate) fn matrix(&self, name: &str, n_rows: usize, n_cols: usize) -> Result<FileMatrix> {
        let tensor = self.file.tensor(name).ok_or_else(|| missing(name))?;
        // A matrix of one row may be stored as a vector.
        if n_rows == 1 && tensor.shape.len() == 1 {
            self.check(tensor, &[n_cols])?;
        } else {
            self.check(tensor, &[n_cols, n_rows])?;
        }
        let mut matrix = self.file_matrix(tensor, n_rows, n_cols)?;
        let beside = scale_name(name);
        if self
            .file
            .tensor(&beside)
            .is_some_and(|scale| scale.n_elements() == 1)
        {
            matrix.scale = self.vector(&beside, 1)?.first().copied().unwrap_or(1.0);
        }
        Ok(matrix)
    }

    /// Returns a required tensor of this shape as a matrix: all dimensions but the last make a row.
    pub(crate) fn folded(&self, name: &str, shape: &[usize]) -> Result<FileMatrix> {
        let tensor = self.file.tensor(name).ok_or_else(|| missing(name))?;
        self.check(tensor, shape)?;
        let (n_rows, row) = shape.split_last().unwrap_or((&1, &[]));
        self.file_matrix(tensor, *n_rows, row.iter().product())
    }

    /// Returns the matrices of a required stack of `n` of them.
    pub(crate) fn matrices(
        &self,
        name: &str,
        n: usize,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Vec<FileMatrix>> {
        let tensor = self.file.tensor(name).ok_or_else(|| missing(name))?;
        self.check(tensor, &[n_cols, n_rows, n])?;
        let all = self.file_matrix(tensor, n_rows.saturating_mul(n), n_cols)?;
        Ok((0..n)
            .map(|index| all.rows(index * n_rows..(index + 1) * n_rows))
            .collect())
    }

    /// As [`Source::matrices`], each times its scale, if the file has scales beside the stack.
    pub(crate) fn scaled_matrices(
        &self,
        name: &str,
        n: usize,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Vec<FileMatrix>> {
        let mut matrices = self.matrices(name, n, n_rows, n_cols)?;
        let scales = self.optional_vector(&scale_name(name), n)?;
        for (matrix, scale) in matrices.iter_mut().zip(scales.into_iter().flatten()) {
            matrix.scale = scale;
        }
        Ok(matrices)
    }

    /// Returns the embedding table: the first `n_rows` rows of a matrix that may have more.
    pub(crate) fn table(&self, name: &str, n_rows: usize, n_cols: usize) -> Result<FileMatrix> {
        let tensor = self.file.tensor(name).ok_or_else(|| missing(name))?;
        match tensor.shape.get(1).copied().map(usize::try_from) {
            Some(Ok(rows)) if rows >= n_rows => {
                Ok(self.matrix(name, rows, n_cols)?.rows(0..n_rows))
            }
            _ => Err(wrong_shape(tensor, &[n_cols, n_rows])),
        }
    }

    /// Refuses a file with tensors of the language model that nobody asked for: its results would
    /// be wrong. Tensors of encoders for images and sound are left alone.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        let used = self.used.borrow();
        let n_layers = self.n_layers()?;
        for tensor in &self.file.header().tensors {
            let name = tensor.name.as_str();
            let is_foreign = || {
                FOREIGN.iter().any(|prefix| name.starts_with(prefix))
                    // How activations were rounded beside the weights: ours are not.
                    || name.ends_with(".input_scale")
                    || is_draft(name, n_layers)
            };
            if !used.contains(name) && !is_foreign() {
                return Err(LoadError::Unsupported(format!(
                    "tensor {name} has no meaning in architecture {}",
                    self.architecture
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of layers, and how many multi-token-prediction layers follow, which are not used.
    pub(crate) fn n_layers(&self) -> Result<(usize, usize)> {
        let n_all = self.optional_count("block_count")?.unwrap_or(0);
        let n_drafts = self.optional_count("nextn_predict_layers")?.unwrap_or(0);
        if n_drafts > 0 && n_drafts >= n_all {
            let key = self.full("nextn_predict_layers");
            return Err(invalid(format!("{key} is {n_drafts} of {n_all} layers")));
        }
        Ok((n_all - n_drafts, n_drafts))
    }

    /// Checks type and shape, and remembers that the tensor has a use.
    fn check(&self, tensor: &TensorInfo, shape: &[usize]) -> Result<()> {
        // Trailing dimensions of 1 mean nothing.
        let same = (0..tensor.shape.len().max(shape.len())).all(|dim| {
            let found = tensor.shape.get(dim).copied().unwrap_or(1);
            let wanted = shape.get(dim).copied().unwrap_or(1);
            found == wanted as u64
        });
        if !same {
            return Err(wrong_shape(tensor, shape));
        }
        if !llmsrv_kernels::supported(tensor.dtype) {
            let (name, dtype) = (&tensor.name, tensor.dtype);
            let message = format!("tensor {name} is of type {dtype}");
            return Err(LoadError::Unsupported(message));
        }
        self.used.borrow_mut().insert(tensor.name.clone());
        Ok(())
    }

    fn file_matrix(&self, tensor: &TensorInfo, n_rows: usize, n_cols: usize) -> Result<FileMatrix> {
        let row_bytes = row_bytes(tensor.dtype, n_cols)
            .ok_or_else(|| invalid(format!("tensor {} has a broken row", tensor.name)))?;
        let n_bytes = self.file.data(tensor).len();
        if row_bytes.checked_mul(n_rows) != Some(n_bytes) {
            let name = &tensor.name;
            return Err(invalid(format!("tensor {name} has {n_bytes} bytes")));
        }
        Ok(FileMatrix {
            file: self.file.clone(),
            tensor: Arc::new(tensor.clone()),
            n_rows,
            n_cols,
            range: 0..n_bytes,
            gathered: None,
            extra_bytes: 0,
            scale: 1.0,
        })
    }
}

impl FileMatrix {
    /// Returns how the values are stored.
    pub(crate) fn dtype(&self) -> TensorType {
        self.tensor.dtype
    }

    /// Returns the stored values.
    pub(crate) fn bytes(&self) -> &[u8] {
        if let Some(gathered) = &self.gathered {
            return gathered;
        }
        let bytes = self.file.data(&self.tensor);
        bytes.get(self.range.clone()).unwrap_or_default()
    }

    /// Returns the bytes of the values in the file.
    pub(crate) fn file_bytes(&self) -> usize {
        self.bytes().len().saturating_sub(self.extra_bytes)
    }

    /// Returns which of the `n` matrices of its tensor this is or belongs to; `None` of a copy from several.
    pub(crate) fn index_among(&self, n: usize) -> Option<usize> {
        if n == 1 {
            return Some(0);
        }
        let bytes = self.file.data(&self.tensor).len() / n.max(1);
        let first = self.range.start.checked_div(bytes)?;
        let is_one = self.range.len() <= bytes && self.gathered.is_none();
        is_one.then_some(first)
    }

    /// Returns whether rows of it are looked up in the file whatever else is done with it.
    pub(crate) fn is_looked_up(&self) -> bool {
        self.tensor.name == "token_embd.weight"
    }

    /// Returns some of the rows. Rows beyond the end do not exist.
    pub(crate) fn rows(&self, rows: Range<usize>) -> FileMatrix {
        debug_assert!(self.gathered.is_none(), "a copy is not cut");
        let rows = rows.start.min(self.n_rows)..rows.end.min(self.n_rows);
        let row_bytes = self.range.len() / self.n_rows.max(1);
        let start = self.range.start + rows.start * row_bytes;
        FileMatrix {
            file: self.file.clone(),
            tensor: self.tensor.clone(),
            n_rows: rows.len(),
            n_cols: self.n_cols,
            range: start..start + rows.len() * row_bytes,
            gathered: None,
            extra_bytes: 0,
            scale: self.scale,
        }
    }

    /// Returns some stretches of the rows, one after the other: a copy, where there are several.
    pub(crate) fn stretches(&self, stretches: &[Range<usize>]) -> FileMatrix {
        if let [rows] = stretches {
            return self.rows(rows.clone());
        }
        let parts: Vec<FileMatrix> = stretches
            .iter()
            .map(|rows| self.rows(rows.clone()))
            .collect();
        let bytes: Vec<u8> = parts.iter().flat_map(FileMatrix::bytes).copied().collect();
        FileMatrix {
            n_rows: parts.iter().map(|part| part.n_rows).sum(),
            range: 0..bytes.len(),
            gathered: Some(bytes.into()),
            ..self.clone()
        }
    }

    /// Returns all values, row by row.
    pub(crate) fn values(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.n_rows * self.n_cols];
        for (idx, row) in values.chunks_exact_mut(self.n_cols.max(1)).enumerate() {
            self.read_row(idx, row);
        }
        values
    }

    /// Returns a copy with rows and columns exchanged: in f32 as in f32, else in f16.
    pub(crate) fn transposed(&self) -> Result<FileMatrix> {
        let (n_rows, n_cols) = (self.n_rows, self.n_cols);
        let mut values = vec![0.0; n_rows * n_cols];
        let mut row = vec![0.0; n_cols];
        for idx in 0..n_rows {
            self.read_row(idx, &mut row);
            for (value, place) in row.iter().zip(values.iter_mut().skip(idx).step_by(n_rows)) {
                *place = *value;
            }
        }
        let dtype = match self.dtype() {
            TensorType::F32 => TensorType::F32,
            _ => TensorType::F16,
        };
        self.of_values(&values, n_cols, dtype)
    }

    /// Returns a matrix of values that were made of these, in `n_rows` rows, stored as `dtype`, whose blocks
    /// are single elements.
    pub(crate) fn of_values(
        &self,
        values: &[f32],
        n_rows: usize,
        dtype: TensorType,
    ) -> Result<FileMatrix> {
        let mut bytes = vec![0; values.len() * dtype.block_bytes()];
        llmsrv_kernels::quantize(dtype, values, &mut bytes)
            .map_err(|error| invalid(format!("tensor {}: {error}", self.tensor.name)))?;
        let mut tensor = TensorInfo::clone(&self.tensor);
        tensor.dtype = dtype;
        Ok(FileMatrix {
            file: self.file.clone(),
            tensor: Arc::new(tensor),
            n_rows,
            n_cols: values.len() / n_rows.max(1),
            range: 0..bytes.len(),
            extra_bytes: bytes.len().saturating_sub(self.bytes().len()),
            gathered: Some(bytes.into()),
            scale: 1.0,
        })
    }

    /// Says that all values will be read soon, or not again for long.
    pub(crate) fn expect(&self, soon: bool) {
        if self.gathered.is_some() {
            return;
        }
        self.file.expect(&self.tensor, self.range.clone(), soon);
    }

    /// Writes the values of one row to `out`, which is as long as a row; zeros if there is no
    /// such row.
    pub(crate) fn read_row(&self, row: usize, out: &mut [f32]) {
        let row_bytes = self.range.len() / self.n_rows.max(1);
        let bytes = self.bytes().get(row * row_bytes..(row + 1) * row_bytes);
        let read = bytes.map(|bytes| llmsrv_kernels::dequantize(self.dtype(), bytes, out));
        if !matches!(read, Some(Ok(()))) {
            out.fill(0.0);
        }
        if self.scale != 1.0 {
            for value in out {
                *value *= self.scale;
            }
        }
    }
}

/// Tensors of parts that are not the language model: encoders for images and sound, heads that draft
/// tokens ahead. Divisors of rotations are read where a family has them.
const FOREIGN: [&str; 9] = [
    "v.",
    "a.",
    "s.",
    "mm.",
    "mtp.",
    "model.vision_tower.",
    "model.audio_tower.",
    "rope_freqs.",
    "rope_factors_",
];

/// Makes the error of a file that contradicts itself.
pub(crate) fn invalid(message: String) -> LoadError {
    LoadError::Invalid(message)
}

/// Returns whether a tensor belongs to the multi-token-prediction layers behind the others.
fn is_draft(name: &str, (n_layers, n_drafts): (usize, usize)) -> bool {
    let Some((layer, part)) = name
        .strip_prefix("blk.")
        .and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    let is_behind = |layer: usize| (n_layers..n_layers + n_drafts).contains(&layer);
    part.starts_with("nextn.") || layer.parse().is_ok_and(is_behind)
}

/// Returns the name of what multiplies a tensor, where files have it.
fn scale_name(name: &str) -> String {
    format!("{}.scale", name.strip_suffix(".weight").unwrap_or(name))
}

fn missing(name: &str) -> LoadError {
    invalid(format!("tensor {name} is missing"))
}

fn wrong_shape(tensor: &TensorInfo, wanted: &[usize]) -> LoadError {
    let (name, found) = (&tensor.name, &tensor.shape);
    invalid(format!("tensor {name} has shape {found:?}, not {wanted:?}"))
}

fn row_bytes(dtype: TensorType, n_cols: usize) -> Option<usize> {
    let block_len = dtype.block_len();
    (block_len > 0 && n_cols.is_multiple_of(block_len))
        .then(|| (n_cols / block_len).checked_mul(dtype.block_bytes()))?
}
