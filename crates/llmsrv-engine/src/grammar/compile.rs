//! From what a client sent to a grammar that can be followed, or to what is wrong with it.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use llguidance::{Matcher, ParserFactory, api::TopLevelGrammar};
use llmsrv_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::{
    NOTHING_MATCHES, limits, one_line,
    schema::{self, Mode},
    vocabulary,
};
use crate::{GrammarSpec, TokenId};

/// Compiles grammars over one vocabulary.
pub(super) struct Compiler {
    factory: ParserFactory,
}

impl Compiler {
    pub(super) fn new(tokenizer: &Tokenizer) -> Result<Compiler, String> {
        let environment = vocabulary::environment(tokenizer)?;
        let mut factory = ParserFactory::new_simple(&environment)
            .map_err(|error| one_line(&error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits::parser();
        Ok(Compiler { factory })
    }

    /// Compiles a grammar. What is too large or too deep is refused before anything recurses into it.
    pub(super) fn compile(&self, spec: &GrammarSpec) -> Result<Matcher, String> {
        match spec {
            GrammarSpec::Json => {
                let schema = with_options(json!({"type": "object"}));
                self.matcher(TopLevelGrammar::from_json_schema(schema))
            }
            GrammarSpec::JsonSchema(schema) => {
                limits::check_schema(schema)?;
                if !schema.is_object() && !schema.is_boolean() {
                    return Err("a JSON schema is an object".into());
                }
                self.schema(schema, "", Mode::Strict)
                    .map_err(|error| self.explain(schema, error))
            }
            GrammarSpec::Regex(text) => {
                limits::check_text(text)?;
                self.matcher(TopLevelGrammar::from_regex(text))
            }
            GrammarSpec::Lark(text) => {
                limits::check_text(text)?;
                if text.contains("%json") {
                    return Err(
                        "%json is not supported in a grammar: send the schema itself".into(),
                    );
                }
                self.matcher(TopLevelGrammar::from_lark(text.clone()))
            }
            GrammarSpec::Calls {
                lark,
                schemas,
                answer,
            } => self.calls(lark, schemas, answer.as_deref()),
        }
    }

    /// Compiles the schema at the JSON pointer `at` of `root`.
    fn schema(&self, root: &Value, at: &str, mode: Mode) -> Result<Matcher, String> {
        let prepared = schema::prepare(root, at, mode).map_err(|error| error.to_string())?;
        // References multiply: the result can be larger than what was checked.
        limits::check_schema(&prepared)?;
        self.matcher(TopLevelGrammar::from_json_schema(with_options(prepared)))
    }

    /// Compiles a grammar of tool calls. A tool's schema is a promise of its author, not of the one
    /// who calls: what cannot be enforced is left out.
    fn calls(
        &self,
        lark: &str,
        schemas: &[Value],
        answer: Option<&GrammarSpec>,
    ) -> Result<Matcher, String> {
        let mut text = lark.to_owned();
        if let Some(answer) = answer {
            // Alone first: what is wrong with it is told as without tools.
            self.compile(answer)?;
            let _ = writeln!(text, "\nanswer: {}", self::answer(answer)?);
        }
        for (idx, schema) in schemas.iter().enumerate() {
            let schema = self.arguments(schema);
            let _ = writeln!(text, "\nschema_{idx}: %json {schema}");
        }
        self.matcher(TopLevelGrammar::from_lark(text))
    }

    /// The schema of a tool's arguments, as far as it can be enforced.
    fn arguments(&self, schema: &Value) -> Value {
        let any = || match schema.get("type") {
            Some(kind) if kind == "object" => with_options(json!({"type": "object"})),
            _ => with_options(json!({})),
        };
        if !schema.is_object() || limits::check_schema(schema).is_err() {
            return any();
        }
        let Ok(prepared) = schema::prepare(schema, "", Mode::Lenient) else {
            return any();
        };
        let prepared = with_options(prepared);
        let grammar = TopLevelGrammar::from_json_schema(prepared.clone());
        match limits::check_schema(&prepared).and_then(|()| self.matcher(grammar)) {
            Ok(_) => prepared,
            Err(error) => {
                tracing::warn!(error, "the schema of a tool cannot be enforced");
                any()
            }
        }
    }

    /// Compiles and tries a grammar.
    fn matcher(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let matcher = Matcher::new(self.factory.create_parser(grammar));
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

    /// Finds the keyword behind an error of the grammar engine: goes down to the innermost schema
    /// that gives the same error alone, and leaves its keywords out one by one.
    fn explain(&self, root: &Value, error: String) -> String {
        let deadline = Instant::now() + EXPLAIN_TIME;
        let is_late = || Instant::now() > deadline;
        if schema::prepare(root, "", Mode::Strict).is_err() || !root.is_object() {
            return error;
        }
        let fails = |root: &Value, at: &str| self.schema(root, at, Mode::Strict).err();
        let mut at = String::new();
        let mut seen = vec![String::new()];
        while let Some(part) = schema::parts(root, &at).into_iter().find(|part| {
            !is_late() && !seen.contains(part) && fails(root, part).as_ref() == Some(&error)
        }) {
            seen.push(part.clone());
            at = part;
        }
        let Some(Value::Object(fields)) = root.pointer(&at) else {
            return error;
        };
        let culprit = fields.keys().find(|keyword| {
            if is_late() || !schema::constrains(keyword) {
                return false;
            }
            let mut without = root.clone();
            if let Some(Value::Object(fields)) = without.pointer_mut(&at) {
                fields.shift_remove(*keyword);
            }
            fails(&without, &at).as_ref() != Some(&error)
        });
        match culprit {
            Some(keyword) => {
                let at = schema::join(&at, keyword);
                format!("{keyword:?} (at {at}) cannot be enforced: {error}")
            }
            None if at.is_empty() => error,
            None => format!("the schema at {at} cannot be enforced: {error}"),
        }
    }
}

/// Sets how a schema is read. White space between values is bounded: a model that falls into
/// endless white space would never come back. A text has one spelling (no `\u0061` for `a`), so that
/// the names of properties are what they look like. Options from the client are not looked at,
/// because they could turn keywords that cannot be enforced into silence.
/// A format as the body of a rule of a Lark grammar; it was compiled before.
fn answer(format: &GrammarSpec) -> Result<String, String> {
    Ok(match format {
        GrammarSpec::Json => format!("%json {}", with_options(json!({"type": "object"}))),
        GrammarSpec::JsonSchema(schema) => {
            let prepared = schema::prepare(schema, "", Mode::Strict);
            let prepared = prepared.map_err(|error| error.to_string())?;
            format!("%json {}", with_options(prepared))
        }
        GrammarSpec::Regex(pattern) => format!("/{}/", pattern.replace('/', r"\/")),
        GrammarSpec::Lark(text) => format!("%lark {{\n{text}\n}}"),
        GrammarSpec::Calls { .. } => return Err("calls within calls".into()),
    })
}

fn with_options(mut schema: Value) -> Value {
    if let Value::Object(schema) = &mut schema {
        let options = json!({
            "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,40}",
            "json_allowed_escapes": "nrbtf\\\"",
        });
        schema.insert("x-guidance".into(), options);
    }
    schema
}

/// Longest search for the keyword behind an error.
const EXPLAIN_TIME: Duration = Duration::from_millis(500);
