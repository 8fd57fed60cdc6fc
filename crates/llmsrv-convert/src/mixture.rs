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
    has_imatrix: bool,
}

/// The parts of a layer whose types differ.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Embedding,
    Logits,
    Query,
    Key,
    Value,
    AttentionOutput,
    Gate,
    Up,
    Down,
    Other,
}

impl Mixture {
    /// Looks at the model that is to be quantised.
    pub(crate) fn new(header: &Header, target: Target, has_imatrix: bool) -> Mixture {
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
            has_imatrix,
        }
    }

    /// Tells whether a tensor of this type is of no use where nothing is known of its inputs: elements have so few
    /// steps that it matters which are close. Tables whose rows are looked up have no inputs.
    pub(crate) fn needs_imatrix(&self, tensor: &TensorInfo, ty: TensorType) -> bool {
        use TensorType::{IQ2_S, IQ2_XS, IQ2_XXS, IQ3_XXS, Q2_K};
        let is_table = matches!(role(&tensor.name, false), Role::Embedding | Role::Logits);
        let has_few_steps = [IQ3_XXS, IQ2_XXS, IQ2_XS, IQ2_S].contains(&ty)
            || ty == Q2_K && self.target == Target::Q2_K_S;
        has_few_steps && !is_table
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
        use TensorType::{
            IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_1, Q4_K, Q5_1,
            Q5_K, Q6_K, Q8_0,
        };
        let main = self.target.main_type();
        let layer = layer(&tensor.name).unwrap_or(0);
        let is_early = layer < self.n_layers / 8;
        let is_late = layer >= 7 * self.n_layers / 8;
        let is_medium = [Target::Q4_K_M, Target::Q5_K_M].contains(&self.target);
        let has_eight_experts = self.n_experts == 8;
        let many_share = self.n_sharing >= 4;
        // Two bits a weight, and what such a mixture gives to what matters more.
        let is_tiny = [IQ2_XXS, IQ2_XS, IQ2_S].contains(&main);
        let more = match self.target {
            Target::IQ2_S | Target::IQ2_M => IQ3_S,
            _ => Q2_K,
        };
        let role = role(&tensor.name, self.tied);
        match role {
            Role::Logits if main == Q8_0 => Q8_0,
            Role::Logits if is_tiny || self.target == Target::IQ3_XXS => Q5_K,
            Role::Logits => Q6_K,
            Role::Embedding if is_tiny => more,
            Role::Embedding if self.target == Target::IQ3_XXS => IQ3_S,
            Role::Value if is_tiny && (many_share || self.n_experts >= 4) => Q4_K,
            Role::Value | Role::Down if is_tiny && (role == Role::Value || is_early) => more,
            Role::Key if is_tiny && has_eight_experts => Q4_K,
            Role::AttentionOutput if is_tiny && has_eight_experts => Q5_K,
            Role::AttentionOutput if is_tiny && more == IQ3_S => IQ3_S,
            _ if is_tiny => main,
            Role::Value | Role::Key if has_eight_experts => Q8_0,
            Role::Value => {
                let n_layers = self.value_layers.len();
                let index = self.value_layers.partition_point(|other| *other < layer);
                match self.target {
                    _ if is_medium && has_more_bits(index, n_layers) => Q6_K,
                    Target::Q4_K_S if index < 4 => Q5_K,
                    Target::Q3_K_L => Q5_K,
                    Target::Q3_K_M if index < 2 => Q5_K,
                    Target::Q3_K_M | Target::IQ3_M => Q4_K,
                    Target::Q2_K
                    | Target::Q2_K_S
                    | Target::IQ3_S
                    | Target::IQ3_XS
                    | Target::IQ3_XXS
                        if many_share =>
                    {
                        Q4_K
                    }
                    Target::Q2_K => Q3_K,
                    Target::IQ3_XXS if !self.has_imatrix => IQ3_S,
                    Target::IQ4_NL | Target::IQ4_XS if many_share => Q5_K,
                    _ if [Q3_K, Q4_K].contains(&main) && self.shares_values => Q5_K,
                    _ => main,
                }
            }
            Role::Down => match self.target {
                _ if is_medium && has_more_bits(layer, self.n_layers) => Q6_K,
                Target::Q4_K_S if is_early => Q5_K,
                Target::IQ4_NL | Target::IQ4_XS if is_early && !self.has_imatrix => Q5_K,
                Target::Q4_0 if is_early && self.has_imatrix => Q4_1,
                Target::Q5_0 if is_early && self.has_imatrix => Q5_1,
                Target::Q3_K_L => Q5_K,
                Target::Q3_K_M if layer < self.n_layers / 16 => Q5_K,
                Target::Q3_K_M => Q4_K,
                Target::IQ3_M
                    if is_early || has_eight_experts && has_more_bits(layer, self.n_layers) =>
                {
                    Q4_K
                }
                Target::Q2_K => Q3_K,
                Target::Q2_K_S if is_early => Q4_K,
                _ => main,
            },
            Role::AttentionOutput => match self.target {
                Target::Q3_K_L => Q5_K,
                Target::Q2_K_S => main,
                _ if has_eight_experts
                    && [Q2_K, Q3_K, Q4_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS].contains(&main) =>
                {
                    Q5_K
                }
                Target::Q3_K_M | Target::IQ3_M => Q4_K,
                Target::Q2_K => Q3_K,
                Target::IQ3_XXS => IQ3_S,
                _ => main,
            },
            Role::Query | Role::Key if self.target == Target::IQ3_XXS => IQ2_S,
            Role::Query | Role::Key if self.target == Target::IQ3_XS => IQ3_XXS,
            Role::Gate | Role::Up if self.target == Target::IQ3_XS && !is_early && !is_late => {
                IQ3_XXS
            }
            Role::Embedding | Role::Query | Role::Key | Role::Gate | Role::Up | Role::Other => main,
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
        "token_embd.weight" | "per_layer_token_embd.weight" => Role::Embedding,
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
    ("attn_q.weight", Role::Query),
    ("attn_output.weight", Role::AttentionOutput),
    ("ffn_up", Role::Up),
    ("ffn_gate", Role::Gate),
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
        TensorType::Q2_K
        | TensorType::Q3_K
        | TensorType::IQ4_XS
        | TensorType::IQ3_S
        | TensorType::IQ3_XXS
        | TensorType::IQ2_S
        | TensorType::IQ2_XS
        | TensorType::IQ2_XXS => TensorType::IQ4_NL,
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
