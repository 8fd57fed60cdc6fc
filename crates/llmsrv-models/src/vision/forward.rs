//! The forward pass of an encoder, top to bottom: a vision transformer
//! (<https://arxiv.org/abs/2010.11929>) and its projector.
//!
//! Shapes in comments: `n` patches (and perhaps the class), `w` width of a row.

use candle_core::{D, Device, Result, Tensor};
use rayon::{ThreadPool, prelude::*};

use super::{
    config::{Activation, Config},
    weights::{Layer, Linear, Norm, Projector, Weights},
};

/// A loaded encoder.
pub(super) struct Encoder {
    pub config: Config,
    pub weights: Weights,
    pub device: Device,
    /// The threads of candle's arithmetic, which is parallel by rayon.
    pub pool: ThreadPool,
}

impl Encoder {
    /// Computes the rows of an image from its patches, `[n_rows * out_width]`.
    pub(super) fn encode(&self, patches: Vec<f32>) -> Result<Vec<f32>> {
        self.pool.install(|| {
            let x = self.transform(patches)?;
            self.project(&x)?.flatten_all()?.to_vec1()
        })
    }

    fn transform(&self, patches: Vec<f32>) -> Result<Tensor> {
        let Encoder {
            config,
            weights,
            device,
            ..
        } = self;
        let n_patches = config.side().pow(2);
        let shape = (n_patches, 3 * config.patch_size.pow(2));
        let patches = Tensor::from_vec(patches, shape, device)?;
        let mut x = linear(&patches, &weights.patch)?; // [n, w]
        if let Some(class) = &weights.class {
            x = Tensor::cat(&[&class.unsqueeze(0)?, &x], 0)?;
        }
        x = (x + &weights.positions)?;
        if let Some(weights) = &weights.pre_norm {
            x = norm(&x, weights, config.eps)?;
        }
        for layer in &weights.layers {
            let input = norm(&x, &layer.attention_norm, config.eps)?;
            x = (x + self.attention(&input, layer)?)?;
            let input = norm(&x, &layer.feed_forward_norm, config.eps)?;
            let hidden = activate(&linear(&input, &layer.up)?, config.activation)?;
            x = (x + linear(&hidden, &layer.down)?)?;
        }
        if let Some(weights) = &weights.post_norm {
            x = norm(&x, weights, config.eps)?;
        }
        // The class has done its work.
        let n_before = usize::from(weights.class.is_some());
        x.narrow(0, n_before, n_patches)
    }

    /// Lets every row attend to all rows.
    fn attention(&self, x: &Tensor, layer: &Layer) -> Result<Tensor> {
        let n_heads = self.config.n_heads;
        let (n, width) = x.dims2()?;
        let head_dim = width / n_heads;
        let scale = 1.0 / (head_dim as f64).sqrt();
        let heads = |weights: &Linear| -> Result<Tensor> {
            let heads = linear(x, weights)?.reshape((n, n_heads, head_dim))?;
            heads.transpose(0, 1)?.contiguous() // [heads, n, head_dim]
        };
        let query = (heads(&layer.query)? * scale)?;
        let (key, value) = (heads(&layer.key)?.transpose(1, 2)?, heads(&layer.value)?);
        let attended = if self.device.is_cpu() {
            self.attend_by_head(&query, &key, &value)?
        } else {
            attend(&query, &key, &value)?
        };
        let joined = attended
            .transpose(0, 1)?
            .contiguous()?
            .reshape((n, width))?;
        linear(&joined, &layer.output)
    }

    /// One head for each thread: candle's softmax on the CPU uses one alone.
    fn attend_by_head(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        let shape = query.dims3()?;
        let (n_heads, n, head_dim) = shape;
        let mut out = vec![0.0; n_heads * n * head_dim];
        let failure = std::sync::Mutex::new(None);
        let heads = out.par_chunks_mut((n * head_dim).max(1)).enumerate();
        heads.for_each(|(head, out)| {
            let one = |tensor: &Tensor| tensor.narrow(0, head, 1);
            let attended = || attend(&one(query)?, &one(key)?, &one(value)?)?.flatten_all();
            match attended().and_then(|attended| attended.to_vec1::<f32>()) {
                Ok(values) => out.copy_from_slice(&values),
                Err(error) => {
                    let mut failure = failure
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    *failure = Some(error);
                }
            }
        });
        let failure = failure
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match failure {
            Some(error) => Err(error),
            None => Tensor::from_vec(out, shape, &self.device),
        }
    }

    fn project(&self, x: &Tensor) -> Result<Tensor> {
        match &self.weights.projector {
            Projector::Mlp(first, None) => linear(x, first)?.gelu(),
            Projector::Mlp(first, Some(second)) => linear(&linear(x, first)?.gelu()?, second),
            Projector::Gemma3 {
                norm: weight,
                matrix,
            } => {
                let pooled = self.averages(x)?;
                let mean_square = pooled.sqr()?.mean_keepdim(D::Minus1)?;
                let eps = f64::from(self.config.eps);
                let normed = pooled
                    .broadcast_div(&(mean_square + eps)?.sqrt()?)?
                    .broadcast_mul(weight)?;
                normed.matmul(&matrix.values()?)
            }
        }
    }

    /// Averages squares of `merge` times `merge` patches; patches beyond the last square are left.
    fn averages(&self, x: &Tensor) -> Result<Tensor> {
        let (side, merge, width) = (self.config.side(), self.config.merge, self.config.width);
        let n = side / merge;
        x.reshape((side, side, width))?
            .narrow(0, 0, n * merge)?
            .narrow(1, 0, n * merge)?
            .contiguous()?
            .reshape((n, merge, n, merge, width))?
            .mean((1, 3))?
            .reshape((n * n, width))
    }
}

/// Attends from all rows of `query` to all of `key` (transposed), some at a time to bound memory.
fn attend(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let n = query.dim(1)?;
    let parts = (0..n).step_by(ROWS_AT_ONCE).map(|start| {
        let query = query.narrow(1, start, ROWS_AT_ONCE.min(n - start))?;
        let scores = query.contiguous()?.matmul(key)?; // [heads, rows, n]
        let exp = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let sum = exp.sum_keepdim(D::Minus1)?;
        exp.matmul(value)?.broadcast_div(&sum)
    });
    Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 1)
}

fn linear(x: &Tensor, weights: &Linear) -> Result<Tensor> {
    let product = x.matmul(&weights.matrix.values()?.t()?)?;
    match &weights.bias {
        Some(bias) => product.broadcast_add(bias),
        None => Ok(product),
    }
}

fn norm(x: &Tensor, weights: &Norm, eps: f32) -> Result<Tensor> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
    let normed = centred
        .broadcast_div(&(variance + f64::from(eps))?.sqrt()?)?
        .broadcast_mul(&weights.weight)?;
    match &weights.bias {
        Some(bias) => normed.broadcast_add(bias),
        None => Ok(normed),
    }
}

fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::Gelu => x.gelu(),
        Activation::Silu => x.silu(),
        Activation::QuickGelu => x / ((x * -1.702)?.exp()? + 1.0)?,
    }
}

const ROWS_AT_ONCE: usize = 256;
