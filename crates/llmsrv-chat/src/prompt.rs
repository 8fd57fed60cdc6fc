//! What a template is given.

use jiff::Zoned;
use llmsrv_api::native::{Message, Tool};

use crate::limits::Stop;

/// Everything that a prompt is made of.
#[derive(Clone, Debug)]
pub struct Prompt<'a> {
    /// The conversation, system messages included. Images need not carry their data: only how many
    /// a message has matters here, they become `[img-N]` tags counted over the whole slice.
    pub messages: &'a [Message],
    /// Tools the model may call.
    pub tools: &'a [Tool],
    /// Text before and after the place to fill in. Messages are not used then.
    pub fill: Option<Fill<'a>>,
    /// What the request says about thinking; `None` = nothing.
    pub think: Option<Think>,
    /// The date templates may ask for.
    pub now: Zoned,
    /// Ends the rendering when nobody waits for it.
    pub stop: Stop,
}

impl<'a> Prompt<'a> {
    /// A plain conversation: no tools, nothing said about thinking.
    pub fn new(messages: &'a [Message], now: Zoned) -> Self {
        Prompt {
            messages,
            tools: &[],
            fill: None,
            think: None,
            now,
            stop: Stop::new(),
        }
    }
}

/// A fill-in-the-middle request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill<'a> {
    /// Text before the gap.
    pub prompt: &'a str,
    /// Text after the gap.
    pub suffix: &'a str,
}

/// How much a model shall think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// Not at all.
    Off,
    /// As much as it likes.
    On,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as possible.
    Max,
}

impl Think {
    /// Whether the model shall think.
    pub fn is_on(self) -> bool {
        self != Think::Off
    }

    /// The level's name, if a level was asked for.
    pub fn level(self) -> Option<&'static str> {
        match self {
            Think::Off | Think::On => None,
            Think::Low => Some("low"),
            Think::Medium => Some("medium"),
            Think::High => Some("high"),
            Think::Max => Some("max"),
        }
    }
}
