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
