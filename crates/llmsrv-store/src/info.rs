//! The facts about a model that lists and details show: from the config blob, and where that says
//! nothing (older ones do not know the context length) from the header of the weights.

use llmsrv_gguf::{Header, ModelFacts, json};
use serde_json::{Map, Value, json};

use crate::{Digest, Layer, manifest::MAX_VALUES};

/// Facts about a model. Texts are empty where nobody knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelConfig {
    /// `gguf`.
    pub format: String,
    /// Architecture, `llama`.
    pub family: String,
    /// Architecture and those of its projectors.
    pub families: Vec<String>,
    /// Number of parameters for people, `8.0B`.
    pub parameter_size: String,
    /// Quantization of most tensors, `Q4_K_M`.
    pub quantization: String,
    /// Positions the model was trained for.
    pub context_length: Option<u64>,
    /// Length of an embedding.
    pub embedding_length: Option<u64>,
    /// What the publisher says the model can do; empty in most configs.
    pub capabilities: Vec<String>,
    /// The model turns text into vectors and writes none.
    pub embeds_only: bool,
    /// Renderer named by the publisher.
    pub renderer: Option<String>,
    /// Output parser named by the publisher.
    pub parser: Option<String>,
    /// Oldest version of the reference server that runs the model.
    pub requires: Option<String>,
    /// Whoever made the model here gave it its template: nothing else goes before that.
    pub own_template: bool,
    /// The model runs on this host and not here.
    pub(crate) remote_host: Option<String>,
}

impl ModelConfig {
    /// Returns what the header of weights says.
    pub fn of_weights(header: &Header) -> ModelConfig {
        let mut config = ModelConfig::default();
        config.complete(&ModelFacts::of(header));
        config
    }

    /// Reads a config blob. Members that are missing or of another type are taken as unknown.
    pub(crate) fn parse(json: &[u8]) -> ModelConfig {
        let members = json::check(json, MAX_VALUES).and_then(|()| {
            let members: Result<Map<String, Value>, _> = serde_json::from_slice(json);
            members.map_err(|error| error.to_string())
        });
        let members = members.unwrap_or_else(|error| {
            tracing::debug!(error, "a model config is no JSON object");
            Map::new()
        });
        let option = |key: &str| {
            members
                .get(key)?
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let text = |key: &str| option(key).unwrap_or_default();
        let number = |key: &str| members.get(key)?.as_u64().filter(|number| *number > 0);
        let texts = |key: &str| -> Vec<String> {
            let values = members.get(key).and_then(Value::as_array);
            values
                .into_iter()
                .flatten()
                .filter_map(|value| value.as_str().map(str::to_owned))
                .collect()
        };
        let capabilities = texts("capabilities");
        let can = |what: &str| capabilities.iter().any(|capability| capability == what);
        ModelConfig {
            format: text("model_format"),
            family: text("model_family"),
            families: texts("model_families"),
            parameter_size: text("model_type"),
            quantization: text("file_type"),
            context_length: number("context_length"),
            embedding_length: number("embedding_length"),
            embeds_only: can("embedding") && !can("completion"),
            capabilities,
            renderer: option("renderer"),
            parser: option("parser"),
            requires: option("requires"),
            own_template: members.get("own_template") == Some(&Value::Bool(true)),
            remote_host: option("remote_host"),
        }
    }

    /// Tells whether the header of the weights could add something.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.family.is_empty()
            || self.parameter_size.is_empty()
            || self.quantization.is_empty()
            || self.context_length.is_none()
            || self.embedding_length.is_none()
            || self.capabilities.is_empty()
    }

    /// Fills what is unknown.
    pub(crate) fn complete(&mut self, facts: &ModelFacts) {
        let fill = |text: &mut String, fact: &str| {
            if text.is_empty() {
                fact.clone_into(text);
            }
        };
        fill(&mut self.format, "gguf");
        fill(&mut self.family, &facts.architecture);
        fill(
            &mut self.parameter_size,
            &format_parameter_count(facts.parameter_count),
        );
        fill(&mut self.quantization, &facts.quantization);
        if self.families.is_empty() {
            self.families = vec![self.family.clone()];
        }
        self.context_length = self.context_length.or(facts.context_length);
        self.embedding_length = self.embedding_length.or(facts.embedding_length);
        self.embeds_only |= self.capabilities.is_empty() && facts.pools;
    }

    /// Returns the JSON of a config blob over `layers`.
    pub fn to_json(&self, layers: &[Layer]) -> Vec<u8> {
        let diff_ids: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
        let mut config = json!({
            "model_format": self.format,
            "model_family": self.family,
            "model_families": self.families,
            "model_type": self.parameter_size,
            "file_type": self.quantization,
            "context_length": self.context_length,
            "embedding_length": self.embedding_length,
            "architecture": "amd64",
            "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        if !self.capabilities.is_empty() {
            config["capabilities"] = json!(self.capabilities);
        }
        for (name, value) in [
            ("renderer", &self.renderer),
            ("parser", &self.parser),
            ("requires", &self.requires),
        ] {
            if let Some(value) = value {
                config[name] = json!(value);
            }
        }
        if self.own_template {
            config["own_template"] = json!(true);
        }
        config.to_string().into_bytes()
    }
}

/// Writes a number of parameters for people: `8.0B`, `7B`, `134.52M`, `22M`, `512K`, `12`.
pub fn format_parameter_count(count: u64) -> String {
    let (unit, letter, n_decimals) = match count {
        1_000_000_000.. => (1e9, "B", 1),
        1_000_000.. => (1e6, "M", 2),
        1_000.. => (1e3, "K", 0),
        _ => return count.to_string(),
    };
    let number = count as f64 / unit;
    let n_decimals = if number.fract() == 0.0 { 0 } else { n_decimals };
    format!("{number:.n_decimals$}{letter}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LayerKind;

    #[test]
    fn parameter_counts_are_written_for_people() {
        for (count, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1K"),
            (26_400, "26K"),
            (1_000_000, "1M"),
            (4_983_552, "4.98M"),
            (134_515_008, "134.52M"),
            (125_000_000, "125M"),
            (1_000_000_000, "1B"),
            (7_000_000_000, "7B"),
            (8_030_261_312, "8.0B"),
            (70_553_706_496, "70.6B"),
            (671_026_419_200, "671.0B"),
        ] {
            assert_eq!(format_parameter_count(count), expected);
        }
    }

    #[test]
    fn odd_configs_are_read_as_far_as_possible() {
        for json in [
            "",
            "[]",
            "{",
            "null",
            r#"{"model_family":7,"model_families":"x","context_length":-1}"#,
            &format!(
                r#"{{"model_family":"llama","x":[{}0]}}"#,
                "[],".repeat(60_000)
            ),
        ] {
            assert_eq!(
                ModelConfig::parse(json.as_bytes()),
                ModelConfig::default(),
                "{json}"
            );
        }
        let config = ModelConfig::parse(
            br#"{"model_family":"bert","capabilities":["embedding"],"context_length":512,"requires":"","parser":"p"}"#,
        );
        assert!(config.embeds_only);
        assert_eq!(
            (config.context_length, config.requires, config.parser),
            (Some(512), None, Some("p".into()))
        );
    }

    #[test]
    fn facts_fill_only_what_is_unknown() {
        let facts = ModelFacts {
            architecture: "llama".into(),
            parameter_count: 1_500_000_000,
            quantization: "Q8_0".into(),
            context_length: Some(8),
            embedding_length: Some(4),
            ..ModelFacts::default()
        };
        let mut config = ModelConfig {
            quantization: "Q4_K_M".into(),
            ..ModelConfig::default()
        };
        config.complete(&facts);
        assert_eq!(
            (config.family.as_str(), config.parameter_size.as_str()),
            ("llama", "1.5B")
        );
        assert_eq!(
            (config.quantization.as_str(), config.context_length),
            ("Q4_K_M", Some(8))
        );
        config.capabilities = vec!["completion".into()];
        config.requires = Some("0.14.0".into());
        config.own_template = true;
        let layer = Layer::new(LayerKind::Model, Digest::of(b"x"), 1);
        assert_eq!(ModelConfig::parse(&config.to_json(&[layer])), config);
    }

    proptest! {
        #[test]
        fn random_configs_never_panic(json in "\\PC*") {
            ModelConfig::parse(json.as_bytes());
        }
    }
}
