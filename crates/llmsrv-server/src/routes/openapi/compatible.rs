//! The OpenAI and the Anthropic dialect (`/v1/*`).

use utoipa::openapi::{RefOr, Schema};

use super::{EVENTS, JSON, REFUSALS, Row, Schemas, text};
use crate::dialect::{
    anthropic::{AnthropicError, AnthropicMessage, CountRequest, MessagesRequest, TokenCount},
    openai::{
        ChatCompletionRequest, CompletionRequest,
        answer::{ChatCompletion, Completion, OpenAiError, OpenAiModel, OpenAiModels},
    },
    responses::{ResponseObject, ResponseRequest},
};

/// Returns the endpoints.
pub(super) fn rows(s: &mut Schemas) -> Vec<Row> {
    let error = s.add::<OpenAiError>();
    let lists = |path, what, also: &[u16]| {
        Row::get(path, OPENAI, what).refuses(&error, &[also, &[401, 500, 503]].concat())
    };
    let openai = |path, what| Row::post(path, OPENAI, what).refuses(&error, REFUSALS);
    let error = s.add::<AnthropicError>();
    let anthropic = |path, what| Row::post(path, ANTHROPIC, what).refuses(&error, REFUSALS);
    vec![
        lists("/v1/models", "List the models on disk", &[])
            .gives("The models", s.add::<OpenAiModels>()),
        lists("/v1/models/{model}", "Describe a model", &[400, 404])
            .parameter("model", "Name of the model; slashes in it are understood.")
            .gives("The model", s.add::<OpenAiModel>()),
        openai("/v1/chat/completions", "Answer a conversation")
            .takes(s.request::<ChatCompletionRequest>())
            .answers(
                200,
                "The answer, whole or as events",
                either(s.add::<ChatCompletion>()),
            ),
        openai("/v1/completions", "Continue a prompt")
            .takes(s.request::<CompletionRequest>())
            .answers(
                200,
                "The text, whole or as events",
                either(s.add::<Completion>()),
            ),
        openai("/v1/responses", "Answer a conversation of items")
            .about("Responses are not kept: the whole conversation is sent each time.")
            .takes(s.request::<ResponseRequest>())
            .answers(
                200,
                "The response, whole or as events",
                either(s.add::<ResponseObject<'_>>()),
            ),
        anthropic("/v1/messages", "Answer a conversation")
            .takes(s.request::<MessagesRequest>())
            .answers(
                200,
                "The message, whole or as events",
                either(s.add::<AnthropicMessage>()),
            ),
        anthropic("/v1/messages/count_tokens", "Count the tokens of a prompt")
            .takes(s.request::<CountRequest>())
            .gives("The number", s.add::<TokenCount>()),
    ]
}

/// An answer that is one object or comes as server-sent events.
fn either(schema: RefOr<Schema>) -> [(&'static str, RefOr<Schema>); 2] {
    [(JSON, schema), (EVENTS, text())]
}

const OPENAI: &str = "OpenAI";
const ANTHROPIC: &str = "Anthropic";
