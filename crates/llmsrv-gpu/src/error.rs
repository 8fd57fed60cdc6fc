//! What can fail.

/// A GPU that cannot be used, or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no Vulkan loader, or it cannot be loaded.
    #[error("the Vulkan loader (libvulkan.so.1) cannot be loaded: {0}")]
    NoLoader(String),
    /// The loader knows no driver.
    #[error("the Vulkan loader found no driver")]
    NoDriver,
    /// No device may be used; each that was seen, and why not.
    #[error("no GPU can be used{}", listed(.0))]
    NoDevice(Vec<Refused>),
    /// The memory of the device does not suffice.
    #[error("{device} has {free_bytes} bytes of memory free, {needed_bytes} are needed")]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// What is needed.
        needed_bytes: u64,
        /// What is there.
        free_bytes: u64,
    },
    /// The device cannot do what is asked, whatever its state.
    #[error("{0}")]
    Unsupported(String),
    /// The device does not answer any more, or the driver gave it up. Nothing works from now on.
    #[error("{device} failed: {reason}")]
    Lost {
        /// Name of the device.
        device: String,
        /// What happened.
        reason: String,
    },
    /// A kernel does not compute what it should.
    #[error("{device} with the driver {driver} computes {kernel} wrongly")]
    Wrong {
        /// Name of the device.
        device: String,
        /// Name and version of its driver.
        driver: String,
        /// Name of the kernel.
        kernel: String,
    },
    /// A call of the driver failed.
    #[error("{call} failed: {result}")]
    Call {
        /// Name in the specification.
        call: &'static str,
        /// What it returned.
        result: String,
    },
}

/// A device that was seen and is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the device.
    pub device: String,
    /// Why it is not used.
    pub reason: Refusal,
}

/// Why a device is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It computes on the CPU.
    Software,
    /// It is integrated or of Intel, and was not allowed.
    Vendor,
    /// It lacks something that the kernels need.
    Lacks(&'static str),
    /// It is not among those that were named.
    Hidden,
    /// It computes a kernel wrongly.
    Wrong {
        /// Name and version of its driver.
        driver: String,
        /// Name of the kernel.
        kernel: String,
    },
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refusal::Software => f.write_str("a software device, which computes on the CPU"),
            Refusal::Vendor => f.write_str("an integrated GPU or one of Intel"),
            Refusal::Lacks(what) => write!(f, "lacks {what}"),
            Refusal::Hidden => f.write_str("not among the visible ones"),
            Refusal::Wrong { driver, kernel } => {
                write!(f, "its driver {driver} computes {kernel} wrongly")
            }
        }
    }
}

fn listed(refused: &[Refused]) -> String {
    if refused.is_empty() {
        return ": there is none".into();
    }
    let each = refused
        .iter()
        .map(|one| format!("{} ({})", one.device, one.reason));
    format!(": {}", each.collect::<Vec<_>>().join(", "))
}

/// Makes the error of a call that failed.
pub(crate) fn failed(call: &'static str) -> impl Fn(ash::vk::Result) -> Error {
    move |result| Error::Call {
        call,
        result: result.to_string(),
    }
}
