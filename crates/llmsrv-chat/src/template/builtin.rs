//! Templates for models that bring none.

/// ChatML: every turn between its two tokens.
pub(super) const CHATML: &str = "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n";

/// Tokens a vocabulary must have for [`CHATML`].
pub(super) const CHATML_TOKENS: [&str; 2] = ["<|im_start|>", "<|im_end|>"];

/// The last prompt as it is.
pub(super) const PLAIN: &str = "{{ .Prompt }}";
