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
    lenient::Ids,
    members::{FromValue as _, IdsOr, Member},
    one_of,
    options::{Options, Stop},
    request, words,
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{
    app::App,
    dialect::native::Named,
    embed,
    error::{ApiError, refuse},
    guard::read,
    job::{EmbedJob, EmbedText, Embedded, Inputs},
    tasks,
};

request! {
    /// What all requests have.
    struct EmbedPart with named: Named {
        #[schema(value_type = Option<Options>)] options: Map<String, Value>,
        keep_alive: Option<KeepAlive>,
        /// Cut texts longer than the context; this is the default.
        truncate: Option<bool>,
    }

    pub(super) struct EmbedRequest with common: EmbedPart {
        /// A text or several; none loads the model.
        #[schema(value_type = Option<Stop>)] input: Option<IdsOr>,
        /// Elements of a vector; all by default.
        dimensions: Option<i64>,
    }

    pub(super) struct EmbeddingsRequest with common: EmbedPart {
        /// The text; none loads the model.
        prompt: Option<String>,
    }

    pub(super) struct OpenAiEmbeddingsRequest with common: EmbedPart {
        #[schema(value_type = EmbeddingsInput)] input: Option<IdsOr>,
        encoding_format: Option<EncodingFormat>,
        /// Elements of a vector; all by default.
        dimensions: Option<i64>,
    }

    pub(super) struct RerankRequest with common: EmbedPart {
        #[schema(min_length = 1)] query: String,
        #[schema(value_type = Vec<RerankInput>)] documents: Option<Vec<RerankInput>>,
        /// How many are returned; all by default.
        #[schema(minimum = 1)] top_n: Option<i64>,
        /// Return the texts, too.
        return_documents: Option<bool>,
        /// Return the model's own scores in place of numbers from 0 to 1.
        raw_scores: Option<bool>,
    }

    object RerankText {
        #[schema(value_type = String)] text: Value,
    }
}

one_of! {
    enum RerankInput {
        Text(String),
        Object(RerankText),
    } else |_, _| NO_DOCUMENT.into()
}

words! {
    struct EncodingFormat(bool) {
        "float" => false,
        "base64" => true,
        "" => false,
    } else |other| format!(
        "Invalid value for 'encoding_format' = {other}. Supported values: ['float', 'base64']."
    )
}

/// A text, several, a list of tokens or several.
#[derive(ToSchema)]
#[serde(untagged)]
enum EmbeddingsInput {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// `/api/embed`: one vector of length 1 for each text.
pub(super) async fn embed(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let (request, _share) = parsed::<EmbedRequest>(&app, "/api/embed", body).await?;
    let inputs = match request.input.map(EmbeddingsInput::of).transpose()? {
        None => Vec::new(),
        Some(EmbeddingsInput::Text(text)) if text.is_empty() => Vec::new(),
        Some(EmbeddingsInput::Tokens(none)) if none.is_empty() => Vec::new(),
        Some(input @ (EmbeddingsInput::Text(_) | EmbeddingsInput::Texts(_))) => input.texts(),
        Some(_) => return Err(invalid_input_type()),
    };
    let dimensions = dimensions(request.dimensions);
    let job = request.common.job(Inputs::Texts(inputs))?;
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
        return json(0, empty).await;
    }
    let response = EmbedResponse {
        model,
        embeddings: normalised(vectors, dimensions),
        total_duration: arrived.elapsed().as_nanos() as u64,
        load_duration: load_duration.as_nanos() as u64,
        prompt_eval_count: n_tokens as u64,
        prompt_truncated: n_truncated as u64,
    };
    json(written_bytes(&response.embeddings), response).await
}

/// `/api/embeddings`: the older form, for one text; the vector is left as the model made it.
pub(super) async fn embeddings(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (request, _share) = parsed::<EmbeddingsRequest>(&app, "/api/embeddings", body).await?;
    let prompt = request.prompt.filter(|text| !text.is_empty());
    let inputs = prompt.map(EmbedText::Text).into_iter().collect();
    let embedded = embed::run(&app, request.common.job(Inputs::Texts(inputs))?).await?;
    let vector = embedded.vectors.into_iter().next().unwrap_or_default();
    let response = EmbeddingResponse {
        embedding: vector.into_iter().map(f64::from).collect(),
    };
    json(response.embedding.len() * NUMBER_BYTES, response).await
}

/// `/v1/embeddings`, as OpenAI's.
pub(super) async fn openai(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (request, _share) = parsed::<OpenAiEmbeddingsRequest>(&app, "/v1/embeddings", body).await?;
    let as_text = request.encoding_format.is_some_and(|format| format.0);
    let inputs = match request.input.map(EmbeddingsInput::of).transpose()? {
        None => refuse!("invalid input"),
        Some(EmbeddingsInput::Tokens(none)) if none.is_empty() => refuse!("invalid input"),
        Some(EmbeddingsInput::TokenLists(lists)) if lists.iter().any(Vec::is_empty) => {
            return Err(invalid_input_type());
        }
        // One text, though it is empty: this dialect has no request that only loads a model.
        Some(input) => input.texts(),
    };
    let dimensions = dimensions(request.dimensions);
    let job = request.common.job(Inputs::Texts(inputs))?;
    let model = job.model.clone();
    let embedded = embed::run(&app, job).await?;
    let usage = usage(&embedded);
    let vectors = normalised(embedded.vectors, dimensions);
    let n_bytes = written_bytes(&vectors);
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
    let response = EmbeddingList {
        object: "list",
        data: data.collect(),
        model,
        usage,
    };
    json(n_bytes, response).await
}

/// `/api/rerank` and `/v1/rerank`.
pub(super) async fn rerank(
    State(app): State<App>,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    let (request, _share) = parsed::<RerankRequest>(&app, uri.path(), body).await?;
    if request.query.is_empty() {
        refuse!("query is required");
    }
    let Some(documents) = request.documents else {
        refuse!("documents is required");
    };
    let documents = documents.into_iter().map(|document| match document {
        RerankInput::Text(text)
        | RerankInput::Object(RerankText {
            text: Value::String(text),
        }) => Ok(text),
        RerankInput::Object(_) => Err(ApiError::bad_request(NO_DOCUMENT)),
    });
    let documents = documents.collect::<Result<Arc<[String]>, _>>()?;
    let n_best = match request.top_n.map(usize::try_from) {
        None => usize::MAX,
        Some(Ok(n)) if n > 0 => n,
        Some(_) => refuse!("top_n must be at least 1"),
    };
    let inputs = Inputs::Pairs {
        query: request.query,
        documents: documents.clone(),
    };
    // Documents are sent back where that is asked for.
    let n_bytes = inputs.n_bytes();
    let job = request.common.job(inputs)?;
    let model = job.model.clone();
    let embedded = embed::run(&app, job).await?;
    let score = |vector: &Vec<f32>| {
        // Of several, the first is that of relevance.
        let score = vector.first().copied().unwrap_or_default();
        if request.raw_scores == Some(true) {
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
            .filter(|_| request.return_documents == Some(true))
            .map(|text| RerankDocument { text: text.clone() }),
    };
    let response = RerankResponse {
        model,
        results: scores.into_iter().map(result).collect(),
        usage: usage(&embedded),
    };
    json(n_bytes, response).await
}

async fn parsed<R: Member + Send + 'static>(
    app: &App,
    path: &str,
    body: Body,
) -> Result<(R, Share), ApiError> {
    let body = read(body, EMBED_BODY_BYTES).await?;
    app.log_body(path, &body);
    body.parse(Ok).await
}

impl EmbedPart {
    fn job(self, inputs: Inputs) -> Result<EmbedJob, ApiError> {
        Ok(EmbedJob {
            model: self.named.required()?,
            inputs,
            truncate: self.truncate.unwrap_or(true),
            options: Options::read(&self.options)?.0,
            keep_alive: self.keep_alive,
        })
    }
}

impl EmbeddingsInput {
    fn of(sent: IdsOr) -> Result<EmbeddingsInput, ApiError> {
        match sent {
            IdsOr::Ids(Ids::One(tokens)) => Ok(EmbeddingsInput::Tokens(tokens)),
            IdsOr::Ids(Ids::Many(lists)) => Ok(EmbeddingsInput::TokenLists(lists)),
            IdsOr::Other(Value::String(text)) => Ok(EmbeddingsInput::Text(text)),
            IdsOr::Other(other) => {
                let texts = Vec::from_value(other, "input").map_err(|_| invalid_input_type())?;
                Ok(EmbeddingsInput::Texts(texts))
            }
        }
    }

    fn texts(self) -> Vec<EmbedText> {
        match self {
            EmbeddingsInput::Text(text) => vec![EmbedText::Text(text)],
            EmbeddingsInput::Texts(texts) => texts.into_iter().map(EmbedText::Text).collect(),
            EmbeddingsInput::Tokens(tokens) => vec![EmbedText::Tokens(tokens)],
            EmbeddingsInput::TokenLists(lists) => {
                lists.into_iter().map(EmbedText::Tokens).collect()
            }
        }
    }
}

/// Reads how many elements are asked for; 0 and less ask for all.
fn dimensions(asked: Option<i64>) -> Option<usize> {
    asked
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0)
}

fn normalised(vectors: Vec<Vec<f32>>, dimensions: Option<usize>) -> Vec<Vec<f32>> {
    let vectors = vectors.into_iter();
    vectors
        .map(|vector| embed::normalised(vector, dimensions))
        .collect()
}

/// About how long vectors are when they are written.
fn written_bytes(vectors: &[Vec<f32>]) -> usize {
    vectors.iter().map(Vec::len).sum::<usize>() * NUMBER_BYTES
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

/// Writes an answer of about so many bytes, which may be many megabytes, where that holds up nobody.
async fn json(
    n_bytes: usize,
    answer: impl Serialize + Send + 'static,
) -> Result<Response, ApiError> {
    let written = tasks::computing_on(n_bytes, move || serde_json::to_vec(&answer)).await?;
    let bytes = written.map_err(|error| ApiError::internal(error.to_string()))?;
    let mut response = Body::from(bytes).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    Ok(response)
}

const NO_DOCUMENT: &str = "documents must be a list of strings or of objects with a text";
/// Room for a book, and not for more than can be embedded in minutes.
const EMBED_BODY_BYTES: usize = 32 << 20;
/// About as long is an element of a vector when it is written.
const NUMBER_BYTES: usize = 12;
