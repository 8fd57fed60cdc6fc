//! Chat templates, template capabilities and splitting of model output: text in, text out, no IO.
//!
//! A conversation ([`Prompt`]) becomes one text through a [`Template`], which is written in one of
//! two dialects: Go's `text/template` or Jinja. What the model then says becomes [`Piece`]s through
//! an [`OutputSplitter`]: content, thinking, tool calls. Templates come from model files, so they are
//! not trusted: nesting is bounded before a text is parsed, and work, time, memory and output of one
//! rendering are. A [`Stop`] ends a rendering that nobody waits for.

mod capability;
mod error;
mod id;
mod limits;
mod marks;
mod messages;
mod output;
mod prompt;
mod stack;
mod template;
mod truncate;

pub use capability::TemplateCapabilities;
pub use error::{Error, Result};
pub use id::tool_call_id;
pub use limits::Stop;
pub use messages::strip_earlier_thinking;
pub use output::{
    Bound, OutputSplitter, Piece,
    format::{CallGrammar, Otherwise, ToolFormat},
};
pub use prompt::{Fill, Prompt, Think};
pub use template::{GoTemplate, GrammarStart, JinjaTemplate, Template};
pub use truncate::{Truncation, truncate};
