//! What a run found.

use serde::Serialize;

use crate::{Figure, FirstToken, Test};

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// Threads of the arithmetic.
    pub threads: usize,
    /// What computes can do at most; samples were taken between the rounds of the tests.
    pub limits: Limits,
    /// The GPU that computed, if one did. Then the limits are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuReport>,
    /// The models, in the order asked for.
    pub models: Vec<ModelReport>,
}

/// A GPU as its driver describes it, and what was measured of it alone.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Its number in the order of the Vulkan loader.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// `discrete`, `virtual`, `integrated` or `software`.
    pub kind: &'static str,
    /// Number of the maker in the PCI list.
    pub vendor_id: u32,
    /// The maker's number of the device.
    pub device_id: u32,
    /// 32 hex digits.
    pub uuid: String,
    /// Name and version of the driver.
    pub driver: String,
    /// Its version as it counts itself.
    pub driver_version: u32,
    /// The version of Vulkan that it has.
    pub api_version: String,
    /// Bytes of its largest memory.
    pub memory_bytes: u64,
    /// Bytes of it that are read to measure how fast that is.
    pub read_bytes: u64,
    /// Seconds from a kernel that does next to nothing to the next one that waits for it.
    pub kernel: Figure,
    /// It can time kernels.
    pub times_kernels: bool,
    /// How it multiplies quantised weights, as `LLMSRV_GPU_ARITHMETIC` says it and the device can: `exact` or `int8`.
    pub arithmetic: &'static str,
    /// Operations on signed bytes in a second, if the device has integer dot products.
    pub int8_dot: Option<Figure>,
}

/// What computes can do at most: the CPU with all threads, or a GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    /// Bytes that are read from memory in a second.
    pub read: Figure,
    /// Operations with quantised weights in a second: on 8-bit integers, where the arithmetic is.
    pub int8: Figure,
    /// The instruction that does them.
    pub int8_instruction: &'static str,
    /// Operations on floats in a second.
    pub float: Figure,
    /// The instruction that does them.
    pub float_instruction: &'static str,
}

/// What was measured of one model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// As it was named on the command line.
    pub model: String,
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Number of its weights.
    pub n_weights: u64,
    /// Seconds from the call to a model in memory, within this process.
    pub load: Figure,
    /// Speeds.
    pub tests: Vec<TestReport>,
    /// Times to the first token of a prompt, if they were measured.
    pub first_token: Option<FirstToken>,
    /// Streaming, if it was measured.
    pub stream: Option<Stream>,
    /// What a new process takes, if it was measured.
    pub process: Option<Process>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// A new process that loads the model.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Seconds from starting the process to the model's first computed token.
    pub ready: Figure,
    /// Resident bytes after it, mapped file included; 0 = unknown.
    pub resident_bytes: u64,
}

/// One speed, with what it is compared to.
#[derive(Clone, Debug, Serialize)]
pub struct TestReport {
    /// What was measured, for example `pp512`.
    pub test: String,
    #[serde(skip)]
    /// The same, for programs.
    pub kind: Option<Test>,
    /// Tokens per second.
    pub speed: Figure,
    /// Tokens per second that the machine allows.
    pub limit: f64,
    /// The part of the limit that was reached, by the medians.
    pub share: f64,
    /// Other engines in the same rounds.
    pub peers: Vec<PeerFigure>,
    /// What each kernel of a GPU took in one more round, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelReport>,
}

/// What a kernel took in one round of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelReport {
    /// Its name.
    pub kernel: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// How long that took together, by the clock of the GPU.
    pub seconds: f64,
    /// Bytes that it had to read and write together, each operand once a call.
    pub bytes: u64,
    /// Its part of the time of all kernels.
    pub share: f64,
}

/// Another engine's speed in the same test.
#[derive(Clone, Debug, Serialize)]
pub struct PeerFigure {
    /// Its name.
    pub name: String,
    /// Tokens per second.
    pub speed: Figure,
    /// Ours divided by theirs, by the medians.
    pub ratio: f64,
}

/// Tokens per second of one stream of text, from the first to the last.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// Events from the engine, within the process.
    pub engine: Figure,
    /// Lines over HTTP on loopback.
    pub http: Figure,
    /// The part that HTTP loses: 0.03 = 3 %.
    pub lost: f64,
}
