//! The files of a split model to one file.

use std::path::{Path, PathBuf};

use llmsrv_gguf::{GgufFile, Layout, Metadata};

use crate::{
    Error, Progress,
    quantize::{COPY_BYTES, create, go_on},
};

/// Writes the model whose files are `parts`, in their order, to `destination` as one file.
///
/// The keys are those of the first part; only it has all of them. `progress` is told the bytes that
/// are done and their total. Whatever fails, a destination that was begun is removed.
///
/// # Errors
/// [`Error::MissingFile`] without parts, [`Error::Invalid`] if the parts have fewer or more tensors
/// than they announce, or one twice.
pub fn join(
    parts: &[PathBuf],
    destination: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let opened = parts.iter().map(|path| GgufFile::open(path));
    let parts: Vec<GgufFile> = opened.collect::<Result<_, _>>()?;
    let first = parts.first().ok_or(Error::MissingFile("the first part"))?;
    let mut metadata = Metadata::new();
    for (key, value) in first.metadata().iter() {
        if !key.starts_with("split.") {
            metadata.set(key, value.clone());
        }
    }
    let tensors = || {
        let parts = parts.iter();
        parts.flat_map(|part| {
            part.header()
                .tensors
                .iter()
                .map(move |tensor| (part, tensor))
        })
    };
    let announced = first.metadata().usize("split.tensors.count");
    if announced.is_some_and(|announced| announced != tensors().count()) {
        let message = "the parts have not all tensors that the first one announces";
        return Err(Error::Invalid(message.into()));
    }
    let mut layout = Layout::new(metadata);
    for (_, tensor) in tensors() {
        layout.tensor(&tensor.name, &tensor.shape, tensor.dtype)?;
    }
    let total = layout.data_bytes();
    create(destination, &layout, |out| {
        let mut done = 0;
        for (part, tensor) in tensors() {
            for piece in part.data(tensor).chunks(COPY_BYTES) {
                out.write_all(piece)?;
                done += piece.len() as u64;
                go_on(progress(done, total))?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, ops::ControlFlow};

    use llmsrv_gguf::{TensorType, Writer};

    use super::*;

    /// Writes a file with the given keys and tensors of one row.
    fn write(path: &Path, keys: &[(&str, u32)], tensors: &[(&str, u8)]) {
        let mut metadata = Metadata::new();
        for (key, value) in keys {
            metadata.set(*key, *value);
        }
        let mut writer = Writer::new(metadata);
        for (name, byte) in tensors {
            let data = vec![*byte; 12];
            writer.tensor(name, &[3], TensorType::F32, data).unwrap();
        }
        fs::write(path, writer.to_bytes().unwrap()).unwrap();
    }

    #[test]
    fn parts_become_the_file_they_were_cut_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let split = |no| {
            [
                ("split.count", 2),
                ("split.no", no),
                ("split.tensors.count", 3),
            ]
        };
        write(&path("whole"), &[("x", 7)], &[("a", 1), ("b", 2), ("c", 3)]);
        let keys = [&[("x", 7)][..], &split(0)].concat();
        write(&path("1"), &keys, &[("a", 1), ("b", 2)]);
        write(&path("2"), &split(1), &[("c", 3)]);
        write(&path("twice"), &split(1), &[("a", 3)]);
        let join = |parts: &[&str]| {
            let parts: Vec<PathBuf> = parts.iter().map(|part| path(part)).collect();
            join(&parts, &path("joined"), &mut |_, _| {
                ControlFlow::Continue(())
            })
        };
        join(&["1", "2"]).unwrap();
        assert_eq!(
            fs::read(path("joined")).unwrap(),
            fs::read(path("whole")).unwrap()
        );
        fs::remove_file(path("joined")).unwrap();
        for parts in [&[][..], &["1"], &["1", "twice"], &["1", "2", "2"]] {
            assert!(join(parts).is_err(), "{parts:?}");
            assert!(!path("joined").exists());
        }
    }
}
