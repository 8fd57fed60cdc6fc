//! Options and formats as they are typed.

use serde_json::{Map, Value};

/// Sets an option. Numbers and truth values become JSON values, several values a list; `stop` is
/// always a list of texts.
pub fn set(options: &mut Map<String, Value>, name: &str, values: &[String]) -> Result<(), String> {
    if name.is_empty() {
        return Err("an option has no name".to_owned());
    }
    let value = match (name, values) {
        ("stop", values) => Value::Array(values.iter().cloned().map(Value::String).collect()),
        (_, [value]) => scalar(value.trim()),
        (_, values) => Value::Array(values.iter().map(|value| scalar(value.trim())).collect()),
    };
    options.insert(name.to_owned(), value);
    Ok(())
}

fn scalar(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => value,
        _ => Value::String(text.to_owned()),
    }
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
    fn values_get_the_type_they_look_like() {
        let mut options = Map::new();
        for (name, values) in [
            ("temperature", &["0.5"][..]),
            ("seed", &["42"]),
            ("use_mmap", &["false"]),
            ("stop", &["1", "b"]),
            ("x", &["y"]),
        ] {
            let values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
            set(&mut options, name, &values).unwrap();
        }
        assert_eq!(
            Value::Object(options),
            json!({"temperature": 0.5, "seed": 42, "use_mmap": false, "stop": ["1", "b"], "x": "y"})
        );
        assert!(set(&mut Map::new(), "", &["1".into()]).is_err());
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
