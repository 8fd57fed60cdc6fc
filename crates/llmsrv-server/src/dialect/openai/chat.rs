//! `/v1/chat/completions`.

use llmsrv_api::{
    lenient::Fields,
    native::{Message, Tool, ToolCall},
};
use serde_json::{Value, json};

use super::{
    FINGERPRINT,
    answer::{AssistantMessage, ChatChoice, ChatCompletion, ChatLogProbs, OpenAiToolCall, Usage},
    common, include_usage, response_format, seconds,
};
use crate::{
    dialect::{
        Delta, End, Family, Framing, Gathered, ResponseEncoder, StreamBuffer, id24, native, parts,
        to_value,
    },
    error::{ApiError, refuse},
    job::{Input, Job, ToolChoice},
};

/// Parses a request.
pub(crate) fn parse_chat(mut fields: Fields) -> Result<(Job, ChatEncoder), ApiError> {
    let model = native::model_name(&mut fields)?.ok_or_else(ApiError::model_required)?;
    let mut messages = fields.each("messages", message)?;
    if messages.is_empty() {
        refuse!("[] is too short - 'messages'");
    }
    parts::link_calls(&mut messages);
    let tools = fields.each("tools", tool)?;
    let choice = tool_choice(fields.take("tool_choice"), &tools)?;

    let mut job = Job::new(model, Input::Chat { messages, tools });
    job.tool_choice = choice;
    job.parallel_calls = fields.bool("parallel_tool_calls")?.unwrap_or(true);
    common(&mut fields, &mut job)?;
    let format = fields.object("response_format")?;
    job.grammar = format.map_or(Ok(None), response_format)?;
    job.think = think(&mut fields)?;
    let top = fields.integer("top_logprobs")?.unwrap_or(0);
    let top = usize::try_from(top).ok().filter(|top| *top <= 20);
    let top = top.ok_or_else(|| ApiError::bad_request("top_logprobs must be between 0 and 20"))?;
    job.logprobs = fields.bool("logprobs")?.unwrap_or(false).then_some(top);
    let writer = ChatEncoder {
        id: format!("chatcmpl-{}", id24()),
        model: job.model.clone(),
        created: seconds(),
        include_usage: include_usage(&mut fields)?,
        answers: Vec::new(),
    };
    Ok((job, writer))
}

fn message(mut fields: Fields) -> Result<Message, ApiError> {
    let role = fields.text("role")?.unwrap_or_default().to_lowercase();
    let mut message = Message {
        role: if role == "developer" {
            "system".into()
        } else {
            role
        },
        ..Message::default()
    };
    message.tool_calls = fields.each("tool_calls", tool_call)?;
    match fields.take("content") {
        Some(Value::String(text)) => message.content = text,
        Some(Value::Array(parts)) => {
            for part in parts {
                content_part(part, &mut message)?;
            }
        }
        None if !message.tool_calls.is_empty() => {}
        None => refuse!("invalid message content type: <nil>"),
        Some(_) => refuse!("invalid message content type"),
    }
    for name in ["reasoning", "reasoning_content"] {
        if let Some(text) = fields.text(name)? {
            message.thinking = text;
        }
    }
    message.tool_call_id = fields.text("tool_call_id")?.unwrap_or_default();
    if message.role == "tool" {
        message.tool_name = fields.text("name")?.unwrap_or_default();
    }
    Ok(message)
}

fn content_part(part: Value, message: &mut Message) -> Result<(), ApiError> {
    let invalid = || ApiError::bad_request("invalid message format");
    let Value::Object(part) = part else {
        return Err(invalid());
    };
    let mut part = Fields::from(part);
    match part.text("type")?.as_deref() {
        Some("text") => {
            let text = part.text("text")?.ok_or_else(invalid)?;
            if !message.content.is_empty() {
                message.content.push('\n');
            }
            message.content.push_str(&text);
        }
        Some("image_url") => {
            let url = match part.take("image_url") {
                Some(Value::String(url)) => Some(url),
                Some(Value::Object(inner)) => Fields::from(inner).text("url")?,
                _ => None,
            };
            message
                .images
                .push(parts::image(&url.ok_or_else(invalid)?)?);
        }
        Some("input_audio") => refuse!("audio input is not supported"),
        _ => return Err(invalid()),
    }
    Ok(())
}

fn tool_call(mut fields: Fields) -> Result<ToolCall, ApiError> {
    let mut function = Fields::from(fields.object("function")?.unwrap_or_default());
    let name = function.text("name")?.unwrap_or_default();
    let id = fields.text("id")?.unwrap_or_default();
    match function.take("arguments") {
        Some(Value::String(arguments)) => parts::call(id, name, &arguments),
        None => parts::call(id, name, ""),
        Some(_) => Err(ApiError::bad_request("invalid tool call arguments")),
    }
}

fn tool(mut fields: Fields) -> Result<Tool, ApiError> {
    let kind = fields.text("type")?.unwrap_or_else(|| "function".into());
    if kind != "function" {
        refuse!("tools of type {kind:?} are not supported");
    }
    let mut function = Fields::from(fields.object("function")?.unwrap_or_default());
    let name = function.text("name")?.filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| ApiError::bad_request("a tool needs function.name"))?;
    let description = function.text("description")?;
    let strict = function.bool("strict")?;
    let parameters = function.take("parameters");
    Ok(parts::tool(name, description, parameters, strict))
}

fn tool_choice(choice: Option<Value>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let choice = match choice {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => return Ok(ToolChoice::Auto),
            "none" => return Ok(ToolChoice::None),
            "required" => ToolChoice::Required,
            _ => refuse!(
                "invalid tool_choice: {word:?} (must be \"none\", \"auto\", \"required\" or a function)"
            ),
        },
        Some(Value::Object(choice)) => {
            let mut choice = Fields::from(choice);
            let mut function = Fields::from(choice.object("function")?.unwrap_or_default());
            let name = function.text("name")?;
            let name =
                name.ok_or_else(|| ApiError::bad_request("tool_choice needs function.name"))?;
            ToolChoice::Named(name)
        }
        Some(_) => refuse!("invalid tool_choice"),
    };
    parts::check_choice(choice, tools)
}

/// Takes what several clients say about thinking.
fn think(fields: &mut Fields) -> Result<Option<llmsrv_chat::Think>, ApiError> {
    if let Some(value) = fields.take("think") {
        return native::think(&value).map(Some);
    }
    let reasoning = fields.object("reasoning")?.unwrap_or_default();
    let effort = fields
        .text("reasoning_effort")?
        .or(Fields::from(reasoning).text("effort")?);
    if let Some(effort) = effort {
        return parts::effort(&effort).map(Some);
    }
    let kwargs = fields.object("chat_template_kwargs")?.unwrap_or_default();
    match Fields::from(kwargs).bool("enable_thinking")? {
        Some(false) => Ok(Some(llmsrv_chat::Think::Off)),
        _ => Ok(None),
    }
}

/// Writes an answer.
pub(crate) struct ChatEncoder {
    id: String,
    model: String,
    created: i64,
    include_usage: bool,
    answers: Vec<Progress>,
}

/// How far an answer is.
#[derive(Clone, Default)]
struct Progress {
    /// The role has been said.
    begun: bool,
    n_calls: usize,
}

impl ChatEncoder {
    fn answer(
        &self,
        object: &'static str,
        choices: Vec<ChatChoice>,
        usage: Option<Usage>,
    ) -> Value {
        to_value(&ChatCompletion {
            id: self.id.clone(),
            object,
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage,
        })
    }

    /// What an event says, of one answer if any.
    fn chunk(&self, choice: Option<ChatChoice>, usage: Option<Usage>) -> Value {
        self.answer("chat.completion.chunk", choice.into_iter().collect(), usage)
    }

    fn progress(&mut self, answer: usize) -> &mut Progress {
        if self.answers.len() <= answer {
            self.answers.resize(answer + 1, Progress::default());
        }
        &mut self.answers[answer]
    }

    fn delta(
        &mut self,
        answer: usize,
        mut delta: AssistantMessage,
        logprobs: Option<ChatLogProbs>,
        out: &mut StreamBuffer,
    ) {
        if !std::mem::replace(&mut self.progress(answer).begun, true) {
            delta.role = Some("assistant");
            delta.content.get_or_insert(json!(""));
        }
        let choice = ChatChoice {
            index: answer,
            delta: Some(delta),
            logprobs,
            ..ChatChoice::default()
        };
        out.data(&self.chunk(Some(choice), None));
    }

    fn finish_reason(&mut self, answer: usize, end: &End) -> &'static str {
        match (parts::is_cut(end), self.progress(answer).n_calls) {
            (true, _) => "length",
            (false, 0) => "stop",
            (false, _) => "tool_calls",
        }
    }

    /// What was said of a message; what was not is absent.
    fn message(&mut self, answer: usize, said: &Gathered) -> AssistantMessage {
        let present = |text: &String| (!text.is_empty()).then(|| text.clone());
        let progress = self.progress(answer);
        let first = progress.n_calls;
        progress.n_calls += said.calls.len();
        let calls = said.calls.iter().zip(first..);
        let calls = calls.map(|(call, index)| OpenAiToolCall::new(call, index));
        AssistantMessage {
            role: None,
            content: present(&said.content).map(Value::from),
            reasoning: present(&said.thinking),
            reasoning_content: present(&said.thinking),
            tool_calls: (!said.calls.is_empty()).then(|| calls.collect()),
        }
    }

    /// A whole answer.
    fn choice(&mut self, said: Delta, end: &End) -> ChatChoice {
        let index = said.answer;
        let said = said.gather();
        let mut message = self.message(index, &said);
        message.role = Some("assistant");
        // Beside calls, nothing is null and not a text without letters.
        message.content.get_or_insert(if said.calls.is_empty() {
            json!("")
        } else {
            Value::Null
        });
        ChatChoice {
            index,
            message: Some(message),
            finish_reason: Some(self.finish_reason(index, end)),
            logprobs: logprobs(&said.tokens),
            ..ChatChoice::default()
        }
    }
}

impl ResponseEncoder for ChatEncoder {
    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn part(&mut self, said: Delta, out: &mut StreamBuffer) {
        let answer = said.answer;
        let said = said.gather();
        let delta = self.message(answer, &said);
        self.delta(answer, delta, logprobs(&said.tokens), out);
    }

    fn answer_end(&mut self, answer: usize, end: &End, out: &mut StreamBuffer) {
        if !self.progress(answer).begun {
            self.delta(answer, AssistantMessage::default(), None, out);
        }
        let choice = ChatChoice {
            index: answer,
            delta: Some(AssistantMessage::default()),
            finish_reason: Some(self.finish_reason(answer, end)),
            ..ChatChoice::default()
        };
        out.data(&self.chunk(Some(choice), None));
    }

    fn end(&mut self, end: &End, out: &mut StreamBuffer) {
        if self.include_usage {
            out.data(&self.chunk(None, Some(Usage::of(end))));
        }
        out.raw("data: [DONE]\n\n");
    }

    fn error(&mut self, error: &ApiError, out: &mut StreamBuffer) {
        out.data(&Family::OpenAi.error(error));
    }

    fn whole(&mut self, said: Delta, end: &End) -> Value {
        self.wholes(vec![(said, end.clone())], end)
    }

    fn wholes(&mut self, answers: Vec<(Delta, End)>, total: &End) -> Value {
        let choices = answers
            .into_iter()
            .map(|(said, end)| self.choice(said, &end));
        let choices = choices.collect();
        self.answer("chat.completion", choices, Some(Usage::of(total)))
    }
}

fn logprobs(tokens: &[llmsrv_engine::TokenInfo]) -> Option<ChatLogProbs> {
    (!tokens.is_empty()).then(|| ChatLogProbs {
        content: tokens.iter().map(native::logprob).collect(),
    })
}
