//! What is a call: JSON objects and tagged parameters that name a known tool.

use llmsrv_api::native::Tool;
use serde_json::{Map, Value};

use super::{python, typed::typed};

/// A call as the model wrote it.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

/// The calls in a JSON object. `lead` is the text before it, which may name the tool:
/// `get_weather[ARGS]{"city": "Paris"}`.
pub(super) fn parse(lead: &str, json: &str, tools: &[Tool]) -> Vec<Call> {
    let Some(object) = object(json) else {
        return Vec::new();
    };
    let mut calls = Vec::new();
    collect(&object, tools, &mut calls);
    if calls.is_empty()
        && !object.contains_key("name")
        && let Some(name) = named_in(lead, tools)
    {
        let arguments = arguments(&object).unwrap_or(object);
        calls.push(Call { name, arguments });
    }
    calls
}

/// A JSON object, its strings as models write them.
pub(super) fn object(json: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(json)
        .or_else(|_| serde_json::from_str(&escape_controls(json)))
        .ok()
}

/// The call that an object is and nothing else: the name of a tool and its arguments, maybe wrapped as
/// `{"type": "function", "function": …}`.
pub(super) fn exact(mut object: Map<String, Value>, tools: &[Tool]) -> Option<Call> {
    let may_be = |object: &Map<String, Value>, keys: &[&str]| {
        object.keys().all(|key| keys.contains(&key.as_str()))
    };
    if let Some(Value::Object(_)) = object.get("function") {
        if !may_be(&object, &["type", "id", "function"]) {
            return None;
        }
        let Some(Value::Object(inner)) = object.remove("function") else {
            return None;
        };
        object = inner;
    }
    let tool = known(object.get("name")?.as_str()?, tools)?;
    if !may_be(&object, &["type", "id", "name", "arguments", "parameters"]) {
        return None;
    }
    let takes_none = || {
        let properties = tool.function.parameters.get("properties");
        let listed = properties.and_then(Value::as_object);
        listed.is_none_or(Map::is_empty)
    };
    let arguments = match arguments(&object) {
        Some(arguments) => arguments,
        None if object.len() == 1 && takes_none() => Map::new(),
        None => return None,
    };
    Some(Call {
        name: tool.function.name.clone(),
        arguments,
    })
}

/// The calls in `[name(key=value), …]`; none if one of them names no known tool.
pub(super) fn parse_python(text: &str, tools: &[Tool]) -> Vec<Call> {
    let calls = python::parse(text).unwrap_or_default();
    let calls = calls.into_iter().map(|(name, arguments)| {
        let name = known(&name, tools)?.function.name.clone();
        Some(Call { name, arguments })
    });
    calls.collect::<Option<_>>().unwrap_or_default()
}

/// The call in `<function=name> <parameter=key> value </parameter> … </function>`. What
/// a value is, the tool's schema says ([`typed`]).
pub(super) fn parse_tagged(text: &str, tools: &[Tool]) -> Vec<Call> {
    let Some((_, function)) = text.split_once("<function=") else {
        return Vec::new();
    };
    let (name, mut rest) = function.split_once('>').unwrap_or((function, ""));
    let Some(tool) = known(name.trim(), tools) else {
        return Vec::new();
    };
    let mut arguments = Map::new();
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let (key, after) = parameter.split_once('>').unwrap_or((parameter, ""));
        let (value, after) = after.split_once("</parameter>").unwrap_or((after, ""));
        let key = key.trim();
        arguments.insert(key.to_owned(), typed(tool, key, value));
        rest = after;
    }
    vec![Call {
        name: tool.function.name.clone(),
        arguments,
    }]
}

/// The call in `name <arg_key>key</arg_key> <arg_value>value</arg_value> …`, values as in [`parse_tagged`].
/// `text` begins behind the tag.
pub(super) fn parse_pairs(text: &str, tools: &[Tool]) -> Vec<Call> {
    let end = text.find('<').unwrap_or(text.len());
    let Some(tool) = known(text[..end].trim(), tools) else {
        return Vec::new();
    };
    let mut arguments = Map::new();
    let mut rest = &text[end..];
    while let Some((_, after)) = rest.split_once("<arg_key>") {
        let (key, after) = after.split_once("</arg_key>").unwrap_or((after, ""));
        let (_, after) = after.split_once("<arg_value>").unwrap_or(("", ""));
        let (value, after) = after.split_once("</arg_value>").unwrap_or((after, ""));
        let key = key.trim();
        arguments.insert(key.to_owned(), typed(tool, key, value));
        rest = after;
    }
    vec![Call {
        name: tool.function.name.clone(),
        arguments,
    }]
}

/// Whether an object whose first key is `key` (with its quotes) may be a call.
pub(super) fn may_be_first_key(key: &str, tools: &[Tool]) -> bool {
    let key = key.trim_matches('"');
    NAME_KEYS.contains(&key)
        || ARGUMENT_KEYS.contains(&key)
        || ["type", "id", "tool_calls", "tool_call", "function_call"].contains(&key)
        || known(key, tools).is_some()
}

/// Adds the calls of an object and of the objects in it.
fn collect(object: &Map<String, Value>, tools: &[Tool], calls: &mut Vec<Call>) {
    let name = NAME_KEYS.iter().find_map(|&key| object.get(key)?.as_str());
    if let Some(name) = name {
        if let Some(tool) = known(name, tools) {
            calls.push(Call {
                name: tool.function.name.clone(),
                arguments: arguments(object).unwrap_or_default(),
            });
        }
        return;
    }
    for (key, value) in object {
        match (known(key, tools), value) {
            (Some(tool), Value::Object(arguments)) => calls.push(Call {
                name: tool.function.name.clone(),
                arguments: arguments.clone(),
            }),
            (_, Value::Object(inner)) => collect(inner, tools, calls),
            (_, Value::Array(items)) => {
                items
                    .iter()
                    .filter_map(Value::as_object)
                    .for_each(|o| collect(o, tools, calls));
            }
            _ => {}
        }
    }
}

/// The arguments in an object: an object, or a text that holds one.
fn arguments(object: &Map<String, Value>) -> Option<Map<String, Value>> {
    ARGUMENT_KEYS
        .iter()
        .find_map(|&key| match object.get(key)? {
            Value::Object(arguments) => Some(arguments.clone()),
            Value::String(text) => serde_json::from_str(text).ok(),
            _ => None,
        })
}

/// The known tool that a text names as a whole word, the last one if there are more.
fn named_in(text: &str, tools: &[Tool]) -> Option<String> {
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let tool = text
        .split(|c| !is_word(c))
        .rev()
        .find_map(|word| known(word, tools))?;
    Some(tool.function.name.clone())
}

/// The tool of this name; some models put `functions.` before it.
pub(super) fn known<'a>(name: &str, tools: &'a [Tool]) -> Option<&'a Tool> {
    let find = |name: &str| tools.iter().find(|tool| tool.function.name == name);
    find(name).or_else(|| find(name.strip_prefix("functions.")?))
}

/// Whether a tool's name may begin so.
pub(super) fn may_be_named(begin: &str, tools: &[Tool]) -> bool {
    let names = |begin: &str| {
        let mut names = tools.iter().map(|tool| &tool.function.name);
        names.any(|name| name.starts_with(begin))
    };
    names(begin)
        || "functions.".starts_with(begin)
        || begin.strip_prefix("functions.").is_some_and(names)
}

/// Escapes line breaks and other control characters inside strings: models forget to.
fn escape_controls(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        match c {
            '"' if !escaped => in_string = !in_string,
            c if in_string && c < ' ' => {
                out.push_str(Value::from(c.to_string()).to_string().trim_matches('"'));
                escaped = false;
                continue;
            }
            _ => {}
        }
        escaped = in_string && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

const NAME_KEYS: [&str; 5] = ["name", "tool_name", "function", "tool", "action"];
const ARGUMENT_KEYS: [&str; 5] = [
    "arguments",
    "parameters",
    "args",
    "action_input",
    "tool_input",
];
