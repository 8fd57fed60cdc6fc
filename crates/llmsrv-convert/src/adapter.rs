//! Published adapters (LoRA as safetensors) to an adapter file.

use std::path::{Path, PathBuf};

use crate::{Error, Progress};

/// Makes an adapter file of the files of a published LoRA adapter.
pub fn convert_adapter(
    files: &[(String, PathBuf)],
    base: Option<&Path>,
    destination: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let _ = (files, base, destination, progress);
    Err(Error::Unsupported(
        "safetensors adapters cannot be converted yet".into(),
    ))
}
