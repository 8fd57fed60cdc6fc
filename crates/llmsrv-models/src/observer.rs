//! What matrices are multiplied with: for each element of their inputs the sum of its squares over all rows.
//!
//! The larger the sum of a column, the more an error of its weights costs. Quantisers weigh errors with it, and call it
//! the importance matrix (llama.cpp's `llama-imatrix`).

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use llmsrv_gguf::GgufFile;
use llmsrv_kernels::Pool;
use parking_lot::{Mutex, MutexGuard};

use crate::source::FileMatrix;

/// Sums of squares of the inputs of matrices, filled while the model computes.
#[derive(Debug)]
pub struct InputSums {
    /// Whose tensors are observed: not those of adapters.
    file: Arc<GgufFile>,
    /// The product that gives logits is observed, too.
    output: bool,
    state: Mutex<State>,
}

/// What the matrices of one tensor were multiplied with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputSum {
    /// Sums of squares: `[matrices, columns]`. A tensor has several matrices where it holds experts.
    pub squares: Vec<f64>,
    /// Rows that were multiplied, for each matrix.
    pub rows: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    matrices: Vec<MatrixSum>,
    /// Names of tensors and numbers of their matrices that are in the list.
    known: HashSet<(String, usize)>,
}

/// What one matrix was multiplied with.
#[derive(Debug)]
struct MatrixSum {
    tensor: String,
    /// Which matrix of the tensor it is, and of how many.
    which: usize,
    n_matrices: usize,
    squares: Vec<f64>,
    rows: u64,
}

impl InputSums {
    pub(crate) fn new(file: Arc<GgufFile>, output: bool) -> InputSums {
        InputSums {
            file,
            output,
            state: Mutex::default(),
        }
    }

    /// Returns what was summed so far, by names of tensors.
    pub fn tensors(&self) -> BTreeMap<String, InputSum> {
        let mut tensors: BTreeMap<String, InputSum> = BTreeMap::new();
        for matrix in &self.lock().matrices {
            let width = matrix.squares.len();
            let sum = tensors.entry(matrix.tensor.clone()).or_default();
            sum.squares.resize(width * matrix.n_matrices, 0.0);
            sum.rows.resize(matrix.n_matrices, 0);
            let place = matrix.which * width..(matrix.which + 1) * width;
            if let Some(squares) = sum.squares.get_mut(place) {
                squares.copy_from_slice(&matrix.squares);
            }
            if let Some(rows) = sum.rows.get_mut(matrix.which) {
                *rows = matrix.rows;
            }
        }
        tensors
    }

    /// Returns a number for a matrix; `None` of one that is not observed. Parts of one matrix have the same input, so
    /// the first of them stands for all.
    pub(crate) fn place(&self, matrix: &FileMatrix) -> Option<usize> {
        let tensor = self.file.tensor(&matrix.tensor.name)?;
        let name = tensor.name.as_str();
        let is_output = OUTPUTS.contains(&name);
        let is_observed = name.starts_with("blk.") && name.ends_with(".weight");
        // Each head has its own input there, and they lie in one matrix.
        let is_shared = name.contains("attn_kv_b.");
        let width = usize::try_from(tensor.row_len()).ok()?;
        if !(is_observed || self.output && is_output)
            || is_shared
            || !Arc::ptr_eq(&self.file, &matrix.file)
            || matrix.n_cols != width
        {
            return None;
        }
        let n_matrices = usize::try_from(tensor.shape.iter().skip(2).product::<u64>()).ok()?;
        let which = matrix.index_among(n_matrices)?;
        let mut state = self.lock();
        if !state.known.insert((name.to_owned(), which)) {
            return None;
        }
        state.matrices.push(MatrixSum {
            tensor: name.to_owned(),
            which,
            n_matrices,
            squares: vec![0.0; width],
            rows: 0,
        });
        Some(state.matrices.len() - 1)
    }

    /// Adds rows of `width` elements that a matrix is multiplied with.
    pub(crate) fn add(&self, place: usize, x: &[f32], width: usize, pool: &Pool) {
        let mut state = self.lock();
        let Some(sum) = state.matrices.get_mut(place) else {
            return;
        };
        sum.rows += (x.len() / width.max(1)) as u64;
        let parallel = x.len() >= PARALLEL_ELEMENTS;
        pool.for_each_chunk_mut(&mut sum.squares, CHUNK, parallel, |chunk, squares| {
            for row in x.chunks_exact(width.max(1)) {
                for (sum, x) in squares.iter_mut().zip(row.iter().skip(chunk * CHUNK)) {
                    *sum += f64::from(*x) * f64::from(*x);
                }
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Tensors of the product that gives logits.
const OUTPUTS: [&str; 2] = ["output.weight", "token_embd.weight"];
/// Columns that a thread takes at a time.
const CHUNK: usize = 256;
/// Elements from which on several threads pay.
const PARALLEL_ELEMENTS: usize = 1 << 16;
