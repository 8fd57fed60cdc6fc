//! Models of a given shape with random weights: what speed is measured on when nothing may be
//! downloaded.
//!
//! How fast a model runs depends on its shape and its types, not on what it has learned. Such a file
//! is valid for every program that reads the format, and the same on every machine.

mod blocks;
mod layers;
mod vocabulary;

use std::path::Path;

use llmsrv_gguf::{Header, Layout, Metadata, TensorType};

use crate::{
    Error, Progress, Target,
    mixture::Mixture,
    quantize::{create, go_on},
};

/// The dimensions of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What differs but for dimensions.
    pub family: Family,
    /// Layers.
    pub n_layers: usize,
    /// Elements of a row of the residual stream.
    pub width: usize,
    /// Hidden elements of a feed-forward network, or of an expert.
    pub hidden: usize,
    /// Experts of a layer; 0 = one network.
    pub n_experts: usize,
    /// Experts that a row takes.
    pub n_used: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Heads of keys and values; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Elements of a head; even.
    pub head_dim: usize,
    /// Tokens of the vocabulary.
    pub n_vocab: usize,
    /// The embedding also gives the logits.
    pub tied: bool,
}

/// The families whose shapes can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama 3.
    Llama,
    /// Qwen 2.5: queries, keys and values have biases.
    Qwen2,
    /// Qwen 3: queries and keys are normalised.
    Qwen3,
    /// Qwen 3 with experts in all layers; `hidden` is that of one expert.
    Qwen3Moe,
    /// Qwen 3.5: gated delta nets in three of four layers, of twice as many heads of half the elements.
    Qwen35,
    /// Gemma 4: windows on five of six layers, whose heads have half the elements, and an input of its own for
    /// each layer. Of its last layers three sevenths store no keys and values.
    Gemma4,
    /// gpt-oss: experts in MXFP4, sinks, windows on every other layer.
    GptOss,
}

/// Shapes of known models, by the names they go by here.
pub const SHAPES: &[(&str, &str, Shape)] = {
    use Family::{Gemma4, GptOss, Llama, Qwen2, Qwen3, Qwen3Moe, Qwen35};
    &[
        (
            "0.5b",
            "Qwen2.5-0.5B",
            shape(Qwen2, 24, [896, 4864], [14, 2, 64], 151_936, true),
        ),
        (
            "1b",
            "Llama-3.2-1B",
            shape(Llama, 16, [2048, 8192], [32, 8, 64], 128_256, true),
        ),
        (
            "1.7b",
            "Qwen3-1.7B",
            shape(Qwen3, 28, [2048, 6144], [16, 8, 128], 151_936, true),
        ),
        (
            "8b",
            "Llama-3.1-8B",
            shape(Llama, 32, [4096, 14_336], [32, 8, 128], 128_256, false),
        ),
        (
            "30b-a3b",
            "Qwen3-30B-A3B",
            Shape {
                n_experts: 128,
                n_used: 8,
                ..shape(Qwen3Moe, 48, [2048, 768], [32, 4, 128], 151_936, false)
            },
        ),
        (
            "qwen3.5-9b",
            "Qwen3.5-9B",
            shape(Qwen35, 32, [4096, 12_288], [16, 4, 256], 248_320, false),
        ),
        (
            "gemma4-e4b",
            "gemma-4-E4B",
            shape(Gemma4, 42, [2560, 10_240], [8, 2, 512], 262_144, true),
        ),
        (
            "gpt-oss-20b",
            "gpt-oss-20b",
            Shape {
                n_experts: 32,
                n_used: 4,
                ..shape(GptOss, 24, [2880, 2880], [64, 8, 64], 201_088, false)
            },
        ),
        (
            "tiny",
            "two layers, for trials",
            shape(Llama, 2, [256, 512], [4, 2, 64], 2048, true),
        ),
    ]
};

/// A shape without experts: layers, elements of a row and hidden ones, heads of queries, heads of keys and values,
/// elements of a head, tokens, and whether the embedding also gives the logits.
const fn shape(
    family: Family,
    n_layers: usize,
    [width, hidden]: [usize; 2],
    [n_heads, n_kv_heads, head_dim]: [usize; 3],
    n_vocab: usize,
    tied: bool,
) -> Shape {
    Shape {
        family,
        n_layers,
        width,
        hidden,
        n_experts: 0,
        n_used: 0,
        n_heads,
        n_kv_heads,
        head_dim,
        n_vocab,
        tied,
    }
}

impl Family {
    /// All of them.
    pub const ALL: &[Family] = &[
        Family::Llama,
        Family::Qwen2,
        Family::Qwen3,
        Family::Qwen3Moe,
        Family::Qwen35,
        Family::Gemma4,
        Family::GptOss,
    ];

    /// Returns the name that files have in `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3moe",
            Family::Qwen35 => "qwen35",
            Family::Gemma4 => "gemma4",
            Family::GptOss => "gpt-oss",
        }
    }

    fn rope_base(self) -> f32 {
        match self {
            Family::Llama => 500_000.0,
            Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::Gemma4 => 1_000_000.0,
            Family::Qwen35 => 10_000_000.0,
            Family::GptOss => 150_000.0,
        }
    }

    fn norm_eps(self) -> f32 {
        match self {
            Family::Llama | Family::GptOss => 1e-5,
            Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35 | Family::Gemma4 => {
                1e-6
            }
        }
    }

    fn pretokenizer(self) -> &'static str {
        match self {
            Family::Llama => "llama-bpe",
            Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe | Family::Gemma4 => "qwen2",
            Family::Qwen35 => "qwen35",
            Family::GptOss => "gpt-4o",
        }
    }
}

/// Writes a model of `shape` with random weights of the types that [`crate::quantize`] would choose.
/// The same arguments give the same bytes.
///
/// # Errors
/// [`Error::Invalid`] if the shape contradicts itself.
pub fn synthesize(
    destination: &Path,
    name: &str,
    shape: &Shape,
    target: Target,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    check(shape)?;
    let metadata = metadata(name, shape, target);
    let tensors = layers::tensors(shape);
    let header = Header {
        version: 3,
        metadata: metadata.clone(),
        tensors,
        alignment: 32,
        data_start: 0,
    };
    let mixture = Mixture::new(&header, target, false);
    let mut layout = Layout::new(metadata);
    let mut types = Vec::with_capacity(header.tensors.len());
    for tensor in &header.tensors {
        let ty = match tensor.dtype {
            TensorType::MXFP4 => TensorType::MXFP4,
            _ => mixture.choose(tensor),
        };
        layout.tensor(&tensor.name, &tensor.shape, ty)?;
        types.push(ty);
    }
    let total = layout.data_bytes();
    create(destination, &layout, |out| {
        let mut done = 0;
        let mut piece = Vec::new();
        for (index, (tensor, ty)) in header.tensors.iter().zip(types).enumerate() {
            let mut weights = blocks::Weights::new(index as u64, ty, content(&tensor.name));
            let mut n_blocks = tensor.n_elements() / ty.block_len() as u64;
            while n_blocks > 0 {
                let n_now = n_blocks.min(PIECE_BLOCKS);
                weights.fill(n_now as usize, &mut piece);
                out.write_all(&piece)?;
                n_blocks -= n_now;
                done += piece.len() as u64;
                go_on(progress(done, total))?;
            }
        }
        Ok(())
    })
}

/// Norms and factors do nothing, states fade; everything else is random.
fn content(name: &str) -> blocks::Content {
    if name.contains("_norm") || name.contains("scale") || name.starts_with("rope_freqs") {
        blocks::Content::All(1.0)
    } else if name.ends_with("ssm_a") {
        blocks::Content::All(-1.0)
    } else {
        blocks::Content::Random
    }
}

fn check(shape: &Shape) -> Result<(), Error> {
    let invalid = |what: &str| Err(Error::Invalid(format!("this shape cannot be: {what}")));
    let sizes = [
        shape.n_layers,
        shape.width,
        shape.hidden,
        shape.n_heads,
        shape.n_kv_heads,
        shape.head_dim,
    ];
    if sizes.contains(&0) || sizes.iter().any(|size| *size > LARGEST) {
        return invalid("every number must be between 1 and 1048576");
    }
    if !shape.n_heads.is_multiple_of(shape.n_kv_heads) {
        return invalid("the heads of keys do not divide the heads of queries");
    }
    if !shape.head_dim.is_multiple_of(2) {
        return invalid("a head has an odd number of elements");
    }
    if matches!(shape.family, Family::Qwen35 | Family::Gemma4) && !shape.head_dim.is_multiple_of(8)
    {
        return invalid("a head of this family has no multiple of 8 elements");
    }
    let has_experts = matches!(shape.family, Family::Qwen3Moe | Family::GptOss);
    if has_experts != (shape.n_experts > 0) {
        return invalid("of these families gpt-oss and qwen3moe have experts, and no other");
    }
    if shape.n_experts > LARGEST || shape.n_used > shape.n_experts {
        return invalid("rows take more experts than there are");
    }
    if shape.n_experts > 0 && shape.n_used == 0 {
        return invalid("rows take no experts");
    }
    if !shape.width.is_multiple_of(32) || !shape.hidden.is_multiple_of(32) {
        return invalid("width and hidden are no multiples of 32");
    }
    if shape.n_vocab < vocabulary::FEWEST || shape.n_vocab > vocabulary::MOST {
        let (fewest, most) = (vocabulary::FEWEST, vocabulary::MOST);
        return Err(Error::Invalid(format!(
            "this shape cannot be: the vocabulary must have {fewest} to {most} tokens"
        )));
    }
    Ok(())
}

fn metadata(name: &str, shape: &Shape, target: Target) -> Metadata {
    let family = shape.family;
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", family.name());
    metadata.set("general.type", "model");
    metadata.set("general.name", format!("random weights, {name}"));
    metadata.set("general.file_type", target.file_type());
    metadata.set("general.quantization_version", 2_u32);
    let mut set = |key: &str, value: usize| {
        metadata.set(format!("{}.{key}", family.name()), value as u32);
    };
    set("block_count", shape.n_layers);
    set("context_length", CONTEXT_LENGTH);
    set("embedding_length", shape.width);
    set("feed_forward_length", shape.hidden);
    set("attention.head_count", shape.n_heads);
    set("attention.head_count_kv", shape.n_kv_heads);
    set("attention.key_length", shape.head_dim);
    set("attention.value_length", shape.head_dim);
    set("rope.dimension_count", shape.head_dim);
    set("vocab_size", shape.n_vocab);
    let key = |name: &str| format!("{}.{name}", family.name());
    metadata.set(key("rope.freq_base"), family.rope_base());
    metadata.set(key("attention.layer_norm_rms_epsilon"), family.norm_eps());
    layers::describe(&mut metadata, shape);
    vocabulary::describe(&mut metadata, shape.n_vocab, family.pretokenizer());
    metadata
}

/// Blocks made at a time.
const PIECE_BLOCKS: u64 = 1 << 14;
const CONTEXT_LENGTH: usize = 32_768;
const LARGEST: usize = 1 << 20;
