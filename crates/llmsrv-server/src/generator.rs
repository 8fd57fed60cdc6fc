//! What generates an answer: an engine of this process, or an upstream server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use llmsrv_api::native::Metrics;
use llmsrv_chat::{OutputSplitter, Piece};
use llmsrv_engine::{Event, Finish, FinishReason, Generation};

use crate::{
    app::App,
    clock,
    dialect::{Delta, End, Reason},
    error::ApiError,
    job::Job,
    manager::Lease,
    metrics, prompt, upstream,
};

/// What comes of a request.
pub(crate) enum Outcome {
    /// An answer.
    Generator(Generator),
    /// A model was loaded or unloaded.
    WithoutText(Reason),
    /// The prompt, as it was asked for, and the number of its images.
    Prompt(String, usize),
}

/// Generates an answer. Dropping it, as when the client goes away, cancels the work.
pub(crate) enum Generator {
    /// A model of this machine.
    Engine(Box<Engine>),
    /// A model of another server.
    Upstream(Box<Upstream>),
}

/// An answer of another server.
pub(crate) struct Upstream {
    answer: upstream::Answer,
    /// Name of the model in the settings.
    model: String,
    metrics: Arc<metrics::Metrics>,
    watch: metrics::Answer,
}

/// An answer of a loaded model.
pub(crate) struct Engine {
    generation: Generation,
    /// Tells content, thinking and calls apart; `None` = all is content.
    splitter: Option<OutputSplitter>,
    load_duration: Duration,
    prompt_tokens: usize,
    n_truncated: usize,
    watch: metrics::Answer,
    lease: Lease,
}

/// Finds who is to answer and lets it begin.
pub(crate) async fn begin(app: &App, job: Job) -> Result<Outcome, ApiError> {
    if let Some(name) = app.upstreams.known(&job.model) {
        let (model, asked) = (name.to_string(), Instant::now());
        if job.is_empty() {
            // There is nothing to load or unload on this machine.
            return Ok(Outcome::WithoutText(if job.is_unload() {
                Reason::Unload
            } else {
                Reason::Load
            }));
        }
        match app.upstreams.answer(&job).await {
            Ok(answer) => {
                return Ok(Outcome::Generator(Generator::Upstream(Box::new(
                    Upstream {
                        answer,
                        watch: app.metrics.answer(&model).since(asked),
                        metrics: app.metrics.clone(),
                        model,
                    },
                ))));
            }
            Err(refused) if !refused.local => return Err(refused.error),
            Err(refused) => {
                let error = refused.error;
                tracing::warn!(model = %job.model, %error, "a model of this machine answers instead");
            }
        }
    }
    on_this_machine(app, job).await
}

async fn on_this_machine(app: &App, job: Job) -> Result<Outcome, ApiError> {
    let asked = Instant::now();
    let stored = app.manager.find(&job.model).await?;
    if job.is_unload() {
        app.manager.unload(&stored.entry.digest.hex());
        return Ok(Outcome::WithoutText(Reason::Unload));
    }
    let lease = app
        .manager
        .lease(stored, job.keep_alive, &job.options)
        .await?;
    let load_duration = asked.elapsed();
    if job.is_empty() {
        if lease.model.stored.entry.config.embeds_only {
            return Err(ApiError::does_not_support(&job.model, job.verb()));
        }
        return Ok(Outcome::WithoutText(Reason::Load));
    }
    let (model, settings) = (lease.model.clone(), app.settings.clone());
    let job = Arc::new(job);
    if job.render_only {
        let rendered =
            prompt::rendering(move |stop| prompt::rendered(&job, &model, &settings, stop));
        let (text, n_images) = rendered.await?;
        return Ok(Outcome::Prompt(text, n_images));
    }
    let name = lease.model.stored.entry.name.to_string();
    let watch = app.metrics.answer(&name).since(asked);
    let started =
        prompt::rendering(move |stop| prompt::start(&job, &model, &settings, stop)).await?;
    Ok(Outcome::Generator(Generator::Engine(Box::new(Engine {
        generation: started.generation,
        splitter: started.splitter,
        load_duration,
        prompt_tokens: started.prompt_tokens,
        n_truncated: started.n_truncated,
        watch,
        lease,
    }))))
}

impl Generator {
    /// Returns the tokens of the prompt, if they are known before the end.
    pub(crate) fn prompt_tokens(&self) -> usize {
        match self {
            Generator::Engine(engine) => engine.prompt_tokens,
            Generator::Upstream(_) => 0,
        }
    }

    /// What the answer need not keep to, for all that was asked: one sentence each.
    pub(crate) fn unenforced(&self) -> &[String] {
        match self {
            Generator::Engine(engine) => engine.generation.unenforced(),
            Generator::Upstream(_) => &[],
        }
    }

    /// Waits for what is said next, and at last for the end; nothing may be asked after that or after
    /// an error. Nothing is lost when the wait is given up.
    pub(crate) async fn next(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        match self {
            Generator::Engine(engine) => engine.next().await,
            Generator::Upstream(upstream) => upstream.next().await,
        }
    }
}

impl Upstream {
    async fn next(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        let next = self.answer.next().await;
        match &next {
            Ok((said, end)) => {
                if !said.pieces.is_empty() {
                    self.watch.spoke();
                }
                if let Some(end) = end {
                    let (counts, cached) = (&end.metrics, end.cached_tokens);
                    let time = Duration::from_nanos(counts.eval_duration);
                    self.watch.done(counts.eval_count, time);
                    let (prompt, generated) = (counts.prompt_eval_count, counts.eval_count);
                    self.metrics.tokens(&self.model, prompt, cached, generated);
                }
            }
            Err(_) => self.watch.failed(),
        }
        next
    }
}

impl Engine {
    async fn next(&mut self) -> Result<(Delta, Option<End>), ApiError> {
        let event = self.generation.next().await;
        if let Some(event) = &event {
            self.watch.saw(event);
        }
        match event {
            Some(Event::Text { text, tokens }) => {
                let pieces = match &mut self.splitter {
                    Some(splitter) => splitter.push(&text),
                    None if text.is_empty() => Vec::new(),
                    None => vec![Piece::Content(text)],
                };
                Ok((
                    Delta {
                        pieces,
                        tokens,
                        ..Delta::default()
                    },
                    None,
                ))
            }
            Some(Event::Done(finish)) => {
                let mut said = Delta::default();
                if let Some(splitter) = &mut self.splitter {
                    said.pieces = splitter.finish();
                    let n_bytes = splitter.n_left_out();
                    if n_bytes > 0 {
                        let model = &self.lease.model.stored.entry.name;
                        tracing::warn!(%model, n_bytes, "a call of a tool was cut, or calls no tool that was offered: it is left out of the answer");
                    }
                }
                Ok((said, Some(self.end(*finish))))
            }
            Some(Event::Error(text)) => Err(ApiError::internal(text)),
            Some(Event::DeviceLost(reason)) => Err(ApiError::device_lost(&reason)),
            Some(_) => Ok((Delta::default(), None)),
            None => Err(ApiError::internal("the model stopped working; try again")),
        }
    }

    fn end(&self, finish: Finish) -> End {
        End {
            reason: match finish.reason {
                FinishReason::Stop => Reason::Stop,
                FinishReason::Length => Reason::Length,
            },
            stop_text: finish.stop_text,
            context: finish.context,
            metrics: Metrics {
                // The whole is known where the answer is written.
                total_duration: 0,
                load_duration: clock::nanos(self.load_duration),
                prompt_eval_count: finish.prompt_tokens as u64,
                prompt_eval_duration: clock::nanos(finish.prompt_duration),
                eval_count: finish.eval_tokens as u64,
                eval_duration: clock::nanos(finish.eval_duration),
                prompt_truncated: self.n_truncated as u64,
            },
            cached_tokens: finish.cached_tokens as u64,
        }
    }
}
