//! Text to token ids and back, built from GGUF metadata.

/// A tokenizer; cheap to share, immutable.
pub struct Tokenizer {}
