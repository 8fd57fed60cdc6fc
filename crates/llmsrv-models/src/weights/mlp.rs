//! Networks and experts, and what else a layer adds to the residual stream.

use std::{iter::repeat_with, ops::Range};

use super::{
    Beside, Early, Experts, FeedForward, LayerInput, LayerStreams, Mlp, PerLayer, Streams,
};
use crate::{
    arch::{ArchConfig, ExpertsInput, FeedForwardConfig, LayerConfig},
    errors::device,
    linear::{Linear, linear_ref},
    loader::Loader,
    ops::{ExpertNetwork, ExpertNetworks, Holder},
    parts::Part,
    source::{FileMatrix, Result},
};

impl<O: Holder> Loader<'_, O, ArchConfig> {
    /// Loads the second embedding.
    pub(super) fn per_layer(&mut self, n_vocab: usize) -> Result<Option<PerLayer<O>>> {
        let Some(part) = self.config.per_layer_input else {
            return Ok(None);
        };
        let all = part.saturating_mul(self.config.layers.len());
        let name = "per_layer_token_embd.weight";
        let table = self.source.table(name, n_vocab, all)?;
        let name = "per_layer_model_proj.weight";
        let projection = self.source.matrix(name, all, self.config.width)?;
        Ok(Some(PerLayer {
            table,
            projection: self.upload(projection)?,
            norm: self.norm("per_layer_proj_norm.weight", part)?,
        }))
    }

    /// Loads what is between one residual stream and several.
    pub(super) fn streams(&mut self) -> Result<Option<Streams<O>>> {
        let Some(streams) = self.config.streams else {
            return Ok(None);
        };
        let width = self.config.width;
        let mut matrices = |name| {
            let all = self.source.matrices(name, streams.n - 1, width, width)?;
            let all = all.into_iter().map(|matrix| self.upload(matrix));
            all.collect::<Result<Vec<_>, _>>()
        };
        Ok(Some(Streams {
            spread: matrices("altup_proj.weight")?,
            gather: matrices("altup_unembd_proj.weight")?,
        }))
    }

    /// Loads how a layer works on several residual streams. The router reads what its norm gives divided by
    /// the width.
    pub(super) fn layer_streams(
        &mut self,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Option<LayerStreams<O>>> {
        let Some(streams) = self.config.streams else {
            return Ok(None);
        };
        let (n, rank, width) = (streams.n, streams.rank, self.config.width);
        let mut router_norm = self
            .source
            .vector(&name("altup_router_norm.weight"), width)?;
        for weight in &mut router_norm {
            *weight /= width as f32;
        }
        let matrix = |part: &str, n_rows, n_cols| self.source.matrix(&name(part), n_rows, n_cols);
        let router = matrix("altup_router.weight", n, width)?;
        let down = matrix("laurel_l.weight", rank, width)?;
        let up = matrix("laurel_r.weight", width, rank)?;
        let grid = |part: &str, n_rows| self.source.grid(&name(part), n, n_rows);
        // What is predicted of a stream is first of all itself.
        let coefficients = grid("altup_predict_coef.weight", n * n)?;
        let rows = coefficients.chunks_exact(n).enumerate();
        let predict = rows.flat_map(|(idx, row)| {
            let own = f32::from(u8::from(idx / n == idx % n));
            row.iter().copied().chain([own])
        });
        let predict = predict.collect();
        // To each stream is added, with a factor of its own, by how much the result differs from what was predicted of
        // the first one.
        let coefficients = grid("altup_correct_coef.weight", n)?;
        let correct = coefficients.chunks_exact(n).flat_map(|row| {
            let signed = |sign: f32, own| row.iter().map(move |x| sign * x).chain([own]);
            let itself = signed(0.0, 1.0);
            itself.chain(signed(1.0, 1.0)).chain(signed(-1.0, -1.0))
        });
        let correct = correct.collect();
        Ok(Some(LayerStreams {
            predict: self.ops.vector(predict).map_err(device)?,
            correct: self.ops.vector(correct).map_err(device)?,
            router_norm: self.ops.vector(router_norm).map_err(device)?,
            router: self.upload(router)?,
            scale: self.norm(&name("altup_correct_scale.weight"), width)?,
            down: self.upload(down)?,
            up: self.upload(up)?,
            low_norm: self.norm(&name("laurel_post_norm.weight"), width)?,
        }))
    }

    /// Loads how a layer takes in its part of the second embedding.
    pub(super) fn layer_input(
        &mut self,
        name: &dyn Fn(&str) -> String,
    ) -> Result<Option<LayerInput<O>>> {
        let Some(part) = self.config.per_layer_input else {
            return Ok(None);
        };
        let width = self.config.width;
        let gate = self.source.matrix(&name("inp_gate.weight"), part, width)?;
        let projection = self.source.matrix(&name("proj.weight"), width, part)?;
        Ok(Some(LayerInput {
            gate: self.upload(gate)?,
            projection: self.upload(projection)?,
            norm: self.norm(&name("post_norm.weight"), width)?,
        }))
    }

    pub(super) fn feed_forward(
        &mut self,
        (idx, layer): (usize, &LayerConfig),
        name: &dyn Fn(&str) -> String,
    ) -> Result<FeedForward<O>> {
        let arch = self.config;
        let config = match layer.feed_forward {
            FeedForwardConfig::None => return Ok(FeedForward::None),
            FeedForwardConfig::Dense {
                width,
                fused_gate_up: true,
            } => {
                let [gate, up] =
                    self.stacked(&name("ffn_up"), [width, width], self.config.width)?;
                let down = self.linear(&name("ffn_down"), arch.width, width)?;
                return Ok(FeedForward::Dense(Mlp {
                    gate: Some(gate),
                    up,
                    sub_norm: None,
                    down,
                }));
            }
            FeedForwardConfig::Plain { width } => {
                return Ok(FeedForward::Dense(self.network(name, "", width, false)?));
            }
            FeedForwardConfig::Dense { width, .. } => {
                return Ok(FeedForward::Dense(self.network(name, "", width, true)?));
            }
            FeedForwardConfig::Experts(config) => config,
        };
        let (n, width) = (config.n_experts, config.width);
        let router = self.linear(&name("ffn_gate_inp"), n, arch.width)?;
        // What the experts read and give.
        let outer = config.latent.unwrap_or(arch.width);
        let latent = match config.latent {
            None => None,
            Some(latent) => Some((
                self.linear(&name("ffn_latent_down"), latent, arch.width)?,
                self.linear(&name("ffn_latent_up"), arch.width, latent)?,
            )),
        };
        self.ops.begin_part(Part::Experts(idx));
        let both = "ffn_gate_up_exps.weight";
        let (gates, ups) = if !config.gated {
            let ups = self.stack(&name("ffn_up_exps"), true, [n, width, outer])?;
            (Vec::new(), ups)
        } else if self.source.has(&name(both)) {
            let all = self
                .source
                .scaled_matrices(&name(both), n, 2 * width, outer)?;
            let halves = |rows: Range<usize>| all.iter().map(move |both| both.rows(rows.clone()));
            let halves = halves(0..width).chain(halves(width..2 * width));
            let mut gates = self.experts(halves.map(|half| (half, None)).collect())?;
            let ups = gates.split_off(n.min(gates.len()));
            (gates, ups)
        } else {
            (
                self.stack(&name("ffn_gate_exps"), true, [n, width, outer])?,
                self.stack(&name("ffn_up_exps"), true, [n, width, outer])?,
            )
        };
        // What they give is multiplied with their scale and weight at once.
        let downs = self.stack(&name("ffn_down_exps"), false, [n, outer, width])?;
        let gates = gates.into_iter().map(Some).chain(repeat_with(|| None));
        let networks = ups
            .into_iter()
            .zip(downs)
            .zip(gates)
            .map(|((up, down), gate)| Mlp {
                gate,
                up,
                sub_norm: None,
                down,
            });
        let networks: Vec<Mlp<O>> = networks.collect();
        let selection_bias = self.source.optional_vector(&name("exp_probs_b.bias"), n)?;
        let scales = self
            .source
            .optional_vector(&name("ffn_down_exps.scale"), n)?;
        let refs = networks.iter().map(|network| ExpertNetwork {
            gate: network.gate.as_ref().map(linear_ref),
            up: linear_ref(&network.up),
            down: linear_ref(&network.down),
        });
        let refs = ExpertNetworks {
            config: &config,
            activation: arch.activation,
            selection_bias: selection_bias.as_deref(),
            scales: scales.as_deref(),
            networks: refs.collect(),
        };
        let on_device = self.ops.experts(&refs).map_err(device)?;
        self.ops.begin_part(Part::Layer(idx));
        let shared = match config.shared {
            None => None,
            Some(shared) => {
                let network = self.network(name, "_shexp", shared.width, config.gated)?;
                let gate = if shared.gated {
                    let name = name("ffn_gate_inp_shexp.weight");
                    let gate = self.source.matrix(&name, 1, arch.width)?;
                    Some(self.upload(gate)?)
                } else {
                    None
                };
                Some((network, gate))
            }
        };
        let early = match config.reads {
            ExpertsInput::Usual | ExpertsInput::RoutedBefore => None,
            ExpertsInput::Before { beside } => Some(Early {
                norm: self.residual_norm(&name("ffn_norm_exps"))?,
                beside: self.network(name, "", beside, true)?,
            }),
        };
        let beside = match config.beside {
            None => None,
            Some(width) => Some(self.beside(name, width)?),
        };
        Ok(FeedForward::Experts(Box::new(Experts {
            config,
            layer: idx,
            router,
            selection_bias,
            networks,
            on_device,
            latent,
            scales,
            shared,
            beside,
            early,
        })))
    }

    /// Loads the network beside experts. The router reads the residual stream divided by its mean square
    /// and by the root of its width.
    fn beside(&mut self, name: &dyn Fn(&str) -> String, hidden: usize) -> Result<Beside<O>> {
        let width = self.config.width;
        let mut router = self.source.vector(&name("ffn_gate_inp.scale"), width)?;
        for weight in &mut router {
            *weight /= (width as f32).sqrt();
        }
        Ok(Beside {
            network: self.network(name, "", hidden, true)?,
            post_norm: self.norm(&name("post_ffw_norm_1.weight"), width)?,
            router_norm: self.ops.vector(router).map_err(device)?,
            experts_norm: self.norm(&name("pre_ffw_norm_2.weight"), width)?,
            experts_post_norm: self.norm(&name("post_ffw_norm_2.weight"), width)?,
        })
    }

    /// Loads `name.weight`, a matrix for each expert, and, if there are some, `name.bias` and, where that is
    /// wanted, `name.scale`.
    fn stack(
        &mut self,
        name: &str,
        scaled: bool,
        [n, n_rows, n_cols]: [usize; 3],
    ) -> Result<Vec<Linear<O>>> {
        let full = format!("{name}.weight");
        let matrices = if scaled {
            self.source.scaled_matrices(&full, n, n_rows, n_cols)?
        } else {
            self.source.matrices(&full, n, n_rows, n_cols)?
        };
        let biases = self
            .source
            .optional_rows(&format!("{name}.bias"), n, n_rows)?;
        let mut biases = biases.into_iter().flatten();
        let matrices = matrices.into_iter().map(|matrix| (matrix, biases.next()));
        self.experts(matrices.collect())
    }

    /// Takes a matrix of each expert.
    fn experts(&mut self, matrices: Vec<(FileMatrix, Option<Vec<f32>>)>) -> Result<Vec<Linear<O>>> {
        let made = self.ops.stack(matrices).map_err(device)?;
        let experts = made.into_iter().map(|(matrix, bias)| Linear {
            matrix,
            bias,
            low_rank: Vec::new(),
        });
        Ok(experts.collect())
    }

    fn network(
        &mut self,
        name: &dyn Fn(&str) -> String,
        suffix: &str,
        width: usize,
        gated: bool,
    ) -> Result<Mlp<O>> {
        let part = |part: &str| name(&format!("ffn_{part}{suffix}"));
        let gate = gated.then(|| self.linear(&part("gate"), width, self.config.width));
        Ok(Mlp {
            gate: gate.transpose()?,
            up: self.linear(&part("up"), width, self.config.width)?,
            sub_norm: self.sub_norm(&format!("{}.weight", part("sub_norm")), width)?,
            down: self.linear(&part("down"), self.config.width, width)?,
        })
    }
}
