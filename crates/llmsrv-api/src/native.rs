//! The native API (`/api/*`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`; not checked.
    pub role: String,
    /// Text; may be empty, always sent.
    #[serde(default)]
    pub content: String,
    /// The thinking part of an answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// Images, base64.
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
pub struct ToolCall {
    /// `call_` and eight characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What is called.
    pub function: ToolCallFunction,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCallFunction {
    /// Place in the answer, from 0.
    #[serde(default)]
    pub index: usize,
    /// Name of the tool.
    pub name: String,
    /// Arguments, keys in the order of the model.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// A tool the model may call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// `function`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The function.
    pub function: ToolFunction,
}

/// Signature of a tool; property order is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolFunction {
    /// Name.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub parameters: Value,
}
