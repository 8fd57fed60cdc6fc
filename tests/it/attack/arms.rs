//! What an attack is: something to send, and what may come back.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

/// One thing that strangers may send.
pub struct Attack {
    pub name: String,
    pub path: String,
    pub headers: Vec<(&'static str, &'static str)>,
    /// Made when it is sent: all of them together would take gigabytes.
    pub body: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// Statuses of the answer. What is refused because the server is busy is allowed besides.
    pub allowed: &'static [u16],
}

/// Harmless, or refused.
pub const FINE: &[u16] = &[200, 400, 413];
/// Refused for what it is.
pub const REFUSED: &[u16] = &[400, 413];

impl Attack {
    pub fn new(
        name: impl Into<String>,
        path: impl Into<String>,
        allowed: &'static [u16],
        body: impl Fn() -> Vec<u8> + Send + Sync + 'static,
    ) -> Attack {
        Attack {
            name: name.into(),
            path: path.into(),
            headers: Vec::new(),
            body: Box::new(body),
            allowed,
        }
    }

    pub fn with(mut self, name: &'static str, value: &'static str) -> Attack {
        self.headers.push((name, value));
        self
    }

    /// The same, compressed in turn by each of the comma-separated names.
    pub fn packed(self, encoding: &'static str) -> Attack {
        let body = self.body;
        Attack {
            name: format!("{}, {encoding}", self.name),
            body: Box::new(move || {
                encoding.split(", ").fold(body(), |bytes, name| match name {
                    "zstd" => zstd(&bytes),
                    _ => gzip(&bytes),
                })
            }),
            ..self
        }
        .with("content-encoding", encoding)
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A list of many small lists: a value in memory is a hundred times as large as this.
pub fn lists(n_bytes: usize) -> String {
    format!("[{}0]", "[0],".repeat(n_bytes / 4))
}

pub fn objects(n_bytes: usize) -> String {
    format!("[{}{{}}]", "{},".repeat(n_bytes / 3))
}

/// `inner` within as many of `open` and `close`.
pub fn nested(open: &str, inner: &str, close: &str, levels: usize) -> String {
    [&open.repeat(levels), inner, &close.repeat(levels)].concat()
}

/// A field of a protobuf message, with a length.
pub fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(bytes);
    message
}
