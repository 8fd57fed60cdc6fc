//! The Responses dialect of OpenAI: `/v1/responses` (<https://platform.openai.com/docs/api-reference/responses>).

mod kept;
mod parse;
mod write;

pub(crate) use kept::KeptResponses;
pub(crate) use parse::{ResponseRequest, response};
pub(crate) use write::ResponseObject;
