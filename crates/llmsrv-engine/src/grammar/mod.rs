//! Output that must match a grammar: JSON, JSON Schema, a regular expression, or Lark.
//!
//! `llguidance` does the parsing; this module gives it the vocabulary, makes schemas ready for it,
//! bounds what a grammar may cost, and follows each sequence. Grammars come from clients and are not
//! trusted.

mod ahead;
mod cache;
mod compile;
mod guard;
mod limits;
mod position;
mod schema;
mod trigger;
mod vocabulary;

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use llguidance::Matcher;
use llmsrv_tokenizer::{Special, Tokenizer};
use parking_lot::{Mutex, MutexGuard};
use toktrie::SimpleVob;

use ahead::Ahead;
use cache::Cache;
use compile::{Compiled, Compiler};
use guard::{Guard, Verdict, Words};
use limits::Deadline;
use trigger::Trigger;

use crate::{GenRequest, GrammarSpec, SubmitError, TokenId, detok::output_bytes, stop::StopFinder};

/// Compiles grammars for one model. The work for the vocabulary is done at the first grammar.
pub(crate) struct Grammars {
    tokenizer: Arc<Tokenizer>,
    compiler: OnceLock<Result<Compiler, String>>,
    words: OnceLock<Arc<Words>>,
    /// What was compiled lately.
    compiled: Mutex<Cache>,
    /// Held while a grammar is compiled: what hostile grammars cost stays the cost of one, and equal
    /// requests that come together compile once. Requests with a known grammar do not wait for it.
    compiling: Mutex<()>,
}

impl Grammars {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Grammars {
        Grammars {
            tokenizer,
            compiler: OnceLock::new(),
            words: OnceLock::new(),
            compiled: Mutex::default(),
            compiling: Mutex::default(),
        }
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Compiles `spec` for the output of one request.
    pub(crate) fn constraint(
        &self,
        spec: &GrammarSpec,
        request: &GenRequest,
    ) -> Result<Constraint, SubmitError> {
        let Compiled {
            matcher,
            ahead,
            required,
            unenforced,
            integer_digits,
        } = self.compiled(spec).map_err(SubmitError::Grammar)?;
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let start = match (
            given(&request.grammar_after),
            given(&request.grammar_unless),
        ) {
            (None, _) => Start::Begun,
            (Some(after), None) => Start::After(StopFinder::new([after.as_str()])),
            (Some(after), Some(begin)) => Start::Open(Box::new(Trigger::new(
                &self.tokenizer,
                begin,
                after,
                (&matcher, &ahead),
            ))),
        };
        let watch = is_json(spec).then(|| {
            let words = || Arc::new(Words::new(self.tokenizer.clone()));
            let words = self.words.get_or_init(words).clone();
            Watch {
                guard: Guard::new(words, integer_digits),
                ahead: Ahead::new(ahead, required),
                // Behind the arguments of a call there can be more.
                ends_with_json: !matches!(spec, GrammarSpec::Calls { .. }),
            }
        });
        Ok(Constraint {
            start,
            matcher,
            watch,
            unenforced,
        })
    }

    fn compiled(&self, spec: &GrammarSpec) -> Result<Compiled, String> {
        let key = cache::key(spec);
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        let _one_at_a_time = self.compiling.lock();
        if let Some(known) = self.known(&key) {
            return Ok(known);
        }
        // Compiling recurses as deep as the grammar is nested.
        let mut new = thread::scope(|scope| {
            thread::Builder::new()
                .name("llmsrv-grammar".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || {
                    let compiler = self
                        .compiler
                        .get_or_init(|| Compiler::new(&self.tokenizer))
                        .as_ref();
                    compiler
                        .map_err(String::clone)?
                        .compile(spec, Deadline::new())
                })
                .map_err(|error| error.to_string())?
                .join()
                .map_err(|_| "the grammar cannot be compiled".to_string())?
        })?;
        for warning in new.matcher.grammar_warnings() {
            tracing::warn!(warning, "grammar");
        }
        for missing in &*new.unenforced {
            tracing::warn!(missing, "a schema is enforced in part");
        }
        self.cache().put(key, new.clone());
        Ok(new)
    }

    fn known(&self, key: &str) -> Option<Compiled> {
        self.cache().get(key).cloned()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.compiled.lock()
    }
}

/// Whether nothing but JSON matches a grammar, and perhaps fixed texts.
fn is_json(spec: &GrammarSpec) -> bool {
    match spec {
        GrammarSpec::Json | GrammarSpec::JsonSchema(_) | GrammarSpec::StrictJsonSchema(_) => true,
        GrammarSpec::Regex(_) | GrammarSpec::Lark(_) => false,
        GrammarSpec::Calls { lark, answer, .. } => {
            !lark.contains(FREE_TEXT) && answer.as_deref().is_none_or(is_json)
        }
    }
}

/// Follows one sequence through its grammar.
pub(crate) struct Constraint {
    start: Start,
    matcher: Matcher,
    /// Bounds what JSON a schema leaves free; `None` if the grammar is not of JSON.
    watch: Option<Watch>,
    unenforced: Arc<[String]>,
}

/// Follows JSON beside its grammar.
struct Watch {
    guard: Guard,
    ahead: Ahead,
    /// Whether the output ends where its JSON does.
    ends_with_json: bool,
}

/// Where the output is with regard to its grammar.
enum Start {
    /// In it.
    Begun,
    /// Before it: this looks for the text after which it begins.
    After(StopFinder),
    /// At the start of an output that may have a part before the grammar.
    Open(Box<Trigger>),
}

/// Output that left its grammar, or a grammar that became too expensive.
#[derive(Debug, thiserror::Error)]
#[error("the requested format cannot be followed: {0}")]
pub(crate) struct GrammarError(String);

impl Constraint {
    /// What the grammar does not enforce of its schema: one sentence each.
    pub(crate) fn unenforced(&self) -> Arc<[String]> {
        self.unenforced.clone()
    }

    /// Returns the tokens allowed next; `None` = all.
    pub(crate) fn mask(&mut self) -> Result<Option<SimpleVob>, GrammarError> {
        match &self.start {
            Start::After(_) => return Ok(None),
            Start::Open(trigger) if !trigger.in_grammar => return Ok(Some(trigger.allowed(None))),
            Start::Begun | Start::Open(_) => {}
        }
        let mask = self.matcher.compute_mask_or_eos();
        let mut mask = mask.map_err(GrammarError::new)?;
        if let Some(watch) = &self.watch {
            watch.guard.restrict(&mut mask);
        }
        Ok(Some(match &self.start {
            Start::Open(trigger) => trigger.allowed(Some(mask)),
            _ => mask,
        }))
    }

    /// Returns the token to go on with where `picked` was chosen from the mask and `n_left` tokens can
    /// be, this one included. It is another one where `picked` begins a name that can only be one of
    /// those that are there, or leaves no room to close what is open. `other` chooses again without the
    /// token it is given, if there is another one.
    pub(crate) fn settle<E>(
        &mut self,
        picked: TokenId,
        n_left: usize,
        tokenizer: &Tokenizer,
        mut other: impl FnMut(TokenId) -> Result<Option<TokenId>, E>,
    ) -> Result<TokenId, E> {
        let Some(watch) = self.watched() else {
            return Ok(picked);
        };
        let n_left = if watch.ends_with_json {
            n_left
        } else {
            usize::MAX
        };
        let mut token = picked;
        for _ in 0..MAX_REFUSED {
            if tokenizer.is_control(token) || tokenizer.is_end_of_generation(token) {
                return Ok(token);
            }
            match watch.guard.judge(token, n_left, &mut watch.ahead) {
                Verdict::Take => return Ok(token),
                Verdict::Replace(other) => return Ok(other),
                Verdict::Refuse => match other(token)? {
                    Some(next) => token = next,
                    None => break,
                },
            }
        }
        Ok(watch.guard.way_out(&mut watch.ahead).unwrap_or(picked))
    }

    /// Returns tokens that spell what comes next, as far as the grammar leaves no choice: the rest of a name that a schema
    /// wants, say. A model may spell the same with other tokens; the last one is left out, as a longer one often takes its
    /// place.
    pub(crate) fn forced_tokens(&mut self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let Some(watch) = self.watched() else {
            return Vec::new();
        };
        let bytes = watch.ahead.forced_bytes(MAX_FORCED_BYTES);
        // The last character may lack some of its bytes.
        let text = String::from_utf8_lossy(&bytes);
        let mut tokens = tokenizer.encode(&text, Special::Plain);
        tokens.pop();
        let spelled = tokens
            .iter()
            .flat_map(|token| output_bytes(tokenizer, *token).into_owned());
        // Some tokenizers put a blank before every text.
        if !bytes.starts_with(&spelled.collect::<Vec<u8>>()) {
            tokens = watch.ahead.tokens(&bytes).unwrap_or_default();
            tokens.pop();
        }
        tokens
    }

    /// Whether the output was brought to an end because no more tokens were left.
    pub(crate) fn was_end_brought_about(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.guard.was_end_brought_about())
    }

    /// Whether the output is in JSON.
    pub(crate) fn is_in_json(&self) -> bool {
        let is_in_grammar = match &self.start {
            Start::Begun => true,
            Start::After(_) => false,
            Start::Open(trigger) => trigger.in_grammar,
        };
        is_in_grammar && self.watch.is_some()
    }

    /// What follows the output, if it is in JSON.
    fn watched(&mut self) -> Option<&mut Watch> {
        let is_in_json = self.is_in_json();
        self.watch.as_mut().filter(|_| is_in_json)
    }

    /// Moves on by a token. Returns whether the output is complete and cannot be continued.
    pub(crate) fn accept(
        &mut self,
        token: TokenId,
        tokenizer: &Tokenizer,
    ) -> Result<bool, GrammarError> {
        match &mut self.start {
            Start::Begun => {
                self.matcher
                    .consume_token(token)
                    .map_err(GrammarError::new)?;
                self.watch(&[token]);
                Ok(self.matcher.is_stopped())
            }
            Start::After(text) => {
                let bytes = output_bytes(tokenizer, token);
                let Some(found) = text.push(&bytes, &mut Vec::new()) else {
                    return Ok(false);
                };
                self.start = Start::Begun;
                // A token can hold the text and more. White space between the two is no output.
                let rest = String::from_utf8_lossy(&bytes[found.n_consumed..]);
                let rest = tokenizer.encode(rest.trim_start(), Special::Plain);
                if self.consume(&rest)? < rest.len() {
                    return Err(GrammarError("the output began with something else".into()));
                }
                Ok(!rest.is_empty() && self.matcher.is_stopped())
            }
            Start::Open(trigger) => {
                let opens = trigger.accept(&output_bytes(tokenizer, token));
                let was_in_grammar = trigger.in_grammar;
                let in_grammar = was_in_grammar && self.consume(&[token])? == 1;
                let Start::Open(trigger) = &mut self.start else {
                    return Ok(false);
                };
                trigger.in_grammar = in_grammar;
                if trigger.is_complete() {
                    let (matcher, ahead) = &trigger.fresh;
                    self.matcher = matcher.deep_clone();
                    self.watch = self.watch.as_ref().map(|watch| Watch {
                        guard: watch.guard.fresh(),
                        ahead: watch.ahead.again(ahead.deep_clone()),
                        ..*watch
                    });
                    self.start = Start::After(StopFinder::new([trigger.after.as_str()]));
                } else if !opens {
                    self.start = Start::Begun;
                    if !in_grammar {
                        return Err(GrammarError("the output began with something else".into()));
                    }
                    return Ok(self.matcher.is_stopped());
                }
                Ok(false)
            }
        }
    }

    /// Moves on by as many of the tokens as the grammar allows; returns their number.
    fn consume(&mut self, tokens: &[TokenId]) -> Result<usize, GrammarError> {
        let taken = self.matcher.try_consume_tokens(tokens);
        let taken = taken.map_err(GrammarError::new)?;
        self.watch(&tokens[..taken]);
        Ok(taken)
    }

    fn watch(&mut self, tokens: &[TokenId]) {
        if let Some(watch) = &mut self.watch {
            for token in tokens {
                watch.guard.push(*token);
                watch.ahead.push(*token);
            }
        }
    }
}

impl GrammarError {
    fn new(error: impl std::fmt::Display) -> GrammarError {
        GrammarError(one_line(&error.to_string()))
    }
}

/// Makes one line of a message of the grammar library: what is wrong and, for a regular
/// expression, why; without hints for programmers and dumps of its state.
fn one_line(message: &str) -> String {
    let mut lines = message.lines().map(str::trim);
    let what = lines
        .by_ref()
        .find(|line| !line.is_empty() && !line.starts_with('<'))
        .unwrap_or_default();
    if what.is_empty() || what.starts_with("panic:") {
        return "it cannot be compiled".into();
    }
    if what == "NoExtensionBias" {
        return NOTHING_MATCHES.into();
    }
    let what = what.split(". Enable ").next().unwrap_or_default();
    let why = lines.find_map(|line| line.strip_prefix("error:"));
    let cut = |text: &str| text.chars().take(200).collect::<String>();
    cut(what) + &why.map(cut).unwrap_or_default()
}

/// Is in the terminals of [`GrammarSpec::Calls`] that are any text.
const FREE_TEXT: &str = "(?s:";
const NOTHING_MATCHES: &str = "no output can match it";
/// Of the draft tokens of a step.
const MAX_FORCED_BYTES: usize = 64;
/// Tokens that are refused one after the other before one is chosen here.
const MAX_REFUSED: usize = 16;
const COMPILE_STACK_BYTES: usize = 64 << 20;

#[cfg(test)]
pub(crate) mod tests;
