//! Keys of callers: where a request carries them, and how they are compared.

use http::{HeaderMap, HeaderValue, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The hash that stands for a key, so that none is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct KeyDigest(pub [u8; 32]);

impl KeyDigest {
    /// Hashes a key. Plain SHA-256: keys are long and random, so there is nothing to guess that a slow
    /// hash would make slower.
    pub fn of(key: &[u8]) -> KeyDigest {
        KeyDigest(Sha256::digest(key).into())
    }

    /// Tells whether both are of the same key, in a time that does not tell how much is right.
    pub fn is_same(&self, other: &KeyDigest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Returns the keys that a request carries: `Authorization: Bearer KEY` and `X-API-Key: KEY`.
pub fn sent_keys(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| strip_bearer(value.as_bytes()));
    let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
    [bearer, plain].into_iter().flatten()
}

/// Returns the key of `Bearer KEY`.
pub fn strip_bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_either_header() {
        let sent = |pairs: &[(&'static str, &'static str)]| -> Vec<String> {
            let pairs = pairs.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            });
            let headers: HeaderMap = pairs.collect();
            let keys = sent_keys(&headers);
            keys.map(|key| String::from_utf8(key.to_vec()).unwrap())
                .collect()
        };
        assert_eq!(sent(&[("authorization", "Bearer one")]), ["one"]);
        assert_eq!(sent(&[("authorization", "bearer  two ")]), ["two"]);
        assert_eq!(sent(&[("authorization", "Bearer ")]), [""]);
        assert_eq!(sent(&[("x-api-key", "three")]), ["three"]);
        let both = [("x-api-key", "b"), ("authorization", "Bearer a")];
        assert_eq!(sent(&both), ["a", "b"]);
        for none in ["one", "Basic one", "Bearer"] {
            assert_eq!(sent(&[("authorization", none)]), [""; 0], "{none}");
        }
    }

    #[test]
    fn only_the_whole_key_is_the_key() {
        let key = KeyDigest::of(b"secret");
        assert!(key.is_same(&KeyDigest::of(b"secret")));
        // The hash of a key is no key.
        for wrong in [
            &b""[..],
            b"secre",
            b"secrets",
            b"Secret",
            b"secret\0",
            &key.0,
        ] {
            assert!(!key.is_same(&KeyDigest::of(wrong)), "{wrong:?}");
        }
    }
}
