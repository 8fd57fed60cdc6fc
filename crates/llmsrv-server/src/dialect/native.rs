//! The native dialect (`/api/*`), both directions.

use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::Ids,
    members::{FromValue as _, IdsOr},
    native::{ChatResponse, GenerateResponse, LogProb, Message, Tool},
    one_of,
    options::Options,
    request, words,
};
use llmsrv_engine::{GrammarSpec, TokenInfo};
use serde_json::{Map, Value, json};

use super::{Delta, End, Framing, Reason, ResponseEncoder, StreamBuffer, to_value};
use crate::{
    clock,
    error::{ApiError, refuse},
    format::grammar_of,
    job::{Generate, Input, Job},
};

request! {
    /// The model that a request names, where new and old clients put its name.
    pub(crate) struct Named {
        /// Name of the model, such as `qwen3:8b`, `nomic-embed-text`, `hf.co/user/repository:Q4_K_M`
        /// or `host/name:tag`.
        model: String,
        #[schema(ignore)] name: String,
    }

    pub(crate) struct GenerateRequest with text: TextPart {
        /// The text to continue; empty loads the model.
        prompt: Option<String>,
        /// Text after the gap that the model fills.
        suffix: Option<String>,
        /// In place of the model's system text.
        system: Option<String>,
        /// In place of the model's template.
        template: Option<String>,
        /// Tokens of earlier turns, as an answer's `context` has them.
        #[schema(value_type = Option<Vec<u32>>)] context: Option<IdsOr>,
        /// Use the prompt as it is.
        raw: Option<bool>,
        /// Images, base64.
        images: Option<Vec<String>>,
    }

    pub(crate) struct ChatRequest with text: TextPart {
        /// The conversation so far; none loads the model.
        messages: Option<Vec<Message>>,
        /// Tools the model may call.
        tools: Option<Vec<Tool>>,
    }

    /// What all requests for text have.
    struct TextPart with named: Named {
        /// Line by line; this is the default.
        stream: Option<bool>,
        format: Option<Format>,
        #[schema(value_type = Option<Options>)] options: Map<String, Value>,
        keep_alive: Option<KeepAlive>,
        think: Option<Think>,
        /// Drop old messages, or cut the prompt, when it is too long; this is the default.
        truncate: Option<bool>,
        /// Discard old tokens when the context is full; this is the default.
        shift: Option<bool>,
        /// A number to add for each of these tokens.
        #[schema(value_type = Option<Object>)] logit_bias: Map<String, Value>,
        /// Report the probabilities of the tokens.
        logprobs: Option<bool>,
        /// Alternatives reported for each token.
        #[schema(minimum = 0, maximum = 20)] top_logprobs: Option<i64>,
        /// Return the rendered prompt and run nothing.
        _debug_render_only: Option<bool>,
    }
}

one_of! {
    /// What the answer must match: `"json"` or a JSON Schema; `""` = anything.
    pub(crate) enum Format {
        Name(FormatName),
        #[schema(value_type = Object)] Schema(Map<String, Value>),
    } else |_, value| ApiError::invalid_format(value).to_string()
}

words! {
    pub(crate) struct FormatName(Option<GrammarSpec>) {
        "json" => Some(GrammarSpec::Json),
        "" => None,
    } else |word| ApiError::invalid_format(&word.into()).to_string()
}

one_of! {
    /// Whether the model thinks first, and how hard.
    pub(crate) enum Think {
        Switch(bool),
        Level(Level),
    } else |_, _| "think must be a boolean or one of \"high\", \"medium\", \"low\", \"max\"".into()
}

words! {
    pub(crate) struct Level(llmsrv_chat::Think) {
        "low" => llmsrv_chat::Think::Low,
        "medium" => llmsrv_chat::Think::Medium,
        "high" => llmsrv_chat::Think::High,
        "max" => llmsrv_chat::Think::Max,
        "true" => llmsrv_chat::Think::On,
        "false" => llmsrv_chat::Think::Off,
    } else |word| format!(
        "invalid think value: {word:?} (must be \"high\", \"medium\", \"low\", \"max\", true, or false)"
    )
}

impl Named {
    /// Returns the name.
    pub(crate) fn required(self) -> Result<String, ApiError> {
        let mut names = [self.model, self.name].into_iter();
        names
            .find(|name| !name.is_empty())
            .ok_or_else(ApiError::model_required)
    }
}

impl Think {
    pub(crate) fn job(self) -> llmsrv_chat::Think {
        match self {
            Think::Switch(true) => llmsrv_chat::Think::On,
            Think::Switch(false) => llmsrv_chat::Think::Off,
            Think::Level(Level(think)) => think,
        }
    }
}

impl Format {
    fn grammar(self) -> Result<Option<GrammarSpec>, ApiError> {
        match self {
            Format::Name(FormatName(grammar)) => Ok(grammar),
            Format::Schema(schema) => grammar_of(&schema.into()),
        }
    }
}

impl TextPart {
    fn job(self, input: Input) -> Result<Job, ApiError> {
        let model = self.named.required()?;
        let (options, without_effect) = Options::read(&self.options)?;
        if !without_effect.is_empty() {
            tracing::warn!(options = ?without_effect, "options without effect");
        }
        let top = top_logprobs(self.top_logprobs)?;
        Ok(Job {
            options,
            without_effect,
            keep_alive: self.keep_alive,
            grammar: self.format.map_or(Ok(None), Format::grammar)?,
            logit_bias: logit_bias(&self.logit_bias)?,
            think: self.think.map(Think::job),
            truncate: self.truncate.unwrap_or(true),
            shift: self.shift.unwrap_or(true),
            logprobs: self.logprobs.unwrap_or(false).then_some(top),
            stream: self.stream.unwrap_or(true),
            render_only: self._debug_render_only.unwrap_or(false),
            ..Job::new(model, input)
        })
    }
}

/// Makes a job of a request of `/api/generate`.
pub(crate) fn generate(request: GenerateRequest) -> Result<Job, ApiError> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let generate = Generate {
        prompt: request.prompt.unwrap_or_default(),
        suffix: request.suffix.unwrap_or_default(),
        system: given(request.system),
        template: given(request.template),
        context: match request.context {
            None => Vec::new(),
            Some(IdsOr::Ids(Ids::One(tokens))) => tokens,
            Some(IdsOr::Other(other)) if !other.is_array() => refuse!("context must be a list"),
            Some(_) => refuse!("context must be a list of token ids"),
        },
        raw: request.raw.unwrap_or(false),
        images: request.images.unwrap_or_default(),
    };
    let mut images = generate.images.iter();
    images.try_for_each(|image| check_image(image))?;
    if generate.raw
        && (generate.template.is_some()
            || generate.system.is_some()
            || !generate.context.is_empty())
    {
        refuse!("raw mode does not support template, system, or context");
    }
    request.text.job(Input::Generate(generate))
}

/// Makes a job of a request of `/api/chat`.
pub(crate) fn chat(request: ChatRequest) -> Result<Job, ApiError> {
    let messages = request.messages.unwrap_or_default().into_iter();
    let messages = messages.map(checked).collect::<Result<_, _>>()?;
    let tools = request.tools.unwrap_or_default();
    request.text.job(Input::Chat { messages, tools })
}

/// Reads how many alternatives of a token are reported.
pub(crate) fn top_logprobs(asked: Option<i64>) -> Result<usize, ApiError> {
    let top = usize::try_from(asked.unwrap_or(0)).ok();
    top.filter(|top| *top <= 20)
        .ok_or_else(|| ApiError::bad_request("top_logprobs must be between 0 and 20"))
}

/// Reads what is to be added to the logits of tokens: an object from ids to numbers.
pub(crate) fn logit_bias(given: &Map<String, Value>) -> Result<Vec<(u32, f32)>, ApiError> {
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

/// Reads an image so far that a broken one is refused at once.
pub(crate) fn check_image(image: &str) -> Result<(), ApiError> {
    crate::images::decode(image).map(drop)
}

fn checked(mut message: Message) -> Result<Message, ApiError> {
    message.role = message.role.to_lowercase();
    let mut images = message.images.iter();
    images.try_for_each(|image| check_image(image))?;
    Ok(message)
}

/// Parses a stored message of a model; one that is none is left out.
pub(crate) fn stored_message(value: &Value) -> Option<Message> {
    checked(Message::from_value(value.clone(), "messages").ok()?).ok()
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
