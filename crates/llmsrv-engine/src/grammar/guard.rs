//! What JSON must keep to that a grammar does not say: no name twice in an object, and an end to
//! everything that a schema leaves without one.
//!
//! A model that writes `{"a": 1, "b": 2, …` for as long as it may is within its grammar, and small ones
//! repeat themselves until they are cut. A text or a list in which the same tokens come again and
//! again is closed. All of this applies only where the grammar offers another way on: what a schema
//! asks for is always possible.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use llmsrv_tokenizer::Tokenizer;
use toktrie::SimpleVob;

use crate::{TokenId, detok::output_bytes};

/// The tokens of a vocabulary that can lead out of bounds.
pub(super) struct Words {
    tokenizer: Arc<Tokenizer>,
    /// Tokens with a quotation mark.
    quoted: Vec<Word>,
    /// Tokens that go on with a number.
    numeric: Vec<Word>,
    /// Tokens that do nothing but close an object or a list.
    closing: Vec<TokenId>,
}

struct Word {
    token: TokenId,
    bytes: Box<[u8]>,
    n_quotes: usize,
}

impl Words {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Words {
        let (mut quoted, mut numeric, mut closing) = (Vec::new(), Vec::new(), Vec::new());
        for token in 0..tokenizer.vocab_size() as TokenId {
            let bytes = output_bytes(&tokenizer, token);
            let n_quotes = bytes.split(|byte| *byte == b'"').count() - 1;
            let word = || Word {
                token,
                bytes: bytes.to_vec().into(),
                n_quotes,
            };
            if n_quotes > 0 {
                quoted.push(word());
            }
            if bytes
                .first()
                .is_some_and(|byte| byte.is_ascii_digit() || b".eE+-".contains(byte))
            {
                numeric.push(word());
            }
            if matches!(&*bytes, b"}" | b"]") {
                closing.push(token);
            }
        }
        Words {
            tokenizer,
            quoted,
            numeric,
            closing,
        }
    }
}

/// Follows JSON and takes out of a mask what leads out of bounds.
#[derive(Clone)]
pub(super) struct Guard {
    words: Arc<Words>,
    at: Position,
    /// Repetitions in the output, and in the text that it is in.
    whole: Loops,
    text: Loops,
}

/// Finds out that the same tokens come again and again.
#[derive(Clone)]
struct Loops {
    /// The last tokens, the latest first.
    last: VecDeque<TokenId>,
    /// Of how many tokens in a row each was the same as the one so many places before.
    n_same: [usize; MAX_PERIOD + 1],
}

impl Default for Loops {
    fn default() -> Loops {
        Loops {
            last: VecDeque::new(),
            n_same: [0; MAX_PERIOD + 1],
        }
    }
}

impl Loops {
    fn push(&mut self, token: TokenId) {
        for (period, n_same) in self.n_same.iter_mut().enumerate().skip(1) {
            let is_same = self.last.get(period - 1) == Some(&token);
            *n_same = if is_same { *n_same + 1 } else { 0 };
        }
        self.last.truncate(MAX_PERIOD - 1);
        self.last.push_front(token);
    }

    /// Whether the last tokens, `least` of them and more, are `n_times` the same.
    fn is_stuck(&self, least: usize, n_times: usize) -> bool {
        let is_loop = |(period, n_same): (usize, &usize)| {
            let n_tokens = n_same + period;
            *n_same > 0 && n_tokens >= least && n_tokens >= n_times * period
        };
        self.n_same.iter().enumerate().skip(1).any(is_loop)
    }
}

impl Guard {
    /// A guard at the start of an output whose integers have up to `integer_digits` digits.
    pub(super) fn new(words: Arc<Words>, integer_digits: usize) -> Guard {
        Guard {
            words,
            at: Position {
                integer_digits,
                ..Position::default()
            },
            whole: Loops::default(),
            text: Loops::default(),
        }
    }

    /// Returns a guard at the start of an output.
    pub(super) fn fresh(&self) -> Guard {
        Guard::new(self.words.clone(), self.at.integer_digits)
    }

    /// Takes what a token adds to the output.
    pub(super) fn push(&mut self, token: TokenId) {
        for byte in output_bytes(&self.words.tokenizer, token).iter() {
            // What the grammar asks for is right, in bounds or not.
            let _ = self.at.push(*byte);
        }
        self.whole.push(token);
        match self.at.place {
            Place::Name { .. } | Place::Text { .. } => self.text.push(token),
            Place::Between | Place::Number { .. } => self.text = Loops::default(),
        }
    }

    /// Takes the tokens out of `mask` that lead out of bounds, unless there are no others. `after` gives
    /// what the grammar allows after a token.
    pub(super) fn restrict(
        &self,
        mask: &mut SimpleVob,
        after: &dyn Fn(TokenId) -> Option<SimpleVob>,
    ) {
        let mut excess = Vec::new();
        if self.is_text_stuck()
            && self
                .words
                .quoted
                .iter()
                .any(|word| mask.is_allowed(word.token))
        {
            let is_quoted = |token: TokenId| {
                let find = self
                    .words
                    .quoted
                    .binary_search_by_key(&token, |word| word.token);
                find.is_ok()
            };
            mask.iter_set_entries(|token| {
                if !is_quoted(token as TokenId) {
                    excess.push(token as TokenId);
                }
            });
        } else {
            self.find_excess(mask, &mut excess);
            self.find_dead_ends(mask, after, &mut excess);
        }
        if excess.is_empty() || excess.len() >= mask.num_set() {
            return;
        }
        for token in excess {
            mask.disallow_token(token);
        }
    }

    fn is_text_stuck(&self) -> bool {
        // The engine ends an answer at 30 equal tokens.
        matches!(self.at.place, Place::Name { .. } | Place::Text { .. })
            && (self.text.is_stuck(48, 8) || self.text.is_stuck(24, 24))
    }

    /// Adds tokens that end a name which is there already, where the grammar lets no longer name
    /// follow: `x_1`, of names with one digit.
    fn find_dead_ends(
        &self,
        mask: &SimpleVob,
        after: &dyn Fn(TokenId) -> Option<SimpleVob>,
        excess: &mut Vec<TokenId>,
    ) {
        let (
            Place::Name {
                seen,
                escaped: false,
            },
            Some(level),
        ) = (&self.at.place, self.at.levels.last())
        else {
            return;
        };
        if level.names.is_empty() || mask.num_set() > MAX_LOOKED_AT {
            return;
        }
        mask.iter_set_entries(|token| {
            let token = token as TokenId;
            let bytes = self.bytes(token);
            let is_name = |name: &Arc<[u8]>| name.strip_prefix(seen.as_slice()) == Some(&*bytes);
            if bytes.is_empty() || !level.names.iter().any(is_name) {
                return;
            }
            let seen = [seen.as_slice(), &*bytes].concat();
            if let Some(next) = after(token) {
                let mut has_other = false;
                next.iter_set_entries(|token| {
                    let bytes = self.bytes(token as TokenId);
                    has_other |= !bytes.is_empty() && !level.has_name(&seen, false, &bytes);
                });
                if !has_other {
                    excess.push(token);
                }
            }
        });
    }

    fn bytes(&self, token: TokenId) -> Cow<'_, [u8]> {
        // The end of a vocabulary without one is no token of it.
        if token as usize >= self.words.tokenizer.vocab_size() {
            return Cow::Borrowed(&[]);
        }
        output_bytes(&self.words.tokenizer, token)
    }

    fn find_excess(&self, mask: &SimpleVob, excess: &mut Vec<TokenId>) {
        let at = &self.at;
        let is_stuck = self.whole.is_stuck(128, 16);
        let leads_out = |bytes: &[u8]| {
            let mut next = at.clone();
            if let Some(level) = next.levels.last_mut().filter(|_| is_stuck) {
                level.n_before = level.n_before.max(level.most_members());
            }
            bytes.iter().any(|byte| next.push(*byte).is_err())
        };
        let level = at.levels.last();
        let is_full =
            is_stuck || level.is_some_and(|level| level.n_before + 1 >= level.most_members());
        // A list that must go on is not ended in the middle of a number.
        let may_close = || {
            let closing = &self.words.closing;
            closing.iter().any(|token| mask.is_allowed(*token))
        };
        let (words, n_quotes) = match &at.place {
            Place::Between | Place::Number { .. }
                if at.levels.len() >= MAX_DEPTH || (is_full && may_close()) =>
            {
                mask.iter_set_entries(|token| {
                    let token = token as TokenId;
                    if leads_out(&self.bytes(token)) {
                        excess.push(token);
                    }
                });
                return;
            }
            Place::Number { .. } => (&self.words.numeric, 0),
            // A name that begins and ends in the token, or begins after a text that ends in it.
            Place::Between => (&self.words.quoted, 2),
            Place::Text { .. } => (&self.words.quoted, if is_full { 1 } else { 3 }),
            Place::Name { .. } => (&self.words.quoted, 1),
        };
        for word in words {
            if word.n_quotes < n_quotes || !mask.is_allowed(word.token) {
                continue;
            }
            let is_excess = match (&at.place, level) {
                (Place::Name { seen, escaped }, Some(level)) if word.n_quotes < 3 => {
                    level.has_name(seen, *escaped, &word.bytes)
                }
                _ => leads_out(&word.bytes),
            };
            if is_excess {
                excess.push(word.token);
            }
        }
    }
}

/// Where in JSON the output is.
#[derive(Clone, Default)]
struct Position {
    levels: Vec<Level>,
    place: Place,
    integer_digits: usize,
}

/// An object or a list that is open.
#[derive(Clone, Default)]
struct Level {
    is_object: bool,
    /// Whether a text would be the name of a property.
    at_name: bool,
    /// Members before the one that the output is at.
    n_before: usize,
    names: Vec<Arc<[u8]>>,
}

#[derive(Clone, Default)]
enum Place {
    /// Between texts and numbers.
    #[default]
    Between,
    /// In the name of a property.
    Name { seen: Vec<u8>, escaped: bool },
    /// In another text.
    Text { escaped: bool },
    /// In a part of a number, which has so many digits of the most that it may have.
    Number { n_digits: usize, most: usize },
}

/// A byte that leads out of bounds.
struct Excess;

impl Position {
    /// Moves on by a byte, out of bounds or not.
    fn push(&mut self, byte: u8) -> Result<(), Excess> {
        match &mut self.place {
            Place::Text { escaped } | Place::Name { escaped, .. } if *escaped => {
                *escaped = false;
                if let Place::Name { seen, .. } = &mut self.place {
                    seen.push(byte);
                }
                Ok(())
            }
            Place::Text { escaped } => {
                match byte {
                    b'\\' => *escaped = true,
                    b'"' => self.place = Place::Between,
                    _ => {}
                }
                Ok(())
            }
            Place::Name { seen, .. } if byte == b'"' => {
                let name: Arc<[u8]> = std::mem::take(seen).into();
                self.place = Place::Between;
                match self.levels.last_mut() {
                    Some(level) if level.names.contains(&name) => Err(Excess),
                    Some(level) => {
                        level.names.push(name);
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Place::Name { seen, escaped } => {
                *escaped = byte == b'\\';
                seen.push(byte);
                Ok(())
            }
            Place::Number { n_digits, most } => match byte {
                b'0'..=b'9' => {
                    *n_digits += 1;
                    if *n_digits > *most {
                        Err(Excess)
                    } else {
                        Ok(())
                    }
                }
                b'.' | b'e' | b'E' => {
                    self.place = Place::Number {
                        n_digits: 0,
                        most: if byte == b'.' {
                            MAX_FRACTION_DIGITS
                        } else {
                            MAX_EXPONENT_DIGITS
                        },
                    };
                    Ok(())
                }
                b'+' | b'-' => Ok(()),
                _ => {
                    self.place = Place::Between;
                    self.push(byte)
                }
            },
            Place::Between => self.structure(byte),
        }
    }

    fn structure(&mut self, byte: u8) -> Result<(), Excess> {
        match byte {
            b'{' | b'[' => {
                let is_object = byte == b'{';
                self.levels.push(Level {
                    is_object,
                    at_name: is_object,
                    ..Level::default()
                });
                if self.levels.len() > MAX_DEPTH {
                    return Err(Excess);
                }
            }
            b'}' | b']' => drop(self.levels.pop()),
            b':' => {
                if let Some(level) = self.levels.last_mut() {
                    level.at_name = false;
                }
            }
            b',' => {
                if let Some(level) = self.levels.last_mut() {
                    level.n_before += 1;
                    level.at_name = level.is_object;
                    if level.n_before >= level.most_members() {
                        return Err(Excess);
                    }
                }
            }
            b'"' => {
                let at_name = self.levels.last().is_some_and(|level| level.at_name);
                self.place = if at_name {
                    Place::Name {
                        seen: Vec::new(),
                        escaped: false,
                    }
                } else {
                    Place::Text { escaped: false }
                };
            }
            b'-' | b'0'..=b'9' => {
                self.place = Place::Number {
                    n_digits: usize::from(byte != b'-'),
                    most: self.integer_digits,
                };
            }
            _ => {}
        }
        Ok(())
    }
}

impl Level {
    fn most_members(&self) -> usize {
        if self.is_object {
            MAX_MEMBERS
        } else {
            MAX_ITEMS
        }
    }

    /// Whether a name that goes on with `bytes` is one that is there already.
    fn has_name(&self, seen: &[u8], mut escaped: bool, bytes: &[u8]) -> bool {
        let end = bytes.iter().position(|byte| {
            let ends = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            ends
        });
        end.is_some_and(|end| {
            let is_same = |name: &Arc<[u8]>| {
                name.strip_prefix(seen)
                    .is_some_and(|rest| rest == &bytes[..end])
            };
            self.names.iter().any(is_same)
        })
    }
}

/// Members of an object, where the schema does not ask for more.
const MAX_MEMBERS: usize = 128;
/// Items of a list, where the schema does not ask for more.
const MAX_ITEMS: usize = 1024;
/// Objects and lists within each other, where the schema does not ask for more.
const MAX_DEPTH: usize = 32;
/// Tokens that are looked for again.
const MAX_PERIOD: usize = 64;
/// Tokens that a look at what follows them is worth.
const MAX_LOOKED_AT: usize = 256;
const MAX_FRACTION_DIGITS: usize = 16;
/// Every reader of JSON takes these.
const MAX_EXPONENT_DIGITS: usize = 2;
