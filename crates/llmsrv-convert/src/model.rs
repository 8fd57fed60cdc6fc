//! Published weights (safetensors with their configuration) to a model file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use llmsrv_gguf::{Metadata, TensorType};
use serde_json::Value;

use crate::{
    Error, Progress, Target,
    checkpoint::{Checkpoint, Tensor, shown},
    config::Config,
    families::{self, COUNTS, Family},
    files::Files,
    names::{Place, place},
    output::{self, Content, Output, head_rows},
    quantize::QUANTIZATION_VERSION,
    rope, vocabulary,
};

/// Makes a model file of the files of a published model.
///
/// `files` are the name of each file as its owner calls it, and where it lies: the weights
/// (`*.safetensors`), `config.json`, and the tokenizer (`tokenizer.model` or `tokenizer.json`);
/// `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja` are used if they are
/// there. Matrices keep their type, except that F32 becomes F16; vectors are F32. If the file is to be quantised to
/// `target`, F32 stays where that is more than F16 can say.
///
/// # Errors
/// [`Error::MissingFile`], or [`Error::Unsupported`] for a class, type or tokenizer that is not known.
pub fn convert_model(
    files: &[(String, PathBuf)],
    destination: &Path,
    target: Option<Target>,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let single = match target {
        None | Some(Target::F16) => TensorType::F16,
        Some(_) => TensorType::F32,
    };
    let files = Files::beside("config.json", files);
    let mut config = Config::read(&files)?;
    let family = families::find(config.architecture()?)?;
    config.defaults(family.defaults);
    let mut checkpoint = Checkpoint::open(&files)?;
    let mut metadata = metadata(&config, family)?;
    let divisors = if family.is_encoder {
        metadata.set(format!("{}.attention.causal", family.architecture), false);
        Vec::new()
    } else {
        rope::convert(&config, family, &mut metadata)?
    };
    if let Some(pooling) = pooling(&files)? {
        metadata.set(format!("{}.pooling_type", family.architecture), pooling);
    }
    let mut outputs = outputs(&checkpoint, &config, family, single)?;

    let embedding = outputs
        .iter()
        .find(|output| output.name == "token_embd.weight");
    let dtype = embedding.map(|output| output.dtype);
    let n_tokens = embedding.and_then(|output| output.shape.get(1)).copied();
    let n_tokens = n_tokens.ok_or(Error::Invalid("the token embedding is missing".into()))?;
    vocabulary::convert(&files, &config, n_tokens, &mut metadata)?;
    metadata.set(
        format!("{}.vocab_size", family.architecture),
        n_tokens as u32,
    );

    let main = match dtype {
        Some(TensorType::BF16) => Target::Bf16,
        Some(TensorType::F32) => Target::F32,
        _ => Target::F16,
    };
    metadata.set("general.file_type", main.file_type());
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    outputs.extend(divisors.into_iter().map(|(name, values)| Output {
        name: name.to_owned(),
        shape: vec![values.len() as u64],
        dtype: TensorType::F32,
        content: Content::Values(values),
    }));

    output::write(destination, metadata, &outputs, &mut checkpoint, progress)
}

/// The keys that say what the model is.
fn metadata(config: &Config, family: &Family) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", family.architecture);
    metadata.set("general.type", "model");
    // A name that was a path on somebody's machine is nobody's business.
    let name = config
        .text("_name_or_path")
        .map(|path| path.rsplit(['/', '\\']).next().unwrap_or(path))
        .filter(|name| !name.is_empty())
        .or(config.text("model_type"));
    metadata.set("general.name", name.unwrap_or(family.architecture));

    let full = |key: &str| format!("{}.{key}", family.architecture);
    metadata.set(
        full("block_count"),
        config.required_count(&["num_hidden_layers"])?,
    );
    for (key, names) in COUNTS {
        if let Some(count) = config.count(names)? {
            metadata.set(full(key), count);
        }
    }
    let heads = config.required_count(&["num_attention_heads"])?;
    let kv_heads = config.count(&["num_key_value_heads"])?.unwrap_or(heads);
    metadata.set(full("attention.head_count_kv"), kv_heads);
    let (key, name) = family.norm_eps;
    metadata.set(full(key), config.number(name)?.unwrap_or(1e-6));
    for (key, name) in family.numbers {
        if let Some(number) = config.number(name)? {
            metadata.set(full(key), number);
        }
    }
    if family.windows {
        // Zero says that there is no window; without the key programs assume one.
        let window = config.count(&["sliding_window"])?.unwrap_or(0);
        metadata.set(full("attention.sliding_window"), window);
        if let Some(Value::Array(kinds)) = config.get("layer_types") {
            let slides = |kind: &Value| kind.as_str() == Some("sliding_attention");
            let pattern: Vec<bool> = kinds.iter().map(slides).collect();
            metadata.set(full("attention.sliding_window_pattern"), pattern);
        } else if let Some(period) = config.count(&["sliding_window_pattern"])? {
            metadata.set(full("attention.sliding_window_pattern"), period);
        }
    }
    Ok(metadata)
}

/// How the rows of a text become one vector, as the library sentence-transformers keeps it beside a model: the number of
/// GGUF for it.
fn pooling(files: &Files<'_>) -> Result<Option<u32>, Error> {
    let Some(folder) = files.below("1_Pooling") else {
        return Ok(None);
    };
    let settings = folder.json("config.json")?.unwrap_or_default();
    let kinds = [
        ("pooling_mode_mean_tokens", 1),
        ("pooling_mode_cls_token", 2),
        ("pooling_mode_lasttoken", 3),
    ];
    let is_set = |key: &str| settings.get(key).and_then(Value::as_bool) == Some(true);
    let kind = kinds.iter().find(|(key, _)| is_set(key));
    let kind = kind.ok_or_else(|| {
        let message = "1_Pooling/config.json asks for neither mean, first nor last token";
        Error::Unsupported(message.into())
    })?;
    Ok(Some(kind.1))
}

/// Finds the place of every tensor of the checkpoint. Matrices of F32 become `single`.
fn outputs(
    checkpoint: &Checkpoint,
    config: &Config,
    family: &Family,
    single: TensorType,
) -> Result<Vec<Output>, Error> {
    let heads = config.required_count(&["num_attention_heads"])?;
    let kv_heads = config.count(&["num_key_value_heads"])?.unwrap_or(heads);
    let is_tied = config.flag("tie_word_embeddings") == Some(true);
    let mut outputs = Vec::new();
    let mut stacks: BTreeMap<String, BTreeMap<usize, Tensor>> = BTreeMap::new();
    for tensor in checkpoint.tensors() {
        let name = match place(&tensor.name, family) {
            Place::Nowhere => continue,
            Place::Unknown => {
                let (name, class) = (shown(&tensor.name), config.architecture()?);
                let message = format!("tensor {name} has no meaning in a {class}");
                return Err(Error::Unsupported(message));
            }
            Place::Expert { name, index } => {
                stacks
                    .entry(name)
                    .or_default()
                    .insert(index, tensor.clone());
                continue;
            }
            // A copy of the embedding.
            Place::Whole(name) if name == "output.weight" && is_tied => continue,
            Place::Whole(name) => name,
        };
        let head_rows = head_rows(&name, tensor, family, heads, kv_heads)?;
        let is_norm = name.ends_with("norm.weight");
        outputs.push(Output {
            dtype: output_type(&name, tensor, single)?,
            shape: tensor.shape.iter().rev().copied().collect(),
            name,
            content: Content::Tensors {
                tensors: vec![tensor.clone()],
                head_rows,
                offset: if is_norm { family.norm_offset } else { 0.0 },
            },
        });
    }
    for (name, matrices) in stacks {
        outputs.push(stack(name, matrices, single)?);
    }
    // Layers in order, as readers expect their first tensors near the start.
    outputs.sort_by_key(|output| {
        let layer = output.name.strip_prefix("blk.");
        let layer = layer.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        (layer.is_some(), layer, output.name.clone())
    });
    Ok(outputs)
}

/// Makes one tensor of the matrices of all experts of a layer.
fn stack(
    name: String,
    matrices: BTreeMap<usize, Tensor>,
    single: TensorType,
) -> Result<Output, Error> {
    let complete = matrices.keys().copied().eq(0..matrices.len());
    let tensors: Vec<Tensor> = matrices.into_values().collect();
    let shape = tensors[0].shape.clone();
    let dtype = output_type(&name, &tensors[0], single)?;
    let alike = tensors.iter().all(|tensor| tensor.shape == shape);
    if !complete || !alike || shape.len() != 2 {
        return Err(Error::Invalid(format!(
            "the matrices of {name} do not fit together"
        )));
    }
    for tensor in &tensors {
        tensor.dtype()?;
    }
    Ok(Output {
        shape: vec![shape[1], shape[0], tensors.len() as u64],
        name,
        dtype,
        content: Content::Tensors {
            tensors,
            head_rows: 0,
            offset: 0.0,
        },
    })
}

/// Vectors, matrices that choose, and tables of a BERT beside that of tokens are small and kept exact.
fn output_type(name: &str, tensor: &Tensor, single: TensorType) -> Result<TensorType, Error> {
    let dtype = tensor.dtype()?;
    Ok(match dtype {
        _ if tensor.shape.len() < 2 || EXACT.iter().any(|part| name.contains(part)) => {
            TensorType::F32
        }
        TensorType::F32 => single,
        dtype => dtype,
    })
}

const EXACT: [&str; 4] = ["_norm.", "ffn_gate_inp", "position_embd.", "token_types."];
