//! What commands want to know of a model before they use it.

use llmsrv_api::client::{self, Client};
use llmsrv_config::nearest;
use serde_json::{Value, json};

use crate::embedded;

/// A model that the server has.
pub struct Known {
    /// Its own name, also where it was called `default`.
    name: String,
    is_default: bool,
    /// It can be given images.
    pub sees: bool,
    /// It can call tools.
    pub calls_tools: bool,
    has_template: bool,
    /// It makes vectors, and no text.
    pub embeds_only: bool,
}

impl Known {
    /// Asks what a name means.
    pub async fn ask(client: &Client, model: &str) -> Result<Known, client::Error> {
        let shown: Value = client.post("/api/show", &json!({ "model": model })).await?;
        let can = |what: &str| {
            let mut can = shown["capabilities"].as_array().into_iter().flatten();
            can.any(|it| it == what)
        };
        let meant = shown["details"]["parent_model"].as_str();
        let meant = meant.filter(|meant| !meant.is_empty() && is_default(model));
        // A model that brings no template of its own gets this one.
        let template = shown["template"].as_str().unwrap_or_default();
        let template: String = template.split_whitespace().collect();
        Ok(Known {
            name: short(meant.unwrap_or(model)).to_owned(),
            is_default: is_default(model),
            sees: can("vision"),
            calls_tools: can("tools"),
            has_template: !matches!(template.as_str(), "" | "{{.Prompt}}"),
            embeds_only: can("embedding") && !can("completion"),
        })
    }

    /// Returns the name for people: which model it is, and how it was called.
    pub fn shown(&self) -> String {
        if self.is_default && self.name != "default" {
            format!("{} (default)", self.name)
        } else {
            self.name.clone()
        }
    }

    /// Returns the name of the model itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what one should know before one talks to it.
    pub fn remark(&self) -> Option<String> {
        let built_in = embedded::name().ok().flatten();
        if built_in.is_some_and(|built_in| short(&built_in.to_string()) == self.name) {
            return Some(
                "This is the built-in demonstration model: short code, common errors, little else. \
                 `llmsrv run qwen3:0.6b` pulls a real one, `llmsrv default MODEL` keeps it."
                    .to_owned(),
            );
        }
        if self.embeds_only {
            return Some(format!("{} makes vectors, and no text.", self.name));
        }
        (!self.has_template).then(|| {
            format!(
                "{} has no chat template: it continues texts, and may not answer questions.",
                self.name
            )
        })
    }
}

/// Returns the names of all models, `default` apart.
pub async fn names(client: &Client) -> Result<Vec<String>, client::Error> {
    let listed: Value = client.get("/api/tags").await?;
    let models = listed["models"].as_array().into_iter().flatten();
    let names = models.filter_map(|model| model["name"].as_str());
    Ok(names
        .map(|name| short(name).to_owned())
        .filter(|name| name != "default")
        .collect())
}

/// Leaves the models of a list whose names begin with a text, in any letter case.
pub fn keep_named(listed: &mut Value, prefix: &str) {
    let prefix = prefix.to_lowercase();
    if let Some(models) = listed["models"].as_array_mut() {
        models.retain(|model| {
            let name = model["name"].as_str().unwrap_or_default();
            name.to_lowercase().starts_with(&prefix)
        });
    }
}

/// Returns the model that was probably meant. Names that differ in numbers or tags alone are those
/// of another version or size.
pub fn meant<'a>(typed: &str, names: &'a [String]) -> Option<&'a str> {
    let letters = |name: &str| -> String {
        let name = name.split(':').next().unwrap_or_default();
        name.chars().filter(|c| c.is_alphabetic()).collect()
    };
    let bases = names.iter().map(String::as_str);
    let bases: Vec<&str> = bases
        .map(|name| name.split(':').next().unwrap_or(name))
        .collect();
    let base = typed.split(':').next().unwrap_or(typed);
    let near = nearest(base, bases.iter().copied())?;
    let name = names
        .iter()
        .find(|name| name.split(':').next() == Some(near));
    (letters(near) != letters(base)).then_some(name?.as_str())
}

/// Tells whether a name is the one that stands for another.
pub fn is_default(model: &str) -> bool {
    short(model).eq_ignore_ascii_case("default")
}

/// Returns a name without the tag that is meant where there is none.
pub fn short(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_told_from_other_versions() {
        let names = ["llmsrv-tiny-code", "llama3", "qwen3:0.6b"].map(str::to_owned);
        for (typed, expected) in [
            ("llmsrv-tiny-cod", Some("llmsrv-tiny-code")),
            ("lama3", Some("llama3")),
            ("qwne3:0.6b", Some("qwen3:0.6b")),
            ("llama3.1", None),
            ("qwen3:1.7b", None),
            ("qwen2", None),
            ("mistral", None),
        ] {
            assert_eq!(meant(typed, &names), expected, "{typed}");
        }
    }
}
