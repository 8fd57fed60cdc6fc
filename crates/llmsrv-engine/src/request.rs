//! What the engine is asked and what it answers.

use std::time::Duration;

use crate::{ImageSpan, TokenId};

/// One request for generated tokens, complete: the engine asks nobody anything.
#[derive(Clone, Debug)]
pub struct GenRequest {
    /// Prompt, at least one token, at most `num_ctx - 1`.
    pub tokens: Vec<TokenId>,
    /// Images within the prompt, ascending; the tokens in their places only count.
    pub images: Vec<ImageSpan>,
    /// How the next token is chosen.
    pub params: SamplingParams,
    /// Context size of this request in tokens (prompt + generated).
    pub num_ctx: usize,
    /// Most tokens to generate; `None` = until the model stops, bounded by 10 x `num_ctx` and by
    /// 30 equal tokens in a row, which end the generation with [`FinishReason::Stop`]. With
    /// `Some(0)` nothing is computed at all.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation and are not output.
    pub stop: Vec<String>,
    /// Tokens at the start that a context shift keeps.
    pub num_keep: usize,
    /// When `num_ctx` is reached: `true` discards half of the tokens after `num_keep` and goes on,
    /// `false` ends with [`FinishReason::Length`].
    pub shift: bool,
    /// What the output must match; `None` = anything.
    pub grammar: Option<GrammarSpec>,
    /// Text after which the grammar begins (the end tag of a thinking part); `None` = at once.
    pub grammar_after: Option<String>,
    /// With `grammar_after`: the text that an output begins with if it has that part at all. An output
    /// that begins with anything else is in the grammar from the start.
    pub grammar_unless: Option<String>,
    /// Report the log-probability of each token and of this many alternatives.
    pub logprobs: Option<usize>,
}

/// What the output must match.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GrammarSpec {
    /// Any JSON object.
    Json,
    /// JSON that satisfies this schema, but for keywords that cannot be enforced: they are left out
    /// and named in [`Generation::unenforced`](crate::Generation::unenforced). An object that lists
    /// its properties has no others, unless the schema says something about others.
    JsonSchema(serde_json::Value),
    /// As `JsonSchema`, but a schema with a keyword that cannot be enforced is refused.
    StrictJsonSchema(serde_json::Value),
    /// A regular expression over the whole output.
    Regex(String),
    /// A Lark grammar, as llguidance reads it; its rule `start` is the whole output.
    Lark(String),
    /// Calls of tools: a Lark grammar whose rules `schema_0`, `schema_1`, … are JSON that satisfies
    /// these schemas, as far as they can be enforced.
    Calls {
        /// The Lark grammar of the calls, with the names `schema_0` and so on left undefined.
        lark: String,
        /// JSON schemas of the arguments, in the order of their numbers.
        schemas: Vec<serde_json::Value>,
        /// What the grammar's rule `answer` is, if it has one: an answer that is no call. No calls.
        answer: Option<Box<GrammarSpec>>,
    },
}

/// The options of `docs/contracts/http-api.md` 1.10 that choose the next token.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits before the draw; 0 = greedy: always the most probable token.
    pub temperature: f32,
    /// Only tokens stay whose logit is at most so many standard deviations below the best one;
    /// 0.0 or less = off.
    pub top_n_sigma: f32,
    /// Only the so many most probable tokens stay; 0 = off.
    pub top_k: usize,
    /// Only the most probable tokens stay that have this probability together; 1.0 = off.
    pub top_p: f32,
    /// Only tokens stay that have this share of the best one's probability; 0.0 = off.
    pub min_p: f32,
    /// Only the tokens stay, up to this probability together, whose information is nearest to the
    /// expected one; 1.0 = off.
    pub typical_p: f32,
    /// Window of the penalties in tokens; 0 = off, `None` = whole context.
    pub repeat_last_n: Option<usize>,
    /// Divides the logits of tokens in the window, or multiplies negative ones; 1.0 = off.
    pub repeat_penalty: f32,
    /// Subtracted from the logits of tokens in the window; 0.0 = off.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens in the window as often as they occur; 0.0 = off.
    pub frequency_penalty: f32,
    /// Equal seeds give equal texts; `None` = random.
    pub seed: Option<u64>,
    /// Added to the logits of these tokens, before everything else.
    pub logit_bias: Vec<(TokenId, f32)>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 0.8,
            top_n_sigma: 0.0,
            top_k: 40,
            top_p: 0.9,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_last_n: Some(64),
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
        }
    }
}

/// What the engine says about a request, in this order: `Text`*, then one `Done`, `Error` or `DeviceLost`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// New text of one step (valid UTF-8; may be empty when only `tokens` are reported).
    Text {
        /// Text that will not be taken back.
        text: String,
        /// Tokens generated since the last event, filled only when log-probabilities were asked.
        tokens: Vec<TokenInfo>,
    },
    /// The end; no event follows.
    Done(Box<Finish>),
    /// The request failed; no event follows.
    Error(String),
    /// What computed the model is gone, and why; no event follows. The same request may be sent again: the model is
    /// loaded anew for it.
    DeviceLost(String),
}

/// A generated token with its probability under the model (before sampling filters).
#[derive(Clone, Debug, PartialEq)]
pub struct TokenInfo {
    /// Index in the vocabulary.
    pub id: TokenId,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Bytes the token stands for; of one that is never output, such as an end, its spelling.
    pub bytes: Vec<u8>,
    /// The most probable tokens, best first: id, natural logarithm of the probability, and bytes as
    /// above.
    pub top: Vec<(TokenId, f32, Vec<u8>)>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation token, a stop text, or a satisfied grammar.
    Stop,
    /// The token limit or the context size.
    Length,
}

/// Totals of a finished request.
#[derive(Clone, Debug)]
pub struct Finish {
    /// What ended the generation.
    pub reason: FinishReason,
    /// The stop text that ended it, if one did.
    pub stop_text: Option<String>,
    /// Tokens of the whole prompt, cached ones included.
    pub prompt_tokens: usize,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: usize,
    /// From the first step of the request to its first token; waiting in the queue is not in it.
    pub prompt_duration: Duration,
    /// Number of generated tokens.
    pub eval_tokens: usize,
    /// From the first generated token to the end.
    pub eval_duration: Duration,
    /// Prompt (its text only) and generated tokens, for the `context` field of the native API.
    pub context: Vec<TokenId>,
}

/// A request the engine did not take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The prompt is empty or does not fit `num_ctx`.
    #[error("the prompt has {tokens} tokens; the context holds {num_ctx}")]
    PromptLength {
        /// Tokens of the prompt.
        tokens: usize,
        /// Context size asked for.
        num_ctx: usize,
    },
    /// The images overlap or reach beyond the prompt.
    #[error("the images do not fit the prompt")]
    Images,
    /// The prompt or a bias holds an id that is no token of the model.
    #[error("token {0} is not in the vocabulary")]
    UnknownToken(TokenId),
    /// The grammar or schema cannot be enforced.
    #[error("invalid format: {0}")]
    Grammar(String),
    /// The model makes no vectors.
    #[error("the model does not support embeddings")]
    NoEmbeddings,
    /// The model makes nothing but vectors.
    #[error("the model does not generate text")]
    NoText,
    /// The engine thread has ended because its device was lost; holds why.
    #[error("the device that computed the model is lost: {0}")]
    DeviceLost(String),
    /// The engine thread has ended for another reason (a panic or an unload).
    #[error("the model is not loaded any more")]
    Closed,
}
