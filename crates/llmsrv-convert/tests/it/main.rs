//! Conversions of small generated models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adapter;
mod encoder;
mod hostile;
mod imatrix;
mod model;
mod published;
mod quantize;
mod support;
mod synthetic;
