//! Templates that read a message's content as a list of parts, as those of many models that see do: one that knows
//! nothing else leaves out a text that is a string.

use llmsrv_api::native::Message;
use serde_json::{Value as Json, json};

/// What a message's content is for a template.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Content {
    /// A string with the tags of images in it.
    Text,
    /// Parts of text and of images, in which the template writes a text of its own for an image.
    Parts,
    /// Parts of text, some of which are the tags of images.
    TextParts,
}

/// What templates write where an image is. Those that hold others come first.
const PLACEHOLDERS: &[&str] = &[
    "<|vision_start|><|image_pad|><|vision_end|>",
    "<|begin_of_image|><|image|><|end_of_image|>",
    "(<image>./</image>)",
    "<start_of_image>",
    "<image_soft_token>",
    "<IMG_CONTEXT>",
    "<|image|>",
    "<image>",
    "[IMG]",
];

/// Tells whether a template may look at parts.
pub(super) fn may_read(source: &str) -> bool {
    ["'type'", "\"type\"", ".type"]
        .iter()
        .any(|member| source.contains(member))
}

/// The content of a message.
pub(super) fn content(message: &Message, content: Content) -> Json {
    let text = |text: &str| json!({"type": "text", "text": text});
    match content {
        Content::Text => message.content.as_str().into(),
        Content::TextParts => split(message)
            .into_iter()
            .map(|part| match part {
                Part::Text(part) | Part::Image(part) => text(part),
            })
            .collect(),
        Content::Parts => split(message)
            .into_iter()
            .map(|part| match part {
                Part::Text(part) => text(part),
                Part::Image(_) => json!({"type": "image"}),
            })
            .collect(),
    }
}

/// Tells whether a prompt has what the last user message says.
pub(super) fn says(prompt: &str, messages: &[Message]) -> bool {
    let users = messages.iter().filter(|message| message.role == "user");
    let said = users.rev().find_map(|message| {
        let texts = split(message).into_iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.trim()),
            Part::Image(_) => None,
        });
        texts.rev().find(|text| !text.is_empty())
    });
    said.is_none_or(|said| prompt.contains(said))
}

/// The tags of all images.
pub(super) fn tags(messages: &[Message]) -> Vec<&str> {
    let parts = messages.iter().flat_map(split);
    parts
        .filter_map(|part| match part {
            Part::Image(tag) => Some(tag),
            Part::Text(_) => None,
        })
        .collect()
}

/// Puts tags in place of what the template wrote for images, if it wrote one known text as often as there are images.
pub(super) fn with_tags(prompt: &str, tags: &[&str]) -> Option<String> {
    let placeholder = PLACEHOLDERS
        .iter()
        .find(|placeholder| prompt.contains(**placeholder))?;
    let texts: Vec<&str> = prompt.split(placeholder).collect();
    if texts.len() != tags.len() + 1 {
        return None;
    }
    let tags = tags.iter().copied().chain([""]);
    Some(
        texts
            .into_iter()
            .zip(tags)
            .flat_map(|(text, tag)| [text, tag])
            .collect(),
    )
}

enum Part<'a> {
    Text(&'a str),
    Image(&'a str),
}

/// Cuts a text at the tags of its images.
fn split(message: &Message) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = message.content.as_str();
    let next = |rest: &str| {
        let found = message.images.iter().filter(|tag| !tag.is_empty());
        let found = found.filter_map(|tag| Some((rest.find(tag.as_str())?, tag.len())));
        found.min()
    };
    while let Some((at, len)) = next(rest) {
        let (text, behind) = rest.split_at(at);
        let (tag, behind) = behind.split_at(len);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        parts.push(Part::Image(tag));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}
