//! From what a client sent to a grammar that can be followed, or to what is wrong with it.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use llguidance::{Matcher, ParserFactory, TokenParser, api::TopLevelGrammar};
use llmsrv_tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::{
    NOTHING_MATCHES, ahead,
    limits::{self, Deadline},
    one_line,
    schema::{self, Mode, SchemaError},
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
    pub(super) fn compile(
        &self,
        spec: &GrammarSpec,
        deadline: Deadline,
    ) -> Result<Compiled, String> {
        let job = Job {
            factory: &self.factory,
            deadline,
        };
        job.compile(spec)
    }
}

/// The compiling of one grammar.
struct Job<'a> {
    factory: &'a ParserFactory,
    deadline: Deadline,
}

impl Job<'_> {
    fn compile(&self, spec: &GrammarSpec) -> Result<Compiled, String> {
        let mut unenforced = Vec::new();
        let (matcher, ahead) = match spec {
            GrammarSpec::Json => {
                let schema = with_options(json!({"type": "object"}));
                self.matcher(TopLevelGrammar::from_json_schema(schema))?
            }
            GrammarSpec::JsonSchema(schema) => {
                let prepared = self.prepared(schema, Mode::Named, &mut unenforced)?;
                self.matcher(TopLevelGrammar::from_json_schema(prepared))?
            }
            GrammarSpec::StrictJsonSchema(schema) => {
                let prepared = self.prepared(schema, Mode::Strict, &mut unenforced)?;
                self.matcher(TopLevelGrammar::from_json_schema(prepared))?
            }
            GrammarSpec::Regex(text) => {
                limits::check_text(text)?;
                self.matcher(TopLevelGrammar::from_regex(text))?
            }
            GrammarSpec::Lark(text) => {
                limits::check_text(text)?;
                if text.contains("%json") {
                    return Err(
                        "%json is not supported in a grammar: send the schema itself".into(),
                    );
                }
                self.matcher(TopLevelGrammar::from_lark(text.clone()))?
            }
            GrammarSpec::Calls {
                lark,
                schemas,
                answer,
            } => self.calls(lark, schemas, answer.as_deref(), &mut unenforced)?,
        };
        Ok(Compiled {
            matcher,
            ahead,
            required: ahead::required(spec),
            unenforced: unenforced.iter().map(ToString::to_string).collect(),
            integer_digits: limits::integer_digits(spec),
        })
    }

    /// Makes a schema ready to be compiled, which was tried then. Where keywords that the grammar
    /// engine refuses may be left out, they are.
    fn prepared(
        &self,
        schema: &Value,
        mode: Mode,
        unenforced: &mut Vec<SchemaError>,
    ) -> Result<Value, String> {
        limits::check_schema(schema)?;
        if !schema.is_object() && !schema.is_boolean() {
            return Err("a JSON schema is an object".into());
        }
        let mut schema = schema.clone();
        for _ in 0..MAX_LEFT_OUT {
            let error = match self.schema(&schema, "", mode) {
                Ok((prepared, mut named)) => {
                    unenforced.append(&mut named);
                    return Ok(prepared);
                }
                Err(error) => error,
            };
            let culprit = self.culprit(&schema, &error, mode);
            match culprit.keyword {
                Some(keyword)
                    if mode == Mode::Named
                        && MAY_BE_LEFT_OUT.contains(&keyword.as_str())
                        && !error.contains("nsatisfiable")
                        && !error.contains(NOTHING_MATCHES) =>
                {
                    unenforced.push(SchemaError::unenforced(&keyword, &culprit.at, &error));
                    if let Some(Value::Object(fields)) = schema.pointer_mut(&culprit.at) {
                        fields.shift_remove(&keyword);
                    }
                }
                keyword => return Err(explained(error, keyword.as_deref(), &culprit.at)),
            }
        }
        Err("the schema has too many keywords that cannot be enforced".into())
    }

    /// Compiles the schema at the JSON pointer `at` of `root`; returns what it was compiled from and
    /// what of it is not enforced, too.
    fn schema(
        &self,
        root: &Value,
        at: &str,
        mode: Mode,
    ) -> Result<(Value, Vec<SchemaError>), String> {
        let prepared = schema::prepare(root, at, mode, self.deadline);
        self.deadline.check()?;
        let prepared = prepared.map_err(|error| error.to_string())?;
        // References multiply: the result can be larger than what was checked.
        limits::check_schema(&prepared.schema)?;
        limits::check_expansion(&prepared.schema, self.deadline)?;
        let schema = with_options(prepared.schema);
        self.matcher(TopLevelGrammar::from_json_schema(schema.clone()))?;
        Ok((schema, prepared.unenforced))
    }

    /// Compiles a grammar of tool calls. A tool's schema is a promise of its author, not of the one
    /// who calls: what cannot be enforced is left out.
    fn calls(
        &self,
        lark: &str,
        schemas: &[Value],
        answer: Option<&GrammarSpec>,
        unenforced: &mut Vec<SchemaError>,
    ) -> Result<(Matcher, TokenParser), String> {
        let mut text = lark.to_owned();
        if let Some(answer) = answer {
            // Alone first: what is wrong with it is told as without tools.
            let rule = self.answer(answer, unenforced)?;
            let _ = writeln!(text, "\nanswer: {rule}");
        }
        for (idx, schema) in schemas.iter().enumerate() {
            let schema = self.arguments(schema, unenforced);
            let _ = writeln!(text, "\nschema_{idx}: %json {schema}");
        }
        self.matcher(TopLevelGrammar::from_lark(text))
    }

    /// A format as the body of a rule of a Lark grammar.
    fn answer(
        &self,
        format: &GrammarSpec,
        unenforced: &mut Vec<SchemaError>,
    ) -> Result<String, String> {
        Ok(match format {
            GrammarSpec::Json => format!("%json {}", with_options(json!({"type": "object"}))),
            GrammarSpec::JsonSchema(schema) => {
                let prepared = self.prepared(schema, Mode::Named, unenforced)?;
                format!("%json {prepared}")
            }
            GrammarSpec::StrictJsonSchema(schema) => {
                let prepared = self.prepared(schema, Mode::Strict, unenforced)?;
                format!("%json {prepared}")
            }
            GrammarSpec::Regex(pattern) => {
                self.compile(format)?;
                format!("/{}/", with_escaped_slashes(pattern))
            }
            GrammarSpec::Lark(text) => {
                self.compile(format)?;
                format!("%lark {{\n{text}\n}}")
            }
            GrammarSpec::Calls { .. } => return Err("calls within calls".into()),
        })
    }

    /// The schema of a tool's arguments, as far as it can be enforced.
    fn arguments(&self, schema: &Value, unenforced: &mut Vec<SchemaError>) -> Value {
        let any = || match schema.get("type") {
            Some(kind) if kind == "object" => with_options(json!({"type": "object"})),
            _ => with_options(json!({})),
        };
        if !schema.is_object() || limits::check_schema(schema).is_err() {
            return any();
        }
        match self.schema(schema, "", Mode::Lenient) {
            Ok((prepared, mut named)) => {
                unenforced.append(&mut named);
                prepared
            }
            Err(error) => {
                tracing::warn!(error, "the schema of a tool cannot be enforced");
                any()
            }
        }
    }

    /// Compiles and tries a grammar.
    fn matcher(&self, grammar: TopLevelGrammar) -> Result<(Matcher, TokenParser), String> {
        self.deadline.check()?;
        let parser = self.factory.create_parser(grammar);
        let mut ahead = parser.map_err(|error| one_line(&error.to_string()))?;
        let matcher = Matcher::new(Ok(ahead.deep_clone()));
        if let Some(error) = matcher.get_error() {
            return Err(one_line(&error));
        }
        ahead.start_without_prompt();
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
        Ok((matcher, ahead))
    }

    /// Finds the keyword behind an error of the grammar engine: goes down to the innermost schema
    /// that gives the same error alone, and leaves its keywords out one by one.
    fn culprit(&self, root: &Value, error: &str, mode: Mode) -> Culprit {
        let deadline = Instant::now() + EXPLAIN_TIME;
        let is_late = || Instant::now() > deadline || self.deadline.is_over();
        let mut culprit = Culprit::default();
        if schema::prepare(root, "", mode, self.deadline).is_err() || !root.is_object() {
            return culprit;
        }
        let fails = |root: &Value, at: &str| self.schema(root, at, mode).err();
        let mut seen = vec![String::new()];
        while let Some(part) = schema::parts(root, &culprit.at).into_iter().find(|part| {
            !is_late() && !seen.contains(part) && fails(root, part).as_deref() == Some(error)
        }) {
            seen.push(part.clone());
            culprit.at = part;
        }
        let Some(Value::Object(fields)) = root.pointer(&culprit.at) else {
            return culprit;
        };
        let keyword = fields.keys().find(|keyword| {
            if is_late() || !schema::constrains(keyword) {
                return false;
            }
            let mut without = root.clone();
            if let Some(Value::Object(fields)) = without.pointer_mut(&culprit.at) {
                fields.shift_remove(*keyword);
            }
            fails(&without, &culprit.at).as_deref() != Some(error)
        });
        culprit.keyword = keyword.cloned();
        culprit
    }
}

/// A compiled grammar.
pub(super) struct Compiled {
    pub(super) matcher: Matcher,
    /// The grammar once more, to look ahead with.
    pub(super) ahead: TokenParser,
    /// Names that its objects need.
    pub(super) required: Arc<[Box<[u8]>]>,
    /// What it does not enforce of its schemas: one sentence each.
    pub(super) unenforced: Arc<[String]>,
    /// Digits that integers may have.
    pub(super) integer_digits: usize,
}

impl Clone for Compiled {
    /// Each clone is followed by itself.
    fn clone(&self) -> Compiled {
        Compiled {
            matcher: self.matcher.deep_clone(),
            ahead: self.ahead.deep_clone(),
            required: self.required.clone(),
            unenforced: self.unenforced.clone(),
            integer_digits: self.integer_digits,
        }
    }
}

/// What the grammar engine refuses.
#[derive(Default)]
struct Culprit {
    /// The schema: a JSON pointer.
    at: String,
    /// Its keyword, if there is one.
    keyword: Option<String>,
}

fn explained(error: String, keyword: Option<&str>, at: &str) -> String {
    match keyword {
        Some(keyword) => {
            let at = schema::join(at, keyword);
            format!("{keyword:?} (at {at}) cannot be enforced: {error}")
        }
        None if at.is_empty() => error,
        None => format!("the schema at {at} cannot be enforced: {error}"),
    }
}

/// Sets how a schema is read. Between two tokens of JSON there is nothing, one space, or one line break
/// with indentation: small models like blanks better than an end. A text has one spelling (no `\u0061` for `a`), so that
/// the names of properties are what they look like. Options from the client are not looked at,
/// because they could turn keywords that cannot be enforced into silence.
fn with_options(mut schema: Value) -> Value {
    if let Value::Object(schema) = &mut schema {
        let options = json!({
            "whitespace_pattern": r"\x20|\x0A[\x20\x09]{0,20}",
            "json_allowed_escapes": "nrbtf\\\"",
        });
        schema.insert("x-guidance".into(), options);
    }
    schema
}

/// Escapes the slashes of a regular expression that are not escaped yet.
fn with_escaped_slashes(pattern: &str) -> String {
    let mut escaped = String::with_capacity(pattern.len());
    let mut is_escaped = false;
    for c in pattern.chars() {
        if c == '/' && !is_escaped {
            escaped.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        escaped.push(c);
    }
    escaped
}

/// Longest search for the keyword behind an error.
const EXPLAIN_TIME: Duration = Duration::from_millis(500);
/// Keywords that may be left out when the grammar engine refuses them: without them a schema still
/// says what its author is after.
const MAY_BE_LEFT_OUT: [&str; 5] = [
    "pattern",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "multipleOf",
];
const MAX_LEFT_OUT: usize = 8;
