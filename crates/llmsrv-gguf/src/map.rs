//! A model file mapped into memory.
#![expect(
    unsafe_code,
    reason = "a file mapping cannot be made without it; nothing else here is unsafe"
)]

use std::{fs::File, ops::Range, path::Path};

use memmap2::Mmap;

use crate::{Error, Header, Metadata, TensorInfo};

/// A model file: its checked header, and its data by demand paging.
///
/// The file must not shrink while it is mapped: reading a page that is gone ends the process
/// (`SIGBUS`). Blobs of a store are never changed in place, only removed, which is harmless.
#[derive(Debug)]
pub struct GgufFile {
    header: Header,
    map: Mmap,
}

impl GgufFile {
    /// Maps the file at `path` and checks its header.
    pub fn open(path: &Path) -> Result<GgufFile, Error> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(Error::Invalid("not a regular file".into()));
        }
        if metadata.len() < 4 {
            return Err(Error::Magic);
        }
        // SAFETY: the mapping is private and read-only, and no code of this program writes to a
        // model file that has its final name; see the type's documentation for other programs.
        let map = unsafe { Mmap::map(&file)? };
        let header = Header::parse(&map, map.len() as u64)?;
        Ok(GgufFile { header, map })
    }

    /// As [`GgufFile::open`], with the names of the library's own dialects translated.
    ///
    /// # Errors
    /// As there.
    pub fn open_model(path: &Path) -> Result<GgufFile, Error> {
        Ok(GgufFile::open(path)?.translated())
    }

    /// Returns the file with the names of the library's own dialects translated.
    #[must_use]
    pub fn translated(mut self) -> GgufFile {
        self.header.translate();
        self
    }

    /// Returns what the file says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns keys and values.
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// Returns the tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.header.tensor(name)
    }

    /// Returns the bytes of a tensor; none for a description that is not of this file.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        let start = usize::try_from(tensor.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(tensor.bytes).unwrap_or(usize::MAX));
        self.map.get(start..end).unwrap_or_default()
    }

    /// Says that some bytes of a tensor will be read soon (`true`) or not again for long (`false`): they
    /// are brought into memory, or their share of it is given back. They stay readable.
    pub fn expect(&self, tensor: &TensorInfo, range: Range<usize>, soon: bool) {
        let data = self.data(tensor).get(range).unwrap_or_default();
        if data.is_empty() {
            return;
        }
        let offset = data.as_ptr().addr() - self.map.as_ptr().addr();
        // It is advice: a system that does not take it only costs time or memory.
        #[cfg(target_os = "linux")]
        if soon {
            let _ = self
                .map
                .advise_range(memmap2::Advice::PopulateRead, offset, data.len());
        } else {
            // SAFETY: the mapping is of a file and read-only, so pages that go come back as they were.
            let _ = unsafe {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                self.map.unchecked_advise_range(advice, offset, data.len())
            };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (offset, soon);
    }

    /// Returns the size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Tells whether the file has no bytes, which an open one always has.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}
