//! Recurrent states of sequences, and the layers that have them.

use super::{Gpu, LANES, MOST_GROUPS, Scratch, Tensor, Vector, groups, mismatch, unsupported};
use crate::{
    Error,
    recorder::{Access, Region, Work},
};

/// The states of all sequences: slots for each layer.
#[derive(Debug)]
pub struct States {
    n_slots: usize,
    /// Elements of a slot in each layer, and the memory of all slots.
    layers: Vec<(usize, Option<Region>)>,
}

/// Rows of a sequence, and the slot of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The slot.
    pub slot: u32,
    /// The first row.
    pub first: u32,
    /// Number of rows.
    pub n_rows: u32,
}

/// Stretches that are computed at the same time, and the copies from slot to slot that follow.
pub type Round = (Vec<Stretch>, Vec<(u32, u32)>);

/// What the rows of a step do to states, on the device. Sequences are cut where their state is to be kept.
#[derive(Debug)]
pub struct Stretches {
    rounds: Vec<OnDevice>,
}

#[derive(Debug)]
struct OnDevice {
    n_stretches: usize,
    n_rows: usize,
    table: Scratch,
    /// Copies from slot to slot behind it.
    saves: Vec<(u32, u32)>,
}

/// The part of a slot that a kernel changes: its first element, and how many.
type Part = (usize, usize);

/// A convolution of each channel with its last inputs.
#[derive(Clone, Copy, Debug)]
pub struct ShortConv<'a> {
    /// `[taps][channels]`; the last tap meets the row itself.
    pub taps: &'a Vector,
    /// `[channels]`.
    pub bias: Option<&'a Vector>,
    /// The results go through `x * sigmoid(x)`.
    pub silu: bool,
}

/// A gated delta rule (<https://arxiv.org/abs/2412.06464>).
#[derive(Clone, Copy, Debug)]
pub struct DeltaRule<'a> {
    /// Heads of queries and keys; divides `n_value_heads`.
    pub n_key_heads: usize,
    /// Heads of values; each has a state, `[elements of a key][elements of a value]`.
    pub n_value_heads: usize,
    /// Elements of a query, a key and a value; at most [`super::LARGEST_STATE_HEAD`].
    pub head_dim: usize,
    /// Value heads `h, h + n_key_heads, …` belong to key head `h`; else consecutive ones do.
    pub interleaved: bool,
    /// How fast each value head forgets; below 0.
    pub decay: &'a Vector,
    /// Added to what decides how much a row makes each value head forget.
    pub decay_bias: &'a Vector,
    /// Added to the sum of squares of queries and keys.
    pub eps: f32,
}

/// A selective scan as in Mamba 2 (<https://arxiv.org/abs/2405.21060>).
#[derive(Clone, Copy, Debug)]
pub struct SelectiveScan<'a> {
    /// Heads; each has a state, `[what is kept][elements of a head]`.
    pub n_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What is kept of each element.
    pub state_dim: usize,
    /// Consecutive heads that share what is written and read; divides `n_heads`.
    pub n_groups: usize,
    /// How fast each head forgets; below 0.
    pub decay: &'a Vector,
    /// Added to the step of each head.
    pub step_bias: &'a Vector,
    /// How much of its input each head adds to the result.
    pub skip: &'a Vector,
}

/// The most elements that a head of a delta rule may have.
pub const LARGEST_STATE_HEAD: usize = 512;

impl States {
    /// Prepares for states without slots; `lens` are the elements of a state in each layer, 0 where it has none.
    pub fn new(lens: &[usize]) -> States {
        States {
            n_slots: 0,
            layers: lens.iter().map(|len| (*len, None)).collect(),
        }
    }

    /// Returns the bytes of one state over all layers.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|(len, _)| 4 * len).sum()
    }

    fn slot(&self, id: u32) -> Result<(), Error> {
        if (id as usize) < self.n_slots {
            return Ok(());
        }
        Err(mismatch("a state"))
    }

    /// Returns a part of a slot of a layer.
    fn part((len, memory): (usize, Region), slot: u32, (first, n): Part) -> Region {
        Region {
            start: memory.start + 4 * (u64::from(slot) * len as u64 + first as u64),
            bytes: 4 * n as u64,
            ..memory
        }
    }

    fn memory(&self, layer: usize, (first, n): Part) -> Result<(usize, Region), Error> {
        match self.layers.get(layer) {
            Some((len, Some(memory))) if first.saturating_add(n) <= *len => Ok((*len, *memory)),
            _ => Err(mismatch("a state")),
        }
    }
}

impl Gpu {
    /// Makes room for slots `0..n_slots` and keeps those that exist.
    pub fn reserve_states(&mut self, states: &mut States, n_slots: usize) -> Result<(), Error> {
        if n_slots <= states.n_slots {
            return Ok(());
        }
        for (len, memory) in &mut states.layers {
            let bytes = |n_slots: usize| 4 * (*len as u64) * n_slots as u64;
            if *len == 0 || memory.is_some_and(|memory| memory.bytes >= bytes(n_slots)) {
                continue;
            }
            if bytes(n_slots) > self.recorder.max_binding() {
                return Err(Error::OutOfMemory {
                    device: self.device().name.clone(),
                    needed_bytes: bytes(n_slots),
                    free_bytes: self.recorder.max_binding(),
                });
            }
            let new = Region {
                buffer: self.recorder.allocate(bytes(n_slots))?,
                start: 0,
                bytes: bytes(n_slots),
            };
            if let Some(old) = *memory {
                let kept = |region: Region| Region {
                    bytes: bytes(states.n_slots),
                    ..region
                };
                self.recorder.copy(kept(old), kept(new))?;
                self.recorder.free(&[old.buffer])?;
            }
            *memory = Some(new);
        }
        states.n_slots = n_slots;
        Ok(())
    }

    /// Sets a state, in all layers, to zeros.
    pub fn clear_state(&mut self, states: &States, slot: u32) -> Result<(), Error> {
        states.slot(slot)?;
        for (len, memory) in &states.layers {
            if let Some(memory) = memory {
                let part = States::part((*len, *memory), slot, (0, *len));
                self.recorder.clear(part)?;
            }
        }
        Ok(())
    }

    /// Copies a state, in all layers, to another slot.
    pub fn copy_state(&mut self, states: &States, from: u32, to: u32) -> Result<(), Error> {
        states.slot(from.max(to))?;
        for (len, memory) in &states.layers {
            if let Some(memory) = memory.filter(|_| from != to) {
                let part = |slot| States::part((*len, memory), slot, (0, *len));
                self.recorder.copy(part(from), part(to))?;
            }
        }
        Ok(())
    }

    /// Puts onto the device what the rows of a step do to states: stretches that are computed one after the other, with
    /// the copies from slot to slot that follow each.
    pub fn stretches(&mut self, states: &States, rounds: Vec<Round>) -> Result<Stretches, Error> {
        let mut made = Vec::with_capacity(rounds.len());
        for (stretches, saves) in rounds {
            let mut words = Vec::with_capacity(3 * stretches.len());
            let mut n_rows = 0;
            for Stretch {
                slot,
                first,
                n_rows: n,
            } in &stretches
            {
                states.slot(*slot)?;
                n_rows = n_rows.max(*first as usize + *n as usize);
                words.extend([*slot, *first, *n]);
            }
            for (from, to) in &saves {
                states.slot(*from.max(to))?;
            }
            let table = self.scratch(words.len() * 4)?;
            self.recorder
                .upload(bytemuck::cast_slice(&words), table.region)?;
            made.push(OnDevice {
                n_stretches: stretches.len(),
                n_rows,
                table,
                saves,
            });
        }
        Ok(Stretches { rounds: made })
    }

    /// Convolves the rows of each stretch with those before them.
    pub fn short_conv(
        &mut self,
        (states, layer): (&States, usize),
        x: &Tensor,
        conv: &ShortConv<'_>,
        stretches: &Stretches,
    ) -> Result<Tensor, Error> {
        let n = x.width;
        let fits = n > 0
            && conv.taps.len >= n
            && conv.taps.len.is_multiple_of(n)
            && conv.bias.is_none_or(|bias| bias.len == n);
        if !fits {
            return Err(mismatch("a convolution"));
        }
        let out = self.tensor(x.n_rows, n)?;
        let n_kept = conv.taps.len / n - 1;
        let params = Params {
            flags: u32::from(conv.silu) + 2 * u32::from(conv.bias.is_some()),
            n_heads: 1,
            dim: n,
            n_kept,
            n_groups: 1,
            eps: 0.0,
        };
        let operands = [Some(conv.taps.region), conv.bias.map(|bias| bias.region)];
        let lanes = |n_stretches: usize| {
            let [across, down] = groups((n_stretches * n).div_ceil(LANES));
            [across, down, 1]
        };
        let to = (&out, x, (states, layer, (0, n_kept * n)));
        self.through("short_conv", to, &params, &operands, stretches, lanes)?;
        Ok(out)
    }

    /// Sends rows (queries, keys and values of all heads, `[rows][q|k|v]`) through the states of a gated delta rule.
    /// `alpha` and `beta` have an element for each value head; the state begins at element `start` of a slot.
    pub fn delta_rule(
        &mut self,
        (states, layer, start): (&States, usize, usize),
        x: &Tensor,
        (alpha, beta): (&Tensor, &Tensor),
        rule: &DeltaRule<'_>,
        stretches: &Stretches,
    ) -> Result<Tensor, Error> {
        let (n_heads, dim) = (rule.n_value_heads, rule.head_dim);
        let of_rows = |x: &Tensor, rows: &Tensor| x.width == n_heads && x.n_rows == rows.n_rows;
        let fits = (1..=LARGEST_STATE_HEAD).contains(&dim)
            && n_heads.is_multiple_of(rule.n_key_heads)
            && x.width == (2 * rule.n_key_heads + n_heads) * dim
            && of_rows(alpha, x)
            && of_rows(beta, x)
            && [rule.decay.len, rule.decay_bias.len] == [n_heads; 2];
        if !fits {
            return Err(mismatch("a delta rule"));
        }
        let out = self.tensor(x.n_rows, n_heads * dim)?;
        let params = Params {
            flags: 4 * u32::from(rule.interleaved),
            n_heads,
            dim,
            n_kept: dim,
            n_groups: rule.n_key_heads,
            eps: rule.eps,
        };
        let operands = [
            Some(alpha.region),
            Some(beta.region),
            Some(rule.decay.region),
            Some(rule.decay_bias.region),
        ];
        let part = (start, n_heads * dim * dim);
        let to = (&out, x, (states, layer, part));
        let lanes = |n_stretches: usize| [n_heads as u32, n_stretches as u32, 1];
        self.through("delta_rule", to, &params, &operands, stretches, lanes)?;
        Ok(out)
    }

    /// Sends rows (`[rows][heads|written|read]`) through the states of a selective scan; `steps` has an element for each
    /// head, and the state begins at element `start` of a slot.
    pub fn selective_scan(
        &mut self,
        (states, layer, start): (&States, usize, usize),
        x: &Tensor,
        steps: &Tensor,
        scan: &SelectiveScan<'_>,
        stretches: &Stretches,
    ) -> Result<Tensor, Error> {
        let (n_heads, dim) = (scan.n_heads, scan.head_dim);
        let fits = n_heads.is_multiple_of(scan.n_groups)
            && x.width == n_heads * dim + 2 * scan.n_groups * scan.state_dim
            && (steps.n_rows, steps.width) == (x.n_rows, n_heads)
            && [scan.decay.len, scan.step_bias.len, scan.skip.len] == [n_heads; 3];
        if !fits {
            return Err(mismatch("a scan"));
        }
        let out = self.tensor(x.n_rows, n_heads * dim)?;
        let params = Params {
            flags: 0,
            n_heads,
            dim,
            n_kept: scan.state_dim,
            n_groups: scan.n_groups,
            eps: 0.0,
        };
        let operands = [
            Some(steps.region),
            Some(scan.skip.region),
            Some(scan.decay.region),
            Some(scan.step_bias.region),
        ];
        let part = (start, n_heads * scan.state_dim * dim);
        let to = (&out, x, (states, layer, part));
        let lanes = |n_stretches: usize| [n_heads as u32, n_stretches as u32, 1];
        self.through("selective_scan", to, &params, &operands, stretches, lanes)?;
        Ok(out)
    }

    /// Records a kernel for each round, and the copies behind it.
    fn through(
        &mut self,
        kernel: &'static str,
        (out, x, (states, layer, part)): (&Tensor, &Tensor, (&States, usize, Part)),
        params: &Params,
        operands: &[Option<Region>],
        stretches: &Stretches,
        groups: impl Fn(usize) -> [u32; 3],
    ) -> Result<(), Error> {
        let (len, memory) = states.memory(layer, part)?;
        if params.n_heads > MOST_GROUPS {
            return Err(unsupported(format!("states of {} heads", params.n_heads)));
        }
        for round in &stretches.rounds {
            if round.n_rows > x.n_rows || round.n_stretches > MOST_GROUPS {
                return Err(mismatch("rows of a state"));
            }
            let words = [
                len as u32,
                part.0 as u32,
                round.n_stretches as u32,
                params.flags,
                params.n_heads as u32,
                params.dim as u32,
                params.n_kept as u32,
                params.n_groups as u32,
                params.eps.to_bits(),
            ];
            let mut bindings = vec![
                out.write(),
                Access::Write(memory),
                x.read(),
                Access::Read(round.table.region),
            ];
            let read = |region: &Option<Region>| region.map_or(Access::None, Access::Read);
            bindings.extend(operands.iter().map(read));
            // A state is read and written for each row.
            let n_changed = x.n_rows as u64 * part.1 as u64;
            let work = Work::new(n_changed, 8 * n_changed + x.bytes() + out.bytes());
            let groups = groups(round.n_stretches);
            self.recorder
                .dispatch(kernel, &bindings, &words, groups, work)?;
            for (from, to) in &round.saves {
                let slot = |slot| States::part((len, memory), slot, part);
                self.recorder.copy(slot(*from), slot(*to))?;
            }
        }
        Ok(())
    }
}

/// What kernels of states have in common, as in `states.wgsl`.
struct Params {
    flags: u32,
    n_heads: usize,
    dim: usize,
    n_kept: usize,
    n_groups: usize,
    eps: f32,
}
