//! Tests of whole models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod drafts;
mod embeddings;
mod equivalence;
mod families;
mod gpu;
mod hostile;
mod quantized;
mod reference;
mod sees;
mod tiny;
mod tiny_encoder;
mod variants;
mod vision;
mod vision_files;
mod vision_speed;
