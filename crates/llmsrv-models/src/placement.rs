//! Which part of a model lies where: in the memory of the machine, computed by the CPU, or on a GPU.
//!
//! Before anything is loaded the loader runs once over [`Sizes`], which takes weights as a device does and keeps their
//! sizes alone. So what is known before is what is there afterwards.

use std::{collections::BTreeSet, ops::Range};

use llmsrv_engine::{LoadError, ModelError, Offload, PlacedBytes, Plan};
use llmsrv_gguf::TensorType;
use llmsrv_gpu::{
    LARGEST_HEAD, LARGEST_STATE_HEAD, MIXTURE_ROWS, experts_bytes, kept_bytes, matrix_bytes,
    part_bytes, pieces, vector_bytes,
};
use llmsrv_kernels::PagedKv;

use crate::{
    adapter::{Adapter, with_adapters},
    arch::{ArchConfig, BLOCK_SIZE, LayerConfig, Mixer},
    encoder::{EncoderConfig, EncoderWeights},
    ops::{Biased, ExpertNetworks, Holder, gpu::ON_THE_CPU},
    parts::{At, Part, Placement},
    source::{FileMatrix, Source},
    weights::Weights,
};

/// What the weights of a model take, part by part.
pub(crate) struct Sizes {
    part: Part,
    max_binding: u64,
    /// In the order in which they are loaded.
    weights: Vec<(Part, Size)>,
    /// Stacks of matrices of experts so far, and whether the next weights are of the last one.
    n_stacks: usize,
    in_stack: bool,
    /// Why GPUs do not compute some parts.
    refused: Vec<(Part, String)>,
}

/// What a matrix or vector takes.
struct Size {
    /// The number of its stack, if it is of one.
    stack: Option<usize>,
    /// On a GPU, piece by piece.
    gpu: Vec<u64>,
    /// In the memory of the machine.
    host: u64,
    /// In the file, if it is of no use there once it is on a GPU.
    file: u64,
}

/// What distinguishes one model from another.
#[derive(Clone, Copy)]
pub(crate) enum Config<'a> {
    /// Of a decoder.
    Decoder(&'a ArchConfig),
    /// Of an encoder.
    Encoder(&'a EncoderConfig),
}

/// What a layer needs beside its weights.
struct Needs {
    /// Heads and elements of a head of what it stores.
    kv: Option<(usize, usize)>,
    /// Heads and elements of a head of what attends to what is stored.
    query: Option<(usize, usize)>,
    /// Elements of its part of a recurrent state.
    state_len: usize,
    /// Hidden elements of its widest network.
    hidden: usize,
    /// Elements of the widest rows of its first part.
    heads: usize,
    /// Of its experts: how many a row takes, their hidden elements, and what they read.
    experts: Option<[usize; 3]>,
    /// Why GPUs do not compute it.
    refusal: Option<String>,
}

impl Config<'_> {
    /// Returns the positions that the model was trained for.
    pub(crate) fn context_length(&self) -> usize {
        match self {
            Config::Decoder(arch) => arch.context_length,
            Config::Encoder(config) => config.context_length,
        }
    }

    /// Returns whether inputs are computed whole, however long they are.
    pub(crate) fn is_bidirectional(&self) -> bool {
        match self {
            Config::Decoder(arch) => arch.bidirectional,
            Config::Encoder(_) => true,
        }
    }

    /// Returns the residual streams beside the first one, and the elements of a row of what all layers take from the
    /// tokens by themselves.
    fn beside(&self) -> (usize, usize) {
        match self {
            Config::Decoder(arch) => (
                arch.streams.map_or(0, |streams| streams.n - 1),
                arch.per_layer_input.unwrap_or(0) * arch.layers.len(),
            ),
            Config::Encoder(_) => (0, 0),
        }
    }

    fn width(&self) -> usize {
        match self {
            Config::Decoder(arch) => arch.width,
            Config::Encoder(config) => config.width,
        }
    }

    fn needs(&self) -> Vec<Needs> {
        match self {
            Config::Decoder(arch) => {
                let layers = arch.layers.iter();
                let needs = layers.map(|layer| Needs {
                    kv: (layer.stores_kv && !arch.bidirectional)
                        .then_some((layer.n_kv_heads, layer.head_dim)),
                    query: (layer.mixer.attends() && !arch.bidirectional)
                        .then_some((layer.n_heads, layer.head_dim)),
                    state_len: layer.mixer.state_len(),
                    hidden: layer.feed_forward.hidden(),
                    heads: layer.mixer_width(),
                    experts: layer.feed_forward.experts().map(|experts| {
                        let outer = experts.latent.unwrap_or(arch.width);
                        [experts.n_used, experts.width, outer]
                    }),
                    refusal: refusal(layer),
                });
                needs.collect()
            }
            Config::Encoder(config) => {
                let needs = (0..config.n_layers).map(|idx| Needs {
                    kv: None,
                    query: None,
                    state_len: 0,
                    hidden: config.hidden,
                    heads: config.width,
                    experts: config
                        .experts_of(idx)
                        .map(|experts| [experts.n_used, experts.width, config.width]),
                    refusal: refused_head(config.head_dim),
                });
                needs.collect()
            }
        }
    }
}

/// A model with the sizes of its weights.
pub(crate) struct Measured {
    layers: Vec<Needs>,
    width: usize,
    context_length: usize,
    /// Rows of a step, at most.
    step_rows: usize,
    sizes: Sizes,
    /// Residual streams beside the first one.
    n_more_streams: usize,
    /// Elements of a row of what all layers take from the tokens by themselves.
    inputs: usize,
    /// What each part takes on a GPU, and what of it the memory of the machine then needs no more.
    by_part: Vec<(Part, u64, u64)>,
    /// All tensors as they lie in memory, those that are only looked up among them.
    host_bytes: u64,
    /// Logits of a row.
    n_logits: usize,
    kv_type: TensorType,
}

impl Sizes {
    fn refuse(&mut self, reason: String) {
        if !self.refused.iter().any(|(part, _)| *part == self.part) {
            self.refused.push((self.part, reason));
        }
    }

    /// Returns the sizes of the pieces of memory that the weights of a GPU need, as [`llmsrv_gpu::Gpu::expect`] takes
    /// them.
    pub(crate) fn pieces(&self, placement: &Placement, gpu: usize) -> Vec<u64> {
        let there = self.weights.iter();
        let there = there.filter(|(part, _)| placement.of(*part) == At::Gpu(gpu));
        let mut together: Vec<(Option<Part>, u64)> = Vec::new();
        for stack in there
            .collect::<Vec<_>>()
            .chunk_by(|(_, a), (_, b)| a.stack.is_some() && a.stack == b.stack)
        {
            let sizes = stack.iter().flat_map(|(_, size)| size.gpu.iter().copied());
            let total = sizes.clone().sum::<u64>();
            let part = stack
                .first()
                .and_then(|(part, size)| size.stack.map(|_| *part));
            match (part, together.last_mut()) {
                (None, _) => together.extend(sizes.map(|size| (None, size))),
                // A kernel does not read all of it at once, wherever it lies.
                (Some(_), _) if total > self.max_binding => {
                    together.extend(sizes.map(|size| (None, size)));
                }
                // Stacks of a layer lie together as far as a kernel can read them.
                (Some(_), Some((last, size)))
                    if *last == part && *size + total <= self.max_binding =>
                {
                    *size += total;
                }
                (Some(_), _) => together.push((part, total)),
            }
        }
        pieces(together.into_iter().map(|(_, size)| size))
    }

    fn push(&mut self, size: Size) {
        let stack = self.in_stack.then_some(self.n_stacks);
        self.weights.push((self.part, Size { stack, ..size }));
    }

    fn refusal(&self, part: Part) -> Option<&str> {
        let found = self.refused.iter().find(|(of, _)| *of == part);
        found.map(|(_, reason)| reason.as_str())
    }
}

impl Holder for Sizes {
    type Matrix = ();
    type Vector = ();
    type Experts = ();

    fn begin_part(&mut self, part: Part) {
        self.part = part;
    }

    fn matrix(&mut self, source: FileMatrix) -> Result<(), ModelError> {
        let (name, dtype) = (source.tensor.name.clone(), source.dtype());
        let gpu = matrix_bytes(dtype, source.n_rows, source.n_cols, self.max_binding);
        if gpu.is_none() {
            self.refuse(format!(
                "tensor {name} is of type {dtype}, for which there is no kernel for GPUs"
            ));
        }
        let bytes = source.file_bytes() as u64;
        let blocks = bytes / (dtype.block_bytes() as u64).max(1);
        let size = Size {
            gpu: gpu.unwrap_or_default(),
            host: blocks.saturating_mul(dtype.resident_block_bytes() as u64),
            // Rows of the embedding are looked up there all the same.
            file: if source.is_looked_up() { 0 } else { bytes },
            stack: None,
        };
        self.push(size);
        Ok(())
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<(), ModelError> {
        let size = Size {
            gpu: vec![vector_bytes(values.len())],
            host: 4 * values.len() as u64,
            // So few that they are counted in both places.
            file: 0,
            stack: None,
        };
        self.push(size);
        Ok(())
    }

    fn stack(
        &mut self,
        matrices: Vec<(FileMatrix, Option<Vec<f32>>)>,
    ) -> Result<Vec<Biased<Sizes>>, ModelError> {
        (self.n_stacks, self.in_stack) = (self.n_stacks + 1, true);
        let made = matrices.into_iter().map(|(matrix, bias)| {
            self.matrix(matrix)?;
            let bias = bias.map(|bias| self.vector(bias)).transpose()?;
            Ok(((), bias))
        });
        let made = made.collect();
        self.in_stack = false;
        made
    }

    fn experts(&mut self, experts: &ExpertNetworks<'_, Sizes>) -> Result<Option<()>, ModelError> {
        self.push(Size {
            gpu: vec![experts_bytes(experts.networks.len())],
            host: 0,
            file: 0,
            stack: None,
        });
        Ok(None)
    }
}

impl Measured {
    /// Measures a model. `kv_type` is how the CPU stores keys and values, `max_binding` what the GPU reads of one buffer
    /// at most, `n_tokens` the longest text that it is loaded for.
    pub(crate) fn new(
        (source, adapters): (&Source, &[Adapter]),
        (config, n_vocab): (Config<'_>, usize),
        kv_type: TensorType,
        max_binding: u64,
        n_tokens: usize,
    ) -> Result<Measured, LoadError> {
        let mut sizes = Sizes {
            part: Part::Input,
            max_binding,
            weights: Vec::new(),
            n_stacks: 0,
            in_stack: false,
            refused: Vec::new(),
        };
        let n_logits = match config {
            Config::Decoder(arch) => {
                Weights::load(source, adapters, arch, n_vocab, &mut sizes)?;
                n_vocab
            }
            Config::Encoder(config) => {
                EncoderWeights::load(source, adapters, config, n_vocab, &mut sizes)?;
                0
            }
        };
        let layers = config.needs();
        for (idx, layer) in layers.iter().enumerate() {
            if let Some(reason) = &layer.refusal {
                sizes.refused.push((Part::Layer(idx), reason.clone()));
            }
        }
        let file = source.file();
        let tensors = file.header().tensors.iter();
        let host_bytes = tensors.fold(0, |sum: u64, tensor| {
            sum.saturating_add(tensor.resident_bytes())
        });
        let mut by_part: Vec<(Part, u64, u64)> = Vec::new();
        for (part, size) in &sizes.weights {
            let (on_gpu, moved) = (size.gpu.iter().sum::<u64>(), size.host.min(size.file));
            match by_part.last_mut() {
                Some((last, all, all_moved)) if last == part => {
                    *all += on_gpu;
                    *all_moved += moved;
                }
                _ => by_part.push((*part, on_gpu, moved)),
            }
        }
        let (n_more_streams, inputs) = config.beside();
        Ok(Measured {
            layers,
            n_more_streams,
            inputs,
            width: config.width(),
            context_length: config.context_length(),
            step_rows: if config.is_bidirectional() {
                n_tokens.max(STEP_ROWS)
            } else {
                STEP_ROWS
            },
            sizes,
            by_part,
            host_bytes: with_adapters(host_bytes, adapters),
            n_logits,
            kv_type,
        })
    }

    /// Returns the number of layers, the output counted as one.
    pub(crate) fn n_layers(&self) -> usize {
        self.layers.len() + 1
    }

    /// Returns the sizes of the weights.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns why GPUs compute no layer of the model, if that is so.
    pub(crate) fn refusal(&self) -> Option<&str> {
        let mut layers = (0..self.layers.len()).map(Part::Layer);
        let reasons: Option<Vec<&str>> = layers
            .by_ref()
            .map(|layer| self.sizes.refusal(layer))
            .collect();
        reasons.and_then(|reasons| reasons.first().copied())
    }

    /// Returns why parts that were meant for GPUs stay with the CPU: one line for each kind of reason.
    fn reasons(&self, placement: &Placement, split: &[usize]) -> Vec<String> {
        let first = self.n_layers().saturating_sub(split.iter().sum());
        let layer_of = |part: &Part| match part {
            Part::Layer(layer) | Part::Experts(layer) => Some(*layer),
            Part::Output => Some(self.layers.len()),
            Part::Input => None,
        };
        let refused = self.sizes.refused.iter();
        let refused = refused.filter(|(part, _)| placement.of(*part) == At::Host);
        let refused = refused.filter_map(|(part, reason)| Some((layer_of(part)?, reason)));
        let mut reasons: Vec<(String, BTreeSet<usize>)> = Vec::new();
        for (layer, reason) in refused.filter(|(layer, _)| *layer >= first) {
            // The first tensor stands for those of other layers.
            let same = |(other, _): &&mut (String, BTreeSet<usize>)| {
                let kind = |text: &str| text.split_once(" is ").map(|(_, kind)| kind.to_owned());
                other == reason || kind(other).is_some_and(|of| Some(of) == kind(reason))
            };
            match reasons.iter_mut().find(same) {
                Some((_, layers)) => {
                    layers.insert(layer);
                }
                None => reasons.push((reason.clone(), BTreeSet::from([layer]))),
            }
        }
        let line = |(reason, layers): (String, BTreeSet<usize>)| {
            let plural = if layers.len() == 1 { "" } else { "s" };
            format!("{reason} ({} layer{plural})", layers.len())
        };
        reasons.into_iter().map(line).collect()
    }

    /// Returns where parts lie if the last layers are shared out: so many to each GPU, in their order, the output the
    /// last of all. What no GPU computes stays with the CPU.
    pub(crate) fn placement(&self, split: &[usize], n_cpu_moe: usize) -> Placement {
        let mut next = self.n_layers().saturating_sub(split.iter().sum());
        let shares = split.iter().map(|n| {
            let first = next;
            next += n;
            first..next
        });
        self.placed(&shares.collect::<Vec<_>>(), n_cpu_moe)
    }

    /// As [`Measured::placement`], with the layers of each GPU.
    fn placed(&self, shares: &[Range<usize>], n_cpu_moe: usize) -> Placement {
        let n_layers = self.n_layers();
        let at = |layer: usize| shares.iter().position(|share| share.contains(&layer));
        let of = |layer: usize, part: Part| match at(layer) {
            Some(gpu) if self.sizes.refusal(part).is_none() => At::Gpu(gpu),
            _ => At::Host,
        };
        let layers = 0..n_layers - 1;
        let layers: Vec<At> = layers.map(|idx| of(idx, Part::Layer(idx))).collect();
        let experts = layers.iter().enumerate();
        let experts = experts.map(|(idx, layer)| match layer {
            At::Gpu(_) if idx < n_cpu_moe => At::Host,
            At::Gpu(_) => of(idx, Part::Experts(idx)),
            At::Host => At::Host,
        });
        Placement {
            input: layers.first().map_or(At::Host, |first| match first {
                At::Gpu(_) => of(0, Part::Input),
                At::Host => At::Host,
            }),
            experts: experts.collect(),
            output: of(n_layers - 1, Part::Output),
            layers,
        }
    }

    /// Returns what a model that lies so takes, on `n_gpus` GPUs.
    pub(crate) fn plan(&self, placement: &Placement, split: Vec<usize>) -> Plan {
        let n_gpus = split.len();
        let mut plan = Plan {
            n_layers: self.n_layers(),
            gpu_layers: vec![0; n_gpus],
            weights: PlacedBytes::host(self.host_bytes),
            kv_block: PlacedBytes::default(),
            states: PlacedBytes::default(),
            activations: PlacedBytes::default(),
            block_size: BLOCK_SIZE,
            context_length: self.context_length,
            on_cpu: self.reasons(placement, &split),
            split,
        };
        let layers = (0..self.layers.len()).map(Part::Layer);
        for part in layers.chain([Part::Output]) {
            if let At::Gpu(gpu) = placement.of(part)
                && let Some(n) = plan.gpu_layers.get_mut(gpu)
            {
                *n += 1;
            }
        }
        for (part, on_gpu, moved) in &self.by_part {
            if let At::Gpu(gpu) = placement.of(*part) {
                *plan.weights.gpu_mut(gpu) += on_gpu;
                plan.weights.host = plan.weights.host.saturating_sub(*moved);
            }
        }
        let on_host = PagedKv::new(&self.kv_shapes(placement, At::Host), self.kv_type);
        plan.kv_block.host = on_host.map_or(0, |kv| kv.block_bytes() as u64);
        for gpu in 0..n_gpus {
            let shapes = self.kv_shapes(placement, At::Gpu(gpu));
            let widths = shapes.iter().map(|(n, dim)| n * dim);
            let bytes = widths.filter_map(|width| kept_bytes(kv_type_on_gpu(self.kv_type), width));
            // Keys and values.
            *plan.kv_block.gpu_mut(gpu) = 2 * BLOCK_SIZE as u64 * bytes.sum::<u64>();
        }
        let state_bytes = |at| 4 * self.state_lens(placement, at).iter().sum::<usize>() as u64;
        plan.states.host = state_bytes(At::Host);
        for gpu in 0..n_gpus {
            *plan.states.gpu_mut(gpu) = state_bytes(At::Gpu(gpu));
            if plan.gpu_layers.get(gpu).is_some_and(|n| *n > 0) {
                *plan.activations.gpu_mut(gpu) = self.activation_bytes(placement, gpu);
            }
        }
        plan
    }

    /// Returns where each layer of the KV cache is.
    pub(crate) fn kv_places(&self, placement: &Placement) -> Vec<At> {
        let layers = self.layers.iter().enumerate();
        let storing = layers.filter(|(_, layer)| layer.kv.is_some());
        storing
            .map(|(idx, _)| placement.of(Part::Layer(idx)))
            .collect()
    }

    /// Returns heads and elements of a head of the layers of the KV cache in a place.
    pub(crate) fn kv_shapes(&self, placement: &Placement, at: At) -> Vec<(usize, usize)> {
        let shapes = self.layers.iter().filter_map(|layer| layer.kv);
        let placed = shapes.zip(self.kv_places(placement));
        let there = placed.filter(|(_, of)| *of == at);
        there.map(|(shape, _)| shape).collect()
    }

    /// Returns the elements of a recurrent state in each layer, 0 where the layer is in another place.
    pub(crate) fn state_lens(&self, placement: &Placement, at: At) -> Vec<usize> {
        let layers = self.layers.iter().enumerate();
        let lens = layers.map(|(idx, layer)| {
            if placement.of(Part::Layer(idx)) == at {
                layer.state_len
            } else {
                0
            }
        });
        lens.collect()
    }

    /// Returns what the rows of a step take on a GPU at most: some of the widest kind, some of each narrower one, each in
    /// all the sizes that it was ever needed in.
    fn activation_bytes(&self, placement: &Placement, gpu: usize) -> u64 {
        let rows = |n: usize, width: usize| 4 * (n as u64 * width as u64).next_power_of_two();
        let on_gpu = |part: Part| placement.of(part) == At::Gpu(gpu);
        let layers = self.layers.iter().enumerate();
        let layers = layers.filter(|(idx, _)| on_gpu(Part::Layer(*idx)));
        let layers: Vec<&Needs> = layers.map(|(_, layer)| layer).collect();
        let widest = |of: fn(&Needs) -> usize| {
            let widths = layers.iter().map(|layer| of(layer));
            rows(self.step_rows, widths.max().unwrap_or(0))
        };
        let hidden = widest(|layer| layer.hidden);
        let heads = widest(|layer| layer.heads);
        let stream = rows(self.step_rows, self.width);
        // Before and after they are mixed.
        let streams = 2 * self.n_more_streams as u64 * stream;
        let inputs = if on_gpu(Part::Input) {
            3 * rows(self.step_rows, self.inputs)
        } else {
            0
        };
        let logits = if on_gpu(Part::Output) {
            rows(LOGIT_ROWS, self.n_logits)
        } else {
            0
        };
        // Experts have rows for each that a row takes. Those of encoders are parts of their layers.
        let mixtures = self
            .layers
            .iter()
            .enumerate()
            .filter(|(idx, _)| on_gpu(Part::Layer(*idx)) && on_gpu(Part::Experts(*idx)));
        let mixtures = mixtures.filter_map(|(_, layer)| {
            let [n_used, hidden, outer] = layer.experts?;
            let pairs = n_used * self.step_rows.min(MIXTURE_ROWS);
            Some(2 * rows(pairs, hidden) + 2 * rows(pairs, outer))
        });
        let mixture = mixtures.max().unwrap_or(0);
        let parts = layers.iter().filter_map(|layer| layer.query);
        let parts = parts.map(|(n, dim)| part_bytes(n, dim, self.context_length));
        let parts = parts.max().filter(|bytes| *bytes > 0);
        let parts = parts.map_or(0, u64::next_power_of_two);
        2 * (3 * hidden + 6 * heads + 8 * stream + streams + inputs + logits + mixture + parts)
    }
}

/// Shares the last layers of a model out to GPUs of which each has so many bytes for it: to one where it fits, else to as
/// few as it fits on, or to all as far as their memory goes where that is wanted.
///
/// # Errors
///
/// [`LoadError::Gpu`] if GPUs compute no layer of it, or not even the output fits. Where a number of layers is asked for,
/// it is kept, whatever fits.
pub(crate) fn share_out(
    measured: &Measured,
    offload: &Offload,
    free_bytes: &[u64],
    n_tokens: usize,
) -> Result<Plan, LoadError> {
    let n_layers = measured.n_layers();
    let n_gpus = free_bytes.len();
    let room = Room {
        measured,
        n_cpu_moe: offload.n_cpu_moe,
        free_bytes,
        n_tokens,
    };
    if let Some(split) = &offload.split {
        return Ok(room.plan(split));
    }
    let wanted = offload.n_layers.map(|n| n.min(n_layers));
    if let (None, Some(reason)) = (wanted, measured.refusal()) {
        return Err(LoadError::Gpu(format!("{reason}; {ON_THE_CPU}")));
    }
    let range: Range<usize> = match wanted {
        Some(n) => n..n + 1,
        None => 1..n_layers + 1,
    };
    let main = offload.main_gpu.min(n_gpus.saturating_sub(1));
    let asked = wanted.filter(|n| *n < n_layers);
    let asked = asked.map(|n| format!("num_gpu is {n}, of {n_layers} layers"));
    let alone = |gpu: usize, n: usize| {
        let mut split = vec![0; n_gpus];
        if let Some(place) = split.get_mut(gpu) {
            *place = n;
        }
        split
    };
    for n in range.rev() {
        let others = (0..n_gpus).filter(|gpu| *gpu != main);
        let single = [main].into_iter().chain(others);
        let spread = offload.spread.then(|| room.spread(n));
        let splits = spread.into_iter();
        let splits = splits.chain(single.map(|gpu| alone(gpu, n)));
        let plans = splits.chain(room.filled(n)).map(|split| room.plan(&split));
        if let Some(mut plan) = plans.into_iter().find(|plan| room.fits(plan)) {
            let too_little = || room.too_little_for_all(n);
            let why = asked.or_else(|| (n < n_layers).then(too_little));
            let whole = why.into_iter().chain(room.asked_of_experts());
            plan.on_cpu = whole.chain(plan.on_cpu).collect();
            return Ok(plan);
        }
        if wanted.is_some() {
            // It is refused by who knows what others have.
            return Ok(room.plan(&room.spread(n)));
        }
    }
    let least = room.plan(&alone(main, 1));
    let free = free_bytes.get(main).copied().unwrap_or(0);
    Err(too_little(room.needed(&least, main), free))
}

/// A model and the GPUs it is to find room on.
struct Room<'a> {
    measured: &'a Measured,
    n_cpu_moe: usize,
    free_bytes: &'a [u64],
    n_tokens: usize,
}

impl Room<'_> {
    fn plan(&self, split: &[usize]) -> Plan {
        let placement = self.measured.placement(split, self.n_cpu_moe);
        self.measured.plan(&placement, split.to_vec())
    }

    /// Says why no more than the last `n` layers are on GPUs.
    fn too_little_for_all(&self, n: usize) -> String {
        let n_layers = self.measured.n_layers();
        let all = self.plan(&self.spread(n_layers)).needed(self.n_tokens);
        let (needed, free) = (
            all.gpus().iter().sum::<u64>(),
            self.free_bytes.iter().sum::<u64>(),
        );
        format!(
            "{n} of {n_layers} layers fit: all need {needed} bytes of GPU memory, of which models may take {free}"
        )
    }

    /// Says that experts were asked to stay with the CPU.
    fn asked_of_experts(&self) -> Option<String> {
        let mut layers = self.measured.layers.iter().take(self.n_cpu_moe);
        let has_experts = layers.any(|layer| layer.experts.is_some());
        has_experts.then(|| format!("num_cpu_moe is {}", self.n_cpu_moe))
    }

    fn needed(&self, plan: &Plan, gpu: usize) -> u64 {
        plan.needed(self.n_tokens).gpu(gpu)
    }

    fn fits(&self, plan: &Plan) -> bool {
        let mut gpus = self.free_bytes.iter().enumerate();
        gpus.all(|(gpu, free)| self.needed(plan, gpu) <= *free)
    }

    /// Gives each GPU as large a part of the last `n` layers as its memory is of that of all, as nearly as layers allow.
    fn spread(&self, n: usize) -> Vec<usize> {
        let n_layers = self.measured.n_layers();
        let first = n_layers - n;
        // What the first of them take together.
        let sizes: Vec<u128> = (first..=n_layers)
            .map(|end| {
                let plan = self.plan_of(0, first..end);
                // Rows of a step take as much on each GPU.
                let size = self.needed(&plan, 0) - plan.activations.gpu(0);
                u128::from(size)
            })
            .collect();
        let total = sizes.last().copied().unwrap_or(0);
        let all: u128 = self.free_bytes.iter().map(|free| u128::from(*free)).sum();
        let (mut before, mut taken) = (0, 0_u128);
        let split = self.free_bytes.iter().map(|free| {
            taken += u128::from(*free);
            let target = total * taken / all.max(1);
            let ends = sizes.iter().enumerate().skip(before);
            let end = ends.min_by_key(|(_, size)| size.abs_diff(target));
            let end = end.map_or(before, |(end, _)| end);
            end - std::mem::replace(&mut before, end)
        });
        split.collect()
    }

    /// Fills one GPU after the other with the last `n` layers; `None` if some are left.
    fn filled(&self, n: usize) -> Option<Vec<usize>> {
        let n_layers = self.measured.n_layers();
        let mut next = n_layers - n;
        let split = self.free_bytes.iter().enumerate().map(|(gpu, free)| {
            let first = next;
            let fits = |end: usize| self.needed(&self.plan_of(gpu, first..end), gpu) <= *free;
            while next < n_layers && fits(next + 1) {
                next += 1;
            }
            next - first
        });
        let split = split.collect();
        (next == n_layers).then_some(split)
    }

    /// Returns what these layers alone take on a GPU.
    fn plan_of(&self, gpu: usize, layers: Range<usize>) -> Plan {
        let mut shares = vec![0..0; self.free_bytes.len()];
        if let Some(share) = shares.get_mut(gpu) {
            *share = layers;
        }
        let placement = self.measured.placed(&shares, self.n_cpu_moe);
        self.measured.plan(&placement, vec![0; shares.len()])
    }
}

/// Returns how GPUs keep keys and values where the CPU keeps them in a type.
pub(crate) fn kv_type_on_gpu(kv_type: TensorType) -> TensorType {
    match kv_type {
        TensorType::Q8_0 => TensorType::Q8_0,
        _ => TensorType::F16,
    }
}

/// The error of a GPU without memory even for what was decided.
pub(crate) fn too_little(needed: u64, free: u64) -> LoadError {
    LoadError::Gpu(format!(
        "it has {free} bytes of memory free, {needed} are needed; set num_gpu to fewer layers, end what uses the GPU, \
         or {ON_THE_CPU}"
    ))
}

/// Returns why GPUs do not compute a layer, if they do not.
fn refusal(layer: &LayerConfig) -> Option<String> {
    match layer.mixer {
        Mixer::DeltaNet(net) if net.head_dim > LARGEST_STATE_HEAD => {
            Some(format!("states of heads of {} elements", net.head_dim))
        }
        mixer if mixer.attends() => refused_head(layer.head_dim),
        _ => None,
    }
}

fn refused_head(head_dim: usize) -> Option<String> {
    let is_refused = !head_dim.is_multiple_of(2) || head_dim > LARGEST_HEAD;
    is_refused.then(|| format!("attention heads of {head_dim} elements"))
}

/// Rows of a step, as the engine makes them.
const STEP_ROWS: usize = 512;
/// Rows of a step of which logits are wanted, at most but for tests.
const LOGIT_ROWS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Stacks of `n` matrices of 150 MiB for the experts of each layer.
    fn sizes(layers: &[&[usize]]) -> Sizes {
        let mut sizes = Sizes {
            part: Part::Input,
            max_binding: 1024 * MIB,
            weights: Vec::new(),
            n_stacks: 0,
            in_stack: false,
            refused: Vec::new(),
        };
        for (idx, stacks) in layers.iter().enumerate() {
            sizes.part = Part::Experts(idx);
            for n in *stacks {
                (sizes.n_stacks, sizes.in_stack) = (sizes.n_stacks + 1, true);
                for _ in 0..*n {
                    sizes.push(Size {
                        gpu: vec![150 * MIB],
                        host: 0,
                        file: 0,
                        stack: None,
                    });
                }
                sizes.in_stack = false;
            }
        }
        sizes
    }

    #[test]
    fn stacks_of_a_layer_lie_together_as_far_as_a_kernel_reads() {
        let placement = |n| Placement {
            input: At::Host,
            layers: vec![At::Gpu(0); n],
            experts: vec![At::Gpu(0); n],
            output: At::Host,
        };
        let pieces = |layers: &[&[usize]]| -> Vec<u64> {
            let pieces = sizes(layers).pieces(&placement(layers.len()), 0);
            pieces.iter().map(|bytes| bytes / MIB).collect()
        };
        // Gates, what they multiply, and the matrices back: one piece for each layer.
        assert_eq!(pieces(&[&[2, 2, 2], &[2, 2, 2]]), [900, 900]);
        // All would be too much for a kernel, two of them are not.
        assert_eq!(pieces(&[&[3, 3, 3]]), [900, 450]);
        // One alone is too much: its matrices lie as others do.
        assert_eq!(pieces(&[&[7, 2]]), [[150; 7].as_slice(), &[300]].concat());
    }
}
