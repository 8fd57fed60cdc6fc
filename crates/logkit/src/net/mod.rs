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
    feature = "postgres"
))]
pub(crate) mod outbox;

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
