//! What the layers of each family are made of: tensors, and the keys that say so.

use llmsrv_gguf::{Metadata, TensorInfo, TensorType};

use super::{Family, Shape};

/// Writes the keys that a family has beside those of all.
pub(super) fn describe(metadata: &mut Metadata, shape: &Shape) {
    let key = |name: &str| format!("{}.{name}", shape.family.name());
    let dim = shape.head_dim;
    match shape.family {
        Family::Llama | Family::Qwen2 | Family::Qwen3 | Family::Qwen3Moe => {}
        Family::Qwen35 => {
            let net = Net::of(shape);
            for (name, value) in [
                ("ssm.conv_kernel", TAPS),
                ("ssm.state_size", net.dim),
                ("ssm.group_count", net.n_keys),
                ("ssm.time_step_rank", net.n_values),
                ("ssm.inner_size", net.values()),
                ("full_attention_interval", PERIOD),
                ("rope.dimension_count", dim / 4),
            ] {
                metadata.set(key(name), value as u32);
            }
            // A third of the rotated pairs each for time, height and width.
            let n_pairs = dim / 8;
            let time = n_pairs.div_ceil(3);
            let height = (n_pairs - time).div_ceil(2);
            let sections = [time, height, n_pairs - time - height, 0].map(|n| n as i32);
            metadata.set(key("rope.dimension_sections"), sections.to_vec());
        }
        Family::Gemma4 => {
            for (name, value) in [
                ("attention.sliding_window", 512),
                (
                    "attention.shared_kv_layers",
                    shape.n_layers - n_storing(shape),
                ),
                ("attention.key_length_swa", dim / 2),
                ("attention.value_length_swa", dim / 2),
                ("rope.dimension_count_swa", dim / 2),
                ("embedding_length_per_layer_input", PER_LAYER),
            ] {
                metadata.set(key(name), value as u32);
            }
            let slides: Vec<bool> = (0..shape.n_layers).map(slides).collect();
            metadata.set(key("attention.sliding_window_pattern"), slides);
            metadata.set(key("rope.freq_base_swa"), 10_000.0_f32);
            metadata.set(key("final_logit_softcapping"), 30.0_f32);
        }
        Family::GptOss => {
            for (name, value) in [
                ("attention.sliding_window", 128),
                ("rope.scaling.original_context_length", 4096),
            ] {
                metadata.set(key(name), value as u32);
            }
            metadata.set(key("rope.scaling.type"), "yarn");
            metadata.set(key("rope.scaling.factor"), 32.0_f32);
        }
    }
    if shape.n_experts > 0 {
        for (name, value) in [
            ("expert_count", shape.n_experts),
            ("expert_used_count", shape.n_used),
            ("expert_feed_forward_length", shape.hidden),
        ] {
            metadata.set(key(name), value as u32);
        }
    }
}

/// The tensors as a converted model has them: matrices in BF16 (experts of gpt-oss in MXFP4), the rest in F32.
pub(super) fn tensors(shape: &Shape) -> Vec<TensorInfo> {
    let mut list = List {
        prefix: String::new(),
        experts: match shape.family {
            Family::GptOss => TensorType::MXFP4,
            _ => TensorType::BF16,
        },
        tensors: Vec::new(),
    };
    let (width, n_layers) = (shape.width, shape.n_layers);
    list.add("token_embd.weight", &[width, shape.n_vocab]);
    if shape.family == Family::Gemma4 {
        list.add(
            "per_layer_token_embd.weight",
            &[PER_LAYER * n_layers, shape.n_vocab],
        );
        list.add(
            "per_layer_model_proj.weight",
            &[width, PER_LAYER * n_layers],
        );
        list.add("per_layer_proj_norm.weight", &[PER_LAYER]);
        list.add("rope_freqs.weight", &[shape.head_dim / 2]);
    }
    for layer in 0..n_layers {
        list.prefix = format!("blk.{layer}.");
        list.add("attn_norm.weight", &[width]);
        if shape.family == Family::Qwen35 && !(layer + 1).is_multiple_of(PERIOD) {
            delta_net(&mut list, shape);
        } else {
            attention(&mut list, shape, layer);
        }
        feed_forward(&mut list, shape);
    }
    list.prefix.clear();
    list.add("output_norm.weight", &[width]);
    if !shape.tied {
        list.add("output.weight", &[width, shape.n_vocab]);
    }
    list.tensors
}

fn attention(list: &mut List, shape: &Shape, layer: usize) {
    let (width, family) = (shape.width, shape.family);
    let dim = match family {
        Family::Gemma4 if slides(layer) => shape.head_dim / 2,
        _ => shape.head_dim,
    };
    let (query, kv) = (shape.n_heads * dim, shape.n_kv_heads * dim);
    // Each query comes with a gate.
    let query_rows = match family {
        Family::Qwen35 => 2 * query,
        _ => query,
    };
    let stores = family != Family::Gemma4 || layer < n_storing(shape);
    let has_bias = matches!(family, Family::Qwen2 | Family::GptOss);
    for (part, rows) in [("attn_q", query_rows), ("attn_k", kv), ("attn_v", kv)] {
        if part != "attn_q" && !stores {
            continue;
        }
        list.add(&format!("{part}.weight"), &[width, rows]);
        if has_bias {
            list.add(&format!("{part}.bias"), &[rows]);
        }
    }
    if matches!(
        family,
        Family::Qwen3 | Family::Qwen3Moe | Family::Qwen35 | Family::Gemma4
    ) {
        list.add("attn_q_norm.weight", &[dim]);
        if stores {
            list.add("attn_k_norm.weight", &[dim]);
        }
    }
    list.add("attn_output.weight", &[query, width]);
    if family == Family::GptOss {
        list.add("attn_output.bias", &[width]);
        list.add("attn_sinks.weight", &[shape.n_heads]);
    }
}

fn delta_net(list: &mut List, shape: &Shape) {
    let (width, net) = (shape.width, Net::of(shape));
    list.add("attn_qkv.weight", &[width, net.convolved()]);
    list.add("attn_gate.weight", &[width, net.values()]);
    list.add("ssm_conv1d.weight", &[TAPS, net.convolved()]);
    list.add("ssm_dt.bias", &[net.n_values]);
    list.add("ssm_a", &[net.n_values]);
    list.add("ssm_beta.weight", &[width, net.n_values]);
    list.add("ssm_alpha.weight", &[width, net.n_values]);
    list.add("ssm_norm.weight", &[net.dim]);
    list.add("ssm_out.weight", &[net.values(), width]);
}

fn feed_forward(list: &mut List, shape: &Shape) {
    let (width, hidden, n) = (shape.width, shape.hidden, shape.n_experts);
    list.add(
        match shape.family {
            Family::Qwen35 | Family::GptOss => "post_attention_norm.weight",
            _ => "ffn_norm.weight",
        },
        &[width],
    );
    let parts = [
        ("ffn_gate", width, hidden),
        ("ffn_up", width, hidden),
        ("ffn_down", hidden, width),
    ];
    if n > 0 {
        list.add("ffn_gate_inp.weight", &[width, n]);
        let is_gpt_oss = shape.family == Family::GptOss;
        if is_gpt_oss {
            list.add("ffn_gate_inp.bias", &[n]);
        }
        for (part, n_cols, n_rows) in parts {
            list.add(&format!("{part}_exps.weight"), &[n_cols, n_rows, n]);
            if is_gpt_oss {
                list.add(&format!("{part}_exps.bias"), &[n_rows, n]);
            }
        }
        return;
    }
    for (part, n_cols, n_rows) in parts {
        list.add(&format!("{part}.weight"), &[n_cols, n_rows]);
    }
    if shape.family == Family::Gemma4 {
        for norm in ["post_attention_norm", "post_ffw_norm", "post_norm"] {
            list.add(&format!("{norm}.weight"), &[width]);
        }
        list.add("inp_gate.weight", &[width, PER_LAYER]);
        list.add("proj.weight", &[PER_LAYER, width]);
        list.add("layer_output_scale.weight", &[1]);
    }
}

/// Tensors of which the names have one beginning.
struct List {
    prefix: String,
    /// The type of stacked matrices.
    experts: TensorType,
    tensors: Vec<TensorInfo>,
}

impl List {
    fn add(&mut self, name: &str, sizes: &[usize]) {
        let dtype = match sizes.len() {
            3 => self.experts,
            2 if name.ends_with("weight") && !FLOATS.contains(&name) => TensorType::BF16,
            _ => TensorType::F32,
        };
        self.tensors.push(TensorInfo {
            name: format!("{}{name}", self.prefix),
            shape: sizes.iter().map(|size| *size as u64).collect(),
            dtype,
            offset: 0,
            bytes: 0,
        });
    }
}

/// The sizes of a gated delta net.
struct Net {
    n_keys: usize,
    n_values: usize,
    dim: usize,
}

impl Net {
    fn of(shape: &Shape) -> Net {
        Net {
            n_keys: shape.n_heads,
            n_values: 2 * shape.n_heads,
            dim: shape.head_dim / 2,
        }
    }

    /// Elements of all values.
    fn values(&self) -> usize {
        self.n_values * self.dim
    }

    /// Elements of queries, keys and values.
    fn convolved(&self) -> usize {
        2 * self.n_keys * self.dim + self.values()
    }
}

/// Whether a layer of Gemma 4 has a window.
fn slides(layer: usize) -> bool {
    !(layer + 1).is_multiple_of(6)
}

/// Layers of Gemma 4 that store keys and values: four sevenths, in whole groups of six; all, if that leaves
/// none.
fn n_storing(shape: &Shape) -> usize {
    let nearest = (shape.n_layers * 4 + 21) / 42 * 6;
    if nearest == 0 {
        shape.n_layers
    } else {
        nearest.min(shape.n_layers)
    }
}

/// Small matrices that stay as they are.
const FLOATS: [&str; 2] = ["ffn_gate_inp.weight", "ssm_conv1d.weight"];
/// Every so many layers of Qwen 3.5 attend.
const PERIOD: usize = 4;
/// Rows that a convolution sees.
const TAPS: usize = 4;
/// Elements that each layer of Gemma 4 takes from the token by itself.
const PER_LAYER: usize = 256;
