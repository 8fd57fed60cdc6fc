//! Model names: `[scheme://][host/][namespace/]model[:tag]`.
//!
//! A name is parsed from the right: the tag is what follows the last `:` if that is right of the
//! last `/`; then come model, namespace and host, separated by `/`. What is left out is filled in:
//! `llama3` is `registry.ollama.ai/library/llama3:latest`. No part can begin with a dot or hold a
//! slash, so the four parts are safe as a path of four components.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of a model, valid and complete. Letter case is kept, but does not count in comparisons.
#[derive(Clone)]
pub struct ModelName {
    scheme: Scheme,
    /// Host, namespace, model, tag.
    parts: [String; 4],
}

/// How a registry is reached; no part of a model's identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Encrypted: the default.
    #[default]
    Https,
    /// Plain, when the name says `http://`.
    Http,
}

impl ModelName {
    /// Builds the name whose four parts are the components of a manifest's path.
    pub(crate) fn from_parts(parts: [&str; 4]) -> Option<ModelName> {
        let valid = parts
            .iter()
            .zip(PARTS)
            .all(|(text, part)| part.accepts(text));
        valid.then(|| ModelName {
            scheme: Scheme::Https,
            parts: parts.map(str::to_owned),
        })
    }

    /// Returns the host of the registry.
    pub fn host(&self) -> &str {
        &self.parts[0]
    }

    /// Returns the namespace in the registry.
    pub fn namespace(&self) -> &str {
        &self.parts[1]
    }

    /// Returns the model without its tag.
    pub fn model(&self) -> &str {
        &self.parts[2]
    }

    /// Returns the tag.
    pub fn tag(&self) -> &str {
        &self.parts[3]
    }

    /// Returns the scheme the name was written with.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns `host/namespace/model:tag` with nothing left out.
    pub fn full(&self) -> String {
        let [host, namespace, model, tag] = &self.parts;
        format!("{host}/{namespace}/{model}:{tag}")
    }

    /// Returns the path of the manifest below the folder of manifests.
    pub fn to_path(&self) -> PathBuf {
        self.parts.iter().collect()
    }

    /// Returns the parts in the order of the path.
    pub(crate) fn parts(&self) -> &[String; 4] {
        &self.parts
    }

    /// Parts in lower case, what comparisons look at.
    fn folded(&self) -> impl Iterator<Item = u8> {
        self.parts
            .iter()
            .flat_map(|part| part.bytes().map(|b| b.to_ascii_lowercase()).chain([0]))
    }
}

/// A text is no model name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid model name {name:?}")]
pub struct InvalidName {
    /// The text, cut if it is long.
    pub name: String,
}

impl FromStr for ModelName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<ModelName, InvalidName> {
        parse(text).ok_or_else(|| InvalidName {
            name: text.chars().take(100).collect(),
        })
    }
}

fn parse(text: &str) -> Option<ModelName> {
    let (rest, tag) = match text.rsplit_once(':') {
        Some((rest, tag)) if !tag.contains('/') => (rest, tag),
        _ => (text, DEFAULT_TAG),
    };
    let mut scheme = Scheme::Https;
    let (mut host, mut namespace) = (DEFAULT_HOST, DEFAULT_NAMESPACE);
    let model = match rest.rsplit_once('/') {
        None => rest,
        Some((rest, model)) => {
            namespace = rest;
            if let Some((rest, after)) = rest.rsplit_once('/') {
                namespace = after;
                (scheme, host) = split_scheme(rest)?;
            }
            model
        }
    };
    Some(ModelName {
        scheme,
        ..ModelName::from_parts([host, namespace, model, tag])?
    })
}

fn split_scheme(text: &str) -> Option<(Scheme, &str)> {
    match text.split_once("://") {
        None => Some((Scheme::Https, text)),
        Some((scheme, host)) if scheme.eq_ignore_ascii_case("https") => Some((Scheme::Https, host)),
        Some((scheme, host)) if scheme.eq_ignore_ascii_case("http") => Some((Scheme::Http, host)),
        Some(_) => None,
    }
}

/// The shortest form: no host if it is the default, no namespace if both are; always a tag.
impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [host, namespace, model, tag] = &self.parts;
        let default_host = host.eq_ignore_ascii_case(DEFAULT_HOST);
        if !default_host {
            write!(f, "{host}/")?;
        }
        if !default_host || !namespace.eq_ignore_ascii_case(DEFAULT_NAMESPACE) {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{model}:{tag}")
    }
}

impl fmt::Debug for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.full())
    }
}

impl PartialEq for ModelName {
    fn eq(&self, other: &ModelName) -> bool {
        self.parts
            .iter()
            .zip(&other.parts)
            .all(|(a, b)| a.eq_ignore_ascii_case(b))
    }
}

impl Eq for ModelName {}

impl Hash for ModelName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded().for_each(|byte| state.write_u8(byte));
    }
}

impl Ord for ModelName {
    fn cmp(&self, other: &ModelName) -> Ordering {
        self.folded().cmp(other.folded())
    }
}

impl PartialOrd for ModelName {
    fn partial_cmp(&self, other: &ModelName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for ModelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ModelName, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// What one part of a name may look like.
struct Part {
    max_len: usize,
    /// Characters beside letters, digits, `_` and `-`; never at the beginning, like `-`.
    extra: &'static str,
}

impl Part {
    fn accepts(&self, text: &str) -> bool {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        text.len() <= self.max_len
            && text.bytes().next().is_some_and(word)
            && text
                .bytes()
                .all(|b| word(b) || b == b'-' || self.extra.as_bytes().contains(&b))
    }
}

const PARTS: [Part; 4] = [
    Part {
        max_len: 350,
        extra: ".:",
    },
    Part {
        max_len: 80,
        extra: "",
    },
    Part {
        max_len: 80,
        extra: ".",
    },
    Part {
        max_len: 80,
        extra: ".",
    },
];

const DEFAULT_HOST: &str = "registry.ollama.ai";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, path::Component};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_found_from_the_right() {
        for (text, full, short) in [
            (
                "llama3",
                "registry.ollama.ai/library/llama3:latest",
                "llama3:latest",
            ),
            (
                "llama3:8b",
                "registry.ollama.ai/library/llama3:8b",
                "llama3:8b",
            ),
            (
                "me/llama3",
                "registry.ollama.ai/me/llama3:latest",
                "me/llama3:latest",
            ),
            (
                "hf.co/u/repo:Q4_K_M",
                "hf.co/u/repo:Q4_K_M",
                "hf.co/u/repo:Q4_K_M",
            ),
            (
                "localhost:5000/a/b",
                "localhost:5000/a/b:latest",
                "localhost:5000/a/b:latest",
            ),
            ("h/library/m", "h/library/m:latest", "h/library/m:latest"),
            (
                "Registry.Ollama.AI/Library/M:T",
                "Registry.Ollama.AI/Library/M:T",
                "M:T",
            ),
            (
                "http://localhost:5000/a/b:t",
                "localhost:5000/a/b:t",
                "localhost:5000/a/b:t",
            ),
            (
                "a..b:c.-_d",
                "registry.ollama.ai/library/a..b:c.-_d",
                "a..b:c.-_d",
            ),
            ("_a", "registry.ollama.ai/library/_a:latest", "_a:latest"),
        ] {
            let name: ModelName = text.parse().unwrap();
            assert_eq!(
                (name.full(), name.to_string()),
                (full.into(), short.into()),
                "{text}"
            );
        }
        assert_eq!(
            "http://h/n/m".parse::<ModelName>().unwrap().scheme(),
            Scheme::Http
        );
        assert_eq!(
            "HTTPS://h/n/m".parse::<ModelName>().unwrap().scheme(),
            Scheme::Https
        );
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = "x".repeat(81);
        let long_host = format!("{}/n/m", "h".repeat(351));
        let megabyte = "a".repeat(1 << 20);
        for text in [
            "",
            " ",
            "a/",
            "a:",
            ":a",
            "/a",
            "/",
            ":",
            "//",
            "a//b",
            "a/b/c/d",
            "a b",
            "m@sha256:00",
            ".",
            "..",
            "../a",
            "a/..",
            "../../../etc/passwd",
            "/etc/passwd",
            "a/../b",
            "m:..",
            "m:.t",
            "..:..",
            "-m",
            "m:-t",
            ".m",
            "n.s/m",
            "h/n:s/m",
            "m:t:u",
            "h:/n/m:t/",
            "a\0b",
            "\0",
            "m\n",
            "é",
            "m:é",
            "ｍ",
            "a\\b",
            "C:\\m",
            "m%2f",
            "http://m",
            "http://h/m",
            "ftp://h/n/m",
            "h://n/m",
            "http:///n/m",
            "~/m",
            &long,
            &long_host,
            &megabyte,
        ] {
            let error = text.parse::<ModelName>().expect_err(text);
            assert!(error.to_string().len() < 1000);
        }
        for text in ["x".repeat(80), format!("{}/n/m", "h".repeat(350))] {
            assert!(text.parse::<ModelName>().is_ok());
        }
    }

    #[test]
    fn letter_case_and_defaults_do_not_count() {
        let names: Vec<ModelName> = [
            "foo",
            "FOO:Latest",
            "library/Foo",
            "http://registry.ollama.ai/library/foo",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
        assert!(
            names
                .windows(2)
                .all(|pair| pair[0] == pair[1] && pair[0].cmp(&pair[1]).is_eq())
        );
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1);
        let other: ModelName = "foo:8b".parse().unwrap();
        assert!(other != names[0] && other < names[0]);
    }

    /// Texts near the grammar: pieces that matter, glued at random.
    fn near_names() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("..".to_owned()),
            Just("/".to_owned()),
            Just(":".to_owned()),
            Just("://".to_owned()),
            Just("http".to_owned()),
            Just("\0".to_owned()),
            "[A-Za-z0-9_.-]{1,4}",
            "\\PC",
        ];
        prop::collection::vec(piece, 0..9).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_valid_name_is_a_safe_path_and_reads_back(text in near_names()) {
            let Ok(name) = text.parse::<ModelName>() else { return Ok(()) };
            let path = name.to_path();
            prop_assert!(path.is_relative());
            let components: Vec<_> = path.components().collect();
            prop_assert_eq!(components.len(), 4);
            prop_assert!(components.iter().all(|c| matches!(c, Component::Normal(_))));
            for form in [name.full(), name.to_string()] {
                let again: ModelName = form.parse().unwrap();
                prop_assert_eq!(again.full().to_lowercase(), name.full().to_lowercase());
            }
        }

        #[test]
        fn every_name_of_the_grammar_is_accepted(
            host in "[A-Za-z0-9_][A-Za-z0-9_.:-]{0,30}", namespace in "[A-Za-z0-9_][A-Za-z0-9_-]{0,79}",
            model in "[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}", tag in "[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}",
        ) {
            let name: ModelName = format!("{host}/{namespace}/{model}:{tag}").parse().unwrap();
            prop_assert_eq!([name.host(), name.namespace(), name.model(), name.tag()], [&*host, &*namespace, &*model, &*tag]);
        }

        #[test]
        fn random_text_never_panics(text in any::<String>()) {
            drop(text.parse::<ModelName>());
        }
    }
}
