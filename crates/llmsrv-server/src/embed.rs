//! From texts to vectors: tokens, truncation, the engine, and checks of what comes back.

use std::time::Instant;

use http::StatusCode;
use llmsrv_api::keep_alive::KeepAlive;
use llmsrv_engine::{EmbedError, EmbeddingSpec, Pooling, SubmitError};
use llmsrv_store::StoredModel;
use llmsrv_tokenizer::{Algorithm, Special, Tokenizer};

use crate::{
    app::App,
    error::{ApiError, refuse},
    job::{EmbedJob, EmbedText, Embedded, Inputs},
    judge::JudgePrompt,
    manager::ReadyModel,
    prompt, tasks,
};

/// Loads the model and turns the inputs into vectors. Dropping the future cancels the work.
pub(crate) async fn run(app: &App, job: EmbedJob) -> Result<Embedded, ApiError> {
    let arrived = Instant::now();
    if app.upstreams.known(&job.model).is_some() {
        if job.inputs.len() == 0 {
            // There is nothing to load or unload on this machine.
            return Ok(Embedded::default());
        }
        match app.upstreams.embed(&job).await {
            Ok(embedded) => return Ok(embedded),
            Err(refused) if !refused.local => return Err(refused.error),
            Err(refused) => {
                let error = refused.error;
                tracing::warn!(model = %job.model, %error, "a model of this machine answers instead");
            }
        }
    }
    let stored = find(app, &job.model).await?;
    let n_inputs = job.inputs.len();
    if n_inputs == 0 && job.keep_alive.is_some_and(KeepAlive::is_zero) {
        app.manager.unload(&stored.entry.digest.hex());
        return Ok(Embedded::default());
    }
    let lease = app
        .manager
        .lease(stored, job.keep_alive, &job.options)
        .await?;
    let load_duration = arrived.elapsed();
    let model = lease.model.clone();
    let spec = suited(&job, &model)?;
    if n_inputs == 0 {
        return Ok(Embedded::default());
    }
    let most = MAX_VECTOR_BYTES / (spec.width.max(1) * size_of::<f32>());
    let most = most.min(MAX_INPUTS);
    if n_inputs > most {
        refuse!("{n_inputs} inputs are too many for one request; send at most {most} at a time");
    }
    let n_ctx = context(app, &job, &model);
    let name = job.model.clone();
    let tokens = tasks::computing_on(job.inputs.n_bytes(), move || {
        let judge = model.judge.as_ref();
        let tokenizer = model.engine.tokenizer();
        encode(tokenizer, judge, &job.inputs, n_ctx, job.truncate)
    });
    let (tokens, cut): (Vec<_>, Vec<usize>) = tokens.await??.into_iter().unzip();
    let n_truncated = cut.iter().sum();
    if n_truncated > 0 {
        let n_inputs = cut.iter().filter(|cut| **cut > 0).count();
        tracing::warn!(model = %name, n_inputs, n_truncated, n_ctx, "inputs were cut to fit the context");
    }
    let n_tokens = tokens.iter().map(Vec::len).sum();
    let vectors = lease.model.engine.embed(tokens).map_err(refused)?;
    let vectors = vectors.wait().await.map_err(|error| {
        tracing::error!(model = %name, %error, "embedding failed");
        match error {
            EmbedError::DeviceLost(reason) => ApiError::device_lost(&reason),
            error => ApiError::internal(error.to_string()),
        }
    })?;
    if vectors.iter().flatten().any(|value| !value.is_finite()) {
        refuse!("embedding contains NaN or Inf values");
    }
    Ok(Embedded {
        vectors,
        n_tokens,
        n_truncated,
        load_duration,
    })
}

/// Keeps the first elements where fewer are asked for, and gives the vector the length 1.
pub(crate) fn normalised(mut vector: Vec<f32>, dimensions: Option<usize>) -> Vec<f32> {
    vector.truncate(dimensions.unwrap_or(usize::MAX));
    let square: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = 1.0 / square.sqrt().max(SHORTEST);
    for value in &mut vector {
        *value = (f64::from(*value) * scale) as f32;
    }
    vector
}

/// Finds a model in the store. The text for an unknown one is not that of text generation.
async fn find(app: &App, sent: &str) -> Result<StoredModel, ApiError> {
    let found = app.manager.find(sent).await;
    found.map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => {
            ApiError::not_found(format!("model {sent:?} not found, try pulling it first"))
        }
        _ => error,
    })
}

/// Refuses a model that is made for something else.
fn suited(job: &EmbedJob, model: &ReadyModel) -> Result<EmbeddingSpec, ApiError> {
    let spec = model.engine.spec().embedding;
    let spec = spec.ok_or_else(|| ApiError::does_not_support(&job.model, "embeddings"))?;
    match (&job.inputs, spec.pooling) {
        (Inputs::Texts(_), Pooling::Rank) => Err(ApiError::bad_request(format!(
            "{:?} is a reranker and does not support embeddings; use /v1/rerank",
            job.model
        ))),
        (Inputs::Pairs { .. }, Pooling::Mean | Pooling::Cls | Pooling::Last) => {
            Err(ApiError::bad_request(format!(
                "{:?} does not support rerank: it has no ranking head; use a reranker model, or \
                 compare the vectors of /v1/embeddings",
                job.model
            )))
        }
        _ => Ok(spec),
    }
}

/// Returns the most tokens that an input may have.
fn context(app: &App, job: &EmbedJob, model: &ReadyModel) -> usize {
    let num_ctx = job.options.num_ctx.or(model.options.num_ctx);
    let spec = model.engine.spec().embedding;
    let default = if spec.is_some_and(|spec| spec.bidirectional) {
        // The rows of a whole input are in memory together, and nobody counts them.
        model.context.min(MAX_WHOLE_TOKENS)
    } else {
        model.context
    };
    let asked = app.settings.context(num_ctx, default);
    asked.min(model.engine.context_limit())
}

/// Returns the tokens of each input, and how many were cut off.
fn encode(
    tokenizer: &Tokenizer,
    judge: Option<&JudgePrompt>,
    inputs: &Inputs,
    n_ctx: usize,
    truncate: bool,
) -> Result<Vec<(Vec<u32>, usize)>, ApiError> {
    match inputs {
        Inputs::Texts(texts) => {
            let encoded = texts.iter().map(|text| encode_text(tokenizer, text, n_ctx));
            check(encoded, tokenizer, truncate)
        }
        Inputs::Pairs { query, documents } => {
            if prompt::too_long(tokenizer, query.len(), n_ctx).is_some() {
                return Err(no_room());
            }
            if let Some(judge) = judge {
                let question = judge.with_query(tokenizer, query);
                let n_asked = question.with(tokenizer, "").len();
                let room = n_ctx.checked_sub(n_asked).filter(|room| *room > 0);
                let room = room.ok_or_else(no_room)?;
                let encoded = documents.iter().map(|text| {
                    let (text, n_lost) = head(tokenizer, text, room);
                    let (tokens, n_cut) = question.with_most_of(tokenizer, text, n_ctx);
                    (tokens, n_cut + n_lost)
                });
                return check(encoded, tokenizer, truncate);
            }
            let pairs = Pairs::new(tokenizer, query, n_ctx)?;
            let encoded = documents.iter().map(|text| pairs.with(tokenizer, text));
            check(encoded, tokenizer, truncate)
        }
    }
}

/// Refuses what is cut against the client's will, and more tokens than there is memory for.
fn check(
    encoded: impl Iterator<Item = (Vec<u32>, usize)>,
    tokenizer: &Tokenizer,
    truncate: bool,
) -> Result<Vec<(Vec<u32>, usize)>, ApiError> {
    let mut checked = Vec::new();
    let mut n_tokens = 0;
    for (idx, (mut tokens, n_cut)) in encoded.enumerate() {
        if n_cut > 0 && !truncate {
            return Err(input_too_long());
        }
        if tokens.is_empty() {
            // A text without tokens is its end, for models that have no mark for the begin.
            let mark = tokenizer.bos().or_else(|| tokenizer.eos());
            let empty = || ApiError::bad_request(format!("input {idx} is empty"));
            tokens.push(mark.ok_or_else(empty)?);
        }
        n_tokens += tokens.len();
        if n_tokens > MAX_TOKENS {
            refuse!("the inputs have more than {MAX_TOKENS} tokens; send fewer at a time");
        }
        checked.push((tokens, n_cut));
    }
    Ok(checked)
}

fn encode_text(tokenizer: &Tokenizer, text: &EmbedText, n_ctx: usize) -> (Vec<u32>, usize) {
    match text {
        EmbedText::Text(text) => {
            let (text, n_lost) = head(tokenizer, text, n_ctx);
            let tokens = tokenizer.encode(text, Special::ParseAndAdd);
            let end = tokens.last().copied().filter(|_| tokenizer.adds_eos());
            let (tokens, n_cut) = cut(tokens, end, n_ctx);
            (tokens, n_cut + n_lost)
        }
        EmbedText::Tokens(tokens) => cut(tokens.clone(), None, n_ctx),
    }
}

/// Returns the head of a text, of which `n_tokens` are wanted, and about how many tokens are lost: a
/// rest that cannot fit, however it is cut into tokens, is not.
fn head<'t>(tokenizer: &Tokenizer, text: &'t str, n_tokens: usize) -> (&'t str, usize) {
    match prompt::too_long(tokenizer, text.len(), n_tokens) {
        None => (text, 0),
        Some(longest) => {
            // One more token, so that what is cut off inside of one is not kept.
            let head = &text[..text.floor_char_boundary(longest * (n_tokens + 1))];
            (head, prompt::estimate(text.len() - head.len()))
        }
    }
}

/// Keeps the head of what is too long, and its end mark.
fn cut(mut tokens: Vec<u32>, end: Option<u32>, n_ctx: usize) -> (Vec<u32>, usize) {
    let n_cut = tokens.len().saturating_sub(n_ctx);
    if n_cut > 0 {
        tokens.truncate(n_ctx - usize::from(end.is_some()));
        tokens.extend(end);
    }
    (tokens, n_cut)
}

/// Joins a query with documents as rerankers were trained: `[CLS] query [SEP] document [SEP]` for
/// WordPiece (<https://arxiv.org/abs/1810.04805>) and where that is the separator (`ModernBERT`),
/// `<s> query </s></s> document </s>` for the others (<https://arxiv.org/abs/1907.11692>). Marks inside the texts are ordinary text.
struct Pairs {
    /// All before the document.
    head: Vec<u32>,
    /// After the document.
    end: Option<u32>,
    /// Most tokens of a document.
    room: usize,
}

impl Pairs {
    fn new(tokenizer: &Tokenizer, query: &str, n_ctx: usize) -> Result<Pairs, ApiError> {
        let vocab = tokenizer.vocab();
        let separator = vocab.separator.or(vocab.eos);
        let mark = separator.and_then(|id| tokenizer.token_text(id));
        let is_of_bert = vocab.algorithm == Algorithm::WordPiece || mark == Some("[SEP]");
        let end = if is_of_bert {
            separator
        } else {
            vocab.eos.filter(|_| tokenizer.adds_eos())
        };
        let mut head: Vec<u32> = vocab
            .bos
            .filter(|_| tokenizer.adds_bos())
            .into_iter()
            .collect();
        head.extend(tokenizer.encode(query, Special::Plain));
        head.extend(end.filter(|_| !is_of_bert));
        head.extend(separator);
        let room = n_ctx.checked_sub(head.len() + usize::from(end.is_some()));
        let room = room.filter(|room| *room > 0).ok_or_else(no_room)?;
        Ok(Pairs { head, end, room })
    }

    /// Returns the tokens of a pair, and how many the document lost at its end.
    fn with(&self, tokenizer: &Tokenizer, document: &str) -> (Vec<u32>, usize) {
        let (document, n_lost) = head(tokenizer, document, self.room);
        let document = tokenizer.encode(document, Special::Plain);
        let n_cut = document.len().saturating_sub(self.room) + n_lost;
        let mut tokens = self.head.clone();
        tokens.extend(document.into_iter().take(self.room));
        tokens.extend(self.end);
        (tokens, n_cut)
    }
}

fn no_room() -> ApiError {
    ApiError::bad_request("the query leaves no room for a document in the context length")
}

fn refused(error: SubmitError) -> ApiError {
    match error {
        SubmitError::DeviceLost(reason) => ApiError::device_lost(&reason),
        SubmitError::Closed => ApiError::model_stopped(),
        SubmitError::PromptLength { .. } => input_too_long(),
        error => ApiError::bad_request(error.to_string()),
    }
}

fn input_too_long() -> ApiError {
    ApiError::bad_request("the input length exceeds the context length")
}

/// Bounds the bookkeeping of a request.
const MAX_INPUTS: usize = 1 << 16;
/// Tokens of an input that is computed whole, unless more are asked for: more than any such model was
/// trained for.
const MAX_WHOLE_TOKENS: usize = 1 << 15;
/// Bounds the memory of a query that is joined with many documents.
const MAX_TOKENS: usize = 1 << 24;
/// Bounds the memory of an answer; written as text it takes about three times as much.
const MAX_VECTOR_BYTES: usize = 64 << 20;
/// A shorter vector has no direction.
const SHORTEST: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use llmsrv_tokenizer::{TokenKind, Vocab};

    use super::*;

    /// Joins "a" with "b"; returns the spelling of each token.
    fn joined(algorithm: Algorithm, [begin, end]: [&str; 2]) -> Vec<String> {
        let vocab = Vocab {
            algorithm,
            tokens: [begin, end, "a", "b", "\u{2581}a", "\u{2581}b", "?"]
                .map(str::to_owned)
                .to_vec(),
            scores: vec![0.0; 7],
            kinds: (0..7)
                .map(|id| match id {
                    0 | 1 => TokenKind::Control,
                    _ => TokenKind::Normal,
                })
                .collect(),
            bos: Some(0),
            eos: Some(1),
            separator: Some(1),
            unknown: Some(6),
            add_bos: true,
            add_eos: true,
            ..Vocab::default()
        };
        let tokenizer = Tokenizer::new(vocab).unwrap();
        let pairs = Pairs::new(&tokenizer, "a", 16).unwrap();
        let (tokens, n_cut) = pairs.with(&tokenizer, "b");
        assert_eq!(n_cut, 0);
        let texts = tokens.iter().map(|id| tokenizer.token_text(*id).unwrap());
        texts.map(|text| text.replace('\u{2581}', "")).collect()
    }

    #[test]
    fn pairs_are_joined_as_the_family_was_trained() {
        let bert = ["[CLS]", "a", "[SEP]", "b", "[SEP]"];
        let roberta = ["<s>", "a", "</s>", "</s>", "b", "</s>"];
        let (of_bert, of_roberta) = (["[CLS]", "[SEP]"], ["<s>", "</s>"]);
        assert_eq!(joined(Algorithm::WordPiece, of_bert), bert);
        assert_eq!(joined(Algorithm::Bpe, of_bert), bert);
        assert_eq!(joined(Algorithm::Bpe, of_roberta), roberta);
        assert_eq!(joined(Algorithm::Unigram, of_roberta), roberta);
    }
}
