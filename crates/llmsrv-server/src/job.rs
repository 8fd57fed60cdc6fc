//! Requests for text and for vectors that are right in themselves, their dialect forgotten.

use std::{sync::Arc, time::Duration};

use llmsrv_api::{
    keep_alive::KeepAlive,
    native::{Message, Tool},
    options::{OptionError, Options},
};
use llmsrv_chat::Think;
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value};

/// What a client wants of a model.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name as the client sent it; answers echo it.
    pub model: String,
    /// What the model is given.
    pub input: Input,
    /// Options that were given.
    pub options: Options,
    /// Names of those that were given and have no effect.
    pub without_effect: Vec<String>,
    /// How long the model stays loaded afterwards.
    pub keep_alive: Option<KeepAlive>,
    /// What the answer must match.
    pub grammar: Option<GrammarSpec>,
    /// Which tools the model may or must call.
    pub tool_choice: ToolChoice,
    /// An answer may hold more than one call.
    pub parallel_calls: bool,
    /// What is added to the logits of tokens, by id.
    pub logit_bias: Vec<(u32, f32)>,
    /// What the request says about thinking.
    pub think: Option<Think>,
    /// Do not think on a model that cannot, rather than refuse.
    pub think_if_able: bool,
    /// Drop old messages when the prompt is too long.
    pub truncate: bool,
    /// Discard old tokens when the context is full.
    pub shift: bool,
    /// Report log-probabilities, with so many alternatives.
    pub logprobs: Option<usize>,
    /// Send the answer as it comes.
    pub stream: bool,
    /// So many answers to the same prompt.
    pub n_answers: usize,
    /// Of which the client gets so many: the most probable ones.
    pub n_best: usize,
    /// Return the prompt and run nothing.
    pub render_only: bool,
}

/// Which tools a model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// None; the prompt does not show them.
    None,
    /// What the model likes.
    #[default]
    Auto,
    /// At least one, any of them.
    Required,
    /// The one with this name.
    Named(String),
}

/// What a model is given.
#[derive(Clone, Debug)]
pub enum Input {
    /// One prompt.
    Generate(Generate),
    /// A conversation.
    Chat {
        /// The messages so far.
        messages: Vec<Message>,
        /// Tools the model may call.
        tools: Vec<Tool>,
    },
}

/// One prompt and how to wrap it.
#[derive(Clone, Debug, Default)]
pub struct Generate {
    /// The text; empty = only load the model.
    pub prompt: String,
    /// Text after the gap that the model fills.
    pub suffix: String,
    /// In place of the model's system text.
    pub system: Option<String>,
    /// In place of the model's template.
    pub template: Option<String>,
    /// Tokens of earlier turns.
    pub context: Vec<u32>,
    /// Use the prompt as it is.
    pub raw: bool,
    /// Images, base64.
    pub images: Vec<String>,
}

impl Job {
    /// The tools that the model is shown.
    pub fn tools(&self) -> &[Tool] {
        match &self.input {
            Input::Chat { tools, .. } if self.tool_choice != ToolChoice::None => tools,
            _ => &[],
        }
    }

    /// The tools of which one must be called; none if the model is free.
    pub fn forced_tools(&self) -> Vec<Tool> {
        let is_forced = |tool: &&Tool| match &self.tool_choice {
            ToolChoice::None | ToolChoice::Auto => false,
            ToolChoice::Required => true,
            ToolChoice::Named(name) => tool.function.name == *name,
        };
        self.tools().iter().filter(is_forced).cloned().collect()
    }

    /// A request that says no more than this; streaming is left to the dialect.
    pub fn new(model: String, input: Input) -> Job {
        Job {
            model,
            input,
            options: Options::default(),
            without_effect: Vec::new(),
            keep_alive: None,
            grammar: None,
            tool_choice: ToolChoice::default(),
            parallel_calls: true,
            logit_bias: Vec::new(),
            think: None,
            think_if_able: false,
            truncate: true,
            shift: true,
            logprobs: None,
            stream: false,
            n_answers: 1,
            n_best: 1,
            render_only: false,
        }
    }

    /// Returns the request for one of the answers. With a seed each has its own, the same every time.
    pub fn answer(&self, idx: usize) -> Job {
        let mut job = self.clone();
        if let Some(seed) = &mut job.options.seed {
            *seed = seed.wrapping_add(idx as i64) & i64::MAX;
        }
        job
    }

    /// Takes the options of a request.
    pub(crate) fn read_options(&mut self, given: &Map<String, Value>) -> Result<(), OptionError> {
        (self.options, self.without_effect) = Options::read(given)?;
        Ok(())
    }

    /// Tells whether the model is only to be loaded or unloaded.
    pub fn is_empty(&self) -> bool {
        match &self.input {
            Input::Generate(generate) => generate.prompt.is_empty() && generate.suffix.is_empty(),
            Input::Chat { messages, .. } => messages.is_empty(),
        }
    }

    /// Tells whether the model is to be unloaded.
    pub fn is_unload(&self) -> bool {
        self.is_empty() && self.keep_alive.is_some_and(KeepAlive::is_zero)
    }

    /// The word for what is done, in refusals.
    pub fn verb(&self) -> &'static str {
        match self.input {
            Input::Generate(_) => "generate",
            Input::Chat { .. } => "chat",
        }
    }
}

/// A request for vectors that is right in itself.
#[derive(Debug)]
pub(crate) struct EmbedJob {
    /// Name as the client sent it.
    pub(crate) model: String,
    /// What is to be turned into vectors; nothing = only load the model.
    pub(crate) inputs: Inputs,
    /// Cut what is too long for the context.
    pub(crate) truncate: bool,
    /// Options that were given.
    pub(crate) options: Options,
    pub(crate) keep_alive: Option<KeepAlive>,
}

/// What becomes vectors.
#[derive(Debug)]
pub(crate) enum Inputs {
    /// Texts whose vectors are to be compared.
    Texts(Vec<EmbedText>),
    /// A query and documents that may answer it; each pair becomes scores.
    Pairs {
        query: String,
        documents: Arc<[String]>,
    },
}

/// One text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EmbedText {
    Text(String),
    /// Taken as they are.
    Tokens(Vec<u32>),
}

impl Inputs {
    pub(crate) fn len(&self) -> usize {
        match self {
            Inputs::Texts(texts) => texts.len(),
            Inputs::Pairs { documents, .. } => documents.len(),
        }
    }

    /// Returns about how many bytes become tokens, with some for each input, however short it is.
    pub(crate) fn n_bytes(&self) -> usize {
        let of_all: usize = match self {
            Inputs::Texts(texts) => texts.iter().map(EmbedText::n_bytes).sum(),
            Inputs::Pairs { query, documents } => {
                let of_pairs = documents.iter().map(|text| query.len() + text.len());
                of_pairs.sum()
            }
        };
        of_all + self.len() * INPUT_BYTES
    }
}

impl EmbedText {
    fn n_bytes(&self) -> usize {
        match self {
            EmbedText::Text(text) => text.len(),
            EmbedText::Tokens(tokens) => size_of_val(&tokens[..]),
        }
    }
}

/// The marks around an input, and the list of its tokens, take as long as so many bytes of text.
const INPUT_BYTES: usize = 32;

/// What came of a request.
#[derive(Debug, Default)]
pub(crate) struct Embedded {
    /// One for each input, as the model made it.
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Tokens computed.
    pub(crate) n_tokens: usize,
    /// Tokens cut from inputs that were too long.
    pub(crate) n_truncated: usize,
    pub(crate) load_duration: Duration,
}
