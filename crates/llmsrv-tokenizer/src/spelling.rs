//! How vocabularies spell bytes and spaces.
//!
//! Byte-level BPE writes each byte as a printable character: printable Latin-1 stands for itself,
//! the other 68 bytes are U+0100 onwards in order, so a space is `Ġ` (as published with GPT-2).
//! SentencePiece writes a space as U+2581 and a byte without text as `<0x0A>`.

/// Stands for a space in SentencePiece vocabularies.
pub(crate) const SPACE: char = '\u{2581}';

/// Returns the character that spells a byte.
pub(crate) fn byte_char(byte: u8) -> char {
    let shifted = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => return char::from(byte),
        0..=0x20 => u32::from(byte),
        0x7f..=0xa0 => u32::from(byte) - 0x7f + 0x21,
        0xad => 0x43,
    };
    char::from_u32(0x100 + shifted).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Returns the bytes of a byte-level spelling, or `None` where a character spells no byte.
pub(crate) fn spelled_bytes(text: &str) -> Option<Vec<u8>> {
    let byte = |c: char| match u32::from(c) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    };
    text.chars().map(byte).collect()
}

/// Returns the byte of a spelling such as `<0x0A>`.
pub(crate) fn hex_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// Cuts text in front of every space that follows something else. Merges and segmentations never
/// cross such a place when no token does, so the parts can be encoded apart.
pub(crate) fn cut_at_spaces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut after_word = false;
        let end = rest.char_indices().find_map(|(at, c)| {
            let cut = c == SPACE && after_word;
            after_word = c != SPACE;
            cut.then_some(at)
        });
        let (word, tail) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
        rest = tail;
        Some(word).filter(|word| !word.is_empty())
    })
}

/// Returns whether a token crosses a place where [`cut_at_spaces`] cuts.
pub(crate) fn crosses_cut(token: &str) -> bool {
    cut_at_spaces(token).nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let spelled: String = (0..=255).map(byte_char).collect();
        assert_eq!(spelled_bytes(&spelled), Some((0..=255).collect()));
        assert_eq!(byte_char(b' '), 'Ġ');
        assert_eq!(byte_char(b'\n'), 'Ċ');
        assert_eq!(spelled_bytes("a b"), None);
    }

    #[test]
    fn hex_bytes() {
        assert_eq!(hex_byte("<0x0A>"), Some(10));
        for text in ["<0x0A", "<0x+A>", "<0x100>", "0x0A", ""] {
            assert_eq!(hex_byte(text), None, "{text}");
        }
    }

    #[test]
    fn cuts() {
        let cut = |text| cut_at_spaces(text).collect::<Vec<_>>();
        assert_eq!(cut(""), Vec::<&str>::new());
        assert_eq!(cut("▁▁a▁b▁"), ["▁▁a", "▁b", "▁"]);
        assert!(crosses_cut("a▁") && !crosses_cut("▁▁a"));
    }
}
