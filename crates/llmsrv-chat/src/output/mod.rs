//! Splits what a model says, as it says it, into content, thinking and tool calls.
//!
//! Text arrives in chunks of any size. Both splitters work character by character, so how the text is
//! cut never changes the result:
//!
//! ```text
//! "<th" "ink>hm</think>Let me loo" "k.<tool_call>{\"name\":..." "...}</tool_call>"
//! Thinking("hm")  Content("Let me look.")  ToolCall(..)
//! ```

mod answer;
mod blocks;
mod call;
pub(crate) mod format;
mod harmony;
mod python;
mod thinking;
mod tools;
mod typed;
mod whole;

use llmsrv_api::native::{Tool, ToolCall};

use crate::id::tool_call_id;
use crate::marks::TAGS;
use crate::prompt::Think;
use crate::template::Template;
use answer::AnswerMarks;
use call::Call;
use harmony::HarmonySplitter;
use thinking::ThinkingSplitter;
use tools::ToolSplitter;

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text of the answer.
    Content(String),
    /// Text of the thinking before it.
    Thinking(String),
    /// A whole call of a tool.
    ToolCall(ToolCall),
}

/// What an answer is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// The model says what it likes.
    #[default]
    Nothing,
    /// It must call a tool: whatever is no call is a call that was cut.
    Calls,
    /// A format: bare JSON is an answer in that format, not a call.
    Format,
}

/// Splits one answer.
#[derive(Debug)]
pub struct OutputSplitter {
    /// Tells everything apart in models with channels; the others do not see text then.
    harmony: Option<HarmonySplitter>,
    thinking: Option<ThinkingSplitter>,
    answer: Option<AnswerMarks>,
    tools: Option<ToolSplitter>,
    n_calls: usize,
}

impl OutputSplitter {
    /// A splitter for an answer to a prompt that ends in `prompt_tail` (its last line or more).
    /// Thinking is told apart unless the request switched it off; calls are looked for only if there
    /// are tools.
    pub fn new(
        template: &Template,
        prompt_tail: &str,
        tools: &[Tool],
        think: Option<Think>,
        bound: Bound,
    ) -> Self {
        let tags = template
            .thinking_tags()
            .filter(|_| think != Some(Think::Off));
        OutputSplitter {
            harmony: template
                .has_channels()
                .then(|| HarmonySplitter::new(prompt_tail, tools)),
            thinking: tags.map(|(open, close)| {
                let opened = prompt_tail.trim_end().ends_with(open);
                let call = template.tool_tag();
                // Bare JSON may be thinking.
                let call = Some(call)
                    .filter(|call| TAGS.contains(call) || !call.starts_with(['{', '[']))
                    .filter(|_| !tools.is_empty());
                ThinkingSplitter::new(open, close, call, opened)
            }),
            answer: AnswerMarks::of(template.source()),
            tools: (!tools.is_empty())
                .then(|| ToolSplitter::new(template.tool_tag(), tools, bound)),
            n_calls: 0,
        }
    }

    /// Takes the next text; returns what can be told from it, neighbours of one kind joined.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for c in text.chars() {
            self.push_char(c, &mut pieces);
        }
        pieces
    }

    /// The end of the answer: returns what was held back.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut content = String::new();
        if let Some(harmony) = &mut self.harmony {
            let split = harmony.finish();
            self.append_harmony(split, &mut pieces);
            return pieces;
        }
        if let Some(thinking) = &mut self.thinking {
            let rest = thinking.finish();
            append(&mut pieces, Piece::Thinking(rest.thinking));
            content = rest.content;
        }
        for c in content.chars() {
            self.push_content(c, &mut pieces);
        }
        let rest = self.answer.as_mut().map(AnswerMarks::finish);
        for c in rest.unwrap_or_default().chars() {
            self.push_answer(c, &mut pieces);
        }
        if let Some(tools) = &mut self.tools {
            let split = tools.finish();
            append(&mut pieces, Piece::Content(split.content));
            self.append_calls(split.calls, &mut pieces);
        }
        pieces
    }

    /// Returns how many bytes looked like calls of tools and were none: cut ones, and calls of tools
    /// that there are not. They are in no piece.
    pub fn n_left_out(&self) -> usize {
        let harmony = self.harmony.as_ref().map_or(0, HarmonySplitter::n_left_out);
        let tools = self.tools.as_ref().map_or(0, ToolSplitter::n_left_out);
        harmony + tools
    }

    fn push_char(&mut self, c: char, pieces: &mut Vec<Piece>) {
        if let Some(harmony) = &mut self.harmony {
            let split = harmony.push(c);
            return self.append_harmony(split, pieces);
        }
        let Some(thinking) = &mut self.thinking else {
            return self.push_content(c, pieces);
        };
        let split = thinking.push(c);
        append(pieces, Piece::Thinking(split.thinking));
        for c in split.content.chars() {
            self.push_content(c, pieces);
        }
    }

    fn push_content(&mut self, c: char, pieces: &mut Vec<Piece>) {
        let Some(answer) = &mut self.answer else {
            return self.push_answer(c, pieces);
        };
        for c in answer.push(c).chars() {
            self.push_answer(c, pieces);
        }
    }

    fn push_answer(&mut self, c: char, pieces: &mut Vec<Piece>) {
        let Some(tools) = &mut self.tools else {
            return append(pieces, Piece::Content(c.into()));
        };
        let split = tools.push(c);
        append(pieces, Piece::Content(split.content));
        self.append_calls(split.calls, pieces);
    }

    fn append_harmony(&mut self, split: harmony::Split, pieces: &mut Vec<Piece>) {
        append(pieces, Piece::Thinking(split.text.thinking));
        append(pieces, Piece::Content(split.text.content));
        self.append_calls(split.calls, pieces);
    }

    fn append_calls(&mut self, calls: Vec<Call>, pieces: &mut Vec<Piece>) {
        for Call { name, arguments } in calls {
            let mut call = ToolCall {
                id: tool_call_id(),
                ..ToolCall::default()
            };
            call.function.index = self.n_calls;
            call.function.name = name;
            call.function.arguments = arguments;
            self.n_calls += 1;
            pieces.push(Piece::ToolCall(call));
        }
    }
}

/// Adds a piece, joined with the last one where both are text of one kind; nothing if it is empty.
fn append(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (_, Piece::Content(text) | Piece::Thinking(text)) if text.is_empty() => {}
        (Some(Piece::Content(last)), Piece::Content(text))
        | (Some(Piece::Thinking(last)), Piece::Thinking(text)) => last.push_str(&text),
        (_, piece) => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests;
