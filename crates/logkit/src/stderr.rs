//! What the library says about itself, and the stream it says that on.

use std::io::{self, Write};

use nix::errno::Errno;

/// Bytes that a pipe takes in one piece on Linux.
const PIPE_BUF: usize = 4096;

/// Standard error without the lock of [`io::stderr`], which in a forked process may be held for ever: a writer that waits
/// for a terminal holds it. Lines stay whole beside those of others, unless one is longer than [`PIPE_BUF`].
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let first = &bytes[..bytes.len().min(PIPE_BUF)];
        let whole = first.iter().rposition(|byte| *byte == b'\n');
        let piece = &first[..whole.map_or(first.len(), |end| end + 1)];
        match nix::unistd::write(io::stderr(), piece) {
            // It is closed: that takes everything, as in the standard library.
            Err(Errno::EBADF) => Ok(bytes.len()),
            written => Ok(written?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says something about logkit itself on stderr; a closed stderr is no problem.
pub fn notice(message: &str) {
    let _ = Stderr.write_all(format!("logkit: {message}\n").as_bytes());
}
