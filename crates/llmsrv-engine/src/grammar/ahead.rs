//! Looks ahead: which bytes close what is open, or end the name that is being written.
//!
//! A copy of the parser follows the output. From where it is, bytes are tried and taken back:
//! between texts and numbers, those that close before those that open; in a text, a name or a
//! number, the shortest way to its end over the states of the lexer, which knows patterns and
//! lengths. Of `{"a": {"b": "x`, where the schema wants a `c` of three letters, it finds
//! `","c":"   "}}`. What is found is short, not always shortest.

use std::{
    collections::{BTreeSet, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use llguidance::{
    TokenParser,
    derivre::{NextByte, StateID},
    earley::{BiasComputer, ParserRecognizer},
    panic_utils,
};
use parking_lot::Mutex;
use serde_json::Value;
use toktrie::{Recognizer, SimpleVob, TokEnv, TokTrie};

use super::position::{Place, Position};
use crate::{GrammarSpec, TokenId};

/// A parser that follows an output to look ahead of it.
pub(super) struct Ahead {
    /// Nothing once it failed: an output is then followed without looking ahead.
    parser: Option<TokenParser>,
    environment: TokEnv,
    required: Arc<[Box<[u8]>]>,
    /// Of the text that the output is in: a state of the lexer, and the way to the end from there.
    in_text: Option<(StateID, Way)>,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The end of a name that is not there yet.
    NewName,
    /// The end of all that is open.
    End,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// These bytes.
    Found(Vec<u8>),
    /// There is none.
    Closed,
    /// The search was too long.
    Unknown,
}

impl Ahead {
    /// Follows an output from its start.
    pub(super) fn new(parser: TokenParser, required: Arc<[Box<[u8]>]>) -> Ahead {
        Ahead {
            environment: parser.token_env.clone(),
            parser: Some(parser),
            required,
            in_text: None,
        }
    }

    /// Follows another output from its start, with `parser`.
    pub(super) fn again(&self, parser: TokenParser) -> Ahead {
        Ahead::new(parser, self.required.clone())
    }

    /// Moves on by a token of the output.
    pub(super) fn push(&mut self, token: TokenId) {
        let Some(parser) = &mut self.parser else {
            return;
        };
        if parser.stopped() {
            return;
        }
        if self.environment.tok_trie().token(token).contains(&b'"') {
            self.in_text = None;
        }
        let pushed = panic_utils::catch_unwind(AssertUnwindSafe(|| {
            parser.consume_token(token)?;
            parser.check_stop()
        }));
        if pushed.is_err() {
            self.parser = None;
        }
    }

    /// Looks for a way on from behind `taken`, bytes that the grammar allows next; `at` is the
    /// position behind them.
    pub(super) fn way(&mut self, taken: &[u8], at: &Position, goal: Goal) -> Way {
        let look = Look {
            environment: &self.environment,
            required: &self.required,
            taken,
            at,
            goal,
            in_text: self.in_text.as_ref(),
            found: Mutex::new((None, Way::Unknown)),
        };
        if !try_bytes(&mut self.parser, &look) {
            return Way::Unknown;
        }
        let (state, way) = look.found.into_inner();
        if let Some(state) = state {
            self.in_text = Some((state, way.clone()));
        }
        way
    }

    /// Returns the next bytes, as far as the grammar allows one alone, `most` of them at most.
    pub(super) fn forced_bytes(&mut self, most: usize) -> Vec<u8> {
        let forced = Forced {
            environment: &self.environment,
            most,
            found: Mutex::default(),
        };
        if try_bytes(&mut self.parser, &forced) {
            forced.found.into_inner()
        } else {
            Vec::new()
        }
    }

    /// Returns tokens that close all that is open behind `taken`; nothing if they are not found.
    pub(super) fn tokens_to_end(&mut self, taken: &[u8], at: &Position) -> Option<Vec<TokenId>> {
        match self.way(taken, at, Goal::End) {
            Way::Found(way) => self.tokens(&way),
            Way::Closed | Way::Unknown => None,
        }
    }

    /// Returns tokens that spell `bytes`; nothing if there are none.
    pub(super) fn tokens(&self, bytes: &[u8]) -> Option<Vec<TokenId>> {
        let trie = self.environment.tok_trie();
        let tokens = trie.greedy_tokenize(bytes);
        (trie.decode_raw(&tokens) == bytes).then_some(tokens)
    }
}

/// Lets `look` try bytes from where the output is, in the place of a mask: the grammar engine lends its recognizer for
/// masks only, and sets its bounds of work anew for each. Returns whether it could; a parser that failed is gone.
fn try_bytes(parser: &mut Option<TokenParser>, look: &dyn BiasComputer) -> bool {
    let Some(following) = parser.as_mut().filter(|parser| !parser.stopped()) else {
        return false;
    };
    let looked = panic_utils::catch_unwind(AssertUnwindSafe(|| {
        following.parser.compute_bias(look, b" ");
        Ok(following.parser.get_error().is_none())
    }));
    let is_done = looked.unwrap_or(false);
    if !is_done {
        *parser = None;
    }
    is_done
}

/// Returns the names of the properties that any object of a schema needs, as they are written.
pub(super) fn required(spec: &GrammarSpec) -> Arc<[Box<[u8]>]> {
    fn collect(schema: &Value, names: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                if let Some(Value::Array(required)) = fields.get("required") {
                    let required = required.iter().filter(|name| name.is_string());
                    names.extend(required.map(ToString::to_string));
                }
                fields.values().for_each(|field| collect(field, names));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut names = BTreeSet::new();
    if let GrammarSpec::JsonSchema(schema) | GrammarSpec::StrictJsonSchema(schema) = spec {
        collect(schema, &mut names);
    }
    let names = names.iter().take(MAX_REQUIRED);
    let inner = names.map(|name| name.as_bytes()[1..name.len() - 1].into());
    inner.collect()
}

/// Whether the bytes go on with a text of which only the state of the lexer matters.
fn is_same_text(taken: &[u8], at: &Position, goal: Goal) -> bool {
    goal == Goal::End && matches!(at.place, Place::Text { .. }) && !taken.contains(&b'"')
}

/// A search for a way.
struct Look<'a> {
    environment: &'a TokEnv,
    required: &'a [Box<[u8]>],
    taken: &'a [u8],
    at: &'a Position,
    goal: Goal,
    in_text: Option<&'a (StateID, Way)>,
    /// The state of the lexer behind `taken`, if that is in the same text, and the way from there.
    found: Mutex<(Option<StateID>, Way)>,
}

impl BiasComputer for Look<'_> {
    fn compute_bias(&self, recognizer: &mut ParserRecognizer<'_>, _start: &[u8]) -> SimpleVob {
        recognizer.trie_started("look");
        let most_items = recognizer.stats_mut().all_items + MAX_ITEMS;
        let mut search = Search {
            recognizer,
            required: self.required,
            goal: self.goal,
            path: Vec::new(),
            n_steps: 0,
            depth: 0,
            is_too_deep: false,
            most_items,
        };
        // What the grammar does not take is no part of it, such as the end of the output.
        let is_taken = self.taken.iter().all(|byte| search.push(*byte));
        let state = (is_taken && is_same_text(self.taken, self.at, self.goal))
            .then(|| search.recognizer.lexer_state());
        let known = self.in_text.filter(|(known, _)| state == Some(*known));
        let way = if let Some((_, way)) = known {
            way.clone()
        } else if !is_taken {
            Way::Unknown
        } else if search.close(self.at) {
            Way::Found(search.path.split_off(self.taken.len()))
        } else if search.is_spent() {
            Way::Unknown
        } else {
            Way::Closed
        };
        recognizer.trie_finished();
        *self.found.lock() = (state, way);
        self.trie().alloc_token_set()
    }

    fn trie(&self) -> &TokTrie {
        self.environment.tok_trie()
    }
}

/// Tries bytes as long as one alone is allowed.
struct Forced<'a> {
    environment: &'a TokEnv,
    most: usize,
    found: Mutex<Vec<u8>>,
}

impl BiasComputer for Forced<'_> {
    fn compute_bias(&self, recognizer: &mut ParserRecognizer<'_>, _start: &[u8]) -> SimpleVob {
        recognizer.trie_started("forced");
        let most_items = recognizer.stats_mut().all_items + MAX_ITEMS;
        let mut bytes = Vec::new();
        while bytes.len() < self.most && recognizer.stats_mut().all_items < most_items {
            let Some(byte) = only_byte(recognizer) else {
                break;
            };
            if !recognizer.try_push_byte(byte) {
                break;
            }
            bytes.push(byte);
        }
        recognizer.pop_bytes(bytes.len());
        recognizer.trie_finished();
        *self.found.lock() = bytes;
        self.trie().alloc_token_set()
    }

    fn trie(&self) -> &TokTrie {
        self.environment.tok_trie()
    }
}

/// Returns the byte that must come next, if there is no other one.
fn only_byte(recognizer: &mut ParserRecognizer<'_>) -> Option<u8> {
    if let Some(byte) = byte_of_lexer(recognizer) {
        return Some(byte);
    }
    let mut only = None;
    // Bytes of texts first: where many are allowed, the second one is found at once.
    for byte in (b' '..=u8::MAX).chain(0..b' ') {
        if recognizer.try_push_byte(byte) {
            recognizer.pop_bytes(1);
            if only.replace(byte).is_some() {
                return None;
            }
        }
    }
    only
}

/// Returns the one byte with which the lexer can go on, if it knows.
fn byte_of_lexer(recognizer: &mut ParserRecognizer<'_>) -> Option<u8> {
    let state = recognizer.lexer_state();
    if state.has_lowest_match() {
        return None;
    }
    match recognizer.lexer_mut().next_byte(state) {
        NextByte::ForcedByte(byte) => Some(byte),
        _ => None,
    }
}

struct Search<'r, 'p> {
    recognizer: &'r mut ParserRecognizer<'p>,
    /// Names of properties that some object needs, tried before others.
    required: &'r [Box<[u8]>],
    goal: Goal,
    /// Bytes that are tried, all of them taken by the recognizer.
    path: Vec<u8>,
    n_steps: usize,
    /// How deep the search is in itself.
    depth: usize,
    is_too_deep: bool,
    most_items: usize,
}

impl Search<'_, '_> {
    fn push(&mut self, byte: u8) -> bool {
        self.n_steps += 1;
        let is_taken = self.recognizer.try_push_byte(byte);
        if is_taken {
            self.path.push(byte);
        }
        is_taken
    }

    fn back_to(&mut self, n_bytes: usize) {
        self.recognizer.pop_bytes(self.path.len() - n_bytes);
        self.path.truncate(n_bytes);
    }

    fn is_spent(&mut self) -> bool {
        self.is_too_deep
            || self.n_steps > MAX_STEPS
            || self.path.len() > MAX_PATH_BYTES
            || self.recognizer.stats_mut().all_items > self.most_items
    }

    /// Goes to the goal; stays where it is if it finds none.
    fn close(&mut self, at: &Position) -> bool {
        self.is_too_deep |= self.depth == MAX_DEPTH;
        if self.is_too_deep {
            return false;
        }
        self.depth += 1;
        let is_found = self.close_here(at);
        self.depth -= 1;
        is_found
    }

    fn close_here(&mut self, at: &Position) -> bool {
        if self.goal == Goal::End && at.is_whole() {
            return true;
        }
        let start = self.path.len();
        for byte in structure(&at.place) {
            if self.is_spent() {
                return false;
            }
            if !self.push(*byte) {
                continue;
            }
            let mut next = at.clone();
            // Bounds are for what a model chooses.
            let _ = next.push(*byte);
            if self.close(&next) {
                return true;
            }
            self.back_to(start);
        }
        if at.place == Place::Between {
            return false;
        }
        if self.close_required(at) {
            return true;
        }
        if !self.end_scalar(at) {
            return false;
        }
        if self.goal == Goal::NewName && matches!(at.place, Place::Name { .. }) {
            return true;
        }
        let mut next = at.clone();
        for byte in &self.path[start..] {
            let _ = next.push(*byte);
        }
        let is_found = self.close(&next);
        if !is_found {
            self.back_to(start);
        }
        is_found
    }

    /// Goes to the goal by a property that is needed, from the start of its name.
    fn close_required(&mut self, at: &Position) -> bool {
        let is_start = matches!(&at.place, Place::Name { seen, .. } if seen.is_empty());
        if !is_start || self.goal != Goal::End {
            return false;
        }
        let start = self.path.len();
        for name in self.required {
            let mut next = at.clone();
            let mut bytes = name.iter().chain(b"\"");
            if bytes.all(|byte| self.push(*byte) && next.push(*byte).is_ok()) && self.close(&next) {
                return true;
            }
            self.back_to(start);
        }
        false
    }

    /// Goes to the nearest end of a text, a name that is new, or a number, which must be longer
    /// than it is; breadth first over the states of the lexer. Which names there are already makes
    /// a difference only while a name may become one of them.
    fn end_scalar(&mut self, at: &Position) -> bool {
        let base = self.path.len();
        let level = at.levels.last();
        let is_number = matches!(at.place, Place::Number { .. });
        let (seen, escaped) = match &at.place {
            Place::Name { seen, escaped } => (Some(seen.clone()), *escaped),
            Place::Text { escaped } => (None, *escaped),
            Place::Between | Place::Number { .. } => (None, false),
        };
        let mut known = HashSet::new();
        let mut nodes = vec![Node {
            parent: 0,
            byte: 0,
            escaped,
            seen: seen.filter(|seen| level.is_some_and(|level| level.is_taken(seen))),
        }];
        let mut idx = 0;
        while idx < nodes.len() && !self.is_spent() {
            self.go_to(base, &nodes, idx);
            if is_number {
                if idx > 0 && self.is_number_over(at, base) {
                    return true;
                }
            } else if !nodes[idx].escaped && self.push(b'"') {
                let seen = nodes[idx].seen.as_ref();
                let is_new = seen.is_none_or(|seen| {
                    level.is_none_or(|level| level.names.iter().all(|name| **name != **seen))
                });
                if is_new {
                    return true;
                }
                self.back_to(self.path.len() - 1);
            }
            let here = self.path.len();
            let candidates = match byte_of_lexer(self.recognizer) {
                Some(byte) => byte..=byte,
                None if is_number => b'+'..=b'e',
                None => b' '..=0xF4,
            };
            for byte in candidates {
                let escapes = nodes[idx].escaped;
                let goes_on = if is_number {
                    byte.is_ascii_digit() || b".eE+-".contains(&byte)
                } else {
                    byte != b'"' || escapes
                };
                if !goes_on || !self.push(byte) {
                    continue;
                }
                let seen = nodes[idx].seen.as_ref().map(|seen| {
                    let mut seen = seen.clone();
                    seen.push(byte);
                    seen
                });
                let seen = seen.filter(|seen| level.is_some_and(|level| level.is_taken(seen)));
                let state: StateID = self.recognizer.lexer_state();
                if known.insert((state, seen.clone())) {
                    nodes.push(Node {
                        parent: idx,
                        byte,
                        escaped: byte == b'\\' && !escapes,
                        seen,
                    });
                }
                self.back_to(here);
            }
            idx += 1;
        }
        self.back_to(base);
        false
    }

    /// Takes back and tries bytes until those behind `base` are the way to a node.
    fn go_to(&mut self, base: usize, nodes: &[Node], idx: usize) {
        let mut way = Vec::new();
        let mut idx = idx;
        while idx > 0 {
            way.push(nodes[idx].byte);
            idx = nodes[idx].parent;
        }
        way.reverse();
        let common = self.path[base..].iter().zip(&way);
        let n_common = common.take_while(|(own, other)| own == other).count();
        self.back_to(base + n_common);
        for byte in &way[n_common..] {
            self.push(*byte);
        }
    }

    fn is_number_over(&mut self, at: &Position, base: usize) -> bool {
        let mut next = at.clone();
        for byte in &self.path[base..] {
            let _ = next.push(*byte);
        }
        if next.is_whole() {
            return true;
        }
        let here = self.path.len();
        let is_over = b"}],".iter().any(|byte| self.push(*byte));
        self.back_to(here);
        is_over
    }
}

/// A byte of a text, a name or a number that is tried.
struct Node {
    parent: usize,
    byte: u8,
    /// Whether the next byte is escaped.
    escaped: bool,
    /// The name so far, if one that is there begins so.
    seen: Option<Vec<u8>>,
}

/// Bytes between texts and numbers: those that close, those that must be, short values, others.
fn structure(place: &Place) -> &'static [u8] {
    match place {
        Place::Between => b"}],:0123456789\"-ntfulresa[{",
        Place::Number { .. } => b"}],",
        Place::Name { .. } | Place::Text { .. } => b"",
    }
}

/// A way is some dozens of bytes; this is for texts with a least length.
const MAX_PATH_BYTES: usize = 4096;
/// What the stack of a thread has room for.
const MAX_DEPTH: usize = 2000;
/// Names that are tried.
const MAX_REQUIRED: usize = 256;
/// Bytes that are tried, a few milliseconds of work.
const MAX_STEPS: usize = 100_000;
/// Work of the parser, less than a mask may take.
const MAX_ITEMS: usize = 40_000;

#[cfg(test)]
mod tests;
