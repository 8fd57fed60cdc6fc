//! Values that a model writes as bare text: what kind of value one is, the tool's schema says.
//!
//! `12345` is text where the schema says `{"anyOf": [{"type": "string"}, {"type": "null"}]}`, and a number
//! where it says `{"type": ["string", "integer"]}`: text is what nothing else is.

use llmsrv_api::native::Tool;
use serde_json::Value;

/// The kinds of values that JSON schemas know.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    Array,
    Object,
    String,
}

/// The value of the argument `key`, without one line break on either side.
pub(super) fn typed(tool: &Tool, key: &str, value: &str) -> Value {
    let value = value.strip_prefix('\n').unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    // Then even quotes are a part of it.
    if is_text(tool, key) {
        return value.into();
    }
    let parameters = &tool.function.parameters;
    let schema = &parameters["properties"][key];
    let json: Option<Value> = serde_json::from_str(value.trim()).ok();
    let mut n_left = MAX_SCHEMAS;
    let Some(kinds) = kinds(schema, parameters, &mut n_left) else {
        return json.unwrap_or_else(|| value.into());
    };
    // Some models write the words of Python.
    let boolean = [("true", true), ("false", false)]
        .into_iter()
        .find(|(word, _)| value.trim().eq_ignore_ascii_case(word))
        .map(|(_, is)| Value::from(is))
        .filter(|_| kinds.contains(&Kind::Boolean));
    let is_text = kinds.contains(&Kind::String);
    boolean
        // What is no text in any case stays what the model wrote, for the tool to judge.
        .or_else(|| json.filter(|json| !is_text || allows(&kinds, json)))
        .unwrap_or_else(|| value.into())
}

/// Whether an argument is text and nothing else.
pub(super) fn is_text(tool: &Tool, key: &str) -> bool {
    tool.function.parameters["properties"][key]["type"] == "string"
}

/// Whether a value is of one of these kinds.
fn allows(kinds: &[Kind], value: &Value) -> bool {
    let kind = kind_of(value);
    kinds.contains(&kind) || (kind == Kind::Integer && kinds.contains(&Kind::Number))
}

/// The kinds of values that a schema allows; `None` where it does not say. References are looked up in `root`;
/// `n_left` is how many schemas may be looked at.
fn kinds(schema: &Value, root: &Value, n_left: &mut usize) -> Option<Vec<Kind>> {
    *n_left = n_left.checked_sub(1)?;
    match &schema["type"] {
        Value::String(name) => return Some(vec![kind_named(name)?]),
        Value::Array(names) => {
            let names = names.iter().map(|name| kind_named(name.as_str()?));
            return names.collect();
        }
        _ => {}
    }
    if let Some(value) = schema.get("const") {
        return Some(vec![kind_of(value)]);
    }
    if let Some(values) = schema["enum"].as_array() {
        return Some(values.iter().map(kind_of).collect());
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let definition = root.pointer(reference.strip_prefix('#')?)?;
        return kinds(definition, root, n_left);
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(options) = schema[keyword].as_array() {
            let options = options.iter().map(|option| kinds(option, root, n_left));
            let options: Option<Vec<_>> = options.collect();
            return Some(options?.concat());
        }
    }
    let parts = schema["allOf"].as_array()?;
    parts.iter().find_map(|part| kinds(part, root, n_left))
}

fn kind_named(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "array" => Kind::Array,
        "object" => Kind::Object,
        "string" => Kind::String,
        _ => return None,
    })
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Boolean,
        // JSON schemas count 1.0 as an integer.
        Value::Number(number) if number.as_f64().is_some_and(|it| it.fract() == 0.0) => {
            Kind::Integer
        }
        Value::Number(_) => Kind::Number,
        Value::Array(_) => Kind::Array,
        Value::Object(_) => Kind::Object,
        Value::String(_) => Kind::String,
    }
}

/// Schemas are foreign: references may go in circles, and options multiply.
const MAX_SCHEMAS: usize = 256;
