//! Answers with vectors and with scores: `/api/embed`, `/api/embeddings`, `/v1/embeddings`, and both
//! paths of `rerank`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::native::is_zero;

/// Answer of `/api/embed`. Durations in nanoseconds; zero is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct EmbedResponse {
    /// The model, as the client named it.
    pub model: String,
    /// One vector of length 1 for each input, in their order.
    pub embeddings: Vec<Vec<f32>>,
    /// From the request's arrival to its answer.
    #[serde(skip_serializing_if = "is_zero")]
    pub total_duration: u64,
    /// Until the model was ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_duration: u64,
    /// Tokens of all inputs.
    #[serde(skip_serializing_if = "is_zero")]
    pub prompt_eval_count: u64,
    /// Tokens that were cut from inputs longer than the context.
    #[serde(skip_serializing_if = "is_zero")]
    pub prompt_truncated: u64,
}

/// Answer of `/api/embeddings`, the older form for one text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct EmbeddingResponse {
    /// The vector as the model made it; empty if there was no text.
    pub embedding: Vec<f64>,
}

/// Answer of `/v1/embeddings`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct EmbeddingList {
    /// Always `list`.
    pub object: &'static str,
    /// One entry for each input.
    pub data: Vec<Embedding>,
    /// The model, as the client named it.
    pub model: String,
    /// Tokens of all inputs.
    pub usage: EmbedUsage,
}

/// One entry of an [`EmbeddingList`].
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Embedding {
    /// Always `embedding`.
    pub object: &'static str,
    /// Numbers, or their bytes as base64 if that was asked for.
    pub embedding: Vector,
    /// Place of its input in the request.
    pub index: usize,
}

/// A vector as the client asked for it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Vector {
    /// A list of numbers.
    Floats(Vec<f32>),
    /// Base64 of little-endian f32.
    Base64(String),
}

/// Tokens of a request without generated text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct EmbedUsage {
    /// Tokens of all inputs.
    pub prompt_tokens: u64,
    /// Equal to `prompt_tokens`: nothing is generated.
    pub total_tokens: u64,
}

/// Answer of `/v1/rerank` and `/api/rerank`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RerankResponse {
    /// The model, as the client named it.
    pub model: String,
    /// One entry for each document that is wanted, the best first.
    pub results: Vec<RerankResult>,
    /// Tokens of the query and the documents.
    pub usage: EmbedUsage,
}

/// How well one document answers the query.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RerankResult {
    /// Place of the document in the request.
    pub index: usize,
    /// From 0 to 1, or the model's own score if that was asked for.
    pub relevance_score: f32,
    /// The document, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<RerankDocument>,
}

/// A document in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RerankDocument {
    /// The document as the request had it.
    pub text: String,
}
