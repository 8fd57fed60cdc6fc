//! Reading, checking and writing GGUF model files.
