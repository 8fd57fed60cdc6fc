//! SHA-256 digests, the names of blobs.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Written `sha256:<64 hex>`; read also as `sha256-<64 hex>`, in any letter case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Computes the digest of all that `reader` gives, and counts the bytes.
    pub fn of_reader(reader: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let (mut hasher, mut n_total) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 18];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok((Digest::of_hasher(hasher), n_total)),
                Ok(n_bytes) => {
                    hasher.update(&buffer[..n_bytes]);
                    n_total += n_bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the result of a hasher.
    pub(crate) fn of_hasher(hasher: Sha256) -> Digest {
        Digest(hasher.finalize().into())
    }

    /// Returns the 64 lower-case hexadecimal digits, without prefix.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Returns `sha256-<hex>`, the name of the blob's file.
    pub fn file_name(&self) -> String {
        format!("sha256-{}", self.hex())
    }
}

/// A text is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest format")]
pub struct InvalidDigest;

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Digest, InvalidDigest> {
        let digits = text
            .strip_prefix("sha256:")
            .or_else(|| text.strip_prefix("sha256-"))
            .ok_or(InvalidDigest)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(digits, &mut bytes).map_err(|_| InvalidDigest)?;
        Ok(Digest(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn both_spellings_name_the_same_bytes() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), EMPTY);
        assert_eq!(digest.to_string(), format!("sha256:{EMPTY}"));
        assert_eq!(digest.file_name(), format!("sha256-{EMPTY}"));
        for text in [
            format!("sha256:{EMPTY}"),
            format!("sha256-{EMPTY}"),
            format!("sha256:{}", EMPTY.to_uppercase()),
        ] {
            assert_eq!(text.parse::<Digest>().unwrap(), digest, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            String::new(),
            EMPTY.into(),
            "sha256:".into(),
            format!("sha512:{EMPTY}"),
            format!("SHA256:{EMPTY}"),
            format!("sha256:{EMPTY}0"),
            format!("sha256:{}", &EMPTY[1..]),
            format!("sha256:{EMPTY}-partial"),
            format!("sha256:../{}", &EMPTY[3..]),
            format!("sha256:{}é", &EMPTY[2..]),
        ] {
            assert_eq!(text.parse::<Digest>(), Err(InvalidDigest), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC*") {
            if let Ok(digest) = text.parse::<Digest>() {
                prop_assert_eq!(digest.to_string().replace(':', "-"), text.to_lowercase().replace(':', "-"));
            }
        }

        #[test]
        fn json_round_trip(bytes in any::<[u8; 32]>()) {
            let json = serde_json::to_string(&Digest(bytes)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), Digest(bytes));
        }
    }
}
