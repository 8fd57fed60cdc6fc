//! From a request to a job.

use std::sync::Arc;

use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::Fields,
    members::FromValue as _,
    native::{Message, Tool},
    one_of, request,
};
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value, json};

use super::{
    kept::{KeptResponses, Resolver},
    write::{Namespaces, ResponsesEncoder},
};
use crate::{
    dialect::{
        openai::{OpenAiToolChoice, Reasoning},
        parts::{self, Beside},
    },
    error::{ApiError, refuse},
    format::grammar_of,
    job::{Input, Job, ToolChoice},
};

request! {
    pub(crate) struct ResponseRequest with options: ResponseOptions {
        /// Name of the model, such as `qwen3:8b`.
        model: String,
        /// A response that came before: its conversation goes on.
        previous_response_id: Option<String>,
        #[schema(ignore)] conversation: Option<Value>,
        /// A text, or the items so far.
        #[schema(value_type = ResponseInput)] input: Option<ResponseInput>,
        /// The system text.
        instructions: Option<String>,
        #[schema(value_type = Option<Vec<Object>>)] tools: Vec<Value>,
        #[schema(value_type = Option<OpenAiToolChoice>)] tool_choice: Option<Value>,
        /// How the answer is to look.
        #[schema(value_type = Option<Object>)] text: Fields,
        #[schema(value_type = Option<Reasoning>)] reasoning: Map<String, Value>,
        #[schema(minimum = 1)] max_output_tokens: Option<i64>,
        /// `auto` drops old messages when the prompt is too long.
        truncation: Option<String>,
        /// As events; off by default.
        stream: Option<bool>,
        /// Keep the response for requests that refer to it, in memory and for a while; on by default.
        store: Option<bool>,
        /// Only false is possible.
        background: Option<bool>,
        parallel_tool_calls: Option<bool>,
        #[schema(value_type = Option<Object>)] metadata: Map<String, Value>,
        #[schema(ignore)] user: Option<Value>,
        keep_alive: Option<KeepAlive>,
    }
}

one_of! {
    enum ResponseInput {
        Text(String),
        #[schema(value_type = Vec<Object>)] Items(Vec<Map<String, Value>>),
    } else |_, value| if value.is_array() {
        "input: an item must be an object".into()
    } else {
        "input must be a string or a list of items".into()
    }
}

type ResponseOptions = Beside<Responses>;
struct Responses;

impl parts::Dialect for Responses {
    const OWN: &'static [(&'static str, Option<f64>)] =
        &[("temperature", Some(1.0)), ("top_p", None)];
}

/// Makes a job of a request, and what writes its answer.
pub(crate) fn response(
    mut request: ResponseRequest,
    kept: &Arc<KeptResponses>,
) -> Result<(Job, ResponsesEncoder), ApiError> {
    if request.model.is_empty() {
        return Err(ApiError::model_required());
    }
    if request.conversation.is_some() {
        refuse!(
            "conversation is not supported: send the whole conversation as input, or previous_response_id"
        );
    }
    if request.background == Some(true) {
        refuse!("background responses are not supported");
    }
    let mut messages = Vec::new();
    if let Some(text) = request.instructions.clone().filter(|text| !text.is_empty()) {
        messages.push(said("system", text));
    }
    let previous = request.previous_response_id.as_deref();
    let items = items(request.input, previous, kept)?;
    let store = request.store.unwrap_or(true);
    // As text: the values go into the messages.
    let conversation = store.then(|| serde_json::to_string(&items).ok()).flatten();
    input(items, &mut messages)?;
    parts::link_calls(&mut messages);
    let (mut tools, mut namespaces) = (Vec::new(), Namespaces::new());
    for tool in &request.tools {
        add_tool(tool, "", &mut tools, &mut namespaces)?;
    }
    let choice = tool_choice(request.tool_choice.clone(), &tools)?;
    let reasoning = Reasoning::from_value(request.reasoning.clone().into(), "reasoning")?;
    let effort: Option<String> = Fields::from(request.reasoning).get("effort")?;
    let format: Option<Map<String, Value>> = request.text.get("format")?;
    if request.max_output_tokens.is_some_and(|most| most < 1) {
        refuse!("max_output_tokens must be at least 1");
    }
    let mut job = Job::new(request.model, Input::Chat { messages, tools });
    job.tool_choice = choice;
    job.parallel_calls = request.parallel_tool_calls.unwrap_or(true);
    let mut options = request.options.options;
    job.read_options(&options)?;
    job.options.num_predict = request.max_output_tokens.or(job.options.num_predict);
    job.grammar = format.clone().map_or(Ok(None), grammar)?;
    job.think = reasoning.effort.map(|effort| effort.0);
    // An effort is a wish: clients send theirs to every model.
    job.think_if_able = true;
    job.keep_alive = request.keep_alive;
    let truncation = request.truncation.unwrap_or_else(|| "disabled".into());
    job.truncate = truncation == "auto";
    job.stream = request.stream.unwrap_or(false);
    let echo = json!({
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "parallel_tool_calls": job.parallel_calls,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": effort, "summary": null},
        "store": store,
        "temperature": options.remove("temperature"),
        "text": {"format": format.map_or(json!({"type": "text"}), Value::Object)},
        "tool_choice": request.tool_choice.unwrap_or(json!("auto")),
        "tools": request.tools,
        "top_p": options.remove("top_p").unwrap_or(json!(1.0)),
        "truncation": truncation,
        "user": request.user,
        "metadata": request.metadata,
    });
    let kept = conversation.map(|conversation| (conversation, kept.clone()));
    let writer = ResponsesEncoder::new(&job.model, echo, namespaces, kept);
    Ok((job, writer))
}

fn said(role: &str, content: String) -> Message {
    Message {
        role: role.into(),
        content,
        ..Message::default()
    }
}

/// Returns the items of a conversation: those of the response before, and then the new ones.
fn items(
    input: Option<ResponseInput>,
    previous: Option<&str>,
    kept: &KeptResponses,
) -> Result<Vec<Map<String, Value>>, ApiError> {
    let new = match input {
        Some(ResponseInput::Text(text)) => {
            let said = [("role", "user".to_owned()), ("content", text)];
            vec![Map::from_iter(
                said.map(|(name, text)| (name.to_owned(), text.into())),
            )]
        }
        Some(ResponseInput::Items(items)) => items,
        None => Vec::new(),
    };
    if new.is_empty() {
        refuse!("input is required");
    }
    let mut resolver = Resolver::new(kept);
    let mut items = previous.map_or(Ok(Vec::new()), |previous| resolver.items(previous))?;
    for item in new {
        match (item.get("type").and_then(Value::as_str), item.get("id")) {
            (Some("item_reference"), Some(Value::String(id))) => items.extend(resolver.items(id)?),
            (Some("item_reference"), _) => refuse!("input: item_reference needs an id"),
            _ => items.push(item),
        }
    }
    Ok(items)
}

fn input(items: Vec<Map<String, Value>>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let mut thinking = String::new();
    for mut item in items.into_iter().map(Fields::from) {
        let kind: Option<String> = item.get("type")?;
        match kind.as_deref().unwrap_or("message") {
            "message" => {
                let mut message = message(&mut item)?;
                // What was thought before an answer that never came is nobody's.
                let thinking = std::mem::take(&mut thinking);
                if message.role == "assistant" {
                    message.thinking = thinking;
                }
                messages.push(message);
            }
            "function_call" => {
                let namespace: Option<String> = item.get("namespace")?;
                let (id, mut name): (_, String) = (item.get("call_id")?, item.get("name")?);
                if let Some(namespace) = namespace {
                    name = within(&namespace, &name);
                }
                let call = parts::call(id, name, &item.get::<String>("arguments")?)?;
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
                result.tool_call_id = item.get("call_id")?;
                messages.push(result);
            }
            "reasoning" => thinking += &reasoning(&mut item)?,
            // What the service's own tools did.
            other => tracing::debug!(kind = other, "an item of a conversation is left out"),
        }
    }
    Ok(())
}

fn message(item: &mut Fields) -> Result<Message, ApiError> {
    let role = item.get::<String>("role")?.to_lowercase();
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
        match part.get::<String>("type")?.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" => {
                parts::append(&mut message.content, &part.get::<String>("text")?);
            }
            "refusal" => message.content += &part.get::<String>("refusal")?,
            "input_image" => {
                let Some(url) = part.get::<Option<String>>("image_url")? else {
                    refuse!("input_image needs image_url with the image's data");
                };
                message.images.push(parts::image(&url)?);
            }
            other => refuse!("input: parts of type {other:?} are not supported"),
        }
    }
    Ok(())
}

/// Returns the thinking of an earlier answer, as we or another service wrote it.
fn reasoning(item: &mut Fields) -> Result<String, ApiError> {
    if let Some(text) = item.get("encrypted_content")? {
        return Ok(text);
    }
    let mut holder = Message::default();
    let summary = item.take("summary");
    content(item.take("content").or(summary), &mut holder)?;
    Ok(holder.content)
}

/// Returns the name by which the model knows a tool of a namespace.
fn within(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}")
}

fn add_tool(
    tool: &Value,
    namespace: &str,
    tools: &mut Vec<Tool>,
    namespaces: &mut Namespaces,
) -> Result<(), ApiError> {
    let Value::Object(tool) = tool else {
        refuse!("tools: a tool must be an object");
    };
    let mut tool = Fields::from(tool.clone());
    let kind: String = tool.get("type")?;
    let name: String = tool.get("name")?;
    let is_known = kind == "function" || kind == "namespace" && namespace.is_empty();
    if is_known && name.is_empty() {
        refuse!("tools: name is required");
    }
    match kind.as_str() {
        "function" => {
            let name = if namespace.is_empty() {
                name
            } else {
                let whole = within(namespace, &name);
                namespaces.insert(whole.clone(), (namespace.to_owned(), name));
                whole
            };
            let (description, strict) = (tool.get("description")?, tool.get("strict")?);
            let parameters = tool.take("parameters");
            tools.push(parts::tool(name, description, parameters, strict));
        }
        "namespace" if namespace.is_empty() => {
            for member in tool.get::<Vec<Value>>("tools")? {
                add_tool(&member, &name, tools, namespaces)?;
            }
        }
        other => tracing::warn!(kind = other, "a tool of the service is not available here"),
    }
    Ok(())
}

fn tool_choice(choice: Option<Value>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let invalid = || ApiError::bad_request("invalid tool_choice");
    let choice = choice.map(|choice| OpenAiToolChoice::from_value(choice, "tool_choice"));
    let choice = match choice.transpose()? {
        None => ToolChoice::Auto,
        Some(OpenAiToolChoice::Word(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return Err(invalid()),
        },
        Some(OpenAiToolChoice::Function(mut choice)) => {
            match (choice.get::<String>("type")?.as_str(), choice.get("name")?) {
                ("function", Some(name)) => ToolChoice::Named(name),
                _ => return Err(invalid()),
            }
        }
    };
    parts::check_choice(choice, tools)
}

fn grammar(format: Map<String, Value>) -> Result<Option<GrammarSpec>, ApiError> {
    let mut asked = Fields::from(format.clone());
    let kind: Option<String> = asked.get("type")?;
    match (kind.as_deref(), asked.take("schema")) {
        (None | Some("text"), _) => Ok(None),
        (Some("json_object"), _) => Ok(Some(GrammarSpec::Json)),
        (Some("json_schema"), Some(schema)) => grammar_of(&schema),
        (Some("json_schema"), None) => Err(ApiError::bad_request("text.format needs a schema")),
        _ => grammar_of(&format.into()),
    }
}
