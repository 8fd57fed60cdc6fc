//! What a grammar from a client may cost. All of this is checked before anything recurses into it.

use llguidance::api::ParserLimits;
use serde_json::Value;

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
    Ok(())
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
    Ok(())
}

/// What makes a schema expensive.
#[derive(Default)]
struct Cost {
    n_values: usize,
    /// The different `multipleOf`, multiplied: the automaton has a state for each remainder.
    divisor: f64,
    divisors: Vec<f64>,
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

const MAX_DEPTH: usize = 64;
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Compiling an object takes time that grows with the square of its properties.
const MAX_SCHEMA_VALUES: usize = 10_000;
const MAX_DIVISOR: f64 = 100_000.0;
