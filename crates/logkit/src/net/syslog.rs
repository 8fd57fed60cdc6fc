//! Entries to the log of the system: messages of RFC 5424 to a local socket.
//!
//! A receiver's queue may hold as few as ten messages, fewer than a batch has entries, and a daemon that is
//! started anew is away for a moment. So entries wait in an [`Outbox`], whose thread waits for room as
//! long as it takes: a send that never waits would lose them, or need a queue of its own.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fmt::Write as _,
    io::{self, ErrorKind},
    os::unix::net::{SocketAddr, UnixDatagram},
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use crate::{
    Entry, Level, Sink, SinkError,
    files::io_error,
    net::outbox::{Courier, DeliveryCounts, Failure, Limits, Outbox, hand_on_to_outbox},
    sinks::console::{console_message, escape},
};

/// Sends each entry as one message to the log of the system, over a Unix datagram socket.
///
/// At most 20,000 entries or 32 MiB wait; the oldest go when there is no room. A daemon that is away is
/// asked again and again, and when the logger is closed once more.
#[derive(Debug)]
pub struct SyslogSink {
    outbox: Outbox<Daemon>,
    app_name: String,
}

impl SyslogSink {
    /// Where systems take messages.
    pub const PATH: &str = "/dev/log";

    /// Sends to the socket at `path`, under the name that the program was called by. Nobody need listen
    /// there yet: nothing is sent before the first entry.
    ///
    /// ```
    /// use std::os::unix::net::UnixDatagram;
    ///
    /// use logkit::{Entry, Logger, SyslogSink};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("log");
    /// let daemon = UnixDatagram::bind(&path)?;
    /// let sink = SyslogSink::new(&path)?.app_name("billing");
    /// let logger = Logger::builder().sink(sink).build();
    /// logger.emit(Entry { function_name: "pay".into(), ..Entry::default() });
    /// assert!(logger.close());
    ///
    /// let mut message = [0; 8192];
    /// let n_bytes = daemon.recv(&mut message)?;
    /// assert!(message[..n_bytes].starts_with(b"<14>1 "));
    /// assert!(message[..n_bytes].ends_with(b" - [logkit@32473 function=\"pay\"] pay()"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`] if the path is empty or too long for a socket: about 100 bytes with the folders
    /// before it.
    pub fn new(path: impl AsRef<Path>) -> Result<SyslogSink, SinkError> {
        let given = path.as_ref();
        let wrong = |error| io_error(given, error);
        // A program may change its folder later.
        let path = std::path::absolute(given).map_err(wrong)?;
        let address = SocketAddr::from_pathname(&path).map_err(wrong)?;
        let limits = Limits {
            // What was sent is not sent again with what was not.
            batch_items: 1,
            timeout: ROOM,
            pace: PACE,
            leaves_early: true,
            ..Limits::default()
        };
        Ok(SyslogSink {
            outbox: Outbox::new(
                Daemon {
                    path,
                    address,
                    socket: None,
                },
                limits,
            ),
            app_name: app_name(&program()),
        })
    }

    /// Sets APP-NAME, by which daemons sort messages: 48 characters of ASCII without blanks, and `_` for any
    /// other.
    pub fn app_name(mut self, name: &str) -> SyslogSink {
        self.app_name = app_name(name);
        self
    }

    /// Counts of entries sent and lost.
    pub fn counts(&self) -> DeliveryCounts {
        self.outbox.counts()
    }
}

impl Sink for SyslogSink {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.outbox.push(entries.iter().map(|entry| {
            let message = message(entry, &self.app_name);
            let n_bytes = message.len();
            (message, n_bytes)
        }))
    }

    /// Nothing that comes later is in a message.
    fn can_update(&self) -> bool {
        true
    }

    hand_on_to_outbox!();

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("syslog")
    }
}

/// How long a message waits for room with the daemon before that is told.
const ROOM: Duration = Duration::from_secs(1);
/// The first wait for a daemon that is away; to ask costs two calls of the system.
const PACE: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Daemon {
    path: PathBuf,
    address: SocketAddr,
    /// It is connected to nothing: each message goes to whoever listens at the path then, also after a
    /// daemon was started anew.
    socket: Option<UnixDatagram>,
}

impl Courier for Daemon {
    type Item = String;

    fn deliver(&mut self, messages: &[String], timeout: Duration) -> Result<(), Failure> {
        let mut all = messages.iter();
        all.try_for_each(|message| self.send(message.as_bytes(), timeout))
            .map_err(|error| {
                let why = format!("{}: {error}", self.path.display());
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Away {
                        why: format!("{} takes no messages", self.path.display()),
                        // The message has waited already.
                        after: Some(Duration::ZERO),
                    },
                    ErrorKind::NotFound
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::PermissionDenied => Failure::Away { why, after: None },
                    _ => Failure::Later { why, after: None },
                }
            })
    }
}

impl Daemon {
    /// Sends a message, and waits that long for room.
    fn send(&mut self, message: &[u8], timeout: Duration) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(UnixDatagram::unbound()?),
        };
        socket.set_write_timeout(Some(timeout))?;
        loop {
            match socket.send_to_addr(message, &self.address) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                sent => return sent.map(drop),
            }
        }
    }
}

/// The name that the program was called by, as that of `syslog(3)`.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name();
    name.map_or_else(String::new, |name| OsStr::to_string_lossy(name).into())
}

/// APP-NAME: up to 48 printable characters of ASCII, or `-` (RFC 5424, 6.2.5).
fn app_name(name: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    match name {
        "" => "-".to_owned(),
        name => name.chars().take(48).map(printable).collect(),
    }
}

/// Facility "user": what programs log.
const FACILITY: u8 = 1;
/// Bytes of a message: what receivers take unless they are told otherwise (rsyslog: 8 KiB).
const MAX_BYTES: usize = 8192;
/// Bytes of a value of structured data, before its marks are escaped: the text matters more.
const MAX_VALUE: usize = 256;
/// Ours. 32473 is the number of an enterprise that examples have (RFC 5612), and logkit has no other.
const SD_ID: &str = "logkit@32473";

/// The message of an entry: RFC 5424, 6. HOSTNAME and MSGID are left out, since a local socket says where a
/// message is from. The text is UTF-8 without the mark that says so, which daemons show as text.
fn message(entry: &Entry, app_name: &str) -> String {
    let priority = FACILITY * 8 + severity(&entry.level);
    let mut out = format!(
        "<{priority}>1 {} - {app_name} {} - ",
        entry.timestamp,
        process::id()
    );
    write_structured_data(&mut out, entry);
    out.push(' ');
    let text = console_message(entry);
    out.push_str(&cut(&text, MAX_BYTES.saturating_sub(out.len())));
    out
}

fn severity(level: &Level) -> u8 {
    match level {
        Level::Critical => 2,
        Level::Error => 3,
        Level::Warning => 4,
        Level::Info => 6,
        Level::Debug | Level::Other(_) => 7,
    }
}

/// What a daemon may search for; what is empty is left out.
fn write_structured_data(out: &mut String, entry: &Entry) {
    let duration = entry.duration_ms.map(|ms| ms.to_string());
    let mut start = "[";
    for (name, value) in [
        ("function", &*entry.function_name),
        ("module", &*entry.module),
        ("duration_ms", duration.as_deref().unwrap_or_default()),
    ] {
        if value.is_empty() {
            continue;
        }
        if !start.is_empty() {
            out.push_str(start);
            out.push_str(SD_ID);
            start = "";
        }
        let mut line = String::new();
        escape(&mut line, value);
        // Writing to a string does not fail.
        let _ = write!(out, " {name}=\"");
        for c in cut(&line, MAX_VALUE).chars() {
            if matches!(c, '"' | '\\' | ']') {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('"');
    }
    out.push(if start.is_empty() { ']' } else { '-' });
}

/// The text, or as much of it as there is room for, with the mark of all texts that are cut.
fn cut(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(MARK_BYTES));
    let n_cut = text[end..].chars().count();
    Cow::Owned(format!("{}... [truncated {n_cut} chars]", &text[..end]))
}

/// Bytes of `... [truncated N chars]` for any number.
const MARK_BYTES: usize = 42;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_are_printable() {
        for (name, shown) in [
            ("shop", "shop"),
            ("my shop\n", "my_shop_"),
            ("żółw", "___w"),
            ("", "-"),
        ] {
            assert_eq!(app_name(name), shown);
        }
        assert_eq!(app_name(&"x".repeat(99)), "x".repeat(48));
        assert!(!program().is_empty());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("żółw", 7), "żółw");
        let text = "ż".repeat(100);
        assert_eq!(cut(&text, 200), text);
        for max_bytes in 42..200 {
            let shown = cut(&text, max_bytes);
            let n_kept = (max_bytes - 42) / 2;
            let mark = format!("... [truncated {} chars]", 100 - n_kept);
            assert_eq!(shown, "ż".repeat(n_kept) + &mark);
            assert!(shown.len() <= max_bytes);
        }
    }

    #[test]
    fn levels_have_severities() {
        let found = Level::ALL.map(|level| severity(&level));
        assert_eq!(found, [7, 6, 4, 3, 2]);
        assert_eq!(severity(&Level::parse("trace")), 7);
    }
}
