//! The native dialect (`/api/*`), both directions.

use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::{Fields, Ids},
    native::{
        ChatResponse, GenerateResponse, LogProb, Message, Tool, ToolCall, ToolCallFunction,
        ToolFunction,
    },
    options::Options,
};
use llmsrv_chat::Think;
use llmsrv_engine::{GrammarSpec, TokenInfo};
use serde_json::{Value, json};

use super::{Delta, End, Framing, Reason, ResponseEncoder, StreamBuffer, to_value};
use crate::{
    clock,
    error::{ApiError, refuse},
    format::grammar_of,
    job::{Generate, Input, Job, ToolChoice},
};

/// Parses a request of `/api/generate`.
pub(crate) fn parse_generate(mut fields: Fields) -> Result<Job, ApiError> {
    let generate = Generate {
        prompt: fields.text("prompt")?.unwrap_or_default(),
        suffix: fields.text("suffix")?.unwrap_or_default(),
        system: fields.text("system")?.filter(|text| !text.is_empty()),
        template: fields.text("template")?.filter(|text| !text.is_empty()),
        context: context(&mut fields)?,
        raw: fields.bool("raw")?.unwrap_or(false),
        images: images(&mut fields)?,
    };
    if generate.raw
        && (generate.template.is_some()
            || generate.system.is_some()
            || !generate.context.is_empty())
    {
        refuse!("raw mode does not support template, system, or context");
    }
    job(fields, Input::Generate(generate))
}

/// Parses a request of `/api/chat`.
pub(crate) fn parse_chat(mut fields: Fields) -> Result<Job, ApiError> {
    let messages = fields.each("messages", message)?;
    let tools = fields.each("tools", tool)?;
    job(fields, Input::Chat { messages, tools })
}

/// Parses what all requests for text have.
fn job(mut fields: Fields, input: Input) -> Result<Job, ApiError> {
    let model = model_name(&mut fields)?.ok_or_else(ApiError::model_required)?;
    let options = fields.object("options")?.unwrap_or_default();
    let (options, without_effect) = Options::read(&options)?;
    if !without_effect.is_empty() {
        tracing::warn!(options = ?without_effect, "options without effect");
    }
    let top = fields.integer("top_logprobs")?.unwrap_or(0);
    let top = usize::try_from(top).ok().filter(|top| *top <= 20);
    let top = top.ok_or_else(|| ApiError::bad_request("top_logprobs must be between 0 and 20"))?;
    Ok(Job {
        model,
        input,
        options,
        without_effect,
        keep_alive: keep_alive(&mut fields)?,
        grammar: fields.take("format").map_or(Ok(None), grammar)?,
        tool_choice: ToolChoice::default(),
        parallel_calls: true,
        logit_bias: logit_bias(&mut fields)?,
        think: fields
            .take("think")
            .map(|value| think(&value))
            .transpose()?,
        think_if_able: false,
        truncate: fields.bool("truncate")?.unwrap_or(true),
        shift: fields.bool("shift")?.unwrap_or(true),
        logprobs: fields.bool("logprobs")?.unwrap_or(false).then_some(top),
        stream: fields.bool("stream")?.unwrap_or(true),
        n_answers: 1,
        n_best: 1,
        render_only: fields.bool("_debug_render_only")?.unwrap_or(false),
    })
}

/// Takes the time a model stays loaded.
pub(crate) fn keep_alive(fields: &mut Fields) -> Result<Option<KeepAlive>, ApiError> {
    let value = fields.take("keep_alive");
    let parsed = value.map(|value| KeepAlive::parse(&value)).transpose();
    parsed.map_err(ApiError::bad_request)
}

/// Takes what is to be added to the logits of tokens: an object from ids to numbers.
pub(crate) fn logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f32)>, ApiError> {
    let given = fields.object("logit_bias")?.unwrap_or_default();
    let one = |(id, bias): (&String, &Value)| {
        let bias = bias
            .as_f64()
            .filter(|bias| (-100.0..=100.0).contains(bias))?;
        Some((id.parse().ok()?, bias as f32))
    };
    let biases = given.iter().map(one).collect::<Option<Vec<_>>>();
    biases.ok_or_else(|| {
        ApiError::bad_request("logit_bias must map token ids to numbers from -100 to 100")
    })
}

/// Takes the model's name from where old and new clients put it.
pub(crate) fn model_name(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    let (model, name) = (fields.text("model")?, fields.text("name")?);
    Ok(model
        .filter(|text| !text.is_empty())
        .or(name.filter(|text| !text.is_empty())))
}

/// Takes the tokens of an earlier answer.
fn context(fields: &mut Fields) -> Result<Vec<u32>, ApiError> {
    match fields.ids("context") {
        Some(Ids::One(tokens)) => Ok(tokens),
        None if fields.list("context")?.is_none() => Ok(Vec::new()),
        _ => Err(ApiError::bad_request("context must be a list of token ids")),
    }
}

fn images(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let images = fields.texts("images")?;
    images.iter().try_for_each(|image| check_image(image))?;
    Ok(images)
}

/// Reads an image so far that a broken one is refused at once.
pub(crate) fn check_image(image: &str) -> Result<(), ApiError> {
    crate::images::decode(image).map(drop)
}

/// Reads `format`.
pub(crate) fn grammar(format: Value) -> Result<Option<GrammarSpec>, ApiError> {
    grammar_of(&format)
}

pub(crate) fn think(value: &Value) -> Result<Think, ApiError> {
    match value {
        Value::Bool(true) => Ok(Think::On),
        Value::Bool(false) => Ok(Think::Off),
        Value::String(text) => match text.as_str() {
            "low" => Ok(Think::Low),
            "medium" => Ok(Think::Medium),
            "high" => Ok(Think::High),
            "max" => Ok(Think::Max),
            "true" => Ok(Think::On),
            "false" => Ok(Think::Off),
            _ => Err(ApiError::bad_request(format!(
                "invalid think value: {text:?} (must be \"high\", \"medium\", \"low\", \"max\", true, or false)"
            ))),
        },
        _ => Err(ApiError::bad_request(
            "think must be a boolean or one of \"high\", \"medium\", \"low\", \"max\"",
        )),
    }
}

fn message(mut fields: Fields) -> Result<Message, ApiError> {
    Ok(Message {
        role: fields.text("role")?.unwrap_or_default().to_lowercase(),
        content: fields.text("content")?.unwrap_or_default(),
        thinking: fields.text("thinking")?.unwrap_or_default(),
        images: images(&mut fields)?,
        tool_calls: fields.each("tool_calls", tool_call)?,
        tool_name: fields.text("tool_name")?.unwrap_or_default(),
        tool_call_id: fields.text("tool_call_id")?.unwrap_or_default(),
    })
}

/// Parses a stored message of a model; one that is none is left out.
pub(crate) fn stored_message(value: &Value) -> Option<Message> {
    message(Fields::from(value.as_object()?.clone())).ok()
}

fn tool_call(mut fields: Fields) -> Result<ToolCall, ApiError> {
    let mut function = Fields::from(fields.object("function")?.unwrap_or_default());
    Ok(ToolCall {
        id: fields.text("id")?.unwrap_or_default(),
        function: ToolCallFunction {
            index: function
                .integer("index")?
                .and_then(|index| index.try_into().ok())
                .unwrap_or(0),
            name: function.text("name")?.unwrap_or_default(),
            arguments: function.object("arguments")?.unwrap_or_default(),
        },
    })
}

fn tool(mut fields: Fields) -> Result<Tool, ApiError> {
    let mut function = Fields::from(fields.object("function")?.unwrap_or_default());
    Ok(Tool {
        kind: fields.text("type")?.unwrap_or_else(|| "function".into()),
        function: ToolFunction {
            name: function.text("name")?.unwrap_or_default(),
            description: function.text("description")?.unwrap_or_default(),
            parameters: function.take("parameters").unwrap_or_default(),
            strict: function.bool("strict")?.unwrap_or(false),
        },
    })
}

/// Writes answers of `/api/generate` and `/api/chat`.
pub(crate) struct NativeEncoder {
    model: String,
    chat: bool,
    raw: bool,
}

impl NativeEncoder {
    pub(crate) fn new(job: &Job) -> NativeEncoder {
        NativeEncoder {
            model: job.model.clone(),
            chat: matches!(job.input, Input::Chat { .. }),
            raw: matches!(&job.input, Input::Generate(generate) if generate.raw),
        }
    }

    /// Writes an object with what was said; the last one has an `end`.
    fn object(&self, said: Delta, end: Option<&End>) -> Value {
        let said = said.gather();
        let done = end.is_some();
        let done_reason = end.map(|end| reason(end.reason).to_owned());
        let metrics = end.map(|end| end.metrics).unwrap_or_default();
        let logprobs = said.tokens.iter().map(logprob).collect();
        let (model, created_at) = (self.model.clone(), clock::now());
        if self.chat {
            to_value(&ChatResponse {
                model,
                created_at,
                message: Message {
                    role: "assistant".into(),
                    content: said.content,
                    thinking: said.thinking,
                    tool_calls: said.calls,
                    ..Message::default()
                },
                done,
                done_reason,
                logprobs,
                metrics,
            })
        } else {
            let context = end.filter(|_| !self.raw).map(|end| end.context.clone());
            to_value(&GenerateResponse {
                model,
                created_at,
                response: said.content,
                thinking: said.thinking,
                tool_calls: said.calls,
                done,
                done_reason,
                context: context.unwrap_or_default(),
                logprobs,
                metrics,
            })
        }
    }
}

impl ResponseEncoder for NativeEncoder {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn part(&mut self, said: Delta, out: &mut StreamBuffer) {
        out.line(&self.object(said, None));
    }

    /// Calls and text came before: the end says nothing more.
    fn end(&mut self, end: &End, out: &mut StreamBuffer) {
        out.line(&self.object(Delta::default(), Some(end)));
    }

    fn error(&mut self, error: &ApiError, out: &mut StreamBuffer) {
        out.line(&error.line());
    }

    fn whole(&mut self, said: Delta, end: &End) -> Value {
        self.object(said, Some(end))
    }
}

/// Writes the answer to a request that shows its prompt.
pub(crate) struct Rendered {
    model: String,
    chat: bool,
}

impl Rendered {
    pub(crate) fn of(job: &Job) -> Rendered {
        Rendered {
            model: job.model.clone(),
            chat: matches!(job.input, Input::Chat { .. }),
        }
    }

    pub(crate) fn write(self, prompt: &str, n_images: usize) -> Value {
        let mut object = json!({ "model": self.model, "created_at": clock::now() });
        if self.chat {
            object["message"] = json!({"role": "assistant", "content": ""});
        } else {
            object["response"] = json!("");
        }
        object["done"] = json!(false);
        object["_debug_info"] = json!({"rendered_template": prompt, "image_count": n_images});
        object
    }
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
        Reason::Load => "load",
        Reason::Unload => "unload",
    }
}

/// Writes the probability of a token.
pub(crate) fn logprob(token: &TokenInfo) -> LogProb {
    let one = |logprob, bytes: &[u8]| LogProb {
        token: String::from_utf8_lossy(bytes).into_owned(),
        logprob,
        bytes: bytes.to_vec(),
        top_logprobs: None,
    };
    let top = token
        .top
        .iter()
        .map(|(_, logprob, bytes)| one(*logprob, bytes))
        .collect();
    LogProb {
        top_logprobs: Some(top),
        ..one(token.logprob, &token.bytes)
    }
}
