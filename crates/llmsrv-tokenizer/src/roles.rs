//! The roles of special tokens, as far as the file leaves them open.
//!
//! Many files name only some of them, so the others are found by their well-known spellings, and
//! a token with such a spelling is a control token whatever its type says.

use std::collections::HashMap;

use crate::{TokenKind, Vocab};

/// Fills in the roles of `vocab` and returns the tokens that end a generation, in order.
pub(crate) fn assign(vocab: &mut Vocab) -> Vec<u32> {
    let n_tokens = vocab.tokens.len();
    let Vocab {
        tokens,
        kinds,
        bos,
        eos,
        eot,
        eom,
        unknown,
        separator,
        pad,
        mask,
        fim,
        ..
    } = vocab;
    let all = [
        bos,
        &mut *eos,
        &mut *eot,
        &mut *eom,
        unknown,
        separator,
        pad,
        mask,
        &mut fim.prefix,
        &mut fim.suffix,
        &mut fim.middle,
        &mut fim.pad,
        &mut fim.repository,
        &mut fim.separator,
    ];
    for id in all {
        *id = id.filter(|&id| (id as usize) < n_tokens);
    }

    let well_known: HashMap<&str, u32> = tokens
        .iter()
        .zip(0..)
        .filter(|(text, _)| MARKS.iter().any(|mark| text.starts_with(mark)))
        .map(|(text, id)| (text.as_str(), id))
        .collect();
    let id = |text: &&str| well_known.get(*text).copied();
    let mut control = Vec::new();
    for (role, spellings) in [
        (&mut *eot, EOT),
        (&mut *eom, &["<|eom_id|>"]),
        (&mut fim.prefix, FIM_PREFIX),
        (&mut fim.suffix, FIM_SUFFIX),
        (&mut fim.middle, FIM_MIDDLE),
        (&mut fim.pad, FIM_PAD),
        (&mut fim.repository, FIM_REPOSITORY),
        (&mut fim.separator, &["<|file_sep|>"]),
    ] {
        if role.is_none() {
            *role = spellings.iter().find_map(id);
            control.extend(*role);
        }
    }

    let mut ends: Vec<u32> = ENDS.iter().filter_map(id).collect();
    control.extend(&ends);
    ends.extend(
        [*eot, *eom, fim.pad, fim.repository, fim.separator]
            .into_iter()
            .flatten(),
    );
    let mut user_defined: Vec<u32> = HARMONY.iter().filter_map(id).collect();
    let mut normal = Vec::new();
    let has = |text: &str| well_known.contains_key(text);
    // In these formats the end of a message is not the end of the turn.
    if has("<|return|>") && has("<|call|>") || has("<|calls|>") && has("<|flush|>") {
        user_defined.extend(id(&"<|end|>"));
    }
    // Here `</s>` is text, for instance in HTML.
    if has("<|tool_response>") {
        normal.extend(id(&"</s>"));
    }
    ends.extend(*eos);
    ends.extend(vocab.ends.iter().filter(|&&id| (id as usize) < n_tokens));
    ends.retain(|id| !user_defined.contains(id) && !normal.contains(id));
    ends.sort_unstable();
    ends.dedup();

    let changes = [
        (control, TokenKind::Control),
        (user_defined, TokenKind::UserDefined),
        (normal, TokenKind::Normal),
    ];
    for (ids, kind) in changes {
        for id in ids {
            if let Some(current) = kinds.get_mut(id as usize) {
                *current = kind;
            }
        }
    }
    ends
}

/// What the spellings below begin with.
const MARKS: &[&str] = &["<", "[", "_<", "▁<"];

const EOT: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];
const FIM_PREFIX: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const FIM_SUFFIX: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const FIM_MIDDLE: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REPOSITORY: &[&str] = &[
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
];

/// Tokens that end a generation wherever they exist.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];
/// Parts of messages in the Harmony format; they are shown, since the answer is parsed by them.
const HARMONY: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(tokens: &[&str], eos: u32) -> (Vocab, Vec<u32>) {
        let tokens: Vec<String> = tokens.iter().map(|text| (*text).into()).collect();
        let kinds = vec![TokenKind::Normal; tokens.len()];
        let mut vocab = Vocab {
            tokens,
            kinds,
            eos: Some(eos),
            bos: Some(99),
            ..Vocab::default()
        };
        let ends = assign(&mut vocab);
        (vocab, ends)
    }

    #[test]
    fn ends_by_spelling() {
        let (vocab, ends) = assigned(
            &["a", "<|im_end|>", "<|fim_pad|>", "<|fim_prefix|>", "b"],
            4,
        );
        assert_eq!(ends, [1, 2, 4]);
        assert_eq!(
            (vocab.eot, vocab.fim.pad, vocab.fim.prefix, vocab.bos),
            (Some(1), Some(2), Some(3), None)
        );
        use TokenKind::{Control, Normal};
        assert_eq!(vocab.kinds, [Normal, Control, Control, Control, Normal]);
    }

    #[test]
    fn harmony_messages_do_not_end_the_turn() {
        let (vocab, ends) = assigned(&["<|return|>", "<|call|>", "<|end|>", "<|channel|>"], 0);
        assert_eq!(ends, [0, 1]);
        use TokenKind::{Control, UserDefined};
        assert_eq!(vocab.kinds, [Control, Control, UserDefined, UserDefined]);
        let (_, ends) = assigned(&["<|end|>", "x"], 1);
        assert_eq!(ends, [0, 1]);
    }

    #[test]
    fn strike_through_is_text_where_turns_end_otherwise() {
        let (vocab, ends) = assigned(&["</s>", "<|tool_response>", "<eos>"], 2);
        assert_eq!(ends, [1, 2]);
        assert_eq!(vocab.kinds[0], TokenKind::Normal);
    }
}
