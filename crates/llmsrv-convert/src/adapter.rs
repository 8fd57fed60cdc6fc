//! Published adapters (LoRA, <https://arxiv.org/abs/2106.09685>, as the PEFT library stores them) to
//! an adapter file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use llmsrv_gguf::{GgufFile, Metadata, TensorType};

use crate::{
    Error, Progress, Target,
    checkpoint::{Checkpoint, Tensor, shown},
    config::Config,
    families::{self, Family},
    files::Files,
    names::{Place, place},
    output::{self, Content, Output, head_rows},
    quantize::QUANTIZATION_VERSION,
};

/// Makes an adapter file of the files of a published LoRA adapter.
///
/// `files` are `adapter_config.json` and the weights (`adapter_model.safetensors`). `base` is the
/// model file that the adapter is for: it says of which family the names are and how many heads
/// there are. Without it, `config.json` of the base model must be among the files.
///
/// # Errors
/// [`Error::MissingFile`]; [`Error::Unsupported`] for adapters that do more than add low-rank products.
pub fn convert_adapter(
    files: &[(String, PathBuf)],
    base: Option<&Path>,
    destination: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let files = Files::beside("adapter_config.json", files);
    let config = files
        .json("adapter_config.json")?
        .ok_or(Error::MissingFile("adapter_config.json"))?;
    let config = Config::new(config);
    check(&config)?;
    let base = match base {
        Some(path) => Base::of_file(path)?,
        None => Base::of_config(&files)?,
    };
    let mut checkpoint = Checkpoint::open(&files)?;
    let pairs = pairs(&checkpoint)?;
    let alpha = alpha(&config, &pairs)?;

    let mut metadata = Metadata::new();
    metadata.set("general.architecture", base.family.architecture);
    metadata.set("general.type", "adapter");
    metadata.set("general.file_type", Target::F32.file_type());
    metadata.set("general.quantization_version", QUANTIZATION_VERSION);
    metadata.set("adapter.type", "lora");
    metadata.set("adapter.lora.alpha", alpha);

    let mut outputs = Vec::new();
    for (stem, pair) in pairs {
        let (down, up) = (pair.down, pair.up);
        let Place::Whole(name) = place(&format!("{stem}.weight"), base.family) else {
            let message = format!(
                "the adapter changes {}, which is not possible",
                shown(&stem)
            );
            return Err(Error::Unsupported(message));
        };
        if name == "token_embd.weight" {
            let message = "the adapter changes the token embedding, which is not possible";
            return Err(Error::Unsupported(message.into()));
        }
        let head_rows = head_rows(&name, &up, base.family, base.heads, base.kv_heads)?;
        for (suffix, tensor, head_rows) in [("lora_a", down, 0), ("lora_b", up, head_rows)] {
            outputs.push(Output {
                name: format!("{name}.{suffix}"),
                shape: tensor.shape.iter().rev().copied().collect(),
                dtype: TensorType::F32,
                content: Content::Tensors {
                    tensors: vec![tensor],
                    head_rows,
                    offset: 0.0,
                },
            });
        }
    }
    output::write(destination, metadata, &outputs, &mut checkpoint, progress)
}

/// What the names and rows of an adapter depend on.
struct Base {
    family: &'static Family,
    heads: u32,
    kv_heads: u32,
}

impl Base {
    fn of_file(path: &Path) -> Result<Base, Error> {
        let file = GgufFile::open(path)?;
        let metadata = file.metadata();
        let architecture = metadata.architecture().unwrap_or_default();
        let count = |key: &str| metadata.u32(&format!("{architecture}.attention.{key}"));
        let heads = count("head_count")
            .ok_or_else(|| Error::Invalid("the base model has no number of heads".into()))?;
        Ok(Base {
            family: families::of_architecture(architecture)?,
            heads,
            kv_heads: count("head_count_kv").unwrap_or(heads),
        })
    }

    fn of_config(files: &Files<'_>) -> Result<Base, Error> {
        if files.find("config.json").is_none() {
            return Err(Error::MissingFile("the base model of the adapter"));
        }
        let mut config = Config::read(files)?;
        let family = families::find(config.architecture()?)?;
        config.defaults(family.defaults);
        let heads = config.required_count(&["num_attention_heads"])?;
        let kv_heads = config.count(&["num_key_value_heads"])?.unwrap_or(heads);
        Ok(Base {
            family,
            heads,
            kv_heads,
        })
    }
}

/// The two factors of what is added to a matrix.
struct Pair {
    /// From the input to `rank` numbers: A of the paper.
    down: Tensor,
    /// From those to the output: B of the paper.
    up: Tensor,
}

/// Refuses adapters of other kinds.
fn check(config: &Config) -> Result<(), Error> {
    let kind = config.text("peft_type").unwrap_or("LORA");
    if kind != "LORA" {
        let message = format!("adapters of the kind {} cannot be converted", shown(kind));
        return Err(Error::Unsupported(message));
    }
    let is_set = |key: &str| config.flag(key) == Some(true);
    let is_full = |key: &str| config.object(key).is_some_and(|object| !object.is_empty());
    let unknown = ["use_dora", "fan_in_fan_out", "use_qalora"]
        .into_iter()
        .find(|key| is_set(key))
        .or_else(|| ["alpha_pattern"].into_iter().find(|key| is_full(key)));
    match unknown {
        Some(key) => Err(Error::Unsupported(format!(
            "adapters with {key} cannot be converted"
        ))),
        None => Ok(()),
    }
}

/// Finds the two factors of every matrix that the adapter changes, by the name of the matrix.
fn pairs(checkpoint: &Checkpoint) -> Result<Vec<(String, Pair)>, Error> {
    let mut halves: BTreeMap<String, [Option<Tensor>; 2]> = BTreeMap::new();
    for tensor in checkpoint.tensors() {
        let name = tensor.name.as_str();
        let name = name.strip_prefix("base_model.model.").unwrap_or(name);
        let half = [".lora_A", ".lora_B"]
            .into_iter()
            .enumerate()
            .find_map(|(half, mark)| {
                // An adapter that was given a name has it behind the mark.
                let (stem, rest) = name.rsplit_once(mark)?;
                (rest.starts_with('.') && rest.ends_with(".weight")).then_some((half, stem))
            });
        let Some((half, stem)) = half else {
            let message = format!("tensor {} is not part of a low-rank product", shown(name));
            return Err(Error::Unsupported(message));
        };
        halves.entry(stem.to_owned()).or_default()[half] = Some(tensor.clone());
    }
    let mut pairs = Vec::new();
    for (stem, halves) in halves {
        let [Some(down), Some(up)] = halves else {
            let message = format!("one of the two factors of {} is missing", shown(&stem));
            return Err(Error::Invalid(message));
        };
        let fits = down.shape.len() == 2 && up.shape.len() == 2 && down.shape[0] == up.shape[1];
        if !fits {
            let message = format!("the two factors of {} do not fit together", shown(&stem));
            return Err(Error::Invalid(message));
        }
        pairs.push((stem, Pair { down, up }));
    }
    Ok(pairs)
}

/// Returns the number that files hold: the product is scaled by it divided by the rank.
fn alpha(config: &Config, pairs: &[(String, Pair)]) -> Result<f32, Error> {
    let missing = || Error::Invalid("adapter_config.json: lora_alpha is missing".into());
    let alpha = config.number("lora_alpha")?.ok_or_else(missing)?;
    if config.flag("use_rslora") != Some(true) {
        return Ok(alpha);
    }
    // Here it is divided by the root of the rank.
    let mut ranks = pairs.iter().map(|(_, pair)| pair.down.shape[0]);
    let rank = ranks.next().unwrap_or(1);
    if ranks.any(|other| other != rank) {
        let message = "adapters with use_rslora and more than one rank cannot be converted";
        return Err(Error::Unsupported(message.into()));
    }
    Ok(alpha * (rank as f32).sqrt())
}
