//! What looks at other rows: attention, and layers that keep a state.

use std::ops::Range;

use super::{AttentionWeights, DeltaNetWeights, LatentWeights, ScanWeights, ShortConvWeights};
use crate::{
    arch::{ArchConfig, DeltaNetConfig, LatentConfig, LayerConfig, QkNorm, ScanConfig},
    errors::device,
    linear::Linear,
    loader::Loader,
    ops::Holder,
    source::{FileMatrix, Result},
};

/// To queries and their gates, and to keys and values.
struct Projections<O: Holder> {
    query: Linear<O>,
    gate: Option<Linear<O>>,
    key: Option<Linear<O>>,
    value: Option<Linear<O>>,
}

impl<O: Holder> Loader<'_, O, ArchConfig> {
    /// Loads attention, but for its output.
    pub(super) fn attention(
        &mut self,
        config: &LayerConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<AttentionWeights<O>> {
        let arch = self.config;
        let qk_norm = |heads_width| match arch.qk_norm {
            None | Some(QkNorm::Plain) => None,
            Some(QkNorm::Head | QkNorm::Rotated) => Some(config.head_dim),
            Some(QkNorm::Row) => Some(heads_width),
        };
        let Projections {
            query,
            gate,
            key,
            value,
        } = self.projections(config, name)?;
        let key_norm = if config.stores_kv {
            qk_norm(config.kv_width())
        } else {
            self.ignore(&name("attn_k_norm.weight"));
            None
        };
        let ones = arch.value_norm && config.stores_kv;
        let ones = ones.then(|| self.ops.vector(vec![1.0; config.head_dim]));
        let is_plain = arch.qk_norm == Some(QkNorm::Plain) && config.rope.is_some();
        let mut norm = |part, len: Option<usize>| match len {
            Some(len) => self.norm(&name(part), len).map(Some),
            None if is_plain => {
                let ones = self.ops.vector(vec![1.0; config.head_dim]);
                ones.map(Some).map_err(device)
            }
            None => Ok(None),
        };
        let (query_norm, key_norm) = if arch.qk_norm == Some(QkNorm::Rotated) {
            let [of_query, of_key] = self.rotated_norms(config.head_dim, name)?;
            (Some(of_query), Some(of_key))
        } else {
            (
                norm("attn_q_norm.weight", qk_norm(config.query_width()))?,
                norm("attn_k_norm.weight", key_norm)?,
            )
        };
        Ok(AttentionWeights {
            query,
            gate,
            key,
            value,
            query_norm,
            key_norm,
            value_norm: ones.transpose().map_err(device)?,
            sinks: arch
                .sinks
                .then(|| self.norm(&name("attn_sinks.weight"), config.n_heads))
                .transpose()?,
            sub_norm: self.sub_norm(&name("attn_sub_norm.weight"), config.query_width())?,
        })
    }

    /// Loads the norms of queries and keys that are normed after they are rotated. A rotation changes no
    /// root mean square, so keys are normed before it, without weights. In query times key each pair of
    /// elements has the product of both weights, which the query gets after it is rotated.
    fn rotated_norms(
        &mut self,
        head_dim: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<[O::Vector; 2]> {
        let mut weights = self.source.vector(&name("attn_q_norm.weight"), head_dim)?;
        let of_keys = self.source.vector(&name("attn_k_norm.weight"), head_dim)?;
        for (weight, of_key) in weights.iter_mut().zip(of_keys) {
            *weight *= of_key;
        }
        let weights = self.ops.vector(weights).map_err(device)?;
        let ones = self.ops.vector(vec![1.0; head_dim]).map_err(device)?;
        Ok([weights, ones])
    }

    /// Loads latent attention, but for its output.
    pub(super) fn latent(
        &mut self,
        n_heads: usize,
        config: LatentConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<LatentWeights<O>> {
        let LatentConfig {
            rank,
            key_dim,
            value_dim,
            ..
        } = config;
        let width = self.config.width;
        let (query_down, query_name, query_input) = match config.query_rank {
            None => (None, name("attn_q"), width),
            Some(rank) => {
                let down = self.linear(&name("attn_q_a"), rank, width)?;
                let norm = self.norm(&name("attn_q_a_norm.weight"), rank)?;
                (Some((down, norm)), name("attn_q_b"), rank)
            }
        };
        // In each head first what is not rotated.
        let dim = config.query_dim();
        let of = |from: usize, to: usize| -> Vec<Range<usize>> {
            let rows = |head: usize| head * dim + from..head * dim + to;
            (0..n_heads).map(rows).collect()
        };
        // The file bounds the number of heads before rows are listed for each.
        let n_rows = n_heads.saturating_mul(dim);
        let full = format!("{query_name}.weight");
        self.source.matrix(&full, n_rows, query_input)?;
        let parts = [&of(0, key_dim)[..], &of(key_dim, dim)[..]];
        let [query, query_rotated] = self.cut(&query_name, n_rows, query_input, parts)?;
        let heights = [rank, config.n_rotated];
        let [shared, shared_rotated] =
            self.stacked(&name("attn_kv_a_mqa"), heights, self.config.width)?;
        let both = name("attn_kv_b.weight");
        let (keys, values) = if self.source.has(&both) {
            // In each head the rows of its keys, then those of its values.
            let dim = key_dim + value_dim;
            let n_rows = n_heads.saturating_mul(dim);
            let all = self.source.matrix(&both, n_rows, rank)?;
            let keys = (0..n_heads).map(|head| all.rows(head * dim..head * dim + key_dim));
            let keys = keys.map(|rows| rows.transposed());
            let values = (0..n_heads).map(|head| all.rows(head * dim + key_dim..(head + 1) * dim));
            (keys.collect::<Result<Vec<_>, _>>()?, values.collect())
        } else {
            let keys = &name("attn_k_b.weight");
            let values = &name("attn_v_b.weight");
            (
                self.source.matrices(keys, n_heads, rank, key_dim)?,
                self.source.matrices(values, n_heads, value_dim, rank)?,
            )
        };
        let mut upload = |matrices: Vec<FileMatrix>| {
            let matrices = matrices.into_iter().map(|matrix| self.upload(matrix));
            matrices.collect::<Result<Vec<_>, _>>()
        };
        Ok(LatentWeights {
            config,
            query_down,
            query,
            query_rotated,
            shared,
            shared_rotated,
            keys: upload(keys)?,
            values: upload(values)?,
            norm: self.norm(&name("attn_kv_a_norm.weight"), rank)?,
        })
    }

    /// Loads a convolution between two gates, but for its output.
    pub(super) fn short_conv(
        &mut self,
        taps: usize,
        width: usize,
        name: &dyn Fn(&str) -> String,
    ) -> Result<ShortConvWeights<O>> {
        let [before, after, input] =
            self.stacked(&name("shortconv.in_proj"), [width; 3], self.config.width)?;
        Ok(ShortConvWeights {
            before,
            after,
            input,
            kernel: self.kernel(&name("shortconv.conv.weight"), taps, width)?,
        })
    }

    /// Loads a gated delta net, but for its output.
    pub(super) fn delta_net(
        &mut self,
        config: DeltaNetConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<DeltaNetWeights<O>> {
        let (n_heads, key_heads) = (config.n_value_heads, config.n_key_heads);
        let (keys, values) = (config.key_width(), config.value_width());
        let dim = config.head_dim;
        let group = n_heads / key_heads;
        let width = self.config.width;
        let (qkv, gate) = if self.source.has(&name("ssm_in.weight")) {
            // The parts of one key head after those of another.
            let part = dim * (2 + 2 * group);
            let of = |at: usize, n: usize| {
                let rows = move |head: usize| head * part + at * dim..head * part + (at + n) * dim;
                (0..key_heads).map(rows)
            };
            let qkv: Vec<_> = of(0, 1).chain(of(1, 1)).chain(of(2, group)).collect();
            let gate: Vec<_> = of(2 + group, group).collect();
            let parts = [&qkv[..], &gate[..]];
            let [qkv, gate] = self.cut(&name("ssm_in"), 2 * (keys + values), width, parts)?;
            (qkv, gate)
        } else {
            let qkv = self.linear(&name("attn_qkv"), config.conv_width(), width)?;
            (qkv, self.linear(&name("attn_gate"), values, width)?)
        };
        let (beta, alpha) = if self.source.has(&name("ssm_ba.weight")) {
            let of = |at: usize| -> Vec<Range<usize>> {
                let rows = |head: usize| (2 * head + at) * group..(2 * head + at + 1) * group;
                (0..key_heads).map(rows).collect()
            };
            let (beta, alpha) = (of(0), of(1));
            let [beta, alpha] = self.cut(&name("ssm_ba"), 2 * n_heads, width, [&beta, &alpha])?;
            (beta, alpha)
        } else {
            let beta = self.linear(&name("ssm_beta"), n_heads, width)?;
            (beta, self.linear(&name("ssm_alpha"), n_heads, width)?)
        };
        // Files of the public library leave out the ending.
        let bias = ["ssm_dt.bias", "ssm_dt"].map(name);
        let bias = bias.iter().find(|name| self.source.has(name));
        let bias = bias.map_or_else(|| name("ssm_dt.bias"), String::clone);
        Ok(DeltaNetWeights {
            config,
            qkv,
            gate,
            alpha,
            beta,
            kernel: self.kernel(&name("ssm_conv1d.weight"), config.taps, config.conv_width())?,
            decay: self.norm(&name("ssm_a"), n_heads)?,
            decay_bias: self.norm(&bias, n_heads)?,
            norm: self.norm(&name("ssm_norm.weight"), dim)?,
        })
    }

    /// Loads a selective scan, but for its output.
    pub(super) fn scan(
        &mut self,
        config: ScanConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<ScanWeights<O>> {
        let (width, conv_width) = (config.width(), config.conv_width());
        let heights = [width, conv_width, config.n_heads];
        let [gate, input, steps] = self.stacked(&name("ssm_in"), heights, self.config.width)?;
        let bias = self
            .source
            .optional_vector(&name("ssm_conv1d.bias"), conv_width)?;
        let decay = self.source.grid(&name("ssm_a"), 1, config.n_heads)?;
        let skip = self.source.grid(&name("ssm_d"), 1, config.n_heads)?;
        let norm = name("ssm_norm.weight");
        let groups = config.n_groups;
        let norm = self.source.has(&norm).then(|| {
            let values = self.source.grid(&norm, width / groups, groups)?;
            self.ops.vector(values).map_err(device)
        });
        Ok(ScanWeights {
            config,
            gate,
            input,
            steps,
            kernel: self.kernel(&name("ssm_conv1d.weight"), config.taps, conv_width)?,
            kernel_bias: self.bias(bias)?,
            decay: self.ops.vector(decay).map_err(device)?,
            step_bias: self.norm(&name("ssm_dt.bias"), config.n_heads)?,
            skip: self.ops.vector(skip).map_err(device)?,
            norm: norm.transpose()?,
        })
    }

    /// Loads the weights of a convolution: in the file a row for each channel, here one for each tap.
    fn kernel(&mut self, name: &str, taps: usize, width: usize) -> Result<O::Vector> {
        let by_channel = self.source.grid(name, taps, width)?;
        let mut by_tap = vec![0.0; by_channel.len()];
        for (channel, weights) in by_channel.chunks_exact(taps).enumerate() {
            for (weight, row) in weights.iter().zip(by_tap.chunks_exact_mut(width)) {
                if let Some(place) = row.get_mut(channel) {
                    *place = *weight;
                }
            }
        }
        self.ops.vector(by_tap).map_err(device)
    }

    /// Loads the products that make queries and, where the layer stores them, keys and values.
    fn projections(
        &mut self,
        config: &LayerConfig,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Projections<O>> {
        let width = self.config.width;
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        if self.source.has(&name("attn_qkv.weight")) {
            let heights = [query_width, kv_width, kv_width];
            let [query, key, value] =
                self.stacked(&name("attn_qkv"), heights, self.config.width)?;
            let stored = config.stores_kv.then_some((key, value));
            let (key, value) = stored.unzip();
            return Ok(Projections {
                query,
                gate: None,
                key,
                value,
            });
        }
        let (query, gate) = if self.config.output_gate {
            // In each head the query, then its gate.
            let dim = config.head_dim;
            // The file bounds the number of heads before rows are listed for each.
            let full = name("attn_q.weight");
            let n_rows = query_width.saturating_mul(2);
            self.source.matrix(&full, n_rows, width)?;
            let of = |at: usize| -> Vec<Range<usize>> {
                let rows = |head: usize| (2 * head + at) * dim..(2 * head + at + 1) * dim;
                (0..config.n_heads).map(rows).collect()
            };
            let parts = [&of(0)[..], &of(1)[..]];
            let [query, gate] = self.cut(&name("attn_q"), n_rows, width, parts)?;
            (query, Some(gate))
        } else {
            (self.linear(&name("attn_q"), query_width, width)?, None)
        };
        if !config.stores_kv {
            // Files may have them all the same.
            self.ignore(&name("attn_k.weight"));
            self.ignore(&name("attn_v.weight"));
            return Ok(Projections {
                query,
                gate,
                key: None,
                value: None,
            });
        }
        let key = self.linear(&name("attn_k"), kv_width, width)?;
        // Only where values are normed apart can they be the keys.
        let value = if self.config.value_norm && !self.source.has(&name("attn_v.weight")) {
            None
        } else {
            Some(self.linear(&name("attn_v"), kv_width, width)?)
        };
        Ok(Projections {
            query,
            gate,
            key: Some(key),
            value,
        })
    }
}
