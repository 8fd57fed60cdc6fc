//! The gRPC interface of logkit, made from `proto/logkit.proto` by `tests/it/main.rs`, and the
//! part of the OpenTelemetry protocol that logkit reads and writes.

#![forbid(unsafe_code)]

pub use tonic;

pub mod codec;
pub mod wire;

/// Messages, the client and the trait of the service.
pub mod v1 {
    #![expect(
        clippy::allow_attributes_without_reason,
        clippy::pedantic,
        missing_docs,
        reason = "generated from the definition, which holds the comments"
    )]
    include!("generated/logkit.rs");
}

/// Logs and traces of OpenTelemetry.
pub mod otlp {
    #![expect(missing_docs, reason = "generated from the definition")]
    include!("generated/logkit.otlp.rs");
}

/// The encoded set of definitions, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// The definition itself, for those who generate a client.
pub const DEFINITION: &str = include_str!("../proto/logkit.proto");
