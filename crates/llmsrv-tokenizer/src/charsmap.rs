//! The normalisation table of SentencePiece: `precompiled_charsmap`.
//!
//! The blob is a 32-bit size, a double-array trie of that many bytes (32-bit units, little
//! endian), and NUL-terminated replacement texts. A unit holds, from the lowest bit: the label of
//! the edge into it (8 bits), whether it ends a key (1 bit), whether the offset is in units of 256
//! (1 bit), and the offset to its children (22 bits), relative by exclusive or. The unit of a
//! value has its highest bit set, the rest is the place of the replacement. The format is that of
//! darts-clone, on which SentencePiece builds.

use crate::Error;

/// A parsed table.
#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    /// Parses a blob; an empty one is a table that replaces nothing.
    pub(crate) fn parse(blob: &[u8]) -> Result<Charsmap, Error> {
        if blob.is_empty() {
            return Ok(Charsmap {
                units: Vec::new(),
                replacements: Vec::new(),
            });
        }
        let (size, rest) = blob
            .split_first_chunk::<4>()
            .ok_or(Error::Charsmap("no trie size"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) = rest
            .split_at_checked(size)
            .ok_or(Error::Charsmap("the trie is cut off"))?;
        let (units, []) = trie.as_chunks::<4>() else {
            return Err(Error::Charsmap("the trie is not a list of 32-bit units"));
        };
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        Ok(Charsmap {
            units,
            replacements: replacements.to_vec(),
        })
    }

    /// Returns the normalised text.
    pub(crate) fn apply(&self, text: &str) -> String {
        if self.units.is_empty() {
            return text.to_owned();
        }
        let mut normalised = Vec::with_capacity(text.len() + text.len() / 4);
        let mut at = 0;
        while let Some(rest) = text.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
            if let Some((len, replacement)) = self.longest(rest) {
                normalised.extend_from_slice(replacement);
                at += len;
            } else if let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) {
                normalised.extend_from_slice(rest.get(..c.len_utf8()).unwrap_or_default());
                at += c.len_utf8();
            } else {
                // A key of a damaged table ended inside a character.
                normalised.extend_from_slice("\u{fffd}".as_bytes());
                at += 1;
            }
        }
        String::from_utf8(normalised)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Returns length and replacement of the longest key that `text` begins with.
    fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut found = None;
        let mut idx = offset(self.unit(0)?);
        for (&byte, len) in text.iter().zip(1..) {
            idx ^= u32::from(byte);
            let Some(unit) = self.unit(idx) else { break };
            if byte == 0 || label(unit) != u32::from(byte) {
                break;
            }
            idx ^= offset(unit);
            if ends_key(unit)
                && let Some(value) = self.unit(idx)
                && let Some(replacement) = self.replacement((value & (u32::MAX >> 1)) as usize)
            {
                found = Some((len, replacement));
            }
        }
        found
    }

    fn unit(&self, idx: u32) -> Option<u32> {
        self.units.get(idx as usize).copied()
    }

    fn replacement(&self, place: usize) -> Option<&[u8]> {
        let rest = self.replacements.get(place..)?;
        rest.get(..rest.iter().position(|&byte| byte == 0)?)
    }
}

fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xff)
}

fn ends_key(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

fn offset(unit: u32) -> u32 {
    (unit >> 10) << ((unit & 1 << 9) >> 6)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn offsets_come_in_two_sizes() {
        let mut units = vec![0u32; 0x400];
        let wide = |offset: u32| offset >> 8 << 10 | 1 << 9;
        units[0] = wide(0x100);
        units[0x100 ^ 0x61] = wide(0x200) | 1 << 8 | 0x61;
        units[0x100 ^ 0x61 ^ 0x200] = 1 << 31 | 2;
        // The second byte of a longer key, with a small offset to its value.
        units[0x161 ^ 0x200 ^ 0x62] = 0x10 << 10 | 1 << 8 | 0x62;
        units[0x161 ^ 0x200 ^ 0x62 ^ 0x10] = 1 << 31 | 6;
        let mut blob = (units.len() as u32 * 4).to_le_bytes().to_vec();
        blob.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        blob.extend(b"-\0xyz\0long\0");
        let charsmap = Charsmap::parse(&blob).unwrap();
        assert_eq!(charsmap.apply("a\u{e9}ab aab b"), "xyz\u{e9}long xyzlong b");
    }

    #[test]
    fn damaged_tables() {
        for (blob, fine) in [
            (&[][..], true),
            (&[0, 0, 0], false),
            (&[8, 0, 0, 0, 1, 2, 3, 4], false),
            (&[3, 0, 0, 0, 1, 2, 3, 4], false),
            (&[4, 0, 0, 0, 1, 2, 3, 4], true),
        ] {
            assert_eq!(Charsmap::parse(blob).is_ok(), fine, "{blob:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(mut blob in proptest::collection::vec(any::<u8>(), 8..200), text in "\\PC{0,20}") {
            let size = (blob.len() as u32 - 4) / 8 * 4;
            blob[..4].copy_from_slice(&size.to_le_bytes());
            Charsmap::parse(&blob).unwrap().apply(&text);
        }
    }
}
