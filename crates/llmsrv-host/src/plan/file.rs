//! Writing files of the machine.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot write {path}: {error}", path = .0.display(), error = .1)]
    Write(PathBuf, #[source] io::Error),
    #[error("{path} is a link to {target}: remove it first", path = .0.display(), target = .1.display())]
    Link(PathBuf, PathBuf),
}

/// Replaces a file as a whole, so that nobody ever sees half of it; tells whether it was another
/// one before. What it held is kept beside it.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<bool, Error> {
    let failed = |error| Error::Write(path.to_path_buf(), error);
    let before = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            let target = fs::read_link(path).unwrap_or_default();
            return Err(Error::Link(path.to_path_buf(), target));
        }
        Ok(metadata) => {
            let before = fs::read(path).map_err(failed)?;
            if before == text.as_bytes() && metadata.permissions().mode() & 0o7777 == mode {
                return Ok(false);
            }
            Some((before, metadata.permissions().mode() & 0o7777))
        }
        Err(_) => None,
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    if let Some((before, mode)) = before.filter(|(before, _)| before != text.as_bytes()) {
        let mut backup = path.as_os_str().to_owned();
        backup.push(".bak");
        replace(Path::new(&backup), &before, mode).map_err(failed)?;
    }
    replace(path, text.as_bytes(), mode).map_err(failed)?;
    Ok(true)
}

fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".llmsrv-")
        .tempfile_in(folder)?;
    file.write_all(content)?;
    let permissions = fs::Permissions::from_mode(mode);
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
