//! From a job to a request of the OpenAI API.

use llmsrv_api::native::{Message, Tool};
use llmsrv_chat::Think;
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value, json};

use crate::{
    error::ApiError,
    job::{Generate, Input, Job, ToolChoice},
};

/// Returns the path, under the address of the API, and the body.
pub(super) fn request(job: &Job, model: &str) -> Result<(&'static str, Value), ApiError> {
    if job.render_only {
        return Err(unsupported("showing the prompt"));
    }
    let mut body = common(job, model)?;
    let path = match &job.input {
        Input::Chat { messages, tools } => {
            body.insert("messages".into(), messages.iter().map(message).collect());
            if !tools.is_empty() {
                body.insert("tools".into(), tools.iter().map(tool).collect());
                body.insert("tool_choice".into(), tool_choice(&job.tool_choice));
                if !job.parallel_calls {
                    body.insert("parallel_tool_calls".into(), json!(false));
                }
            }
            "/chat/completions"
        }
        Input::Generate(generate) => {
            if generate.template.is_some() || !generate.context.is_empty() {
                return Err(unsupported("a template or context"));
            }
            if generate.raw || !generate.suffix.is_empty() {
                if !generate.images.is_empty() {
                    return Err(unsupported("a raw prompt or suffix with images"));
                }
                body.insert("prompt".into(), json!(generate.prompt));
                if !generate.suffix.is_empty() {
                    body.insert("suffix".into(), json!(generate.suffix));
                }
                "/completions"
            } else {
                body.insert("messages".into(), conversation(generate));
                "/chat/completions"
            }
        }
    };
    Ok((path, Value::Object(body)))
}

fn unsupported(what: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{what} is not supported by a model of an upstream server"
    ))
}

/// What the client said, and nothing it did not: the engine has defaults of its own.
fn common(job: &Job, model: &str) -> Result<Map<String, Value>, ApiError> {
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("model", json!(model));
    put("stream", json!(true));
    put("stream_options", json!({"include_usage": true}));
    let mut options = job.options.to_json();
    for (ours, theirs) in OPTIONS {
        if let Some(value) = options.remove(*ours) {
            put(theirs, value);
        }
    }
    if let Some(most) = job.options.num_predict.filter(|most| *most >= 0) {
        put("max_tokens", json!(most));
    }
    if let Some(top) = job.logprobs {
        let chat = matches!(&job.input, Input::Chat { .. })
            || matches!(&job.input, Input::Generate(generate) if !generate.raw && generate.suffix.is_empty());
        if chat {
            put("logprobs", json!(true));
            put("top_logprobs", json!(top));
        } else {
            put("logprobs", json!(top));
        }
    }
    if !job.logit_bias.is_empty() {
        let biases = job.logit_bias.iter();
        let biases: Map<String, Value> = biases
            .map(|(id, bias)| (id.to_string(), json!(bias)))
            .collect();
        put("logit_bias", Value::Object(biases));
    }
    match &job.grammar {
        None => {}
        Some(GrammarSpec::Json) => drop(put("response_format", json!({"type": "json_object"}))),
        Some(GrammarSpec::JsonSchema(schema) | GrammarSpec::StrictJsonSchema(schema)) => {
            let schema = json!({"name": "answer", "schema": schema, "strict": true});
            put(
                "response_format",
                json!({"type": "json_schema", "json_schema": schema}),
            );
        }
        Some(_) => return Err(unsupported("a grammar")),
    }
    if let Some(think) = job.think {
        if let Some(level) = think.level() {
            put("reasoning_effort", json!(level));
        } else {
            let on = think != Think::Off;
            put("chat_template_kwargs", json!({"enable_thinking": on}));
        }
    }
    Ok(body)
}

fn conversation(generate: &Generate) -> Value {
    let mut messages = Vec::new();
    if let Some(system) = &generate.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.push(message(&Message {
        role: "user".into(),
        content: generate.prompt.clone(),
        images: generate.images.clone(),
        ..Message::default()
    }));
    Value::Array(messages)
}

fn message(message: &Message) -> Value {
    let mut written = json!({"role": message.role});
    written["content"] = if message.images.is_empty() {
        json!(message.content)
    } else {
        let mut parts = vec![json!({"type": "text", "text": message.content})];
        parts.extend(message.images.iter().map(|image| {
            let url = if image.starts_with("data:") {
                image.clone()
            } else {
                format!("data:{};base64,{image}", media_type(image))
            };
            json!({"type": "image_url", "image_url": {"url": url}})
        }));
        Value::Array(parts)
    };
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let arguments = Value::Object(call.function.arguments.clone()).to_string();
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": arguments},
            })
        });
        written["tool_calls"] = calls.collect();
    }
    for (name, text) in [
        ("tool_call_id", &message.tool_call_id),
        ("name", &message.tool_name),
    ] {
        if !text.is_empty() {
            written[name] = json!(text);
        }
    }
    written
}

/// Tells the kind of an image by the first characters of its base64.
fn media_type(image: &str) -> &'static str {
    match image.as_bytes() {
        [b'/', b'9', ..] => "image/jpeg",
        [b'U', b'k', b'l', b'G', ..] => "image/webp",
        [b'R', b'0', b'l', b'G', ..] => "image/gif",
        _ => "image/png",
    }
}

fn tool(tool: &Tool) -> Value {
    let mut function = json!({
        "name": tool.function.name,
        "description": tool.function.description,
        "parameters": tool.function.parameters,
    });
    if tool.function.strict {
        function["strict"] = json!(true);
    }
    json!({"type": "function", "function": function})
}

fn tool_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::None => json!("none"),
        ToolChoice::Auto => json!("auto"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

/// Our names of options and those that these engines know.
const OPTIONS: &[(&str, &str)] = &[
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_n_sigma", "top_n_sigma"),
    ("top_k", "top_k"),
    ("typical_p", "typical_p"),
    ("min_p", "min_p"),
    ("repeat_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("seed", "seed"),
    ("stop", "stop"),
];
