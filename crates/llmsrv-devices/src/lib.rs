//! GPUs and NPUs of the machine: what is there, who may use it, and whether it computes what it should.
//!
//! Results are data ([`Report`]); nothing here prints. Whatever calls a driver runs in a process of its own
//! ([`worker`]), so that a driver that crashes or hangs is a failed check and not the end of the program. Driver
//! libraries are loaded while the program runs; none is needed to build or start it.

mod compute;
pub mod gpu;
pub mod npu;
pub mod pci;
pub mod permissions;
mod report;
mod subprocess;
mod sysroot;
pub mod testgpu;
pub mod testnpu;
pub mod worker;

pub use llmsrv_onnx as onnx;

pub use compute::{Api, DeviceInfo, DeviceKind};
pub use report::{Check, Outcome, Report, Totals, Verdict};
pub use subprocess::{Spawn, Worker};
pub use sysroot::Sysroot;
