//! The prompt of a language model that judges whether a document answers a query.
//!
//! Between two control tokens all is one text: how a query is cut into tokens depends on what is before it,
//! and models were trained on the whole.

use llmsrv_gguf::ModelFacts;
use llmsrv_tokenizer::{Special, Tokenizer};

/// A prompt with places for a query and a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JudgePrompt {
    before: String,
    between: String,
    after: String,
}

impl JudgePrompt {
    /// Returns the prompt of a model. For one that has none, or one that does not say where both
    /// texts go, it is the published one of Qwen 3 rerankers.
    pub(crate) fn of(facts: &ModelFacts) -> JudgePrompt {
        let own = facts
            .rerank_prompt
            .as_deref()
            .filter(|text| text.len() <= MAX_BYTES);
        match own.and_then(JudgePrompt::parse) {
            Some(prompt) => prompt,
            None => JudgePrompt {
                before: BEFORE.into(),
                between: BETWEEN.into(),
                after: AFTER.into(),
            },
        }
    }

    fn parse(text: &str) -> Option<JudgePrompt> {
        let (before, rest) = text.split_once("{query}")?;
        let (between, after) = rest.split_once("{document}")?;
        Some(JudgePrompt {
            before: before.into(),
            between: between.into(),
            after: after.into(),
        })
    }

    /// Puts the query into its place. What spells a control token in it is ordinary text.
    pub(crate) fn with_query(&self, tokenizer: &Tokenizer, query: &str) -> Question {
        let mut parts = Vec::new();
        split(tokenizer, &self.before, &mut parts);
        parts.push(Part::Text(query.into()));
        split(tokenizer, &self.between, &mut parts);
        parts.push(Part::Document);
        split(tokenizer, &self.after, &mut parts);
        Question { parts }
    }
}

/// A prompt that wants a document.
pub(crate) struct Question {
    parts: Vec<Part>,
}

enum Part {
    Control(u32),
    Text(String),
    Document,
}

impl Question {
    /// Returns the tokens of the prompt with `document`, in which control tokens are ordinary text.
    pub(crate) fn with(&self, tokenizer: &Tokenizer, document: &str) -> Vec<u32> {
        let (mut tokens, mut text) = (Vec::new(), String::new());
        for part in &self.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Document => text.push_str(document),
                Part::Control(id) => {
                    tokens.extend(tokenizer.encode(&text, Special::Plain));
                    tokens.push(*id);
                    text.clear();
                }
            }
        }
        tokens.extend(tokenizer.encode(&text, Special::Plain));
        tokens
    }

    /// As [`Question::with`], with as much of the begin of `document` as makes at most `n_ctx` tokens;
    /// returns also how many of its tokens are lost.
    pub(crate) fn with_most_of(
        &self,
        tokenizer: &Tokenizer,
        document: &str,
        n_ctx: usize,
    ) -> (Vec<u32>, usize) {
        let whole = self.with(tokenizer, document);
        let mut n_over = whole.len().saturating_sub(n_ctx);
        if n_over == 0 {
            return (whole, 0);
        }
        let ids = tokenizer.encode(document, Special::Plain);
        let mut n_kept = ids.len();
        // Cutting may make the rest join its neighbours otherwise.
        loop {
            n_kept = n_kept.saturating_sub(n_over);
            let text = tokenizer.decode(ids.get(..n_kept).unwrap_or_default());
            let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
            let tokens = self.with(tokenizer, text);
            n_over = tokens.len().saturating_sub(n_ctx);
            if n_over == 0 || n_kept == 0 {
                return (tokens, ids.len() - n_kept);
            }
        }
    }
}

/// Appends the control tokens of a part of a prompt, and the texts between them.
fn split(tokenizer: &Tokenizer, text: &str, parts: &mut Vec<Part>) {
    let ids = tokenizer.encode(text, Special::Parse);
    for run in ids.chunk_by(|a, b| !tokenizer.is_control(*a) && !tokenizer.is_control(*b)) {
        match run {
            [id] if tokenizer.is_control(*id) => parts.push(Part::Control(*id)),
            run => parts.push(Part::Text(tokenizer.decode(run))),
        }
    }
}

/// Longer ones are no prompts.
const MAX_BYTES: usize = 1 << 16;
/// The published prompt: <https://huggingface.co/Qwen/Qwen3-Reranker-0.6B>.
const BEFORE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and \
    the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
    <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: ";
const BETWEEN: &str = "\n<Document>: ";
const AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

#[cfg(test)]
mod tests {
    use llmsrv_engine::fake;

    use super::*;

    fn prompt(text: &str) -> JudgePrompt {
        JudgePrompt::parse(text).unwrap()
    }

    #[test]
    fn both_texts_stand_in_their_places_and_marks_in_them_are_text() {
        let tokenizer = fake::tokenizer();
        let [start, end] = ["<|im_start|>", "<|im_end|>"].map(|text| tokenizer.find(text).unwrap());
        let question = prompt("<|im_start|>q {query}\nd {document}<|im_end|>a")
            .with_query(&tokenizer, "x<|im_end|>");
        let tokens = question.with(&tokenizer, "y<|im_start|>");
        let text = tokenizer.decode_with_special(&tokens);
        assert_eq!(
            text,
            "<|im_start|>q x<|im_end|>\nd y<|im_start|><|im_end|>a"
        );
        let marks = tokens.iter().filter(|id| tokenizer.is_control(**id));
        assert_eq!(marks.collect::<Vec<_>>(), [&start, &end]);
    }

    #[test]
    fn a_long_document_loses_its_end() {
        let tokenizer = fake::tokenizer();
        let question = prompt("{query}|{document}|").with_query(&tokenizer, "ab");
        let text = |n_ctx: usize| {
            let (tokens, n_lost) = question.with_most_of(&tokenizer, "cdéf", n_ctx);
            assert!(tokens.len() <= n_ctx);
            (tokenizer.decode(&tokens), n_lost)
        };
        assert_eq!(text(9), ("ab|cdéf|".into(), 0));
        assert_eq!(text(8), ("ab|cdé|".into(), 1));
        // Half a character goes as a whole.
        assert_eq!(text(7), ("ab|cd|".into(), 2));
        assert_eq!(text(5), ("ab|c|".into(), 4));
    }

    #[test]
    fn a_prompt_without_places_is_none() {
        for text in ["", "{query}", "{document} {query}", "{ query } {document}"] {
            assert_eq!(JudgePrompt::parse(text), None, "{text}");
        }
    }
}
