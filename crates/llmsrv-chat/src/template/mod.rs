//! A chat template in one of its two dialects, and which one a model gets.

mod builtin;
mod go;
mod jinja;

use crate::capability::TemplateCapabilities;
use crate::error::Result;
use crate::prompt::Prompt;
pub use go::GoTemplate;
pub use jinja::JinjaTemplate;

/// A parsed chat template. Cheap to share, safe to render from many threads.
#[derive(Debug)]
pub enum Template {
    /// Go's `text/template`: `TEMPLATE` layers.
    Go(GoTemplate),
    /// Jinja: `tokenizer.chat_template` of model files.
    Jinja(JinjaTemplate),
}

impl Template {
    /// Parses a template of the Go dialect.
    pub fn go(text: &str) -> Result<Self> {
        GoTemplate::parse(text).map(Template::Go)
    }

    /// Parses a Jinja template; `bos` and `eos` are the spellings of the model's tokens.
    pub fn jinja(text: &str, bos: &str, eos: &str) -> Result<Self> {
        JinjaTemplate::parse(text, bos, eos).map(Template::Jinja)
    }

    /// Chooses a model's template: its `TEMPLATE` layer if it has one, else the Jinja text of the
    /// model file, else [`Template::builtin`]. A text that does not parse is an error, never skipped:
    /// the caller may report it and go on with [`Template::builtin`].
    pub fn choose(
        go_layer: Option<&str>,
        jinja: Option<&str>,
        has_token: &dyn Fn(&str) -> bool,
        bos: &str,
        eos: &str,
    ) -> Result<Self> {
        if let Some(text) = go_layer.filter(|text| !text.trim().is_empty()) {
            return Self::go(text);
        }
        if let Some(text) = jinja.filter(|text| !text.trim().is_empty()) {
            return Self::jinja(text, bos, eos);
        }
        Self::builtin(has_token)
    }

    /// The template of a model that brings none: ChatML when its vocabulary has the tokens, else the
    /// plain prompt.
    pub fn builtin(has_token: &dyn Fn(&str) -> bool) -> Result<Self> {
        let chatml = builtin::CHATML_TOKENS.iter().all(|token| has_token(token));
        Self::go(if chatml {
            builtin::CHATML
        } else {
            builtin::PLAIN
        })
    }

    /// Renders the prompt, the model's turn opened.
    pub fn render(&self, prompt: &Prompt<'_>) -> Result<String> {
        match self {
            Template::Go(template) => template.render(prompt),
            Template::Jinja(template) => template.render(prompt),
        }
    }

    /// What the template can express.
    pub fn capabilities(&self) -> TemplateCapabilities {
        match self {
            Template::Go(template) => template.capabilities(),
            Template::Jinja(template) => template.capabilities(),
        }
    }

    /// The text the template was parsed from.
    pub fn source(&self) -> &str {
        match self {
            Template::Go(template) => template.source(),
            Template::Jinja(template) => template.source(),
        }
    }

    /// The tags around a model's thinking, if the template knows thinking.
    pub fn thinking_tags(&self) -> Option<(&str, &str)> {
        match self {
            Template::Go(template) => template.thinking_tags(),
            Template::Jinja(template) => template.thinking_tags(),
        }
    }

    /// The tag that ends the thinking part: where a grammar begins.
    pub fn thinking_end(&self) -> Option<&str> {
        self.thinking_tags().map(|(_, close)| close)
    }

    /// The text that announces a tool call; `{` or `[` when calls are bare JSON.
    pub fn tool_tag(&self) -> &str {
        match self {
            Template::Go(template) => template.tool_tag(),
            Template::Jinja(template) => template.tool_tag(),
        }
    }
}

/// Longest template that is parsed.
pub(crate) const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Longest prompt that a template may produce.
pub(crate) const MAX_OUTPUT_BYTES: usize = 256 << 20;
