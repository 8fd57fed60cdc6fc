//! The grammars that were compiled lately.

use std::collections::VecDeque;

use super::compile::Compiled;
use crate::GrammarSpec;

/// Compiled grammars, the latest used first.
#[derive(Default)]
pub(super) struct Cache {
    entries: VecDeque<(String, Compiled)>,
}

impl Cache {
    /// Returns the grammar compiled from what `key` says.
    pub(super) fn get(&mut self, key: &str) -> Option<&Compiled> {
        let idx = self.entries.iter().position(|(own, _)| own == key)?;
        let entry = self.entries.remove(idx)?;
        self.entries.push_front(entry);
        self.entries.front().map(|(_, compiled)| compiled)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a compiled grammar in place of the one that was not used for the longest time.
    pub(super) fn put(&mut self, key: String, compiled: Compiled) {
        if key.len() > MAX_KEY_BYTES {
            return;
        }
        self.entries.truncate(MAX_ENTRIES - 1);
        self.entries.push_front((key, compiled));
    }
}

/// Returns a text that says the same as `spec`.
pub(super) fn key(spec: &GrammarSpec) -> String {
    match spec {
        GrammarSpec::Json => "json".into(),
        GrammarSpec::JsonSchema(schema) => format!("schema {schema}"),
        GrammarSpec::StrictJsonSchema(schema) => format!("strict schema {schema}"),
        GrammarSpec::Regex(pattern) => format!("regex {pattern}"),
        GrammarSpec::Lark(text) => format!("lark {text}"),
        GrammarSpec::Calls {
            lark,
            schemas,
            answer,
        } => {
            let schemas: Vec<String> = schemas.iter().map(ToString::to_string).collect();
            let answer = answer.as_deref().map(key);
            format!("calls {schemas:?} {answer:?} {lark}")
        }
    }
}

/// A grammar takes from kilobytes to a few megabytes.
const MAX_ENTRIES: usize = 32;
/// Larger grammars are compiled each time.
const MAX_KEY_BYTES: usize = 64 << 10;
