//! What a template can do.

/// Abilities of a model that its template decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateCapabilities {
    /// Tools can be offered.
    pub tools: bool,
    /// Thinking can be told from the answer.
    pub thinking: bool,
    /// A gap between two texts can be filled.
    pub insert: bool,
}

impl TemplateCapabilities {
    /// How many of them there are.
    pub(crate) fn count(self) -> usize {
        let all = [self.tools, self.thinking, self.insert];
        all.into_iter().filter(|has| *has).count()
    }
}
