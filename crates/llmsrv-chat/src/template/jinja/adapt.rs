//! Forms of a conversation for templates that refuse it as it is.

use std::collections::HashMap;

use llmsrv_api::native::Message;
use serde_json::json;

use crate::messages::{joined, system_text};

/// Other forms of the same conversation, the mildest change first. Forms equal to an earlier one are
/// left out.
pub(super) fn forms(messages: &[Message]) -> Vec<Vec<Message>> {
    let mut forms: Vec<Vec<Message>> = vec![messages.to_vec()];
    for changes in LADDER {
        let changed = changes
            .iter()
            .fold(messages.to_vec(), |messages, change| change(messages));
        if !forms.contains(&changed) {
            forms.push(changed);
        }
    }
    forms.remove(0);
    forms
}

type Change = fn(Vec<Message>) -> Vec<Message>;

/// Templates ask for roles that alternate, for ids of nine characters, for a system message at the begin alone or
/// nowhere, and for a user to begin; some know no tools at all.
const LADDER: [&[Change]; 10] = [
    &[joined],
    &[short_ids],
    &[joined, short_ids],
    &[late_system_to_user, joined],
    &[late_system_to_user, joined, short_ids],
    &[system_into_user, joined],
    &[system_into_user, joined, short_ids],
    &[system_into_user, joined, user_first, short_ids],
    &[tools_into_text, joined],
    &[tools_into_text, system_into_user, joined, user_first],
];

/// Lets the user say what the system says in the middle of a conversation, where it stands: the text before it stays
/// as it was, and is found in the prefix cache.
fn late_system_to_user(mut messages: Vec<Message>) -> Vec<Message> {
    let begun = messages.iter().position(|message| message.role != "system");
    for message in messages.iter_mut().skip(begun.unwrap_or(usize::MAX)) {
        if message.role == "system" {
            message.role = "user".into();
        }
    }
    messages
}

/// Puts the system text before the first user message's text.
fn system_into_user(messages: Vec<Message>) -> Vec<Message> {
    let system = system_text(&messages);
    let mut rest: Vec<Message> = messages
        .into_iter()
        .filter(|m| m.role != "system")
        .collect();
    if system.is_empty() {
        return rest;
    }
    match rest.iter_mut().find(|m| m.role == "user") {
        Some(user) => user.content = format!("{system}\n\n{}", user.content),
        None => rest.insert(0, user(system)),
    }
    rest
}

/// Lets an empty user message begin when none does.
fn user_first(mut messages: Vec<Message>) -> Vec<Message> {
    if messages.first().is_none_or(|first| first.role != "user") {
        messages.insert(0, user(String::new()));
    }
    messages
}

/// Lets calls and their results be text of the assistant and the user.
fn tools_into_text(mut messages: Vec<Message>) -> Vec<Message> {
    for message in &mut messages {
        for call in message.tool_calls.drain(..) {
            if !message.content.is_empty() {
                message.content.push('\n');
            }
            let text = json!({"name": call.function.name, "arguments": call.function.arguments});
            message.content.push_str(&text.to_string());
        }
        if message.role == "tool" {
            message.role = "user".into();
        }
    }
    messages
}

/// Gives every call an id of nine digits, and every result the id of its call: the one with its old
/// id, else the oldest open call of its tool, else the oldest open call.
fn short_ids(mut messages: Vec<Message>) -> Vec<Message> {
    let mut renamed: HashMap<String, String> = HashMap::new();
    let mut open: Vec<(String, String)> = Vec::new();
    let mut n_calls = 0;
    for message in &mut messages {
        for call in &mut message.tool_calls {
            let id = format!("{n_calls:09}");
            n_calls += 1;
            let old = std::mem::replace(&mut call.id, id.clone());
            if !old.is_empty() {
                renamed.insert(old, id.clone());
            }
            open.push((call.function.name.clone(), id));
        }
        if message.role != "tool" {
            continue;
        }
        let same_tool = open.iter().position(|(name, _)| *name == message.tool_name);
        let id = match (renamed.get(&message.tool_call_id), same_tool.or(Some(0))) {
            (Some(id), _) => id.clone(),
            (None, Some(i)) if i < open.len() => open[i].1.clone(),
            _ => continue,
        };
        open.retain(|(_, open_id)| *open_id != id);
        message.tool_call_id = id;
    }
    messages
}

fn user(content: String) -> Message {
    Message {
        role: "user".into(),
        content,
        ..Message::default()
    }
}
