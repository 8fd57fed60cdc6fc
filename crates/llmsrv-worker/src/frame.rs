//! Frames on a socket: a length and so many bytes, with a bound and a deadline for both directions.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// One end of the socket between the server and a worker.
pub(crate) struct Frames {
    socket: UnixStream,
}

/// When a frame must have been sent or received; `None` = whenever.
pub(crate) type Deadline = Option<Instant>;

impl Frames {
    pub(crate) fn new(socket: UnixStream) -> Frames {
        Frames { socket }
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// The other side is gone, or does not read in time ([`io::ErrorKind::TimedOut`]).
    pub(crate) fn send(&mut self, frame: &[u8], deadline: Deadline) -> io::Result<()> {
        self.write(&(frame.len() as u64).to_le_bytes(), deadline)?;
        self.write(frame, deadline)
    }

    /// Receives a frame of at most `most` bytes into `frame`.
    ///
    /// # Errors
    ///
    /// The other side is gone ([`io::ErrorKind::UnexpectedEof`]), says nothing in time
    /// ([`io::ErrorKind::TimedOut`]), or announces more ([`io::ErrorKind::InvalidData`]).
    pub(crate) fn receive(
        &mut self,
        frame: &mut Vec<u8>,
        most: u64,
        deadline: Deadline,
    ) -> io::Result<()> {
        let mut length = [0; 8];
        self.read(&mut length, deadline)?;
        let length = u64::from_le_bytes(length);
        if length > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message is longer than any may be",
            ));
        }
        // Memory is taken as bytes arrive: a length alone costs nothing.
        frame.clear();
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        while left > 0 {
            let start = frame.len();
            let n = left.min(PIECE);
            frame.resize(start + n, 0);
            self.read(frame.get_mut(start..).unwrap_or_default(), deadline)?;
            left -= n;
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_write_timeout(left(deadline)?)?;
            match self.socket.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) => retry(error)?,
            }
        }
        Ok(())
    }

    fn read(&mut self, mut bytes: &mut [u8], deadline: Deadline) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_read_timeout(left(deadline)?)?;
            match self.socket.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => bytes = bytes.get_mut(n..).unwrap_or_default(),
                Err(error) => retry(error)?,
            }
        }
        Ok(())
    }
}

/// Returns how long to wait; [`io::ErrorKind::TimedOut`] if the time is over.
fn left(deadline: Deadline) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else {
        return Ok(None);
    };
    match deadline.checked_duration_since(Instant::now()) {
        // The system counts in microseconds, and takes none for "for ever".
        Some(left) if left >= Duration::from_micros(1) => Ok(Some(left)),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Returns the errors that end a transfer; after the others it goes on, as long as there is time.
fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
        _ => Err(error),
    }
}

/// Bytes of a frame that are read at a time.
const PIECE: usize = 1 << 20;
