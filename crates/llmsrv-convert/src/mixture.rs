//! Which type each tensor of a quantised model gets.
//!
//! Most tensors get the main type of the target; those that matter more get more bits. Which ones is
//! custom of the field (llama.cpp's `quantize`), so that a name like Q4_K_M means the same size and
//! quality everywhere.

use llmsrv_gguf::{Header, TensorInfo, TensorType};

use crate::Target;

/// What the choice depends on besides the tensor.
#[derive(Debug)]
pub(crate) struct Mixture {
    target: Target,
    n_layers: usize,
    n_experts: usize,
    /// Layers with values of attention, in ascending order.
    value_layers: Vec<usize>,
    /// The embedding also gives the logits.
    tied: bool,
    /// Query heads that share a head of values.
    n_sharing: usize,
    /// So many share that values cost little, and the model is large.
    shares_values: bool,
}

/// The parts of a layer whose types differ.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Logits,
    Key,
    Value,
    AttentionOutput,
    Down,
    Other,
}

impl Mixture {
    /// Looks at the model that is to be quantised.
    pub(crate) fn new(header: &Header, target: Target) -> Mixture {
        let metadata = &header.metadata;
        let architecture = metadata.architecture().unwrap_or_default();
        let count = |key: &str| {
            metadata
                .usize(&format!("{architecture}.{key}"))
                .unwrap_or(0)
        };
        let (heads, kv_heads) = (
            count("attention.head_count"),
            count("attention.head_count_kv"),
        );
        let mut value_layers: Vec<usize> = header
            .tensors
            .iter()
            .filter(|tensor| role(&tensor.name, false) == Role::Value)
            .filter_map(|tensor| layer(&tensor.name))
            .collect();
        value_layers.sort_unstable();
        Mixture {
            target,
            n_layers: count("block_count"),
            n_experts: count("expert_count"),
            value_layers,
            tied: header.tensor("output.weight").is_none(),
            n_sharing: heads.checked_div(kv_heads).unwrap_or(1),
            shares_values: architecture == "llama"
                && count("block_count") == 80
                && heads != kv_heads,
        }
    }

    /// Returns the type that `tensor` gets.
    pub(crate) fn choose(&self, tensor: &TensorInfo) -> TensorType {
        let main = self.target.main_type();
        if !may_change(tensor) {
            tensor.dtype
        } else if main.block_len() == 1 {
            main
        } else {
            fitting(self.wanted(tensor), tensor.row_len())
        }
    }

    /// The type for rows of any length.
    fn wanted(&self, tensor: &TensorInfo) -> TensorType {
        use TensorType::{IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_0};
        let main = self.target.main_type();
        let layer = layer(&tensor.name).unwrap_or(0);
        let is_medium = [Target::Q4_K_M, Target::Q5_K_M].contains(&self.target);
        let has_eight_experts = self.n_experts == 8;
        match role(&tensor.name, self.tied) {
            Role::Logits if main == Q8_0 => Q8_0,
            Role::Logits => Q6_K,
            Role::Value | Role::Key if has_eight_experts => Q8_0,
            Role::Value => {
                let n_layers = self.value_layers.len();
                let index = self.value_layers.partition_point(|other| *other < layer);
                match self.target {
                    _ if is_medium && has_more_bits(index, n_layers) => Q6_K,
                    Target::Q4_K_S if index < 4 => Q5_K,
                    Target::Q3_K_L => Q5_K,
                    Target::Q3_K_M if index < 2 => Q5_K,
                    Target::Q3_K_M => Q4_K,
                    Target::Q2_K if self.n_sharing >= 4 => Q4_K,
                    Target::Q2_K => Q3_K,
                    Target::IQ4_NL | Target::IQ4_XS if self.n_sharing >= 4 => Q5_K,
                    _ if main == Q4_K && self.shares_values => Q5_K,
                    _ => main,
                }
            }
            Role::Down => match self.target {
                _ if is_medium && has_more_bits(layer, self.n_layers) => Q6_K,
                Target::Q4_K_S | Target::IQ4_NL | Target::IQ4_XS if layer < self.n_layers / 8 => {
                    Q5_K
                }
                Target::Q3_K_L => Q5_K,
                Target::Q3_K_M if layer < self.n_layers / 16 => Q5_K,
                Target::Q3_K_M => Q4_K,
                Target::Q2_K => Q3_K,
                _ => main,
            },
            Role::AttentionOutput => match self.target {
                Target::Q3_K_L => Q5_K,
                _ if has_eight_experts && [Q2_K, Q3_K, Q4_K, IQ4_NL, IQ4_XS].contains(&main) => {
                    Q5_K
                }
                Target::Q3_K_M => Q4_K,
                Target::Q2_K => Q3_K,
                _ => main,
            },
            Role::Key | Role::Other => main,
        }
    }
}

/// The first and last eighth of the layers, and every third between.
fn has_more_bits(layer: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2
}

fn role(name: &str, tied: bool) -> Role {
    match name {
        "output.weight" => Role::Logits,
        "token_embd.weight" | "per_layer_token_embd.weight" if tied => Role::Logits,
        name => {
            let row = ROLES.iter().find(|(part, _)| name.contains(part));
            row.map_or(Role::Other, |(_, role)| *role)
        }
    }
}

/// Parts of names, and what they say.
const ROLES: &[(&str, Role)] = &[
    ("attn_qkv.weight", Role::Value),
    ("attn_kv_b.weight", Role::Value),
    ("attn_v.weight", Role::Value),
    ("attn_k.weight", Role::Key),
    ("attn_output.weight", Role::AttentionOutput),
    ("ffn_down", Role::Down),
];

/// Returns the number in `blk.<number>.`.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// Tells whether the type of a tensor is changed at all: only matrices that are large.
fn may_change(tensor: &TensorInfo) -> bool {
    let is_float = [TensorType::F32, TensorType::F16, TensorType::BF16].contains(&tensor.dtype);
    let is_matrix = tensor.shape.iter().skip(1).any(|size| *size > 1);
    let name = tensor.name.as_str();
    is_float
        && is_matrix
        && name.ends_with("weight")
        && !KEPT.contains(&name)
        && !KEPT_PARTS.iter().any(|part| name.contains(part))
}

const KEPT: &[&str] = &["position_embd.weight", "token_types.weight"];

/// Small or delicate: norms, routers, convolutions, positions.
const KEPT_PARTS: &[&str] = &[
    "_norm.weight",
    "ffn_gate_inp.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "time_mix_",
    ".position_embd",
    ".patch_embd",
    ".rel_pos",
];

/// The type, or one with shorter blocks where they do not fill the rows.
fn fitting(wanted: TensorType, row_len: u64) -> TensorType {
    let fits = |ty: TensorType| row_len.is_multiple_of(ty.block_len() as u64);
    if fits(wanted) {
        return wanted;
    }
    let shorter = match wanted {
        TensorType::Q2_K | TensorType::Q3_K | TensorType::IQ4_XS => TensorType::IQ4_NL,
        TensorType::Q4_K => TensorType::Q5_0,
        TensorType::Q5_K => TensorType::Q5_1,
        TensorType::Q6_K => TensorType::Q8_0,
        _ => TensorType::F16,
    };
    if fits(shorter) {
        shorter
    } else {
        TensorType::F16
    }
}
