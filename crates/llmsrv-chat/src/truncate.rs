//! Drops the oldest messages of a conversation until its prompt fits.

use llmsrv_api::native::Message;

/// Tokens that one image is worth.
pub const IMAGE_TOKENS: usize = 768;

/// A conversation that fits, if it could be made to.
#[derive(Clone, Debug, PartialEq)]
pub struct Truncation {
    /// What is left: every system message, the newest others, at least the last one.
    pub messages: Vec<Message>,
    /// How many messages were dropped.
    pub n_dropped: usize,
    /// Tokens of the rendered rest, images included.
    pub n_tokens: usize,
}

/// Drops as few of the oldest messages as it takes for the prompt to have at most `num_ctx` tokens.
///
/// `count` renders the messages it is given and counts the tokens of the text; their images carry no
/// data. It is called about log2(messages) times, so fewer messages must not make longer prompts. The
/// result may still be too long when the system messages and the last message are.
pub fn truncate<E>(
    messages: Vec<Message>,
    num_ctx: usize,
    mut count: impl FnMut(&[Message]) -> Result<usize, E>,
) -> Result<Truncation, E> {
    let light: Vec<Message> = messages.iter().map(without_image_data).collect();
    let last = light.len().saturating_sub(1);
    let droppable: Vec<usize> = (0..last).filter(|&i| light[i].role != "system").collect();
    let kept = |n_dropped: usize| {
        let dropped = &droppable[..n_dropped];
        move |i: &usize| dropped.binary_search(i).is_err()
    };
    let mut tokens = |n_dropped: usize| {
        let kept: Vec<Message> = (0..light.len())
            .filter(kept(n_dropped))
            .map(|i| light[i].clone())
            .collect();
        let n_images: usize = kept.iter().map(|message| message.images.len()).sum();
        Ok(count(&kept)? + n_images * IMAGE_TOKENS)
    };

    // Fewer than `low` is known to be too long; `high` fits, or nothing does.
    let (mut low, mut high) = (0, droppable.len());
    let mut n_tokens = tokens(0)?;
    if n_tokens <= num_ctx {
        high = 0;
    } else if high > 0 {
        low = 1;
        n_tokens = tokens(high)?;
    }
    while low < high && n_tokens <= num_ctx {
        let middle = usize::midpoint(low, high);
        let middle_tokens = tokens(middle)?;
        if middle_tokens <= num_ctx {
            (high, n_tokens) = (middle, middle_tokens);
        } else {
            low = middle + 1;
        }
    }
    let keep = kept(high);
    let numbered = messages.into_iter().enumerate();
    Ok(Truncation {
        messages: numbered
            .filter(|(i, _)| keep(i))
            .map(|(_, message)| message)
            .collect(),
        n_dropped: high,
        n_tokens,
    })
}

fn without_image_data(message: &Message) -> Message {
    Message {
        role: message.role.clone(),
        content: message.content.clone(),
        thinking: message.thinking.clone(),
        images: vec![String::new(); message.images.len()],
        tool_calls: message.tool_calls.clone(),
        tool_name: message.tool_name.clone(),
        tool_call_id: message.tool_call_id.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn message(role: &str, content: &str, n_images: usize) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
            images: vec!["data".into(); n_images],
            ..Message::default()
        }
    }

    /// One token per byte of content.
    fn count(messages: &[Message]) -> usize {
        assert!(
            messages
                .iter()
                .flat_map(|m| &m.images)
                .all(String::is_empty)
        );
        messages.iter().map(|m| m.content.len()).sum()
    }

    fn kept(messages: Vec<Message>, num_ctx: usize) -> (String, usize, usize) {
        let Ok(result) = truncate(messages, num_ctx, |kept| Ok::<_, Infallible>(count(kept)));
        let contents: Vec<&str> = result.messages.iter().map(|m| m.content.as_str()).collect();
        (contents.join("|"), result.n_dropped, result.n_tokens)
    }

    #[test]
    fn the_oldest_go_first() {
        let messages = vec![
            message("user", "aaaa", 0),
            message("system", "ssss", 0),
            message("assistant", "bbbb", 0),
            message("user", "cccc", 0),
        ];
        let cases = [
            (16, "aaaa|ssss|bbbb|cccc", 0, 16),
            (15, "ssss|bbbb|cccc", 1, 12),
            (12, "ssss|bbbb|cccc", 1, 12),
            (11, "ssss|cccc", 2, 8),
            (8, "ssss|cccc", 2, 8),
            (3, "ssss|cccc", 2, 8),
        ];
        for (num_ctx, expected, n_dropped, n_tokens) in cases {
            let result = kept(messages.clone(), num_ctx);
            assert_eq!(
                result,
                (expected.to_owned(), n_dropped, n_tokens),
                "{num_ctx}"
            );
        }
        assert_eq!(kept(Vec::new(), 1), (String::new(), 0, 0));
    }

    #[test]
    fn images_count_and_keep_their_data() {
        let messages = vec![message("user", "a", 2), message("user", "b", 1)];
        assert_eq!(
            kept(messages.clone(), 3 * 768 + 2),
            ("a|b".into(), 0, 3 * 768 + 2)
        );
        assert_eq!(kept(messages.clone(), 3 * 768 + 1), ("b".into(), 1, 769));
        let Ok(result) = truncate(messages, 1000, |kept| Ok::<_, Infallible>(count(kept)));
        assert_eq!(result.messages[0].images, ["data"]);
    }

    #[test]
    fn an_error_of_the_caller_passes_through() {
        let result = truncate(vec![message("user", "a", 0)], 1, |_| Err::<usize, _>("no"));
        assert_eq!(result, Err("no"));
    }

    proptest! {
        #[test]
        fn as_few_as_possible_are_dropped(
            messages in prop::collection::vec((any::<bool>(), 0usize..9), 1..20),
            num_ctx in 0usize..60,
        ) {
            let messages: Vec<Message> = messages
                .iter()
                .map(|&(system, len)| message(if system { "system" } else { "user" }, &"x".repeat(len), 0))
                .collect();
            let mut n_calls = 0;
            let Ok(result) = truncate(messages.clone(), num_ctx, |kept| {
                n_calls += 1;
                Ok::<_, Infallible>(count(kept))
            });
            prop_assert!(n_calls <= 7);

            // Dropping one by one from the front.
            let mut expected = messages;
            let mut n_dropped = 0;
            while count(&expected) > num_ctx {
                let last = expected.len() - 1;
                let Some(oldest) = expected[..last].iter().position(|m| m.role != "system") else {
                    break;
                };
                expected.remove(oldest);
                n_dropped += 1;
            }
            prop_assert_eq!(&result.messages, &expected);
            prop_assert_eq!(result.n_dropped, n_dropped);
            prop_assert_eq!(result.n_tokens, count(&expected));
        }
    }
}
