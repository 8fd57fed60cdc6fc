//! The decoder's operations on the CPU and on GPUs, where a model lies on both: an operation runs where its weights (or
//! its keys and values) are, one without weights where its rows are. Rows that are elsewhere are brought there.

use std::ops::{Deref, Range};

use llmsrv_engine::{BlockId, GpuShare, ModelError, StateId, StepPlan};
use llmsrv_gpu as gpu;

use super::{
    Attention, BidirectionalAttention, DeltaRule, ExpertNetwork, ExpertNetworks, Holder, Input,
    LinearRef, Ops, SelectiveScan,
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
    fn on(&self, gpu: usize) -> Result<&gpu::Angles, ModelError> {
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

    fn host(&self) -> Result<&C, ModelError> {
        match self {
            Placed::Host(here) => Ok(here),
            Placed::Gpu(..) => Err(elsewhere()),
        }
    }

    fn on(&self, gpu: usize) -> Result<&G, ModelError> {
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

    fn gpu(&mut self, gpu: usize) -> Result<&mut GpuOps, ModelError> {
        let found = self.gpus.get_mut(gpu).and_then(Option::as_mut);
        found.ok_or_else(elsewhere)
    }

    fn kv_at(&self, layer: usize) -> Result<(At, usize), ModelError> {
        self.kv.get(layer).copied().ok_or_else(elsewhere)
    }

    fn download(&mut self, gpu: usize, x: &gpu::Tensor) -> Result<Buffer, ModelError> {
        let mut rows = self.cpu.rows(x.n_rows(), x.width());
        self.gpu(gpu)?.read(x, rows.values_mut())?;
        Ok(rows)
    }

    fn on_host<'a>(&mut self, x: &'a Tensor) -> Result<Brought<'a, Buffer>, ModelError> {
        Ok(match x {
            Placed::Host(x) => Brought::Theirs(x),
            Placed::Gpu(from, x) => Brought::Ours(self.download(*from, x)?),
        })
    }

    fn on_gpu<'a>(
        &mut self,
        gpu: usize,
        x: &'a Tensor,
    ) -> Result<Brought<'a, gpu::Tensor>, ModelError> {
        Ok(match x {
            Placed::Gpu(from, x) if *from == gpu => Brought::Theirs(x),
            x => {
                let rows = self.on_host(x)?;
                Brought::Ours(self.gpu(gpu)?.upload(rows.values(), rows.width())?)
            }
        })
    }

    fn bring_to_host(&mut self, x: Tensor) -> Result<Buffer, ModelError> {
        match x {
            Placed::Host(x) => Ok(x),
            Placed::Gpu(from, x) => self.download(from, &x),
        }
    }

    fn bring_to_gpu(&mut self, gpu: usize, x: Tensor) -> Result<gpu::Tensor, ModelError> {
        match x {
            Placed::Gpu(from, x) if from == gpu => Ok(x),
            x => match self.on_gpu(gpu, &x)? {
                Brought::Ours(x) => Ok(x),
                Brought::Theirs(_) => Err(elsewhere()),
            },
        }
    }

    /// Computes `x` with an operation that takes nothing beside it.
    fn with(
        &mut self,
        x: Tensor,
        host: impl FnOnce(&mut CpuOps, Buffer) -> Result<Buffer, ModelError>,
        on_gpu: impl FnOnce(&mut GpuOps, gpu::Tensor) -> Result<gpu::Tensor, ModelError>,
    ) -> Result<Tensor, ModelError> {
        Ok(match x {
            Placed::Host(x) => Placed::Host(host(&mut self.cpu, x)?),
            Placed::Gpu(gpu, x) => Placed::Gpu(gpu, on_gpu(self.gpu(gpu)?, x)?),
        })
    }

    /// As [`SplitOps::with`], where `x` is only read.
    fn of(
        &mut self,
        x: &Tensor,
        host: impl FnOnce(&mut CpuOps, &Buffer) -> Result<Buffer, ModelError>,
        on_gpu: impl FnOnce(&mut GpuOps, &gpu::Tensor) -> Result<gpu::Tensor, ModelError>,
    ) -> Result<Tensor, ModelError> {
        Ok(match x {
            Placed::Host(x) => Placed::Host(host(&mut self.cpu, x)?),
            Placed::Gpu(gpu, x) => Placed::Gpu(*gpu, on_gpu(self.gpu(*gpu)?, x)?),
        })
    }

    /// Computes `x` with `y`, where `x` is.
    fn with_other(
        &mut self,
        x: Tensor,
        y: &Tensor,
        host: impl FnOnce(&mut CpuOps, Buffer, &Buffer) -> Result<Buffer, ModelError>,
        on_gpu: impl FnOnce(&mut GpuOps, gpu::Tensor, &gpu::Tensor) -> Result<gpu::Tensor, ModelError>,
    ) -> Result<Tensor, ModelError> {
        Ok(match x {
            Placed::Host(x) => {
                let y = self.on_host(y)?;
                Placed::Host(host(&mut self.cpu, x, &y)?)
            }
            Placed::Gpu(gpu, x) => {
                let y = self.on_gpu(gpu, y)?;
                Placed::Gpu(gpu, on_gpu(self.gpu(gpu)?, x, &y)?)
            }
        })
    }

    /// Computes what only the CPU can, where its weights are.
    fn host_only(
        &mut self,
        x: &Tensor,
        host: impl FnOnce(&mut CpuOps, &Buffer) -> Result<Buffer, ModelError>,
    ) -> Result<Tensor, ModelError> {
        let x = self.on_host(x)?;
        host(&mut self.cpu, &x).map(Placed::Host)
    }
}

/// An input whose rows are where its products are computed.
fn host_input<'a>(
    input: Input<'a, SplitOps>,
    x: &'a Buffer,
) -> Result<Input<'a, CpuOps>, ModelError> {
    Ok(match input {
        Input::Rows(_) => Input::Rows(x),
        Input::Normed { weight, eps, .. } => Input::Normed {
            x,
            weight: weight.host()?,
            eps,
        },
    })
}

fn gpu_input<'a>(
    gpu: usize,
    input: Input<'a, SplitOps>,
    x: &'a gpu::Tensor,
) -> Result<Input<'a, GpuOps>, ModelError> {
    Ok(match input {
        Input::Rows(_) => Input::Rows(x),
        Input::Normed { weight, eps, .. } => Input::Normed {
            x,
            weight: weight.on(gpu)?,
            eps,
        },
    })
}

fn host_ref((matrix, bias): LinearRef<'_, SplitOps>) -> Result<LinearRef<'_, CpuOps>, ModelError> {
    Ok((matrix.host()?, bias.map(Placed::host).transpose()?))
}

fn gpu_ref(
    gpu: usize,
    (matrix, bias): LinearRef<'_, SplitOps>,
) -> Result<LinearRef<'_, GpuOps>, ModelError> {
    let bias = bias.map(|bias| bias.on(gpu));
    Ok((matrix.on(gpu)?, bias.transpose()?))
}

/// Brings results of several references into an array.
fn all<T, const N: usize>(
    parts: impl Iterator<Item = Result<T, ModelError>>,
) -> Result<[T; N], ModelError> {
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

    fn matrix(&mut self, source: FileMatrix) -> Result<Matrix, ModelError> {
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

    fn vector(&mut self, values: Vec<f32>) -> Result<Vector, ModelError> {
        Ok(match self.placement.of(self.part) {
            At::Host => Placed::Host(self.cpu.vector(values)?),
            At::Gpu(gpu) => Placed::Gpu(gpu, self.gpu(gpu)?.vector(values)?),
        })
    }

    fn experts(
        &mut self,
        experts: &ExpertNetworks<'_, Self>,
    ) -> Result<Option<(usize, gpu::Experts)>, ModelError> {
        let At::Gpu(gpu) = self.placement.of(self.part) else {
            return Ok(None);
        };
        let networks = experts.networks.iter().map(|network| {
            let gate = network.gate.map(|gate| gpu_ref(gpu, gate));
            Ok(ExpertNetwork {
                gate: gate.transpose()?,
                up: gpu_ref(gpu, network.up)?,
                down: gpu_ref(gpu, network.down)?,
            })
        });
        let experts = ExpertNetworks {
            config: experts.config,
            activation: experts.activation,
            selection_bias: experts.selection_bias,
            scales: experts.scales,
            networks: networks.collect::<Result<_, ModelError>>()?,
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

    fn copy_to(&mut self, part: Part, x: &Tensor) -> Result<Option<Tensor>, ModelError> {
        match self.placement.of(part) {
            at if at == x.at() => Ok(None),
            At::Host => Ok(match self.on_host(x)? {
                Brought::Ours(x) => Some(Placed::Host(x)),
                Brought::Theirs(_) => None,
            }),
            At::Gpu(gpu) => Ok(match self.on_gpu(gpu, x)? {
                Brought::Ours(x) => Some(Placed::Gpu(gpu, x)),
                Brought::Theirs(_) => None,
            }),
        }
    }

    fn begin_step(&mut self, plan: &StepPlan) -> Result<(), ModelError> {
        self.cpu.begin_step(plan)?;
        self.gpus
            .iter_mut()
            .flatten()
            .try_for_each(|gpu| gpu.begin_step(plan))
    }

    fn end_step(&mut self) -> Result<(), ModelError> {
        self.cpu.end_step()?;
        self.gpus
            .iter_mut()
            .flatten()
            .try_for_each(GpuOps::end_step)
    }

    fn reserve_blocks(&mut self, n_blocks: usize) -> Result<(), ModelError> {
        for gpu in self.gpus.iter_mut().flatten() {
            gpu.reserve_blocks(n_blocks)?;
        }
        self.cpu.reserve_blocks(n_blocks)
    }

    fn copy_block(&mut self, from: BlockId, to: BlockId) -> Result<(), ModelError> {
        self.cpu.copy_block(from, to)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.copy_block(from, to))
    }

    fn kv_block_bytes(&self) -> usize {
        let gpus = self.gpus.iter().flatten().map(GpuOps::kv_block_bytes);
        self.cpu.kv_block_bytes() + gpus.sum::<usize>()
    }

    fn reserve_states(&mut self, n_states: usize) -> Result<(), ModelError> {
        for gpu in self.gpus.iter_mut().flatten() {
            gpu.reserve_states(n_states)?;
        }
        self.cpu.reserve_states(n_states)
    }

    fn clear_state(&mut self, id: StateId) -> Result<(), ModelError> {
        self.cpu.clear_state(id)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.clear_state(id))
    }

    fn copy_state(&mut self, from: StateId, to: StateId) -> Result<(), ModelError> {
        self.cpu.copy_state(from, to)?;
        let mut gpus = self.gpus.iter_mut().flatten();
        gpus.try_for_each(|gpu| gpu.copy_state(from, to))
    }

    fn state_bytes(&self) -> usize {
        let gpus = self.gpus.iter().flatten().map(GpuOps::state_bytes);
        self.cpu.state_bytes() + gpus.sum::<usize>()
    }

    fn embed(
        &mut self,
        table: &FileMatrix,
        tokens: &[u32],
        scale: f32,
    ) -> Result<Tensor, ModelError> {
        self.cpu.embed(table, tokens, scale).map(Placed::Host)
    }

    fn scatter_rows(
        &mut self,
        x: Tensor,
        first: usize,
        values: &[f32],
    ) -> Result<Tensor, ModelError> {
        self.with(
            x,
            |cpu, x| cpu.scatter_rows(x, first, values),
            |gpu, x| gpu.scatter_rows(x, first, values),
        )
    }

    fn angles(&mut self, rope: &Rope, places: Places<'_>) -> Result<Angles, ModelError> {
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

    fn rms_norm(&mut self, x: &Tensor, weight: &Vector, eps: f32) -> Result<Tensor, ModelError> {
        Ok(match weight {
            Placed::Host(weight) => {
                let x = self.on_host(x)?;
                Placed::Host(self.cpu.rms_norm(&x, weight, eps)?)
            }
            Placed::Gpu(gpu, weight) => {
                let x = self.on_gpu(*gpu, x)?;
                Placed::Gpu(*gpu, self.gpu(*gpu)?.rms_norm(&x, weight, eps)?)
            }
        })
    }

    fn rms_norms<const N: usize>(
        &mut self,
        parts: [(Tensor, Option<&Vector>); N],
        eps: f32,
    ) -> Result<[Tensor; N], ModelError> {
        // Weights of a layer are in one place.
        let Some(Placed::Gpu(gpu, _)) = parts.iter().find_map(|(_, weight)| *weight) else {
            let normed = parts.map(|(x, weight)| match weight {
                Some(weight) => self.rms_norm(&x, weight, eps),
                None => Ok(x),
            });
            return all(normed.into_iter());
        };
        let brought = parts.map(|(x, weight)| {
            let weight = weight.map(|weight| weight.on(*gpu)).transpose()?;
            Ok((self.bring_to_gpu(*gpu, x)?, weight))
        });
        let brought = all::<_, N>(brought.into_iter())?;
        let normed = self.gpu(*gpu)?.rms_norms(brought, eps)?;
        Ok(normed.map(|x| Placed::Gpu(*gpu, x)))
    }

    fn add_normed(
        &mut self,
        x: Tensor,
        (y, weight): (&Tensor, &Vector),
        eps: f32,
        scale: f32,
        next: Option<&Vector>,
    ) -> Result<(Tensor, Option<Tensor>), ModelError> {
        Ok(match weight {
            Placed::Host(weight) => {
                let (x, y) = (self.bring_to_host(x)?, self.on_host(y)?);
                let next = next.map(Placed::host).transpose()?;
                let (sum, normed) = self.cpu.add_normed(x, (&y, weight), eps, scale, next)?;
                (Placed::Host(sum), normed.map(Placed::Host))
            }
            Placed::Gpu(gpu, weight) => {
                let (x, y) = (self.bring_to_gpu(*gpu, x)?, self.on_gpu(*gpu, y)?);
                let next = next.map(|next| next.on(*gpu)).transpose()?;
                let on_gpu = self.gpu(*gpu)?;
                let (sum, normed) = on_gpu.add_normed(x, (&y, weight), eps, scale, next)?;
                let placed = |x| Placed::Gpu(*gpu, x);
                (placed(sum), normed.map(placed))
            }
        })
    }

    fn grouped_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        n_groups: usize,
        eps: f32,
    ) -> Result<Tensor, ModelError> {
        Ok(match weight {
            Placed::Host(weight) => {
                let x = self.on_host(x)?;
                Placed::Host(self.cpu.grouped_norm(&x, weight, n_groups, eps)?)
            }
            Placed::Gpu(gpu, weight) => {
                let x = self.on_gpu(*gpu, x)?;
                let on_gpu = self.gpu(*gpu)?;
                Placed::Gpu(*gpu, on_gpu.grouped_norm(&x, weight, n_groups, eps)?)
            }
        })
    }

    fn layer_norm(
        &mut self,
        x: &Tensor,
        weight: &Vector,
        bias: Option<&Vector>,
        eps: f32,
    ) -> Result<Tensor, ModelError> {
        Ok(match weight {
            Placed::Host(weight) => {
                let bias = bias.map(Placed::host).transpose()?;
                let x = self.on_host(x)?;
                Placed::Host(self.cpu.layer_norm(&x, weight, bias, eps)?)
            }
            Placed::Gpu(gpu, weight) => {
                let bias = bias.map(|bias| bias.on(*gpu)).transpose()?;
                let x = self.on_gpu(*gpu, x)?;
                Placed::Gpu(*gpu, self.gpu(*gpu)?.layer_norm(&x, weight, bias, eps)?)
            }
        })
    }

    fn linear(
        &mut self,
        x: &Tensor,
        matrix: &Matrix,
        bias: Option<&Vector>,
    ) -> Result<Tensor, ModelError> {
        let [y] = self.linears(Input::Rows(x), [(matrix, bias)])?;
        Ok(y)
    }

    fn linears<const N: usize>(
        &mut self,
        input: Input<'_, SplitOps>,
        matrices: [LinearRef<'_, SplitOps>; N],
    ) -> Result<[Tensor; N], ModelError> {
        match matrices.first().map(|(matrix, _)| matrix.at()) {
            None | Some(At::Host) => {
                let x = self.on_host(input.rows())?;
                let matrices = all::<_, N>(matrices.into_iter().map(host_ref))?;
                let products = self.cpu.linears(host_input(input, &x)?, matrices)?;
                Ok(products.map(Placed::Host))
            }
            Some(At::Gpu(gpu)) => {
                let x = self.on_gpu(gpu, input.rows())?;
                let matrices = matrices.into_iter().map(|one| gpu_ref(gpu, one));
                let matrices = all::<_, N>(matrices)?;
                let input = gpu_input(gpu, input, &x)?;
                let products = self.gpu(gpu)?.linears(input, matrices)?;
                Ok(products.map(|y| Placed::Gpu(gpu, y)))
            }
        }
    }

    fn add_linear(
        &mut self,
        x: Tensor,
        input: Input<'_, SplitOps>,
        matrix: LinearRef<'_, SplitOps>,
        scale: f32,
    ) -> Result<Tensor, ModelError> {
        match matrix.0.at() {
            At::Host => {
                let rows = self.on_host(input.rows())?;
                let x = self.bring_to_host(x)?;
                let (input, matrix) = (host_input(input, &rows)?, host_ref(matrix)?);
                let sum = self.cpu.add_linear(x, input, matrix, scale)?;
                Ok(Placed::Host(sum))
            }
            At::Gpu(gpu) => {
                let rows = self.on_gpu(gpu, input.rows())?;
                let x = self.bring_to_gpu(gpu, x)?;
                let (input, matrix) = (gpu_input(gpu, input, &rows)?, gpu_ref(gpu, matrix)?);
                let sum = self.gpu(gpu)?.add_linear(x, input, matrix, scale)?;
                Ok(Placed::Gpu(gpu, sum))
            }
        }
    }

    fn gated_linear(
        &mut self,
        input: Input<'_, SplitOps>,
        gate: LinearRef<'_, SplitOps>,
        up: LinearRef<'_, SplitOps>,
        activation: Activation,
    ) -> Result<Tensor, ModelError> {
        match gate.0.at() {
            At::Host => {
                let rows = self.on_host(input.rows())?;
                let input = host_input(input, &rows)?;
                let (gate, up) = (host_ref(gate)?, host_ref(up)?);
                let made = self.cpu.gated_linear(input, gate, up, activation)?;
                Ok(Placed::Host(made))
            }
            At::Gpu(gpu) => {
                let rows = self.on_gpu(gpu, input.rows())?;
                let input = gpu_input(gpu, input, &rows)?;
                let (gate, up) = (gpu_ref(gpu, gate)?, gpu_ref(gpu, up)?);
                let made = self.gpu(gpu)?.gated_linear(input, gate, up, activation)?;
                Ok(Placed::Gpu(gpu, made))
            }
        }
    }

    fn rotate(
        &mut self,
        x: Tensor,
        angles: &Angles,
        head_dim: usize,
    ) -> Result<Tensor, ModelError> {
        Ok(match x {
            Placed::Host(x) => {
                let angles = angles.host.as_ref().ok_or_else(elsewhere)?;
                Placed::Host(self.cpu.rotate(x, angles, head_dim)?)
            }
            Placed::Gpu(gpu, x) => {
                let angles = angles.on(gpu)?;
                Placed::Gpu(gpu, self.gpu(gpu)?.rotate(x, angles, head_dim)?)
            }
        })
    }

    fn append_kv(
        &mut self,
        layer: &LayerConfig,
        key: Tensor,
        angles: Option<&Angles>,
        value: &Tensor,
        plan: &StepPlan,
    ) -> Result<(), ModelError> {
        let (at, kv_layer) = self.kv_at(layer.kv_layer)?;
        let layer = LayerConfig { kv_layer, ..*layer };
        match at {
            At::Host => {
                let (key, value) = (self.bring_to_host(key)?, self.on_host(value)?);
                let angles = angles.map(|angles| angles.host.as_ref().ok_or_else(elsewhere));
                let angles = angles.transpose()?;
                self.cpu.append_kv(&layer, key, angles, &value, plan)
            }
            At::Gpu(gpu) => {
                let (key, value) = (self.bring_to_gpu(gpu, key)?, self.on_gpu(gpu, value)?);
                let angles = angles.map(|angles| angles.on(gpu));
                let angles = angles.transpose()?;
                self.gpu(gpu)?.append_kv(&layer, key, angles, &value, plan)
            }
        }
    }

    fn rotate_and_append(
        &mut self,
        layer: &LayerConfig,
        query: Tensor,
        (key, value): (Tensor, &Tensor),
        angles: Option<&Angles>,
        plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let (At::Gpu(gpu), kv_layer) = self.kv_at(layer.kv_layer)? else {
            let mut query = query;
            if let Some(angles) = angles {
                query = self.rotate(query, angles, layer.head_dim)?;
            }
            self.append_kv(layer, key, angles, value, plan)?;
            return Ok(query);
        };
        let layer = LayerConfig { kv_layer, ..*layer };
        let query = self.bring_to_gpu(gpu, query)?;
        let (key, value) = (self.bring_to_gpu(gpu, key)?, self.on_gpu(gpu, value)?);
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
    ) -> Result<Tensor, ModelError> {
        let (at, layer) = self.kv_at(layer)?;
        Ok(match at {
            At::Host => {
                let query = self.on_host(query)?;
                let sinks = sinks.map(Placed::host).transpose()?;
                let cpu = &mut self.cpu;
                Placed::Host(cpu.attend(layer, &query, sinks, plan, attention)?)
            }
            At::Gpu(gpu) => {
                let query = self.on_gpu(gpu, query)?;
                let sinks = sinks.map(|sinks| sinks.on(gpu)).transpose()?;
                let on_gpu = self.gpu(gpu)?;
                Placed::Gpu(gpu, on_gpu.attend(layer, &query, sinks, plan, attention)?)
            }
        })
    }

    fn short_conv(
        &mut self,
        layer: usize,
        x: &Tensor,
        (kernel, bias): (&Vector, Option<&Vector>),
        silu: bool,
        plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let Placed::Gpu(gpu, kernel) = kernel else {
            let kernel = (kernel.host()?, bias.map(Placed::host).transpose()?);
            return self.host_only(x, |cpu, x| cpu.short_conv(layer, x, kernel, silu, plan));
        };
        let kernel = (kernel, bias.map(|bias| bias.on(*gpu)).transpose()?);
        let x = self.on_gpu(*gpu, x)?;
        let out = self.gpu(*gpu)?.short_conv(layer, &x, kernel, silu, plan)?;
        Ok(Placed::Gpu(*gpu, out))
    }

    fn delta_rule(
        &mut self,
        layer: usize,
        x: &Tensor,
        (alpha, beta): (&Tensor, &Tensor),
        rule: &DeltaRule<'_, SplitOps>,
        plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        let (net, eps) = (rule.net, rule.eps);
        if let Placed::Gpu(gpu, decay) = rule.decay {
            let x = self.on_gpu(*gpu, x)?;
            let (alpha, beta) = (self.on_gpu(*gpu, alpha)?, self.on_gpu(*gpu, beta)?);
            let rule = DeltaRule {
                net,
                decay,
                decay_bias: rule.decay_bias.on(*gpu)?,
                eps,
            };
            let on_gpu = self.gpu(*gpu)?;
            let out = on_gpu.delta_rule(layer, &x, (&alpha, &beta), &rule, plan)?;
            return Ok(Placed::Gpu(*gpu, out));
        }
        let (alpha, beta) = (self.on_host(alpha)?, self.on_host(beta)?);
        let rule = DeltaRule {
            net,
            decay: rule.decay.host()?,
            decay_bias: rule.decay_bias.host()?,
            eps,
        };
        self.host_only(x, |cpu, x| {
            cpu.delta_rule(layer, x, (&alpha, &beta), &rule, plan)
        })
    }

    fn selective_scan(
        &mut self,
        layer: usize,
        x: &Tensor,
        steps: &Tensor,
        scan: &SelectiveScan<'_, SplitOps>,
        plan: &StepPlan,
    ) -> Result<Tensor, ModelError> {
        if let Placed::Gpu(gpu, decay) = scan.decay {
            let (x, steps) = (self.on_gpu(*gpu, x)?, self.on_gpu(*gpu, steps)?);
            let scan = SelectiveScan {
                config: scan.config,
                decay,
                step_bias: scan.step_bias.on(*gpu)?,
                skip: scan.skip.on(*gpu)?,
            };
            let on_gpu = self.gpu(*gpu)?;
            let out = on_gpu.selective_scan(layer, &x, &steps, &scan, plan)?;
            return Ok(Placed::Gpu(*gpu, out));
        }
        let steps = self.on_host(steps)?;
        let scan = SelectiveScan {
            config: scan.config,
            decay: scan.decay.host()?,
            step_bias: scan.step_bias.host()?,
            skip: scan.skip.host()?,
        };
        self.host_only(x, |cpu, x| {
            cpu.selective_scan(layer, x, &steps, &scan, plan)
        })
    }

    fn attend_bidirectional(
        &mut self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        spans: &[(Range<usize>, Range<usize>)],
        attention: &BidirectionalAttention<'_>,
    ) -> Result<Tensor, ModelError> {
        Ok(match query {
            Placed::Host(query) => {
                let (key, value) = (self.on_host(key)?, self.on_host(value)?);
                let cpu = &mut self.cpu;
                Placed::Host(cpu.attend_bidirectional(query, &key, &value, spans, attention)?)
            }
            Placed::Gpu(gpu, query) => {
                let (key, value) = (self.on_gpu(*gpu, key)?, self.on_gpu(*gpu, value)?);
                let on_gpu = self.gpu(*gpu)?;
                let out = on_gpu.attend_bidirectional(query, &key, &value, spans, attention)?;
                Placed::Gpu(*gpu, out)
            }
        })
    }

    fn activate(&mut self, x: Tensor, activation: Activation) -> Result<Tensor, ModelError> {
        self.with(
            x,
            |cpu, x| cpu.activate(x, activation),
            |gpu, x| gpu.activate(x, activation),
        )
    }

    fn clamp(&mut self, x: Tensor, bounds: [f32; 2]) -> Result<Tensor, ModelError> {
        self.with(
            x,
            |cpu, x| cpu.clamp(x, bounds),
            |gpu, x| gpu.clamp(x, bounds),
        )
    }

    fn tanh(&mut self, x: Tensor) -> Result<Tensor, ModelError> {
        self.with(x, CpuOps::tanh, GpuOps::tanh)
    }

    fn gated(
        &mut self,
        gate: Tensor,
        up: &Tensor,
        activation: Activation,
    ) -> Result<Tensor, ModelError> {
        self.with_other(
            gate,
            up,
            |cpu, gate, up| cpu.gated(gate, up, activation),
            |gpu, gate, up| gpu.gated(gate, up, activation),
        )
    }

    fn add(&mut self, x: Tensor, y: &Tensor, scale: f32) -> Result<Tensor, ModelError> {
        self.with_other(
            x,
            y,
            |cpu, x, y| cpu.add(x, y, scale),
            |gpu, x, y| gpu.add(x, y, scale),
        )
    }

    fn scale_rows(&mut self, x: Tensor, factors: &[f32]) -> Result<Tensor, ModelError> {
        self.with(
            x,
            |cpu, x| cpu.scale_rows(x, factors),
            |gpu, x| gpu.scale_rows(x, factors),
        )
    }

    fn sigmoid_gate(&mut self, x: Tensor, gate: &Tensor) -> Result<Tensor, ModelError> {
        self.with_other(x, gate, CpuOps::sigmoid_gate, GpuOps::sigmoid_gate)
    }

    fn scale_columns(&mut self, x: &Tensor, factors: &Vector) -> Result<Tensor, ModelError> {
        Ok(match factors {
            Placed::Host(factors) => {
                let x = self.on_host(x)?;
                Placed::Host(self.cpu.scale_columns(&x, factors)?)
            }
            Placed::Gpu(gpu, factors) => {
                let x = self.on_gpu(*gpu, x)?;
                Placed::Gpu(*gpu, self.gpu(*gpu)?.scale_columns(&x, factors)?)
            }
        })
    }

    fn weighted_sum(
        &mut self,
        parts: &[&Tensor],
        factors: &Tensor,
        first: usize,
    ) -> Result<Tensor, ModelError> {
        if let Some(Placed::Gpu(gpu, _)) = parts.first() {
            let parts = parts.iter().map(|part| self.on_gpu(*gpu, part));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let parts: Vec<&gpu::Tensor> = parts.iter().map(Deref::deref).collect();
            let factors = self.on_gpu(*gpu, factors)?;
            let sum = self.gpu(*gpu)?.weighted_sum(&parts, &factors, first)?;
            return Ok(Placed::Gpu(*gpu, sum));
        }
        let parts = parts.iter().map(|part| self.on_host(part));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&Buffer> = parts.iter().map(Deref::deref).collect();
        let factors = self.on_host(factors)?;
        let sum = self.cpu.weighted_sum(&parts, &factors, first)?;
        Ok(Placed::Host(sum))
    }

    fn stream_factors(&mut self, scores: &Tensor, weights: &Vector) -> Result<Tensor, ModelError> {
        Ok(match weights {
            Placed::Host(weights) => {
                let scores = self.on_host(scores)?;
                Placed::Host(self.cpu.stream_factors(&scores, weights)?)
            }
            Placed::Gpu(gpu, weights) => {
                let scores = self.on_gpu(*gpu, scores)?;
                Placed::Gpu(*gpu, self.gpu(*gpu)?.stream_factors(&scores, weights)?)
            }
        })
    }

    fn length_ratios(&mut self, x: &Tensor, like: &Tensor) -> Result<Tensor, ModelError> {
        Ok(match x {
            Placed::Host(x) => {
                let like = self.on_host(like)?;
                Placed::Host(self.cpu.length_ratios(x, &like)?)
            }
            Placed::Gpu(gpu, x) => {
                let like = self.on_gpu(*gpu, like)?;
                Placed::Gpu(*gpu, self.gpu(*gpu)?.length_ratios(x, &like)?)
            }
        })
    }

    fn peaks(&mut self, x: Tensor, deviations: f32) -> Result<Tensor, ModelError> {
        self.with(
            x,
            |cpu, x| cpu.peaks(x, deviations),
            |gpu, x| gpu.peaks(x, deviations),
        )
    }

    fn plain_rows(&mut self, values: &[f32], width: usize) -> Result<Tensor, ModelError> {
        self.cpu.plain_rows(values, width).map(Placed::Host)
    }

    fn zeros(&mut self, like: &Tensor) -> Result<Tensor, ModelError> {
        self.of(like, CpuOps::zeros, GpuOps::zeros)
    }

    fn columns(&mut self, x: &Tensor, first: usize, n: usize) -> Result<Tensor, ModelError> {
        self.of(
            x,
            |cpu, x| cpu.columns(x, first, n),
            |gpu, x| gpu.columns(x, first, n),
        )
    }

    fn join(&mut self, parts: &[Tensor]) -> Result<Tensor, ModelError> {
        if let Some(Placed::Gpu(gpu, _)) = parts.first() {
            let parts = parts.iter().map(|part| self.on_gpu(*gpu, part));
            let parts = parts.collect::<Result<Vec<_>, _>>()?;
            let parts: Vec<&gpu::Tensor> = parts.iter().map(Deref::deref).collect();
            return Ok(Placed::Gpu(*gpu, self.gpu(*gpu)?.join_rows(&parts)?));
        }
        let parts = parts.iter().map(|part| self.on_host(part));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&Buffer> = parts.iter().map(Deref::deref).collect();
        Ok(Placed::Host(self.cpu.join_rows(&parts)))
    }

    fn gather_rows(&mut self, x: &Tensor, rows: &[u32]) -> Result<Tensor, ModelError> {
        self.of(
            x,
            |cpu, x| cpu.gather_rows(x, rows),
            |gpu, x| gpu.gather_rows(x, rows),
        )
    }

    fn add_to_rows(&mut self, x: Tensor, rows: &[u32], y: &Tensor) -> Result<Tensor, ModelError> {
        self.with_other(
            x,
            y,
            |cpu, x, y| cpu.add_to_rows(x, rows, y),
            |gpu, x, y| gpu.add_to_rows(x, rows, y),
        )
    }

    fn mixture(
        &mut self,
        x: &Tensor,
        scores: &Tensor,
        (gpu, experts): &(usize, gpu::Experts),
    ) -> Result<Tensor, ModelError> {
        let (x, scores) = (self.on_gpu(*gpu, x)?, self.on_gpu(*gpu, scores)?);
        let sum = self.gpu(*gpu)?.mixture(&x, &scores, experts)?;
        Ok(Placed::Gpu(*gpu, sum))
    }

    fn n_rows(&self, x: &Tensor) -> usize {
        match x {
            Placed::Host(x) => x.n_rows(),
            Placed::Gpu(_, x) => x.n_rows(),
        }
    }

    fn read(&mut self, x: &Tensor, out: &mut [f32]) -> Result<(), ModelError> {
        match x {
            Placed::Host(x) => self.cpu.read(x, out),
            Placed::Gpu(gpu, x) => self.gpu(*gpu)?.read(x, out),
        }
    }
}

/// The placement puts what belongs together into one place.
fn elsewhere() -> ModelError {
    ModelError::Compute("something of a model is in another place".into())
}
