//! What an answer must match: `format`, `response_format` and `text.format` in all their forms.

mod gbnf;

use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Reads a format: `"json"`, a JSON Schema, the objects of the OpenAI API, or our extensions. None of
/// the `type`s that stand for something else is a type of JSON Schema, so nothing has two meanings.
pub(crate) fn grammar_of(format: &Value) -> Result<Option<GrammarSpec>, ApiError> {
    let fields = match format {
        Value::Null => return Ok(None),
        Value::String(text) if text.is_empty() => return Ok(None),
        Value::String(text) if text == "json" => return Ok(Some(GrammarSpec::Json)),
        Value::Object(fields) => fields,
        _ => return Err(ApiError::invalid_format(format)),
    };
    let kind = fields.get("type").and_then(Value::as_str);
    Ok(Some(match kind {
        Some("text") => return Ok(None),
        Some("json_object") => GrammarSpec::Json,
        Some("json_schema") => {
            let inner = fields.get("json_schema").unwrap_or(format);
            let schema = inner.get("schema").cloned();
            GrammarSpec::JsonSchema(schema.ok_or_else(|| {
                ApiError::bad_request("invalid format: json_schema needs a schema")
            })?)
        }
        Some("regex") => GrammarSpec::Regex(text(fields, "regex", "pattern")?),
        Some("lark") => GrammarSpec::Lark(text(fields, "lark", "grammar")?),
        Some("gbnf") => {
            let grammar = text(fields, "gbnf", "grammar")?;
            let lark = gbnf::to_lark(&grammar)
                .map_err(|error| ApiError::bad_request(format!("invalid format: {error}")))?;
            GrammarSpec::Lark(lark)
        }
        _ => GrammarSpec::JsonSchema(format.clone()),
    }))
}

fn text(fields: &Map<String, Value>, kind: &str, name: &str) -> Result<String, ApiError> {
    let text = fields.get(name).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| {
        ApiError::bad_request(format!("invalid format: {kind} needs the text {name:?}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_of_all_dialects() {
        let schema = json!({"type": "object", "properties": {"type": {"const": "regex"}}});
        let is_schema = Some(GrammarSpec::JsonSchema(schema.clone()));
        let cases = [
            (json!(null), None),
            (json!(""), None),
            (json!("json"), Some(GrammarSpec::Json)),
            (schema.clone(), is_schema.clone()),
            (json!({}), Some(GrammarSpec::JsonSchema(json!({})))),
            (json!({"type": "text"}), None),
            (json!({"type": "json_object"}), Some(GrammarSpec::Json)),
            (
                json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}),
                is_schema.clone(),
            ),
            (
                json!({"type": "json_schema", "name": "n", "schema": schema}),
                is_schema,
            ),
            (
                json!({"type": "regex", "pattern": "a+"}),
                Some(GrammarSpec::Regex("a+".into())),
            ),
            (
                json!({"type": "lark", "grammar": "start: \"a\""}),
                Some(GrammarSpec::Lark("start: \"a\"".into())),
            ),
        ];
        for (format, grammar) in cases {
            assert_eq!(grammar_of(&format).unwrap(), grammar, "{format}");
        }
        let gbnf = grammar_of(&json!({"type": "gbnf", "grammar": "root ::= \"a\""})).unwrap();
        assert!(matches!(gbnf, Some(GrammarSpec::Lark(_))));
        for (format, words) in [
            (json!("xml"), "expected \"json\""),
            (json!(3), "expected \"json\""),
            (json!([]), "expected \"json\""),
            (json!({"type": "json_schema"}), "needs a schema"),
            (json!({"type": "regex"}), "needs the text \"pattern\""),
            (
                json!({"type": "lark", "grammar": 3}),
                "needs the text \"grammar\"",
            ),
            (json!({"type": "gbnf", "grammar": "x ::= "}), "root"),
        ] {
            let error = grammar_of(&format).unwrap_err();
            assert_eq!(error.status(), 400, "{format}");
            assert!(error.to_string().contains(words), "{format}: {error}");
        }
    }
}
