//! What the endpoints of this dialect answer: the types that are written, and documented.

use llmsrv_api::{
    native::{LogProb, ToolCall},
    request,
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::dialect::End;

/// A refusal.
#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    pub(crate) error: OpenAiErrorDetail,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiErrorDetail {
    /// Why.
    pub(crate) message: String,
    /// `invalid_request_error`, `not_found_error` or `api_error`.
    pub(crate) r#type: &'static str,
    #[schema(required)]
    pub(crate) param: Option<&'static str>,
    #[schema(required)]
    pub(crate) code: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiModels {
    /// `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<OpenAiModel>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct OpenAiModel {
    pub(crate) id: String,
    /// `model`.
    pub(crate) object: &'static str,
    /// Seconds since the epoch.
    pub(crate) created: u64,
    pub(crate) owned_by: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    pub(crate) id: String,
    /// `chat.completion`.
    pub(crate) object: &'static str,
    /// Seconds since the epoch.
    pub(crate) created: i64,
    pub(crate) model: String,
    pub(crate) system_fingerprint: &'static str,
    pub(crate) choices: Vec<ChatChoice>,
    /// In a stream only that of its last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Usage, required)]
    pub(crate) usage: Option<Usage>,
}

#[derive(Default, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    pub(crate) index: usize,
    /// Of a whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = AssistantMessage, required)]
    pub(crate) message: Option<AssistantMessage>,
    /// Of an event: what it adds to the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub(crate) delta: Option<AssistantMessage>,
    /// `stop`, `length` or `tool_calls`.
    #[schema(value_type = String, required)]
    pub(crate) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<ChatLogProbs>,
}

#[derive(Default, Serialize, ToSchema)]
pub(crate) struct AssistantMessage {
    /// `assistant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required)]
    pub(crate) role: Option<&'static str>,
    /// Null beside calls alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, required)]
    pub(crate) content: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_calls: Option<Vec<OpenAiToolCall>>,
}

request! {
    /// A call, in an answer or of an earlier one.
    #[derive(Serialize)]
    pub(crate) object OpenAiToolCall {
        pub(crate) id: String,
        #[schema(value_type = Option<usize>)] pub(crate) index: Option<Value>,
        /// `function`.
        #[schema(value_type = String)] pub(crate) r#type: Value,
        pub(crate) function: OpenAiFunctionCall,
    }

    #[derive(Serialize)]
    pub(crate) object OpenAiFunctionCall {
        pub(crate) name: String,
        /// A JSON object as text.
        #[schema(value_type = String)] pub(crate) arguments: Value,
    }
}

impl OpenAiToolCall {
    /// Writes a call, the `index`th of its answer.
    pub(crate) fn new(call: &ToolCall, index: usize) -> OpenAiToolCall {
        OpenAiToolCall {
            id: call.id.clone(),
            index: Some(index.into()),
            r#type: "function".into(),
            function: OpenAiFunctionCall {
                name: call.function.name.clone(),
                arguments: Value::Object(call.function.arguments.clone())
                    .to_string()
                    .into(),
            },
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ChatLogProbs {
    pub(crate) content: Vec<LogProb>,
}

/// Numbers of tokens.
#[derive(Serialize, ToSchema)]
pub(crate) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokens,
    /// Tokens that the prompt lost; absent if none.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_truncated: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct PromptTokens {
    cached_tokens: u64,
}

impl Usage {
    pub(crate) fn of(end: &End) -> Usage {
        let (prompt, completion) = (end.metrics.prompt_eval_count, end.metrics.eval_count);
        Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: PromptTokens {
                cached_tokens: end.cached_tokens,
            },
            prompt_truncated: end.truncated(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Completion {
    pub(crate) id: String,
    /// `text_completion`.
    pub(crate) object: &'static str,
    /// Seconds since the epoch.
    pub(crate) created: i64,
    pub(crate) model: String,
    pub(crate) system_fingerprint: &'static str,
    pub(crate) choices: Vec<CompletionChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Usage, required)]
    pub(crate) usage: Option<Usage>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct CompletionChoice {
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) logprobs: Option<CompletionLogProbs>,
    /// `stop` or `length`.
    #[schema(required)]
    pub(crate) finish_reason: Option<&'static str>,
}

/// Four lists side by side.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct CompletionLogProbs {
    pub(crate) tokens: Vec<String>,
    pub(crate) token_logprobs: Vec<f32>,
    #[schema(value_type = Vec<Object>)]
    pub(crate) top_logprobs: Vec<Map<String, Value>>,
    pub(crate) text_offset: Vec<usize>,
}
