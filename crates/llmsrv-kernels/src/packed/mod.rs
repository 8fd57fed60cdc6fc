//! Products of weights that are packed for the processor with activations, most of them as signed bytes.
//!
//! Read in this order: [`formats`] (where every bit of a weight lies, and the kernels), [`isa`] (the
//! operations that the kernels are written in), [`pack`] (how weights get there), [`activations`] (the
//! other factor), [`epilogue`] (bias, gate and residual, applied to a result before it is written), and this
//! file: memory and work for the threads.
//!
//! With `w` the quants and `s` the scale of a block of a weight row, `x` and `t` those of the activations:
//!
//! ```text
//! y[row, token] = sum over blocks b, in order:  s[row, b] * t[token, b] * sum over i in b: w[row, i] * x[token, i]
//! ```
//!
//! The inner sum is one of integers and exact; for weights of floating point (F32, F16, BF16) it adds its
//! products in a fixed order. So `y` is the same bit for bit on all processors, for any number of tokens
//! together and any number of threads. Only products of BF16 with numbers below the smallest normal one, or with sums
//! there, are left to the processor: its instruction for them counts such numbers as zeros.
#![expect(
    unsafe_code,
    reason = "kernels read through pointers, and threads write to different parts of one result"
)]

/// Repeats a block of code with a constant that counts.
macro_rules! unrolled {
    ($idx:ident in [$($value:literal)*] $body:block) => {
        $({ const $idx: usize = $value; $body })*
    };
}

mod activations;
mod epilogue;
mod formats;
mod isa;
mod memory;
mod pack;
#[cfg(test)]
mod tests;

use std::ops::Range;

use llmsrv_gguf::TensorType;
use smallvec::SmallVec;

pub(crate) use self::memory::Region;
pub use self::{
    activations::{Activations, Residual},
    epilogue::Gate,
    formats::ActivationFormat,
    memory::Arena,
};
use self::{
    activations::{WIDEST, column_panels},
    epilogue::RowPanel,
    formats::{Format, Layout},
};
use crate::{Error, Instructions, Pool, Weight};

/// A matrix of packed weights.
#[derive(Debug)]
pub struct Packed {
    ty: TensorType,
    kind: ActivationFormat,
    n_rows: usize,
    n_cols: usize,
    layout: Layout,
    memory: Region,
}

impl Packed {
    /// Packs a matrix into memory of `arena`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for types that are not packed: [`ActivationFormat::of`] tells;
    /// [`Error::Length`] if the bytes are not those of whole rows; [`Error::OutOfMemory`] if the arena
    /// gets no memory from the system.
    pub fn new(weight: &Weight<'_>, arena: &mut Arena, pool: &Pool) -> Result<Packed, Error> {
        let Weight {
            ty,
            rows: n_rows,
            cols: n_cols,
            bytes,
        } = *weight;
        let (Some(kind), Some(layout), Some(pack)) = (
            ActivationFormat::of(ty),
            formats::layout(ty),
            pack::pack_row(ty),
        ) else {
            return Err(Error::Unsupported(ty));
        };
        let row_bytes = n_cols / ty.block_len() * ty.block_bytes();
        if !n_cols.is_multiple_of(ty.block_len()) || bytes.len() != n_rows * row_bytes {
            return Err(Error::Length {
                what: "bytes of the weights",
                got: bytes.len(),
                expected: n_rows * row_bytes,
            });
        }
        let row_panel_bytes = layout.row_panel_bytes(n_cols.div_ceil(kind.block_len()));
        let mut memory = arena.take(n_rows.div_ceil(layout.rows) * row_panel_bytes)?;
        if !bytes.is_empty() {
            pool.for_each_chunk_mut(
                memory.bytes_mut(),
                row_panel_bytes,
                true,
                |idx, row_panel| {
                    let rows = bytes.chunks_exact(row_bytes).skip(idx * layout.rows);
                    for (row, bytes) in rows.take(layout.rows).enumerate() {
                        pack(bytes, row_panel, row);
                    }
                },
            );
        }
        Ok(Packed {
            ty,
            kind,
            n_rows,
            n_cols,
            layout,
            memory,
        })
    }

    /// Returns the number of outputs.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns the number of inputs.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns the format of the activations that it is multiplied with.
    pub fn kind(&self) -> ActivationFormat {
        self.kind
    }

    /// Returns the memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes().len()
    }

    /// Multiplies: `out[t * n_rows + r]` is the inner product of row `r` of the weights and row `t` of
    /// the activations; `out` is `[x.n_rows(), n_rows]`.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the activations have rows of another length, are of another format than
    /// [`Packed::kind`] or were quantised for other instructions than the best, or if `out` has another
    /// length. Nothing is written then.
    pub fn multiply(&self, x: &Activations, out: &mut [f32], pool: &Pool) -> Result<(), Error> {
        grouped_gemm(Instructions::best(), &mut [Gemm::new(self, x, out)], pool)
    }

    /// Tells whether [`Gemm::gate`] may name it for a product with `weights`.
    pub fn can_gate(&self, weights: &Packed) -> bool {
        let shape = |weights: &Packed| (weights.n_rows, weights.n_cols, weights.layout.rows);
        self.kind == weights.kind && shape(self) == shape(weights)
    }

    fn n_row_panels(&self) -> usize {
        self.n_rows.div_ceil(self.layout.rows)
    }

    fn row_panel_bytes(&self) -> usize {
        self.layout.row_panel_bytes(self.n_blocks())
    }

    fn n_blocks(&self) -> usize {
        self.n_cols.div_ceil(self.kind.block_len())
    }
}

/// One of several products that are computed together, as by [`Packed::multiply`].
pub struct Gemm<'a> {
    /// The matrix, `[n_rows, n_cols]`.
    pub weights: &'a Packed,
    /// The activations, `[tokens, n_cols]`.
    pub x: &'a Activations,
    /// The result, `[tokens, n_rows]`.
    pub out: &'a mut [f32],
    /// `n_rows` numbers added to each row of the product, unless it is empty.
    pub bias: &'a [f32],
    /// Weights of another product with the same activations and no bias; what the activation makes of it
    /// is multiplied with this one. See [`Packed::can_gate`].
    pub gate: Option<(&'a Packed, Gate)>,
    /// Of the product, with its bias.
    pub activation: Option<Gate>,
    /// The result becomes what it was plus this times the product.
    pub add: Option<f32>,
}

impl<'a> Gemm<'a> {
    /// A product without bias, gate and addition.
    pub fn new(weights: &'a Packed, x: &'a Activations, out: &'a mut [f32]) -> Gemm<'a> {
        Gemm {
            weights,
            x,
            out,
            bias: &[],
            gate: None,
            activation: None,
            add: None,
        }
    }

    /// Returns the bytes of weights that are read for it.
    fn bytes(&self) -> usize {
        let of_gate = self.gate.map_or(0, |(weights, _)| weights.bytes());
        self.weights.bytes() + of_gate
    }
}

/// Computes products that do not depend on each other.
///
/// # Errors
///
/// [`Error::Unavailable`] if the processor lacks the instructions; [`Error::Length`] if the activations
/// of a product have rows of another length, are of another format or were quantised for other
/// instructions, if a gate has another shape ([`Packed::can_gate`]), or a result or bias another length.
/// Nothing is written then.
pub fn grouped_gemm(
    tier: Instructions,
    products: &mut [Gemm<'_>],
    pool: &Pool,
) -> Result<(), Error> {
    let mut jobs = SmallVec::<[InParts<'_>; 4]>::new();
    for product in products.iter_mut() {
        jobs.push(InParts {
            job: Job::new(tier, product)?,
            part: 0,
            end: 0,
        });
    }
    // Several parts for each thread, so that one that is late can be helped, but not too short ones:
    // each is a stream that the processor must find. Parts that are read more than once stay in a cache.
    let bytes: usize = products.iter().map(Gemm::bytes).sum();
    let n_tokens = products.iter().map(|product| product.x.n_tokens()).max();
    let n_tokens = n_tokens.unwrap_or(0);
    let part_bytes = bytes.div_ceil(pool.n_threads() * PARTS);
    let part_bytes = part_bytes.max(SHORTEST_PART);
    let mut n_parts = 0;
    for InParts { job, part, end } in &mut jobs {
        let row_panel_bytes =
            job.weights.row_panel_bytes() + job.gate.map_or(0, |gate| gate.0.row_panel_bytes());
        let row_panel_bytes = row_panel_bytes.max(1);
        let longest = if n_tokens > WIDEST {
            LONGEST_PART.div_ceil(row_panel_bytes)
        } else {
            usize::MAX
        };
        *part = part_bytes.div_ceil(row_panel_bytes).min(longest);
        n_parts += job.weights.n_row_panels().div_ceil(*part);
        *end = n_parts;
    }
    let work = |idx: usize| {
        let at = jobs.partition_point(|job| job.end <= idx);
        let Some(InParts { job, part, end }) = jobs.get(at) else {
            return;
        };
        let n_row_panels = job.weights.n_row_panels();
        let first = (idx + n_row_panels.div_ceil(*part) - end) * part;
        // SAFETY: parts are different rows of the result.
        unsafe { job.run(first..(first + part).min(n_row_panels)) }
    };
    if bytes * n_tokens >= PARALLEL_WORK {
        pool.for_each_task(n_parts, work);
    } else {
        (0..n_parts).for_each(work);
    }
    Ok(())
}

/// A product in parts that are numbered through all products.
struct InParts<'a> {
    job: Job<'a>,
    /// Row panels of a part.
    part: usize,
    /// Number of the first part of the next product.
    end: usize,
}

/// Rows of a row panel at most.
const MOST_ROWS: usize = 32;
/// Parts of the work for each thread.
const PARTS: usize = 8;
/// Bytes of weights below which no part is cut.
const SHORTEST_PART: usize = 1 << 14;
/// Bytes of weights that no part exceeds where there are several column panels of tokens: they
/// stay in a cache of the core while the column panels pass.
const LONGEST_PART: usize = 1 << 19;
/// Bytes of weights times tokens from which on a second thread pays.
const PARALLEL_WORK: usize = 1 << 17;

/// A checked product that several threads work on.
struct Job<'a> {
    weights: &'a Packed,
    gate: Option<(&'a Packed, Gate)>,
    bias: &'a [f32],
    activation: Option<Gate>,
    add: Option<f32>,
    tier: Instructions,
    /// With those of residuals, which follow theirs.
    n_tokens: usize,
    residual: Residual,
    /// Blocks of activations, column panel by column panel.
    blocks: *const u8,
    block_bytes: usize,
    out: *mut f32,
}

// SAFETY: the pointers are to memory that is borrowed for longer than the job, and threads write to
// different rows of the result.
unsafe impl Sync for Job<'_> {}

impl<'a> Job<'a> {
    fn new(tier: Instructions, product: &mut Gemm<'a>) -> Result<Job<'a>, Error> {
        let Gemm {
            weights,
            x,
            out,
            bias,
            gate,
            activation,
            add,
        } = product;
        if !tier.are_available() {
            return Err(Error::Unavailable(tier));
        }
        let (blocks, block_bytes, there) = x.blocks(weights.kind, tier);
        let wanted: usize = column_panels(x.n_tokens())
            .map(|column_panel| column_panel.width)
            .sum();
        let n_blocks = weights.n_blocks();
        if x.n_cols() != weights.n_cols || there != wanted * n_blocks {
            return Err(Error::Length {
                what: "activations",
                got: x.n_cols(),
                expected: weights.n_cols,
            });
        }
        if let Some((gate, _)) = gate
            && !gate.can_gate(weights)
        {
            return Err(Error::Length {
                what: "rows of a gate",
                got: gate.n_rows,
                expected: weights.n_rows,
            });
        }
        let n_results = x.n_rows() * weights.n_rows;
        for (what, got, expected) in [
            ("results", out.len(), n_results),
            ("elements of a bias", bias.len(), weights.n_rows),
        ] {
            if got != expected && !(got == 0 && what != "results") {
                return Err(Error::Length {
                    what,
                    got,
                    expected,
                });
            }
        }
        Ok(Job {
            weights,
            gate: *gate,
            bias,
            activation: *activation,
            add: *add,
            tier,
            n_tokens: x.n_tokens(),
            residual: x.residual(),
            blocks,
            block_bytes,
            out: out.as_mut_ptr(),
        })
    }

    /// Computes the outputs of some row panels for all tokens.
    ///
    /// # Safety
    /// Nobody else computes these row panels.
    unsafe fn run(&self, row_panels: Range<usize>) {
        let weights = self.weights;
        let n_blocks = weights.n_blocks();
        let token_bytes = n_blocks * self.block_bytes;
        let n_lanes = weights.layout.rows;
        let finish = epilogue::of_tier(self.tier);
        let (mut results, mut gates) = (Results::ZERO, Results::ZERO);
        // A column panel stays in the first cache while the row panels pass, which the kernels ask for in time.
        for column_panel in column_panels(self.n_tokens) {
            // SAFETY: column panels before this one are of the widest kind, so it begins here.
            let blocks = unsafe { self.blocks.add(column_panel.first * token_bytes) };
            let row_panels_of = |weights: &'a Packed| {
                let kernel = kernel(self.tier, weights.ty, column_panel.width);
                (kernel, weights.memory.bytes(), weights.row_panel_bytes())
            };
            let multiply =
                |row_panels: (Kernel, &[u8], usize), idx: usize, results: &mut Results| {
                    let (kernel, bytes, row_panel_bytes) = row_panels;
                    let row_panel = bytes[idx * row_panel_bytes..].as_ptr();
                    // SAFETY: the row panel has all its blocks, the column panel too, and there is room for the
                    // results of the widest column panel; the processor has the instructions.
                    unsafe { kernel(row_panel, n_blocks, blocks, results.0.as_mut_ptr()) };
                };
            let of_weights = row_panels_of(weights);
            let of_gate = self.gate.map(|(weights, _)| row_panels_of(weights));
            let first_of_panel = column_panel.first / self.residual.n_tokens();
            for idx in row_panels.clone() {
                multiply(of_weights, idx, &mut results);
                if let Some(of_gate) = of_gate {
                    multiply(of_gate, idx, &mut gates);
                }
                let first_row = idx * n_lanes;
                let row_panel = RowPanel {
                    results: &mut results.0,
                    gates: &mut gates.0,
                    residual: self.residual,
                    gate: self.gate.map(|(_, gate)| gate),
                    activation: self.activation,
                    bias: self.bias.get(first_row..).unwrap_or_default(),
                    add: self.add,
                    n_tokens: column_panel.n_tokens,
                    n_lanes,
                    n_rows: (weights.n_rows - first_row).min(n_lanes),
                    // SAFETY: these rows of the result, whose length was checked, are there and ours.
                    out: unsafe { self.out.add(first_of_panel * weights.n_rows + first_row) },
                    out_stride: weights.n_rows,
                };
                // SAFETY: as above; the processor has the instructions.
                unsafe { finish(row_panel) };
            }
        }
    }
}

/// Of a row panel and a column panel, in whole cache lines.
#[repr(align(64))]
struct Results([f32; MOST_ROWS * WIDEST]);

impl Results {
    const ZERO: Results = Results([0.0; _]);
}

/// A kernel: row panel, blocks, activations of a column panel, results.
type Kernel = unsafe fn(*const u8, usize, *const u8, *mut f32);

/// Returns the kernel of a type for a column panel of this width.
fn kernel(tier: Instructions, ty: TensorType, width: usize) -> Kernel {
    match ty {
        TensorType::Q4_0 => of_width::<formats::Q4_0>(tier, width),
        TensorType::Q4_1 => of_width::<formats::Q4_1>(tier, width),
        TensorType::Q5_0 => of_width::<formats::Q5_0>(tier, width),
        TensorType::Q5_1 => of_width::<formats::Q5_1>(tier, width),
        TensorType::IQ4_NL => of_width::<formats::IQ4NL>(tier, width),
        TensorType::MXFP4 => of_width::<formats::MXFP4>(tier, width),
        TensorType::Q2_K => of_width::<formats::Q2K>(tier, width),
        TensorType::Q3_K => of_width::<formats::Q3K>(tier, width),
        TensorType::Q4_K => of_width::<formats::Q4K>(tier, width),
        TensorType::Q5_K => of_width::<formats::Q5K>(tier, width),
        TensorType::Q6_K => of_width::<formats::Q6K>(tier, width),
        TensorType::IQ4_XS => of_width::<formats::IQ4XS>(tier, width),
        TensorType::IQ1_S => of_width::<formats::IQ1S>(tier, width),
        TensorType::IQ1_M => of_width::<formats::IQ1M>(tier, width),
        TensorType::IQ2_XXS => of_width::<formats::IQ2XXS>(tier, width),
        TensorType::IQ2_XS => of_width::<formats::IQ2XS>(tier, width),
        TensorType::IQ2_S => of_width::<formats::IQ2S>(tier, width),
        TensorType::IQ3_XXS => of_width::<formats::IQ3XXS>(tier, width),
        TensorType::IQ3_S => of_width::<formats::IQ3S>(tier, width),
        TensorType::TQ1_0 | TensorType::TQ2_0 => of_width::<formats::TQ>(tier, width),
        TensorType::F32 => of_width::<formats::F32>(tier, width),
        TensorType::F16 => of_width::<formats::F16>(tier, width),
        TensorType::BF16 => of_width::<formats::BF16>(tier, width),
        // No other type has a layout.
        _ => of_width::<formats::Q8_0>(tier, width),
    }
}

fn of_width<F: Format>(tier: Instructions, width: usize) -> Kernel {
    match width {
        1 => of_tier::<F, 1>(tier),
        2 => of_tier::<F, 2>(tier),
        3 => of_tier::<F, 3>(tier),
        4 => of_tier::<F, 4>(tier),
        6 => of_tier::<F, 6>(tier),
        _ => of_tier::<F, 8>(tier),
    }
}

/// A kernel of the format `F` and of columns `C` that is compiled with these features.
macro_rules! compiled {
    ($(#[$features:meta])? $kernel:path) => {{
        $(#[$features])?
        unsafe fn compiled<F: Format, const C: usize>(
            row_panel: *const u8,
            n_blocks: usize,
            x: *const u8,
            out: *mut f32,
        ) {
            // SAFETY: the caller's promise.
            unsafe { $kernel(row_panel, n_blocks, x, out) }
        }
        compiled::<F, C>
    }};
}

fn of_tier<F: Format, const C: usize>(tier: Instructions) -> Kernel {
    match tier {
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512Bf16 if F::IS_BF16 => compiled!(
            #[target_feature(
                enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c"
            )]
            avx512_row_panel::<F, C, true>
        ),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 | Instructions::Avx512Bf16 => compiled!(
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
            avx512_row_panel::<F, C, false>
        ),
        // Types with a floating point, which have no head, have no products of integers.
        #[cfg(target_arch = "x86_64")]
        Instructions::AvxVnni if F::LAYOUT.head > 0 => compiled!(
            #[target_feature(enable = "avx2,avxvnni,fma,f16c")]
            avx2_row_panel::<F, C, true>
        ),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 | Instructions::AvxVnni => compiled!(
            #[target_feature(enable = "avx2,fma,f16c")]
            avx2_row_panel::<F, C, false>
        ),
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => compiled!(
            #[target_feature(enable = "neon,dotprod")]
            neon_row_panel::<F, C, false>
        ),
        #[cfg(target_arch = "aarch64")]
        Instructions::NeonI8mm => compiled!(
            #[target_feature(enable = "neon,dotprod,i8mm")]
            neon_row_panel::<F, C, true>
        ),
        _ => compiled!(scalar_row_panel::<F, C>),
    }
}

/// [`formats::multiply_row_panel`] without vectors. Each width would be three times the code that vectors need, so only
/// the one of prompts has its own; of the others the tokens are taken one by one.
///
/// # Safety
/// As for [`formats::multiply_row_panel`].
#[inline(always)]
unsafe fn scalar_row_panel<F: Format, const C: usize>(
    row_panel: *const u8,
    n_blocks: usize,
    x: *const u8,
    out: *mut f32,
) {
    /// Of one token of a column panel of some width.
    #[inline(never)]
    unsafe fn one_token<F: Format>(
        row_panel: *const u8,
        n_blocks: usize,
        x: *const F::Block,
        width: usize,
        out: *mut f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            formats::multiply_columns::<isa::Scalar, F, 1>(row_panel, n_blocks, x, width, out);
        }
    }
    // SAFETY: the caller's promise; the tokens of a block lie side by side.
    unsafe {
        if C == WIDEST {
            formats::multiply_row_panel::<isa::Scalar, F, C>(row_panel, n_blocks, x, out);
            return;
        }
        for token in 0..C {
            let (x, out) = (
                x.cast::<F::Block>().add(token),
                out.add(F::LAYOUT.rows * token),
            );
            one_token::<F>(row_panel, n_blocks, x, C, out);
        }
    }
}

/// [`formats::multiply_row_panel`] that asks for weights as is best for so many tokens.
///
/// # Safety
/// As for [`formats::multiply_row_panel`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx512_row_panel<F: Format, const C: usize, const BF16: bool>(
    row_panel: *const u8,
    n_blocks: usize,
    x: *const u8,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match C {
            1..4 => formats::multiply_row_panel::<isa::Avx512<BF16, false>, F, C>(
                row_panel, n_blocks, x, out,
            ),
            _ => formats::multiply_row_panel::<isa::Avx512<BF16, true>, F, C>(
                row_panel, n_blocks, x, out,
            ),
        }
    }
}

/// [`formats::multiply_row_panel`] with as many vectors at a time as there are registers for the sums of.
///
/// # Safety
/// As for [`formats::multiply_row_panel`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx2_row_panel<F: Format, const C: usize, const VNNI: bool>(
    row_panel: *const u8,
    n_blocks: usize,
    x: *const u8,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Without AVX-VNNI, what lies between a product and its sum takes registers as well.
        if C <= if VNNI { 4 } else { 3 } {
            formats::multiply_row_panel::<isa::Avx2<2, VNNI>, F, C>(row_panel, n_blocks, x, out);
        } else {
            formats::multiply_row_panel::<isa::Avx2<1, VNNI>, F, C>(row_panel, n_blocks, x, out);
        }
    }
}

/// [`formats::multiply_row_panel`] with as many vectors at a time as there are registers for the sums of.
///
/// # Safety
/// As for [`formats::multiply_row_panel`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn neon_row_panel<F: Format, const C: usize, const I8MM: bool>(
    row_panel: *const u8,
    n_blocks: usize,
    x: *const u8,
    out: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match C {
            1 | 2 => {
                formats::multiply_row_panel::<isa::Neon<4, I8MM>, F, C>(row_panel, n_blocks, x, out)
            }
            3 | 4 => {
                formats::multiply_row_panel::<isa::Neon<2, I8MM>, F, C>(row_panel, n_blocks, x, out)
            }
            _ => {
                formats::multiply_row_panel::<isa::Neon<1, I8MM>, F, C>(row_panel, n_blocks, x, out)
            }
        }
    }
}
