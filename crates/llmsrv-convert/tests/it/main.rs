//! Conversions of small generated models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod quantize;
mod support;
