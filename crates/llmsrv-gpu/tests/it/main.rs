//! Every kernel against its scalar twin, on the software device of the machine (lavapipe).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kernels;
mod twin;
