//! `/v1/chat/completions`.

use llmsrv_api::{
    lenient::Fields,
    members::FromValue as _,
    native::{Message, Tool, ToolCall},
    one_of, request, tagged, words,
};
use serde_json::{Value, json};

use super::{
    Common, FINGERPRINT, ResponseFormat,
    answer::{AssistantMessage, ChatChoice, ChatCompletion, ChatLogProbs, OpenAiToolCall, Usage},
    response_format, seconds,
};
use crate::{
    dialect::{
        Delta, End, Family, Framing, Gathered, ResponseEncoder, StreamBuffer, id24,
        native::{self, Think},
        parts::{self, Effort},
        to_value,
    },
    error::{ApiError, refuse},
    job::{Input, Job, ToolChoice},
};

request! {
    /// What a client of this dialect says of a conversation.
    pub(crate) struct ChatCompletionRequest with common: Common {
        #[schema(min_items = 1)] messages: Vec<OpenAiMessage>,
        tools: Option<Vec<OpenAiTool>>,
        tool_choice: Option<OpenAiToolChoice>,
        /// More than one call may be in an answer; this is the default.
        parallel_tool_calls: Option<bool>,
        #[schema(value_type = Option<ResponseFormat>)] response_format: Option<Value>,
        logprobs: Option<bool>,
        #[schema(minimum = 0, maximum = 20)] top_logprobs: Option<i64>,
        think: Option<Think>,
        reasoning_effort: Option<Effort>,
        reasoning: Option<Reasoning>,
        #[schema(ignore)] chat_template_kwargs: Fields,
    }

    object OpenAiMessage {
        /// `system`, `developer`, `user`, `assistant` or `tool`.
        role: String,
        /// May be missing beside calls.
        #[schema(value_type = OpenAiContent)] content: Option<OpenAiContent>,
        tool_calls: Option<Vec<OpenAiToolCall>>,
        tool_call_id: Option<String>,
        /// Of the tool, in messages with its result.
        #[schema(value_type = Option<String>)] name: Option<Value>,
        /// The thinking of an earlier answer.
        reasoning: Option<String>,
        reasoning_content: Option<String>,
    }

    object OpenAiTool {
        #[schema(value_type = FunctionType)] r#type: Option<FunctionType>,
        function: OpenAiFunction,
    }

    object OpenAiFunction {
        #[schema(min_length = 1)] name: String,
        description: Option<String>,
        /// Arguments satisfy the schema whatever the model would like to say.
        strict: Option<bool>,
        /// JSON Schema of the arguments.
        #[schema(value_type = Option<Object>)] parameters: Option<Value>,
    }

    /// How hard to think.
    pub(crate) object Reasoning {
        pub(crate) effort: Option<Effort>,
    }

    object ImageAddress {
        #[schema(value_type = String)] url: Option<String>,
    }
}

words! {
    struct FunctionType(()) {
        "function" => (),
    } else |kind| format!("tools of type {kind:?} are not supported")
}

one_of! {
    enum OpenAiContent {
        Text(String),
        Parts(Vec<OpenAiPart>),
    } else |_, value| if value.is_array() {
        "invalid message format".into()
    } else {
        "invalid message content type".into()
    }
}

tagged! {
    enum OpenAiPart {
        "text" => Text {
            #[schema(value_type = String)] text: Option<String>,
        }
        "image_url" => Image {
            #[schema(value_type = ImageUrl)] image_url: Option<ImageUrl>,
        }
    }
}

one_of! {
    /// The data of an image: `data:image/png;base64,...`.
    enum ImageUrl {
        Text(String),
        Object(ImageAddress),
    } else |_, _| "invalid message format".into()
}

one_of! {
    /// `none`, `auto`, `required`, or a function that must be called.
    pub(crate) enum OpenAiToolChoice {
        Word(String),
        #[schema(value_type = Object)] Function(Fields),
    } else |_, _| "invalid tool_choice".into()
}

/// Makes a job of a request, and what writes its answer.
pub(crate) fn chat(request: ChatCompletionRequest) -> Result<(Job, ChatEncoder), ApiError> {
    let common = request.common;
    let messages = request.messages.into_iter().map(message);
    let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
    parts::link_calls(&mut messages);
    let tools = request.tools.unwrap_or_default().into_iter().map(tool);
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    let choice = tool_choice(request.tool_choice, &tools)?;
    let include_usage = common.include_usage();
    let mut job = common.job(Input::Chat { messages, tools })?;
    if job.is_empty() {
        refuse!("[] is too short - 'messages'");
    }
    job.tool_choice = choice;
    job.parallel_calls = request.parallel_tool_calls.unwrap_or(true);
    job.grammar = request.response_format.map_or(Ok(None), response_format)?;
    // What several clients say about thinking.
    let effort = request.reasoning_effort;
    let effort = effort.or(request.reasoning.and_then(|reasoning| reasoning.effort));
    // An effort is a wish: clients send theirs to every model.
    job.think_if_able = request.think.is_none();
    job.think = match (request.think, effort) {
        (Some(think), _) => Some(think.job()),
        (None, Some(Effort(think))) => Some(think),
        (None, None) => think_of_template(request.chat_template_kwargs)?,
    };
    let top = native::top_logprobs(request.top_logprobs)?;
    job.logprobs = request.logprobs.unwrap_or(false).then_some(top);
    let writer = ChatEncoder {
        id: format!("chatcmpl-{}", id24()),
        model: job.model.clone(),
        created: seconds(),
        include_usage,
        answers: Vec::new(),
    };
    Ok((job, writer))
}

/// Returns what is said of thinking in the words of templates, of which each has its own.
fn think_of_template(mut kwargs: Fields) -> Result<Option<llmsrv_chat::Think>, ApiError> {
    let enabled = kwargs.get::<Option<bool>>("enable_thinking")?;
    let enabled = enabled.or(kwargs.get("thinking").ok().flatten());
    if enabled == Some(false) {
        return Ok(Some(llmsrv_chat::Think::Off));
    }
    let effort = kwargs.get::<Option<Effort>>("reasoning_effort");
    Ok(effort.ok().flatten().map(|Effort(think)| think))
}

fn message(sent: OpenAiMessage) -> Result<Message, ApiError> {
    let role = sent.role.to_lowercase();
    let calls = sent.tool_calls.unwrap_or_default().into_iter();
    let mut message = Message {
        role: if role == "developer" {
            "system".into()
        } else {
            role
        },
        thinking: sent
            .reasoning_content
            .or(sent.reasoning)
            .unwrap_or_default(),
        tool_calls: calls.map(tool_call).collect::<Result<_, _>>()?,
        tool_call_id: sent.tool_call_id.unwrap_or_default(),
        ..Message::default()
    };
    if message.role == "tool"
        && let Some(name) = sent.name
    {
        message.tool_name = String::from_value(name, "name")?;
    }
    match sent.content {
        Some(OpenAiContent::Text(text)) => message.content = text,
        Some(OpenAiContent::Parts(parts)) => {
            for part in parts {
                add_part(part, &mut message)?;
            }
        }
        None if message.role == "assistant" => {}
        None => refuse!("invalid message content type: <nil>"),
    }
    Ok(message)
}

fn add_part(part: OpenAiPart, message: &mut Message) -> Result<(), ApiError> {
    let url = match part {
        OpenAiPart::Text { text: Some(text) } => {
            parts::append(&mut message.content, &text);
            return Ok(());
        }
        OpenAiPart::Image { image_url } => match image_url {
            Some(ImageUrl::Text(url)) => Some(url),
            Some(ImageUrl::Object(address)) => address.url,
            None => None,
        },
        OpenAiPart::Other(kind) if kind == "input_audio" => {
            refuse!("audio input is not supported")
        }
        OpenAiPart::Text { text: None } | OpenAiPart::Other(_) => None,
    };
    let url = url.ok_or_else(|| ApiError::bad_request("invalid message format"))?;
    message.images.push(parts::image(&url)?);
    Ok(())
}

fn tool_call(call: OpenAiToolCall) -> Result<ToolCall, ApiError> {
    let (id, name) = (call.id, call.function.name);
    match call.function.arguments {
        Value::String(arguments) => parts::call(id, name, &arguments),
        Value::Null => parts::call(id, name, ""),
        _ => Err(ApiError::bad_request("invalid tool call arguments")),
    }
}

fn tool(tool: OpenAiTool) -> Result<Tool, ApiError> {
    let function = tool.function;
    if function.name.is_empty() {
        refuse!("a tool needs function.name");
    }
    let (name, description) = (function.name, function.description);
    Ok(parts::tool(
        name,
        description,
        function.parameters,
        function.strict,
    ))
}

fn tool_choice(choice: Option<OpenAiToolChoice>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let choice = match choice {
        None => return Ok(ToolChoice::Auto),
        Some(OpenAiToolChoice::Word(word)) => match word.as_str() {
            "auto" => return Ok(ToolChoice::Auto),
            "none" => return Ok(ToolChoice::None),
            "required" => ToolChoice::Required,
            _ => refuse!(
                "invalid tool_choice: {word:?} (must be \"none\", \"auto\", \"required\" or a function)"
            ),
        },
        Some(OpenAiToolChoice::Function(mut choice)) => {
            let mut function: Fields = choice.get("function")?;
            let name: Option<String> = function.get("name")?;
            let missing = || ApiError::bad_request("tool_choice needs function.name");
            ToolChoice::Named(name.ok_or_else(missing)?)
        }
    };
    parts::check_choice(choice, tools)
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
