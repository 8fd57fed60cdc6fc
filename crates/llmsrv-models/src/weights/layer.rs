//! Layers, and the products and norms that all their parts are made of.

use std::{ops::Range, slice::from_ref};

use llmsrv_engine::LoadError;

use super::{LayerWeights, Mixer, Norm};
use crate::{
    adapter::Adapter,
    arch::{ArchConfig, FeedForwardConfig, Mixer as MixerConfig, NormKind},
    errors::device,
    linear::{Linear, LowRank},
    ops::Holder,
    parts::Part,
    source::{FileMatrix, Source, invalid},
};

/// Makes the weights of a model, part by part.
pub(super) struct Loader<'a, O: Holder> {
    pub(super) source: &'a Source,
    pub(super) adapters: &'a [Adapter],
    pub(super) arch: &'a ArchConfig,
    pub(super) ops: &'a mut O,
}

impl<O: Holder> Loader<'_, O> {
    pub(super) fn layer(&mut self, idx: usize) -> Result<LayerWeights<O>, LoadError> {
        let arch = self.arch;
        let name = |part: &str| format!("blk.{idx}.{part}");
        let config = arch
            .layers
            .get(idx)
            .ok_or_else(|| invalid(format!("layer {idx} is missing")))?;
        self.ops.begin_part(Part::Layer(idx));
        let mut mixers = Vec::new();
        if matches!(
            config.mixer,
            MixerConfig::Attention | MixerConfig::AttentionAndScan(_)
        ) {
            let weights = self.attention(config, &name)?;
            let width = config.query_width();
            let output = self.linear(&name("attn_output"), arch.width, width)?;
            mixers.push((Mixer::Attention(Box::new(weights)), output));
        }
        match &config.mixer {
            MixerConfig::None | MixerConfig::Attention => {}
            MixerConfig::Latent(latent) => {
                let weights = self.latent(config.n_heads, *latent, &name)?;
                let width = config.n_heads.saturating_mul(latent.value_dim);
                let output = self.linear(&name("attn_output"), arch.width, width)?;
                mixers.push((Mixer::Latent(Box::new(weights)), output));
            }
            MixerConfig::ShortConv { taps, width } => {
                let weights = self.short_conv(*taps, *width, &name)?;
                let output = self.linear(&name("shortconv.out_proj"), arch.width, *width)?;
                mixers.push((Mixer::ShortConv(weights), output));
            }
            MixerConfig::DeltaNet(net) => {
                let weights = self.delta_net(*net, &name)?;
                let width = net.value_width();
                let output = self.linear(&name("ssm_out"), arch.width, width)?;
                mixers.push((Mixer::DeltaNet(Box::new(weights)), output));
            }
            MixerConfig::Scan(scan) | MixerConfig::AttentionAndScan(scan) => {
                let weights = self.scan(*scan, &name)?;
                let output = self.linear(&name("ssm_out"), arch.width, scan.width())?;
                mixers.push((Mixer::Scan(Box::new(weights)), output));
            }
        }
        let attention_norm = name(arch.attention_norm);
        // The first layer reads rows that are normed already.
        let bare = idx == 0 && arch.embedding_norm;
        let bare = bare && !self.source.has(&format!("{attention_norm}.weight"));
        let mixes = config.mixer != MixerConfig::None && !bare;
        let feeds = config.feed_forward != FeedForwardConfig::None;
        Ok(LayerWeights {
            attention_norm: self.pre_norm(mixes, &attention_norm)?,
            mixers,
            attention_post_norm: self
                .norm_if(arch.post_norm, &name("post_attention_norm.weight"))?,
            feed_forward_norm: self.pre_norm(feeds, &name(arch.feed_forward_norm))?,
            feed_forward: self.feed_forward((idx, config), &name)?,
            feed_forward_post_norm: self.norm_if(arch.post_norm, &name("post_ffw_norm.weight"))?,
            input: self.layer_input(&name)?,
            streams: self.layer_streams(&name)?,
            output_scale: self
                .source
                .optional_vector(&name("layer_output_scale.weight"), 1)?
                .and_then(|scale| scale.first().copied()),
        })
    }

    /// Says that a tensor has a meaning, but none here.
    pub(super) fn ignore(&self, name: &str) {
        self.source.ignore(name);
    }

    /// Loads `name.weight` and, if there is one, `name.bias`.
    pub(super) fn linear(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
    ) -> Result<Linear<O>, LoadError> {
        let matrix = self
            .source
            .matrix(&format!("{name}.weight"), n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        Ok(Linear {
            matrix: self.upload(matrix)?,
            bias: self.bias(bias)?,
            low_rank: self.low_rank(
                &format!("{name}.weight"),
                n_rows,
                n_cols,
                from_ref(&(0..n_rows)),
            )?,
        })
    }

    /// Loads one tensor as matrices that lie one above the other.
    pub(super) fn stacked<const N: usize>(
        &mut self,
        name: &str,
        heights: [usize; N],
    ) -> Result<[Linear<O>; N], LoadError> {
        let n_rows = heights.iter().sum();
        let mut start = 0;
        let parts = heights.map(|height| {
            let rows = start..start + height;
            start = rows.end;
            [rows]
        });
        let parts = parts.each_ref().map(|part| &part[..]);
        self.cut(name, n_rows, self.arch.width, parts)
    }

    /// Loads one tensor as matrices, each of which is made of some stretches of its rows.
    pub(super) fn cut<const N: usize>(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        parts: [&[Range<usize>]; N],
    ) -> Result<[Linear<O>; N], LoadError> {
        let full = format!("{name}.weight");
        let all = self.source.matrix(&full, n_rows, n_cols)?;
        let bias = self
            .source
            .optional_vector(&format!("{name}.bias"), n_rows)?;
        let parts = parts.map(|stretches| {
            let bias = bias.as_ref().map(|bias| {
                let rows = stretches.iter().filter_map(|rows| bias.get(rows.clone()));
                rows.flatten().copied().collect()
            });
            Ok(Linear {
                matrix: self.upload(all.stretches(stretches))?,
                bias: self.bias(bias)?,
                low_rank: self.low_rank(&full, n_rows, n_cols, stretches)?,
            })
        });
        let parts: Vec<Linear<O>> = parts.into_iter().collect::<Result<_, LoadError>>()?;
        parts
            .try_into()
            .map_err(|_| invalid(format!("tensor {full} cannot be cut")))
    }

    /// Loads what adapters add to some rows of the matrix `name`.
    pub(super) fn low_rank(
        &mut self,
        name: &str,
        n_rows: usize,
        n_cols: usize,
        rows: &[Range<usize>],
    ) -> Result<Vec<LowRank<O>>, LoadError> {
        let mut parts = Vec::new();
        for adapter in self.adapters {
            if let Some(found) = adapter.factors(name, n_rows, n_cols)? {
                parts.push(LowRank {
                    down: self.upload(found.down)?,
                    up: self.upload(found.up.stretches(rows))?,
                    scale: found.scale,
                });
            }
        }
        Ok(parts)
    }

    /// Loads the norm before the last matrix of a part of a layer, where there is one.
    pub(super) fn sub_norm(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<O::Vector>, LoadError> {
        let norm = self.arch.sub_norms.then(|| self.norm(name, len));
        norm.transpose()
    }

    pub(super) fn norm(&mut self, name: &str, len: usize) -> Result<O::Vector, LoadError> {
        let values = self.source.vector(name, len)?;
        self.ops.vector(values).map_err(device)
    }

    /// Loads a norm of the residual stream.
    pub(super) fn residual_norm(&mut self, name: &str) -> Result<Norm<O>, LoadError> {
        let width = self.arch.width;
        // Files of Falcon H1 leave out the ending.
        let full = format!("{name}.weight");
        let full = if self.source.has(name) && !self.source.has(&full) {
            name
        } else {
            &full
        };
        let bias = match self.arch.norm {
            NormKind::Rms => None,
            NormKind::Layer => self
                .source
                .optional_vector(&format!("{name}.bias"), width)?,
        };
        Ok(Norm {
            weight: self.norm(full, width)?,
            bias: self.bias(bias)?,
        })
    }

    /// Loads the norm before a part of a layer, where there are both.
    fn pre_norm(&mut self, has_part: bool, name: &str) -> Result<Option<Norm<O>>, LoadError> {
        let wanted = has_part && self.arch.pre_norm;
        let norm = wanted.then(|| self.residual_norm(name));
        norm.transpose()
    }

    fn norm_if(&mut self, wanted: bool, name: &str) -> Result<Option<O::Vector>, LoadError> {
        let norm = wanted.then(|| self.norm(name, self.arch.width));
        norm.transpose()
    }

    pub(super) fn bias(
        &mut self,
        values: Option<Vec<f32>>,
    ) -> Result<Option<O::Vector>, LoadError> {
        let bias = values.map(|values| self.ops.vector(values));
        bias.transpose().map_err(device)
    }

    pub(super) fn upload(&mut self, matrix: FileMatrix) -> Result<O::Matrix, LoadError> {
        self.ops.matrix(matrix).map_err(device)
    }
}
