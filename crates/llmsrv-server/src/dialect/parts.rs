//! What the dialects of the cloud services have in common.

use std::collections::HashMap;

use llmsrv_api::{
    lenient::{BodyError, Fields, object_in_text},
    native::{Message, Tool, ToolCall, ToolCallFunction, ToolFunction},
};
use llmsrv_chat::Think;
use serde_json::{Map, Value};

use super::{End, Reason, native};
use crate::{
    error::{ApiError, refuse},
    job::ToolChoice,
};

/// Options of ours that these dialects do not have, taken from beside their own.
pub(super) fn extra_options(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut options = fields.object("options")?.unwrap_or_default();
    for name in [
        "num_ctx",
        "top_n_sigma",
        "min_p",
        "typical_p",
        "repeat_penalty",
        "repeat_last_n",
        "top_k",
    ] {
        if let Some(value) = fields.take(name) {
            options.insert(name.to_owned(), value);
        }
    }
    Ok(options)
}

/// Takes a stop text or a list of them.
pub(super) fn stop(fields: &mut Fields, name: &str) -> Result<Option<Value>, ApiError> {
    match fields.take(name) {
        None => Ok(None),
        Some(text @ Value::String(_)) => Ok(Some(text)),
        Some(Value::Array(texts)) if texts.iter().all(Value::is_string) => {
            Ok(Some(Value::Array(texts)))
        }
        Some(_) => Err(ApiError::bad_request(format!(
            "{name} must be a string or a list of strings"
        ))),
    }
}

/// Reads how much the model shall think.
pub(super) fn effort(text: &str) -> Result<Think, ApiError> {
    match text {
        "none" => Ok(Think::Off),
        "minimal" | "low" => Ok(Think::Low),
        "medium" => Ok(Think::Medium),
        "high" => Ok(Think::High),
        "max" | "xhigh" | "ultra" => Ok(Think::Max),
        _ => Err(ApiError::bad_request(format!(
            "invalid reasoning effort: {text:?} (must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\")"
        ))),
    }
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
