//! Output that must match a grammar: JSON, JSON Schema, a regular expression, or Lark.
//!
//! `llguidance` does the parsing; this module gives it the vocabulary, bounds what a grammar may
//! cost, and follows each sequence. Grammars come from clients and are not trusted.

mod limits;
mod vocabulary;

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use llguidance::{Matcher, ParserFactory, api::TopLevelGrammar};
use llmsrv_tokenizer::{Special, Tokenizer};
use serde_json::{Value, json};
use toktrie::SimpleVob;

use crate::{GrammarSpec, SubmitError, TokenId, detok::output_bytes, stop::StopFinder};

/// Compiles grammars for one model. The work for the vocabulary is done at the first grammar.
pub(crate) struct Grammars {
    tokenizer: Arc<Tokenizer>,
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>) -> Grammars {
        Grammars {
            tokenizer,
            factory: OnceLock::new(),
        }
    }

    pub(crate) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Compiles `spec` for one sequence; it begins after the text `after`, if given.
    pub(crate) fn constraint(
        &self,
        spec: &GrammarSpec,
        after: Option<&str>,
    ) -> Result<Constraint, SubmitError> {
        let grammar = top_level(spec).map_err(SubmitError::Grammar)?;
        // Compiling recurses as deep as the grammar is nested.
        let matcher = thread::scope(|scope| {
            thread::Builder::new()
                .name("llmsrv-grammar".into())
                .stack_size(COMPILE_STACK_BYTES)
                .spawn_scoped(scope, || self.compile(grammar))
                .map_err(|error| error.to_string())?
                .join()
                .map_err(|_| "the grammar cannot be compiled".to_string())?
        });
        let mut matcher = matcher.map_err(SubmitError::Grammar)?;
        for warning in matcher.grammar_warnings() {
            tracing::warn!(warning, "grammar");
        }
        let start = after
            .filter(|text| !text.is_empty())
            .map(|text| StopFinder::new([text]));
        Ok(Constraint { start, matcher })
    }

    fn compile(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let factory = self
            .factory
            .get_or_init(|| factory(&self.tokenizer))
            .as_ref()
            .map_err(String::clone)?;
        let matcher = Matcher::new(factory.create_parser(grammar));
        if let Some(error) = matcher.get_error() {
            return Err(one_line(&error));
        }
        // A first token shows most grammars that cannot be followed before anything is generated.
        let mut trial = matcher.deep_clone();
        let first = trial.compute_mask_or_eos().map(|mask| mask.first_bit_set());
        match first.map_err(|error| one_line(&error.to_string()))? {
            None => return Err(NOTHING_MATCHES.into()),
            Some(token) => drop(
                trial
                    .consume_token(token as TokenId)
                    .and_then(|()| trial.compute_mask_or_eos()),
            ),
        }
        if let Some(error) = trial.get_error() {
            return Err(one_line(&error));
        }
        Ok(matcher)
    }
}

/// Follows one sequence through its grammar.
pub(crate) struct Constraint {
    /// Looks for the text after which the grammar begins; nothing once it has begun.
    start: Option<StopFinder>,
    matcher: Matcher,
}

/// Output that left its grammar, or a grammar that became too expensive.
#[derive(Debug, thiserror::Error)]
#[error("the requested format cannot be followed: {0}")]
pub(crate) struct GrammarError(String);

impl Constraint {
    /// Returns the tokens allowed next; `None` = all.
    pub(crate) fn mask(&mut self) -> Result<Option<SimpleVob>, GrammarError> {
        if self.start.is_some() {
            return Ok(None);
        }
        self.matcher
            .compute_mask_or_eos()
            .map(Some)
            .map_err(GrammarError::new)
    }

    /// Moves on by a token. Returns whether the output is complete and cannot be continued.
    pub(crate) fn accept(
        &mut self,
        token: TokenId,
        tokenizer: &Tokenizer,
    ) -> Result<bool, GrammarError> {
        let Some(start) = &mut self.start else {
            self.matcher
                .consume_token(token)
                .map_err(GrammarError::new)?;
            return Ok(self.matcher.is_stopped());
        };
        let bytes = output_bytes(tokenizer, token);
        let Some(found) = start.push(&bytes, &mut Vec::new()) else {
            return Ok(false);
        };
        self.start = None;
        // A token can hold the start text and more. White space between the two is no output.
        let rest = String::from_utf8_lossy(&bytes[found.n_consumed..]);
        let rest = tokenizer.encode(rest.trim_start(), Special::Plain);
        if self
            .matcher
            .try_consume_tokens(&rest)
            .map_err(GrammarError::new)?
            < rest.len()
        {
            return Err(GrammarError("the output began with something else".into()));
        }
        Ok(!rest.is_empty() && self.matcher.is_stopped())
    }
}

impl GrammarError {
    fn new(error: impl std::fmt::Display) -> GrammarError {
        GrammarError(one_line(&error.to_string()))
    }
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, String> {
    let environment = vocabulary::environment(tokenizer)?;
    let mut factory =
        ParserFactory::new_simple(&environment).map_err(|error| one_line(&error.to_string()))?;
    factory.quiet();
    *factory.limits_mut() = limits::parser();
    Ok(factory)
}

/// Refuses what is too large or too deep before anything recurses into it.
fn top_level(spec: &GrammarSpec) -> Result<TopLevelGrammar, String> {
    match spec {
        GrammarSpec::Json => Ok(TopLevelGrammar::from_json_schema(with_options(
            json!({"type": "object"}),
        ))),
        GrammarSpec::JsonSchema(schema) => {
            limits::check_schema(schema)?;
            if !schema.is_object() && !schema.is_boolean() {
                return Err("a JSON schema is an object".into());
            }
            Ok(TopLevelGrammar::from_json_schema(with_options(
                schema.clone(),
            )))
        }
        GrammarSpec::Regex(text) => {
            limits::check_text(text)?;
            Ok(TopLevelGrammar::from_regex(text))
        }
        GrammarSpec::Lark(text) => {
            limits::check_text(text)?;
            if text.contains("%json") {
                return Err("%json is not supported in a grammar: send the schema itself".into());
            }
            Ok(TopLevelGrammar::from_lark(text.clone()))
        }
    }
}

/// Sets how a schema is read. White space between values is bounded: a model that falls into
/// endless white space would never come back. Options from the client are replaced, because they
/// could turn keywords that cannot be enforced into silence.
fn with_options(mut schema: Value) -> Value {
    if let Value::Object(schema) = &mut schema {
        schema.insert(
            "x-guidance".into(),
            json!({ "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,40}" }),
        );
    }
    schema
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

const NOTHING_MATCHES: &str = "no output can match it";
const COMPILE_STACK_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests;
