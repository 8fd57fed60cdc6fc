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

use super::{
    ahead::{Ahead, Goal, Way},
    position::{Excess, MAX_DEPTH, Place, Position},
};
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
    end: End,
}

/// What is known of the way to the end of the output.
#[derive(Clone)]
struct End {
    /// A way to the end from here, if one is known.
    way: Vec<TokenId>,
    /// Tokens left at which a way is looked for again within a text, if none was found.
    look_at: usize,
    /// Whether there is no use in looking: not even the shortest answer fits.
    is_out_of_reach: bool,
    /// Whether a token was chosen for the sake of the end.
    was_brought_about: bool,
}

impl Default for End {
    fn default() -> End {
        End {
            way: Vec::new(),
            look_at: MOST_LEFT,
            is_out_of_reach: false,
            was_brought_about: false,
        }
    }
}

/// What becomes of a token that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is right.
    Take,
    /// Another one is to be chosen.
    Refuse,
    /// This one comes in its place.
    Replace(TokenId),
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
            at: Position::new(integer_digits),
            end: End::default(),
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

    /// Takes the tokens out of `mask` that lead out of bounds, unless there are no others.
    pub(super) fn restrict(&self, mask: &mut SimpleVob) {
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
        }
        if excess.is_empty() || excess.len() >= mask.num_set() {
            return;
        }
        for token in excess {
            mask.disallow_token(token);
        }
    }

    /// Judges a token of the mask that was chosen where `n_left` tokens can be, this one included:
    /// whether a name that it begins can become one that is not there yet, and whether there is room
    /// to close what is open behind it. What cannot be found out is let through.
    pub(super) fn judge(&mut self, token: TokenId, n_left: usize, ahead: &mut Ahead) -> Verdict {
        let n_after = n_left.saturating_sub(1);
        let known = std::mem::take(&mut self.end.way);
        if known.first() == Some(&token) && known.len() <= n_left {
            self.end.way = known[1..].to_vec();
            return Verdict::Take;
        }
        let bytes = self.bytes(token).into_owned();
        let mut next = self.at.clone();
        let is_repeated = bytes.iter().fold(false, |found, byte| {
            found | (next.push(*byte) == Err(Excess::Name))
        });
        if is_repeated
            || (next.may_repeat_name() && ahead.way(&bytes, &next, Goal::NewName) == Way::Closed)
        {
            self.end.way = known;
            return Verdict::Refuse;
        }
        if n_left > MOST_LEFT || self.end.is_out_of_reach {
            return Verdict::Take;
        }
        // Where none was found, looking took long.
        let is_inside = self.at.is_inside_text() && !bytes.contains(&b'"');
        if is_inside && n_after > self.end.look_at {
            return Verdict::Take;
        }
        match ahead.tokens_to_end(&bytes, &next) {
            Some(way) if way.len() <= n_after => {
                self.end.look_at = n_after;
                self.end.way = way;
                Verdict::Take
            }
            Some(_) => {
                // What is found is not always shortest: the way that was known may still fit.
                let fits = |way: &Vec<TokenId>| !way.is_empty() && way.len() <= n_left;
                let way = Some(known).filter(fits);
                let way = way.or_else(|| ahead.tokens_to_end(&[], &self.at).filter(fits));
                if let Some(way) = way {
                    self.end.was_brought_about = true;
                    self.end.way = way[1..].to_vec();
                    Verdict::Replace(way[0])
                } else {
                    self.end.is_out_of_reach = true;
                    Verdict::Take
                }
            }
            None => {
                self.end.look_at = n_after - n_after / 8;
                Verdict::Take
            }
        }
    }

    /// Returns a token that leads on where all those that were chosen were refused.
    pub(super) fn way_out(&self, ahead: &mut Ahead) -> Option<TokenId> {
        let way = ahead.tokens_to_end(&[], &self.at)?;
        way.first().copied()
    }

    /// Whether tokens were chosen to bring the output to an end.
    pub(super) fn was_end_brought_about(&self) -> bool {
        self.end.was_brought_about
    }

    fn is_text_stuck(&self) -> bool {
        matches!(self.at.place, Place::Name { .. } | Place::Text { .. })
            && (self.text.is_stuck(48, 8) || self.text.is_stuck(24, 24))
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

/// Tokens that are looked for again.
const MAX_PERIOD: usize = 64;
/// Tokens left from which on there is a look at the way to the end.
const MOST_LEFT: usize = 4096;
