//! Tests of whole models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod drafts;
mod embeddings;
mod equivalence;
mod facts;
mod families;
mod gpu;
mod gpu_engine;
mod gpu_placement;
mod hostile;
mod npu;
mod quantized;
mod reference;

mod tiny;
mod tiny_encoder;
mod variants;
mod vision;
mod vision_files;
mod vision_speed;
