//! `/v1/completions`.

use llmsrv_api::lenient::Fields;
use llmsrv_engine::TokenInfo;
use serde_json::{Value, json};

use super::{
    FINGERPRINT, MAX_ANSWERS,
    answer::{Completion, CompletionChoice, CompletionLogProbs, Usage},
    common, include_usage, seconds,
};
use crate::{
    dialect::{
        Delta, End, Family, Framing, ResponseEncoder, StreamBuffer, id24, native, parts, to_value,
    },
    error::{ApiError, refuse},
    job::{Generate, Input, Job},
};

/// Parses a request.
pub(crate) fn parse_completion(mut fields: Fields) -> Result<(Job, CompletionEncoder), ApiError> {
    let model = native::model_name(&mut fields)?.ok_or_else(ApiError::model_required)?;
    let prompt = match fields.take("prompt") {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(mut texts)) if texts.len() == 1 && texts[0].is_string() => {
            match texts.swap_remove(0) {
                Value::String(text) => text,
                _ => String::new(),
            }
        }
        Some(_) => refuse!("prompt must be one string"),
    };
    let echo = fields.bool("echo")?.unwrap_or(false);
    let generate = Generate {
        prompt: prompt.clone(),
        suffix: fields.text("suffix")?.unwrap_or_default(),
        ..Generate::default()
    };
    let mut job = Job::new(model, Input::Generate(generate));
    common(&mut fields, &mut job)?;
    if let Some(best_of) = fields.integer("best_of")? {
        let best_of = usize::try_from(best_of).ok();
        let best_of = best_of.filter(|best_of| (job.n_best..=MAX_ANSWERS).contains(best_of));
        job.n_answers = best_of.ok_or_else(|| {
            ApiError::bad_request(format!("best_of must be between n and {MAX_ANSWERS}"))
        })?;
        if job.n_answers > job.n_best && job.stream {
            refuse!("best_of cannot be streamed: which answers are the best is known at the end");
        }
    }
    let top = fields.integer("logprobs")?;
    job.logprobs = match top.map(usize::try_from) {
        None => None,
        Some(Ok(top)) if top <= 20 => Some(top),
        Some(_) => refuse!("logprobs must be between 0 and 20"),
    };
    let writer = CompletionEncoder {
        id: format!("cmpl-{}", id24()),
        model: job.model.clone(),
        created: seconds(),
        include_usage: include_usage(&mut fields)?,
        echo: if echo { prompt } else { String::new() },
        answers: Vec::new(),
    };
    Ok((job, writer))
}

/// Writes an answer.
pub(crate) struct CompletionEncoder {
    id: String,
    model: String,
    created: i64,
    include_usage: bool,
    /// Text to say before each answer.
    echo: String,
    answers: Vec<Progress>,
}

/// How far an answer is.
#[derive(Clone, Default)]
struct Progress {
    /// The echo was said.
    begun: bool,
    /// Characters so far.
    n_chars: usize,
}

impl CompletionEncoder {
    fn object(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Value {
        to_value(&Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model.clone(),
            system_fingerprint: FINGERPRINT,
            choices,
            usage,
        })
    }

    /// Writes a piece of an answer; readers that count find numbers in each event.
    fn chunk(&mut self, said: Delta, end: Option<&End>, out: &mut StreamBuffer) {
        let choice = self.choice(said, end);
        let usage = self.include_usage.then(|| Usage::of(&End::default()));
        out.data(&self.object(vec![choice], usage));
    }

    fn choice(&mut self, said: Delta, end: Option<&End>) -> CompletionChoice {
        let index = said.answer;
        let said = said.gather();
        let finish_reason = end.map(|end| if parts::is_cut(end) { "length" } else { "stop" });
        if self.answers.len() <= index {
            self.answers.resize(index + 1, Progress::default());
        }
        let progress = &mut self.answers[index];
        let logprobs = logprobs(progress, &said.tokens);
        let text = if std::mem::replace(&mut progress.begun, true) {
            said.content
        } else {
            self.echo.clone() + &said.content
        };
        CompletionChoice {
            index,
            text,
            logprobs,
            finish_reason,
        }
    }
}

impl ResponseEncoder for CompletionEncoder {
    fn framing(&self) -> Framing {
        Framing::Events
    }

    fn part(&mut self, said: Delta, out: &mut StreamBuffer) {
        self.chunk(said, None, out);
    }

    fn answer_end(&mut self, answer: usize, end: &End, out: &mut StreamBuffer) {
        let said = Delta {
            answer,
            ..Delta::default()
        };
        self.chunk(said, Some(end), out);
    }

    fn end(&mut self, end: &End, out: &mut StreamBuffer) {
        if self.include_usage {
            out.data(&self.object(Vec::new(), Some(Usage::of(end))));
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
            .map(|(said, end)| self.choice(said, Some(&end)));
        let choices = choices.collect();
        self.object(choices, Some(Usage::of(total)))
    }
}

/// Four lists side by side, as this older interface has them.
fn logprobs(progress: &mut Progress, tokens: &[TokenInfo]) -> Option<CompletionLogProbs> {
    if tokens.is_empty() {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut lists = CompletionLogProbs::default();
    for token in tokens {
        let top = token.top.iter();
        let top = top.map(|(_, logprob, bytes)| (text(bytes), json!(logprob)));
        lists.text_offset.push(progress.n_chars);
        progress.n_chars += text(&token.bytes).chars().count();
        lists.tokens.push(text(&token.bytes));
        lists.token_logprobs.push(token.logprob);
        lists.top_logprobs.push(top.collect());
    }
    Some(lists)
}
