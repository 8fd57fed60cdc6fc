//! The model behind its engine: how soon the first token comes, and how fast a stream is.

use std::time::Instant;

use llmsrv_engine::{Ending, Event, GenRequest, Handle, SamplingParams, TokenId};
use serde::Serialize;

use crate::{Error, Figure};

/// Seconds from a request to its first token.
#[derive(Clone, Debug, Serialize)]
pub struct FirstToken {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// The prompt is new.
    pub new: Figure,
    /// The prompt was seen before.
    pub seen: Figure,
}

/// Measures the time to the first token of prompts of `prompt` tokens, each twice.
pub(crate) fn first_token(
    engine: &Handle,
    prompt: usize,
    rounds: usize,
) -> Result<FirstToken, Error> {
    let vocab = engine.spec().vocab_size as u32;
    let (mut new, mut seen) = (Vec::new(), Vec::new());
    for round in 0..rounds as u32 {
        let tokens: Vec<TokenId> = (0..prompt as u32)
            .map(|at| (round * 7919 + at * 104_729 + 17) % vocab)
            .collect();
        for times in [&mut new, &mut seen] {
            let start = Instant::now();
            generate(engine, &tokens, 1)?;
            times.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(FirstToken {
        prompt,
        new: Figure::of(new),
        seen: Figure::of(seen),
    })
}

/// The model's engine, to be streamed from.
pub struct Streamer {
    pub(crate) engine: Handle,
}

impl Streamer {
    /// Returns what waits for the end of the engine, which comes after this is dropped.
    pub fn ending(&self) -> Ending {
        self.engine.ending()
    }

    /// Streams an answer of `n` tokens to `prompt`. Returns the tokens per second between the first
    /// event and the last, or `None` if the answer was too short to tell.
    pub fn tokens_per_second(&self, prompt: &str, n: usize) -> Result<Option<f64>, Error> {
        let special = llmsrv_tokenizer::Special::Parse;
        let tokens = self.engine.tokenizer().encode(prompt, special);
        generate(&self.engine, &tokens, n)
    }
}

/// Returns the tokens per second after the first one of an answer of `n_made` tokens, which was to have `n_wanted` and
/// took `seconds` from the first event to the last. `None` of one that ended before half of them: what takes
/// microseconds says nothing of a rate.
pub fn stream_rate(n_made: usize, n_wanted: usize, seconds: f64) -> Option<f64> {
    let is_measured = n_made > n_wanted / 2 && n_made > 1 && seconds > 0.0;
    is_measured.then(|| (n_made - 1) as f64 / seconds)
}

/// Generates greedily. Returns the tokens per second after the first one.
fn generate(engine: &Handle, tokens: &[TokenId], n: usize) -> Result<Option<f64>, Error> {
    let mut generation = engine.submit(GenRequest {
        tokens: tokens.to_vec(),
        images: Vec::new(),
        params: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        num_ctx: usize::MAX,
        max_tokens: Some(n),
        stop: Vec::new(),
        num_keep: 0,
        shift: false,
        grammar: None,
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    })?;
    let mut first = None;
    while let Some(event) = generation.blocking_next() {
        match event {
            Event::Error(message) | Event::DeviceLost(message) => {
                return Err(Error::Invalid(message));
            }
            Event::Done(finish) => {
                let seconds = first.map_or(0.0, |first: Instant| first.elapsed().as_secs_f64());
                return Ok(stream_rate(finish.eval_tokens, n, seconds));
            }
            _ => {
                first.get_or_insert_with(Instant::now);
            }
        }
    }
    Ok(None)
}
