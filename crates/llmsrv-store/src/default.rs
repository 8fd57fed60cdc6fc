//! What the name `default` stands for.
//!
//! A user who has chosen nothing gets an answer from `default`. It is resolved each time, to the
//! first of:
//! 1. the model that the settings name (missing: `default` does not resolve, so that the mistake
//!    shows),
//! 2. the model that the user has chosen, if it is there: copying a model to `default` chooses it,
//! 3. a manifest of this name, which the user has made,
//! 4. the embedded model,
//! 5. the user's oldest model that writes text, else the oldest one: a model that is added later
//!    changes nothing.

use serde::{Deserialize, Serialize};

use crate::{Digest, ModelEntry, ModelName};

/// Which embedded model was put into the store last. It tells the embedded model from the user's
/// own, and stays when the user removes the model, so that it does not come back by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    pub(crate) name: ModelName,
    /// Digest of its manifest.
    pub(crate) manifest: Digest,
}

/// Which model the user has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub(crate) model: ModelName,
}

/// Returns the name that may stand for another.
pub(crate) fn name() -> ModelName {
    "default".parse().expect("a word is a valid name")
}

/// Tells whether `name` is the one that may stand for another.
pub(crate) fn is_default(name: &ModelName) -> bool {
    *name == self::name()
}

/// Returns the entry of `entries` (newest first) that `default` stands for.
pub(crate) fn resolve<'a>(
    entries: &'a [ModelEntry],
    setting: Option<&ModelName>,
    choice: Option<&Choice>,
    marker: Option<&Marker>,
) -> Option<&'a ModelEntry> {
    if let Some(name) = setting.filter(|name| !is_default(name)) {
        return entries.iter().find(|entry| entry.name == *name);
    }
    let is_embedded = |entry: &ModelEntry| {
        marker.is_some_and(|marker| entry.name == marker.name && entry.digest == marker.manifest)
    };
    let first = |wanted: &dyn Fn(&ModelEntry) -> bool| entries.iter().find(|entry| wanted(entry));
    let oldest =
        |wanted: &dyn Fn(&ModelEntry) -> bool| entries.iter().rev().find(|entry| wanted(entry));
    let writes = |entry: &ModelEntry| !entry.config.embeds_only;
    // Of a family that nobody knows it is not sure that it is a model.
    let is_known = |entry: &ModelEntry| writes(entry) && !entry.config.family.is_empty();
    first(&|entry| choice.is_some_and(|choice| entry.name == choice.model))
        .or_else(|| first(&|entry| is_default(&entry.name)))
        .or_else(|| first(&is_embedded))
        .or_else(|| oldest(&is_known))
        .or_else(|| oldest(&writes))
        .or_else(|| entries.last())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::ModelConfig;

    fn entry(name: &str, embeds_only: bool) -> ModelEntry {
        ModelEntry {
            name: name.parse().unwrap(),
            stands_for: None,
            digest: Digest::of(name.as_bytes()),
            size: 1,
            modified: SystemTime::UNIX_EPOCH,
            read_only: false,
            config: ModelConfig {
                embeds_only,
                ..ModelConfig::default()
            },
        }
    }

    #[test]
    fn the_first_that_applies_is_taken() {
        let tiny = Marker {
            name: "tiny".parse().unwrap(),
            manifest: Digest::of(b"tiny"),
        };
        let changed = Marker {
            manifest: Digest::of(b"other"),
            ..tiny.clone()
        };
        let name = |name: &str| Some(name.parse::<ModelName>().unwrap());
        let none = None;
        for (names, setting, choice, marker, expected) in [
            (&["tiny"][..], none, none, Some(&tiny), Some("tiny")),
            (&["b", "a", "tiny"], none, none, Some(&tiny), Some("tiny")),
            (&["b", "a", "tiny"], none, Some("A"), Some(&tiny), Some("a")),
            (&["b", "tiny"], none, Some("a"), Some(&tiny), Some("tiny")),
            (&["a", "e/embed"], none, none, Some(&tiny), Some("a")),
            (&["e/embed", "tiny"], none, none, Some(&tiny), Some("tiny")),
            (&["e/f", "e/embed"], none, none, None, Some("e/embed")),
            (&["c", "b", "a"], none, none, Some(&changed), Some("a")),
            (&["c", "b", "a"], none, none, None, Some("a")),
            (&["a", "Default"], none, none, Some(&tiny), Some("default")),
            (&["a", "Default"], none, Some("a"), None, Some("a")),
            (&["default", "b"], Some("B"), None, Some(&tiny), Some("b")),
            (&["a", "default"], Some("gone"), None, Some(&tiny), None),
            (
                &["tiny", "a"],
                Some("default"),
                None,
                Some(&tiny),
                Some("tiny"),
            ),
            (
                &["tiny", "default:8b"],
                none,
                none,
                Some(&tiny),
                Some("tiny"),
            ),
            (&[], none, none, Some(&tiny), None),
        ] {
            let entries: Vec<_> = names
                .iter()
                .map(|name| entry(name, name.starts_with("e/")))
                .collect();
            let setting: Option<ModelName> = setting.and_then(name);
            let choice = choice.and_then(name).map(|model| Choice { model });
            let resolved = resolve(&entries, setting.as_ref(), choice.as_ref(), marker)
                .map(|entry| entry.name.clone());
            assert_eq!(
                resolved,
                expected.map(|name| name.parse().unwrap()),
                "{names:?}"
            );
        }
    }
}
