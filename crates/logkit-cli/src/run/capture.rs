//! What is kept of a stream: its beginning and its end, whatever it is long.

/// Beginning and end of a stream of bytes, in bounded memory.
pub(crate) struct Capture {
    head: Vec<u8>,
    /// A ring once it is full; `next` is where its oldest byte lies.
    tail: Vec<u8>,
    next: usize,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

/// A stream that has ended, as text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Captured {
    /// What was kept; where something is missing a line says how much.
    pub(crate) text: String,
    /// Bytes that came.
    pub(crate) total_bytes: u64,
    /// Something is missing.
    pub(crate) truncated: bool,
    /// Something was not UTF-8 and is replaced in the text.
    pub(crate) lossy: bool,
}

impl Capture {
    /// Keeps at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Capture {
        let head_limit = limit.div_ceil(2);
        Capture {
            head: Vec::new(),
            tail: Vec::new(),
            next: 0,
            head_limit,
            tail_limit: limit - head_limit,
            total: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_limit - self.head.len();
        if room > 0 {
            let (first, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(first);
            bytes = rest;
        }
        if bytes.len() > self.tail_limit {
            bytes = &bytes[bytes.len() - self.tail_limit..];
        }
        let room = (self.tail_limit - self.tail.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.tail.extend_from_slice(first);
        let (to_end, from_start) = rest.split_at(rest.len().min(self.tail.len() - self.next));
        self.tail[self.next..self.next + to_end.len()].copy_from_slice(to_end);
        self.tail[..from_start.len()].copy_from_slice(from_start);
        if self.tail_limit > 0 {
            self.next = (self.next + rest.len()) % self.tail_limit;
        }
    }

    /// Returns the text of what was kept. `clean` takes the escape sequences of terminals away.
    pub(crate) fn finish(mut self, clean: bool) -> Captured {
        self.tail.rotate_left(self.next);
        let missing = self.total - (self.head.len() + self.tail.len()) as u64;
        let clean = |bytes: Vec<u8>| if clean { plain(&bytes) } else { bytes };
        let mut lossy = false;
        let mut text = |bytes: &[u8]| match String::from_utf8_lossy(bytes) {
            std::borrow::Cow::Borrowed(text) => text.to_owned(),
            std::borrow::Cow::Owned(text) => {
                lossy = true;
                text
            }
        };
        let text = if missing == 0 {
            self.head.append(&mut self.tail);
            text(&clean(self.head))
        } else {
            // The cuts must not make halves of characters look like bytes that are no text.
            let head = clean(without_cut_end(self.head));
            let tail = clean(without_cut_start(self.tail));
            format!(
                "{}\n... [{missing} bytes left out] ...\n{}",
                text(&head),
                text(&tail)
            )
        };
        Captured {
            text,
            total_bytes: self.total,
            truncated: missing > 0,
            lossy,
        }
    }
}

/// Takes a character away whose end is missing.
fn without_cut_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(chunk) = bytes.utf8_chunks().last() {
        let broken = chunk.invalid();
        let begun = broken
            .first()
            .is_some_and(|first| broken.len() < length_of_character(*first));
        if begun {
            bytes.truncate(bytes.len() - broken.len());
        }
    }
    bytes
}

/// Takes a character away whose start is missing.
fn without_cut_start(mut bytes: Vec<u8>) -> Vec<u8> {
    let rest = bytes
        .iter()
        .take(3)
        .take_while(|byte| **byte & 0xC0 == 0x80)
        .count();
    bytes.drain(..rest);
    bytes
}

/// Returns how many bytes the character has that starts with this one.
fn length_of_character(first: u8) -> usize {
    match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

/// Takes escape sequences and the carriage returns of a terminal's lines away.
fn plain(bytes: &[u8]) -> Vec<u8> {
    let mut plain: Vec<u8> = Vec::with_capacity(bytes.len());
    for piece in anstream::adapter::strip_bytes(bytes) {
        plain.extend_from_slice(piece);
    }
    let mut end = 0;
    for idx in 0..plain.len() {
        if plain[idx] == b'\r' && plain.get(idx + 1) == Some(&b'\n') {
            continue;
        }
        plain[end] = plain[idx];
        end += 1;
    }
    plain.truncate(end);
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, pieces: &[&[u8]], clean: bool) -> Captured {
        let mut capture = Capture::new(limit);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish(clean)
    }

    #[test]
    fn beginning_and_end_are_kept() {
        let whole = captured(8, &[b"abc", b"defgh"], false);
        assert_eq!((whole.text.as_str(), whole.truncated), ("abcdefgh", false));
        let cut = captured(6, &[b"abc", b"def", b"ghi", b"j"], false);
        assert_eq!(cut.text, "abc\n... [4 bytes left out] ...\nhij");
        assert_eq!(
            (cut.total_bytes, cut.truncated, cut.lossy),
            (10, true, false)
        );
        assert_eq!(
            captured(0, &[b"abc"], false).text,
            "\n... [3 bytes left out] ...\n"
        );
    }

    #[test]
    fn characters_cut_in_two_are_left_out_and_other_bytes_are_replaced() {
        let cut = captured(5, &["aäöüß€x".as_bytes()], false);
        assert!(!cut.lossy, "{cut:?}");
        assert!(
            cut.text.starts_with("aä\n") && cut.text.ends_with("\nx"),
            "{cut:?}"
        );
        let foreign = captured(100, &[b"gr\xf6\xdfer"], false);
        assert_eq!(foreign.text, "gr\u{fffd}\u{fffd}er");
        assert!(foreign.lossy);
    }

    #[test]
    fn escape_sequences_of_a_terminal_are_left_out_of_the_text() {
        let text = captured(100, &[b"\x1b[31mred\x1b[0m\r\n50%\r99%"], true).text;
        assert!(text.starts_with("red\n50%"), "{text:?}");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_start_and_the_end(
            limit in 0_usize..20,
            pieces in prop::collection::vec("[a-z]{0,30}", 0..8),
        ) {
            let all = pieces.concat();
            let slices: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
            let kept = captured(limit, &slices, false);
            prop_assert_eq!(kept.total_bytes, all.len() as u64);
            prop_assert_eq!(kept.truncated, all.len() > limit);
            if all.len() <= limit {
                prop_assert_eq!(kept.text, all);
            } else {
                let head = limit.div_ceil(2);
                let tail = limit - head;
                let expected = format!(
                    "{}\n... [{} bytes left out] ...\n{}",
                    &all[..head], all.len() - limit, &all[all.len() - tail..]
                );
                prop_assert_eq!(kept.text, expected);
            }
        }

        #[test]
        fn any_bytes_are_taken(limit in 0_usize..9, bytes in prop::collection::vec(any::<u8>(), 0..40), clean in any::<bool>()) {
            captured(limit, &[&bytes], clean);
        }
    }
}
