//! A chat template in one of its two dialects, and which one a model gets.

mod builtin;
mod go;
mod jinja;

use crate::capability::TemplateCapabilities;
use crate::error::Result;
use crate::marks::harmony;
use crate::prompt::Prompt;
pub use go::GoTemplate;
pub use jinja::JinjaTemplate;

/// A parsed chat template. Cheap to share, safe to render from many threads.
#[derive(Debug)]
pub enum Template {
    /// Go's `text/template`: `TEMPLATE` layers.
    Go(GoTemplate),
    /// Jinja: `tokenizer.chat_template` of model files.
    Jinja(Box<JinjaTemplate>),
}

/// Where a grammar begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarStart<'a> {
    /// An answer that does not begin with this text is in the grammar from the start.
    pub unless: Option<&'a str>,
    /// Text after which the grammar begins.
    pub after: &'a str,
}

impl Template {
    /// Parses a template of the Go dialect.
    pub fn go(text: &str) -> Result<Self> {
        GoTemplate::parse(text).map(Template::Go)
    }

    /// Parses a Jinja template; `bos` and `eos` are the spellings of the model's tokens.
    pub fn jinja(text: &str, bos: &str, eos: &str) -> Result<Self> {
        let template = JinjaTemplate::parse(text, bos, eos)?;
        Ok(Template::Jinja(Box::new(template)))
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
        if let Some(text) = filled(go_layer) {
            return Self::go(text);
        }
        if let Some(text) = filled(jinja) {
            return Self::jinja(text, bos, eos);
        }
        Self::builtin(has_token)
    }

    /// What the template that [`Template::choose`] takes can express, told by its text alone: no foreign
    /// text is parsed, so that a list of models costs little and no model can spoil it.
    pub fn capabilities_of(
        go_layer: Option<&str>,
        jinja: Option<&str>,
        has_token: &dyn Fn(&str) -> bool,
    ) -> TemplateCapabilities {
        let (source, capabilities): (_, fn(&str) -> TemplateCapabilities) =
            match (filled(go_layer), filled(jinja)) {
                (Some(text), _) => (text, go::capabilities),
                (None, Some(text)) => (text, jinja::capabilities),
                (None, None) => (builtin(has_token), go::capabilities),
            };
        if source.len() > MAX_SOURCE_BYTES {
            return TemplateCapabilities::default();
        }
        let capabilities = capabilities(source);
        TemplateCapabilities {
            thinking: capabilities.thinking || has_channels(source),
            ..capabilities
        }
    }

    /// Tells whether the Jinja text of a model file does more than the `TEMPLATE` layer over it, told by
    /// both texts alone: it can express more, and takes calls and their results wherever the layer does;
    /// or it can express the same, tools among it, and only it takes calls and their results. A layer
    /// that speaks in channels stays.
    pub fn jinja_does_more(go_layer: &str, jinja: &str) -> bool {
        let is_long = |text: &str| text.len() > MAX_SOURCE_BYTES;
        if is_long(go_layer) || is_long(jinja) || has_channels(go_layer) {
            return false;
        }
        let layer = go::capabilities(go_layer);
        let mut file = jinja::capabilities(jinja);
        file.thinking |= has_channels(jinja);
        if file.count() > layer.count() {
            return !go::takes_results(go_layer) || jinja::takes_results(jinja);
        }
        file == layer && file.tools && jinja::takes_results(jinja) && !go::takes_results(go_layer)
    }

    /// The template of a model that brings none: ChatML when its vocabulary has the tokens, else the
    /// plain prompt.
    pub fn builtin(has_token: &dyn Fn(&str) -> bool) -> Result<Self> {
        Self::go(builtin(has_token))
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
        let capabilities = match self {
            Template::Go(template) => template.capabilities(),
            Template::Jinja(template) => template.capabilities(),
        };
        TemplateCapabilities {
            thinking: capabilities.thinking || self.has_channels(),
            ..capabilities
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
        if self.has_channels() {
            return Some(harmony::THINKING);
        }
        match self {
            Template::Go(template) => template.thinking_tags(),
            Template::Jinja(template) => template.thinking_tags(),
        }
    }

    /// Whether the model says everything in channels, as gpt-oss does.
    pub fn has_channels(&self) -> bool {
        has_channels(self.source())
    }

    /// Where a grammar begins in the answer of a model that thinks, to a prompt that ends in
    /// `prompt_tail`: a grammar of tool calls, or of the text of an answer. `None` = at once.
    pub fn grammar_start(&self, prompt_tail: &str, of_calls: bool) -> Option<GrammarStart<'_>> {
        let start = |unless, after| Some(GrammarStart { unless, after });
        match (self.has_channels(), self.thinking_tags()) {
            (true, _) if of_calls => start(Some(harmony::ANALYSIS), harmony::NEXT),
            (true, _) => start(None, harmony::FINAL),
            (false, Some((open, close))) => {
                let is_open = prompt_tail.trim_end().ends_with(open.trim_end());
                start((!is_open).then_some(open), close)
            }
            (false, None) => None,
        }
    }

    /// The text that announces a tool call; `{` or `[` when calls are bare JSON.
    pub fn tool_tag(&self) -> &str {
        match self {
            Template::Go(template) => template.tool_tag(),
            Template::Jinja(template) => template.tool_tag(),
        }
    }
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

fn builtin(has_token: &dyn Fn(&str) -> bool) -> &'static str {
    if builtin::CHATML_TOKENS.iter().all(|token| has_token(token)) {
        builtin::CHATML
    } else {
        builtin::PLAIN
    }
}

fn has_channels(source: &str) -> bool {
    harmony::MARKS.iter().all(|mark| source.contains(mark))
}

/// Longest template that is parsed.
pub(crate) const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Longest prompt that a template may produce.
pub(crate) const MAX_OUTPUT_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn chosen(go_layer: Option<&str>, jinja: Option<&str>, tokens: &[&str]) -> Result<String> {
        let template = Template::choose(go_layer, jinja, &|t| tokens.contains(&t), "", "")?;
        let dialect = match template {
            Template::Go(_) => "go",
            Template::Jinja(_) => "jinja",
        };
        Ok(format!("{dialect} {}", template.source()))
    }

    #[test]
    fn the_layer_wins_then_jinja_then_the_vocabulary() {
        let tokens = ["<|im_start|>", "<|im_end|>"];
        let cases = [
            (
                Some("{{ .Prompt }}!"),
                Some("{{ messages }}"),
                "go {{ .Prompt }}!".to_owned(),
            ),
            (
                None,
                Some("{{ messages }}"),
                "jinja {{ messages }}".to_owned(),
            ),
            (
                Some(" "),
                Some("{{ messages }}"),
                "jinja {{ messages }}".to_owned(),
            ),
            (None, Some(""), format!("go {}", builtin::CHATML)),
            (None, None, format!("go {}", builtin::CHATML)),
        ];
        for (go_layer, jinja, expected) in cases {
            assert_eq!(chosen(go_layer, jinja, &tokens).unwrap(), expected);
        }
        assert_eq!(
            chosen(None, None, &tokens[..1]).unwrap(),
            "go {{ .Prompt }}"
        );
    }

    #[test]
    fn jinja_goes_before_a_layer_that_does_less() {
        let plain = "{{ range .Messages }}{{ .Content }}{{ end }}";
        let offers = "{{ .Tools }}{{ range .Messages }}{{ .Content }}{{ end }}";
        let calls = "{{ .Tools }}{{ range .Messages }}{{ .ToolCalls }}\
            {{ if eq .Role \"tool\" }}{{ .Content }}{{ end }}{{ end }}";
        let fills = "{{ .Prompt }}{{ .Suffix }}";
        let thinks = "{{ range .Messages }}{{ .Thinking }}{{ end }}";
        let channels = "<|channel|><|message|>{{ .Prompt }}";
        let (says, tools, think) = ("{{ messages }}", "{{ tools }}", "<think></think>");
        let results = "{{ tools }}{% if m.role == 'tool' %}{{ m.tool_calls }}{% endif %}";
        let both = "{{ tools }}<think></think>";
        let all = format!("{results}{think}");
        for (layer, jinja, expected) in [
            // More than the layer can express.
            (plain, tools, true),
            (plain, think, true),
            (offers, both, true),
            (thinks, both, true),
            (fills, both, true),
            // But not without results where the layer takes them.
            (calls, both, false),
            (calls, &all, true),
            // The same, and only one of them takes results.
            (offers, results, true),
            (offers, tools, false),
            (calls, results, false),
            (calls, tools, false),
            (plain, says, false),
            (thinks, think, false),
            // Other abilities, as many.
            (fills, tools, false),
            (thinks, tools, false),
            (channels, &all, false),
        ] {
            let found = Template::jinja_does_more(layer, jinja);
            assert_eq!(found, expected, "{layer} or {jinja}");
        }
    }

    #[test]
    fn a_broken_text_is_an_error() {
        for (go_layer, jinja) in [(Some("{{"), Some("ok")), (None, Some("{% if %}"))] {
            assert!(matches!(
                chosen(go_layer, jinja, &[]),
                Err(Error::Syntax(_))
            ));
        }
    }

    #[test]
    fn builtin_templates() {
        let message = |role: &str, content: &str| llmsrv_api::native::Message {
            role: role.into(),
            content: content.into(),
            ..Default::default()
        };
        let messages = [message("system", "S"), message("user", "U")];
        let prompt = Prompt::new(&messages, jiff::Zoned::default());
        let chatml = Template::builtin(&|_| true).unwrap();
        assert_eq!(
            chatml.render(&prompt).unwrap(),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
        );
        let plain = Template::builtin(&|_| false).unwrap();
        assert_eq!(plain.render(&prompt).unwrap(), "U");
    }
}
