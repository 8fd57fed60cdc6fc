//! Drops the oldest messages of a conversation until its prompt fits.

use llmsrv_api::native::Message;

/// A conversation that fits, if it could be made to.
#[derive(Clone, Debug, PartialEq)]
pub struct Truncation<T> {
    /// What is left: every system message, the newest others, at least the last one.
    pub messages: Vec<Message>,
    /// How many messages were dropped.
    pub n_dropped: usize,
    /// Tokens of the rendered rest, images included.
    pub n_tokens: usize,
    /// What rendering the rest gave.
    pub rendered: T,
}

/// Drops as few of the oldest messages as it takes for the prompt to have at most `num_ctx` tokens.
///
/// `image_tokens` has the tokens that the images of each message take. `render` renders the messages it is given
/// and counts the tokens of the text; their images carry no data. It is called about log2(messages) times, so fewer messages must not make longer prompts. The
/// result may still be too long when the system messages and the last message are.
///
/// # Errors
/// Those of `render`.
pub fn truncate<T, E>(
    messages: Vec<Message>,
    image_tokens: &[usize],
    num_ctx: usize,
    mut render: impl FnMut(&[Message]) -> Result<(usize, T), E>,
) -> Result<Truncation<T>, E> {
    let light: Vec<Message> = messages.iter().map(without_image_data).collect();
    let last = light.len().saturating_sub(1);
    let droppable: Vec<usize> = (0..last).filter(|&i| light[i].role != "system").collect();
    let kept = |n_dropped: usize| {
        let dropped = &droppable[..n_dropped];
        move |i: &usize| dropped.binary_search(i).is_err()
    };
    let mut without = |n_dropped: usize| {
        let left = (0..light.len()).filter(kept(n_dropped));
        let images = left.clone().filter_map(|i| image_tokens.get(i));
        let messages: Vec<Message> = left.map(|i| light[i].clone()).collect();
        let (n_tokens, rendered) = render(&messages)?;
        Ok::<_, E>((
            images.fold(n_tokens, |sum, n| sum.saturating_add(*n)),
            rendered,
        ))
    };
    // Most conversations fit as they are.
    let (mut n_tokens, mut rendered) = without(0)?;
    // Fewer than `low` is known to be too long; `high` fits, or nothing does.
    let mut high = 0;
    if n_tokens > num_ctx && !droppable.is_empty() {
        let mut low = 1;
        high = droppable.len();
        (n_tokens, rendered) = without(high)?;
        while low < high && n_tokens <= num_ctx {
            let middle = usize::midpoint(low, high);
            let (middle_tokens, middle_rendered) = without(middle)?;
            if middle_tokens <= num_ctx {
                (high, n_tokens, rendered) = (middle, middle_tokens, middle_rendered);
            } else {
                low = middle + 1;
            }
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
        rendered,
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

    fn joined(messages: &[Message]) -> String {
        let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        contents.join("|")
    }

    fn kept(
        messages: Vec<Message>,
        image_tokens: &[usize],
        num_ctx: usize,
    ) -> (String, usize, usize) {
        let Ok(result) = truncate(messages, image_tokens, num_ctx, |kept| {
            Ok::<_, Infallible>((count(kept), joined(kept)))
        });
        let contents = joined(&result.messages);
        assert_eq!(result.rendered, contents, "what is kept was rendered last");
        (contents, result.n_dropped, result.n_tokens)
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
            let result = kept(messages.clone(), &[0; 4], num_ctx);
            assert_eq!(
                result,
                (expected.to_owned(), n_dropped, n_tokens),
                "{num_ctx}"
            );
        }
        assert_eq!(kept(Vec::new(), &[], 1), (String::new(), 0, 0));
    }

    #[test]
    fn images_count_and_keep_their_data() {
        let messages = vec![message("user", "a", 2), message("user", "b", 1)];
        let tokens = [512, 1024];
        assert_eq!(
            kept(messages.clone(), &tokens, 1538),
            ("a|b".into(), 0, 1538)
        );
        assert_eq!(kept(messages.clone(), &tokens, 1537), ("b".into(), 1, 1025));
        let huge = kept(messages.clone(), &[usize::MAX, 1], 1537);
        assert_eq!(huge, ("b".into(), 1, 2));
        let Ok(result) = truncate(messages, &tokens, 1200, |kept| {
            Ok::<_, Infallible>((count(kept), ()))
        });
        assert_eq!(result.messages[0].images, ["data"]);
    }

    #[test]
    fn an_error_of_the_caller_passes_through() {
        let result = truncate(vec![message("user", "a", 0)], &[0], 1, |_| {
            Err::<(usize, ()), _>("no")
        });
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
            let no_images = vec![0; messages.len()];
            let Ok(result) = truncate(messages.clone(), &no_images, num_ctx, |kept| {
                n_calls += 1;
                Ok::<_, Infallible>((count(kept), kept.to_vec()))
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
            prop_assert_eq!(result.rendered, expected);
        }
    }
}
