//! From a job and its model to tokens: template, truncation, options.

use std::sync::{Arc, LazyLock, atomic::Ordering};

use jiff::Zoned;
use llmsrv_api::{native::Message, options::Options};
use llmsrv_chat::{
    Bound, Fill, Otherwise, OutputSplitter, Prompt, Stop, Template, Think, ToolFormat,
};
use llmsrv_engine::{GenRequest, Generation, GrammarSpec, SamplingParams, SubmitError};
use llmsrv_store::ModelName;
use llmsrv_tokenizer::{Special, Tokenizer};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::{
    dialect::native,
    error::ApiError,
    images::{self, Layout},
    job::{Generate, Input, Job, ToolChoice},
    manager::{LoadedModel, ReadyModel},
    settings::Settings,
    tasks,
};

/// A prompt on its way.
pub(crate) struct Started {
    pub(crate) generation: Generation,
    pub(crate) prompt_tokens: usize,
    /// Tells content, thinking and calls apart; `None` = all is content.
    pub(crate) splitter: Option<OutputSplitter>,
    /// Tokens cut from the prompt.
    pub(crate) n_truncated: usize,
}

/// The text of a prompt.
#[derive(Default)]
struct Rendered {
    text: String,
    /// The tokens of the text at the start of a prompt, if it was cut into them already.
    tokens: Option<Vec<u32>>,
    /// Tokens that go before it.
    context: Vec<u32>,
    n_truncated: usize,
    /// Base64, in the order of the tags' numbers.
    images: Vec<String>,
}

impl Rendered {
    /// The images of a conversation, without its text.
    fn of(messages: Vec<Message>) -> Rendered {
        let images = messages.into_iter().flat_map(|message| message.images);
        Rendered {
            images: images.collect(),
            ..Rendered::default()
        }
    }

    /// Takes out the middle of a text that cannot fit, however it is cut into tokens, before it is:
    /// that takes long. Both ends are left as far as they could be kept.
    ///
    /// # Errors
    /// If the prompt must not be cut.
    fn shorten(
        &mut self,
        tokenizer: &Tokenizer,
        n_ctx: usize,
        n_keep: usize,
        job: &Job,
    ) -> Result<(), ApiError> {
        let n_bytes = self.text.len();
        let Some(longest) = too_long(tokenizer, n_bytes, n_ctx) else {
            return Ok(());
        };
        if !job.shift || !job.truncate || !self.images.is_empty() {
            let n_tokens = estimate(n_bytes).max(n_ctx);
            return Err(ApiError::prompt_too_long(n_tokens, n_ctx));
        }
        let end = n_bytes - longest * n_ctx;
        let start = longest.saturating_mul(n_keep.min(n_ctx)).min(end);
        let lost = self.text.floor_char_boundary(start)..self.text.ceil_char_boundary(end);
        self.n_truncated += estimate(lost.len());
        self.text.drain(lost);
        self.tokens = None;
        Ok(())
    }
}

/// Returns the bytes of the longest token if a text of `n_bytes` has more than `n_ctx` tokens in any
/// case.
pub(crate) fn too_long(tokenizer: &Tokenizer, n_bytes: usize, n_ctx: usize) -> Option<usize> {
    let longest = tokenizer.longest_token()?;
    (n_bytes > longest.checked_mul(n_ctx)?).then_some(longest)
}

/// About how many tokens a text of `n_bytes` has that nobody cut into tokens.
pub(crate) fn estimate(n_bytes: usize) -> usize {
    n_bytes / USUAL_TOKEN_BYTES
}

/// Does something with a template on a thread that may wait: a few at a time, and no longer than the
/// caller waits. Dropping the future ends the rendering.
pub(crate) async fn rendering<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let permit = RENDERINGS.clone().acquire_owned().await;
    let stop = Stop::new();
    let waits = Waits(stop.clone());
    let done = tasks::computing(move || {
        let _permit = permit;
        work(&stop)
    });
    let done = done.await?;
    drop(waits);
    done
}

/// Ends a rendering when nobody waits for it.
struct Waits(Stop);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Renders the prompt of a job and gives it to the engine. Takes as long as a tokenizer needs, so it
/// runs where that is allowed.
pub(crate) fn start(
    job: &Job,
    model: &Arc<ReadyModel>,
    settings: &Settings,
    stop: &Stop,
) -> Result<Started, ApiError> {
    let own;
    let template = match own_template(job)? {
        Some(template) => {
            own = template;
            &own
        }
        None => &model.template,
    };
    let think = check(job, model, template)?;
    let options = job.options.clone().or(&model.options);
    let n_ctx = context(&options, model, settings);
    model.last_context.store(n_ctx, Ordering::Relaxed);
    let mut rendered = render(job, model, template, think, n_ctx, stop)?;
    let tokenizer = model.engine.tokenizer();
    let asked = usize::try_from(options.num_keep.unwrap_or(4)).ok();
    let n_keep = match asked {
        Some(n_keep) => n_keep + usize::from(tokenizer.adds_bos()),
        // The whole prompt, as far as a shift frees enough for it to be worth its work.
        None => n_ctx - n_ctx / 4,
    };
    rendered.shorten(tokenizer, n_ctx, n_keep, job)?;
    let mut layout = layout(model, &mut rendered, n_ctx)?;
    if layout.tokens.is_empty() {
        layout
            .tokens
            .extend(tokenizer.bos().or_else(|| tokenizer.eos()));
    }
    let n_tokens = layout.tokens.len();
    fit(&mut layout, n_ctx, n_keep, job)?;
    let n_truncated = rendered.n_truncated + (n_tokens - layout.tokens.len());
    if n_truncated > 0 {
        tracing::warn!(model = %job.model, n_truncated, n_ctx, "the prompt was cut to fit the context");
    }

    let splitter = (!is_raw(job)).then(|| {
        let tail = tail(&rendered.text);
        OutputSplitter::new(template, tail, job.tools(), think, bound(job))
    });
    let calls = calls(job, template, tokenizer);
    let thinks = think.is_some_and(Think::is_on) || template.has_channels();
    let start = template
        .grammar_start(tail(&rendered.text), calls.is_some())
        .filter(|_| thinks && !is_raw(job));
    let prompt_tokens = layout.tokens.len();
    let images = layout.spans(model.vision.as_deref())?;
    let request = GenRequest {
        tokens: layout.tokens,
        images,
        params: SamplingParams {
            logit_bias: job.logit_bias.clone(),
            ..sampling(&options)
        },
        num_ctx: n_ctx,
        max_tokens: options
            .num_predict
            .and_then(|count| usize::try_from(count).ok()),
        stop: options
            .stop
            .unwrap_or_default()
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect(),
        num_keep: match asked {
            Some(_) => n_keep,
            None => n_keep.min(prompt_tokens),
        },
        shift: job.shift,
        grammar: calls.or_else(|| job.grammar.clone()),
        grammar_after: start.map(|start| start.after.to_owned()),
        grammar_unless: start.and_then(|start| start.unless.map(str::to_owned)),
        logprobs: job.logprobs,
    };
    let generation = model.engine.submit(request).map_err(|error| match error {
        SubmitError::DeviceLost(reason) => ApiError::device_lost(&reason),
        SubmitError::Closed => ApiError::model_stopped(),
        SubmitError::PromptLength { tokens, num_ctx } => ApiError::prompt_too_long(tokens, num_ctx),
        error => ApiError::bad_request(error.to_string()),
    })?;
    Ok(Started {
        generation,
        prompt_tokens,
        splitter,
        n_truncated,
    })
}

/// Renders the prompt of a job without running it; returns it with the number of its images.
pub(crate) fn rendered(
    job: &Job,
    model: &ReadyModel,
    settings: &Settings,
    stop: &Stop,
) -> Result<(String, usize), ApiError> {
    let rendered = with_context(job, model, settings, stop)?;
    Ok((rendered.text, rendered.images.len()))
}

/// Renders the prompt of a job, with what goes before it as text.
fn with_context(
    job: &Job,
    model: &ReadyModel,
    settings: &Settings,
    stop: &Stop,
) -> Result<Rendered, ApiError> {
    let own = own_template(job)?;
    let template = own.as_ref().unwrap_or(&model.template);
    let think = check(job, model, template)?;
    let options = job.options.clone().or(&model.options);
    let n_ctx = context(&options, model, settings);
    let mut rendered = render(job, model, template, think, n_ctx, stop)?;
    let context = std::mem::take(&mut rendered.context);
    let before = model.engine.tokenizer().decode_with_special(&context);
    rendered.text.insert_str(0, &before);
    Ok(rendered)
}

/// Counts the tokens of a job's prompt, uncut.
pub(crate) fn count(
    job: &Job,
    model: &ReadyModel,
    settings: &Settings,
    stop: &Stop,
) -> Result<usize, ApiError> {
    let whole = Job {
        truncate: false,
        ..job.clone()
    };
    let mut rendered = with_context(&whole, model, settings, stop)?;
    Ok(layout(model, &mut rendered, usize::MAX)?.tokens.len())
}

/// Tokens of a text with tags for images, behind those of its context, which it loses.
fn layout(model: &ReadyModel, rendered: &mut Rendered, n_ctx: usize) -> Result<Layout, ApiError> {
    let tokenizer = model.engine.tokenizer();
    let context = std::mem::take(&mut rendered.context);
    match (model.vision.as_deref(), rendered.tokens.take()) {
        (Some(vision), _) if !rendered.images.is_empty() => {
            let Rendered { text, images, .. } = rendered;
            let images = std::mem::take(images);
            Layout::with_images(tokenizer, context, text, images, vision, n_ctx)
        }
        (_, Some(tokens)) if context.is_empty() => Ok(Layout::of(tokens)),
        _ => Ok(Layout::text(tokenizer, context, &rendered.text)),
    }
}

/// The size of the context in tokens; an image must fit.
fn context(options: &Options, model: &ReadyModel, settings: &Settings) -> usize {
    let asked = settings.context(options.num_ctx, model.context);
    let least = if model.vision.is_some() {
        MIN_VISION_CONTEXT
    } else {
        0
    };
    asked.max(least).min(model.engine.context_limit())
}

/// The size of the context of a name where its requests do not say.
pub(crate) fn own_context(
    parameters: &Map<String, Value>,
    loaded: &LoadedModel,
    settings: &Settings,
) -> usize {
    // What is wrong with them is told where they are used.
    let (options, _) = Options::of_model(parameters);
    let asked = settings.context(options.num_ctx, loaded.context);
    asked.min(loaded.engine.context_limit())
}

fn own_template(job: &Job) -> Result<Option<Template>, ApiError> {
    match &job.input {
        Input::Generate(Generate {
            template: Some(text),
            ..
        }) => Ok(Some(Template::go(text)?)),
        _ => Ok(None),
    }
}

fn is_raw(job: &Job) -> bool {
    matches!(&job.input, Input::Generate(Generate { raw: true, .. }))
}

/// The whole name of the model that was asked for. Names that stand for the same model share what is
/// loaded, which has the name of the first one.
fn name(job: &Job, model: &ReadyModel) -> ModelName {
    let loaded = &model.stored.entry.name;
    match job.model.parse() {
        Ok(asked) if asked != *loaded => asked,
        _ => loaded.clone(),
    }
}

/// Refuses what the model cannot do; returns how it is to think.
fn check(job: &Job, model: &ReadyModel, template: &Template) -> Result<Option<Think>, ApiError> {
    let entry = &model.stored.entry;
    let can = template.capabilities();
    if entry.config.embeds_only {
        return Err(ApiError::does_not_support(&job.model, job.verb()));
    }
    let n_images = match &job.input {
        Input::Generate(generate) => {
            if !generate.suffix.is_empty() && !can.insert {
                return Err(ApiError::lacks(&name(job, model).full(), "insert"));
            }
            generate.images.len()
        }
        Input::Chat { messages, .. } => {
            if !job.tools().is_empty() && !can.tools {
                return Err(ApiError::lacks(&name(job, model).full(), "tools"));
            }
            messages.iter().map(|message| message.images.len()).sum()
        }
    };
    if n_images > 0 && model.vision.is_none() {
        return Err(ApiError::does_not_support(&job.model, "images"));
    }
    match job.think {
        Some(think) if think.is_on() && !can.thinking && job.think_if_able => Ok(None),
        Some(think) if think.is_on() && !can.thinking => {
            Err(ApiError::does_not_support(&job.model, "thinking"))
        }
        None if can.thinking => Ok(Some(Think::On)),
        // The most that gpt-oss was trained on.
        Some(Think::Max) if template.has_channels() => Ok(Some(Think::High)),
        think => Ok(think),
    }
}

fn render(
    job: &Job,
    model: &ReadyModel,
    template: &Template,
    think: Option<Think>,
    n_ctx: usize,
    stop: &Stop,
) -> Result<Rendered, ApiError> {
    let stored = || {
        model
            .stored
            .messages
            .iter()
            .filter_map(native::stored_message)
    };
    let system = |text: &str| Message {
        role: "system".into(),
        content: text.to_owned(),
        ..Message::default()
    };
    let own_system = model
        .stored
        .system
        .as_deref()
        .filter(|text| !text.is_empty());
    match &job.input {
        Input::Generate(generate) if generate.raw => Ok(Rendered {
            text: generate.prompt.clone(),
            images: generate.images.clone(),
            ..Rendered::default()
        }),
        Input::Generate(generate) if !generate.suffix.is_empty() => {
            let fill = Fill {
                prompt: &generate.prompt,
                suffix: &generate.suffix,
            };
            let text = template.render(&Prompt {
                fill: Some(fill),
                ..prompt(&[], think, stop)
            })?;
            Ok(Rendered {
                text,
                context: generate.context.clone(),
                images: generate.images.clone(),
                ..Rendered::default()
            })
        }
        Input::Generate(generate) => {
            let mut messages: Vec<Message> = Vec::new();
            messages.extend(generate.system.as_deref().or(own_system).map(system));
            if generate.context.is_empty() {
                messages.extend(stored());
            }
            messages.push(Message {
                role: "user".into(),
                content: generate.prompt.clone(),
                images: generate.images.clone(),
                ..Message::default()
            });
            let cut = job.truncate && generate.context.is_empty() && generate.template.is_none();
            let render = |messages: &[Message]| template.render(&prompt(messages, think, stop));
            if cut {
                return render_newest(messages, model, n_ctx, render);
            }
            Ok(Rendered {
                text: render(&messages)?,
                context: generate.context.clone(),
                ..Rendered::of(messages)
            })
        }
        Input::Chat { messages, .. } => {
            let mut all: Vec<Message> = Vec::new();
            if messages
                .first()
                .is_none_or(|message| message.role != "system")
            {
                all.extend(own_system.map(system));
            }
            all.extend(stored());
            all.extend(messages.iter().cloned());
            if THINKING_FORGETTERS.contains(&model.stored.entry.config.family.as_str())
                || name(job, model).model().starts_with("deepseek-r1")
            {
                llmsrv_chat::strip_earlier_thinking(&mut all);
            }
            let render = |messages: &[Message]| {
                template.render(&Prompt {
                    tools: job.tools(),
                    ..prompt(messages, think, stop)
                })
            };
            if job.truncate {
                return render_newest(all, model, n_ctx, render);
            }
            Ok(Rendered {
                text: render(&all)?,
                ..Rendered::of(all)
            })
        }
    }
}

fn prompt<'a>(messages: &'a [Message], think: Option<Think>, stop: &Stop) -> Prompt<'a> {
    Prompt {
        think,
        stop: stop.clone(),
        ..Prompt::new(messages, Zoned::now())
    }
}

/// Renders as many of the newest messages as fit.
fn render_newest(
    messages: Vec<Message>,
    model: &ReadyModel,
    n_ctx: usize,
    render: impl Fn(&[Message]) -> llmsrv_chat::Result<String>,
) -> Result<Rendered, ApiError> {
    let tokenizer = model.engine.tokenizer();
    let image_tokens = |message: &Message| -> usize {
        let images = message.images.iter();
        let counts = images.filter_map(|image| {
            let vision = model.vision.as_deref()?;
            Some(images::n_tokens(image, tokenizer, vision))
        });
        counts.fold(0, usize::saturating_add)
    };
    let image_tokens: Vec<usize> = messages.iter().map(image_tokens).collect();
    let mut whole = None;
    // The answer needs a token at least.
    let most = n_ctx.saturating_sub(1);
    let kept = llmsrv_chat::truncate(messages, &image_tokens, most, |messages| {
        let text = render(messages)?;
        let fits = too_long(tokenizer, text.len(), n_ctx).is_none();
        let tokens = fits.then(|| tokenizer.encode(&text, Special::ParseAndAdd));
        let n_tokens = tokens
            .as_ref()
            .map_or_else(|| estimate(text.len()).max(n_ctx + 1), Vec::len);
        whole.get_or_insert(n_tokens);
        Ok::<_, ApiError>((n_tokens, (text, tokens)))
    })?;
    let n_truncated = if kept.n_dropped == 0 {
        0
    } else {
        let images = image_tokens
            .iter()
            .fold(0, |sum: usize, n| sum.saturating_add(*n));
        let whole = whole.unwrap_or(0_usize).saturating_add(images);
        whole.saturating_sub(kept.n_tokens)
    };
    let (text, tokens) = kept.rendered;
    Ok(Rendered {
        text,
        tokens,
        n_truncated,
        ..Rendered::of(kept.messages)
    })
}

/// Cuts a prompt that leaves no room to answer: the start and the end stay.
fn fit(layout: &mut Layout, n_ctx: usize, n_keep: usize, job: &Job) -> Result<(), ApiError> {
    let n_tokens = layout.tokens.len();
    if n_tokens < n_ctx {
        return Ok(());
    }
    if !job.shift || !job.truncate {
        return Err(ApiError::prompt_too_long(n_tokens, n_ctx));
    }
    let n_keep = n_keep.min(n_ctx.saturating_sub(2));
    let n_total = n_ctx - ((n_ctx - n_keep) / 2).max(1);
    let n_end = n_total - n_keep;
    layout.remove(n_keep..n_tokens - n_end, n_ctx)
}

fn sampling(options: &Options) -> SamplingParams {
    let default = SamplingParams::default();
    let count = |value: Option<i64>, default: usize| {
        value.map_or(default, |value| usize::try_from(value).unwrap_or(0))
    };
    SamplingParams {
        temperature: options.temperature.unwrap_or(default.temperature),
        top_n_sigma: options.top_n_sigma.unwrap_or(default.top_n_sigma),
        top_k: count(options.top_k, default.top_k),
        top_p: options.top_p.unwrap_or(default.top_p),
        min_p: options.min_p.unwrap_or(default.min_p),
        typical_p: options.typical_p.unwrap_or(default.typical_p),
        repeat_last_n: match options.repeat_last_n {
            None => default.repeat_last_n,
            Some(count) => usize::try_from(count).ok(),
        },
        repeat_penalty: options.repeat_penalty.unwrap_or(default.repeat_penalty),
        presence_penalty: options.presence_penalty.unwrap_or(default.presence_penalty),
        frequency_penalty: options
            .frequency_penalty
            .unwrap_or(default.frequency_penalty),
        seed: options.seed.and_then(|seed| u64::try_from(seed).ok()),
        logit_bias: Vec::new(),
    }
}

/// The calls that the answer must be, in the format of the model's template; or may be, where
/// something else about the answer is to be enforced: its format, or the arguments of calls.
fn calls(job: &Job, template: &Template, tokenizer: &Tokenizer) -> Option<GrammarSpec> {
    let control = |text: &str| tokenizer.find(text).filter(|id| tokenizer.is_control(*id));
    let forced = job.forced_tools();
    let (tools, otherwise) = if !forced.is_empty() {
        (&forced[..], Otherwise::Nothing)
    } else if job.grammar.is_some() {
        (job.tools(), Otherwise::Answer)
    } else if job.tools().iter().any(|tool| tool.function.strict) {
        (job.tools(), Otherwise::Text)
    } else {
        return None;
    };
    let parallel = job.parallel_calls && !matches!(job.tool_choice, ToolChoice::Named(_));
    let format = ToolFormat::of(template);
    let Some(grammar) = format.grammar(tools, parallel, otherwise, &control) else {
        if !tools.is_empty() {
            tracing::warn!(
                format = format.name(),
                "calls of this format cannot be told from an answer in a format: there are no calls"
            );
        }
        return None;
    };
    let answer = job
        .grammar
        .clone()
        .filter(|_| otherwise == Otherwise::Answer);
    Some(GrammarSpec::Calls {
        lark: grammar.lark,
        schemas: grammar.schemas,
        answer: answer.map(Box::new),
    })
}

/// What the answer is bound to.
fn bound(job: &Job) -> Bound {
    if !job.forced_tools().is_empty() {
        Bound::Calls
    } else if job.grammar.is_some() {
        Bound::Format
    } else {
        Bound::Nothing
    }
}

/// The end of a prompt, where a template may have opened the thinking part.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(200);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Each may take a few hundred megabytes for a moment.
static RENDERINGS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(4)));
/// Bytes of a token of English or of a program, more or less.
const USUAL_TOKEN_BYTES: usize = 4;
/// As in Ollama: an image and a question fit.
const MIN_VISION_CONTEXT: usize = 2048;
/// Families that were trained without the thinking of earlier answers.
const THINKING_FORGETTERS: &[&str] = &["qwen3", "qwen3moe"];

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_rendering_ends_when_nobody_waits_for_it() {
        let (begun, has_begun) = oneshot::channel();
        let (left, has_left) = mpsc::channel();
        let (ended, has_ended) = oneshot::channel();
        let client = tokio::spawn(rendering(move |stop| {
            begun.send(()).unwrap();
            has_left.recv().unwrap();
            let rendered = Template::go("{{ .Messages }}")?.render(&prompt(&[], None, stop));
            let _ = ended.send(matches!(rendered, Err(llmsrv_chat::Error::Cancelled)));
            Ok(())
        }));
        has_begun.await.unwrap();
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        left.send(()).unwrap();
        assert!(has_ended.await.unwrap());
    }
}
