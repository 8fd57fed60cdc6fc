//! The OpenAI dialect: `/v1/chat/completions` and `/v1/completions`
//! (<https://platform.openai.com/docs/api-reference>).

pub(crate) mod answer;
mod chat;
mod completions;

pub(crate) use chat::parse_chat;
pub(crate) use completions::parse_completion;

use jiff::Timestamp;
use llmsrv_api::lenient::Fields;
use llmsrv_engine::GrammarSpec;
use serde_json::{Map, Value, json};

use super::{native, parts};
use crate::{
    error::{ApiError, refuse},
    job::Job,
};

/// Puts what both requests have into a job.
fn common(fields: &mut Fields, job: &mut Job) -> Result<(), ApiError> {
    let mut options = parts::extra_options(fields)?;
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    // These two do not come from the model: clients of this dialect expect its own defaults.
    for name in ["temperature", "top_p"] {
        put(name, Some(fields.take(name).unwrap_or(json!(1.0))));
    }
    for name in ["frequency_penalty", "presence_penalty", "seed"] {
        put(name, fields.take(name));
    }
    put("stop", parts::stop(fields, "stop")?);
    let most = fields.integer("max_completion_tokens")?;
    let most = most.or(fields.integer("max_tokens")?);
    if most.is_some_and(|most| most < 0 && most != -1) {
        refuse!("max_tokens must not be negative");
    }
    put("num_predict", most.map(Value::from));
    job.read_options(&options)?;
    job.n_answers = match fields.integer("n")?.map(usize::try_from) {
        None => 1,
        Some(Ok(n)) if (1..=MAX_ANSWERS).contains(&n) => n,
        Some(_) => refuse!("n must be between 1 and {MAX_ANSWERS}"),
    };
    job.n_best = job.n_answers;
    job.logit_bias = native::logit_bias(fields)?;
    job.keep_alive = native::keep_alive(fields)?;
    // These dialects have no word for what was dropped: it happens only where it was asked for.
    job.truncate = fields.bool("truncate")?.unwrap_or(false);
    job.stream = fields.bool("stream")?.unwrap_or(false);
    Ok(())
}

/// Takes whether the stream is to end with the number of tokens.
fn include_usage(fields: &mut Fields) -> Result<bool, ApiError> {
    let options = fields.object("stream_options")?.unwrap_or_default();
    Ok(Fields::from(options)
        .bool("include_usage")?
        .unwrap_or(false))
}

/// Reads `response_format`.
fn response_format(format: Map<String, Value>) -> Result<Option<GrammarSpec>, ApiError> {
    let whole = Value::Object(format.clone());
    let mut format = Fields::from(format);
    match format.text("type")?.as_deref() {
        None | Some("text") => Ok(None),
        Some("json_object") => Ok(Some(GrammarSpec::Json)),
        Some("json_schema") => {
            let mut inner = Fields::from(format.object("json_schema")?.unwrap_or_default());
            let schema = inner
                .take("schema")
                .ok_or_else(|| ApiError::bad_request("response_format needs json_schema.schema"))?;
            native::grammar(schema)
        }
        Some(_) => native::grammar(whole),
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
