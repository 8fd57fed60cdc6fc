//! Sinks that talk to others, and what they have in common.
//!
//! None of them makes the writer wait for a peer: what is to be sent waits in an [`outbox`] with
//! limits, which a thread of its own empties.

#[cfg(feature = "net")]
pub(crate) mod http;
#[cfg(any(
    feature = "webhook",
    feature = "otlp",
    feature = "remote",
    feature = "grpc",
    feature = "postgres",
    feature = "syslog"
))]
pub(crate) mod outbox;

#[cfg(feature = "grpc")]
pub(crate) mod grpc;
#[cfg(any(feature = "remote", feature = "grpc"))]
pub(crate) mod service;

#[cfg(feature = "llm")]
pub(crate) mod llm;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "remote")]
pub(crate) mod remote;
#[cfg(feature = "syslog")]
pub(crate) mod syslog;
#[cfg(feature = "webhook")]
pub(crate) mod webhook;

/// A number that is equal for equal texts, now and in later versions: FNV-1a of 128 bits
/// (<http://www.isthe.com/chongo/tech/comp/fnv/>). Not for secrets.
#[cfg(any(feature = "webhook", feature = "llm", feature = "otlp"))]
pub(crate) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = OFFSET;
    for text in texts {
        // 0xFF is in no text and so ends one.
        for byte in text.bytes().chain([0xFF]) {
            hash = (hash ^ u128::from(byte)).wrapping_mul(PRIME);
        }
    }
    hash
}

/// Decodes `%41`; what is no such escape stays.
#[cfg(any(feature = "net", feature = "grpc"))]
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (b'%', Some(value)) = (byte, hex) {
            out.push(value);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
