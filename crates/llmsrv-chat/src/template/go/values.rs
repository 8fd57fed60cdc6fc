//! The data of a Go template.
//!
//! gotmpl's maps sort their keys, and a template sees `.Function.Name` where JSON says
//! `function.name`. So each map gets a layout: which JSON keys it prints, in which order, and under
//! which name each value lies in the map. Layouts are found by the map's address, which stays the same
//! while the data lives.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gotmpl::Value;
use llmsrv_api::native::{Message, Tool, ToolCall};
use serde_json::{Map, Value as Json};

/// Builds data and remembers how its maps print.
#[derive(Debug, Default)]
pub(super) struct Values {
    layouts: HashMap<usize, Vec<Entry>>,
}

/// A printed member of a map.
#[derive(Debug)]
struct Entry {
    json_key: Arc<str>,
    field: Arc<str>,
}

impl Values {
    /// `.Messages`.
    pub(super) fn messages(&mut self, messages: &[Message]) -> Value {
        list(messages.iter().map(|message| {
            let calls = list(message.tool_calls.iter().map(|call| self.tool_call(call)));
            let images = list(message.images.iter().map(|image| text(image)));
            let mut fields = Fields::default();
            fields.add("role", "Role", text(&message.role));
            fields.add("content", "Content", text(&message.content));
            fields.add_unless_empty("thinking", "Thinking", text(&message.thinking));
            fields.add_unless_empty("images", "Images", images);
            fields.add_unless_empty("tool_calls", "ToolCalls", calls);
            fields.add_unless_empty("tool_name", "ToolName", text(&message.tool_name));
            fields.add_unless_empty("tool_call_id", "ToolCallID", text(&message.tool_call_id));
            self.map(fields)
        }))
    }

    /// `.Tools`.
    pub(super) fn tools(&mut self, tools: &[Tool]) -> Value {
        list(tools.iter().map(|tool| {
            let kind = match tool.kind.as_str() {
                "" => "function",
                kind => kind,
            };
            let parameters = self.parameters(&tool.function.parameters);
            let mut function = Fields::default();
            function.add("name", "Name", text(&tool.function.name));
            function.add(
                "description",
                "Description",
                text(&tool.function.description),
            );
            function.add("parameters", "Parameters", parameters);
            let function = self.map(function);
            let mut fields = Fields::default();
            fields.add("type", "Type", text(kind));
            fields.add("function", "Function", function);
            self.map(fields)
        }))
    }

    /// Writes a value as JSON, without escapes that JSON does not ask for.
    pub(super) fn write_json(&self, value: &Value, out: &mut String) {
        match value {
            Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Value::Int(n) => out.push_str(&n.to_string()),
            Value::Uint(n) => out.push_str(&n.to_string()),
            Value::Float(n) if n.is_finite() => out.push_str(&n.to_string()),
            Value::Nil | Value::Function(_) | Value::Float(_) => out.push_str("null"),
            Value::String(s) => write_json_string(s, out),
            Value::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    self.write_json(item, out);
                }
                out.push(']');
            }
            Value::Map(map) => {
                let layout = self.layouts.get(&address(map));
                let laid_out = layout.into_iter().flatten().filter_map(|entry| {
                    map.get(&entry.field).map(|value| (&entry.json_key, value))
                });
                let sorted = map.iter().filter(|_| layout.is_none());
                out.push('{');
                for (i, (key, value)) in laid_out.chain(sorted).enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_json_string(key, out);
                    out.push(':');
                    self.write_json(value, out);
                }
                out.push('}');
            }
        }
    }

    fn tool_call(&mut self, call: &ToolCall) -> Value {
        let arguments = self.object(&call.function.arguments);
        let mut function = Fields::default();
        function.add("name", "Name", text(&call.function.name));
        function.add("arguments", "Arguments", arguments);
        function.hide("Index", Value::Int(call.function.index as i64));
        let function = self.map(function);
        let mut fields = Fields::default();
        fields.add_unless_empty("id", "ID", text(&call.id));
        fields.add("function", "Function", function);
        self.map(fields)
    }

    /// The schema of a tool's arguments: the members that templates name come first, in the order
    /// models of this dialect were shown.
    fn parameters(&mut self, schema: &Json) -> Value {
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        let kind = schema
            .get("type")
            .cloned()
            .unwrap_or_else(|| "object".into());
        let properties = self.properties(schema.get("properties"));
        let mut fields = Fields::default();
        fields.add("type", "Type", self.json(&kind));
        for (json_key, field) in [("$defs", "Defs"), ("items", "Items")] {
            if let Some(value) = schema.get(json_key) {
                fields.add(json_key, field, self.json(value));
            }
        }
        self.add_list(&mut fields, schema, "required", "Required");
        fields.add("properties", "Properties", properties);
        self.add_rest(&mut fields, schema);
        self.map(fields)
    }

    fn properties(&mut self, properties: Option<&Json>) -> Value {
        let mut fields = Fields::default();
        for (name, schema) in properties.and_then(Json::as_object).into_iter().flatten() {
            let property = self.property(schema);
            fields.add(name, name, property);
        }
        self.map(fields)
    }

    fn property(&mut self, schema: &Json) -> Value {
        let Some(schema) = schema.as_object() else {
            return self.json(schema);
        };
        let mut fields = Fields::default();
        if let Some(Json::Array(any_of)) = schema.get("anyOf") {
            let any_of = list(any_of.iter().map(|schema| self.property(schema)));
            fields.add("anyOf", "AnyOf", any_of);
        }
        for (json_key, field) in [
            ("type", "Type"),
            ("items", "Items"),
            ("description", "Description"),
        ] {
            if let Some(value) = schema.get(json_key) {
                fields.add(json_key, field, self.json(value));
            }
        }
        self.add_list(&mut fields, schema, "enum", "Enum");
        if schema.contains_key("properties") {
            let properties = self.properties(schema.get("properties"));
            fields.add("properties", "Properties", properties);
        }
        self.add_list(&mut fields, schema, "required", "Required");
        self.add_rest(&mut fields, schema);
        fields.hide(TYPE_SCRIPT, text(&type_script(schema)));
        self.map(fields)
    }

    /// A list that templates may measure even when the schema has none.
    fn add_list(
        &mut self,
        fields: &mut Fields,
        schema: &Map<String, Json>,
        key: &str,
        field: &str,
    ) {
        match schema.get(key) {
            Some(value) if !value.is_null() => fields.add(key, field, self.json(value)),
            _ => fields.hide(field, list(std::iter::empty())),
        }
    }

    /// Members of a schema that templates have no name for.
    fn add_rest(&mut self, fields: &mut Fields, schema: &Map<String, Json>) {
        for (key, value) in schema {
            if !fields.layout.iter().any(|entry| *entry.json_key == **key) {
                fields.add(key, key, self.json(value));
            }
        }
    }

    fn json(&mut self, value: &Json) -> Value {
        match value {
            Json::Null => Value::Nil,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => Value::Int(n),
                (None, Some(n)) => Value::Uint(n),
                (None, None) => Value::Float(n.as_f64().unwrap_or_default()),
            },
            Json::String(s) => text(s),
            Json::Array(items) => list(items.iter().map(|item| self.json(item))),
            Json::Object(members) => self.object(members),
        }
    }

    fn object(&mut self, members: &Map<String, Json>) -> Value {
        let mut fields = Fields::default();
        for (key, value) in members {
            fields.add(key, key, self.json(value));
        }
        self.map(fields)
    }

    fn map(&mut self, fields: Fields) -> Value {
        let map = Arc::new(fields.values);
        self.layouts.insert(address(&map), fields.layout);
        Value::Map(map)
    }
}

/// A map while it is built.
#[derive(Default)]
struct Fields {
    values: BTreeMap<Arc<str>, Value>,
    layout: Vec<Entry>,
}

impl Fields {
    fn add(&mut self, json_key: &str, field: &str, value: Value) {
        self.layout.push(Entry {
            json_key: json_key.into(),
            field: field.into(),
        });
        self.values.insert(field.into(), value);
    }

    /// Readable, but not printed when empty.
    fn add_unless_empty(&mut self, json_key: &str, field: &str, value: Value) {
        if value.is_truthy() {
            self.add(json_key, field, value);
        } else {
            self.hide(field, value);
        }
    }

    /// Readable, never printed.
    fn hide(&mut self, field: &str, value: Value) {
        self.values.insert(field.into(), value);
    }
}

/// A text value.
pub(super) fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn list(items: impl Iterator<Item = Value>) -> Value {
    Value::List(items.collect())
}

fn address(map: &Arc<BTreeMap<Arc<str>, Value>>) -> usize {
    Arc::as_ptr(map).addr()
}

fn write_json_string(text: &str, out: &mut String) {
    out.push_str(&Json::from(text).to_string());
}

/// The TypeScript type of a JSON Schema.
fn type_script(schema: &Map<String, Json>) -> String {
    let alternatives: Vec<String> = match (schema.get("anyOf"), schema.get("type")) {
        (Some(Json::Array(any_of)), _) if !any_of.is_empty() => any_of
            .iter()
            .map(|schema| {
                schema
                    .as_object()
                    .map_or_else(|| "any".to_owned(), type_script)
            })
            .collect(),
        (_, Some(Json::String(name))) => vec![type_script_name(name).to_owned()],
        (_, Some(Json::Array(names))) if !names.is_empty() => names
            .iter()
            .map(|name| type_script_name(name.as_str().unwrap_or_default()).to_owned())
            .collect(),
        _ => vec!["any".to_owned()],
    };
    alternatives.join(" | ")
}

fn type_script_name(json_type: &str) -> &'static str {
    match json_type {
        "string" => "string",
        "number" | "integer" => "number",
        "boolean" => "boolean",
        "array" => "any[]",
        "object" => "Record<string, any>",
        "null" => "null",
        _ => "any",
    }
}

/// Field of a schema that holds its TypeScript type.
pub(super) const TYPE_SCRIPT: &str = "ToTypeScriptType";
