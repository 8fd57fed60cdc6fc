//! Layers, and the norms that all their parts have.

use super::{LayerWeights, Mixer, Norm};
use crate::{
    arch::{ArchConfig, FeedForwardConfig, Mixer as MixerConfig, NormKind},
    errors::device,
    loader::Loader,
    ops::Holder,
    parts::Part,
    source::{Result, invalid},
};

impl<O: Holder> Loader<'_, O, ArchConfig> {
    pub(super) fn layer(&mut self, idx: usize) -> Result<LayerWeights<O>> {
        let arch = self.config;
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

    /// Loads the norm before the last matrix of a part of a layer, where there is one.
    pub(super) fn sub_norm(&mut self, name: &str, len: usize) -> Result<Option<O::Vector>> {
        let norm = self.config.sub_norms.then(|| self.norm(name, len));
        norm.transpose()
    }

    pub(super) fn norm(&mut self, name: &str, len: usize) -> Result<O::Vector> {
        let values = self.source.vector(name, len)?;
        self.ops.vector(values).map_err(device)
    }

    /// Loads a norm of the residual stream.
    pub(super) fn residual_norm(&mut self, name: &str) -> Result<Norm<O>> {
        let width = self.config.width;
        // Files of Falcon H1 leave out the ending.
        let full = format!("{name}.weight");
        let full = if self.source.has(name) && !self.source.has(&full) {
            name
        } else {
            &full
        };
        let bias = match self.config.norm {
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
    fn pre_norm(&mut self, has_part: bool, name: &str) -> Result<Option<Norm<O>>> {
        let wanted = has_part && self.config.pre_norm;
        let norm = wanted.then(|| self.residual_norm(name));
        norm.transpose()
    }

    fn norm_if(&mut self, wanted: bool, name: &str) -> Result<Option<O::Vector>> {
        let norm = wanted.then(|| self.norm(name, self.config.width));
        norm.transpose()
    }
}
