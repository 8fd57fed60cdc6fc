//! What the name `default` stands for.
//!
//! A user who has chosen nothing gets an answer from `default`. Nothing is written for it; it is
//! resolved each time, to the first of:
//! 1. the model that the settings name (missing: `default` does not resolve, so that the mistake
//!    shows),
//! 2. a manifest of this name: the user made it, say with `cp llama3 default`,
//! 3. the user's newest model that writes text,
//! 4. the embedded model,
//! 5. the user's newest model of any kind.

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
    marker: Option<&Marker>,
) -> Option<&'a ModelEntry> {
    if let Some(name) = setting.filter(|name| !is_default(name)) {
        return entries.iter().find(|entry| entry.name == *name);
    }
    let is_embedded = |entry: &ModelEntry| {
        marker.is_some_and(|marker| entry.name == marker.name && entry.digest == marker.manifest)
    };
    let first = |wanted: &dyn Fn(&ModelEntry) -> bool| entries.iter().find(|entry| wanted(entry));
    first(&|entry| is_default(&entry.name))
        .or_else(|| first(&|entry| !is_embedded(entry) && !entry.config.embeds_only))
        .or_else(|| first(&is_embedded))
        .or_else(|| entries.first())
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
        let setting = |name: &str| Some(name.parse::<ModelName>().unwrap());
        for (names, setting, marker, expected) in [
            (&["tiny"][..], None, Some(&tiny), Some("tiny")),
            (&["tiny", "a", "b"], None, Some(&tiny), Some("a")),
            (&["e/embed", "a"], None, Some(&tiny), Some("a")),
            (&["e/embed", "tiny"], None, Some(&tiny), Some("tiny")),
            (&["e/embed"], None, None, Some("e/embed")),
            (&["tiny", "a"], None, Some(&changed), Some("tiny")),
            (&["tiny", "a"], None, None, Some("tiny")),
            (
                &["tiny", "a", "Default"],
                None,
                Some(&tiny),
                Some("default"),
            ),
            (
                &["tiny", "a", "default", "b"],
                setting("B"),
                Some(&tiny),
                Some("b"),
            ),
            (
                &["tiny", "a", "default"],
                setting("gone"),
                Some(&tiny),
                None,
            ),
            (&["tiny", "a"], setting("default"), Some(&tiny), Some("a")),
            (
                &["tiny", "default:8b"],
                None,
                Some(&tiny),
                Some("default:8b"),
            ),
            (&[], None, Some(&tiny), None),
        ] {
            let entries: Vec<_> = names
                .iter()
                .map(|name| entry(name, name.starts_with("e/")))
                .collect();
            let resolved =
                resolve(&entries, setting.as_ref(), marker).map(|entry| entry.name.clone());
            assert_eq!(
                resolved,
                expected.map(|name| name.parse().unwrap()),
                "{names:?}"
            );
        }
    }
}
