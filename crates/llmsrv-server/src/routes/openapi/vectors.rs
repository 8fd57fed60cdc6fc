//! Vectors of texts and the order of documents.

use llmsrv_api::embed::{EmbedResponse, EmbeddingList, EmbeddingResponse, RerankResponse};

use super::{REFUSALS, Row, Schemas};
use crate::{
    dialect::openai::answer::OpenAiError,
    error::Error,
    routes::embed::{EmbedRequest, EmbeddingsRequest, OpenAiEmbeddingsRequest, RerankRequest},
};

/// Returns the endpoints.
pub(super) fn rows(s: &mut Schemas) -> Vec<Row> {
    let error = s.add::<Error>();
    let native = |path, what| Row::post(path, VECTORS, what).refuses(&error, REFUSALS);
    let error = s.add::<OpenAiError>();
    let openai = |path, what| Row::post(path, VECTORS, what).refuses(&error, REFUSALS);
    let rerank = s.request::<RerankRequest>();
    let ranked = s.add::<RerankResponse>();
    let ranks = |row: Row| {
        row.about("Needs a model that ranks.")
            .takes(rerank.clone())
            .gives("The documents, best first", ranked.clone())
    };
    let order = "Order documents by how well they answer a query";
    vec![
        native("/api/embed", "Turn texts into vectors of length 1")
            .takes(s.request::<EmbedRequest>())
            .gives("A vector for each text", s.add::<EmbedResponse>()),
        native("/api/embeddings", "Turn one text into a vector")
            .about("The older form; the vector is left as the model made it.")
            .takes(s.request::<EmbeddingsRequest>())
            .gives("The vector", s.add::<EmbeddingResponse>()),
        ranks(native("/api/rerank", order)),
        ranks(openai("/v1/rerank", order)),
        openai("/v1/embeddings", "Turn texts into vectors")
            .takes(s.request::<OpenAiEmbeddingsRequest>())
            .gives("A vector for each text", s.add::<EmbeddingList>()),
    ]
}

const VECTORS: &str = "Vectors";
