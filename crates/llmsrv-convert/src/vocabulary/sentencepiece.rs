//! `tokenizer.model`: the model of SentencePiece, a protocol buffer.
//!
//! Only the fields that are needed are declared:
//! <https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto>.

use prost::Message;

use super::{Kind, Token, Vocabulary};
use crate::Error;

#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
    #[prost(float, optional, tag = "2")]
    score: Option<f32>,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, optional, tag = "3")]
    algorithm: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bool, optional, tag = "3")]
    add_dummy_prefix: Option<bool>,
}

/// Reads a model that merges pairs; the other kinds are not those of language models.
pub(super) fn read(bytes: &[u8]) -> Result<Vocabulary, Error> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::Invalid(
            "tokenizer.model is larger than 16 MiB".into(),
        ));
    }
    let model = Model::decode(bytes)
        .map_err(|error| Error::Invalid(format!("tokenizer.model cannot be read: {error}")))?;
    if model.pieces.is_empty() {
        return Err(Error::Invalid("tokenizer.model has no tokens".into()));
    }
    let algorithm = model.trainer.and_then(|trainer| trainer.algorithm);
    if algorithm != Some(PAIRS) {
        let message = "tokenizer.model is not of the kind that merges pairs";
        return Err(Error::Unsupported(message.into()));
    }
    let tokens = model.pieces.into_iter().map(|piece| Token {
        text: piece.text.unwrap_or_default().into_bytes(),
        score: piece.score.unwrap_or(0.0),
        kind: match piece.kind {
            Some(2) => Kind::Unknown,
            Some(3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) => Kind::Byte,
            _ => Kind::Normal,
        },
    });
    let normalizer = model.normalizer.unwrap_or_default();
    Ok(Vocabulary {
        model: "llama",
        pre: "default",
        tokens: tokens.collect(),
        add_space_prefix: Some(normalizer.add_dummy_prefix.unwrap_or(true)),
        ..Vocabulary::default()
    })
}

const PAIRS: i32 = 2;
/// The largest published ones have a third of this; an empty token takes two bytes in the file and
/// many in memory.
const MAX_BYTES: usize = 16 << 20;
