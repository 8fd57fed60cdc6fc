//! One interface over OpenCL, Vulkan, CUDA and HIP: buffers of 32-bit words and the kernels of `kernels/`.
//!
//! The checks are written against [`Device`] alone, so that all programming interfaces are held to the same results.

#![allow(
    unreachable_pub,
    reason = "a part of its own: `pub` marks what the rest of the crate uses"
)]

pub mod checks;
mod driver;
mod opencl;
mod spirv;
mod transformer;
mod vulkan;

use serde::{Deserialize, Serialize};

/// Ways to program a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// OpenCL, of many makers and of CPUs.
    OpenCl,
    /// Vulkan compute.
    Vulkan,
    /// CUDA of NVIDIA.
    Cuda,
    /// HIP of AMD's ROCm.
    Rocm,
}

impl Api {
    /// All of them, in the order of checks.
    pub const ALL: [Api; 4] = [Api::OpenCl, Api::Vulkan, Api::Cuda, Api::Rocm];

    /// Its name in the results, which is also the category of its checks.
    pub fn name(self) -> &'static str {
        match self {
            Api::OpenCl => "opencl",
            Api::Vulkan => "vulkan",
            Api::Cuda => "cuda",
            Api::Rocm => "rocm",
        }
    }

    /// What makes it usable.
    pub fn hint(self) -> &'static str {
        match self {
            Api::OpenCl => {
                "install the OpenCL loader and the driver of your GPU (Debian: ocl-icd-libopencl1 with \
                 intel-opencl-icd, mesa-opencl-icd or the driver of NVIDIA)"
            }
            Api::Vulkan => {
                "install the Vulkan loader and the driver of your GPU (Debian: libvulkan1 with \
                 mesa-vulkan-drivers or the driver of NVIDIA)"
            }
            Api::Cuda => {
                "install the driver of NVIDIA (Debian: nvidia-driver); in a container, pass the GPU in"
            }
            Api::Rocm => "install ROCm's HIP runtime (Debian: libamdhip64-5)",
        }
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// A driver that computes on the CPU.
    Cpu,
    /// Another accelerator.
    Other,
}

impl DeviceKind {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Gpu => "GPU",
            DeviceKind::Cpu => "CPU",
            DeviceKind::Other => "other",
        }
    }
}

/// A device as its driver describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Through what it is reached.
    pub api: Api,
    /// Its number among those of the same interface.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// GPU, or a CPU that stands in for one.
    pub kind: DeviceKind,
    /// Name and version of its driver.
    pub driver: String,
    /// Its memory.
    pub memory_bytes: u64,
}

impl DeviceInfo {
    /// Its name in checks: `opencl:0`.
    pub fn label(&self) -> String {
        format!("{}:{}", self.api.name(), self.index)
    }

    /// Returns how much work a test gives it: less where the CPU does it.
    fn sized(&self, on_cpu: usize, elsewhere: usize) -> usize {
        match self.kind {
            DeviceKind::Cpu => on_cpu,
            DeviceKind::Gpu | DeviceKind::Other => elsewhere,
        }
    }
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library of the interface is not on this machine.
    #[error("{0} is not installed: {1}")]
    NoLibrary(&'static str, String),
    /// A call of the driver failed.
    #[error("{call}: {reason}")]
    Driver {
        /// What was called.
        call: &'static str,
        /// What the driver answered.
        reason: String,
    },
    /// No device has this number.
    #[error("there is no device {0}")]
    NoDevice(usize),
}

impl Error {
    fn driver(call: &'static str, reason: impl ToString) -> Error {
        Error::Driver {
            call,
            reason: reason.to_string(),
        }
    }
}

/// A buffer in the memory of a device; belongs to the device that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer(usize);

/// A kernel to be run over `params[0]` items.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its name in `kernels/`.
    pub kernel: &'static str,
    /// The one it writes, then those it reads.
    pub buffers: Vec<Buffer>,
    /// The number of items and three numbers that depend on the kernel.
    pub params: [u32; 4],
}

/// A device that computes.
pub trait Device {
    /// Reserves a buffer of so many words; what it holds is not defined.
    fn allocate(&mut self, words: usize) -> Result<Buffer, Error>;
    /// Gives all buffers back.
    fn clear(&mut self) -> Result<(), Error>;
    /// Copies words to the device.
    fn write(&mut self, buffer: Buffer, words: &[u32]) -> Result<(), Error>;
    /// Copies words from the device.
    fn read(&mut self, buffer: Buffer, words: &mut [u32]) -> Result<(), Error>;
    /// Runs kernels one after the other, each seeing what those before it wrote, and waits for the last.
    fn run(&mut self, launches: &[Launch]) -> Result<(), Error>;
    /// The largest buffer it may be asked for, in words.
    fn max_words(&self) -> usize;
}

/// Lists the devices of an interface.
pub fn list(api: Api) -> Result<Vec<DeviceInfo>, Error> {
    match api {
        Api::OpenCl => opencl::list(),
        Api::Vulkan => vulkan::list(),
        Api::Cuda | Api::Rocm => driver::list(api),
    }
}

/// Makes a device ready to compute.
pub fn open(api: Api, index: usize) -> Result<Box<dyn Device>, Error> {
    Ok(match api {
        Api::OpenCl => Box::new(opencl::OpenCl::open(index)?),
        Api::Vulkan => Box::new(vulkan::Vulkan::open(index)?),
        Api::Cuda | Api::Rocm => Box::new(driver::Driver::open(api, index)?),
    })
}

/// Names of all kernels, each with its number of buffers.
const KERNELS: &[(&str, usize)] = &[
    ("saxpy", 3),
    ("sum", 2),
    ("matmul", 3),
    ("blur", 2),
    ("fma_chain", 3),
    ("copy", 2),
    ("place", 2),
    ("matvec_q8", 4),
    ("rms_norm", 2),
    ("attend", 4),
    ("swiglu", 3),
    ("add", 3),
];
