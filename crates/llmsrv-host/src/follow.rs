//! Reading a log file: its last lines, and what is written to it from now on.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

/// A log that is being read. It survives that the file is cut, or replaced by another one.
#[derive(Debug)]
pub struct Follow {
    path: PathBuf,
    file: File,
    /// Up to where it was read.
    position: u64,
}

impl Follow {
    /// Opens a log at its last `lines`; none of them is before the first that `is_new`.
    pub fn open(
        path: &Path,
        lines: usize,
        is_new: Option<&dyn Fn(&str) -> bool>,
    ) -> io::Result<Follow> {
        let mut file = open(path)?;
        let mut position = start_of_last(&mut file, lines)?;
        if let Some(is_new) = is_new {
            position = position.max(start_of_new(&file, is_new)?);
        }
        Ok(Follow {
            path: path.to_path_buf(),
            file,
            position,
        })
    }

    /// Reads what is there and was not read before, at most a mebibyte. Nothing means that nothing
    /// more is there now.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        // It was cut: what is in it now is new.
        if self.file.metadata()?.len() < self.position {
            self.position = 0;
        }
        let found = self.read_open()?;
        if !found.is_empty() {
            return Ok(found);
        }
        // All of it is read; perhaps another one has its name now.
        let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
        match fs::symlink_metadata(&self.path) {
            Ok(there) if identity(&there) != identity(&self.file.metadata()?) => {
                self.file = open(&self.path)?;
                self.position = 0;
                self.read_open()
            }
            _ => Ok(Vec::new()),
        }
    }

    fn read_open(&mut self) -> io::Result<Vec<u8>> {
        self.file.seek(SeekFrom::Start(self.position))?;
        let mut found = Vec::new();
        (&self.file).take(PIECE).read_to_end(&mut found)?;
        self.position += found.len() as u64;
        Ok(found)
    }
}

/// Returns the last lines of a log.
pub fn last(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let mut follow = Follow::open(path, lines, None)?;
    let mut text = Vec::new();
    // More than this is no log for people.
    while text.len() < 16 * PIECE as usize {
        match follow.read()? {
            piece if piece.is_empty() => break,
            piece => text.extend(piece),
        }
    }
    let text = String::from_utf8_lossy(&text);
    let skipped = text.lines().count().saturating_sub(lines);
    Ok(text.lines().skip(skipped).map(str::to_owned).collect())
}

/// Opens a plain file; it may lie in a folder where all can write.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    Ok(file)
}

/// Finds where the last lines begin, reading backwards.
fn start_of_last(file: &mut File, lines: usize) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let (mut position, mut missing) = (end, lines);
    let mut block = vec![0; 64 << 10];
    while position > 0 {
        let size = position.min(block.len() as u64) as usize;
        let Some(block) = block.get_mut(..size) else {
            break;
        };
        position -= size as u64;
        file.seek(SeekFrom::Start(position))?;
        file.read_exact(block)?;
        for (at, _) in block
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, byte)| **byte == b'\n')
        {
            let after = position + at as u64 + 1;
            // The end of the last line begins no other.
            if after == end {
                continue;
            }
            if missing <= 1 {
                return Ok(if lines == 0 { end } else { after });
            }
            missing -= 1;
        }
    }
    Ok(if lines == 0 { end } else { 0 })
}

/// Finds where the first new line begins; the end, if none is.
fn start_of_new(file: &File, is_new: &dyn Fn(&str) -> bool) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    reader.seek(SeekFrom::Start(0))?;
    let (mut position, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = reader.by_ref().take(PIECE).read_until(b'\n', &mut line)?;
        if read == 0 || is_new(&String::from_utf8_lossy(&line)) {
            return Ok(position);
        }
        position += read as u64;
    }
}

/// Most bytes held at once.
const PIECE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn text(follow: &mut Follow) -> String {
        String::from_utf8(follow.read().unwrap()).unwrap()
    }

    #[test]
    fn a_log_is_followed_when_it_is_cut_or_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut follow = Follow::open(&path, 1, None).unwrap();
        assert_eq!(text(&mut follow), "two\n");
        assert_eq!(text(&mut follow), "");
        let append = |text: &str| {
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append("three\n");
        assert_eq!(text(&mut follow), "three\n");
        // Cut.
        fs::write(&path, "new\n").unwrap();
        assert_eq!(text(&mut follow), "new\n");
        // Moved away, and written to once more before its name is given to another one.
        fs::rename(&path, folder.path().join("x.log.1")).unwrap();
        assert_eq!(text(&mut follow), "");
        let mut old = fs::OpenOptions::new()
            .append(true)
            .open(folder.path().join("x.log.1"))
            .unwrap();
        old.write_all(b"last\n").unwrap();
        fs::write(&path, "first\n").unwrap();
        assert_eq!(text(&mut follow), "last\n");
        assert_eq!(text(&mut follow), "first\n");
        assert_eq!(text(&mut follow), "");
    }

    #[test]
    fn old_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        fs::write(&path, "1 a\n  more\n2 b\n  more\n3 c\n").unwrap();
        let since = |first: &'static str| move |line: &str| line.starts_with(first);
        let mut all = Follow::open(&path, 100, Some(&since("2"))).unwrap();
        assert_eq!(text(&mut all), "2 b\n  more\n3 c\n");
        let mut few = Follow::open(&path, 1, Some(&since("2"))).unwrap();
        assert_eq!(text(&mut few), "3 c\n");
        let mut none = Follow::open(&path, 100, Some(&since("9"))).unwrap();
        assert_eq!(text(&mut none), "");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(last(&link, 1).is_err());
        assert!(last(folder.path(), 1).is_err());
    }

    proptest! {
        #[test]
        fn the_last_lines_are_the_last_ones(lines in prop::collection::vec("[a-z]{0,5}", 0..20), n in 0_usize..25, ends in any::<bool>()) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x.log");
            let mut all = lines.join("\n");
            if ends && !all.is_empty() {
                all += "\n";
            }
            fs::write(&path, &all).unwrap();
            let expected: Vec<&str> = all.lines().collect();
            let expected = &expected[expected.len().saturating_sub(n)..];
            prop_assert_eq!(last(&path, n).unwrap(), expected);
        }
    }
}
