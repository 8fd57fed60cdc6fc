//! The decoder's operations on the CPU and on GPUs, where a model lies on both: an operation runs where its weights (or
//! its keys and values) are, one without weights where its rows are. Rows that are elsewhere are brought there.

use std::ops::{Deref, Range};

use llmsrv_engine::{BlockId, GpuShare, ModelError, StateId, StepPlan};
use llmsrv_gpu as gpu;

use super::{
    Attention, BidirectionalAttention, DeltaRule, ExpertNetwork, ExpertNetworks, Holder, Input,
    LinearRef, Ops, Product, Result, SelectiveScan,
    buffers::Buffer,
    cpu::{self, CpuOps},
    gpu::GpuOps,
};
use crate::{
    arch::{Activation, LayerConfig},
    parts::{At, Part, Placement},
    rope::{Places, Rope},
    source::FileMatrix,
};

/// The CPU and GPUs, each with its part of one model.
pub(crate) struct SplitOps {
    cpu: CpuOps,
    /// `None` = it computes nothing.
    gpus: Vec<Option<GpuOps>>,
    placement: Placement,
    /// Where each layer of the KV cache is, and its number among those of its place.
    kv: Vec<(At, usize)>,
    /// The part that the next weights belong to.
    part: Part,
    /// Layers of the model that each GPU computes.
    n_layers: Vec<usize>,
    /// As [`Ops::moved_bytes`].
    moved_bytes: u64,
}

/// Something of the CPU or of a GPU.
pub(crate) enum Placed<C, G> {
    /// The CPU's.
    Host(C),
    /// Of the GPU with this number.
    Gpu(usize, G),
}

/// Rows, where they are.
pub(crate) type Tensor = Placed<Buffer, gpu::Tensor>;
/// A matrix, where it is.
pub(crate) type Matrix = Placed<cpu::Matrix, gpu::Matrix>;
/// A vector, where it is.
pub(crate) type Vector = Placed<Vec<f32>, gpu::Vector>;

/// Cosines and sines in every place that computes layers.
pub(crate) struct Angles {
    host: Option<cpu::Angles>,
    gpus: Vec<Option<gpu::Angles>>,
}

impl Angles {
    fn on(&self, gpu: usize) -> Result<&gpu::Angles> {
        let found = self.gpus.get(gpu).and_then(Option::as_ref);
        found.ok_or_else(elsewhere)
    }
}

/// Something that was there, or was brought.
enum Brought<'a, T> {
    Theirs(&'a T),
    Ours(T),
}

impl<T> Deref for Brought<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Brought::Theirs(x) => x,
            Brought::Ours(x) => x,
        }
    }
}

impl<C, G> Placed<C, G> {
    fn at(&self) -> At {
        match self {
            Placed::Host(_) => At::Host,
            Placed::Gpu(gpu, _) => At::Gpu(*gpu),
        }
    }

    fn host(&self) -> Result<&C> {
        match self {
            Placed::Host(here) => Ok(here),
            Placed::Gpu(..) => Err(elsewhere()),
        }
    }

    fn on(&self, gpu: usize) -> Result<&G> {
        match self {
            Placed::Gpu(found, here) if *found == gpu => Ok(here),
            _ => Err(elsewhere()),
        }
    }
}

impl SplitOps {
    /// Joins the CPU and the GPUs, which are ready for their layers of the KV cache: `kv` says where each layer of it
    /// is, `n_layers` how many layers of the model each GPU computes.
    pub(crate) fn new(
        cpu: CpuOps,
        gpus: Vec<Option<GpuOps>>,
        placement: Placement,
        kv: &[At],
        n_layers: &[usize],
    ) -> SplitOps {
        let place = |(layer, at): (usize, &At)| {
            let before = kv.iter().take(layer).filter(|other| *other == at);
            (*at, before.count())
        };
        SplitOps {
            kv: kv.iter().enumerate().map(place).collect(),
            n_layers: n_layers.to_vec(),
            cpu,
            gpus,
            placement,
            part: Part::Input,
            moved_bytes: 0,
        }
    }

    fn gpu(&mut self, gpu: usize) -> Result<&mut GpuOps> {
        let found = self.gpus.get_mut(gpu).and_then(Option::as_mut);
        found.ok_or_else(elsewhere)
    }

    fn kv_at(&self, layer: usize) -> Result<(At, usize)> {
        self.kv.get(layer).copied().ok_or_else(elsewhere)
    }

    fn download(&mut self, gpu: usize, x: &gpu::Tensor) -> Result<Buffer> {
        let mut rows = self.cpu.rows(x.n_rows(), x.width());
        self.gpu(gpu)?.read(x, rows.values_mut())?;
        Ok(rows)
    }
}

/// Where operations run.
trait Place: Copy {
    type Ops: Ops;

    fn ops(self, all: &mut SplitOps) -> Result<&mut Self::Ops>;

    /// Returns rows, copied here if they are elsewhere.
    fn rows<'a>(self, all: &mut SplitOps, x: &'a Tensor) -> Result<Brought<'a, RowsOf<Self>>>;

    /// As [`Place::rows`], where the operation reuses their memory.
    fn own_rows(self, all: &mut SplitOps, x: Tensor) -> Result<RowsOf<Self>>;

    fn matrix(self, matrix: &Matrix) -> Result<&<Self::Ops as Holder>::Matrix>;

    fn vector(self, vector: &Vector) -> Result<&<Self::Ops as Holder>::Vector>;

    fn angles(self, angles: &Angles) -> Result<&<Self::Ops as Ops>::Angles>;

    /// Says where a result is.
    fn made(self, x: RowsOf<Self>) -> Tensor;

    fn optional(self, vector: Option<&Vector>) -> Result<Option<&<Self::Ops as Holder>::Vector>> {
        vector.map(|vector| self.vector(vector)).transpose()
    }

    fn linear(self, (matrix, bias): LinearRef<'_, SplitOps>) -> Result<LinearRef<'_, Self::Ops>> {
        Ok((self.matrix(matrix)?, self.optional(bias)?))
    }

    /// Returns an input whose rows were brought here.
    fn input<'a>(
        self,
        input: Input<'a, SplitOps>,
        x: &'a RowsOf<Self>,
    ) -> Result<Input<'a, Self::Ops>> {
        Ok(match input {
            Input::Rows(_) => Input::Rows(x),
            Input::Normed { weight, eps, .. } => Input::Normed {
                x,
                weight: self.vector(weight)?,
                eps,
            },
        })
    }
}

type RowsOf<P> = <<P as Place>::Ops as Ops>::Tensor;

/// The CPU, as a place.
#[derive(Clone, Copy)]
struct Host;

impl Place for Host {
    type Ops = CpuOps;

    fn ops(self, all: &mut SplitOps) -> Result<&mut CpuOps> {
        Ok(&mut all.cpu)
    }

    fn rows<'a>(self, all: &mut SplitOps, x: &'a Tensor) -> Result<Brought<'a, Buffer>> {
        Ok(match x {
            Placed::Host(x) => Brought::Theirs(x),
            Placed::Gpu(from, x) => Brought::Ours(all.download(*from, x)?),
        })
    }

    fn own_rows(self, all: &mut SplitOps, x: Tensor) -> Result<Buffer> {
        match x {
            Placed::Host(x) => Ok(x),
            Placed::Gpu(from, x) => all.download(from, &x),
        }
    }

    fn matrix(self, matrix: &Matrix) -> Result<&cpu::Matrix> {
        matrix.host()
    }

    fn vector(self, vector: &Vector) -> Result<&Vec<f32>> {
        vector.host()
    }

    fn angles(self, angles: &Angles) -> Result<&cpu::Angles> {
        angles.host.as_ref().ok_or_else(elsewhere)
    }

    fn made(self, x: Buffer) -> Tensor {
        Placed::Host(x)
    }
}

/// The GPU of a number, as a place.
#[derive(Clone, Copy)]
struct OnGpu(usize);

impl Place for OnGpu {
    type Ops = GpuOps;

    fn ops(self, all: &mut SplitOps) -> Result<&mut GpuOps> {
        all.gpu(self.0)
    }

    fn rows<'a>(self, all: &mut SplitOps, x: &'a Tensor) -> Result<Brought<'a, gpu::Tensor>> {
        Ok(match x {
            Placed::Gpu(from, x) if *from == self.0 => Brought::Theirs(x),
            x => {
                let rows = Host.rows(all, x)?;
                Brought::Ours(all.gpu(self.0)?.upload(rows.values(), rows.width())?)
            }
        })
    }

    fn own_rows(self, all: &mut SplitOps, x: Tensor) -> Result<gpu::Tensor> {
        match x {
            Placed::Gpu(from, x) if from == self.0 => Ok(x),
            x => match self.rows(all, &x)? {
                Brought::Ours(x) => Ok(x),
                Brought::Theirs(_) => Err(elsewhere()),
            },
        }
    }

    fn matrix(self, matrix: &Matrix) -> Result<&gpu::Matrix> {
        matrix.on(self.0)
    }

    fn vector(self, vector: &Vector) -> Result<&gpu::Vector> {
        vector.on(self.0)
    }

    fn angles(self, angles: &Angles) -> Result<&gpu::Angles> {
        angles.on(self.0)
    }

    fn made(self, x: gpu::Tensor) -> Tensor {
        Placed::Gpu(self.0, x)
    }
}

/// Does the same in either place: `$place` is the [`Place`] that `$at` says.
macro_rules! at {
    ($at:expr, $place:ident => $work:expr) => {
        match $at {
            At::Host => {
                let $place = Host;
                $work
            }
            At::Gpu(gpu) => {
                let $place = OnGpu(gpu);
                $work
            }
        }
    };
}

/// Runs an operation that makes rows, in the place that `$at` says. Before `=>` stand its operands: `rows` and `own_rows` as
/// [`Place`] has them, and what must be there already (`vector`, `optional`, `angles`).
macro_rules! run {
    ($all:ident, $at:expr, $($kind:ident $x:ident),+ => $operation:ident($($argument:expr),*)) => {
        at!($at, place => {
            $(let $x = run!(@operand $all, place, $kind $x);)+
            Ok(place.made(place.ops($all)?.$operation($($argument),*)?))
        })
    };
    (@operand $all:ident, $place:ident, rows $x:ident) => { &$place.rows($all, $x)? };
    (@operand $all:ident, $place:ident, own_rows $x:ident) => { $place.own_rows($all, $x)? };
    (@operand $all:ident, $place:ident, $kind:ident $x:ident) => { $place.$kind($x)? };
}

/// Brings results of several references into an array.
fn all<T, const N: usize>(parts: impl Iterator<Item = Result<T>>) -> Result<[T; N]> {
    let parts: Vec<T> = parts.collect::<Result<_, _>>()?;
    parts.try_into().map_err(|_| elsewhere())
}

impl Holder for SplitOps {
    type Matrix = Matrix;
    type Vector = Vector;
    /// With the number of the GPU.
    type Experts = (usize, gpu::Experts);

    fn begin_part(&mut self, part: Part) {
        self.part = part;
    }

    fn matrix(&mut self, source: FileMatrix) -> Result<Matrix> {
        Ok(match self.placement.of(self.part) {
            At::Host => Placed::Host(self.cpu.matrix(source)?),
            At::Gpu(gpu) => {
                if !source.is_looked_up() {
                    self.moved_bytes += source.file_bytes() as u64;
                }
                Placed::Gpu(gpu, self.gpu(gpu)?.matrix(source)?)
            }
        })
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<Vector> {
        Ok(match self.placement.of(self.part) {
            At::Host => Placed::Host(self.cpu.vector(values)?),
            At::Gpu(gpu) => Placed::Gpu(gpu, self.gpu(gpu)?.vector(values)?),
        })
    }

    fn experts(
        &mut self,
        experts: &ExpertNetworks<'_, Self>,
    ) -> Result<Option<(usize, gpu::Experts)>> {
        let At::Gpu(gpu) = self.placement.of(self.part) else {
            return Ok(None);
        };
        let networks = experts.networks.iter().map(|network| {
            let gate = network.gate.map(|gate| OnGpu(gpu).linear(gate));
            Ok(ExpertNetwork {
                gate: gate.transpose()?,
                up: OnGpu(gpu).linear(network.up)?,
                down: OnGpu(gpu).linear(network.down)?,
            })
        });
        let experts = ExpertNetworks {
            config: experts.config,
            activation: experts.activation,
            selection_bias: experts.selection_bias,
            scales: experts.scales,
            networks: networks.collect::<Result<_>>()?,
        };
        let made = self.gpu(gpu)?.experts(&experts)?;
        Ok(made.map(|made| (gpu, made)))
    }
}

impl Ops for SplitOps {
    type Tensor = Tensor;
    type Angles = Angles;

    fn extra_weight_bytes(&self) -> u64 {
        self.cpu.extra_weight_bytes()
    }

    fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    fn gpus(&self) -> Vec<GpuShare> {
        let gpus = self.gpus.iter().zip(&self.n_layers);
        let share = |(gpu, n_layers): (&Option<GpuOps>, &usize)| {
            gpu.as_ref().map_or_else(GpuShare::default, |gpu| GpuShare {
                n_layers: *n_layers,
                weight_bytes: gpu.weight_bytes(),
                kv_block_bytes: gpu.kv_block_bytes(),
                state_bytes: gpu.state_bytes(),
            })
        };
        gpus.map(share).collect()
    }

    fn copy_to(&mut self, part: Part, x: &Tensor) -> Result<Option<Tensor>> {
        let at = self.placement.of(part);
        if at == x.at() {
            return Ok(None);
        }
        at!(at, place => Ok(match place.rows(self, x)? {
            Brought::Ours(x) => Some(place.made(x)),
            Brought::Theirs(_) => None,
        }))
    }

    fn begin_step(&mut self, plan: &StepPlan) -> Result<()> {
        self.cpu.begin_step(plan)?;
        self.gpus
            .iter_mut()
            .flatten()
            .try_for_each(|gpu| gpu.begin_step(plan))
    }

    fn end_step(&mut self) -> Result<()> {
        self.cpu.end_step()?;
        self.gpus
            .iter_mut()
            .flatten()
            .try_for_each(GpuOps::end_step)
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<()> {
        for gpu in self.gpus.iter_mut().flatten() {
            gpu.reserve_blocks(n_blocks)?;
        }
        self.cpu.reserve_blocks(n_blocks)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        self.cpu.copy_block(from, to)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.copy_block(from, to))
    }

    fn kv_block_bytes(&self) -> usize {
        let gpus = self.gpus.iter().flatten().map(GpuOps::kv_block_bytes);
        self.cpu.kv_block_bytes() + gpus.sum::<usize>()
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<()> {
        for gpu in self.gpus.iter_mut().flatten() {
            gpu.reserve_states(n_states)?;
        }
        self.cpu.reserve_states(n_states)
    }

    fn clear_state(&mut self, id: StateId) -> Result<()> {
        self.cpu.clear_state(id)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.clear_state(id))
    }

    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<()> {
        self.cpu.copy_state(from, to)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.copy_state(from, to))
    }

    fn state_bytes(&self) -> usize {
        let gpus = self.gpus.iter().flatten().map(GpuOps::state_bytes);
        self.cpu.state_bytes() + gpus.sum::<usize>()
    }

    fn embed(&mut self, table: &FileMatrix, tokens: &[u32], scale: f32) -> Result<Tensor> {
        self.cpu.embed(table, tokens, scale).map(Placed::Host)
    }

    fn scatter_rows(&mut self, x: Tensor, first: usize, values: &[f32]) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => scatter_rows(x, first, values))
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles> {
        let host = self.placement.uses_host();
        let host = host.then(|| self.cpu.angles(rope, places)).transpose()?;
        let gpus = self.gpus.iter_mut().map(|gpu| {
            let angles = gpu.as_mut().map(|gpu| gpu.angles(rope, places));
            angles.transpose()
        });
        Ok(Angles {
            host,
            gpus: gpus.collect::<Result<_, _>>()?,
        })
    }

    fn rms_norm(&mut self, x: &Tensor, weight: &Vector, eps: f32) -> Result<Tensor> {
        run!(self, weight.at(), rows x, vector weight => rms_norm(x, weight, eps))
    }

    fn rms_norms<const N: usize>(
        &mut self,
        parts: [(Tensor, Option<&Vector>); N],
        eps: f32,
    ) -> Result<[Tensor; N]> {
        // Weights of a layer are in one place.
        let Some(weight) = parts.iter().find_map(|(_, weight)| *weight) else {
            return Ok(parts.map(|(x, _)| x));
        };
        at!(weight.at(), place => {
            let parts = parts.into_iter().map(|(x, weight)| {
                Ok((place.own_rows(self, x)?, place.optional(weight)?))
            });
            let parts = all::<_, N>(parts)?;
            let normed = place.ops(self)?.rms_norms(parts, eps)?;
            Ok(normed.map(|x| place.made(x)))
        })
    }

    fn add_normed(
        &mut self,
        x: Tensor,
        (y, weight): (&Tensor, &Vector),
        eps: f32,
        scale: f32,
        next: Option<&Vector>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        at!(weight.at(), place => {
            let (x, y) = (place.own_rows(self, x)?, place.rows(self, y)?);
            let (weight, next) = (place.vector(weight)?, place.optional(next)?);
            let (sum, normed) = place.ops(self)?.add_normed(x, (&y, weight), eps, scale, next)?;
            Ok((place.made(sum), normed.map(|normed| place.made(normed))))
        })
    }

    fn grouped_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        n_groups: usize,
        eps: f32,
    ) -> Result<Tensor> {
        run!(self, weight.at(), rows x, vector weight => grouped_norm(x, weight, n_groups, eps))
    }

    fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor> {
        run!(self, weight.at(), vector weight, optional bias, rows x
            => layer_norm(x, weight, bias, eps))
    }

    fn linear(&mut self, x: &Tensor, matrix: &Matrix, bias: Option<&Vector>) -> Result<Tensor> {
        let [y] = self.linears(Input::Rows(x), [(matrix, bias)])?;
        Ok(y)
    }

    fn linears<const N: usize>(
        &mut self,
        input: Input<'_, SplitOps>,
        matrices: [LinearRef<'_, SplitOps>; N],
    ) -> Result<[Tensor; N]> {
        let at = matrices.first().map_or(At::Host, |(matrix, _)| matrix.at());
        at!(at, place => {
            let x = place.rows(self, input.rows())?;
            let matrices = all::<_, N>(matrices.into_iter().map(|one| place.linear(one)))?;
            let input = place.input(input, &x)?;
            let products = place.ops(self)?.linears(input, matrices)?;
            Ok(products.map(|y| place.made(y)))
        })
    }

    fn add_linear(
        &mut self,
        x: Tensor,
        input: Input<'_, SplitOps>,
        matrix: LinearRef<'_, SplitOps>,
        scale: f32,
    ) -> Result<Tensor> {
        at!(matrix.0.at(), place => {
            let rows = place.rows(self, input.rows())?;
            let x = place.own_rows(self, x)?;
            let (input, matrix) = (place.input(input, &rows)?, place.linear(matrix)?);
            let sum = place.ops(self)?.add_linear(x, input, matrix, scale)?;
            Ok(place.made(sum))
        })
    }

    fn gated_linear(
        &mut self,
        input: Input<'_, SplitOps>,
        gate: LinearRef<'_, SplitOps>,
        up: LinearRef<'_, SplitOps>,
        activation: Activation,
    ) -> Result<Tensor> {
        at!(gate.0.at(), place => {
            let rows = place.rows(self, input.rows())?;
            let input = place.input(input, &rows)?;
            let (gate, up) = (place.linear(gate)?, place.linear(up)?);
            let made = place.ops(self)?.gated_linear(input, gate, up, activation)?;
            Ok(place.made(made))
        })
    }

    fn grouped_linear(&mut self, products: &[Product<'_, SplitOps>]) -> Result<Vec<Tensor>> {
        let at = products
            .first()
            .map_or(At::Host, |product| product.weights.0.at());
        at!(at, place => {
            let rows = products.iter().map(|product| place.rows(self, product.x));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            let mut here = Vec::with_capacity(products.len());
            for (product, x) in products.iter().zip(&rows) {
                let gate = |(gate, activation)| Ok((place.linear(gate)?, activation));
                here.push(Product {
                    x: &**x,
                    weights: place.linear(product.weights)?,
                    gate: product.gate.map(gate).transpose()?,
                });
            }
            let made = place.ops(self)?.grouped_linear(&here)?;
            Ok(made.into_iter().map(|y| place.made(y)).collect())
        })
    }

    fn rotate(&mut self, x: Tensor, angles: &Angles, head_dim: usize) -> Result<Tensor> {
        run!(self, x.at(), own_rows x, angles angles => rotate(x, angles, head_dim))
    }

    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Tensor,
        angles: Option<&Angles>,
        value: &Tensor,
        plan: &StepPlan,
    ) -> Result<()> {
        let (at, kv_layer) = self.kv_at(layer.kv_layer)?;
        let layer = LayerConfig { kv_layer, ..*layer };
        at!(at, place => {
            let (key, value) = (place.own_rows(self, key)?, place.rows(self, value)?);
            let angles = angles.map(|angles| place.angles(angles)).transpose()?;
            place.ops(self)?.append_kv(&layer, key, angles, &value, plan)
        })
    }

    fn rotate_and_append(
        &mut self,
        layer: &LayerConfig,
        query: Tensor,
        (key, value): (Tensor, &Tensor),
        angles: Option<&Angles>,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        let (At::Gpu(gpu), kv_layer) = self.kv_at(layer.kv_layer)? else {
            let mut query = query;
            if let Some(angles) = angles {
                query = self.rotate(query, angles, layer.head_dim)?;
            }
            self.append_kv(layer, key, angles, value, plan)?;
            return Ok(query);
        };
        let layer = LayerConfig { kv_layer, ..*layer };
        let query = OnGpu(gpu).own_rows(self, query)?;
        let key = OnGpu(gpu).own_rows(self, key)?;
        let value = OnGpu(gpu).rows(self, value)?;
        let angles = angles.map(|angles| angles.on(gpu)).transpose()?;
        let on_gpu = self.gpu(gpu)?;
        let query = on_gpu.rotate_and_append(&layer, query, (key, &value), angles, plan)?;
        Ok(Placed::Gpu(gpu, query))
    }

    fn attend(
        &mut self,
        layer: usize,
        query: &Tensor,
        sinks: Option<&Vector>,
        plan: &StepPlan,
        attention: &Attention,
    ) -> Result<Tensor> {
        let (at, layer) = self.kv_at(layer)?;
        run!(self, at, rows query, optional sinks => attend(layer, query, sinks, plan, attention))
    }

    fn short_conv(
        &mut self,
        layer: usize,
        x: &Tensor,
        (kernel, bias): (&Vector, Option<&Vector>),
        silu: bool,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        run!(self, kernel.at(), vector kernel, optional bias, rows x
            => short_conv(layer, x, (kernel, bias), silu, plan))
    }

    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Tensor,
        (alpha, beta): (&Tensor, &Tensor),
        rule: &DeltaRule<'_, SplitOps>,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        at!(rule.decay.at(), place => {
            let x = place.rows(self, x)?;
            let (alpha, beta) = (place.rows(self, alpha)?, place.rows(self, beta)?);
            let rule = DeltaRule {
                net: rule.net,
                decay: place.vector(rule.decay)?,
                decay_bias: place.vector(rule.decay_bias)?,
                eps: rule.eps,
            };
            let out = place.ops(self)?.delta_rule(layer, &x, (&alpha, &beta), &rule, plan)?;
            Ok(place.made(out))
        })
    }

    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Tensor,
        steps: &Tensor,
        scan: &SelectiveScan<'_, SplitOps>,
        plan: &StepPlan,
    ) -> Result<Tensor> {
        at!(scan.decay.at(), place => {
            let (x, steps) = (place.rows(self, x)?, place.rows(self, steps)?);
            let scan = SelectiveScan {
                config: scan.config,
                decay: place.vector(scan.decay)?,
                step_bias: place.vector(scan.step_bias)?,
                skip: place.vector(scan.skip)?,
            };
            let out = place.ops(self)?.selective_scan(layer, &x, &steps, &scan, plan)?;
            Ok(place.made(out))
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
        run!(self, query.at(), rows query, rows key, rows value
            => attend_bidirectional(query, key, value, spans, attention))
    }

    fn activate(&mut self, x: Tensor, activation: Activation) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => activate(x, activation))
    }

    fn clamp(&mut self, x: Tensor, bounds: [f32; 2]) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => clamp(x, bounds))
    }

    fn tanh(&mut self, x: Tensor) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => tanh(x))
    }

    fn gated(&mut self, gate: Tensor, up: &Tensor, activation: Activation) -> Result<Tensor> {
        run!(self, gate.at(), own_rows gate, rows up => gated(gate, up, activation))
    }

    fn add(&mut self, x: Tensor, y: &Tensor, scale: f32) -> Result<Tensor> {
        run!(self, x.at(), own_rows x, rows y => add(x, y, scale))
    }

    fn scale_rows(&mut self, x: Tensor, factors: &[f32]) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => scale_rows(x, factors))
    }

    fn sigmoid_gate(&mut self, x: Tensor, gate: &Tensor) -> Result<Tensor> {
        run!(self, x.at(), own_rows x, rows gate => sigmoid_gate(x, gate))
    }

    fn scale_columns(&mut self, x: &Tensor, factors: &Vector) -> Result<Tensor> {
        run!(self, factors.at(), rows x, vector factors => scale_columns(x, factors))
    }

    fn weighted_sum(
        &mut self,
        parts: &[&Tensor],
        factors: &Tensor,
        first: usize,
    ) -> Result<Tensor> {
        at!(parts.first().map_or(At::Host, |part| part.at()), place => {
            let parts = parts.iter().map(|part| place.rows(self, part));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let parts: Vec<_> = parts.iter().map(Deref::deref).collect();
            let factors = place.rows(self, factors)?;
            Ok(place.made(place.ops(self)?.weighted_sum(&parts, &factors, first)?))
        })
    }

    fn stream_factors(&mut self, scores: &Tensor, weights: &Vector) -> Result<Tensor> {
        run!(self, weights.at(), rows scores, vector weights => stream_factors(scores, weights))
    }

    fn length_ratios(&mut self, x: &Tensor, like: &Tensor) -> Result<Tensor> {
        run!(self, x.at(), rows x, rows like => length_ratios(x, like))
    }

    fn peaks(&mut self, x: Tensor, deviations: f32) -> Result<Tensor> {
        run!(self, x.at(), own_rows x => peaks(x, deviations))
    }

    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Tensor> {
        self.cpu.plain_rows(values, width).map(Placed::Host)
    }

    fn zeros(&mut self, like: &Tensor) -> Result<Tensor> {
        run!(self, like.at(), rows like => zeros(like))
    }

    fn columns(&mut self, x: &Tensor, first: usize, n: usize) -> Result<Tensor> {
        run!(self, x.at(), rows x => columns(x, first, n))
    }

    fn join(&mut self, parts: &[Tensor]) -> Result<Tensor> {
        at!(parts.first().map_or(At::Host, Placed::at), place => {
            let parts = parts.iter().map(|part| place.rows(self, part));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let parts: Vec<_> = parts.iter().map(Deref::deref).collect();
            Ok(place.made(place.ops(self)?.join_rows(&parts)?))
        })
    }

    fn gather_rows(&mut self, x: &Tensor, rows: &[u32]) -> Result<Tensor> {
        run!(self, x.at(), rows x => gather_rows(x, rows))
    }

    fn add_to_rows(&mut self, x: Tensor, rows: &[u32], y: &Tensor) -> Result<Tensor> {
        run!(self, x.at(), own_rows x, rows y => add_to_rows(x, rows, y))
    }

    fn mixture(
        &mut self,
        x: &Tensor,
        scores: &Tensor,
        (gpu, experts): &(usize, gpu::Experts),
    ) -> Result<Tensor> {
        let (x, scores) = (OnGpu(*gpu).rows(self, x)?, OnGpu(*gpu).rows(self, scores)?);
        let sum = self.gpu(*gpu)?.mixture(&x, &scores, experts)?;
        Ok(Placed::Gpu(*gpu, sum))
    }

    fn n_rows(&self, x: &Tensor) -> usize {
        match x {
            Placed::Host(x) => x.n_rows(),
            Placed::Gpu(_, x) => x.n_rows(),
        }
    }

    fn read(&mut self, x: &Tensor, out: &mut [f32]) -> Result<()> {
        at!(x.at(), place => {
            let x = place.rows(self, x)?;
            place.ops(self)?.read(&x, out)
        })
    }
}

/// The placement puts what belongs together into one place.
fn elsewhere() -> ModelError {
    ModelError::Compute("something of a model is in another place".into())
}
