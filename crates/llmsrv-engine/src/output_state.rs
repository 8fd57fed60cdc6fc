//! What becomes of one request's tokens: choice, text, stop rules, events.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use llmsrv_tokenizer::Tokenizer;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    Event, Finish, FinishReason, TokenId, TokenInfo,
    detok::{Utf8Stream, named_bytes, output_bytes},
    grammar::Constraint,
    image,
    sample::{Candidates, LogProbs, SampleError, Sampler},
    sequence::Sequence,
    stop::StopFinder,
    submission::Submission,
};

/// The output side of one request.
pub(crate) struct OutputState {
    events: UnboundedSender<Event>,
    sampler: Sampler,
    constraint: Option<Constraint>,
    n_alternatives: Option<usize>,
    limits: Limits,
    stops: StopFinder,
    stop_texts: Vec<String>,
    decoder: Utf8Stream,
    /// Text of the prompt and generated tokens, whatever a context shift drops.
    transcript: Vec<TokenId>,
    /// Tokens whose text may still become part of a stop text.
    held: VecDeque<Held>,
    n_bytes: usize,
    n_bytes_released: usize,
    /// Output of this step: what a client is told of at once.
    unsent: (String, Vec<TokenInfo>),
    run: (TokenId, usize),
    n_prompt: usize,
    n_cached: usize,
    n_generated: usize,
    planned: Option<Instant>,
    first_token: Option<Instant>,
}

struct Limits {
    max_tokens: usize,
    /// Without a limit from the client, a token that repeats itself for ever ends the output.
    max_run: usize,
    num_ctx: usize,
    n_keep: usize,
    shift: bool,
}

/// A token whose text is not yet output, for the reports of log-probabilities.
struct Held {
    /// Bytes of output before it.
    start: usize,
    info: Option<TokenInfo>,
}

/// Working memory and read-only parts that all replies of an engine share.
pub(crate) struct SamplerScratch<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) candidates: &'a mut Candidates,
    pub(crate) log_probs: &'a mut LogProbs,
    pub(crate) released: &'a mut Vec<u8>,
}

/// What the sequence does after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Computes this token.
    Continue(TokenId),
    /// Computes this token after a context shift that keeps `n_keep` tokens at the start.
    Shift { token: TokenId, n_keep: usize },
    /// Ends; all events are sent.
    End,
}

impl OutputState {
    /// Takes over a submission and returns it with the prompt.
    pub(crate) fn new(submission: Submission) -> (OutputState, Sequence) {
        let Submission {
            request,
            constraint,
            events,
        } = submission;
        let n_prompt = request.tokens.len();
        let text = image::text_tokens(&request.tokens, &request.images);
        let sampler = Sampler::new(request.params, &text, request.num_ctx);
        let limits = Limits {
            max_tokens: request
                .max_tokens
                .unwrap_or(request.num_ctx.saturating_mul(10)),
            max_run: if request.max_tokens.is_none() {
                MAX_RUN
            } else {
                usize::MAX
            },
            num_ctx: request.num_ctx,
            n_keep: request.num_keep,
            shift: request.shift,
        };
        let reply = OutputState {
            events,
            sampler,
            constraint,
            n_alternatives: request.logprobs,
            limits,
            stops: StopFinder::new(request.stop.iter().map(String::as_str)),
            stop_texts: request.stop,
            decoder: Utf8Stream::default(),
            transcript: text,
            held: VecDeque::new(),
            n_bytes: 0,
            n_bytes_released: 0,
            unsent: (String::new(), Vec::new()),
            run: (0, 0),
            n_prompt,
            n_cached: 0,
            n_generated: 0,
            planned: None,
            first_token: None,
        };
        (reply, Sequence::new(request.tokens, request.images))
    }

    /// Returns whether nobody waits for the reply any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Returns whether no token was asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.limits.max_tokens == 0
    }

    /// Returns how many tokens it makes sense to draft after the `n_tokens` of the sequence and the
    /// one that is chosen next anyway.
    pub(crate) fn room_for_draft(&self, n_tokens: usize) -> usize {
        let n_wanted = self.limits.max_tokens.saturating_sub(self.n_generated + 1);
        let n_fitting = self.limits.num_ctx.saturating_sub(n_tokens + 1);
        n_wanted.min(n_fitting)
    }

    /// Returns tokens that the requested format leaves no choice about: see [`Constraint::forced_tokens`].
    pub(crate) fn forced_tokens(&mut self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let constraint = self.constraint.as_mut();
        constraint.map_or_else(Vec::new, |constraint| constraint.forced_tokens(tokenizer))
    }

    /// Notes that the sequence left the queue with `n_cached` tokens from the prefix cache.
    /// Returns whether it did so for the first time.
    pub(crate) fn note_planned(&mut self, n_cached: usize) -> bool {
        let is_first = self.planned.is_none();
        if is_first {
            self.planned = Some(Instant::now());
            self.n_cached = n_cached;
        }
        is_first
    }

    /// Chooses the token after the `n_tokens` of the sequence from their row of logits. What it gives
    /// is sent with the rest of the step: see [`OutputState::flush`].
    pub(crate) fn advance(
        &mut self,
        n_tokens: usize,
        logits: &mut [f32],
        scratch: &mut SamplerScratch<'_>,
    ) -> Next {
        match self.choose(n_tokens, logits, scratch) {
            Ok((token, info)) => self.accept(n_tokens, token, info, scratch),
            Err(message) => {
                self.fail(message);
                Next::End
            }
        }
    }

    /// Sends the last event of a reply that went wrong.
    pub(crate) fn fail(&mut self, message: String) {
        self.flush();
        self.send(Event::Error(message));
    }

    /// Sends what is held back and the totals.
    pub(crate) fn finish(
        &mut self,
        reason: FinishReason,
        stop_text: Option<String>,
        scratch: &mut SamplerScratch<'_>,
    ) {
        scratch.released.clear();
        if stop_text.is_none() {
            self.stops.finish(scratch.released);
        }
        self.emit(scratch.released, true);
        self.flush();
        let now = Instant::now();
        let since = |start: Option<Instant>, end: Instant| {
            start.map_or(Duration::ZERO, |start| end - start)
        };
        let finish = Finish {
            reason,
            stop_text,
            prompt_tokens: self.n_prompt,
            cached_tokens: self.n_cached,
            prompt_duration: since(
                self.planned.filter(|_| self.first_token.is_some()),
                self.first_token.unwrap_or(now),
            ),
            eval_tokens: self.n_generated,
            eval_duration: since(self.first_token, now),
            context: std::mem::take(&mut self.transcript),
        };
        self.send(Event::Done(Box::new(finish)));
    }

    fn choose(
        &mut self,
        n_tokens: usize,
        logits: &mut [f32],
        scratch: &mut SamplerScratch<'_>,
    ) -> Result<(TokenId, Option<TokenInfo>), String> {
        // A row may be padded beyond the vocabulary.
        let n_words = logits.len().min(scratch.tokenizer.vocab_size());
        let logits = &mut logits[..n_words];
        if self.n_alternatives.is_some() {
            scratch.log_probs.measure(logits);
        }
        let mask = match &mut self.constraint {
            Some(constraint) => constraint.mask().map_err(|error| error.to_string())?,
            None => None,
        };
        let token = self
            .sampler
            .pick(logits, mask.as_ref(), scratch.candidates)
            .map_err(|error| error.to_string())?;
        let token = self
            .settle(token, n_tokens, logits, scratch)
            .map_err(|error| error.to_string())?;
        let Some(n_alternatives) = self.n_alternatives else {
            return Ok((token, None));
        };
        let bytes = |token| named_bytes(scratch.tokenizer, token).into_owned();
        let top = scratch
            .log_probs
            .top(n_alternatives, scratch.candidates)
            .map_err(|error| error.to_string())?;
        let top = top
            .into_iter()
            .map(|(token, logprob)| (token, logprob, bytes(token)))
            .collect();
        Ok((
            token,
            Some(TokenInfo {
                id: token,
                logprob: scratch.log_probs.of(token),
                bytes: bytes(token),
                top,
            }),
        ))
    }

    /// Returns the token that was picked, or another one where a format wants it: see
    /// [`Constraint::settle`].
    fn settle(
        &mut self,
        picked: TokenId,
        n_tokens: usize,
        logits: &mut [f32],
        scratch: &mut SamplerScratch<'_>,
    ) -> Result<TokenId, SampleError> {
        let Some(constraint) = &mut self.constraint else {
            return Ok(picked);
        };
        let mut n_left = self.limits.max_tokens.saturating_sub(self.n_generated);
        if !self.limits.shift {
            n_left = n_left.min(self.limits.num_ctx.saturating_sub(n_tokens));
        }
        constraint.settle(picked, n_left, scratch.tokenizer, |refused| {
            if let Some(logit) = logits.get_mut(refused as usize) {
                *logit = f32::NEG_INFINITY;
            }
            match self.sampler.draw(logits, scratch.candidates) {
                Ok(token) => Ok(Some(token)),
                Err(SampleError::NothingAllowed) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn accept(
        &mut self,
        n_tokens: usize,
        token: TokenId,
        info: Option<TokenInfo>,
        scratch: &mut SamplerScratch<'_>,
    ) -> Next {
        self.first_token.get_or_insert_with(Instant::now);
        self.n_generated += 1;
        self.sampler.accept(token);
        let grammar_ended = match self
            .constraint
            .as_mut()
            .map(|constraint| constraint.accept(token, scratch.tokenizer))
        {
            None => false,
            Some(Ok(ended)) => ended,
            Some(Err(error)) => {
                self.fail(error.to_string());
                return Next::End;
            }
        };
        if scratch.tokenizer.is_end_of_generation(token) {
            self.finish(self.end_reason(), None, scratch);
            return Next::End;
        }
        self.transcript.push(token);
        self.held.push_back(Held {
            start: self.n_bytes,
            info,
        });
        if let Some(stop_text) = self.output(token, scratch) {
            self.finish(FinishReason::Stop, Some(stop_text), scratch);
            return Next::End;
        }
        self.run = if self.run.0 == token {
            (token, self.run.1 + 1)
        } else {
            (token, 1)
        };
        let is_full = n_tokens + 1 >= self.limits.num_ctx;
        let reason = if grammar_ended {
            Some(self.end_reason())
        } else if self.run.1 > self.limits.max_run && !self.is_in_json() {
            Some(FinishReason::Stop)
        } else if self.n_generated >= self.limits.max_tokens || (is_full && !self.limits.shift) {
            Some(FinishReason::Length)
        } else {
            None
        };
        match reason {
            Some(reason) => {
                self.finish(reason, None, scratch);
                Next::End
            }
            None if is_full => Next::Shift {
                token,
                n_keep: self.limits.n_keep,
            },
            None => Next::Continue(token),
        }
    }

    /// Whether the output is in JSON, which has bounds of its own.
    fn is_in_json(&self) -> bool {
        let constraint = self.constraint.as_ref();
        constraint.is_some_and(Constraint::is_in_json)
    }

    /// Why an output ended that is whole: a format may have been brought to its end because no more
    /// tokens were left.
    fn end_reason(&self) -> FinishReason {
        match &self.constraint {
            Some(constraint) if constraint.was_end_brought_about() => FinishReason::Length,
            _ => FinishReason::Stop,
        }
    }

    /// Adds a token's bytes to the output. Returns the stop text that they complete.
    fn output(&mut self, token: TokenId, scratch: &mut SamplerScratch<'_>) -> Option<String> {
        let bytes = output_bytes(scratch.tokenizer, token);
        self.n_bytes += bytes.len();
        scratch.released.clear();
        let found = self.stops.push(&bytes, scratch.released);
        let Some(found) = found else {
            self.emit(scratch.released, false);
            return None;
        };
        // Tokens that are wholly behind the start of the stop text are not part of the reply.
        let end = self.n_bytes_released + scratch.released.len();
        let n_dropped = self
            .held
            .iter()
            .rev()
            .take_while(|held| held.start >= end)
            .count();
        self.held.truncate(self.held.len() - n_dropped);
        self.transcript.truncate(self.transcript.len() - n_dropped);
        self.emit(scratch.released, false);
        self.stop_texts.get(found.text_idx).cloned()
    }

    /// Sends the output since the last call as one event. A step that took several tokens, because
    /// draft tokens were accepted, is one event.
    pub(crate) fn flush(&mut self) {
        let (text, tokens) = std::mem::take(&mut self.unsent);
        if !text.is_empty() || !tokens.is_empty() {
            self.send(Event::Text { text, tokens });
        }
    }

    /// Outputs released bytes as text, with the tokens they belong to.
    fn emit(&mut self, released: &[u8], is_last: bool) {
        self.n_bytes_released += released.len();
        let (text, tokens) = &mut self.unsent;
        self.decoder.push(released, text);
        if is_last {
            self.decoder.finish(text);
        }
        // A token is reported once its first byte is output; one without bytes, with what is before it.
        while let Some(held) = self.held.front() {
            let is_out = held.start < self.n_bytes_released
                || is_last
                || self.n_bytes == self.n_bytes_released;
            if !is_out {
                break;
            }
            tokens.extend(self.held.pop_front().and_then(|held| held.info));
        }
    }

    /// A receiver that is gone is noticed before the next step.
    fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// As in Ollama: more than 30 equal tokens in a row are a loop, and end the answer.
const MAX_RUN: usize = 30;
