//! How models write tool calls: a grammar for each format, so that a call can be forced.
//!
//! The formats are rows of one table; the first row whose marks are all in a template's text is the
//! format of its model. What a grammar lets through is what the splitter reads: tests hold the two
//! together.

mod table;

use std::fmt::Write as _;

use llmsrv_api::native::Tool;
use serde_json::{Map, Value, json};

use crate::{marks::harmony, template::Template};
use table::{BARE, CONTROLS, FORMATS, Row, STRINGS, TAGS, Tags};

/// The format in which a model writes its calls.
#[derive(Clone, Debug)]
pub struct ToolFormat {
    row: &'static Row,
    /// Goes before each call: a tag of the template that no row knows.
    own_tag: String,
}

/// A Lark grammar of calls. Its rules `schema_0`, `schema_1`, … are JSON that satisfies `schemas`.
#[derive(Clone, Debug, PartialEq)]
pub struct CallGrammar {
    /// The grammar, without these rules.
    pub lark: String,
    /// The schemas.
    pub schemas: Vec<Value>,
}

impl ToolFormat {
    /// The format of the calls of a template's model.
    pub fn of(template: &Template) -> ToolFormat {
        let source = template.source();
        let tag = template.tool_tag();
        let has = |mark: &&str| source.contains(*mark) || tag.contains(*mark);
        let row = FORMATS
            .iter()
            .find(|row| row.marks.iter().all(&has))
            .unwrap_or(&BARE);
        let is_own = row.name == BARE.name && !tag.starts_with(['{', '[']);
        ToolFormat {
            row,
            own_tag: if is_own {
                tag.to_owned()
            } else {
                String::new()
            },
        }
    }

    /// The name of the format.
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// A grammar of nothing but calls of `tools`: at least one, only one unless `parallel`.
    /// `control` gives the id of a text that is a control token of the model. `None` if there are no
    /// tools.
    pub fn forced_grammar(
        &self,
        tools: &[Tool],
        parallel: bool,
        control: &dyn Fn(&str) -> Option<u32>,
    ) -> Option<CallGrammar> {
        self.grammar(tools, parallel, Otherwise::Nothing, control)
    }

    /// A grammar of calls of `tools`, or of what else an answer may be. `None` if there are no tools,
    /// or if calls cannot be told from such an answer.
    pub fn grammar(
        &self,
        tools: &[Tool],
        parallel: bool,
        otherwise: Otherwise,
        control: &dyn Fn(&str) -> Option<u32>,
    ) -> Option<CallGrammar> {
        let mut writer = Writer {
            control,
            rules: String::new(),
            schemas: Vec::new(),
        };
        let call = format!("{}{}", self.own_tag, self.row.call);
        let begin = self.row.begin;
        let tag = tag_of(if begin.is_empty() { &call } else { begin });
        if tools.is_empty() || (otherwise == Otherwise::Answer && tag.is_empty()) {
            return None;
        }
        // The tag belongs to what begins with it: all calls together, or each of them.
        let (begin, own, call) = match begin.strip_prefix(tag) {
            Some(begin) => (begin, "", call.as_str()),
            None => (begin, tag, &call[tag.len()..]),
        };
        let mut bodies = Vec::new();
        for (idx, tool) in tools.iter().enumerate() {
            let body = writer.call(call, idx, tool);
            let _ = writeln!(writer.rules, "body_{idx}: {body}");
            bodies.push(format!("body_{idx}"));
        }
        let more = match self.row.between {
            Some(between) if parallel => {
                format!("({} call){{0,{MAX_MORE_CALLS}}}", writer.text(between))
            }
            _ => String::new(),
        };
        let (begin, end) = (writer.text(begin), writer.text(self.row.end));
        let after_tag = format!("{begin} body {more} {end}");
        let calls = format!("{} {after_tag}", writer.text(tag));
        let answer = match (otherwise, self.row.name) {
            (Otherwise::Nothing, _) => String::new(),
            (_, "harmony") => writer.text(harmony::FINAL),
            _ => String::new(),
        };
        let start = match otherwise {
            Otherwise::Nothing => calls,
            Otherwise::Answer => format!("{answer} answer | {calls}"),
            Otherwise::Text if !answer.is_empty() => {
                writer.rules += "TEXT: /(?s:.+)/\n";
                format!("{answer} TEXT? | {calls}")
            }
            // Bare calls are calls only where an answer begins.
            Otherwise::Text if tag.is_empty() => {
                writer.rules += "TEXT: /[^\\s{\\[](?s:.*)/\n";
                format!("TEXT? | {calls}")
            }
            Otherwise::Text if writer.has_control(tag) => {
                writer.rules += "TEXT: /(?s:.+)/\n";
                format!("TEXT? | TEXT? {calls}")
            }
            Otherwise::Text => {
                let regex = escaped(tag);
                let _ = writeln!(
                    writer.rules,
                    "TEXT: /(?s:.+)/ & ~/(?s:.*){regex}(?s:.*)/\nto_tag[suffix={}]: /(?s:.*)/",
                    quoted(tag)
                );
                format!("TEXT? | to_tag {after_tag}")
            }
        };
        if !more.is_empty() {
            let own = writer.text(own);
            let _ = writeln!(writer.rules, "call: {own} body");
        }
        let bodies = bodies.join(" | ");
        let lark = format!("start: {start}\nbody: {bodies}\n{}", writer.rules);
        Some(CallGrammar {
            lark,
            schemas: writer.schemas,
        })
    }
}

/// What an answer may be that is no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// There is none: the answer is calls.
    Nothing,
    /// Any text, also before the calls.
    Text,
    /// What the grammar's rule `answer` says, which whoever compiles it adds.
    Answer,
}

/// The text by which calls are told from other text; nothing where they are bare.
fn tag_of(calls: &str) -> &str {
    if calls.starts_with('{') || calls == "[" {
        return "";
    }
    let end = calls
        .char_indices()
        .skip(1)
        .find(|(_, c)| matches!(c, '$' | '{' | '[') || c.is_whitespace());
    end.map_or(calls, |(at, _)| &calls[..at])
}

/// A text as a regular expression between slashes.
fn escaped(text: &str) -> String {
    let mut regex = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$#&-~/".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

/// Writes the rules of a grammar.
struct Writer<'a> {
    control: &'a dyn Fn(&str) -> Option<u32>,
    rules: String,
    schemas: Vec<Value>,
}

impl Writer<'_> {
    /// The body of the rule of one tool's call.
    fn call(&mut self, pattern: &str, idx: usize, tool: &Tool) -> String {
        let mut body = String::new();
        let mut rest = pattern;
        while let Some(at) = rest.find('$') {
            body.push_str(&self.text(&rest[..at]));
            let variable = rest[at + 1..]
                .split(|c: char| !c.is_ascii_lowercase())
                .next()
                .unwrap_or_default();
            body.push(' ');
            match variable {
                "name" if rest[..at].ends_with('"') => {
                    let name = quoted(&tool.function.name);
                    body.push_str(&quoted(&name[1..name.len() - 1]));
                }
                "name" => body.push_str(&quoted(&tool.function.name)),
                "index" => body.push_str("/[0-9]/"),
                "json" => body.push_str(&self.schema(arguments_schema(tool))),
                "python" => body.push_str(&self.python(idx, tool)),
                other => {
                    let tags = TAGS.iter().find(|tags| tags.variable == other);
                    let strings = STRINGS.iter().find(|(variable, _)| *variable == other);
                    if let Some(tags) = tags {
                        body.push_str(&self.tagged(idx, tool, tags));
                    } else if let Some((_, quote)) = strings {
                        body.push_str(&self.braces(idx, tool, quote));
                    }
                }
            }
            body.push(' ');
            rest = &rest[at + 1 + variable.len()..];
        }
        body.push_str(&self.text(rest));
        body
    }

    /// A fixed text, its control tokens as such: a grammar cannot spell them.
    fn text(&self, text: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let next = CONTROLS
                .iter()
                .filter_map(|tag| Some((rest.find(tag)?, *tag, (self.control)(tag)?)))
                .min_by_key(|(at, tag, _)| (*at, usize::MAX - tag.len()));
            let Some((at, tag, id)) = next else { break };
            if at > 0 {
                parts.push(quoted(&rest[..at]));
            }
            parts.push(format!("<[{id}]>"));
            rest = &rest[at + tag.len()..];
        }
        if !rest.is_empty() {
            parts.push(quoted(rest));
        }
        parts.join(" ")
    }

    /// Whether a text has a control token, which other text never has.
    fn has_control(&self, text: &str) -> bool {
        let mut tags = CONTROLS.iter().filter(|tag| text.contains(**tag));
        tags.any(|tag| (self.control)(tag).is_some())
    }

    /// Any text and the fixed text after it, as the body of a rule. `rule` is a name that is free.
    fn until(&mut self, rule: &str, close: &str) -> String {
        if self.has_control(close) {
            let terminal = format!("{}_TEXT", rule.to_uppercase());
            let _ = writeln!(self.rules, "{terminal}: /(?s:.+)/");
            return format!("{terminal}? {}", self.text(close));
        }
        let suffix = quoted(close);
        let _ = writeln!(self.rules, "{rule}_text[suffix={suffix}]: /(?s:.*)/");
        format!("{rule}_text")
    }

    fn schema(&mut self, schema: Value) -> String {
        self.schemas.push(schema);
        format!("schema_{}", self.schemas.len() - 1)
    }

    /// Arguments as a call in Python names them: required ones first.
    fn python(&mut self, idx: usize, tool: &Tool) -> String {
        self.list(idx, tool, ("=", ", "), &mut |writer, argument| {
            writer.value(argument)
        })
    }

    /// Arguments as Gemma writes them: strings have marks of their own, and keys none. Members of objects are
    /// not held to the schema.
    fn braces(&mut self, idx: usize, tool: &Tool, quote: &str) -> String {
        if !self.rules.contains("\nany_value:") {
            let text = self.until("any", quote);
            let quote = self.text(quote);
            let _ = write!(
                self.rules,
                "\nany_value: any_string | NUMBER | \"true\" | \"false\" | \"null\" | any_object | any_list\n\
                 any_string: {quote} {text}\n\
                 any_object: \"{{\" (any_pair (\",\" any_pair)*)? \"}}\"\n\
                 any_pair: /[A-Za-z_][A-Za-z0-9_-]*/ \":\" any_value\n\
                 any_list: \"[\" (any_value (\",\" any_value)*)? \"]\"\n\
                 NUMBER: /-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?/\n"
            );
        }
        self.list(idx, tool, (":", ","), &mut |writer, argument| {
            writer.braced(&argument.schema, &argument.schema, quote, 0)
        })
    }

    /// A value of [`Writer::braces`]; `root` has the definitions.
    fn braced(&mut self, schema: &Value, root: &Value, quote: &str, depth: usize) -> String {
        if depth > MAX_NESTING {
            return "any_value".into();
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let definition = reference.and_then(|text| root.pointer(text.strip_prefix('#')?));
        if let Some(definition) = definition {
            return self.braced(definition, root, quote, depth + 1);
        }
        let options = schema.get("enum").and_then(Value::as_array);
        let is_plain = |option: &Value| !option.is_object() && !option.is_array();
        if let Some(options) = options.filter(|options| options.iter().all(is_plain)) {
            let quote = self.text(quote);
            let option = |option: &Value| match option {
                Value::String(text) => format!("{quote} {} {quote}", quoted(text)),
                option => quoted(&option.to_string()),
            };
            let options: Vec<String> = options.iter().map(option).collect();
            return format!("({})", options.join(" | "));
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) if kinds.len() == 1 => kinds[0].as_str(),
            kind => kind.and_then(Value::as_str),
        };
        match (kind, schema.get("items")) {
            (Some("string"), _) => "any_string".into(),
            (Some("integer" | "number" | "boolean" | "null"), _) => self.schema(schema.clone()),
            (Some("array"), Some(items)) => {
                let item = self.braced(items, root, quote, depth + 1);
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            (Some("array"), None) => "any_list".into(),
            (Some("object"), _) => "any_object".into(),
            _ => "any_value".into(),
        }
    }

    /// Arguments as `key value, …`, required ones first: what is between key and value, and between two
    /// arguments; and the body of the rule of a value.
    fn list(
        &mut self,
        idx: usize,
        tool: &Tool,
        (is, and): (&str, &str),
        value: &mut dyn FnMut(&mut Self, &Argument) -> String,
    ) -> String {
        let mut arguments = arguments(tool);
        arguments.sort_by_key(|argument| !argument.required);
        let n_required = arguments.iter().filter(|a| a.required).count();
        let rules: Vec<String> = arguments
            .iter()
            .enumerate()
            .map(|(number, argument)| {
                let rule = format!("value_{idx}_{number}");
                let value = value(self, argument);
                let _ = writeln!(
                    self.rules,
                    "{rule}: {} {value}",
                    quoted(&format!("{}{is}", argument.name))
                );
                rule
            })
            .collect();
        let and = quoted(and);
        let optional = |rules: &[String]| -> String {
            let more = rules.iter().map(|rule| format!("({and} {rule})?"));
            more.collect::<Vec<_>>().join(" ")
        };
        let rule = format!("arguments_{idx}");
        let body = if n_required > 0 {
            let required = rules[..n_required].join(&format!(" {and} "));
            format!("{required} {}", optional(&rules[n_required..]))
        } else {
            let starts = (0..rules.len())
                .map(|first| format!("{} {}", rules[first], optional(&rules[first + 1..])));
            let starts: Vec<String> = starts.chain(["\"\"".to_owned()]).collect();
            starts.join(" | ")
        };
        let _ = writeln!(self.rules, "{rule}: {body}");
        rule
    }

    /// Arguments between tags, in the order of the schema.
    fn tagged(&mut self, idx: usize, tool: &Tool, tags: &Tags) -> String {
        let mut parts = Vec::new();
        for (number, argument) in arguments(tool).iter().enumerate() {
            let rule = format!("value_{idx}_{number}");
            let is_text = argument
                .schema
                .get("type")
                .is_some_and(|kind| kind == "string");
            let middle = tags.middle[usize::from(!is_text)];
            let open = self.text(&format!("{}{}{middle}", tags.before, argument.name));
            let close = self.text(tags.after);
            let body = match argument.schema.get("enum").and_then(Value::as_array) {
                Some(options) if is_text => {
                    let options = options.iter().filter_map(Value::as_str).map(quoted);
                    let options = options.collect::<Vec<_>>().join(" | ");
                    format!("{open} ({options}) {close}")
                }
                _ if is_text => {
                    let text = match tags.wrap {
                        None => self.until(&rule, tags.after),
                        Some((begin, end)) => {
                            let wrapped = self.until(&rule, end);
                            let plain = format!("{}_PLAIN", rule.to_uppercase());
                            let _ = writeln!(self.rules, "{plain}: /[^<&\\n]+/");
                            format!("({} {wrapped} | {plain}?) {close}", self.text(begin))
                        }
                    };
                    format!("{open} {text}")
                }
                _ => format!("{open} {} {close}", self.value(argument)),
            };
            let _ = writeln!(self.rules, "{rule}: {body}");
            parts.push(if argument.required {
                rule
            } else {
                format!("{rule}?")
            });
        }
        parts.join(" ")
    }

    fn value(&mut self, argument: &Argument) -> String {
        self.schema(argument.schema.clone())
    }
}

/// One argument of a tool.
struct Argument {
    name: String,
    schema: Value,
    required: bool,
}

/// The arguments that a tool's schema lists; each schema has the definitions of the whole.
fn arguments(tool: &Tool) -> Vec<Argument> {
    let parameters = &tool.function.parameters;
    let Some(properties) = parameters.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let required = parameters.get("required").and_then(Value::as_array);
    let definitions = ["$defs", "definitions"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), parameters.get(name)?.clone())));
    let definitions: Map<String, Value> = definitions.collect();
    properties
        .iter()
        .map(|(name, schema)| {
            let mut schema = schema.clone();
            if let Value::Object(schema) = &mut schema {
                schema.extend(definitions.clone());
            }
            Argument {
                name: name.clone(),
                schema,
                required: required.is_some_and(|names| names.iter().any(|other| other == name)),
            }
        })
        .collect()
}

/// The schema of a tool's arguments, which are an object; without a word about others, the listed
/// ones are all there are.
fn arguments_schema(tool: &Tool) -> Value {
    let Value::Object(mut schema) = tool.function.parameters.clone() else {
        return json!({"type": "object"});
    };
    schema.insert("type".into(), "object".into());
    let is_listed = schema.get("properties").is_some_and(Value::is_object);
    let is_open = [
        "additionalProperties",
        "patternProperties",
        "unevaluatedProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ]
    .iter()
    .any(|keyword| schema.contains_key(*keyword));
    if is_listed && !is_open {
        schema.insert("additionalProperties".into(), false.into());
    }
    schema.into()
}

/// A literal of Lark: a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Deepest schema within a schema that is written out.
const MAX_NESTING: usize = 8;
/// Most calls after the first one.
const MAX_MORE_CALLS: usize = 15;
