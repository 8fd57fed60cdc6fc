//! Vectors of texts and the order of documents.
#![expect(dead_code, reason = "the types are there for their schemas")]

use llmsrv_api::{
    embed::{EmbedResponse, EmbeddingList, EmbeddingResponse, RerankResponse},
    options::{Options, Stop},
};
use utoipa::ToSchema;

use super::{
    REFUSALS, Row, Schemas,
    native::{Error, KeepAlive},
};
use crate::dialect::openai::answer::OpenAiError;

/// Returns the endpoints.
pub(super) fn rows(s: &mut Schemas) -> Vec<Row> {
    let error = s.add::<Error>();
    let native = |path, what| Row::post(path, VECTORS, what).refuses(&error, REFUSALS);
    let error = s.add::<OpenAiError>();
    let openai = |path, what| Row::post(path, VECTORS, what).refuses(&error, REFUSALS);
    let rerank = s.add::<RerankRequest>();
    let ranked = s.add::<RerankResponse>();
    let order = "Order documents by how well they answer a query";
    vec![
        native("/api/embed", "Turn texts into vectors of length 1")
            .takes(s.add::<EmbedRequest>())
            .gives("A vector for each text", s.add::<EmbedResponse>()),
        native("/api/embeddings", "Turn one text into a vector")
            .about("The older form; the vector is left as the model made it.")
            .takes(s.add::<EmbeddingsRequest>())
            .gives("The vector", s.add::<EmbeddingResponse>()),
        native("/api/rerank", order)
            .takes(rerank.clone())
            .gives("The documents, best first", ranked.clone()),
        openai("/v1/rerank", order)
            .takes(rerank)
            .gives("The documents, best first", ranked),
        openai("/v1/embeddings", "Turn texts into vectors")
            .takes(s.add::<OpenAiEmbeddingsRequest>())
            .gives("A vector for each text", s.add::<EmbeddingList>()),
    ]
}

const VECTORS: &str = "Vectors";

#[derive(ToSchema)]
struct EmbedRequest {
    /// Name of the model, such as `nomic-embed-text`.
    model: String,
    /// A text or several; none loads the model.
    input: Option<Stop>,
    /// Cut texts longer than the context; this is the default.
    truncate: Option<bool>,
    /// Elements of a vector; all by default.
    dimensions: Option<i64>,
    options: Option<Options>,
    keep_alive: Option<KeepAlive>,
}

#[derive(ToSchema)]
struct EmbeddingsRequest {
    /// Name of the model, such as `nomic-embed-text`.
    model: String,
    /// The text; none loads the model.
    prompt: Option<String>,
    options: Option<Options>,
    keep_alive: Option<KeepAlive>,
}

#[derive(ToSchema)]
struct RerankRequest {
    /// Name of a model that ranks.
    model: String,
    #[schema(min_length = 1)]
    query: String,
    documents: Vec<RerankInput>,
    /// How many are returned; all by default.
    #[schema(minimum = 1)]
    top_n: Option<i64>,
    /// Return the texts, too.
    return_documents: Option<bool>,
    /// Return the model's own scores in place of numbers from 0 to 1.
    raw_scores: Option<bool>,
    keep_alive: Option<KeepAlive>,
}

#[derive(ToSchema)]
#[serde(untagged)]
enum RerankInput {
    Text(String),
    Object(RerankText),
}

#[derive(ToSchema)]
struct RerankText {
    text: String,
}

#[derive(ToSchema)]
struct OpenAiEmbeddingsRequest {
    /// Name of the model, such as `nomic-embed-text`.
    model: String,
    input: EmbeddingsInput,
    encoding_format: Option<EncodingFormat>,
    /// Elements of a vector; all by default.
    dimensions: Option<i64>,
    keep_alive: Option<KeepAlive>,
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

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum EncodingFormat {
    Float,
    Base64,
}
