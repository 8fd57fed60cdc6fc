//! Vectors of texts, and the order of documents by how well they answer a query.

use std::{sync::Arc, time::Instant};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse as _, Response},
};
use base64::Engine as _;
use http::{HeaderValue, Uri, header};
use http_front::Share;
use llmsrv_api::{
    embed::{
        EmbedResponse, EmbedUsage, Embedding, EmbeddingList, EmbeddingResponse, RerankDocument,
        RerankResponse, RerankResult, Vector,
    },
    keep_alive::KeepAlive,
    lenient::{Fields, Ids},
    options::Options,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    app::App,
    dialect::native::model_name,
    embed,
    error::{ApiError, refuse},
    guard::read,
    job::{EmbedJob, EmbedText, Embedded, Inputs},
    tasks,
};

/// `/api/embed`: one vector of length 1 for each text.
pub(super) async fn embed(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let (mut fields, _share) = fields(&app, "/api/embed", body).await?;
    let inputs = match (fields.ids("input"), fields.take("input")) {
        (None, None) => Vec::new(),
        (Some(Ids::One(none)), _) if none.is_empty() => Vec::new(),
        (None, Some(input)) => texts(input).ok_or_else(invalid_input_type)?,
        (Some(_), _) => return Err(invalid_input_type()),
    };
    let dimensions = dimensions(&mut fields)?;
    let job = job(fields, Inputs::Texts(inputs))?;
    let model = job.model.clone();
    let Embedded {
        vectors,
        n_tokens,
        n_truncated,
        load_duration,
    } = embed::run(&app, job).await?;
    if vectors.is_empty() {
        let empty = EmbedResponse {
            model,
            ..EmbedResponse::default()
        };
        return json(empty).await;
    }
    json(EmbedResponse {
        model,
        embeddings: normalised(vectors, dimensions),
        total_duration: arrived.elapsed().as_nanos() as u64,
        load_duration: load_duration.as_nanos() as u64,
        prompt_eval_count: n_tokens as u64,
        prompt_truncated: n_truncated as u64,
    })
    .await
}

/// `/api/embeddings`: the older form, for one text; the vector is left as the model made it.
pub(super) async fn embeddings(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (mut fields, _share) = fields(&app, "/api/embeddings", body).await?;
    let prompt = fields.text("prompt")?.filter(|text| !text.is_empty());
    let inputs = prompt.map(EmbedText::Text).into_iter().collect();
    let embedded = embed::run(&app, job(fields, Inputs::Texts(inputs))?).await?;
    let vector = embedded.vectors.into_iter().next().unwrap_or_default();
    json(EmbeddingResponse {
        embedding: vector.into_iter().map(f64::from).collect(),
    })
    .await
}

/// `/v1/embeddings`, as OpenAI's.
pub(super) async fn openai(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (mut fields, _share) = fields(&app, "/v1/embeddings", body).await?;
    let as_text = match fields.text("encoding_format")?.as_deref() {
        None | Some("" | "float") => false,
        Some("base64") => true,
        Some(other) => refuse!(
            "Invalid value for 'encoding_format' = {other}. Supported values: ['float', 'base64']."
        ),
    };
    let inputs = match (fields.ids("input"), fields.take("input")) {
        (None, None) => refuse!("invalid input"),
        (Some(Ids::One(none)), _) if none.is_empty() => refuse!("invalid input"),
        (Some(ids), _) => token_lists(ids)?,
        // One text, though it is empty: this dialect has no request that only loads a model.
        (None, Some(Value::String(text))) => vec![EmbedText::Text(text)],
        (None, Some(input)) => texts(input).ok_or_else(invalid_input_type)?,
    };
    let dimensions = dimensions(&mut fields)?;
    let job = job(fields, Inputs::Texts(inputs))?;
    let model = job.model.clone();
    let embedded = embed::run(&app, job).await?;
    let usage = usage(&embedded);
    let vectors = normalised(embedded.vectors, dimensions);
    let data = vectors.into_iter().enumerate().map(|(index, vector)| {
        let embedding = if as_text {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            Vector::Base64(base64::engine::general_purpose::STANDARD.encode(bytes))
        } else {
            Vector::Floats(vector)
        };
        Embedding {
            object: "embedding",
            embedding,
            index,
        }
    });
    json(EmbeddingList {
        object: "list",
        data: data.collect(),
        model,
        usage,
    })
    .await
}

/// `/api/rerank` and `/v1/rerank`.
pub(super) async fn rerank(
    State(app): State<App>,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let (mut fields, _share) = fields(&app, uri.path(), body).await?;
    let query = fields.text("query")?.filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| ApiError::bad_request("query is required"))?;
    let documents = fields
        .list("documents")?
        .ok_or_else(|| ApiError::bad_request("documents is required"))?;
    let documents = documents.into_iter().map(document);
    let documents = documents
        .collect::<Option<Arc<[String]>>>()
        .ok_or_else(|| {
            ApiError::bad_request("documents must be a list of strings or of objects with a text")
        })?;
    let n_best = match fields.integer("top_n")? {
        None => usize::MAX,
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| ApiError::bad_request("top_n must be at least 1"))?,
    };
    let with_documents = fields.bool("return_documents")?.unwrap_or(false);
    let raw = fields.bool("raw_scores")?.unwrap_or(false);
    let inputs = Inputs::Pairs {
        query,
        documents: documents.clone(),
    };
    let job = job(fields, inputs)?;
    let model = job.model.clone();
    let embedded = embed::run(&app, job).await?;
    let score = |vector: &Vec<f32>| {
        // Of several, the first is that of relevance.
        let score = vector.first().copied().unwrap_or_default();
        if raw {
            score
        } else {
            1.0 / (1.0 + (-score).exp())
        }
    };
    let mut scores: Vec<(usize, f32)> = embedded.vectors.iter().map(score).enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scores.truncate(n_best);
    let result = |(index, relevance_score): (usize, f32)| RerankResult {
        index,
        relevance_score,
        document: documents
            .get(index)
            .filter(|_| with_documents)
            .map(|text| RerankDocument { text: text.clone() }),
    };
    json(RerankResponse {
        model,
        results: scores.into_iter().map(result).collect(),
        usage: usage(&embedded),
    })
    .await
}

async fn fields(app: &App, path: &str, body: Body) -> Result<(Fields, Share), ApiError> {
    let body = read(body, EMBED_BODY_BYTES).await?;
    app.log_body(path, &body);
    body.parse_with_ids(&["input"], Ok).await
}

/// Reads what all requests have.
fn job(mut fields: Fields, inputs: Inputs) -> Result<EmbedJob, ApiError> {
    let model = model_name(&mut fields)?.ok_or_else(ApiError::model_required)?;
    let options = fields.object("options")?.unwrap_or_default();
    let (options, _) = Options::read(&options)?;
    let keep_alive = fields.take("keep_alive");
    let keep_alive = keep_alive.map(|value| KeepAlive::parse(&value));
    Ok(EmbedJob {
        model,
        inputs,
        truncate: fields.bool("truncate")?.unwrap_or(true),
        options,
        keep_alive: keep_alive.transpose().map_err(ApiError::bad_request)?,
    })
}

/// Reads a text or a list of texts; an empty text alone is nothing.
fn texts(input: Value) -> Option<Vec<EmbedText>> {
    match input {
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        Value::String(text) => Some(vec![EmbedText::Text(text)]),
        Value::Array(list) => list
            .into_iter()
            .map(|value| match value {
                Value::String(text) => Some(EmbedText::Text(text)),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Makes inputs of token ids; none may be empty.
fn token_lists(ids: Ids) -> Result<Vec<EmbedText>, ApiError> {
    let lists = match ids {
        Ids::One(tokens) => vec![tokens],
        Ids::Many(lists) => lists,
    };
    if lists.iter().any(Vec::is_empty) {
        return Err(invalid_input_type());
    }
    Ok(lists.into_iter().map(EmbedText::Tokens).collect())
}

fn document(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Object(mut members) => match members.remove("text") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// Reads how many elements are asked for; 0 and less ask for all.
fn dimensions(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let asked = fields.integer("dimensions")?;
    Ok(asked
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0))
}

fn normalised(vectors: Vec<Vec<f32>>, dimensions: Option<usize>) -> Vec<Vec<f32>> {
    let vectors = vectors.into_iter();
    vectors
        .map(|vector| embed::normalised(vector, dimensions))
        .collect()
}

fn usage(embedded: &Embedded) -> EmbedUsage {
    EmbedUsage {
        prompt_tokens: embedded.n_tokens as u64,
        total_tokens: embedded.n_tokens as u64,
    }
}

fn invalid_input_type() -> ApiError {
    ApiError::bad_request("invalid input type")
}

/// Writes an answer, which may be many megabytes, where that holds up nobody.
async fn json(answer: impl Serialize + Send + 'static) -> Result<Response, ApiError> {
    let written = tasks::computing(move || serde_json::to_vec(&answer)).await?;
    let bytes = written.map_err(|error| ApiError::internal(error.to_string()))?;
    let mut response = Body::from(bytes).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    Ok(response)
}

/// Room for a book, and not for more than can be embedded in minutes.
const EMBED_BODY_BYTES: usize = 32 << 20;
