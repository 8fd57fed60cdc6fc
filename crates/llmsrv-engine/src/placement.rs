//! Where the memory of a model is: in the machine, on GPUs, or partly here and partly there.

/// Bytes in the memory of the machine, and in that of each GPU.
#[derive(Clone, Debug, Default)]
pub struct PlacedBytes {
    /// In the memory of the machine.
    pub host: u64,
    /// In that of the GPUs, by their number; those behind the last one have none.
    gpus: Vec<u64>,
}

/// What of a model is on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuShare {
    /// Layers, of which the output is the last one.
    pub n_layers: usize,
    /// Memory of the weights, in bytes.
    pub weight_bytes: u64,
    /// Memory of one KV block, in bytes.
    pub kv_block_bytes: usize,
    /// Memory of one recurrent state, in bytes.
    pub state_bytes: usize,
}

/// Which layers of a model GPUs are to compute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// So many, from the end, where the output is the last one; `None` = as many as fit.
    pub n_layers: Option<usize>,
    /// The experts of so many layers, from the first one on, stay with the CPU.
    pub n_cpu_moe: usize,
    /// The GPU that is tried first for a model that fits on one.
    pub main_gpu: usize,
    /// A model is spread over all GPUs, even where one would do.
    pub spread: bool,
    /// What was decided: layers of each GPU, in the order of the model. It wins over `n_layers`.
    pub split: Option<Vec<usize>>,
}

/// What a model will take once it is loaded as decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Layers of the model, the output among them.
    pub n_layers: usize,
    /// For [`Offload::split`].
    pub split: Vec<usize>,
    /// Layers that each GPU really computes: some have parts for which there is no kernel.
    pub gpu_layers: Vec<usize>,
    /// Of the weights.
    pub weights: PlacedBytes,
    /// Of a KV block.
    pub kv_block: PlacedBytes,
    /// Of a recurrent state.
    pub states: PlacedBytes,
    /// Of the rows of a step.
    pub activations: PlacedBytes,
    /// Tokens in a KV block.
    pub block_size: usize,
    /// Positions the model was trained for.
    pub context_length: usize,
    /// Why the CPU computes a part of it, one line for each kind of reason.
    pub on_cpu: Vec<String>,
}

impl Offload {
    /// Returns whether GPUs are to compute nothing.
    pub fn is_nothing(&self) -> bool {
        match &self.split {
            Some(split) => split.iter().all(|n| *n == 0),
            None => self.n_layers == Some(0),
        }
    }
}

impl PlacedBytes {
    /// Returns bytes in the memory of the machine.
    pub fn host(bytes: u64) -> PlacedBytes {
        PlacedBytes {
            host: bytes,
            gpus: Vec::new(),
        }
    }

    /// Returns the bytes on a GPU.
    pub fn gpu(&self, gpu: usize) -> u64 {
        self.gpus.get(gpu).copied().unwrap_or(0)
    }

    /// Returns the bytes on a GPU, to be changed.
    pub fn gpu_mut(&mut self, gpu: usize) -> &mut u64 {
        if self.gpus.len() <= gpu {
            self.gpus.resize(gpu + 1, 0);
        }
        &mut self.gpus[gpu]
    }

    /// Returns the bytes on each GPU.
    pub fn gpus(&self) -> &[u64] {
        &self.gpus
    }

    /// Returns the bytes of all places together.
    pub fn total(&self) -> u64 {
        let gpus = self.gpus.iter();
        gpus.fold(self.host, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns whether there is room for it, place by place.
    pub fn fits(&self, room: &PlacedBytes) -> bool {
        self.minus(room).total() == 0
    }

    /// Returns how often `part` is in it, place by place: as often as in the place that has least of it. What takes
    /// nothing is there without end.
    pub fn count(&self, part: &PlacedBytes) -> usize {
        let places = (0..part.gpus.len()).map(|gpu| (self.gpu(gpu), part.gpu(gpu)));
        let places = places.chain([(self.host, part.host)]);
        let counts = places.filter_map(|(all, part)| all.checked_div(part));
        counts
            .min()
            .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// Returns so many times as much.
    #[must_use]
    pub fn times(&self, n: u64) -> PlacedBytes {
        self.map(|bytes| bytes.saturating_mul(n))
    }

    /// Returns what both are together, place by place.
    #[must_use]
    pub fn plus(&self, other: &PlacedBytes) -> PlacedBytes {
        self.zip(other, u64::saturating_add)
    }

    /// Returns what is left without `other`, place by place, and nowhere less than nothing.
    #[must_use]
    pub fn minus(&self, other: &PlacedBytes) -> PlacedBytes {
        self.zip(other, u64::saturating_sub)
    }

    /// Returns the larger of both, place by place.
    #[must_use]
    pub fn max(&self, other: &PlacedBytes) -> PlacedBytes {
        self.zip(other, u64::max)
    }

    fn map(&self, of: impl Fn(u64) -> u64) -> PlacedBytes {
        PlacedBytes {
            host: of(self.host),
            gpus: self.gpus.iter().map(|bytes| of(*bytes)).collect(),
        }
    }

    fn zip(&self, other: &PlacedBytes, of: impl Fn(u64, u64) -> u64) -> PlacedBytes {
        let n = self.gpus.len().max(other.gpus.len());
        PlacedBytes {
            host: of(self.host, other.host),
            gpus: (0..n)
                .map(|gpu| of(self.gpu(gpu), other.gpu(gpu)))
                .collect(),
        }
    }
}

impl PartialEq for PlacedBytes {
    fn eq(&self, other: &PlacedBytes) -> bool {
        self.fits(other) && other.fits(self)
    }
}

impl Eq for PlacedBytes {}

impl Plan {
    /// Returns what the model takes with the keys and values of so many tokens.
    pub fn needed(&self, n_tokens: usize) -> PlacedBytes {
        let n_blocks = n_tokens.div_ceil(self.block_size.max(1)) as u64;
        self.weights
            .plus(&self.kv_block.times(n_blocks))
            .plus(&self.states)
            .plus(&self.activations)
    }
}
