//! The OpenAI dialect: `/v1/chat/completions` and `/v1/completions`
//! (<https://platform.openai.com/docs/api-reference>).

pub(crate) mod answer;
mod chat;
mod completions;

pub(crate) use chat::{ChatCompletionRequest, OpenAiToolChoice, Reasoning, chat};
pub(crate) use completions::{CompletionRequest, completion};

use jiff::Timestamp;
use llmsrv_api::{
    keep_alive::KeepAlive, lenient::Fields, members::FromValue as _, options::Stop, request,
};
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value};

use super::{
    native::{self, Named},
    parts::{self, Beside},
};
use crate::{
    error::{ApiError, refuse},
    format::grammar_of,
    job::{Input, Job},
};

request! {
    /// What both requests have.
    struct Common with named: Named, options: OpenAiOptions {
        /// As events; off by default.
        stream: Option<bool>,
        stream_options: Option<StreamOptions>,
        stop: Option<Stop>,
        #[schema(minimum = -1)] max_tokens: Option<i64>,
        #[schema(minimum = -1)] max_completion_tokens: Option<i64>,
        /// So many answers to the same prompt.
        #[schema(minimum = 1, maximum = 32)] n: Option<i64>,
        /// A number to add for each of these tokens.
        #[schema(value_type = Option<Object>)] logit_bias: Map<String, Value>,
        keep_alive: Option<KeepAlive>,
        /// Drop old messages, or cut the prompt, when it is too long; it is refused otherwise.
        truncate: Option<bool>,
    }

    object StreamOptions {
        /// End the stream with the number of tokens.
        include_usage: Option<bool>,
    }

    object ResponseFormat {
        /// `text`, `json_object` or `json_schema`.
        #[schema(value_type = String)] r#type: Option<String>,
        #[schema(value_type = Option<Object>)] json_schema: Fields,
    }
}

type OpenAiOptions = Beside<OpenAi>;
struct OpenAi;

impl parts::Dialect for OpenAi {
    const OWN: &'static [(&'static str, Option<f64>)] = &[
        ("temperature", Some(1.0)),
        ("top_p", Some(1.0)),
        ("frequency_penalty", None),
        ("presence_penalty", None),
        ("seed", None),
    ];
}

impl Common {
    /// Whether the stream is to end with the number of tokens.
    fn include_usage(&self) -> bool {
        let options = self.stream_options.as_ref();
        options.and_then(|options| options.include_usage) == Some(true)
    }

    /// Makes a job of what both requests have.
    fn job(self, input: Input) -> Result<Job, ApiError> {
        let mut job = Job::new(self.named.required()?, input);
        job.read_options(&self.options.options)?;
        if let Some(stop) = self.stop {
            job.options.stop = Some(match stop {
                Stop::One(text) => vec![text],
                Stop::Several(texts) => texts,
            });
        }
        let most = self.max_completion_tokens.or(self.max_tokens);
        if most.is_some_and(|most| most < 0 && most != -1) {
            refuse!("max_tokens must not be negative");
        }
        job.options.num_predict = most.or(job.options.num_predict);
        job.n_answers = match self.n.map(usize::try_from) {
            None => 1,
            Some(Ok(n)) if (1..=MAX_ANSWERS).contains(&n) => n,
            Some(_) => refuse!("n must be between 1 and {MAX_ANSWERS}"),
        };
        job.n_best = job.n_answers;
        job.logit_bias = native::logit_bias(&self.logit_bias)?;
        job.keep_alive = self.keep_alive;
        // These dialects have no word for what was dropped: it happens only where it was asked for.
        job.truncate = self.truncate.unwrap_or(false);
        job.stream = self.stream.unwrap_or(false);
        Ok(job)
    }
}

/// Reads `response_format`.
fn response_format(format: Value) -> Result<Option<GrammarSpec>, ApiError> {
    let mut asked = ResponseFormat::from_value(format.clone(), "response_format")?;
    match asked.r#type.as_deref() {
        None | Some("text") => Ok(None),
        Some("json_object") => Ok(Some(GrammarSpec::Json)),
        Some("json_schema") => {
            let schema = asked.json_schema.take("schema");
            let missing = || ApiError::bad_request("response_format needs json_schema.schema");
            grammar_of(&schema.ok_or_else(missing)?)
        }
        Some(_) => grammar_of(&format),
    }
}

/// Returns the present time in seconds.
pub(super) fn seconds() -> i64 {
    Timestamp::now().as_second()
}

/// Most answers to one prompt.
const MAX_ANSWERS: usize = 32;
/// Clients compare it to learn whether a server changed.
const FINGERPRINT: &str = "fp_ollama";
