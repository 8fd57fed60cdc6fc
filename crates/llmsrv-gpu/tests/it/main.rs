//! Every kernel against its scalar twin, on the software device of the machine (lavapipe), and the modules made from
//! the shaders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attention;
mod card;
mod committed;
mod experts;
mod kernels;
mod recording;
mod spirv;
mod twin;
