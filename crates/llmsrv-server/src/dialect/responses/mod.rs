//! The Responses dialect of OpenAI: `/v1/responses`, without memory of earlier responses
//! (<https://platform.openai.com/docs/api-reference/responses>).

mod parse;
mod write;

pub(crate) use parse::{ResponseRequest, response};
pub(crate) use write::ResponseObject;
