//! From a request to a job.

use llmsrv_api::{
    lenient::Fields,
    native::{Message, Tool},
};
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value, json};

use super::write::ResponsesEncoder;
use crate::{
    dialect::{native, parts},
    error::{ApiError, refuse},
    job::{Input, Job, ToolChoice},
};

/// Parses a request.
pub(crate) fn parse_response(mut fields: Fields) -> Result<(Job, ResponsesEncoder), ApiError> {
    let model = fields.text("model")?.filter(|model| !model.is_empty());
    let model = model.ok_or_else(ApiError::model_required)?;
    for name in ["previous_response_id", "conversation"] {
        if fields.take(name).is_some() {
            refuse!(
                "{name} is not supported: responses are not kept; send the whole conversation as input"
            );
        }
    }
    if fields.bool("background")?.unwrap_or(false) {
        refuse!("background responses are not supported");
    }
    let instructions = fields.text("instructions")?;
    let mut messages = Vec::new();
    if let Some(text) = instructions.clone().filter(|text| !text.is_empty()) {
        messages.push(said("system", text));
    }
    input(fields.take("input"), &mut messages)?;
    parts::link_calls(&mut messages);
    let sent_tools = fields.list("tools")?.unwrap_or_default();
    let mut tools = Vec::new();
    for tool in &sent_tools {
        add_tool(tool, "", &mut tools)?;
    }
    let sent_choice = fields.take("tool_choice");
    let choice = tool_choice(sent_choice.clone(), &tools)?;
    let mut reasoning = Fields::from(fields.object("reasoning")?.unwrap_or_default());
    let effort = reasoning.text("effort")?;
    let mut text = Fields::from(fields.object("text")?.unwrap_or_default());
    let format = text.object("format")?;

    let mut job = Job::new(model, Input::Chat { messages, tools });
    job.tool_choice = choice;
    job.parallel_calls = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    let mut options = parts::extra_options(&mut fields)?;
    let temperature = fields.take("temperature").unwrap_or(json!(1.0));
    let top_p = fields.take("top_p");
    let max_output_tokens = fields.integer("max_output_tokens")?;
    if max_output_tokens.is_some_and(|most| most < 1) {
        refuse!("max_output_tokens must be at least 1");
    }
    for (name, value) in [
        ("temperature", Some(temperature.clone())),
        ("top_p", top_p.clone()),
        ("num_predict", max_output_tokens.map(Value::from)),
    ] {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    }
    job.read_options(&options)?;
    job.grammar = format.clone().map_or(Ok(None), grammar)?;
    job.think = effort.as_deref().map(parts::effort).transpose()?;
    job.keep_alive = native::keep_alive(&mut fields)?;
    let truncation = fields
        .text("truncation")?
        .unwrap_or_else(|| "disabled".into());
    job.truncate = truncation == "auto";
    job.stream = fields.bool("stream")?.unwrap_or(false);
    let echo = json!({
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
        "parallel_tool_calls": job.parallel_calls,
        "previous_response_id": null,
        "reasoning": {"effort": effort, "summary": null},
        "store": false,
        "temperature": temperature,
        "text": {"format": format.map_or(json!({"type": "text"}), Value::Object)},
        "tool_choice": sent_choice.unwrap_or(json!("auto")),
        "tools": sent_tools,
        "top_p": top_p.unwrap_or(json!(1.0)),
        "truncation": truncation,
        "user": fields.take("user"),
        "metadata": fields.object("metadata")?.unwrap_or_default(),
    });
    let writer = ResponsesEncoder::new(&job.model, echo);
    Ok((job, writer))
}

fn said(role: &str, content: String) -> Message {
    Message {
        role: role.into(),
        content,
        ..Message::default()
    }
}

fn input(input: Option<Value>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let items = match input {
        Some(Value::String(text)) => {
            messages.push(said("user", text));
            return Ok(());
        }
        Some(Value::Array(items)) => items,
        None => Vec::new(),
        Some(_) => refuse!("input must be a string or a list of items"),
    };
    if items.is_empty() {
        refuse!("input is required");
    }
    let mut thinking = String::new();
    for item in items {
        let Value::Object(item) = item else {
            refuse!("input: an item must be an object");
        };
        let mut item = Fields::from(item);
        let kind = item.text("type")?.unwrap_or_else(|| "message".into());
        match kind.as_str() {
            "message" => {
                let mut message = message(&mut item)?;
                if message.role == "assistant" {
                    message.thinking = std::mem::take(&mut thinking);
                }
                messages.push(message);
            }
            "function_call" => {
                let id = item.text("call_id")?.unwrap_or_default();
                let name = item.text("name")?.unwrap_or_default();
                let arguments = item.text("arguments")?.unwrap_or_default();
                let call = parts::call(id, name, &arguments)?;
                // Calls that follow each other, or a text, were one answer.
                match messages.last_mut() {
                    Some(last) if last.role == "assistant" && thinking.is_empty() => {
                        last.tool_calls.push(call);
                    }
                    _ => messages.push(Message {
                        thinking: std::mem::take(&mut thinking),
                        tool_calls: vec![call],
                        ..said("assistant", String::new())
                    }),
                }
            }
            "function_call_output" => {
                let mut result = said("tool", String::new());
                content(item.take("output"), &mut result)?;
                result.tool_call_id = item.text("call_id")?.unwrap_or_default();
                messages.push(result);
            }
            "reasoning" => thinking = reasoning(&mut item)?,
            "item_reference" => {
                refuse!("input: item_reference is not supported: send the item itself")
            }
            // What the service's own tools did.
            other => tracing::debug!(kind = other, "an item of a conversation is left out"),
        }
    }
    Ok(())
}

fn message(item: &mut Fields) -> Result<Message, ApiError> {
    let role = item.text("role")?.unwrap_or_default().to_lowercase();
    let role = if role == "developer" { "system" } else { &role };
    let mut message = said(role, String::new());
    content(item.take("content"), &mut message)?;
    Ok(message)
}

fn content(content: Option<Value>, message: &mut Message) -> Result<(), ApiError> {
    let parts = match content {
        None => return Ok(()),
        Some(Value::String(text)) => {
            message.content = text;
            return Ok(());
        }
        Some(Value::Array(parts)) => parts,
        Some(_) => refuse!("input: content must be a string or a list of parts"),
    };
    for part in parts {
        let Value::Object(part) = part else {
            refuse!("input: a part must be an object");
        };
        let mut part = Fields::from(part);
        match part.text("type")?.unwrap_or_default().as_str() {
            "input_text" | "output_text" | "text" | "summary_text" => {
                let text = part.text("text")?.unwrap_or_default();
                if !message.content.is_empty() {
                    message.content.push('\n');
                }
                message.content.push_str(&text);
            }
            "refusal" => message.content += &part.text("refusal")?.unwrap_or_default(),
            "input_image" => {
                let url = part.text("image_url")?;
                let url = url.ok_or_else(|| {
                    ApiError::bad_request("input_image needs image_url with the image's data")
                })?;
                message.images.push(parts::image(&url)?);
            }
            other => refuse!("input: parts of type {other:?} are not supported"),
        }
    }
    Ok(())
}

/// Returns the thinking of an earlier answer, as we or another service wrote it.
fn reasoning(item: &mut Fields) -> Result<String, ApiError> {
    if let Some(text) = item.text("encrypted_content")? {
        return Ok(text);
    }
    let mut holder = Message::default();
    let summary = item.take("summary");
    content(item.take("content").or(summary), &mut holder)?;
    Ok(holder.content)
}

fn add_tool(tool: &Value, prefix: &str, tools: &mut Vec<Tool>) -> Result<(), ApiError> {
    let Value::Object(tool) = tool else {
        refuse!("tools: a tool must be an object");
    };
    let mut tool = Fields::from(tool.clone());
    let kind = tool.text("type")?.unwrap_or_default();
    let name = tool.text("name")?.filter(|name| !name.is_empty());
    let named = || {
        name.clone()
            .ok_or_else(|| ApiError::bad_request("tools: name is required"))
    };
    match kind.as_str() {
        "function" => {
            let description = tool.text("description")?;
            let name = format!("{prefix}{}", named()?);
            let strict = tool.bool("strict")?;
            let parameters = tool.take("parameters");
            tools.push(parts::tool(name, description, parameters, strict));
        }
        "namespace" if prefix.is_empty() => {
            let prefix = format!("{}.", named()?);
            for member in tool.list("tools")?.unwrap_or_default() {
                add_tool(&member, &prefix, tools)?;
            }
        }
        other => tracing::warn!(kind = other, "a tool of the service is not available here"),
    }
    Ok(())
}

fn tool_choice(choice: Option<Value>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let invalid = || ApiError::bad_request("invalid tool_choice");
    let choice = match choice {
        None => ToolChoice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return Err(invalid()),
        },
        Some(Value::Object(choice)) => {
            let mut choice = Fields::from(choice);
            match (choice.text("type")?.as_deref(), choice.text("name")?) {
                (Some("function"), Some(name)) => ToolChoice::Named(name),
                _ => return Err(invalid()),
            }
        }
        Some(_) => return Err(invalid()),
    };
    parts::check_choice(choice, tools)
}

fn grammar(format: Map<String, Value>) -> Result<Option<GrammarSpec>, ApiError> {
    let whole = Value::Object(format.clone());
    let mut format = Fields::from(format);
    match (format.text("type")?.as_deref(), format.take("schema")) {
        (None | Some("text"), _) => Ok(None),
        (Some("json_object"), _) => Ok(Some(GrammarSpec::Json)),
        (Some("json_schema"), Some(schema)) => native::grammar(schema),
        (Some("json_schema"), None) => Err(ApiError::bad_request("text.format needs a schema")),
        _ => native::grammar(whole),
    }
}
