//! The arithmetic of decoders on a GPU, through Vulkan compute.
//!
//! Read in this order: `device` (what there is, and the choice), `memory`, `hazards` (which command waits for which),
//! `recorder` (commands of a step), `gpu` (the operations), `answers` (what is known of them), `times` (how long they
//! take). The kernels are in `shaders/`, in WGSL, and compiled to SPIR-V that is committed (`spirv`); nothing of a driver
//! is linked. No model knowledge, no files.
//!
//! Every result of a row depends on that row alone, bit for bit: sums have one order, which follows from the shape of
//! the weights or from the row's own position.

mod answers;
mod device;
mod error;
mod gpu;
mod hazards;
mod memory;
mod modules;
mod recorder;
mod spirv;
mod times;

pub use answers::{Codebook, kernel_bytes};
pub use device::{Arithmetic, Choice, DeviceName, Found, Kind, choose, devices};
pub use error::{Error, Refusal, Refused};
pub use gpu::{
    Angles, Attention, Cache, DeltaRule, Expert, Experts, Function, Gating, Gpu, LARGEST_HEAD,
    LARGEST_STATE_HEAD, MIXTURE_ROWS, Matrix, Pairs, Probe, Round, Routing, SelectiveScan,
    ShortConv, States, Step, StepRow, Stretch, Stretches, Tensor, Vector, experts_bytes,
    kept_bytes, matrix_bytes, part_bytes, pieces, supports, vector_bytes,
};
pub use memory::pieces_taken;
pub use recorder::{Access, BufferId, Counts, Modules, Recorder, Region, Work, counts};
pub use times::{KernelTime, take_kernel_times, time_kernels};
