//! Texts of files that models are to read.

use std::{fs::File, io::Read as _, path::Path};

use anyhow::Context as _;

use crate::failure::Failure;

/// Reads a text in UTF-8 of at most 64 MiB.
pub fn read(path: &Path) -> Result<String, Failure> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(cannot)?;
    if bytes.len() as u64 > MOST_BYTES {
        let text = format!("{} is larger than 64 MiB", path.display());
        return Err(Failure::failed(text).hint("a part of it will do"));
    }
    String::from_utf8(bytes).map_err(|_| {
        let text = format!("{} is not a text in UTF-8", path.display());
        Failure::failed(text)
    })
}

const MOST_BYTES: u64 = 64 << 20;
