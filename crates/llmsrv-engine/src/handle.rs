//! The side of the engine that other threads hold: submit requests, read events, look at figures.

use std::{
    sync::{Arc, OnceLock, mpsc},
    thread,
};

use llmsrv_tokenizer::Tokenizer;
use parking_lot::Mutex;
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot, watch,
};

use crate::{
    Embeddings, EngineOptions, Event, GenRequest, Loaded, MemoryAccount, ModelSpec, Stats,
    SubmitError, TokenId,
    embed::EmbedInput,
    engine::{Ended, Engine},
    grammar::{Constraint, Grammars},
    image,
    options::Unlimited,
    submission::{Submission, Work},
};

/// Starts the engine of `loaded` on a thread of its own, which ends when the last [`Handle`] is
/// dropped and the running generations are over. If the system gives no thread, the handle is not
/// alive and takes nothing.
pub fn spawn(loaded: Loaded, options: EngineOptions) -> Handle {
    spawn_within(loaded, options, Box::new(Unlimited))
}

/// Like [`spawn`], for a model whose KV cache grows only as far as `memory` allows.
pub fn spawn_within(
    mut loaded: Loaded,
    options: EngineOptions,
    memory: Box<dyn MemoryAccount>,
) -> Handle {
    let tokenizer = loaded.tokenizer.clone();
    let spec = loaded.model.spec().clone();
    let context_limit = spec
        .context_length
        .min(options.max_kv_blocks.saturating_mul(spec.block_size));
    let stats = Arc::new(Mutex::new(Stats::default()));
    let lost = Arc::new(OnceLock::new());
    let (submissions, receiver) = mpsc::channel();
    let submissions = Arc::new(submissions);
    let (life, alive) = watch::channel(Life::Running);
    // Who tells of a lost device must not keep the engine running.
    let to_engine = Arc::downgrade(&submissions);
    loaded.model.on_loss(Box::new(move |reason| {
        if let Some(submissions) = to_engine.upgrade() {
            // An engine that has ended knows.
            let _ = submissions.send(Work::DeviceLost(reason));
        }
    }));

    let mut engine = Engine::new(loaded, options, memory, stats.clone());
    let why_lost = lost.clone();
    let started = thread::Builder::new()
        .name("llmsrv-engine".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.serve(&receiver)));
            if let Ok(Ended::DeviceLost(reason)) = &outcome {
                tracing::error!(
                    reason,
                    "the device of the model is lost; its requests fail, and the next one loads it anew"
                );
                // It is the only one to write it.
                let _ = why_lost.set(reason.clone());
            }
            // Nobody may see an error event while `is_alive` still says yes.
            life.send_replace(Life::Ending);
            if outcome.is_err() {
                tracing::error!("the engine thread panicked; its requests fail");
            }
            drop(receiver);
            drop(engine);
        });
    if let Err(error) = started {
        tracing::error!(%error, "the engine thread could not be started");
    }
    Handle {
        shared: Arc::new(Shared {
            spec,
            context_limit,
            grammars: Grammars::new(tokenizer),
            stats,
            lost,
        }),
        submissions,
        alive,
    }
}

/// Access to a running engine; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    submissions: Arc<mpsc::Sender<Work>>,
    alive: watch::Receiver<Life>,
}

struct Shared {
    spec: ModelSpec,
    context_limit: usize,
    grammars: Grammars,
    stats: Arc<Mutex<Stats>>,
    /// Why the engine ended, if its device was lost; written before anybody can notice the end.
    lost: Arc<OnceLock<String>>,
}

impl Handle {
    /// Gives a request to the engine.
    ///
    /// Returns at once, except that a grammar is compiled here: milliseconds, so an async caller
    /// with a grammar goes through its pool of blocking threads. `num_ctx` is cut to
    /// [`Handle::context_limit`].
    ///
    /// # Errors
    ///
    /// [`SubmitError::NoText`] if the model generates none; [`SubmitError::PromptLength`] if the
    /// prompt is empty or fills `num_ctx`; [`SubmitError::Images`] if images overlap, are empty or
    /// reach beyond the prompt; [`SubmitError::UnknownToken`] for an id of the prompt or of a bias
    /// that is not in the vocabulary; [`SubmitError::Grammar`] if the grammar cannot be compiled, or
    /// not within its limits; [`SubmitError::DeviceLost`] or [`SubmitError::Closed`] once the engine's
    /// thread has ended. What goes wrong later is an [`Event::Error`] or [`Event::DeviceLost`].
    pub fn submit(&self, mut request: GenRequest) -> Result<Generation, SubmitError> {
        if !self.shared.spec.generates() {
            return Err(SubmitError::NoText);
        }
        request.num_ctx = request.num_ctx.min(self.shared.context_limit);
        let n_tokens = request.tokens.len();
        if n_tokens == 0 || n_tokens >= request.num_ctx {
            return Err(SubmitError::PromptLength {
                tokens: n_tokens,
                num_ctx: request.num_ctx,
            });
        }
        if !image::are_sound(&request.images, n_tokens) {
            return Err(SubmitError::Images);
        }
        self.check_vocabulary(&request.tokens)?;
        let biased: Vec<_> = request
            .params
            .logit_bias
            .iter()
            .map(|bias| bias.0)
            .collect();
        self.check_vocabulary(&biased)?;
        let constraint = match &request.grammar {
            Some(grammar) => Some(self.shared.grammars.constraint(grammar, &request)?),
            None => None,
        };
        if !self.is_alive() {
            return Err(self.why_closed());
        }
        let (events, receiver) = unbounded_channel();
        let unenforced = constraint.as_ref().map(Constraint::unenforced);
        let submission = Submission {
            request,
            constraint,
            events,
        };
        self.submissions
            .send(Work::Generate(Box::new(submission)))
            .map_err(|_| self.why_closed())?;
        Ok(Generation {
            events: receiver,
            ended: false,
            unenforced: unenforced.unwrap_or_default(),
            lost: self.shared.lost.clone(),
        })
    }

    /// Asks for one vector for each input, as the model makes it: neither cut nor normalised.
    ///
    /// An input has at least one token and at most [`Handle::context_limit`]. Inputs are computed
    /// beside running generations, a bounded number of tokens in each step.
    ///
    /// # Errors
    ///
    /// [`SubmitError::NoEmbeddings`] if the model makes no vectors; [`SubmitError::PromptLength`] for
    /// an input that is empty or too long; [`SubmitError::UnknownToken`] for an id that is not in the
    /// vocabulary; [`SubmitError::DeviceLost`] or [`SubmitError::Closed`] once the engine's thread has
    /// ended. One such input refuses all. What goes wrong later says [`Embeddings::wait`].
    pub fn embed(&self, inputs: Vec<Vec<TokenId>>) -> Result<Embeddings, SubmitError> {
        if self.shared.spec.embedding.is_none() {
            return Err(SubmitError::NoEmbeddings);
        }
        for tokens in &inputs {
            if tokens.is_empty() || tokens.len() > self.shared.context_limit {
                return Err(SubmitError::PromptLength {
                    tokens: tokens.len(),
                    num_ctx: self.shared.context_limit,
                });
            }
            self.check_vocabulary(tokens)?;
        }
        if !self.is_alive() {
            return Err(self.why_closed());
        }
        let (work, results) = inputs
            .into_iter()
            .map(|tokens| {
                let (result, receiver) = oneshot::channel();
                (EmbedInput { tokens, result }, receiver)
            })
            .unzip();
        self.submissions
            .send(Work::Embed(work))
            .map_err(|_| self.why_closed())?;
        Ok(Embeddings {
            results,
            lost: self.shared.lost.clone(),
        })
    }

    fn why_closed(&self) -> SubmitError {
        match self.shared.lost.get() {
            Some(reason) => SubmitError::DeviceLost(reason.clone()),
            None => SubmitError::Closed,
        }
    }

    fn check_vocabulary(&self, tokens: &[TokenId]) -> Result<(), SubmitError> {
        let vocab_size = self.shared.spec.vocab_size;
        let unknown = tokens.iter().find(|token| **token as usize >= vocab_size);
        unknown.map_or(Ok(()), |token| Err(SubmitError::UnknownToken(*token)))
    }

    /// Returns the engine's figures as of its last step.
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock()
    }

    /// Returns the tokenizer of the model.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        self.shared.grammars.tokenizer()
    }

    /// Returns the fixed facts of the model.
    pub fn spec(&self) -> &ModelSpec {
        &self.shared.spec
    }

    /// Returns the largest context that one request can have, in tokens: what the model was
    /// trained for and what fits into the KV blocks.
    pub fn context_limit(&self) -> usize {
        self.shared.context_limit
    }

    /// Returns whether the engine takes requests; `false` for ever once its thread has failed.
    pub fn is_alive(&self) -> bool {
        *self.alive.borrow() == Life::Running && self.alive.has_changed().is_ok()
    }

    /// Returns something to wait for the end of the engine with; it does not keep it running.
    pub fn ending(&self) -> Ending {
        Ending {
            alive: self.alive.clone(),
            lost: self.shared.lost.clone(),
        }
    }
}

/// The end of an engine, to be waited for.
#[derive(Clone, Debug)]
pub struct Ending {
    alive: watch::Receiver<Life>,
    lost: Arc<OnceLock<String>>,
}

impl Ending {
    /// Waits until the engine's thread is over and the model's memory is free. Returns why, if its device was lost.
    pub async fn wait(mut self) -> Option<String> {
        while self.alive.changed().await.is_ok() {}
        self.lost.get().cloned()
    }
}

/// The events of one request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Generation {
    events: UnboundedReceiver<Event>,
    ended: bool,
    unenforced: Arc<[String]>,
    lost: Arc<OnceLock<String>>,
}

impl Generation {
    /// What of the request's schemas is not enforced: one sentence for each keyword.
    pub fn unenforced(&self) -> &[String] {
        &self.unenforced
    }

    /// Waits for the next event; `None` after one that says that none follows.
    pub async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.recv().await;
        Some(self.check(event))
    }

    /// Waits for the next event on a thread that is not part of an async runtime.
    pub fn blocking_next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let event = self.events.blocking_recv();
        Some(self.check(event))
    }

    /// A channel that closes before the last event means that the engine's thread failed.
    fn check(&mut self, event: Option<Event>) -> Event {
        let event = event.unwrap_or_else(|| match self.lost.get() {
            Some(reason) => Event::DeviceLost(reason.clone()),
            None => Event::Error("the model stopped unexpectedly".into()),
        });
        self.ended = !matches!(event, Event::Text { .. });
        event
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Ending,
}

/// Grammar engines recurse; the default of 2 MiB is for shallower work.
const STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        FinishReason, GrammarSpec, SamplingParams, TokenId,
        fake::{self, Answer, FakeOptions},
    };

    fn request(prompt: &str) -> GenRequest {
        GenRequest {
            tokens: prompt.bytes().map(TokenId::from).collect(),
            images: Vec::new(),
            params: SamplingParams::default(),
            num_ctx: 1 << 20,
            max_tokens: None,
            stop: Vec::new(),
            num_keep: 4,
            shift: true,
            grammar: None,
            grammar_after: None,
            grammar_unless: None,
            logprobs: None,
        }
    }

    fn text(generation: &mut Generation) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match generation.blocking_next() {
                Some(Event::Text { text: more, .. }) => text.push_str(&more),
                Some(Event::Done(_)) => break,
                Some(Event::Error(message) | Event::DeviceLost(message)) => return Err(message),
                None => panic!("no last event"),
            }
        }
        assert!(generation.blocking_next().is_none());
        Ok(text)
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(std::time::Instant::now() < deadline, "it does not happen");
            thread::yield_now();
        }
    }

    fn wait_for_end(ending: Ending) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(ending.wait());
    }

    #[test]
    fn many_requests_at_once() {
        let handle = spawn(
            fake::loaded(FakeOptions::default()),
            EngineOptions {
                max_sequences: 3,
                ..EngineOptions::default()
            },
        );
        let mut generations: Vec<_> = (0..10)
            .map(|idx| handle.submit(request(&format!("prompt {idx}"))).unwrap())
            .collect();
        for generation in &mut generations {
            assert_eq!(text(generation).unwrap(), "Hello! How can I help you?");
        }
        wait_until(|| handle.stats().kv_blocks_used == 0);
        let stats = handle.stats();
        assert_eq!((stats.requests, stats.running, stats.waiting), (10, 0, 0));
        assert!(handle.is_alive());
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let fake = FakeOptions {
            context_length: 100,
            block_size: 8,
            ..FakeOptions::default()
        };
        let handle = spawn(
            fake::loaded(fake),
            EngineOptions {
                max_kv_blocks: 3,
                ..EngineOptions::default()
            },
        );
        assert_eq!(handle.context_limit(), 24);
        let refuse = |request| handle.submit(request).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            refuse(request("")),
            "the prompt has 0 tokens; the context holds 24"
        );
        assert_eq!(
            refuse(request(&"x".repeat(24))),
            "the prompt has 24 tokens; the context holds 24"
        );
        assert_eq!(
            refuse(GenRequest {
                tokens: vec![1, 259],
                ..request("")
            }),
            "token 259 is not in the vocabulary"
        );
        let grammar = Some(GrammarSpec::Regex("(".into()));
        let error = refuse(GenRequest {
            grammar,
            ..request("a")
        });
        assert!(
            error.starts_with("invalid format: ") && !error.contains('\n'),
            "{error}"
        );
    }

    #[test]
    fn dropping_a_generation_cancels_it() {
        let fake = FakeOptions {
            answer: Answer::Endless,
            context_length: 1 << 20,
            ..FakeOptions::default()
        };
        let handle = spawn(fake::loaded(fake), EngineOptions::default());
        let mut generation = handle.submit(request("a")).unwrap();
        assert!(matches!(
            generation.blocking_next(),
            Some(Event::Text { .. })
        ));
        drop(generation);
        wait_until(|| handle.stats().running == 0 && handle.stats().kv_blocks_used == 0);
    }

    #[test]
    fn a_panic_gives_each_request_one_error() {
        let fake = FakeOptions {
            answer: Answer::Endless,
            panic_on: Some("!".into()),
            ..FakeOptions::default()
        };
        let handle = spawn(fake::loaded(fake), EngineOptions::default());
        let ending = handle.ending();
        let mut innocent = handle.submit(request("a")).unwrap();
        assert!(matches!(innocent.blocking_next(), Some(Event::Text { .. })));
        let mut guilty = handle.submit(request("now!")).unwrap();
        for generation in [&mut innocent, &mut guilty] {
            assert_eq!(
                text(generation).unwrap_err(),
                "the model stopped unexpectedly"
            );
            assert!(!handle.is_alive());
        }
        assert!(matches!(
            handle.submit(request("a")),
            Err(SubmitError::Closed)
        ));
        wait_for_end(ending);
    }

    #[test]
    fn the_engine_ends_with_its_last_handle() {
        let handle = spawn(
            fake::loaded(FakeOptions::default()),
            EngineOptions::default(),
        );
        let ending = handle.ending();
        let mut generation = handle.clone().submit(request("a")).unwrap();
        drop(handle);
        assert_eq!(
            text(&mut generation).unwrap(),
            "Hello! How can I help you?",
            "what runs is finished"
        );
        wait_for_end(ending);
    }

    #[test]
    fn async_readers_get_the_same_events() {
        let handle = spawn(
            fake::loaded(FakeOptions::default()),
            EngineOptions::default(),
        );
        let mut generation = handle.submit(request("a")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let reason = runtime.block_on(async {
            loop {
                match generation.next().await {
                    Some(Event::Text { .. }) => {}
                    Some(Event::Done(finish)) => break finish.reason,
                    other => panic!("{other:?}"),
                }
            }
        });
        assert_eq!(reason, FinishReason::Stop);
    }
}
