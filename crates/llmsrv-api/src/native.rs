//! The native API (`/api/*`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::{from_value, lenient::Fields, request};

request! {
    /// One message of a conversation.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub object Message {
        /// `system`, `user`, `assistant` or `tool`; not checked.
        pub role: String,
        /// The text of the message; may be empty, always sent.
        #[serde(default)] pub content: String,
        /// The thinking part of an answer.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub thinking: String,
        /// Files of images, each as base64.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub images: Vec<String>,
        /// Calls the model asks for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tool_calls: Vec<ToolCall>,
        /// Name of the tool whose result `content` is.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub tool_name: String,
        /// The call that `content` answers.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub tool_call_id: String,
    }

    /// A call of a tool by the model.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub object ToolCall {
        /// `call_` and eight characters.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub id: String,
        /// The tool and its arguments.
        pub function: ToolCallFunction,
    }

    /// Name and arguments of a call.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub object ToolCallFunction {
        /// Place in the answer, from 0.
        #[serde(default)] pub index: usize,
        /// Name of the tool.
        pub name: String,
        /// Arguments, keys in the order of the model.
        #[serde(default)] #[schema(value_type = Object)] pub arguments: Map<String, Value>,
    }

    /// Signature of a tool; property order is kept.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub object ToolFunction {
        /// Name by which the model calls it.
        pub name: String,
        /// What the tool does, in words for the model.
        #[serde(default)] pub description: String,
        /// JSON Schema of the arguments.
        #[serde(default)] pub parameters: Value,
        /// Whatever the model would like to say, arguments satisfy the schema. No part of the prompt.
        #[serde(default, skip_serializing)]
        pub strict: bool,
    }
}

/// A tool the model may call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tool {
    /// Always `function`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// What the model is told of the tool.
    pub function: ToolFunction,
}

from_value!(Tool, Value::is_object, |value, name| {
    let mut fields = Fields::from_value(value, name)?;
    let kind: Option<String> = fields.get("type")?;
    Ok(Tool {
        kind: kind.unwrap_or_else(|| "function".into()),
        function: fields.get("function")?,
    })
});

/// A piece of an answer of `/api/generate`, or the whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GenerateResponse {
    /// Name as the client sent it.
    pub model: String,
    /// When the piece was made: RFC 3339, UTC.
    pub created_at: String,
    /// Text that is added to the answer.
    pub response: String,
    /// Text of the thinking part.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// Calls the model asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// This is the last piece.
    pub done: bool,
    /// `stop`, `length`, `load` or `unload`; absent while `done` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_reason: Option<String>,
    /// Tokens of prompt and answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<u32>,
    /// One entry for each token of this piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<LogProb>,
    /// Figures, in the last piece.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// A piece of an answer of `/api/chat`, or the whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChatResponse {
    /// Name as the client sent it.
    pub model: String,
    /// When the piece was made: RFC 3339, UTC.
    pub created_at: String,
    /// The message or a piece of it.
    pub message: Message,
    /// This is the last piece.
    pub done: bool,
    /// `stop`, `length`, `load` or `unload`; absent while `done` is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_reason: Option<String>,
    /// One entry for each token of this piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<LogProb>,
    /// Figures, in the last piece.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Figures of an answer; durations in nanoseconds. Zero is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Metrics {
    /// Since the request arrived.
    #[serde(skip_serializing_if = "is_zero")]
    pub total_duration: u64,
    /// Until the model was ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub load_duration: u64,
    /// Tokens of the whole prompt, cached ones included.
    #[serde(skip_serializing_if = "is_zero")]
    pub prompt_eval_count: u64,
    /// Time for the prompt.
    #[serde(skip_serializing_if = "is_zero")]
    pub prompt_eval_duration: u64,
    /// Number of generated tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub eval_count: u64,
    /// Time for the generated tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub eval_duration: u64,
    /// Tokens that were cut from a prompt too long for the context.
    #[serde(skip_serializing_if = "is_zero")]
    pub prompt_truncated: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Probability of a generated token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogProb {
    /// Text of the token, as far as it is text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Bytes of the token, which may be part of a character.
    pub bytes: Vec<u8>,
    /// The most probable alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub top_logprobs: Option<Vec<LogProb>>,
}

/// What lists say about a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Details {
    /// Always empty: models know no parents here.
    pub parent_model: String,
    /// Format of the weights: `gguf`.
    pub format: String,
    /// Architecture of the model: `llama`.
    pub family: String,
    /// Architecture and those of its projectors.
    pub families: Vec<String>,
    /// Number of parameters in words: `8.0B`.
    pub parameter_size: String,
    /// How most weights are quantised: `Q4_K_M`.
    pub quantization_level: String,
    /// Positions the model was trained for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_length: Option<u64>,
    /// Length of an embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding_length: Option<u64>,
}

/// A model of `/api/tags`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListedModel {
    /// Shortest name with tag.
    pub name: String,
    /// Equal to `name`; clients read one or the other.
    pub model: String,
    /// When the model was pulled or made: RFC 3339.
    pub modified_at: String,
    /// Bytes that it takes on disk.
    pub size: u64,
    /// Hex digest of the manifest.
    pub digest: String,
    /// Architecture, size and quantisation.
    pub details: Details,
    /// What it can do, as `/api/show` tells it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<String>,
}

/// A model of `/api/ps`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunningModel {
    /// Shortest name with tag.
    pub name: String,
    /// Equal to `name`; clients read one or the other.
    pub model: String,
    /// Bytes that it takes in memory.
    pub size: u64,
    /// Hex digest of the manifest.
    pub digest: String,
    /// Architecture, size and quantisation.
    pub details: Details,
    /// When it will be unloaded if nobody asks; RFC 3339.
    pub expires_at: String,
    /// Bytes of it on a GPU.
    pub size_vram: u64,
    /// Layers that GPUs compute.
    pub gpu_layers: usize,
    /// Its layers, the output among them.
    pub layers: usize,
    /// Why the CPU computes it or a part of it, where there are GPUs that may be used; absent where GPUs compute all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cpu: Option<String>,
    /// Whether an NPU computes it.
    pub npu: bool,
    /// Tokens that its context holds as it was loaded.
    pub context_length: u64,
}

/// What `/api/tags` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Models {
    /// The models on disk, and those of other servers.
    pub models: Vec<ListedModel>,
}

/// What `/api/ps` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Running {
    /// The models in memory.
    pub models: Vec<RunningModel>,
    /// Requests that wait for a model or for their turn.
    pub queue: u64,
}

/// What `/health` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `stopping`.
    pub status: String,
}

/// What `/api/version` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Of the API that is spoken.
    pub version: String,
    /// Of this program.
    pub llmsrv_version: String,
}

/// What `/api/status` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// There is none.
    pub cloud: Cloud,
    /// What the caller may do: `infer`, `manage` or `admin`.
    pub role: String,
}

/// Whether models run elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cloud {
    /// Always.
    pub disabled: bool,
    /// Who says so: `env`.
    pub source: String,
}

/// What `/api/detokenize` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Content {
    /// The text of the tokens.
    pub content: String,
}

/// What `/api/tokenize` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tokens {
    /// Their ids.
    pub tokens: Vec<u32>,
    /// A text for each token, or its bytes where they are no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Vec<Piece>>,
}

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Piece {
    /// Whole characters.
    Text(String),
    /// Part of a character.
    Bytes(Vec<u8>),
}

/// What `/api/show` answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Shown {
    /// All its licenses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// The model as a Modelfile.
    pub modelfile: String,
    /// Options the model wants, one a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// What makes a prompt of messages.
    pub template: String,
    /// Its system text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Architecture, size and quantisation.
    pub details: Details,
    /// Messages that go before those of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Message>>)]
    pub messages: Option<Vec<Value>>,
    /// Metadata of the model file.
    #[schema(value_type = Object)]
    pub model_info: Map<String, Value>,
    /// Metadata of the file of its encoder for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub projector_info: Option<Map<String, Value>>,
    /// Its weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<Tensor>>,
    /// What it can do: `completion`, `tools`, `insert`, `thinking`, `vision`, `embedding`.
    pub capabilities: Vec<String>,
    /// RFC 3339.
    pub modified_at: String,
    /// Oldest version of the reference server that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<String>,
    /// What makes its prompts, as its publisher names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renderer: Option<String>,
    /// What reads its answers, as its publisher names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parser: Option<String>,
}

/// A tensor of a model file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tensor {
    /// As in the file.
    pub name: String,
    /// Type of its elements.
    pub r#type: String,
    /// Elements in each dimension, the fastest first.
    pub shape: Vec<u64>,
}
