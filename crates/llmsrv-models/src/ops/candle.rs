//! The decoder's operations on candle tensors: weights are unpacked by candle and every operation is the textbook one,
//! which makes this the second opinion in tests.

use std::{convert::Infallible, ops::Range};

use candle_core::{
    D, DType, Device, Tensor,
    quantized::{GgmlDType, QStorage, QTensor},
};
use llmsrv_engine::{BlockId, ModelError, Span, StateId, StepPlan};
use llmsrv_gguf::TensorType;

use super::{
    Attention, BidirectionalAttention, DeltaRule, Holder, Ops, Result, SHORTEST, SelectiveScan,
    no_gate,
};
use crate::{
    arch::{Activation, ArchConfig, BLOCK_SIZE, LayerConfig},
    rope::{Places, Rope, RopeStyle},
    source::FileMatrix,
};

/// Candle on the CPU, with the KV cache of one model.
pub(crate) struct CandleOps {
    kv_type: DType,
    /// Elements of the keys of a position in each layer that stores some.
    kv_widths: Vec<usize>,
    /// Keys and values of these layers, `[blocks * BLOCK_SIZE, width]`; empty without blocks.
    kv: Vec<(Tensor, Tensor)>,
    state_len: usize,
    n_layers: usize,
    states: Vec<State>,
}

/// A recurrent state: in each layer that of a convolution, and that of a rule; `None` = zeros.
type State = Vec<[Option<Tensor>; 2]>;

/// Cosines and sines, `[rows, 1, pairs]`.
pub(crate) struct Angles {
    style: RopeStyle,
    cos: Tensor,
    sin: Tensor,
}

impl CandleOps {
    /// Prepares for a model whose keys and values are stored as `kv_type`: f16, bf16 or f32.
    pub(crate) fn new(arch: &ArchConfig, kv_type: TensorType) -> CandleOps {
        CandleOps {
            kv_type: match kv_type {
                TensorType::F16 => DType::F16,
                TensorType::BF16 => DType::BF16,
                _ => DType::F32,
            },
            kv_widths: arch.kv_shapes().iter().map(|(n, dim)| n * dim).collect(),
            kv: Vec::new(),
            state_len: arch.state_ranges().last().map_or(0, |range| range.end),
            n_layers: arch.layers.len(),
            states: Vec::new(),
        }
    }

    /// Prepares for a model without KV cache.
    pub(crate) fn without_cache() -> CandleOps {
        CandleOps {
            kv_type: DType::F32,
            kv_widths: Vec::new(),
            kv: Vec::new(),
            state_len: 0,
            n_layers: 0,
            states: Vec::new(),
        }
    }

    fn stored(&self, layer: usize) -> Result<&(Tensor, Tensor)> {
        let stored = self.kv.get(layer);
        stored.ok_or_else(|| ModelError::Compute("no KV block was reserved".into()))
    }

    fn state(&mut self, id: StateId, layer: usize) -> Result<&mut [Option<Tensor>; 2]> {
        let layers = self.states.get_mut(id.0 as usize);
        let state = layers.and_then(|layers| layers.get_mut(layer));
        state.ok_or_else(|| ModelError::Compute("a recurrent state that is not there".into()))
    }

    /// Sends the rows of a step through states of `shape`, whose last part is that of a result; `step`
    /// returns the state after a row, and its result.
    fn recur(
        &mut self,
        layer: usize,
        shape: (usize, usize, usize),
        plan: &StepPlan,
        step: impl Fn(usize, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
    ) -> Result<Tensor> {
        let mut results = Vec::with_capacity(plan.tokens.len());
        for span in &plan.spans {
            let Some(of_span) = &span.state else {
                continue;
            };
            let mut state = match self.state(of_span.slot, layer)?[1].clone() {
                Some(before) => before,
                None => Tensor::zeros(shape, DType::F32, &Device::Cpu).map_err(failed)?,
            };
            for (n_before, row) in span.rows.clone().enumerate() {
                let (next, result) = step(row, &state).map_err(failed)?;
                state = next;
                results.push(result);
                for (n_rows, to) in &of_span.saves {
                    if *n_rows == n_before + 1 {
                        self.state(*to, layer)?[1] = Some(state.clone());
                    }
                }
            }
            self.state(of_span.slot, layer)?[1] = Some(state);
        }
        computed(|| Tensor::stack(&results, 0)?.reshape((results.len(), shape.0 * shape.2)))
    }

    fn attend_span(
        (keys, values): &(Tensor, Tensor),
        (query, sinks): (&Tensor, Option<&Tensor>),
        span: &Span,
        ends: &[u32],
        attention: &Attention,
    ) -> candle_core::Result<Tensor> {
        let Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            ..
        } = *attention;
        let (n, group) = (span.rows.len(), n_heads / n_kv_heads);
        let start = span.start as usize;
        let window = attention.window.unwrap_or(usize::MAX);
        // Positions that at least one query of the span sees.
        let first = match attention.chunk {
            Some(chunk) => start - start % chunk,
            None => (start + 1).saturating_sub(window),
        };
        let end = ends.iter().copied().max().unwrap_or(0) as usize;
        let seen: Vec<u32> = (first..end).map(|p| slot(span, p)).collect();
        let n_seen = seen.len();
        let seen = indices(&seen)?;
        let gather = |stored: &Tensor| {
            stored
                .index_select(&seen, 0)?
                .to_dtype(DType::F32)?
                .reshape((n_seen, n_kv_heads, head_dim))?
                .transpose(0, 1)?
                .contiguous()
        };
        let (keys, values) = (gather(keys)?, gather(values)?);
        let query = query
            .narrow(0, span.rows.start, n)?
            .reshape((n, n_kv_heads, group, head_dim))?
            .permute((1, 2, 0, 3))?
            .contiguous()?
            .reshape((n_kv_heads, group * n, head_dim))?;
        let scores = query.matmul(&keys.t()?)?;
        let scores = (scores * f64::from(attention.scale))?;
        let scores = match attention.softcap.map(f64::from) {
            Some(cap) => ((scores / cap)?.tanh()? * cap)?,
            None => scores,
        };
        let visible = |row: usize, idx: usize| {
            let (at, seen) = (start + row, first + idx);
            let end = ends.get(row).map_or(0, |end| *end as usize);
            let same_chunk = attention
                .chunk
                .is_none_or(|chunk| seen / chunk == at / chunk);
            seen < end && at < seen.saturating_add(window) && same_chunk
        };
        let mask: Vec<f32> = (0..n * n_seen)
            .map(|i| {
                if visible(i / n_seen, i % n_seen) {
                    0.0
                } else {
                    f32::NEG_INFINITY
                }
            })
            .collect();
        let mask = Tensor::from_vec(mask, (1, n, n_seen), &Device::Cpu)?;
        let scores = scores.reshape((n_heads, n, n_seen))?.broadcast_add(&mask)?;
        let mut max = scores.max_keepdim(D::Minus1)?;
        let sinks = sinks
            .map(|sinks| sinks.reshape((n_heads, 1, 1)))
            .transpose()?;
        if let Some(sinks) = &sinks {
            max = max.broadcast_maximum(sinks)?;
        }
        let exp = scores.broadcast_sub(&max)?.exp()?;
        let mut sum = exp.sum_keepdim(D::Minus1)?;
        if let Some(sinks) = &sinks {
            sum = (sum + sinks.broadcast_sub(&max)?.exp()?)?;
        }
        let shares = exp.broadcast_div(&sum)?;
        shares
            .reshape((n_kv_heads, group * n, n_seen))?
            .matmul(&values)?
            .reshape((n_heads, n, head_dim))?
            .transpose(0, 1)?
            .contiguous()?
            .reshape((n, n_heads * head_dim))
    }
}

fn indices(indices: &[u32]) -> candle_core::Result<Tensor> {
    Tensor::new(indices, &Device::Cpu)
}

/// Row of the KV tensors that holds `position` of a sequence.
fn slot(span: &Span, position: usize) -> u32 {
    let block = span.blocks.get(position / BLOCK_SIZE).map_or(0, |b| b.0);
    block * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32
}

impl Holder for CandleOps {
    /// Transposed: `[inputs, outputs]`.
    type Matrix = Tensor;
    type Vector = Tensor;
    type Experts = Infallible;

    fn matrix(&mut self, source: FileMatrix) -> Result<Tensor> {
        let shape = (source.n_rows, source.n_cols);
        let bytes = source.bytes();
        // Candle reads the blocks in place and insists on their alignment.
        let aligned = bytes.as_ptr().align_offset(4) == 0;
        let plain = if let Some(dtype) =
            block_type(source.dtype()).filter(|_| aligned && source.scale == 1.0)
        {
            let storage = QStorage::from_data(bytes.into(), &Device::Cpu, dtype);
            let packed = storage.and_then(|storage| QTensor::new(storage, shape));
            packed.and_then(|packed| packed.dequantize(&Device::Cpu))
        } else {
            let mut values = vec![0.0; source.n_rows * source.n_cols];
            llmsrv_kernels::dequantize(source.dtype(), bytes, &mut values)
                .map_err(|error| ModelError::Compute(error.to_string()))?;
            for value in &mut values {
                *value *= source.scale;
            }
            Tensor::from_vec(values, shape, &Device::Cpu)
        };
        plain.and_then(|matrix| matrix.t()).map_err(failed)
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Tensor> {
        let len = values.len();
        Tensor::from_vec(values, len, &Device::Cpu).map_err(failed)
    }
}

impl Ops for CandleOps {
    type Tensor = Tensor;
    type Angles = Angles;

    fn extra_weight_bytes(&self) -> u64 {
        0
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<()> {
        let n_stored = self
            .kv
            .first()
            .map_or(0, |(keys, _)| keys.dims().first().copied().unwrap_or(0));
        let n_new = (n_blocks * BLOCK_SIZE).saturating_sub(n_stored);
        let grown = self.kv_widths.iter().enumerate().map(|(layer, width)| {
            let zeros = || Tensor::zeros((n_new, *width), self.kv_type, &Device::Cpu);
            match self.kv.get(layer) {
                None => Ok((zeros()?, zeros()?)),
                Some((keys, values)) => Ok((
                    Tensor::cat(&[keys, &zeros()?], 0)?,
                    Tensor::cat(&[values, &zeros()?], 0)?,
                )),
            }
        });
        let grown = grown.collect::<candle_core::Result<_>>();
        self.kv = grown.map_err(|_| ModelError::OutOfMemory(n_blocks))?;
        Ok(())
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        let (from, to) = (from.0 as usize * BLOCK_SIZE, to.0 as usize * BLOCK_SIZE);
        let copy = |stored: &Tensor| {
            // A copy of its own: a tensor is not written where it is read from.
            let source = stored.narrow(0, from, BLOCK_SIZE)?.copy()?;
            stored.slice_set(&source, 0, to)
        };
        for (keys, values) in &self.kv {
            copy(keys).map_err(failed)?;
            copy(values).map_err(failed)?;
        }
        Ok(())
    }

    fn kv_block_bytes(&self) -> usize {
        let width: usize = self.kv_widths.iter().sum();
        2 * width * BLOCK_SIZE * self.kv_type.size_in_bytes()
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<()> {
        if n_states > self.states.len() {
            let zeros: State = vec![[const { None }; 2]; self.n_layers];
            self.states.resize(n_states, zeros);
        }
        Ok(())
    }

    fn clear_state(&mut self, id: StateId) -> Result<()> {
        for layer in 0..self.n_layers {
            *self.state(id, layer)? = [const { None }; 2];
        }
        Ok(())
    }

    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<()> {
        for layer in 0..self.n_layers {
            // A tensor is never written, so two states may share it.
            let state = self.state(from, layer)?.clone();
            *self.state(to, layer)? = state;
        }
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        self.state_len * size_of::<f32>()
    }

    fn embed(&mut self, table: &FileMatrix, tokens: &[u32], scale: f32) -> Result<Tensor> {
        let mut rows = vec![0.0; tokens.len() * table.n_cols];
        for (row, token) in rows.chunks_exact_mut(table.n_cols).zip(tokens) {
            table.read_row(*token as usize, row);
        }
        let shape = (tokens.len(), table.n_cols);
        computed(|| Tensor::from_vec(rows, shape, &Device::Cpu)? * f64::from(scale))
    }

    fn scatter_rows(&mut self, x: Tensor, first: usize, values: &[f32]) -> Result<Tensor> {
        let put = || {
            let width = x.dim(1)?;
            let rows = (values.len() / width.max(1), width);
            x.slice_set(&Tensor::from_slice(values, rows, &Device::Cpu)?, 0, first)
        };
        put().map_err(failed)?;
        Ok(x)
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles> {
        let shape = (places.len(), 1, rope.frequencies.len());
        let of = |function: fn(f64) -> f64| {
            let turns = places.iter().flat_map(|place| rope.angles(place));
            let values = turns.map(|angle| function(angle) as f32 * rope.magnitude);
            Tensor::from_vec(values.collect(), shape, &Device::Cpu).map_err(failed)
        };
        Ok(Angles {
            style: rope.style,
            cos: of(f64::cos)?,
            sin: of(f64::sin)?,
        })
    }

    fn rms_norm(&mut self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        computed(|| {
            let stretches = x.reshape(((), weight.elem_count()))?;
            let mean_square = stretches.sqr()?.mean_keepdim(1)?;
            stretches
                .broadcast_div(&(mean_square + f64::from(eps))?.sqrt()?)?
                .broadcast_mul(weight)?
                .reshape(x.shape())
        })
    }

    fn grouped_norm(
        &mut self,
        x: &Tensor,
        weight: &Tensor,
        n_groups: usize,
        eps: f32,
    ) -> Result<Tensor> {
        computed(|| {
            let groups = x.reshape(((), n_groups, weight.elem_count() / n_groups))?;
            let mean_square = groups.sqr()?.mean_keepdim(2)?;
            groups
                .broadcast_div(&(mean_square + f64::from(eps))?.sqrt()?)?
                .reshape(x.shape())?
                .broadcast_mul(weight)
        })
    }

    fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        eps: f32,
    ) -> Result<Tensor> {
        computed(|| {
            let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
            let normed = centred
                .broadcast_div(&(variance + f64::from(eps))?.sqrt()?)?
                .broadcast_mul(weight)?;
            match bias {
                Some(bias) => normed.broadcast_add(bias),
                None => Ok(normed),
            }
        })
    }

    fn linear(&mut self, x: &Tensor, matrix: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        computed(|| match bias {
            Some(bias) => x.matmul(matrix)?.broadcast_add(bias),
            None => x.matmul(matrix),
        })
    }

    fn rotate(&mut self, x: Tensor, angles: &Angles, head_dim: usize) -> Result<Tensor> {
        computed(|| {
            let Angles { style, cos, sin } = angles;
            let n_pairs = cos.dim(2)?;
            let n_rows = x.dim(0)?;
            let heads = x.reshape((n_rows, (), head_dim))?;
            let (a, b) = match style {
                RopeStyle::HalfSplit => (
                    heads.narrow(2, 0, n_pairs)?,
                    heads.narrow(2, n_pairs, n_pairs)?,
                ),
                RopeStyle::Interleaved => {
                    let pairs = heads.narrow(2, 0, 2 * n_pairs)?.contiguous()?;
                    let pairs = pairs.reshape((n_rows, (), n_pairs, 2))?;
                    (
                        pairs.narrow(3, 0, 1)?.squeeze(3)?,
                        pairs.narrow(3, 1, 1)?.squeeze(3)?,
                    )
                }
            };
            let turned_a = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
            let turned_b = (b.broadcast_mul(cos)? + a.broadcast_mul(sin)?)?;
            let turned = match style {
                RopeStyle::HalfSplit => Tensor::cat(&[turned_a, turned_b], 2)?,
                RopeStyle::Interleaved => {
                    Tensor::stack(&[turned_a, turned_b], 3)?.flatten_from(2)?
                }
            };
            let n_rest = head_dim - 2 * n_pairs;
            let all = match n_rest {
                0 => turned,
                _ => Tensor::cat(&[turned, heads.narrow(2, 2 * n_pairs, n_rest)?], 2)?,
            };
            all.contiguous()?.reshape(x.shape())
        })
    }

    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Tensor,
        angles: Option<&Angles>,
        value: &Tensor,
        plan: &StepPlan,
    ) -> Result<()> {
        let key = match angles {
            Some(angles) => self.rotate(key, angles, layer.head_dim)?,
            None => key,
        };
        let append = |stored: &Tensor, new: &Tensor| -> candle_core::Result<()> {
            let new = new.to_dtype(self.kv_type)?.contiguous()?;
            for span in &plan.spans {
                let mut row = span.rows.start;
                while row < span.rows.end {
                    // A run ends with its block.
                    let position = span.start as usize + (row - span.rows.start);
                    let room = BLOCK_SIZE - position % BLOCK_SIZE;
                    let n = room.min(span.rows.end - row);
                    let at = slot(span, position) as usize;
                    stored.slice_set(&new.narrow(0, row, n)?, 0, at)?;
                    row += n;
                }
            }
            Ok(())
        };
        let (keys, values) = self.stored(layer.kv_layer)?;
        append(keys, &key).map_err(failed)?;
        append(values, value).map_err(failed)
    }

    fn attend(
        &mut self,
        layer: usize,
        query: &Tensor,
        sinks: Option<&Tensor>,
        plan: &StepPlan,
        attention: &Attention,
    ) -> Result<Tensor> {
        let stored = self.stored(layer)?;
        let spans = plan.spans.iter();
        let parts = spans.map(|span| {
            let ends = plan.ends.get(span.rows.clone()).unwrap_or_default();
            let ends = (span.start..).zip(ends);
            let ends: Vec<u32> = ends.map(|(at, end)| attention.end(at, *end)).collect();
            CandleOps::attend_span(stored, (query, sinks), span, &ends, attention)
        });
        let parts = parts.collect::<candle_core::Result<Vec<_>>>();
        parts
            .and_then(|parts| Tensor::cat(&parts, 0))
            .map_err(failed)
    }

    fn short_conv(
        &mut self,
        layer: usize,
        x: &Tensor,
        (kernel, bias): (&Tensor, Option<&Tensor>),
        silu: bool,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        let width = x.dim(1).map_err(failed)?;
        let taps = kernel.elem_count() / width.max(1);
        let mut parts = Vec::with_capacity(plan.spans.len());
        for (span, state) in plan
            .spans
            .iter()
            .filter_map(|span| Some((span, span.state.as_ref()?)))
        {
            let before = self.state(state.slot, layer)?[0].clone();
            let convolved = || {
                let before = match before {
                    Some(before) => before,
                    None => Tensor::zeros((taps - 1, width), DType::F32, &Device::Cpu)?,
                };
                let n = span.rows.len();
                let all = Tensor::cat(&[before, x.narrow(0, span.rows.start, n)?], 0)?;
                let kernel = kernel.reshape((taps, width))?;
                let mut sum = Tensor::zeros((n, width), DType::F32, &Device::Cpu)?;
                for tap in 0..taps {
                    let part = all.narrow(0, tap, n)?;
                    sum = (sum + part.broadcast_mul(&kernel.narrow(0, tap, 1)?)?)?;
                }
                if let Some(bias) = bias {
                    sum = sum.broadcast_add(bias)?;
                }
                Ok((if silu { sum.silu()? } else { sum }, all))
            };
            let (sum, all) = convolved().map_err(failed)?;
            let ends = state.saves.iter().copied();
            for (n_rows, id) in ends.chain([(span.rows.len(), state.slot)]) {
                // A copy of its own, so that the others go.
                let last = all.narrow(0, n_rows, taps - 1).and_then(|rows| rows.copy());
                self.state(id, layer)?[0] = Some(last.map_err(failed)?);
            }
            parts.push(sum);
        }
        Tensor::cat(&parts, 0).map_err(failed)
    }

    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Tensor,
        (alpha, beta): (&Tensor, &Tensor),
        rule: &DeltaRule<'_, CandleOps>,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        let rows = delta_inputs(x, alpha, beta, rule).map_err(failed)?;
        let (n_heads, dim) = (rule.net.n_value_heads, rule.net.head_dim);
        let shape = (n_heads, dim, dim);
        self.recur(layer, shape, plan, |row, state| {
            delta_step(&rows, row, state)
        })
    }

    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Tensor,
        steps: &Tensor,
        scan: &SelectiveScan<'_, CandleOps>,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        let rows = scan_inputs(x, steps, scan).map_err(failed)?;
        let config = scan.config;
        let shape = (config.n_heads, config.state_dim, config.head_dim);
        self.recur(layer, shape, plan, |row, state| {
            scan_step(&rows, row, state)
        })
    }

    fn attend_bidirectional(
        &mut self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Tensor> {
        let (n_heads, n_kv_heads, dim) =
            (attention.n_heads, attention.n_kv_heads, attention.head_dim);
        let group = n_heads / n_kv_heads;
        // [heads, rows, elements]
        let heads = |x: &Tensor, rows: &Range<usize>, n_heads: usize| {
            x.narrow(0, rows.start, rows.len())?
                .reshape((rows.len(), n_heads, dim))?
                .transpose(0, 1)?
                .contiguous()
        };
        let of_keys = |x: &Tensor, rows: &Range<usize>| {
            heads(x, rows, n_kv_heads)?
                .unsqueeze(1)?
                .broadcast_as((n_kv_heads, group, rows.len(), dim))?
                .contiguous()?
                .reshape((n_heads, rows.len(), dim))
        };
        let mut parts = Vec::new();
        for (queries, keys) in spans {
            let attended = || {
                let key = of_keys(key, keys)?.t()?;
                let value = of_keys(value, keys)?;
                let mut parts = Vec::new();
                // Some at a time, which bounds memory.
                for first in queries.clone().step_by(ROWS_AT_ONCE) {
                    let rows = first..queries.end.min(first + ROWS_AT_ONCE);
                    let scores = heads(query, &rows, n_heads)?.matmul(&key)?;
                    let mut scores = (scores * f64::from(attention.scale))?;
                    let shape = (rows.len(), keys.len());
                    let distances = || {
                        let all = rows
                            .clone()
                            .flat_map(|row| keys.clone().map(move |key| row.abs_diff(key)));
                        all.collect::<Vec<usize>>()
                    };
                    if let Some(reach) = attention.reach {
                        let mask = distances().into_iter().map(|distance| match distance {
                            far if far > reach => f32::NEG_INFINITY,
                            _ => 0.0,
                        });
                        let mask = Tensor::from_vec(mask.collect(), shape, &Device::Cpu)?;
                        scores = scores.broadcast_add(&mask.unsqueeze(0)?)?;
                    }
                    if let Some(slopes) = attention.slopes {
                        let all = distances();
                        let bias = slopes.iter().flat_map(|slope| {
                            all.iter().map(move |distance| -slope * *distance as f32)
                        });
                        let shape = (n_heads, shape.0, shape.1);
                        scores = (scores + Tensor::from_vec(bias.collect(), shape, &Device::Cpu)?)?;
                    }
                    let exp = scores
                        .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
                        .exp()?;
                    let attended = exp
                        .broadcast_div(&exp.sum_keepdim(D::Minus1)?)?
                        .matmul(&value)?
                        .transpose(0, 1)?
                        .contiguous()?
                        .reshape((rows.len(), n_heads * dim))?;
                    parts.push(attended);
                }
                Tensor::cat(&parts, 0)
            };
            parts.push(attended().map_err(failed)?);
        }
        Tensor::cat(&parts, 0).map_err(failed)
    }

    fn activate(&mut self, x: Tensor, activation: Activation) -> Result<Tensor> {
        match activation {
            Activation::Gelu => x.gelu(),
            Activation::ExactGelu => x.gelu_erf(),
            Activation::QuickGelu => quick_gelu(&x),
            Activation::Silu => x.silu(),
            Activation::ReluSquared => x.relu().and_then(|x| x.sqr()),
            Activation::ClampedSwiglu
            | Activation::Relu
            | Activation::Sigmoid
            | Activation::Identity => return Err(no_gate()),
        }
        .map_err(failed)
    }

    fn clamp(&mut self, x: Tensor, [least, most]: [f32; 2]) -> Result<Tensor> {
        x.clamp(least, most).map_err(failed)
    }

    fn tanh(&mut self, x: Tensor) -> Result<Tensor> {
        x.tanh().map_err(failed)
    }

    fn gated(&mut self, gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        computed(|| match activation {
            Activation::Silu => gate.silu()? * up,
            Activation::Gelu => gate.gelu()? * up,
            Activation::ExactGelu => gate.gelu_erf()? * up,
            Activation::QuickGelu => quick_gelu(&gate)? * up,
            Activation::ClampedSwiglu => clamped_swiglu(&gate, up),
            Activation::Relu => gate.relu()? * up,
            Activation::ReluSquared => gate.relu()?.sqr()? * up,
            Activation::Sigmoid => sigmoid(&gate)? * up,
            Activation::Identity => gate * up,
        })
    }

    fn add(&mut self, x: Tensor, y: &Tensor, scale: f32) -> Result<Tensor> {
        computed(|| x + (y * f64::from(scale))?)
    }

    fn scale_rows(&mut self, x: Tensor, factors: &[f32]) -> Result<Tensor> {
        computed(|| x.broadcast_mul(&Tensor::new(factors, &Device::Cpu)?.unsqueeze(1)?))
    }

    fn sigmoid_gate(&mut self, x: Tensor, gate: &Tensor) -> Result<Tensor> {
        computed(|| x.broadcast_mul(&sigmoid(gate)?))
    }

    fn scale_columns(&mut self, x: &Tensor, factors: &Tensor) -> Result<Tensor> {
        x.broadcast_mul(factors).map_err(failed)
    }

    fn weighted_sum(
        &mut self,
        parts: &[&Tensor],
        factors: &Tensor,
        first: usize,
    ) -> Result<Tensor> {
        computed(|| {
            let factors = factors.narrow(1, first, parts.len())?;
            let factors = factors.contiguous()?.unsqueeze(1)?;
            // [n, 1, parts] with [n, parts, w]
            let parts = Tensor::stack(parts, 1)?;
            factors.matmul(&parts)?.squeeze(1)
        })
    }

    fn stream_factors(&mut self, scores: &Tensor, weights: &Tensor) -> Result<Tensor> {
        computed(|| {
            let n_scores = scores.dim(1)?;
            let weights = weights.reshape(((), n_scores + 1))?;
            let coefficients = weights.narrow(1, 0, n_scores)?.t()?.contiguous()?;
            let added = weights.narrow(1, n_scores, 1)?.t()?;
            let products = scores.tanh()?.matmul(&coefficients)?;
            products.broadcast_add(&added)
        })
    }

    fn length_ratios(&mut self, x: &Tensor, like: &Tensor) -> Result<Tensor> {
        computed(|| {
            let length = |x: &Tensor| x.sqr()?.sum_keepdim(D::Minus1)?.sqrt();
            length(like)? / length(x)?.maximum(SHORTEST)?
        })
    }

    fn peaks(&mut self, x: Tensor, deviations: f32) -> Result<Tensor> {
        computed(|| {
            let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let n = (centred.dim(D::Minus1)? as f64 - 1.0).max(1.0);
            let variance = (centred.sqr()?.sum_keepdim(D::Minus1)? / n)?;
            let floor = (variance.sqrt()? * f64::from(deviations))?;
            centred.broadcast_sub(&floor)?.relu()
        })
    }

    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Tensor> {
        let shape = (values.len() / width.max(1), width);
        Tensor::from_slice(values, shape, &Device::Cpu).map_err(failed)
    }

    fn zeros(&mut self, like: &Tensor) -> Result<Tensor> {
        like.zeros_like().map_err(failed)
    }

    fn columns(&mut self, x: &Tensor, first: usize, n: usize) -> Result<Tensor> {
        computed(|| x.narrow(1, first, n)?.contiguous())
    }

    fn join(&mut self, parts: &[Tensor]) -> Result<Tensor> {
        Tensor::cat(parts, 1).map_err(failed)
    }

    fn gather_rows(&mut self, x: &Tensor, rows: &[u32]) -> Result<Tensor> {
        computed(|| x.index_select(&indices(rows)?, 0))
    }

    fn add_to_rows(&mut self, x: Tensor, rows: &[u32], y: &Tensor) -> Result<Tensor> {
        computed(|| x.index_add(&indices(rows)?, y, 0))
    }

    fn mixture(&mut self, _x: &Tensor, _scores: &Tensor, experts: &Infallible) -> Result<Tensor> {
        match *experts {}
    }

    fn n_rows(&self, x: &Tensor) -> usize {
        x.dims().first().copied().unwrap_or(0)
    }

    fn read(&mut self, x: &Tensor, out: &mut [f32]) -> Result<()> {
        let values = x.flatten_all().and_then(|x| x.to_vec1::<f32>());
        let values = values.map_err(failed)?;
        if values.len() != out.len() {
            return Err(ModelError::Compute("a result has the wrong size".into()));
        }
        out.copy_from_slice(&values);
        Ok(())
    }
}

fn quick_gelu(x: &Tensor) -> candle_core::Result<Tensor> {
    x / ((x * -1.702)?.exp()? + 1.0)?
}

fn sigmoid(x: &Tensor) -> candle_core::Result<Tensor> {
    (x.neg()?.exp()? + 1.0)?.recip()
}

/// `ln(1 + exp(x))`, which stays a number for a large `x`.
fn softplus(x: &Tensor) -> candle_core::Result<Tensor> {
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// What the rows of a step bring to a selective scan, `[rows, heads, …]`.
struct ScanInputs {
    /// Times the step, and times what is added of it.
    x: Tensor,
    skipped: Tensor,
    written: Tensor,
    read: Tensor,
    /// What is left of the state.
    kept: Tensor,
}

fn scan_inputs(
    x: &Tensor,
    steps: &Tensor,
    scan: &SelectiveScan<'_, CandleOps>,
) -> candle_core::Result<ScanInputs> {
    let config = scan.config;
    let (n, n_heads, groups) = (x.dim(0)?, config.n_heads, config.n_groups);
    let of_heads = |first: usize| {
        let part = x
            .narrow(1, first, groups * config.state_dim)?
            .contiguous()?;
        part.reshape((n, groups, 1, config.state_dim))?
            .broadcast_as((n, groups, n_heads / groups, config.state_dim))?
            .contiguous()?
            .reshape((n, n_heads, config.state_dim))
    };
    let width = config.width();
    let steps = softplus(&steps.broadcast_add(scan.step_bias)?)?;
    let x = x.narrow(1, 0, width)?.contiguous()?;
    let x = x.reshape((n, n_heads, config.head_dim))?;
    Ok(ScanInputs {
        skipped: x.broadcast_mul(&scan.skip.reshape((1, n_heads, 1))?)?,
        x: x.broadcast_mul(&steps.unsqueeze(2)?)?,
        written: of_heads(width)?,
        read: of_heads(width + groups * config.state_dim)?,
        kept: steps.broadcast_mul(scan.decay)?.exp()?,
    })
}

/// Sends one row through the states of all heads, `[heads, what is kept, elements]`; returns them, and
/// the result of the row.
fn scan_step(
    inputs: &ScanInputs,
    row: usize,
    state: &Tensor,
) -> candle_core::Result<(Tensor, Tensor)> {
    let of_row = |x: &Tensor| x.narrow(0, row, 1)?.squeeze(0);
    let kept = of_row(&inputs.kept)?.unsqueeze(1)?.unsqueeze(2)?;
    let written = of_row(&inputs.written)?.unsqueeze(2)?;
    let new = written.broadcast_mul(&of_row(&inputs.x)?.unsqueeze(1)?)?;
    let state = (state.broadcast_mul(&kept)? + new)?;
    let read = of_row(&inputs.read)?.unsqueeze(2)?;
    let result = (state.broadcast_mul(&read)?.sum(1)? + of_row(&inputs.skipped)?)?;
    Ok((state, result))
}

/// What the rows of a step bring to a delta rule, `[rows, value heads, …]`.
struct DeltaInputs {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    /// What is left of the state, and what is learned.
    kept: Tensor,
    learned: Tensor,
}

fn delta_inputs(
    x: &Tensor,
    alpha: &Tensor,
    beta: &Tensor,
    rule: &DeltaRule<'_, CandleOps>,
) -> candle_core::Result<DeltaInputs> {
    let net = rule.net;
    let (n, n_heads, n_keys, dim) = (x.dim(0)?, net.n_value_heads, net.n_key_heads, net.head_dim);
    let group = n_heads / n_keys;
    // Of each value head, made as long as 1.
    let of_key_heads = |first: usize| {
        let heads = x.narrow(1, first, n_keys * dim)?.contiguous()?;
        let heads = heads.reshape((n, n_keys, dim))?;
        let length = (heads.sqr()?.sum_keepdim(2)? + f64::from(rule.eps))?.sqrt()?;
        let heads = heads.broadcast_div(&length)?;
        let heads = if net.interleaved {
            heads.unsqueeze(1)?.broadcast_as((n, group, n_keys, dim))?
        } else {
            heads.unsqueeze(2)?.broadcast_as((n, n_keys, group, dim))?
        };
        heads.contiguous()?.reshape((n, n_heads, dim))
    };
    let value = x.narrow(1, 2 * n_keys * dim, n_heads * dim)?.contiguous()?;
    let forget = alpha.broadcast_add(rule.decay_bias)?;
    Ok(DeltaInputs {
        query: (of_key_heads(0)? * (1.0 / (dim as f64).sqrt()))?,
        key: of_key_heads(n_keys * dim)?,
        value: value.reshape((n, n_heads, dim))?,
        kept: softplus(&forget)?.broadcast_mul(rule.decay)?.exp()?,
        learned: sigmoid(beta)?,
    })
}

/// Sends one row through the states of all heads, `[value heads, keys, values]`; returns them, and the
/// result of the row.
fn delta_step(
    inputs: &DeltaInputs,
    row: usize,
    state: &Tensor,
) -> candle_core::Result<(Tensor, Tensor)> {
    let of_row = |x: &Tensor| x.narrow(0, row, 1)?.squeeze(0);
    let column = |x: &Tensor| of_row(x)?.unsqueeze(2);
    let kept = of_row(&inputs.kept)?.unsqueeze(1)?.unsqueeze(2)?;
    let state = state.broadcast_mul(&kept)?;
    let found = state.broadcast_mul(&column(&inputs.key)?)?.sum(1)?;
    let missing = (of_row(&inputs.value)? - found)?;
    let new = missing.broadcast_mul(&of_row(&inputs.learned)?.unsqueeze(1)?)?;
    let change = column(&inputs.key)?.broadcast_mul(&new.unsqueeze(1)?)?;
    let state = (state + change)?;
    let result = state.broadcast_mul(&column(&inputs.query)?)?.sum(1)?;
    Ok((state, result))
}

fn clamped_swiglu(gate: &Tensor, up: &Tensor) -> candle_core::Result<Tensor> {
    let gate = gate.minimum(7.0)?;
    let open = ((&gate * -1.702)?.exp()? + 1.0)?.recip()?;
    (gate * open)? * (up.clamp(-7.0, 7.0)? + 1.0)?
}

/// The types that candle unpacks.
fn block_type(dtype: TensorType) -> Option<GgmlDType> {
    Some(match dtype {
        TensorType::Q4_0 => GgmlDType::Q4_0,
        TensorType::Q4_1 => GgmlDType::Q4_1,
        TensorType::Q5_0 => GgmlDType::Q5_0,
        TensorType::Q5_1 => GgmlDType::Q5_1,
        TensorType::Q8_0 => GgmlDType::Q8_0,
        TensorType::Q2_K => GgmlDType::Q2K,
        TensorType::Q3_K => GgmlDType::Q3K,
        TensorType::Q4_K => GgmlDType::Q4K,
        TensorType::Q5_K => GgmlDType::Q5K,
        TensorType::Q6_K => GgmlDType::Q6K,
        _ => return None,
    })
}

/// Queries whose scores are there together.
const ROWS_AT_ONCE: usize = 256;

/// Does what may fail as candle says it.
fn computed<T>(work: impl FnOnce() -> candle_core::Result<T>) -> Result<T> {
    work().map_err(failed)
}

fn failed(error: candle_core::Error) -> ModelError {
    ModelError::Compute(error.to_string())
}
