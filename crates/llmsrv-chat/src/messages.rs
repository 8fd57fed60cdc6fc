//! Changes to a conversation that templates expect to be done for them.

use llmsrv_api::native::Message;

/// Removes a leading `<think>…</think>` from the content of assistant messages before the last user
/// message: what the families of Qwen 3 and DeepSeek R1 were trained on.
pub fn strip_earlier_thinking(messages: &mut [Message]) {
    let Some(last_user) = messages.iter().rposition(|m| m.role == "user") else {
        return;
    };
    for message in &mut messages[..last_user] {
        if message.role != "assistant" {
            continue;
        }
        let Some(after_open) = message.content.trim_start().strip_prefix("<think>") else {
            continue;
        };
        message.content = match after_open.split_once("</think>") {
            Some((_, answer)) => answer.trim_start().to_owned(),
            None => String::new(),
        };
    }
}

/// Puts the tags of a message's images into its text: each replaces one `[img]`, the rest come first.
/// Images are counted from `first_image`; returns the number of the next one.
pub(crate) fn tag_images(message: &mut Message, first_image: usize) -> usize {
    let next_image = first_image + message.images.len();
    let mut prefix = String::new();
    for image in first_image..next_image {
        let tag = image_tag(image);
        if message.content.contains("[img]") {
            message.content = message.content.replacen("[img]", &tag, 1);
        } else {
            prefix.push_str(&tag);
        }
    }
    if !prefix.is_empty() {
        message.content.insert_str(0, &prefix);
    }
    next_image
}

/// The text that stands for image number `image`.
pub(crate) fn image_tag(image: usize) -> String {
    format!("[img-{image}]")
}

/// Copies the conversation with image tags in the texts; the images become their tags.
pub(crate) fn tagged(messages: &[Message]) -> Vec<Message> {
    let mut next_image = 0;
    messages
        .iter()
        .map(|message| {
            let first_image = next_image;
            let mut copy = Message {
                role: message.role.clone(),
                content: message.content.clone(),
                thinking: message.thinking.clone(),
                images: vec![String::new(); message.images.len()],
                tool_calls: message.tool_calls.clone(),
                tool_name: message.tool_name.clone(),
                tool_call_id: message.tool_call_id.clone(),
            };
            next_image = tag_images(&mut copy, first_image);
            copy.images = (first_image..next_image).map(image_tag).collect();
            copy
        })
        .collect()
}

/// Joins consecutive messages of one role by a blank line; results of tools stay apart.
pub(crate) fn joined(messages: Vec<Message>) -> Vec<Message> {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        match joined.last_mut() {
            Some(last) if last.role == message.role && message.role != "tool" => {
                last.content.push_str("\n\n");
                last.content.push_str(&message.content);
                last.images.append(&mut message.images);
                last.tool_calls.append(&mut message.tool_calls);
                if last.thinking.is_empty() {
                    last.thinking = message.thinking;
                }
            }
            _ => joined.push(message),
        }
    }
    joined
}

/// All system texts, joined by a blank line.
pub(crate) fn system_text(messages: &[Message]) -> String {
    let texts: Vec<&str> = messages
        .iter()
        .filter(|m| m.role == "system")
        .map(|m| m.content.as_str())
        .collect();
    texts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
            ..Message::default()
        }
    }

    #[test]
    fn thinking_of_earlier_answers_is_removed() {
        let mut messages = vec![
            message("user", "<think>mine</think>"),
            message("assistant", "\n<think>\nhm\n</think>\n\nYes."),
            message("assistant", "No <think>x</think>"),
            message("user", "?"),
            message("assistant", "<think>open</think>last"),
        ];
        strip_earlier_thinking(&mut messages);
        let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(
            contents,
            [
                "<think>mine</think>",
                "Yes.",
                "No <think>x</think>",
                "?",
                "<think>open</think>last"
            ]
        );
    }

    #[test]
    fn images_are_counted_over_the_conversation() {
        let mut first = message("user", "see [img] and");
        first.images = vec!["a".into(), "b".into()];
        let mut second = message("user", "this");
        second.images = vec!["c".into()];
        let tagged = tagged(&[first, message("assistant", "ok"), second]);
        assert_eq!(tagged[0].content, "[img-1]see [img-0] and");
        assert_eq!(tagged[0].images, ["[img-0]", "[img-1]"]);
        assert_eq!(tagged[2].content, "[img-2]this");
    }

    #[test]
    fn one_role_in_a_row_is_joined() {
        let messages = joined(vec![
            message("system", "a"),
            message("system", "b"),
            message("tool", "1"),
            message("tool", "2"),
        ]);
        let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        assert_eq!(contents, ["a\n\nb", "1", "2"]);
    }
}
