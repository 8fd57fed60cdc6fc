//! What a model file says of its model. Whoever shows a model, lists it or plans its memory takes these facts, and
//! reads no key itself.

use std::path::Path;

use crate::{Error, GgufFile, Header, Metadata, TensorInfo, TensorType};

/// The facts about the model of a file, from its header alone. Texts are empty where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// `llama`, as it is written in the file.
    pub architecture: String,
    /// Elements of all tensors.
    pub parameter_count: u64,
    /// Type of most tensors, `Q4_K_M`.
    pub quantization: String,
    /// Positions the model was trained for.
    pub context_length: Option<u64>,
    /// Length of an embedding.
    pub embedding_length: Option<u64>,
    /// Blocks of the decoder or encoder.
    pub n_layers: Option<u64>,
    /// Bytes of the tensors as they lie in memory.
    pub weight_bytes: u64,
    /// Of each layer that stores keys and values: its heads, and the elements of each. Only who knows the architecture
    /// can say it.
    pub kv_heads: Vec<(usize, usize)>,
    /// It has a pooling: it gives vectors, not text.
    pub pools: bool,
    /// It holds an encoder for images, too, which can be computed. Only who knows the architecture can say it.
    pub sees: bool,
    /// The chat template, in Jinja.
    pub template: Option<String>,
    /// The prompt that asks whether a document answers a query.
    pub rerank_prompt: Option<String>,
    /// The token before a text.
    pub bos: String,
    /// The token that ends a text.
    pub eos: String,
    /// The vocabulary has the control tokens of ChatML.
    pub knows_chatml: bool,
}

impl ModelFacts {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn read(path: &Path) -> Result<ModelFacts, Error> {
        Ok(ModelFacts::of(GgufFile::open(path)?.header()))
    }

    /// Returns what a header says.
    pub fn of(header: &Header) -> ModelFacts {
        let metadata = &header.metadata;
        let architecture = metadata.architecture().unwrap_or_default();
        let number = |key: &str| metadata.u64(&format!("{architecture}.{key}"));
        let text = |key: &str| metadata.str(key).map(|text| cut(text).to_owned());
        let bytes = header.tensors.iter().map(TensorInfo::resident_bytes);
        ModelFacts {
            architecture: architecture.to_owned(),
            parameter_count: header.parameter_count(),
            quantization: header.file_type_name(),
            context_length: number("context_length"),
            embedding_length: number("embedding_length"),
            n_layers: number("block_count"),
            weight_bytes: bytes.fold(0, u64::saturating_add),
            kv_heads: Vec::new(),
            pools: number("pooling_type").is_some(),
            sees: false,
            template: text("tokenizer.chat_template"),
            rerank_prompt: text("tokenizer.chat_template.rerank"),
            bos: token(metadata, "tokenizer.ggml.bos_token_id"),
            eos: token(metadata, "tokenizer.ggml.eos_token_id"),
            knows_chatml: knows_chatml(metadata),
        }
    }

    /// Returns the bytes of the keys and values of so many tokens, which caches hold in tiles of 32 elements. `kv_type`
    /// is the name of a type; what a model chooses by itself has as many bytes as f16, and so have heads that are no
    /// whole blocks of the type.
    pub fn kv_bytes(&self, n_tokens: u64, kv_type: &str) -> u64 {
        let fits = |ty: &&TensorType| {
            let mut heads = self.kv_heads.iter();
            heads.all(|(_, head_dim)| head_dim.is_multiple_of(ty.block_len()))
        };
        let named = TensorType::ALL
            .iter()
            .find(|ty| ty.name().eq_ignore_ascii_case(kv_type));
        let ty = named.filter(fits).unwrap_or(&TensorType::F16);
        let elements = self.kv_heads.iter().fold(0u64, |sum, (heads, head_dim)| {
            let head = (*head_dim as u64).div_ceil(TILE).saturating_mul(2 * TILE);
            sum.saturating_add((*heads as u64).saturating_mul(head))
        });
        let bytes = [n_tokens, ty.block_bytes() as u64]
            .into_iter()
            .fold(elements, u64::saturating_mul);
        bytes / ty.block_len() as u64
    }
}

/// Returns the text of the token whose id stands under a key.
fn token(metadata: &Metadata, key: &str) -> String {
    let token = || {
        let tokens = metadata.strings("tokenizer.ggml.tokens")?;
        std::str::from_utf8(tokens.get(metadata.usize(key)?)?).ok()
    };
    cut(token().unwrap_or_default()).to_owned()
}

fn knows_chatml(metadata: &Metadata) -> bool {
    let tokens = metadata.strings("tokenizer.ggml.tokens");
    tokens.is_some_and(|tokens| {
        let mut wanted = ["<|im_start|>", "<|im_end|>"].into_iter();
        wanted.all(|wanted| tokens.iter().any(|token| token == wanted.as_bytes()))
    })
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

/// Elements of a tile.
const TILE: u64 = 32;
/// Facts are kept; of longer texts, which all who use them refuse, only the beginning.
const MAX_TEXT_BYTES: usize = (1 << 20) + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    #[test]
    fn keys_and_values_take_what_their_type_takes() {
        let facts = ModelFacts {
            kv_heads: vec![(2, 64), (1, 32)],
            ..ModelFacts::default()
        };
        let narrow = ModelFacts {
            kv_heads: vec![(1, 40)],
            ..ModelFacts::default()
        };
        assert_eq!(narrow.kv_bytes(1, "f16"), 2 * 64 * 2);
        assert_eq!(narrow.kv_bytes(1, "q8_0"), 2 * 64 * 2);
        for (kv_type, bytes) in [
            ("f32", 10 * 320 * 4),
            ("auto", 10 * 320 * 2),
            ("q8_0", 10 * 320 / 32 * 34),
            ("q4_K", 10 * 320 * 2),
        ] {
            assert_eq!(facts.kv_bytes(10, kv_type), bytes, "{kv_type}");
        }
        assert_eq!(facts.kv_bytes(u64::MAX, "f32"), u64::MAX);
        assert_eq!(ModelFacts::default().kv_bytes(10, "f16"), 0);
    }

    #[test]
    fn a_header_says_facts() {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", "llama");
        metadata.set("llama.context_length", 64_u32);
        metadata.set("llama.block_count", 2_u32);
        let tokens = vec!["a", "<|im_start|>", "<|im_end|>"];
        metadata.set("tokenizer.ggml.tokens", tokens);
        metadata.set("tokenizer.ggml.eos_token_id", 2_u32);
        metadata.set("tokenizer.ggml.bos_token_id", 9_u32);
        metadata.set("tokenizer.chat_template", "é".repeat(1 << 20));
        let mut writer = Writer::new(metadata);
        writer
            .tensor("w", &[8], TensorType::F32, vec![0; 32])
            .unwrap();
        let bytes = writer.to_bytes().unwrap();
        let header = Header::parse(&bytes, bytes.len() as u64).unwrap();
        let facts = ModelFacts::of(&header);
        let template = facts.template.clone().unwrap();
        assert_eq!(template.len(), MAX_TEXT_BYTES);
        assert_eq!(
            facts,
            ModelFacts {
                architecture: "llama".into(),
                parameter_count: 8,
                quantization: header.file_type_name(),
                context_length: Some(64),
                n_layers: Some(2),
                weight_bytes: 32,
                template: Some(template),
                eos: "<|im_end|>".into(),
                knows_chatml: true,
                ..ModelFacts::default()
            }
        );
    }
}
