//! Vectors of texts that another server makes.

use std::time::Duration;

use http::StatusCode;
use reqwest::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Turn,
    answer::{Failed, broke_off, post, sick},
};
use crate::{
    error::ApiError,
    job::{EmbedJob, EmbedText, Embedded, Inputs},
};

/// Asks a server for the vectors of all inputs.
pub(super) async fn embed(turn: Turn, job: &EmbedJob, model: &str) -> Result<Embedded, Failed> {
    let Inputs::Texts(texts) = &job.inputs else {
        let text = "rerank is not supported by a model of an upstream server";
        return Err(Failed::Request(ApiError::bad_request(text)));
    };
    let input = input(texts).map_err(Failed::Request)?;
    let body = json!({ "model": model, "input": input, "encoding_format": "float" });
    let (name, limit) = (
        &turn.0.settings().name,
        turn.0.settings().first_token_timeout,
    );
    let ask = async {
        let response = post(&turn, "/embeddings", &body).await?;
        let bytes = whole(response, name).await?;
        let answer = serde_json::from_slice::<Answer>(&bytes).ok();
        let answer = answer.and_then(|answer| answer.into_embedded(texts.len()));
        answer.ok_or_else(|| {
            let text = format!("upstream {name} did not send a vector for each input");
            sick(text, StatusCode::BAD_GATEWAY)
        })
    };
    let done = tokio::time::timeout(limit, ask).await;
    done.unwrap_or_else(|_| Err(super::answer::late(name, limit)))
}

/// Texts, or lists of tokens; the API has no way to mix them.
fn input(texts: &[EmbedText]) -> Result<Value, ApiError> {
    let is_text = |text: &EmbedText| matches!(text, EmbedText::Text(_));
    if texts.iter().any(is_text) && !texts.iter().all(is_text) {
        let text = "texts and tokens in one request are not supported by an upstream server";
        return Err(ApiError::bad_request(text));
    }
    let values = texts.iter().map(|text| match text {
        EmbedText::Text(text) => json!(text),
        EmbedText::Tokens(tokens) => json!(tokens),
    });
    Ok(values.collect())
}

/// Reads an answer to its end, if that comes soon enough.
async fn whole(mut response: Response, name: &str) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(bytes),
            Err(_) => return Err(sick(broke_off(name), StatusCode::BAD_GATEWAY)),
        }
        if bytes.len() > MAX_ANSWER_BYTES {
            let text = format!("upstream {name} sent an answer that is too long");
            return Err(sick(text, StatusCode::BAD_GATEWAY));
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Vector>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Vector {
    index: usize,
    embedding: Vec<f32>,
}

#[derive(Default, Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: usize,
}

impl Answer {
    /// Puts the vectors into the order of the inputs; `None` if one is missing or no vector.
    fn into_embedded(mut self, n_inputs: usize) -> Option<Embedded> {
        self.data.sort_by_key(|vector| vector.index);
        let mut in_order = self.data.iter().enumerate();
        let complete = in_order.all(|(at, vector)| vector.index == at);
        let mut values = self.data.iter().flat_map(|vector| &vector.embedding);
        let sound = values.all(|value| value.is_finite());
        (self.data.len() == n_inputs && complete && sound).then(|| Embedded {
            vectors: self
                .data
                .into_iter()
                .map(|vector| vector.embedding)
                .collect(),
            n_tokens: self.usage.prompt_tokens,
            // It does not tell.
            n_truncated: 0,
            load_duration: Duration::ZERO,
        })
    }
}

/// Bounds the memory of an answer: that of our own largest, as text.
const MAX_ANSWER_BYTES: usize = 256 << 20;
