//! Mixtures of experts, whose rows choose on the device: nothing is read by the host, so it waits for nothing.

use super::{
    Function, Gpu, Kernels, LANES, Matrix, OUTPUTS, ROWS, Tensor, Vector, groups, mismatch,
    products::{Factor, GATED, Input, NO_BIAS, PARAMS, WORDS, set_tail},
    room_of,
};
use crate::{
    Error,
    recorder::{Access, Region, Work},
};

/// How rows choose among experts, and how much those count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Experts that a row takes.
    pub n_used: usize,
    /// How scores become probabilities.
    pub gating: Gating,
    /// Groups that experts come in, one behind the other, and how many of these a row chooses from: those whose two best
    /// experts are the best.
    pub groups: Option<(usize, usize)>,
    /// The probabilities of the experts of a row are made to sum to one.
    pub normalize: bool,
    /// Multiplies them then.
    pub scale: f32,
    /// They multiply what experts read, not what they give.
    pub weigh_input: bool,
}

/// How the scores of experts become probabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// The softmax over all experts.
    Softmax,
    /// Each by itself.
    Sigmoid,
    /// The softmax over those of about the same score that were not chosen before; `groups`, `normalize`, `scale` and a
    /// bias mean nothing.
    SparseMixer,
}

/// The network of one expert: `down(function(gate(x)) * up(x))`, or `down(function(up(x)))` without a gate.
#[derive(Clone, Copy, Debug)]
pub struct Expert<'a> {
    /// To what the function is of, with its bias.
    pub gate: Option<(&'a Matrix, Option<&'a Vector>)>,
    /// To what it multiplies.
    pub up: (&'a Matrix, Option<&'a Vector>),
    /// Back.
    pub down: (&'a Matrix, Option<&'a Vector>),
}

/// All experts of a layer.
#[derive(Debug)]
pub struct Experts {
    routing: Routing,
    function: Function,
    len: usize,
    gate: Option<Stack>,
    up: Stack,
    down: Stack,
    /// What distinguishes one expert from another: see [`ENTRY`].
    table: Region,
    is_biased: bool,
    is_scaled: bool,
}

/// The same matrix of all experts.
#[derive(Clone, Debug)]
struct Stack {
    kernels: Kernels,
    n_rows: usize,
    n_cols: usize,
    /// From the first byte of all to the last.
    weights: Region,
    bias: Option<Region>,
    /// Where the codebook of the first one is in `weights`, in bytes.
    codebook: u32,
    /// Where it is in an entry of the table.
    word: u32,
}

/// The pairs of rows and experts of a step, on the device.
struct Pairs {
    n_rows: usize,
    n: usize,
    n_tiles: usize,
    /// Pairs of a tile, at most.
    tile: usize,
    chosen: Tensor,
    factors: Tensor,
    tiles: Tensor,
    list: Tensor,
}

/// Returns the bytes that so many experts take on a device beside their matrices.
pub fn experts_bytes(n_experts: usize) -> u64 {
    room_of((4 * ENTRY * n_experts) as u64, 0)
}

/// Rows that go through experts together; more do so in turns.
pub const MIXTURE_ROWS: usize = 512;

impl Gpu {
    /// Puts what distinguishes experts from each other onto the device: `selection_bias` is added to the probability of
    /// each where rows choose, not where they weigh, and what an expert gives is multiplied with its element of `scales`.
    ///
    /// `None` if rows cannot choose on the device: there are too many experts, they are of several shapes or types, or the
    /// matrices of one kind do not lie in what a kernel binds at once. The room is taken all the same.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or a failure of the device.
    pub fn experts(
        &mut self,
        experts: &[Expert<'_>],
        routing: Routing,
        function: Function,
        selection_bias: Option<&[f32]>,
        scales: Option<&[f32]>,
    ) -> Result<Option<Experts>, Error> {
        let n_experts = experts.len();
        let mut table = vec![0_u32; ENTRY * n_experts];
        let mut write = |word: usize, values: &mut dyn Iterator<Item = u32>| {
            for (entry, value) in table.chunks_exact_mut(ENTRY).zip(values) {
                if let Some(place) = entry.get_mut(word) {
                    *place = value;
                }
            }
        };
        let gates = experts.iter().map(|expert| expert.gate);
        let gates: Option<Vec<Factor<'_>>> = gates.collect();
        let ups: Vec<Factor<'_>> = experts.iter().map(|expert| expert.up).collect();
        let downs: Vec<Factor<'_>> = experts.iter().map(|expert| expert.down).collect();
        let mut stack = |factors: &[Factor<'_>], word: usize| {
            let stack = self.stack(factors, word)?;
            let bias_start = stack.bias.map_or(0, |bias| bias.start);
            let weights = factors.iter().filter_map(|(matrix, _)| {
                let (_, region) = matrix.parts.first()?;
                Some((region.start - stack.weights.start) as u32)
            });
            write(word, &mut { weights });
            let biases = factors.iter().filter_map(|(_, bias)| *bias);
            let biases = biases.map(|bias| ((bias.region.start - bias_start) / 4) as u32);
            write(word + 1, &mut { biases });
            let scales = factors.iter().map(|(matrix, _)| matrix.scale.to_bits());
            write(word + 2, &mut { scales });
            Some(stack)
        };
        let has_gates = experts.iter().any(|expert| expert.gate.is_some());
        let gate = gates.map(|gates| stack(&gates, GATE));
        let (up, down) = (stack(&ups, UP), stack(&downs, DOWN));
        for (word, values) in [(BIAS, selection_bias), (SCALE, scales)] {
            let values = values.unwrap_or_default().iter();
            write(word, &mut values.map(|value| value.to_bits()));
        }
        let region = self.place(bytemuck::cast_slice(&table), &[])?;
        let gate = match gate {
            Some(None) => return Ok(None),
            None if has_gates => return Ok(None),
            Some(Some(gate)) => Some(gate),
            None => None,
        };
        let (Some(up), Some(down)) = (up, down) else {
            return Ok(None);
        };
        let width = (up.n_rows, up.n_cols);
        let fits = gate
            .as_ref()
            .is_none_or(|gate| (gate.n_rows, gate.n_cols) == width)
            && (down.n_cols, down.n_rows) == width
            && (1..=n_experts.min(MOST_USED)).contains(&routing.n_used)
            && n_experts <= MOST_EXPERTS
            && routing.groups.is_none_or(|(n, n_used)| {
                (1..=MOST_GROUPS).contains(&n) && n_experts.is_multiple_of(n) && n_used <= n
            })
            && selection_bias.is_none_or(|list| list.len() == n_experts)
            && scales.is_none_or(|list| list.len() == n_experts);
        let experts = Experts {
            routing,
            function,
            len: n_experts,
            gate,
            up,
            down,
            table: region,
            is_biased: selection_bias.is_some(),
            is_scaled: scales.is_some(),
        };
        Ok((fits && self.rows_at_once(&experts) > 0).then_some(experts))
    }

    /// Sends every row through the experts that it chooses by `scores`, `[rows, experts]`, and sums what they give, by
    /// ascending expert.
    ///
    /// # Errors
    /// As [`Gpu::rows`].
    pub fn mixture(
        &mut self,
        x: &Tensor,
        scores: &Tensor,
        experts: &Experts,
    ) -> Result<Tensor, Error> {
        let fits = x.width == experts.up.n_cols
            && scores.width == experts.len
            && scores.n_rows == x.n_rows;
        if !fits {
            return Err(mismatch("a mixture of experts"));
        }
        let out = self.tensor(x.n_rows, experts.down.n_rows)?;
        let at_once = self.rows_at_once(experts).max(1);
        for first in (0..x.n_rows).step_by(at_once) {
            let rows = first..x.n_rows.min(first + at_once);
            let (x, scores) = (x.part(rows.clone()), scores.part(rows.clone()));
            self.mix(&out.part(rows), &x, &scores, experts)?;
        }
        Ok(out)
    }

    /// Returns how many rows may go through experts together: whole multiples of what can be bound, as few bytes as one
    /// binding may have; 0 if that is too few.
    fn rows_at_once(&self, experts: &Experts) -> usize {
        let Stack { n_rows, n_cols, .. } = experts.up;
        let row_bytes = 4 * experts.routing.n_used * n_rows.max(n_cols).max(1);
        let most = self.recorder.max_binding() as usize / row_bytes;
        most.min(MIXTURE_ROWS) / LANES * LANES
    }

    fn mix(
        &mut self,
        out: &Tensor,
        x: &Tensor,
        scores: &Tensor,
        experts: &Experts,
    ) -> Result<(), Error> {
        let pairs = self.choose(scores, experts)?;
        let table = Access::Read(experts.table);
        let routing = &experts.routing;
        let mut share = routing.n_used;
        let weighed;
        let mut input = x;
        if routing.weigh_input {
            let rows = self.tensor(pairs.n, x.width)?;
            let bindings = [
                rows.write(),
                x.read(),
                Access::None,
                pairs.factors.read(),
                Access::None,
                Access::None,
            ];
            self.of_pairs("weigh_pairs", &bindings, (&rows, &pairs), experts)?;
            (weighed, share) = (rows, 1);
            input = &weighed;
        }
        let hidden = self.hidden(input, &pairs, share, experts)?;
        let given = self.tensor(pairs.n, out.width)?;
        let hidden = &mut Input::new(&hidden);
        self.products_of(&given, hidden, &pairs, (1, experts), &[&experts.down], 0)?;
        let bindings = [
            out.write(),
            given.read(),
            pairs.chosen.read(),
            pairs.factors.read(),
            Access::None,
            table,
        ];
        self.of_pairs("sum_pairs", &bindings, (out, &pairs), experts)
    }

    /// Computes what the networks have between their matrices, for each pair.
    fn hidden(
        &mut self,
        x: &Tensor,
        pairs: &Pairs,
        share: usize,
        experts: &Experts,
    ) -> Result<Tensor, Error> {
        let (up, with) = (&experts.up, (share, experts));
        let x = &mut Input::new(x);
        let mut hidden = self.tensor(pairs.n, up.n_rows)?;
        let Some(gate) = &experts.gate else {
            self.products_of(&hidden, x, pairs, with, &[up], 0)?;
            self.activate(&mut hidden, experts.function)?;
            return Ok(hidden);
        };
        let near = gate.kernels == up.kernels && self.span_of(&[gate, up]).is_some();
        if near {
            self.products_of(&hidden, x, pairs, with, &[gate, up], GATED)?;
            return Ok(hidden);
        }
        let other = self.tensor(pairs.n, up.n_rows)?;
        self.products_of(&hidden, x, pairs, with, &[gate], 0)?;
        self.products_of(&other, x, pairs, with, &[up], 0)?;
        self.gated(&mut hidden, &other, experts.function)?;
        Ok(hidden)
    }

    /// Lets rows choose.
    fn choose(&mut self, scores: &Tensor, experts: &Experts) -> Result<Pairs, Error> {
        let routing = &experts.routing;
        let n_rows = scores.n_rows;
        let n = n_rows * routing.n_used;
        // Few rows seldom share an expert: each pair is computed alone, without being sorted.
        let is_alone = n_rows <= ROWS;
        let (tile, n_tiles) = if is_alone {
            (1, n)
        } else {
            (ROWS, n / ROWS + n.min(experts.len))
        };
        let mut made = self.tensors(n, &[1, 1, 1])?.into_iter();
        let (Some(chosen), Some(factors), Some(list)) = (made.next(), made.next(), made.next())
        else {
            return Err(mismatch("a mixture of experts"));
        };
        let pairs = Pairs {
            n_rows,
            n,
            n_tiles,
            tile,
            chosen,
            factors,
            tiles: self.tensor(n_tiles, 4)?,
            list,
        };
        let bindings = [
            pairs.chosen.write(),
            pairs.factors.write(),
            pairs.tiles.write(),
            pairs.list.write(),
            scores.read(),
            Access::Read(experts.table),
        ];
        let params = params(experts, &pairs, 0);
        let [across, down] = groups(n_rows);
        let work = (n_rows * experts.len * experts.len) as u64;
        self.recorder.dispatch(
            "choose_experts",
            &bindings,
            &params,
            [across, down, 1],
            work,
        )?;
        if !is_alone {
            let bindings = [
                pairs.chosen.read(),
                Access::None,
                pairs.tiles.write(),
                pairs.list.write(),
            ];
            let work = (n * experts.len) as u64;
            self.recorder
                .dispatch("sort_pairs", &bindings, &params, [1, 1, 1], work)?;
        }
        Ok(pairs)
    }

    /// Records the products of all pairs with matrices of their experts: of one, or, with `GATED`, of a gate and what it
    /// multiplies. `share` pairs read the same row.
    fn products_of(
        &mut self,
        out: &Tensor,
        x: &mut Input<'_>,
        pairs: &Pairs,
        (share, experts): (usize, &Experts),
        stacks: &[&Stack],
        flags: u32,
    ) -> Result<(), Error> {
        let (Some(first), Some((weights, bias))) = (stacks.first(), self.span_of(stacks)) else {
            return Err(mismatch("a product"));
        };
        let mut words = [0; PARAMS];
        for (part, stack) in words.chunks_exact_mut(WORDS).zip(stacks) {
            let bias = bias
                .zip(stack.bias)
                .map_or(NO_BIAS, |(all, own)| ((own.start - all.start) / 4) as u32);
            part.copy_from_slice(&[
                stack.n_rows as u32,
                (stack.weights.start - weights.start) as u32,
                bias,
                0,
                out.width as u32,
                1_f32.to_bits(),
            ]);
        }
        let codebook = (first.weights.start - weights.start) as u32 + first.codebook;
        let input = self.input(x, first.kernels)?;
        let tail = [
            first.n_cols as u32,
            pairs.n as u32,
            input.extra.unwrap_or(codebook),
            flags | EXPERTS,
            0,
            experts.function as u32,
            share as u32,
            first.word,
        ];
        set_tail(&mut words, &tail);
        let bindings = [
            Access::Write(out.region),
            Access::Read(weights),
            Access::Read(input.region),
            bias.map_or(Access::None, Access::Read),
            pairs.tiles.read(),
            pairs.list.read(),
            Access::Read(experts.table),
            input.words(),
        ];
        let [one, several] = first.kernels.few;
        let kernel = if pairs.tile == 1 { one } else { several };
        let n_out: usize = stacks.iter().map(|stack| stack.n_rows).sum();
        let [across, down] = groups(n_out.div_ceil(OUTPUTS));
        let grid = [across, down, pairs.n_tiles as u32];
        // No more experts are read than there are pairs.
        let n_read = pairs.n.min(experts.len) as u64;
        let all: u64 = stacks.iter().map(|stack| stack.weights.bytes).sum();
        let work = Work::new(
            (n_out * first.n_cols) as u64 * pairs.n as u64,
            all / experts.len.max(1) as u64 * n_read + input.bytes + out.bytes(),
        );
        self.recorder
            .dispatch(kernel, &bindings, &words, grid, work)
    }

    /// Records a kernel with a lane for each element of `x`.
    fn of_pairs(
        &mut self,
        kernel: &'static str,
        bindings: &[Access],
        (x, pairs): (&Tensor, &Pairs),
        experts: &Experts,
    ) -> Result<(), Error> {
        let n = x.n_elements();
        let [across, down] = groups(n.div_ceil(LANES));
        let params = params(experts, pairs, x.width);
        let work = (n * experts.routing.n_used) as u64;
        self.recorder
            .dispatch(kernel, bindings, &params, [across, down, 1], work)
    }

    /// Returns how the same matrix of all experts lies, if one kernel can read all of them.
    fn stack(&self, factors: &[Factor<'_>], word: usize) -> Option<Stack> {
        let (first, _) = factors.first()?;
        let shape = |matrix: &Matrix| (matrix.kernels, matrix.n_rows, matrix.n_cols);
        let regions = factors.iter().map(|(matrix, _)| match matrix.parts[..] {
            [(_, region)] if shape(matrix) == shape(first) => Some(region),
            _ => None,
        });
        let regions = regions.collect::<Option<Vec<Region>>>()?;
        let biases = factors.iter().filter_map(|(_, bias)| *bias);
        let biases: Vec<&Vector> = biases.collect();
        let bias = match biases.len() {
            0 => None,
            n if n == factors.len() && biases.iter().all(|bias| bias.len == first.n_rows) => {
                let regions: Vec<Region> = biases.iter().map(|bias| bias.region).collect();
                Some(self.span(&regions)?)
            }
            _ => return None,
        };
        let weights = self.span(&regions)?;
        let (_, own) = first.parts.first()?;
        let rows = (first.n_rows * first.row_bytes).next_multiple_of(4);
        Some(Stack {
            kernels: first.kernels,
            n_rows: first.n_rows,
            n_cols: first.n_cols,
            weights,
            bias,
            codebook: (own.start - weights.start) as u32 + rows as u32,
            word: word as u32,
        })
    }

    /// Returns what holds the matrices and the biases of stacks, if one kernel can read all of them.
    fn span_of(&self, stacks: &[&Stack]) -> Option<(Region, Option<Region>)> {
        let weights: Vec<Region> = stacks.iter().map(|stack| stack.weights).collect();
        let biases: Vec<Region> = stacks.iter().filter_map(|stack| stack.bias).collect();
        let bias = match biases[..] {
            [] => None,
            _ => Some(self.span(&biases)?),
        };
        Some((self.span(&weights)?, bias))
    }
}

/// Returns the parameters of the kernels of `experts.wgsl`.
fn params(experts: &Experts, pairs: &Pairs, width: usize) -> [u32; 10] {
    let routing = &experts.routing;
    let (n_groups, n_groups_used) = routing.groups.unwrap_or((0, 0));
    let flags = [
        (NORMALIZE, routing.normalize),
        (BIASED, experts.is_biased),
        (ALONE, pairs.tile == 1),
        (SCALED, experts.is_scaled),
        (WEIGHED, !routing.weigh_input),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
    [
        pairs.n_rows as u32,
        experts.len as u32,
        routing.n_used as u32,
        flags.fold(0, |all, (flag, _)| all | flag),
        routing.gating as u32,
        n_groups as u32,
        n_groups_used as u32,
        routing.scale.to_bits(),
        width as u32,
        pairs.n_tiles as u32,
    ]
}

// As in `product.wgsl` and `experts.wgsl`.
const EXPERTS: u32 = 4;
const NORMALIZE: u32 = 1;
const BIASED: u32 = 2;
const ALONE: u32 = 4;
const SCALED: u32 = 8;
const WEIGHED: u32 = 16;
/// Words of an expert in the table: for each of its matrices where it begins in its stack (in bytes), where its bias does
/// (in words), and its factor; then what is added to its probability, and what multiplies what it gives.
const ENTRY: usize = 12;
const GATE: usize = 0;
const UP: usize = 3;
const DOWN: usize = 6;
const BIAS: usize = 9;
const SCALE: usize = 10;
/// As many as the kernels have room for.
const MOST_EXPERTS: usize = 1024;
const MOST_USED: usize = 128;
const MOST_GROUPS: usize = 128;
