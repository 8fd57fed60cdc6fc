//! What a grammar from a client may cost. All of this is checked before anything recurses into it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use llguidance::api::ParserLimits;
use serde_json::Value;

use crate::GrammarSpec;

/// When the compiling of a grammar must be over. The grammar engine cannot be interrupted: what it
/// does at a time is bounded by [`parser`], and nothing is given to it late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// The time that any grammar may take from now.
    pub(super) fn new() -> Deadline {
        Deadline(Instant::now() + COMPILE_TIME)
    }

    #[cfg(test)]
    pub(super) fn at(time: Instant) -> Deadline {
        Deadline(time)
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    pub(super) fn check(self) -> Result<(), String> {
        if self.is_over() {
            let seconds = COMPILE_TIME.as_secs();
            return Err(format!("compiling it takes longer than {seconds} seconds"));
        }
        Ok(())
    }
}

/// Returns the bounds of the grammar engine's own work, for compiling and for each mask.
pub(super) fn parser() -> ParserLimits {
    ParserLimits {
        max_grammar_size: 200_000,
        max_lexer_states: 100_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Refuses a schema that is too deep, too large, or counts too far.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    let mut cost = Cost::default();
    cost.add(schema, MAX_DEPTH)?;
    if cost.n_values > MAX_SCHEMA_VALUES {
        return Err("the schema is too large".into());
    }
    if cost.divisor > MAX_DIVISOR {
        return Err("multipleOf is too large".into());
    }
    if cost.n_pattern_bytes > MAX_PATTERN_BYTES {
        return Err(format!(
            "the patterns of the schema are longer than {MAX_PATTERN_BYTES} bytes"
        ));
    }
    check_optional(cost.n_optional)
}

/// Digits that integers may have: as many as a double holds, or more where a schema names larger ones.
pub(super) fn integer_digits(spec: &GrammarSpec) -> usize {
    fn names_large(schema: &Value, depth_left: usize) -> bool {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return false;
        };
        match schema {
            Value::Number(number) => number.as_f64().is_some_and(|n| n.abs() >= 1e16),
            Value::Array(items) => items.iter().any(|item| names_large(item, depth_left)),
            Value::Object(fields) => fields.iter().any(|(name, field)| {
                (name == "format" && field == "int64") || names_large(field, depth_left)
            }),
            Value::Null | Value::Bool(_) | Value::String(_) => false,
        }
    }
    let is_large = match spec {
        GrammarSpec::JsonSchema(schema) | GrammarSpec::StrictJsonSchema(schema) => {
            names_large(schema, MAX_DEPTH)
        }
        GrammarSpec::Calls {
            schemas, answer, ..
        } => {
            let answer = answer.as_deref().map_or(0, integer_digits);
            answer > 16 || schemas.iter().any(|schema| names_large(schema, MAX_DEPTH))
        }
        GrammarSpec::Json | GrammarSpec::Regex(_) | GrammarSpec::Lark(_) => false,
    };
    if is_large { 20 } else { 16 }
}

/// Refuses a schema whose conjunctions of alternatives are too many: the grammar engine multiplies
/// them out. `{"allOf": [{"anyOf": [a, b]}, {"anyOf": [c, d]}]}` has four.
pub(super) fn check_expansion(prepared: &Value, deadline: Deadline) -> Result<(), String> {
    let mut expansion = Expansion {
        deadline,
        root: prepared,
        known: HashMap::new(),
        n_steps: 0,
    };
    expansion.check(prepared)
}

/// Counts the alternatives of schemas in the words of the grammar engine.
struct Expansion<'a> {
    deadline: Deadline,
    root: &'a Value,
    /// Alternatives of definitions; 1 while they are counted.
    known: HashMap<&'a str, u64>,
    n_steps: usize,
}

impl<'a> Expansion<'a> {
    fn check(&mut self, schema: &'a Value) -> Result<(), String> {
        self.deadline.check()?;
        match schema {
            Value::Array(items) => items.iter().try_for_each(|item| self.check(item)),
            Value::Object(fields) => {
                let is_branched = fields.keys().any(|name| is_applicator(name));
                let is_excess = is_branched && self.count(schema, false) > MAX_ALTERNATIVES;
                if is_excess || self.n_steps > MAX_STEPS {
                    return Err("the schema has too many combinations of anyOf and allOf".into());
                }
                fields
                    .iter()
                    .filter(|(name, _)| !matches!(name.as_str(), "enum" | "const"))
                    .try_for_each(|(_, field)| self.check(field))
            }
            _ => Ok(()),
        }
    }

    /// How many schemas without alternatives a schema stands for; `beside` others that must hold, too,
    /// a definition is not left where it is.
    fn count(&mut self, schema: &'a Value, beside: bool) -> u64 {
        self.n_steps += 1;
        let Value::Object(fields) = schema else {
            return 1;
        };
        if self.n_steps > MAX_STEPS {
            return u64::MAX;
        }
        let beside = beside || fields.len() > 1;
        let mut product: u64 = 1;
        for (name, value) in fields {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let factor = match name.as_str() {
                "anyOf" | "oneOf" => items.iter().fold(0_u64, |sum, item| {
                    sum.saturating_add(self.count(item, beside))
                }),
                "allOf" => items.iter().fold(1_u64, |all, item| {
                    all.saturating_mul(self.count(item, true))
                }),
                "$ref" if beside => value.as_str().map_or(1, |name| self.target(name)),
                _ => 1,
            };
            product = product.saturating_mul(factor.max(1));
        }
        product
    }

    fn target(&mut self, reference: &'a str) -> u64 {
        if let Some(known) = self.known.get(reference) {
            return *known;
        }
        self.known.insert(reference, 1);
        let target = reference
            .strip_prefix('#')
            .and_then(|at| self.root.pointer(at));
        let count = target.map_or(1, |target| self.count(target, true));
        self.known.insert(reference, count);
        count
    }
}

fn is_applicator(name: &str) -> bool {
    matches!(name, "anyOf" | "oneOf" | "allOf" | "$ref")
}

/// Refuses a regular expression or a Lark grammar that is too long or nested too deeply.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err("the grammar is too large".into());
    }
    let mut depth = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err("the grammar is nested too deeply".into());
        }
    }
    check_optional(n_optional(text))
}

/// Counts the parts of a regular expression or a grammar that may be left out, or a few more. A state
/// of the automaton of `a?a?a?` stands for every place that may come next, so its states take memory
/// by the square of their number.
fn n_optional(text: &str) -> usize {
    let n_marks = text.bytes().filter(|byte| b"?*".contains(byte)).count();
    let n_groups = text.matches("(?").count();
    let of = |sign: &str| text.matches(sign).count();
    n_marks.saturating_sub(n_groups) + of("{0") + of("{,") + of("|)") + of("(|")
}

fn check_optional(n_optional: usize) -> Result<(), String> {
    if n_optional > MAX_OPTIONAL {
        return Err(format!(
            "more than {MAX_OPTIONAL} parts of the patterns may be left out or repeated"
        ));
    }
    Ok(())
}

/// What makes a schema expensive.
#[derive(Default)]
struct Cost {
    n_values: usize,
    /// The different `multipleOf`, multiplied: the automaton has a state for each remainder.
    divisor: f64,
    divisors: Vec<f64>,
    /// Regular expressions, all together.
    n_pattern_bytes: usize,
    n_optional: usize,
}

impl Cost {
    fn add(&mut self, schema: &Value, depth_left: usize) -> Result<(), String> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err("the schema is nested too deeply".into());
        };
        self.n_values += 1;
        match schema {
            Value::Array(items) => items.iter().try_for_each(|item| self.add(item, depth_left)),
            Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
                if let Some(divisor) = field.as_f64().filter(|_| name == "multipleOf") {
                    self.add_divisor(divisor);
                }
                if let ("pattern", Value::String(pattern)) = (name.as_str(), field) {
                    self.n_optional += n_optional(pattern);
                }
                if let ("patternProperties", Value::Object(patterns)) = (name.as_str(), field) {
                    self.n_optional += patterns.keys().map(|key| n_optional(key)).sum::<usize>();
                }
                self.n_pattern_bytes += match (name.as_str(), field) {
                    ("pattern", Value::String(pattern)) => pattern.len(),
                    ("patternProperties", Value::Object(patterns)) => {
                        patterns.keys().map(String::len).sum()
                    }
                    _ => 0,
                };
                self.add(field, depth_left)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn add_divisor(&mut self, divisor: f64) {
        if self.divisors.contains(&divisor) {
            return;
        }
        self.divisors.push(divisor);
        // 0.25 counts as 25: decimals are shifted away.
        let mut shifted = divisor.abs();
        while shifted.fract() > 1e-9 && shifted < MAX_DIVISOR {
            shifted *= 10.0;
        }
        self.divisor = self.divisor.max(1.0) * shifted.max(1.0);
    }
}

/// Milliseconds are usual.
const COMPILE_TIME: Duration = Duration::from_secs(2);
const MAX_DEPTH: usize = 64;
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Ten thousand of them take more than a gigabyte.
const MAX_OPTIONAL: usize = 2000;
/// Compiling 1 MB of them takes seconds and hundreds of megabytes.
const MAX_PATTERN_BYTES: usize = 32 << 10;
const MAX_ALTERNATIVES: u64 = 4096;
/// Work to count alternatives.
const MAX_STEPS: usize = 200_000;
/// Compiling an object takes time that grows with the square of its properties.
const MAX_SCHEMA_VALUES: usize = 10_000;
const MAX_DIVISOR: f64 = 100_000.0;
