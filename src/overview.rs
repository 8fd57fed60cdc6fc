//! What is known of a model, or of all, for people.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    format,
    term::{self, STRONG},
};

/// Lays out a list of models, in its order.
pub fn list(listed: Value) -> Result<String, serde_json::Error> {
    let listed: Listed = serde_json::from_value(listed)?;
    let now = Timestamp::now();
    let row = |model: &Model| {
        let id = model.digest.chars().take(12).collect();
        let modified = model
            .modified_at
            .parse()
            .map_or_else(|_| "-".to_owned(), |at| format::ago(at, now));
        vec![model.name.clone(), id, format::size(model.size), modified]
    };
    let rows: Vec<Vec<String>> = listed.models.iter().map(row).collect();
    Ok(term::table(&["NAME", "ID", "SIZE", "MODIFIED"], &rows))
}

/// What is printed of the answer; a server of another kind may leave fields out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Listed {
    models: Vec<Model>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    name: String,
    digest: String,
    size: u64,
    modified_at: String,
}

/// Lays out the facts people look for, by section; with `verbose` also all metadata and tensors.
pub fn overview(shown: &Value, verbose: bool) -> String {
    let mut sections = vec![section("Model", pairs(&facts(shown)))];
    let capabilities = shown["capabilities"].as_array().into_iter().flatten();
    let capabilities: Vec<String> = capabilities
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    sections.push(section("Capabilities", capabilities));
    let text = |key: &str| shown[key].as_str().unwrap_or_default();
    let parameters: Vec<(String, String)> = text("parameters")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    sections.push(section("Parameters", pairs(&parameters)));
    sections.push(section("System", first_lines(text("system"))));
    sections.push(section("License", first_lines(text("license"))));
    if verbose {
        let info = shown["model_info"].as_object().into_iter().flatten();
        let info: Vec<(String, String)> = info
            .map(|(key, value)| (key.clone(), brief(value)))
            .collect();
        sections.push(section("Metadata", pairs(&info)));
        let tensors = shown["tensors"].as_array().into_iter().flatten();
        let tensors: Vec<(String, String)> = tensors
            .map(|tensor| {
                let name = tensor["name"].as_str().unwrap_or_default().to_owned();
                (
                    name,
                    format!(
                        "{} {}",
                        tensor["type"].as_str().unwrap_or_default(),
                        tensor["shape"]
                    ),
                )
            })
            .collect();
        sections.push(section("Tensors", pairs(&tensors)));
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n\n")
}

/// Writes a value in one line of bounded length: the first elements of a list and how many there
/// are, the beginning of a text. `--json` has all of it.
fn brief(value: &Value) -> String {
    const ELEMENTS: usize = 3;
    const CHARS: usize = 100;
    match value {
        Value::Array(elements) if elements.len() > ELEMENTS => {
            let first: Vec<String> = elements.iter().take(ELEMENTS).map(brief).collect();
            let n = elements.len();
            format!("[{}, ... {n} values]", first.join(", "))
        }
        Value::String(text) if text.chars().nth(CHARS).is_some() => {
            let start: String = text.chars().take(CHARS).collect();
            format!("{}... {} characters", json!(start), text.chars().count())
        }
        value => value.to_string(),
    }
}

/// Returns the rows of the section `Model`.
fn facts(shown: &Value) -> Vec<(String, String)> {
    let details = &shown["details"];
    let info = &shown["model_info"];
    let architecture = info["general.architecture"]
        .as_str()
        .or(details["family"].as_str())
        .unwrap_or_default();
    let number = |key: &str| {
        info[format!("{architecture}.{key}")]
            .as_u64()
            .map(|number| number.to_string())
    };
    let text = |key: &str| details[key].as_str().map(str::to_owned);
    [
        ("architecture", Some(architecture.to_owned())),
        ("parameters", text("parameter_size")),
        ("context length", number("context_length")),
        ("embedding length", number("embedding_length")),
        ("quantization", text("quantization_level")),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value.filter(|value| !value.is_empty())?)))
    .collect()
}

fn section(title: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("\n    {line}")).collect();
    format!("  {STRONG}{title}{STRONG:#}{}", lines.concat())
}

/// Lays out names and values in two columns.
fn pairs(pairs: &[(String, String)]) -> Vec<String> {
    let width = pairs
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or_default();
    pairs
        .iter()
        .map(|(name, value)| format!("{name:<width$}    {value}"))
        .collect()
}

/// Returns the beginning of a long text.
fn first_lines(text: &str) -> Vec<String> {
    const MOST: usize = 3;
    let mut lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty());
    let mut first: Vec<String> = lines.by_ref().take(MOST).map(str::to_owned).collect();
    if lines.next().is_some() {
        first.push("...".to_owned());
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_has_the_sections_people_know() {
        let shown = json!({
            "license": "MIT\n\nfour\nlines\nin all\n",
            "parameters": "stop                           \"<|im_end|>\"\ntemperature                    0.2",
            "details": {"family": "llama", "parameter_size": "4.98M", "quantization_level": "Q8_0"},
            "model_info": {
                "general.architecture": "llama",
                "llama.context_length": 1024,
                "tokenizer.ggml.tokens": vec!["x".repeat(1000); 1000],
            },
            "capabilities": ["completion", "insert"],
            "tensors": [{"name": "a", "type": "F32", "shape": [1, 2]}],
        });
        let expected = "  Model\n    architecture      llama\n    parameters        4.98M\n    context length    1024\n    \
            quantization      Q8_0\n\n  Capabilities\n    completion\n    insert\n\n  Parameters\n    \
            stop           \"<|im_end|>\"\n    temperature    0.2\n\n  License\n    MIT\n    four\n    lines\n    ...";
        let plain = |verbose| anstream::adapter::strip_str(&overview(&shown, verbose)).to_string();
        assert_eq!(plain(false), expected);
        assert!(
            plain(true).contains("Tensors\n    a    F32 [1,2]"),
            "{}",
            plain(true)
        );
        let tokens = plain(true)
            .lines()
            .find(|line| line.contains("tokens"))
            .unwrap()
            .to_owned();
        assert!(
            tokens.ends_with(", ... 1000 values]") && tokens.len() < 500,
            "{tokens}"
        );
        assert_eq!(overview(&json!({}), true), "");
    }
}
