//! Devices that compute on the CPU (PoCL, lavapipe), and machines that are folders.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking and says why"
)]

mod compute;
mod machines;
