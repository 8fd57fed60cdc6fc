//! What the dialects of the cloud services have in common.

use std::{collections::HashMap, marker::PhantomData};

use llmsrv_api::{
    lenient::{BodyError, Fields, object_in_text},
    members::{Member, Names},
    native::{Message, Tool, ToolCall, ToolCallFunction, ToolFunction},
    options::Options,
    words,
};
use llmsrv_chat::Think;
use serde_json::{Map, Value};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, Ref, RefOr, Schema},
};

use super::{End, Reason, native};
use crate::{
    error::{ApiError, refuse},
    job::ToolChoice,
};

/// The options that a request of one of these dialects has in `options`, or beside its own members.
pub(super) struct Beside<D> {
    pub(super) options: Map<String, Value>,
    dialect: PhantomData<D>,
}

/// A dialect with options of its own.
pub(super) trait Dialect {
    /// Their names, and what they are where nobody gives them, whatever the model wants: clients
    /// expect the dialect's own defaults.
    const OWN: &'static [(&'static str, Option<f64>)];
}

/// Options of ours that these dialects do not have.
const EXTRA: [(&str, Option<f64>); 7] = [
    ("num_ctx", None),
    ("top_n_sigma", None),
    ("min_p", None),
    ("typical_p", None),
    ("repeat_penalty", None),
    ("repeat_last_n", None),
    ("top_k", None),
];

impl<D: Dialect> Beside<D> {
    fn all() -> impl Iterator<Item = &'static (&'static str, Option<f64>)> {
        D::OWN.iter().chain(&EXTRA)
    }
}

impl<D: Dialect> Member for Beside<D> {
    fn names(_name: &'static str, names: &mut Names) {
        names.all.push("options");
        names.all.extend(Self::all().map(|(name, _)| name));
    }

    fn take(fields: &mut Fields, _name: &str) -> Result<Beside<D>, BodyError> {
        let mut options: Map<String, Value> = fields.get("options")?;
        for (name, default) in Self::all() {
            if let Some(value) = fields.take(name).or(default.map(Value::from)) {
                options.insert((*name).to_owned(), value);
            }
        }
        Ok(Beside {
            options,
            dialect: PhantomData,
        })
    }
}

impl<D: Dialect> PartialSchema for Beside<D> {
    fn schema() -> RefOr<Schema> {
        let mut beside = Object::new();
        if let RefOr::T(Schema::Object(options)) = Options::schema() {
            for (name, mut schema) in options.properties {
                let Some((_, default)) = Self::all().find(|(known, _)| *known == name) else {
                    continue;
                };
                if let RefOr::T(Schema::Object(schema)) = &mut schema {
                    schema.default = default.map(Value::from);
                }
                beside.properties.insert(name, schema);
            }
        }
        let options = Ref::from_schema_name("Options").into();
        beside.properties.insert("options".into(), options);
        beside.into()
    }
}

impl<D: Dialect> ToSchema for Beside<D> {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("Options".into(), Options::schema()));
        Options::schemas(schemas);
    }
}

words! {
    pub(super) struct Effort(Think) {
        "none" => Think::Off,
        "minimal" => Think::Low,
        "low" => Think::Low,
        "medium" => Think::Medium,
        "high" => Think::High,
        "xhigh" => Think::Max,
        "max" => Think::Max,
        "ultra" => Think::Max,
    } else |word| format!(
        "invalid reasoning effort: {word:?} (must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\")"
    )
}

/// Adds a part of a message to its text.
pub(super) fn append(all: &mut String, part: &str) {
    if !all.is_empty() {
        all.push('\n');
    }
    all.push_str(part);
}

/// Takes the image out of a URL that holds its data.
pub(super) fn image(url: &str) -> Result<String, ApiError> {
    if url.starts_with("http://") || url.starts_with("https://") {
        refuse!("image URLs are not currently supported, please use base64 encoded data instead");
    }
    let data = IMAGE_PREFIXES
        .iter()
        .find_map(|prefix| url.strip_prefix(prefix));
    let data = data.ok_or_else(|| ApiError::bad_request("invalid image input"))?;
    native::check_image(data).map_err(|_| ApiError::bad_request("invalid image input"))?;
    Ok(data.to_owned())
}

/// Reads the arguments of a call, which these dialects write as text.
pub(super) fn call(id: String, name: String, arguments: &str) -> Result<ToolCall, ApiError> {
    let arguments = if arguments.trim().is_empty() {
        Map::new()
    } else {
        match object_in_text(arguments) {
            Err(error @ BodyError::TooMany) => return Err(error.into()),
            read => read.map_err(|_| ApiError::bad_request("invalid tool call arguments"))?,
        }
    };
    Ok(ToolCall {
        id,
        function: ToolCallFunction {
            index: 0,
            name,
            arguments,
        },
    })
}

/// Makes a tool.
pub(super) fn tool(
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
) -> Tool {
    Tool {
        kind: "function".into(),
        function: ToolFunction {
            name,
            description: description.unwrap_or_default(),
            parameters: parameters
                .unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}})),
            strict: strict.unwrap_or(false),
        },
    }
}

/// Names the tools whose results are in the conversation, and numbers the calls of each message.
pub(super) fn link_calls(messages: &mut [Message]) {
    let mut known: HashMap<String, String> = HashMap::new();
    for message in messages {
        for (index, call) in message.tool_calls.iter_mut().enumerate() {
            call.function.index = index;
            known.insert(call.id.clone(), call.function.name.clone());
        }
        if message.role == "tool"
            && message.tool_name.is_empty()
            && let Some(name) = known.get(&message.tool_call_id)
        {
            message.tool_name.clone_from(name);
        }
    }
}

/// Refuses a choice that no tool can meet.
pub(super) fn check_choice(choice: ToolChoice, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    match &choice {
        ToolChoice::Required if tools.is_empty() => Err(ApiError::bad_request(
            "tool_choice needs tools to choose from",
        )),
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.function.name == *name) => {
            Err(ApiError::bad_request(format!(
                "tool_choice names {name:?}, which is not among the tools"
            )))
        }
        _ => Ok(choice),
    }
}

/// Says whether an answer ended because of a limit.
pub(super) fn is_cut(end: &End) -> bool {
    end.reason == Reason::Length
}

const IMAGE_PREFIXES: &[&str] = &[
    "data:image/jpeg;base64,",
    "data:image/jpg;base64,",
    "data:image/png;base64,",
    "data:image/webp;base64,",
    "data:image/gif;base64,",
    "data:;base64,",
];
