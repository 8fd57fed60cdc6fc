//! Devices that compute on the CPU (PoCL, lavapipe), machines that are folders, and the modules made from kernels.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why"
)]

#[path = "../../../llmsrv-gpu/tests/it/committed.rs"]
mod committed;
mod compute;
mod machines;
mod spirv;
