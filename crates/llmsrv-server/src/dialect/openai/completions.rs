//! `/v1/completions`.

use llmsrv_api::{from_value, lenient::BodyError, options::Stop, request};
use llmsrv_chat::Think;
use llmsrv_engine::TokenInfo;
use serde_json::{Value, json};

use super::{
    Common, FINGERPRINT, MAX_ANSWERS,
    answer::{Completion, CompletionChoice, CompletionLogProbs, Usage},
    seconds,
};
use crate::{
    dialect::{Delta, End, Family, Framing, ResponseEncoder, StreamBuffer, id24, parts, to_value},
    error::{ApiError, refuse},
    job::{Generate, Input, Job},
};

request! {
    pub(crate) struct CompletionRequest with common: Common {
        /// The text to continue.
        #[schema(value_type = Option<Stop>)] prompt: Option<Prompt>,
        /// Text after the gap that the model fills.
        suffix: Option<String>,
        /// Begin the answer with the prompt.
        echo: Option<bool>,
        /// Give the model the prompt as it is, without its template.
        raw: Option<bool>,
        /// Make so many answers and give the `n` most probable ones; not for streams.
        #[schema(minimum = 1, maximum = 32)] best_of: Option<i64>,
        /// Alternatives reported for each token.
        #[schema(minimum = 0, maximum = 20)] logprobs: Option<i64>,
    }
}

/// A text, or a list of one.
struct Prompt(String);

from_value!(Prompt, |_| true, |value, name| {
    match Stop::from_value(value, name) {
        Ok(Stop::One(text)) => Ok(Prompt(text)),
        Ok(Stop::Several(texts)) if texts.len() == 1 => Ok(Prompt(texts.concat())),
        _ => Err(BodyError::Meaning(format!("{name} must be one string"))),
    }
});

/// Makes a job of a request, and what writes its answer.
pub(crate) fn completion(request: CompletionRequest) -> Result<(Job, CompletionEncoder), ApiError> {
    let common = request.common;
    let prompt = request.prompt.map_or_else(String::new, |prompt| prompt.0);
    let generate = Generate {
        prompt: prompt.clone(),
        suffix: request.suffix.unwrap_or_default(),
        raw: request.raw.unwrap_or(false),
        ..Generate::default()
    };
    let include_usage = common.include_usage();
    let mut job = common.job(Input::Generate(generate))?;
    // There is no place in the answer for it.
    job.think = Some(Think::Off);
    if let Some(best_of) = request.best_of {
        let best_of = usize::try_from(best_of).ok();
        let best_of = best_of.filter(|best_of| (job.n_best..=MAX_ANSWERS).contains(best_of));
        job.n_answers = best_of.ok_or_else(|| {
            ApiError::bad_request(format!("best_of must be between n and {MAX_ANSWERS}"))
        })?;
        if job.n_answers > job.n_best && job.stream {
            refuse!("best_of cannot be streamed: which answers are the best is known at the end");
        }
    }
    job.logprobs = match request.logprobs.map(usize::try_from) {
        None => None,
        Some(Ok(top)) if top <= 20 => Some(top),
        Some(_) => refuse!("logprobs must be between 0 and 20"),
    };
    let writer = CompletionEncoder {
        id: format!("cmpl-{}", id24()),
        model: job.model.clone(),
        created: seconds(),
        include_usage,
        echo: request
            .echo
            .filter(|echo| *echo)
            .map_or_else(String::new, |_| prompt),
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
