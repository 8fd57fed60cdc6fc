//! The decoder's operations on a GPU, through Vulkan: every operation is recorded, and runs when a result is read or
//! the step ends. Rows of the embedding table are looked up on the host.

mod drivers;

use std::ops::Range;

use llmsrv_engine::{
    BlockId, GpuArithmetic, GpuOptions, LoadError, ModelError, StateId, StepPlan, UsableGpu,
};
use llmsrv_gguf::TensorType;
use llmsrv_gpu::{
    self as gpu, Angles, Arithmetic, Cache, Choice, DeviceName, Found, Function, Gpu, Matrix,
    Pairs, States, Step, StepRow, Stretch, Stretches, Tensor, Vector,
};

use super::{
    Attention, BidirectionalAttention, DeltaRule, ExpertNetworks, Holder, Ops, SelectiveScan,
    no_gate, states::rows_of,
};
use crate::{
    arch::{Activation, BLOCK_SIZE, Gating, LayerConfig},
    errors::lost,
    rope::{Places, Rope, RopeStyle},
    source::FileMatrix,
};

/// A GPU with the KV cache of one model.
pub(crate) struct GpuOps {
    gpu: Gpu,
    cache: Cache,
    states: States,
    /// Where the rows of the current step are.
    step: Option<Step>,
    /// What they do to states.
    stretches: Option<Stretches>,
    /// The rows of a table on their way to the device.
    rows: Vec<f32>,
    /// Types of weights whose products were compared with the host's.
    checked: Vec<TensorType>,
}

impl GpuOps {
    /// Prepares an opened GPU for some layers: `kv_shapes` are those of its KV cache, `kv_type` its type, `state_lens` the
    /// elements of a recurrent state in each layer, and `pieces` the sizes of the
    /// pieces of memory that its weights will need.
    ///
    /// # Errors
    /// [`LoadError::Gpu`]: it has no kernel for a shape.
    pub(crate) fn new(
        mut gpu: Gpu,
        (kv_shapes, kv_type): (&[(usize, usize)], TensorType),
        state_lens: &[usize],
        pieces: Vec<u64>,
    ) -> Result<GpuOps, LoadError> {
        let widths = kv_shapes.iter().map(|(n, dim)| n * dim);
        let widths: Vec<usize> = widths.collect();
        let cache = gpu.cache(BLOCK_SIZE, &widths, kv_type).map_err(no_gpu)?;
        gpu.expect(pieces);
        Ok(GpuOps {
            gpu,
            cache,
            states: States::new(state_lens),
            step: None,
            stretches: None,
            rows: Vec::new(),
            checked: Vec::new(),
        })
    }

    /// Returns the memory of the weights, in bytes.
    pub(crate) fn weight_bytes(&self) -> u64 {
        self.gpu.weight_bytes()
    }

    /// Brings rows onto the device.
    pub(crate) fn upload(&mut self, values: &[f32], width: usize) -> Result<Tensor, ModelError> {
        self.gpu.rows(values, width).map_err(failed)
    }

    /// Sets rows side by side.
    pub(crate) fn join_rows(&mut self, parts: &[&Tensor]) -> Result<Tensor, ModelError> {
        self.gpu.join(parts).map_err(failed)
    }

    fn store(
        &mut self,
        layer: &LayerConfig,
        kv: (&Tensor, &Tensor),
        query: Option<&mut Tensor>,
        angles: Option<&Angles>,
    ) -> Result<(), ModelError> {
        let shape = gpu::Attention {
            n_heads: layer.n_heads,
            n_kv_heads: layer.n_kv_heads,
            head_dim: layer.head_dim,
            scale: 1.0,
            softcap: None,
            window: None,
            chunk: None,
            causal: true,
        };
        let step = self.step.as_ref().ok_or_else(no_step)?;
        let to = (&self.cache, layer.kv_layer);
        let stored = self.gpu.store(to, kv, query, angles, step, &shape);
        stored.map_err(failed)
    }

    /// Compares some products of a matrix with the host's: drivers have been seen to compute wrongly, which would
    /// otherwise become senseless text.
    fn check(&mut self, source: &FileMatrix, matrix: &Matrix) -> Result<(), ModelError> {
        let (n_rows, n_cols) = (source.n_rows, source.n_cols);
        // Whole numbers, of each 32 one of 127: rounded to bytes they stay what they are.
        let x: Vec<f32> = (0..MOST_CHECKED * n_cols)
            .map(|i| {
                if i % n_cols % 32 == 0 {
                    127.0
                } else {
                    (i * 37 % 255) as f32 - 127.0
                }
            })
            .collect();
        let mut weights = vec![0.0; n_cols];
        // One row, several and, of integers, many: so many kernels.
        let n_kernels = match self.gpu.arithmetic() {
            Arithmetic::F32 => 2,
            Arithmetic::Int8 => 3,
        };
        for n in [1, 2, MOST_CHECKED].into_iter().take(n_kernels) {
            let rows = x.get(..n * n_cols).unwrap_or_default();
            let on_device = self.gpu.rows(rows, n_cols).map_err(failed)?;
            let product = self.gpu.linear(&on_device, matrix, None).map_err(failed)?;
            let mut found = vec![0.0; n * n_rows];
            self.gpu.read(&product, &mut found).map_err(failed)?;
            for output in (0..n_rows).step_by((n_rows / 8).max(1)) {
                source.read_row(output, &mut weights);
                for (x, found) in rows.chunks_exact(n_cols).zip(found.chunks_exact(n_rows)) {
                    let parts = x
                        .iter()
                        .zip(&weights)
                        .map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let (sum, size) = parts.fold((0.0, 0.0), |(sum, size), part| {
                        (sum + part, size + part.abs())
                    });
                    let found = found.get(output).copied().unwrap_or(f32::NAN);
                    if is_wrong(found, sum, size) {
                        let (device, driver) = (&self.gpu.device().name, &self.gpu.device().driver);
                        return Err(ModelError::Compute(format!(
                            "{device} with the driver {driver} multiplies {} weights wrongly: {found} instead of \
                             {sum}; update the driver, or {ON_THE_CPU}",
                            source.dtype()
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Opens the GPUs that models are loaded to, the best one first; without those that compute something wrongly.
///
/// # Errors
/// [`LoadError::Gpu`] or [`LoadError::GpuNotAllowed`], if there is none; the text says what to do.
pub(crate) fn open(options: &GpuOptions) -> Result<Vec<Gpu>, LoadError> {
    let choice = gpu_choice(options);
    let n = Gpu::count(&choice).map_err(no_gpu)?;
    let mut gpus = Vec::with_capacity(n);
    let mut refused = Vec::new();
    for number in 0..n {
        let mut gpu = Gpu::open(&choice, number).map_err(no_gpu)?;
        let file = options.checked.as_deref();
        match drivers::check(&choice, number, gpu.device(), file) {
            Ok(()) => {}
            Err(gpu::Error::Wrong {
                device,
                driver,
                kernel,
            }) => {
                let reason = gpu::Refusal::Wrong { driver, kernel };
                refused.push(gpu::Refused { device, reason });
                continue;
            }
            Err(error) => return Err(no_gpu(error)),
        }
        let is_auto = options.arithmetic == GpuArithmetic::Auto;
        tracing::info!(
            number,
            device = gpu.device().name,
            driver = gpu.device().driver,
            free_bytes = gpu.free_bytes(),
            arithmetic = match gpu.arithmetic() {
                Arithmetic::Int8 if is_auto => "auto",
                arithmetic => name_of(arithmetic),
            },
            "GPU"
        );
        let limits = if gpu.arithmetic() == Arithmetic::Int8 && gpu.device().has_matrices {
            // Matrix units are used once they were tried.
            drivers::limits(options, gpu.device())
                .inspect_err(|error| {
                    let device = &gpu.device().name;
                    tracing::warn!(device, %error, "the GPU's matrix units could not be tried");
                })
                .ok()
        } else {
            drivers::known_limits(choice.arithmetic, gpu.device(), file)
        };
        if let Some(limits) = limits {
            if let Some(n_rows) = limits.tiles_from {
                gpu.set_tiles_from(usize::try_from(n_rows).unwrap_or(usize::MAX));
            }
            gpu.set_matrices(limits.matrices);
        }
        if gpu.arithmetic() != choice.arithmetic && options.arithmetic == GpuArithmetic::Int8 {
            tracing::warn!(
                device = gpu.device().name,
                "LLMSRV_GPU_ARITHMETIC=int8: the device has no integer dot products \
                 (VK_KHR_shader_integer_dot_product); it multiplies in f32"
            );
        }
        gpus.push(gpu);
    }
    if gpus.is_empty() {
        return Err(no_gpu(gpu::Error::NoDevice(refused)));
    }
    for gpu::Refused { device, reason } in refused {
        tracing::warn!(device, "the GPU is not used: {reason}; {ANOTHER_DRIVER}");
    }
    Ok(gpus)
}

/// Returns options that name one GPU alone: the best of those that `options` allow.
///
/// # Errors
/// As [`usable_gpus`].
pub fn best_gpu(options: &GpuOptions) -> Result<GpuOptions, LoadError> {
    let gpus = open(options)?;
    Ok(GpuOptions {
        visible: gpus
            .first()
            .map(|gpu| vec![gpu.device().number.to_string()]),
        ..options.clone()
    })
}

/// Returns the GPUs that models would be loaded to, and what each can do at most, which is measured once for each driver.
///
/// # Errors
/// As [`crate::load`] with the device `vulkan`, if there is none.
pub fn usable_gpus(options: &GpuOptions) -> Result<Vec<UsableGpu>, LoadError> {
    let gpus = open(options)?;
    let known = gpus
        .iter()
        .map(|gpu| (gpu.device().clone(), gpu.free_bytes()));
    let known: Vec<(Found, u64)> = known.collect();
    // Their memory is read.
    drop(gpus);
    let usable = known.into_iter().map(|(device, free_bytes)| UsableGpu {
        limits: drivers::limits(options, &device)
            .inspect_err(|error| {
                tracing::warn!(device = device.name, %error, "the GPU could not be measured");
            })
            .ok(),
        name: device.name,
        free_bytes,
    });
    Ok(usable.collect())
}

impl Holder for GpuOps {
    type Matrix = Matrix;
    type Vector = Vector;
    type Experts = gpu::Experts;

    fn matrix(&mut self, source: FileMatrix) -> Result<Matrix, ModelError> {
        let codebook = llmsrv_kernels::codebook(source.dtype());
        let made = self.gpu.matrix(
            source.dtype(),
            source.n_rows,
            source.n_cols,
            source.bytes(),
            &codebook,
        );
        let made = made.map_err(failed)?.scaled(source.scale);
        if !self.checked.contains(&source.dtype()) {
            self.checked.push(source.dtype());
            self.check(&source, &made)?;
        }
        // The device has them: their pages need not stay.
        source.expect(false);
        Ok(made)
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Vector, ModelError> {
        self.gpu.vector(&values).map_err(failed)
    }

    fn experts(
        &mut self,
        experts: &ExpertNetworks<'_, Self>,
    ) -> Result<Option<gpu::Experts>, ModelError> {
        let config = experts.config;
        let function = if experts
            .networks
            .iter()
            .any(|network| network.gate.is_some())
        {
            gate_of(experts.activation)
        } else {
            function_of(experts.activation)
        };
        // Others are refused when they are computed.
        let Ok(function) = function else {
            return Ok(None);
        };
        let routing = gpu::Routing {
            n_used: config.n_used,
            gating: match config.gating {
                Gating::Softmax => gpu::Gating::Softmax,
                Gating::Sigmoid => gpu::Gating::Sigmoid,
                Gating::SparseMixer => gpu::Gating::SparseMixer,
            },
            groups: config.groups.map(|groups| (groups.n, groups.n_used)),
            normalize: config.normalize,
            scale: config.weight_scale,
            weigh_input: config.weigh_input,
        };
        let networks = experts.networks.iter().map(|network| gpu::Expert {
            gate: network.gate,
            up: network.up,
            down: network.down,
        });
        let networks: Vec<gpu::Expert<'_>> = networks.collect();
        let (bias, scales) = (experts.selection_bias, experts.scales);
        self.gpu
            .experts(&networks, routing, function, bias, scales)
            .map_err(failed)
    }
}

impl Ops for GpuOps {
    type Tensor = Tensor;
    type Angles = Angles;

    fn extra_weight_bytes(&self) -> u64 {
        0
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        let reserved = self.gpu.reserve_states(&mut self.states, n_states);
        reserved.map_err(|error| match error {
            gpu::Error::OutOfMemory { .. } => ModelError::OutOfStates(n_states),
            error => failed(error),
        })
    }

    fn clear_state(&mut self, id: StateId) -> Result<(), ModelError> {
        self.gpu.clear_state(&self.states, id.0).map_err(failed)
    }

    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<(), ModelError> {
        let copied = self.gpu.copy_state(&self.states, from.0, to.0);
        copied.map_err(failed)
    }

    fn state_bytes(&self) -> usize {
        self.states.bytes()
    }

    fn short_conv(
        &mut self,
        layer: usize,
        x: &Tensor,
        (taps, bias): (&Vector, Option<&Vector>),
        silu: bool,
        _plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let conv = gpu::ShortConv { taps, bias, silu };
        let stretches = self.stretches.as_ref().ok_or_else(no_step)?;
        self.gpu
            .short_conv((&self.states, layer), x, &conv, stretches)
            .map_err(failed)
    }

    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Tensor,
        gates: (&Tensor, &Tensor),
        rule: &DeltaRule<'_, Self>,
        _plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let net = rule.net;
        let rule = gpu::DeltaRule {
            n_key_heads: net.n_key_heads,
            n_value_heads: net.n_value_heads,
            head_dim: net.head_dim,
            interleaved: net.interleaved,
            decay: rule.decay,
            decay_bias: rule.decay_bias,
            eps: rule.eps,
        };
        let stretches = self.stretches.as_ref().ok_or_else(no_step)?;
        let state = (&self.states, layer, net.conv_len());
        self.gpu
            .delta_rule(state, x, gates, &rule, stretches)
            .map_err(failed)
    }

    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Tensor,
        steps: &Tensor,
        scan: &SelectiveScan<'_, Self>,
        _plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let config = scan.config;
        let scan = gpu::SelectiveScan {
            n_heads: config.n_heads,
            head_dim: config.head_dim,
            state_dim: config.state_dim,
            n_groups: config.n_groups,
            decay: scan.decay,
            step_bias: scan.step_bias,
            skip: scan.skip,
        };
        let stretches = self.stretches.as_ref().ok_or_else(no_step)?;
        let state = (&self.states, layer, config.conv_len());
        self.gpu
            .selective_scan(state, x, steps, &scan, stretches)
            .map_err(failed)
    }

    fn begin_step(&mut self, plan: &StepPlan) -> Result<(), ModelError> {
        if self.states.bytes() > 0 {
            let rounds = rounds(plan);
            let made = self.gpu.stretches(&self.states, rounds);
            self.stretches = Some(made.map_err(failed)?);
        }
        // Nothing is stored of inputs that are computed whole.
        if plan.spans.iter().all(|span| span.blocks.is_empty()) {
            let lengths: Vec<usize> = plan.spans.iter().map(|span| span.rows.len()).collect();
            self.step = Some(self.gpu.whole_step(&lengths).map_err(failed)?);
            return Ok(());
        }
        let tables = plan
            .spans
            .iter()
            .map(|span| span.blocks.iter().map(|block| block.0).collect());
        let tables: Vec<Vec<u32>> = tables.collect();
        let mut rows = Vec::with_capacity(plan.tokens.len());
        for (sequence, span) in plan.spans.iter().enumerate() {
            let ends = plan.ends.get(span.rows.clone()).unwrap_or_default();
            rows.extend((span.start..).zip(ends).map(|(position, end)| StepRow {
                position,
                end: *end,
                sequence,
            }));
        }
        self.step = Some(self.gpu.step(&self.cache, &rows, &tables).map_err(failed)?);
        Ok(())
    }

    fn end_step(&mut self) -> Result<(), ModelError> {
        (self.step, self.stretches) = (None, None);
        self.gpu.finish().map_err(failed)
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        let reserved = self.gpu.reserve(&mut self.cache, n_blocks);
        reserved.map_err(|error| match error {
            gpu::Error::OutOfMemory { .. } => ModelError::OutOfMemory(n_blocks),
            error => failed(error),
        })
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), ModelError> {
        self.gpu
            .copy_block(&self.cache, from.0, to.0)
            .map_err(failed)
    }

    fn kv_block_bytes(&self) -> usize {
        self.cache.block_bytes()
    }

    fn embed(
        &mut self,
        table: &FileMatrix,
        tokens: &[u32],
        scale: f32,
    ) -> Result<Tensor, ModelError> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.resize(tokens.len() * table.n_cols, 0.0);
        for (row, token) in rows.chunks_exact_mut(table.n_cols).zip(tokens) {
            table.read_row(*token as usize, row);
            if scale != 1.0 {
                for value in row.iter_mut() {
                    *value *= scale;
                }
            }
        }
        let x = self.gpu.rows(&rows, table.n_cols);
        self.rows = rows;
        x.map_err(failed)
    }

    fn scatter_rows(
        &mut self,
        mut x: Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<Tensor, ModelError> {
        self.gpu.put_rows(&mut x, first, values).map_err(failed)?;
        Ok(x)
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles, ModelError> {
        let turns = places.iter().flat_map(|place| rope.angles(place));
        let turns = turns.map(f64::sin_cos);
        let turns = turns.map(|(s, c)| (c as f32 * rope.magnitude, s as f32 * rope.magnitude));
        let (cos, sin): (Vec<f32>, Vec<f32>) = turns.unzip();
        let pairs = match rope.style {
            RopeStyle::Interleaved => Pairs::Interleaved,
            RopeStyle::HalfSplit => Pairs::Halves,
        };
        self.gpu
            .angles(&cos, &sin, rope.frequencies.len(), pairs)
            .map_err(failed)
    }

    fn rms_norm(&mut self, x: &Tensor, weight: &Vector, eps: f32) -> Result<Tensor, ModelError> {
        self.gpu.rms_norm(x, weight, eps).map_err(failed)
    }

    fn rms_norms<const N: usize>(
        &mut self,
        mut parts: [(Tensor, Option<&Vector>); N],
        eps: f32,
    ) -> Result<[Tensor; N], ModelError> {
        let with_weights = parts
            .iter_mut()
            .filter_map(|(x, weight)| Some((x, (*weight)?)));
        self.gpu
            .rms_norms(with_weights.collect(), eps)
            .map_err(failed)?;
        Ok(parts.map(|(x, _)| x))
    }

    fn add_normed(
        &mut self,
        mut x: Tensor,
        y: (&Tensor, &Vector),
        eps: f32,
        scale: f32,
        next: Option<&Vector>,
    ) -> Result<(Tensor, Option<Tensor>), ModelError> {
        let normed = self.gpu.add_normed(&mut x, y, eps, scale, next);
        Ok((x, normed.map_err(failed)?))
    }

    fn grouped_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        n_groups: usize,
        eps: f32,
    ) -> Result<Tensor, ModelError> {
        self.gpu
            .grouped_norm(x, weight, n_groups, eps)
            .map_err(failed)
    }

    fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, ModelError> {
        self.gpu.layer_norm(x, weight, bias, eps).map_err(failed)
    }

    fn linear(
        &mut self,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
    ) -> Result<Tensor, ModelError> {
        self.gpu.linear(x, matrix, bias).map_err(failed)
    }

    fn linears<const N: usize>(
        &mut self,
        input: super::Input<'_, Self>,
        matrices: [super::LinearRef<'_, Self>; N],
    ) -> Result<[Tensor; N], ModelError> {
        let normed = self.normed(input)?;
        let x = normed.as_ref().unwrap_or(input.rows());
        let products = self.gpu.linears(x, &matrices).map_err(failed)?;
        let products = products.try_into();
        products.map_err(|_| ModelError::Compute("a product is missing".into()))
    }

    fn gated_linear(
        &mut self,
        input: super::Input<'_, Self>,
        gate: super::LinearRef<'_, Self>,
        up: super::LinearRef<'_, Self>,
        activation: Activation,
    ) -> Result<Tensor, ModelError> {
        let function = gate_of(activation)?;
        let normed = self.normed(input)?;
        let x = normed.as_ref().unwrap_or(input.rows());
        self.gpu.gated_linear(x, gate, up, function).map_err(failed)
    }

    fn add_linear(
        &mut self,
        mut x: Tensor,
        input: super::Input<'_, Self>,
        (matrix, bias): super::LinearRef<'_, Self>,
        scale: f32,
    ) -> Result<Tensor, ModelError> {
        let normed = self.normed(input)?;
        let input = normed.as_ref().unwrap_or(input.rows());
        self.gpu
            .add_linear(&mut x, input, matrix, bias, scale)
            .map_err(failed)?;
        Ok(x)
    }

    fn rotate(
        &mut self,
        mut x: Tensor,
        angles: &Angles,
        head_dim: usize,
    ) -> Result<Tensor, ModelError> {
        self.gpu.rotate(&mut x, angles, head_dim).map_err(failed)?;
        Ok(x)
    }

    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Tensor,
        angles: Option<&Angles>,
        value: &Tensor,
        _plan: &StepPlan,
    ) -> Result<(), ModelError> {
        self.store(layer, (&key, value), None, angles)
    }

    fn rotate_and_append(
        &mut self,
        layer: &LayerConfig,
        mut query: Tensor,
        (key, value): (Tensor, &Tensor),
        angles: Option<&Angles>,
        _plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        self.store(layer, (&key, value), Some(&mut query), angles)?;
        Ok(query)
    }

    fn attend(
        &mut self,
        layer: usize,
        query: &Tensor,
        sinks: Option<&Vector>,
        _plan: &StepPlan,
        attention: &Attention,
    ) -> Result<Tensor, ModelError> {
        let shape = gpu::Attention {
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            softcap: attention.softcap,
            window: attention.window,
            chunk: attention.chunk,
            causal: attention.causal,
        };
        let step = self.step.as_ref().ok_or_else(no_step)?;
        self.gpu
            .attend(&self.cache, layer, query, sinks, step, &shape)
            .map_err(failed)
    }

    fn attend_bidirectional(
        &mut self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        _spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Tensor, ModelError> {
        let shape = gpu::Attention {
            n_heads: attention.n_heads,
            n_kv_heads: attention.n_kv_heads,
            head_dim: attention.head_dim,
            scale: attention.scale,
            softcap: None,
            window: attention.reach.map(|reach| reach.min(FARTHEST) + 1),
            chunk: None,
            causal: false,
        };
        // The spans of texts are those of the step.
        let step = self.step.as_ref().ok_or_else(no_step)?;
        self.gpu
            .attend_whole(query, (key, value), attention.slopes, step, &shape)
            .map_err(failed)
    }

    fn activate(&mut self, mut x: Tensor, activation: Activation) -> Result<Tensor, ModelError> {
        let function = function_of(activation)?;
        self.gpu.activate(&mut x, function).map_err(failed)?;
        Ok(x)
    }

    fn clamp(&mut self, mut x: Tensor, bounds: [f32; 2]) -> Result<Tensor, ModelError> {
        self.gpu.clamp(&mut x, bounds).map_err(failed)?;
        Ok(x)
    }

    fn tanh(&mut self, mut x: Tensor) -> Result<Tensor, ModelError> {
        self.gpu.activate(&mut x, Function::Tanh).map_err(failed)?;
        Ok(x)
    }

    fn gated(
        &mut self,
        mut gate: Tensor,
        up: &Tensor,
        activation: Activation,
    ) -> Result<Tensor, ModelError> {
        let function = gate_of(activation)?;
        self.gpu.gated(&mut gate, up, function).map_err(failed)?;
        Ok(gate)
    }

    fn add(&mut self, mut x: Tensor, y: &Tensor, scale: f32) -> Result<Tensor, ModelError> {
        self.gpu.add(&mut x, y, scale).map_err(failed)?;
        Ok(x)
    }

    fn scale_rows(&mut self, mut x: Tensor, factors: &[f32]) -> Result<Tensor, ModelError> {
        self.gpu.scale_rows(&mut x, factors).map_err(failed)?;
        Ok(x)
    }

    fn sigmoid_gate(&mut self, mut x: Tensor, gate: &Tensor) -> Result<Tensor, ModelError> {
        self.gpu.sigmoid_gate(&mut x, gate).map_err(failed)?;
        Ok(x)
    }

    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Tensor, ModelError> {
        self.upload(values, width)
    }

    fn zeros(&mut self, like: &Tensor) -> Result<Tensor, ModelError> {
        self.gpu.zeros(like.n_rows(), like.width()).map_err(failed)
    }

    fn columns(&mut self, x: &Tensor, first: usize, n: usize) -> Result<Tensor, ModelError> {
        self.gpu.columns(x, first, n).map_err(failed)
    }

    fn scale_columns(&mut self, x: &Tensor, factors: &Vector) -> Result<Tensor, ModelError> {
        self.gpu.scale_columns(x, factors).map_err(failed)
    }

    fn weighted_sum(
        &mut self,
        parts: &[&Tensor],
        factors: &Tensor,
        first: usize,
    ) -> Result<Tensor, ModelError> {
        self.gpu.weighted_sum(parts, factors, first).map_err(failed)
    }

    fn stream_factors(&mut self, scores: &Tensor, weights: &Vector) -> Result<Tensor, ModelError> {
        self.gpu.stream_factors(scores, weights).map_err(failed)
    }

    fn length_ratios(&mut self, x: &Tensor, like: &Tensor) -> Result<Tensor, ModelError> {
        self.gpu.length_ratios(x, like).map_err(failed)
    }

    fn peaks(&mut self, mut x: Tensor, deviations: f32) -> Result<Tensor, ModelError> {
        self.gpu.peaks(&mut x, deviations).map_err(failed)?;
        Ok(x)
    }

    fn join(&mut self, parts: &[Tensor]) -> Result<Tensor, ModelError> {
        let parts: Vec<&Tensor> = parts.iter().collect();
        self.join_rows(&parts)
    }

    fn gather_rows(&mut self, x: &Tensor, rows: &[u32]) -> Result<Tensor, ModelError> {
        self.gpu.gather_rows(x, rows).map_err(failed)
    }

    fn add_to_rows(
        &mut self,
        mut x: Tensor,
        rows: &[u32],
        y: &Tensor,
    ) -> Result<Tensor, ModelError> {
        self.gpu.add_to_rows(&mut x, rows, y).map_err(failed)?;
        Ok(x)
    }

    fn mixture(
        &mut self,
        x: &Tensor,
        scores: &Tensor,
        experts: &gpu::Experts,
    ) -> Result<Tensor, ModelError> {
        self.gpu.mixture(x, scores, experts).map_err(failed)
    }

    fn n_rows(&self, x: &Tensor) -> usize {
        x.n_rows()
    }

    fn read(&mut self, x: &Tensor, out: &mut [f32]) -> Result<(), ModelError> {
        self.gpu.read(x, out).map_err(failed)
    }
}

/// Returns the name of an arithmetic in the setting.
pub(crate) fn name_of(arithmetic: Arithmetic) -> &'static str {
    match arithmetic {
        Arithmetic::F32 => "exact",
        Arithmetic::Int8 => "int8",
    }
}

/// Returns a function of single elements that needs no second factor.
fn function_of(activation: Activation) -> Result<Function, ModelError> {
    match activation {
        Activation::Gelu => Ok(Function::Gelu),
        Activation::ReluSquared => Ok(Function::ReluSquared),
        Activation::ExactGelu
        | Activation::QuickGelu
        | Activation::Silu
        | Activation::ClampedSwiglu
        | Activation::Relu
        | Activation::Sigmoid
        | Activation::Identity => Err(no_gate()),
    }
}

/// Returns the function of a gate.
fn gate_of(activation: Activation) -> Result<Function, ModelError> {
    Ok(match activation {
        Activation::Silu => Function::Silu,
        Activation::Gelu => Function::Gelu,
        Activation::ClampedSwiglu => Function::ClampedSwiglu,
        Activation::ReluSquared => Function::ReluSquared,
        Activation::Sigmoid => Function::Sigmoid,
        Activation::Identity => Function::Identity,
        Activation::Relu => Function::Relu,
        Activation::ExactGelu | Activation::QuickGelu => {
            let message = "gates of this kind are not computed on a GPU";
            return Err(ModelError::Compute(message.into()));
        }
    })
}

/// Returns whether a sum of products is off by more than roundings: `size` is the sum of their magnitudes.
fn is_wrong(found: f32, sum: f64, size: f64) -> bool {
    let off = (f64::from(found) - sum).abs();
    // What the file itself has of numbers beyond all bounds is not the driver's fault.
    size.is_finite() && (off.is_nan() || off > 1e-4 * size)
}

/// Returns which devices may be used, as the GPU crate says it.
pub fn gpu_choice(options: &GpuOptions) -> Choice {
    let list = |names: &Vec<String>| DeviceName::list(names.iter().map(String::as_str));
    Choice {
        arithmetic: match options.arithmetic {
            GpuArithmetic::Exact => Arithmetic::F32,
            // Models for which it means something else say so when they are loaded.
            GpuArithmetic::Auto | GpuArithmetic::Int8 => Arithmetic::Int8,
        },
        visible: options.visible.as_ref().map(list),
        nvidia: options.nvidia.as_ref().map(list),
        vendor: options.vendor,
        software: options.software,
        leave_free_bytes: options.leave_free_bytes,
        limit_bytes: options.limit_bytes,
    }
}

/// Returns what the rows of a step do to states: the rows of all sequences up to where the state of each is kept for the
/// first time, with the copies that follow, then those up to the second time, and so on.
fn rounds(plan: &StepPlan) -> Vec<gpu::Round> {
    let states = || {
        let spans = plan.spans.iter();
        spans.filter_map(|span| Some((span, span.state.as_ref()?)))
    };
    let n_rounds = states().map(|(_, state)| state.saves.len() + 1).max();
    let rounds = (0..n_rounds.unwrap_or(0)).map(|round| {
        let stretches = states().filter_map(|(span, state)| {
            let rows = rows_of(state, span.rows.len(), round);
            (!rows.is_empty()).then(|| Stretch {
                slot: state.slot.0,
                first: (span.rows.start + rows.start) as u32,
                n_rows: rows.len() as u32,
            })
        });
        let saves = states().filter_map(|(_, state)| {
            let (_, to) = state.saves.get(round)?;
            Some((state.slot.0, to.0))
        });
        (stretches.collect(), saves.collect())
    });
    rounds.collect()
}

fn no_step() -> ModelError {
    ModelError::Compute("no step was begun".into())
}

fn failed(error: gpu::Error) -> ModelError {
    match error {
        gpu::Error::Lost { .. } => ModelError::DeviceLost(error.to_string()),
        error => ModelError::Compute(error.to_string()),
    }
}

/// Says why there is no GPU to compute on, and what helps.
fn no_gpu(error: gpu::Error) -> LoadError {
    let text = |cure: &str| format!("{error}; {cure}, or {ON_THE_CPU}");
    let cure = match &error {
        gpu::Error::NoLoader(_) => {
            "install the Vulkan loader (package libvulkan1 or vulkan-loader) and the driver of the GPU; in a container \
             of NVIDIA's, NVIDIA_DRIVER_CAPABILITIES must have `graphics`"
        }
        gpu::Error::NoDriver => {
            "install the Vulkan driver of the GPU (of AMD and Intel: mesa-vulkan-drivers)"
        }
        gpu::Error::NoDevice(refused)
            if refused
                .iter()
                .any(|one| matches!(one.reason, gpu::Refusal::Wrong { .. })) =>
        {
            ANOTHER_DRIVER
        }
        gpu::Error::NoDevice(refused)
            if refused.iter().any(|one| one.reason == gpu::Refusal::Vendor) =>
        {
            let cure = "LLMSRV_VENDOR_GPU=1 allows integrated GPUs and those of Intel";
            return LoadError::GpuNotAllowed(text(cure));
        }
        gpu::Error::NoDevice(refused)
            if refused
                .iter()
                .any(|one| matches!(one.reason, gpu::Refusal::Lacks(_))) =>
        {
            "the kernels need what it lacks: take another GPU"
        }
        gpu::Error::NoDevice(refused)
            if refused.iter().any(|one| one.reason == gpu::Refusal::Hidden) =>
        {
            let cure = "see LLMSRV_VISIBLE_GPUS and CUDA_VISIBLE_DEVICES";
            return LoadError::GpuNotAllowed(text(cure));
        }
        gpu::Error::NoDevice(_) => {
            "install the Vulkan driver of the GPU, and see that the user may open /dev/dri"
        }
        gpu::Error::OutOfMemory { .. } => "take a smaller model, or end what uses the GPU",
        gpu::Error::Lost { .. } => return lost(error.to_string()),
        _ => "llmsrv testgpu shows what works",
    };
    LoadError::Gpu(text(cure))
}

/// Rows that are compared with the host's products.
const MOST_CHECKED: usize = 17;

/// Positions to a side that a query sees at most, where it does not see all.
const FARTHEST: usize = 1 << 30;

/// What helps against wrong results.
const ANOTHER_DRIVER: &str = "install another version of the GPU's driver";

/// What always helps.
pub(crate) const ON_THE_CPU: &str = "set LLMSRV_GPU=0 to compute on the CPU";

#[cfg(test)]
mod tests {
    use llmsrv_engine::LoadError;

    use super::{failed, gpu, is_wrong, no_gpu};
    use crate::errors::device;

    #[test]
    fn a_device_lost_while_a_model_is_loaded_is_called_lost() {
        let lost = || gpu::Error::Lost {
            device: "card".into(),
            reason: "no answer".into(),
        };
        for error in [no_gpu(lost()), device(failed(lost()))] {
            let LoadError::DeviceLost { reason, .. } = &error else {
                panic!("{error}")
            };
            assert!(reason.contains("card failed: no answer"), "{reason}");
        }
    }

    #[test]
    fn a_device_without_enough_bindings_is_named_with_what_it_lacks() {
        let refused = |device: &str, reason| gpu::Refused {
            device: device.into(),
            reason,
        };
        let error = no_gpu(gpu::Error::NoDevice(vec![
            refused(
                "board",
                gpu::Refusal::Lacks("8 storage buffers in a kernel"),
            ),
            refused("card", gpu::Refusal::Hidden),
        ]));
        let text = error.to_string();
        let expected = "board (lacks 8 storage buffers in a kernel), card (not among the visible ones); the kernels need \
                        what it lacks: take another GPU, or set LLMSRV_GPU=0";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn roundings_are_right_and_everything_else_is_wrong() {
        assert!(!is_wrong(1.00001, 1.0, 3.0));
        assert!(!is_wrong(0.0, 0.0, 0.0));
        assert!(is_wrong(1.01, 1.0, 3.0));
        assert!(is_wrong(f32::NAN, 1.0, 3.0));
        assert!(is_wrong(f32::INFINITY, 1.0, 3.0));
        assert!(!is_wrong(f32::NAN, f64::NAN, f64::NAN), "the file's own");
    }
}
