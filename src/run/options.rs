//! Options and formats as they are typed.

use llmsrv_api::options::{self, TypedValue};
use llmsrv_config::nearest;
use serde_json::{Map, Value};

/// Sets an option to a value of its type; several values are a list. Returns a warning where the
/// option has no effect any more.
pub fn set(
    options: &mut Map<String, Value>,
    name: &str,
    values: &[String],
) -> Result<Option<String>, String> {
    if name.is_empty() {
        return Err("an option has no name".to_owned());
    }
    let mut elements = Vec::new();
    for text in values {
        match options::value_from_text(name, text).map_err(|error| reason(name, error))? {
            TypedValue::Legacy => return Ok(Some(format!("option {name} has no effect any more"))),
            TypedValue::One(_) if values.len() > 1 => {
                return Err(format!("option {name} takes one value"));
            }
            TypedValue::One(value) => {
                options.insert(name.to_owned(), value);
                return Ok(None);
            }
            TypedValue::Element(value) => elements.push(value),
        }
    }
    options.insert(name.to_owned(), Value::Array(elements));
    Ok(None)
}

/// Says what is wrong, and what was probably meant.
fn reason(name: &str, error: String) -> String {
    if options::names().any(|known| known == name) {
        return error;
    }
    if let Some(near) = nearest(name, options::names()) {
        return format!("there is no option {name}; did you mean {near}?");
    }
    let names: Vec<&str> = options::names()
        .filter(|name| !options::is_legacy(name))
        .collect();
    format!("there is no option {name}; there are {}", names.join(", "))
}

/// Reads the form of an answer: `json`, a JSON Schema, or `@FILE` with one.
pub fn format(text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text == "json" {
        return Ok(Value::String("json".to_owned()));
    }
    let content = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the schema {path}: {error}"))?,
        None => text.to_owned(),
    };
    match serde_json::from_str(&content) {
        Ok(schema @ Value::Object(_)) => Ok(schema),
        _ => Err(format!(
            "the format must be `json`, a JSON Schema or @FILE, not `{text}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_have_a_name_and_a_value_of_their_type() {
        let mut options = Map::new();
        let mut set = |name: &str, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            super::set(&mut options, name, &values)
        };
        for (name, values) in [
            ("temperature", &["0.5"][..]),
            ("seed", &["42"]),
            ("use_mmap", &["false"]),
            ("stop", &["1", "b"]),
        ] {
            assert_eq!(set(name, values), Ok(None), "{name}");
        }
        for (name, values, says) in [
            ("temprature", &["2"][..], "did you mean temperature?"),
            ("num_predict", &["many"], "num_predict"),
            ("temperature", &["1", "2"], "one value"),
            ("wholly_unknown_name", &["1"], "num_ctx"),
            ("", &["1"], "no name"),
        ] {
            let said = set(name, values).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
        assert!(set("mirostat", &["1"]).unwrap().is_some());
        assert_eq!(
            Value::Object(options),
            json!({"temperature": 0.5, "seed": 42, "use_mmap": false, "stop": ["1", "b"]})
        );
    }

    #[test]
    fn formats_are_json_or_a_schema() {
        assert_eq!(format("json"), Ok(json!("json")));
        assert_eq!(
            format("{\"type\":\"object\"}"),
            Ok(json!({"type": "object"}))
        );
        for text in ["xml", "[1]", "@/nowhere/at/all.json", ""] {
            assert!(format(text).is_err(), "{text}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"type\":\"array\"}").unwrap();
        assert_eq!(
            format(&format!("@{}", file.path().display())),
            Ok(json!({"type": "array"}))
        );
    }
}
