//! Files that lie: every one gives an error of one line or a model that computes something.

use std::{fs, path::Path};

use crate::tiny::{CASES, Case, File, VOCAB, all_logits, plan};
use llmsrv_engine::{LoadError, LoadOptions, Loaded};
use llmsrv_gguf::TensorType;
use proptest::prelude::*;

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap()
}

fn load_as(path: &Path, device: &str, kv_cache_type: &str) -> Result<Loaded, LoadError> {
    let options = LoadOptions {
        kv_cache_type: kv_cache_type.into(),
        n_threads: 1,
        device: device.into(),
        ..LoadOptions::default()
    };
    llmsrv_models::load(path, &options)
}

fn load(bytes: &[u8]) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    load_as(&path, "cpu", "f16")
}

/// A change of a good file.
type Lie = fn(&mut File);

/// The model, what is changed, and what the error says.
const LIES: &[(&str, Lie, &str)] = &[
    (
        "llama",
        |file| file.metadata.set("llama.block_count", 1u64 << 60),
        "invalid model file: llama.block_count is 1152921504606846976, which is too large",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.block_count", 1u32 << 30),
        "invalid model file: llama.block_count is 1073741824, more than the tensors of the file",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.block_count", 4u32),
        "invalid model file: tensor blk.3.attn_q.weight is missing",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.block_count", 2u32),
        "unsupported model: tensor blk.2.attn_norm.weight has no meaning in architecture llama",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.block_count", "three"),
        "invalid model file: llama.block_count is not a whole number",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.block_count", -3i32),
        "invalid model file: llama.block_count is not a whole number",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.attention.head_count", 0u32),
        "invalid model file: llama.attention.head_count is missing",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.attention.head_count", 65u32),
        "invalid model file: llama.attention.head_count_kv is 2, which does not divide 65 heads",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.attention.head_count", 1u32 << 30),
        "invalid model file: llama.attention.head_count is 1073741824, more than 64",
    ),
    (
        "llama",
        |file| {
            file.metadata
                .set("llama.attention.head_count_kv", vec![2u32, 2, 1]);
        },
        "invalid model file: tensor blk.2.attn_k.weight has shape [64, 32], not [64, 16]",
    ),
    (
        "llama",
        |file| {
            file.metadata
                .set("llama.attention.head_count_kv", vec![2u32, 2]);
        },
        "invalid model file: llama.attention.head_count_kv has 2 entries for 3 layers",
    ),
    (
        "llama",
        |file| {
            file.metadata
                .set("llama.feed_forward_length", vec![96i32, 96, -1]);
        },
        "invalid model file: llama.feed_forward_length is -1 in layer 2",
    ),
    (
        "llama",
        |file| {
            file.metadata
                .set("llama.attention.head_count", vec![4u64, 1 << 40, 4]);
        },
        "invalid model file: llama.attention.head_count is 1099511627776 in layer 1",
    ),
    (
        "llama",
        |file| {
            file.metadata
                .set("llama.attention.head_count_kv", vec![2u32, 0, 2]);
        },
        "invalid model file: llama.attention.head_count_kv is 0 in layer 1",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.shortconv.l_cache", 0u32),
        "invalid model file: lfm2.shortconv.l_cache is missing",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.shortconv.l_cache", 1u32),
        "invalid model file: lfm2.shortconv.l_cache is 1, not 2 to 64",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.shortconv.l_cache", 1u32 << 30),
        "invalid model file: lfm2.shortconv.l_cache is 1073741824, not 2 to 64",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.shortconv.l_cache", 4u32),
        "invalid model file: tensor blk.0.shortconv.conv.weight has shape [3, 64], not [4, 64]",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.attention.head_count_kv", 2u32),
        "invalid model file: tensor blk.0.attn_q.weight is missing",
    ),
    (
        "granitehybrid",
        |file| file.metadata.set("granitehybrid.ssm.time_step_rank", 5u32),
        "invalid model file: granitehybrid.ssm.inner_size is 128 for 5 heads",
    ),
    (
        "granitehybrid",
        |file| file.metadata.set("granitehybrid.ssm.group_count", 2u32),
        "invalid model file: tensor blk.0.ssm_in.weight has shape [64, 292], not [64, 324]",
    ),
    (
        "granitehybrid",
        |file| file.metadata.set("granitehybrid.ssm.group_count", 3u32),
        "invalid model file: granitehybrid.ssm.group_count is 3, which does not divide 4 heads",
    ),
    (
        "mamba2",
        |file| file.metadata.set("mamba2.ssm.group_count", 5u32),
        "invalid model file: mamba2.ssm.group_count is 5, not 1 to 4",
    ),
    (
        "mamba2",
        |file| file.metadata.set("mamba2.ssm.group_count", 0u32),
        "invalid model file: mamba2.ssm.group_count is missing",
    ),
    (
        "mamba2",
        |file| file.metadata.set("mamba2.ssm.inner_size", 1u32 << 30),
        "invalid model file: mamba2.ssm.inner_size is 1073741824 for 4 heads",
    ),
    (
        "mamba2",
        |file| file.metadata.set("mamba2.ssm.conv_kernel", 65u32),
        "invalid model file: mamba2.ssm.conv_kernel is 65, not 2 to 64",
    ),
    (
        "mamba2",
        |file| file.metadata.set("mamba2.feed_forward_length", 96u32),
        "invalid model file: tensor blk.0.ffn_norm.weight is missing",
    ),
    (
        "mamba2",
        |file| file.tensor("blk.1.ssm_norm.weight").shape = vec![128],
        "invalid model file: tensor blk.1.ssm_norm.weight has shape [128], not [64, 2]",
    ),
    (
        "nemotron_h",
        |file| {
            let key = "nemotron_h.feed_forward_length";
            file.metadata.set(key, vec![0i32, -96, 0, 0, 96]);
        },
        "invalid model file: nemotron_h.feed_forward_length is -96 in layer 1",
    ),
    (
        "nemotron_h",
        |file| {
            let key = "nemotron_h.feed_forward_length";
            file.metadata.set(key, vec![0u32, 96]);
        },
        "invalid model file: nemotron_h.feed_forward_length has 2 entries for 5 layers",
    ),
    (
        "nemotron_h",
        |file| {
            let key = "nemotron_h.attention.head_count_kv";
            file.metadata.set(key, vec![0u32, 0, 0, 0, 0]);
        },
        "invalid model file: tensor blk.2.ssm_in.weight is missing",
    ),
    (
        "nemotron_h",
        |file| file.metadata.set("nemotron_h.block_count", u32::MAX >> 1),
        "invalid model file: nemotron_h.block_count is 2147483647, more than the tensors of the file",
    ),
    (
        "nemotron_h_moe",
        |file| file.metadata.set("nemotron_h_moe.expert_used_count", 7u32),
        "invalid model file: nemotron_h_moe.expert_used_count is 7 of 6 experts",
    ),
    (
        "nemotron_h_moe",
        |file| {
            let key = "nemotron_h_moe.expert_shared_feed_forward_length";
            file.metadata.set(key, 1u32 << 30);
        },
        "invalid model file: tensor blk.1.ffn_up_shexp.weight has shape [64, 80], not [64, 1073741824]",
    ),
    (
        "nemotron_h_moe",
        |file| file.metadata.set("nemotron_h_moe.expert_group_count", 4u32),
        "invalid model file: nemotron_h_moe.expert_group_count is 4, which does not divide 6 experts",
    ),
    (
        "nemotron_h_moe_latent",
        |file| file.tensor("blk.1.ffn_latent_up.weight").shape.reverse(),
        "invalid model file: tensor blk.1.ffn_latent_up.weight has shape [64, 32], not [32, 64]",
    ),
    (
        "nemotron_h_moe_latent",
        |file| file.tensor("blk.1.ffn_latent_down.weight").shape = vec![128, 16],
        "invalid model file: tensor blk.1.ffn_latent_down.weight has shape [128, 16], not [64, 16]",
    ),
    (
        "lfm2moe",
        |file| file.metadata.set("lfm2moe.leading_dense_block_count", 5u32),
        "invalid model file: lfm2moe.leading_dense_block_count is 5 of 4 layers",
    ),
    (
        "lfm2moe",
        |file| file.metadata.set("lfm2moe.expert_gating_func", 4u32),
        "unsupported model: lfm2moe.expert_gating_func is 4",
    ),
    (
        "falcon_h1",
        |file| file.metadata.set("falcon-h1.attention.head_count", 0u32),
        "invalid model file: falcon-h1.attention.head_count is missing",
    ),
    (
        "falcon_h1",
        |file| {
            let key = "falcon-h1.attention.head_count";
            file.metadata.set(key, vec![4u32, 0, 4]);
        },
        "invalid model file: falcon-h1.attention.head_count is 0 in layer 1",
    ),
    (
        "falcon_h1",
        |file| file.metadata.set("falcon-h1.ssm.time_step_rank", 3u32),
        "invalid model file: falcon-h1.ssm.inner_size is 128 for 3 heads",
    ),
    (
        "granitehybrid",
        |file| file.metadata.set("granitehybrid.ssm.state_size", 0u32),
        "invalid model file: granitehybrid.ssm.state_size is missing",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.ssm.group_count", 4u32),
        "invalid model file: qwen35.ssm.group_count is 4, which does not divide 6 heads",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.ssm.time_step_rank", 0u32),
        "invalid model file: qwen35.ssm.time_step_rank is missing",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.ssm.time_step_rank", 1u32 << 20),
        "invalid model file: qwen35.ssm.time_step_rank is 1048576, not 1 to 1024",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.ssm.inner_size", 64u32),
        "invalid model file: qwen35.ssm.inner_size is 64 for 6 heads of 32",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.ssm.state_size", 1u32 << 16),
        "invalid model file: qwen35.ssm.state_size is 65536, not 1 to 1024",
    ),
    (
        "qwen35",
        |file| file.tensor("blk.1.ssm_a").shape = vec![3, 2],
        "invalid model file: tensor blk.1.ssm_a has shape [3, 2], not [6]",
    ),
    (
        "qwen35",
        |file| {
            let flags = vec![true, true];
            file.metadata
                .set("qwen35.attention.recurrent_layers", flags);
        },
        "invalid model file: qwen35.attention.recurrent_layers has 2 entries for 5 layers",
    ),
    (
        "qwen35",
        |file| file.metadata.set("qwen35.full_attention_interval", 2u32),
        "invalid model file: tensor blk.1.attn_qkv.weight has shape [64, 320], not [64, 96]",
    ),
    (
        "qwen3next_first",
        |file| file.metadata.set("qwen3next.ssm.group_count", 3u32),
        "invalid model file: tensor blk.0.ssm_in.weight has shape [64, 256], not [64, 288]",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_gating_func", 5u32),
        "unsupported model: glm4moe.expert_gating_func is 5",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_gating_func", "sigmoid"),
        "invalid model file: glm4moe.expert_gating_func is not a whole number",
    ),
    (
        "glm4moe",
        |file| {
            file.metadata.set("glm4moe.leading_dense_block_count", 5u32);
        },
        "invalid model file: glm4moe.leading_dense_block_count is 5 of 4 layers",
    ),
    (
        "glm4moe",
        |file| {
            file.metadata.set("glm4moe.leading_dense_block_count", 0u32);
        },
        "invalid model file: tensor blk.0.ffn_gate_inp.weight is missing",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_group_count", 4u32),
        "invalid model file: glm4moe.expert_group_count is 4, which does not divide 6 experts",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_group_count", 3u32),
        "invalid model file: glm4moe.expert_group_used_count is missing",
    ),
    (
        "glm4moe_large",
        |file| {
            file.metadata.set("glm4moe.expert_group_count", 3u32);
            file.metadata.set("glm4moe.expert_group_used_count", 1u32);
        },
        "invalid model file: glm4moe.expert_group_used_count is 1 of 3 groups for 3 of 6 experts",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_shared_count", 1u32 << 30),
        "invalid model file: tensor blk.1.ffn_gate_shexp.weight has shape [64, 24], not \
         [64, 25769803776]",
    ),
    (
        "glm4moe",
        |file| file.metadata.set("glm4moe.expert_weights_scale", f32::NAN),
        "invalid model file: glm4moe.expert_weights_scale is not finite",
    ),
    (
        "glm4moe",
        |file| file.tensor("blk.1.exp_probs_b.bias").shape = vec![3, 2],
        "invalid model file: tensor blk.1.exp_probs_b.bias has shape [3, 2], not [6]",
    ),
    (
        "deepseek2",
        |file| file.metadata.set("deepseek2.attention.kv_lora_rank", 0u32),
        "invalid model file: deepseek2.attention.kv_lora_rank is missing",
    ),
    (
        "deepseek2",
        |file| {
            let key = "deepseek2.attention.kv_lora_rank";
            file.metadata.set(key, 1u32 << 30);
        },
        "invalid model file: deepseek2.attention.kv_lora_rank is 1073741824, not 1 to 16384",
    ),
    (
        "deepseek2",
        |file| file.metadata.set("deepseek2.attention.kv_lora_rank", 31u32),
        "invalid model file: tensor blk.0.attn_kv_a_mqa.weight has shape [64, 40], not [64, 39]",
    ),
    (
        "deepseek2",
        |file| file.metadata.set("deepseek2.attention.q_lora_rank", 0u32),
        "invalid model file: deepseek2.attention.q_lora_rank is missing",
    ),
    (
        "deepseek2",
        |file| file.metadata.set("deepseek2.attention.q_lora_rank", 47u32),
        "invalid model file: tensor blk.0.attn_q_a.weight has shape [64, 48], not [64, 47]",
    ),
    (
        "deepseek2",
        |file| {
            let key = "deepseek2.attention.key_length_mla";
            file.metadata.set(key, 8u32);
        },
        "invalid model file: deepseek2.rope.dimension_count is 8 in heads of 8",
    ),
    (
        "deepseek2",
        |file| {
            let key = "deepseek2.attention.value_length_mla";
            file.metadata.set(key, 1u32 << 20);
        },
        "invalid model file: deepseek2.attention.value_length_mla is 1048576, not 1 to 16384",
    ),
    (
        "deepseek2",
        |file| file.metadata.set("deepseek2.rope.dimension_count", 7u32),
        "invalid model file: deepseek2.rope.dimension_count is 7 in heads of 40",
    ),
    (
        "deepseek2",
        |file| {
            let key = "deepseek2.attention.head_count";
            file.metadata.set(key, 1u32 << 30);
            file.metadata.set("deepseek2.attention.key_length", 40u32);
        },
        "invalid model file: tensor blk.0.attn_q_b.weight has shape [48, 96], not [48, 25769803776]",
    ),
    (
        "deepseek2",
        |file| file.tensor("blk.2.attn_k_b.weight").shape = vec![32, 16, 4],
        "invalid model file: tensor blk.2.attn_k_b.weight has shape [32, 16, 4], not [16, 32, 4]",
    ),
    (
        "deepseek2_lite",
        |file| file.tensor("blk.1.attn_kv_b.weight").shape.reverse(),
        "invalid model file: tensor blk.1.attn_kv_b.weight has shape [128, 24], not [24, 128]",
    ),
    (
        "deepseek2_temperature",
        |file| {
            let key = "deepseek2.attention.temperature_length";
            file.metadata.set(key, 0u32);
        },
        "invalid model file: deepseek2.attention.temperature_length is missing",
    ),
    (
        "gemma3n",
        |file| file.metadata.set("gemma3n.altup.num_inputs", 1u32),
        "invalid model file: gemma3n.altup.num_inputs is 1, not 2 to 16",
    ),
    (
        "gemma3n",
        |file| file.metadata.set("gemma3n.altup.num_inputs", 5u32),
        "invalid model file: tensor blk.0.altup_router.weight has shape [32, 4], not [32, 5]",
    ),
    (
        "gemma3n",
        |file| file.metadata.set("gemma3n.altup.active_idx", 1u32),
        "unsupported model: gemma3n.altup.active_idx is not 0",
    ),
    (
        "gemma3n",
        |file| {
            let key = "gemma3n.activation_sparsity_scale";
            file.metadata.set(key, vec![1.5f32; 24]);
        },
        "invalid model file: gemma3n.activation_sparsity_scale has 24 entries for 25 layers",
    ),
    (
        "gemma3n",
        |file| {
            let key = "gemma3n.attention.shared_kv_layers";
            file.metadata.set(key, 24u32);
        },
        "invalid model file: gemma3n.attention.shared_kv_layers is 24 of 25 layers",
    ),
    (
        "gemma3n",
        |file| {
            let name = "blk.0.laurel_l.weight";
            file.tensors.retain(|tensor| tensor.name != name);
        },
        "invalid model file: tensor blk.0.laurel_l.weight is missing",
    ),
    (
        "gemma3n",
        |file| file.tensor("altup_unembd_proj.weight").shape = vec![32, 96],
        "invalid model file: tensor altup_unembd_proj.weight has shape [32, 96], not [32, 32, 3]",
    ),
    (
        "gemma3n",
        |file| {
            let tensor = file.tensor("blk.3.altup_predict_coef.weight");
            tensor.shape.reverse();
        },
        "invalid model file: tensor blk.3.altup_predict_coef.weight has shape [16, 4], not [4, 16]",
    ),
    (
        "llama4",
        |file| file.metadata.set("llama4.interleave_moe_layer_step", 0u32),
        "invalid model file: llama4.interleave_moe_layer_step is missing",
    ),
    (
        "llama4",
        |file| file.metadata.set("llama4.interleave_moe_layer_step", 6u32),
        "invalid model file: llama4.interleave_moe_layer_step is 6, not 1 to 5",
    ),
    (
        "llama4",
        |file| file.metadata.set("llama4.interleave_moe_layer_step", 3u32),
        "invalid model file: tensor blk.1.ffn_gate.weight is missing",
    ),
    (
        "llama4",
        |file| file.metadata.set("llama4.attention.chunk_size", 1u64 << 40),
        "invalid model file: llama4.attention.chunk_size is 1099511627776, which is too large",
    ),
    (
        "gpt_oss",
        |file| file.metadata.set("gpt-oss.attention.sliding_window", 0u32),
        "invalid model file: gpt-oss.attention.sliding_window is missing",
    ),
    (
        "gpt_oss",
        |file| file.tensor("blk.1.attn_sinks.weight").shape = vec![2, 2],
        "invalid model file: tensor blk.1.attn_sinks.weight has shape [2, 2], not [4]",
    ),
    (
        "gpt_oss",
        |file| {
            file.tensors
                .retain(|tensor| tensor.name != "blk.2.attn_sinks.weight");
        },
        "invalid model file: tensor blk.2.attn_sinks.weight is missing",
    ),
    (
        "gpt_oss",
        |file| file.tensor("blk.0.ffn_up_exps.bias").shape.reverse(),
        "invalid model file: tensor blk.0.ffn_up_exps.bias has shape [6, 48], not [48, 6]",
    ),
    (
        "gemma4",
        |file| file.metadata.set("gemma4.attention.shared_kv_layers", 7u32),
        "invalid model file: gemma4.attention.shared_kv_layers is 7 of 8 layers",
    ),
    (
        "gemma4",
        |file| file.metadata.set("gemma4.attention.shared_kv_layers", 3u32),
        "invalid model file: layer 5 attends to the keys of layer 4, which are of another shape",
    ),
    (
        "gemma4",
        |file| file.metadata.set("gemma4.rope.dimension_count_swa", 18u32),
        "invalid model file: gemma4.rope.dimension_count_swa is 18 in heads of 16",
    ),
    (
        "gemma4",
        |file| file.metadata.set("gemma4.attention.value_length_swa", 8u32),
        "unsupported model: keys and values of different length",
    ),
    (
        "gemma4",
        |file| {
            let key = "gemma4.embedding_length_per_layer_input";
            file.metadata.set(key, 1u32 << 30);
        },
        "invalid model file: tensor blk.0.inp_gate.weight has shape [64, 32], not [64, 1073741824]",
    ),
    (
        "gemma4",
        |file| file.tensor("per_layer_token_embd.weight").shape = vec![96, 256],
        "invalid model file: tensor per_layer_token_embd.weight has shape [96, 256], not [256, 256]",
    ),
    (
        "gpt2",
        |file| file.metadata.set("gpt2.context_length", 513u32),
        "invalid model file: tensor position_embd.weight has shape [64, 512], not [64, 513]",
    ),
    (
        "cohere2",
        |file| file.metadata.set("cohere2.logit_scale", f32::INFINITY),
        "invalid model file: cohere2.logit_scale is not finite",
    ),
    (
        "gemma4_experts",
        |file| file.tensor("blk.1.ffn_gate_inp.scale").shape = vec![8, 8],
        "invalid model file: tensor blk.1.ffn_gate_inp.scale has shape [8, 8], not [64]",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.attention.key_length", 1u32 << 30),
        "invalid model file: llama.attention.key_length is 1073741824, which is too large",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.attention.value_length", 8u32),
        "unsupported model: keys and values of different length",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.rope.dimension_count", 15u32),
        "invalid model file: llama.rope.dimension_count is 15 in heads of 16",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.rope.dimension_count", 18u32),
        "invalid model file: llama.rope.dimension_count is 18 in heads of 16",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.embedding_length", 128u32),
        "invalid model file: tensor blk.0.attn_q.weight has shape [64, 64], not [128, 128]",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.context_length", 0u32),
        "invalid model file: llama.context_length is missing",
    ),
    (
        "llama",
        |file| {
            let key = "llama.attention.layer_norm_rms_epsilon";
            file.metadata.set(key, f32::NAN);
        },
        "invalid model file: llama.attention.layer_norm_rms_epsilon is not finite",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.rope.freq_base", -1.0f32),
        "invalid model file: llama.rope.freq_base is negative",
    ),
    (
        "llama",
        |file| file.metadata.set("llama.rope.scaling.type", "magic"),
        "unsupported model: llama.rope.scaling.type is \"magic\"",
    ),
    (
        "llama",
        |file| {
            file.tensors
                .retain(|tensor| tensor.name != "output_norm.weight");
        },
        "invalid model file: tensor output_norm.weight is missing",
    ),
    (
        "llama",
        |file| file.tensor("blk.1.ffn_down.weight").shape.reverse(),
        "invalid model file: tensor blk.1.ffn_down.weight has shape [64, 96], not [96, 64]",
    ),
    (
        "llama",
        |file| file.tensor("blk.1.attn_norm.weight").dtype = TensorType::I32,
        "unsupported model: tensor blk.1.attn_norm.weight is of type I32",
    ),
    (
        "llama",
        |file| {
            let tensor = file.tensor("token_embd.weight");
            tensor.shape[1] -= 1;
            tensor.bytes.truncate(95 * 64 * 4);
        },
        "invalid model file: tensor token_embd.weight has shape [64, 95], not [64, 96]",
    ),
    (
        "glm4",
        |file| file.metadata.set("glm4.nextn_predict_layers", 3u32),
        "invalid model file: glm4.nextn_predict_layers is 3 of 3 layers",
    ),
    (
        "glm4",
        |file| file.metadata.set("glm4.nextn_predict_layers", "all"),
        "invalid model file: glm4.nextn_predict_layers is not a whole number",
    ),
    (
        "llama",
        |file| file.metadata.set("general.architecture", 7u32),
        "invalid model file: general.architecture is missing",
    ),
    (
        "llama",
        |file| file.metadata.set("tokenizer.ggml.model", "clippy"),
        "unsupported model: unsupported tokenizer model \"clippy\"",
    ),
    (
        "mixtral",
        |file| file.metadata.set("llama.expert_used_count", 7u32),
        "invalid model file: llama.expert_used_count is 7 of 6 experts",
    ),
    (
        "mixtral",
        |file| file.metadata.set("llama.expert_count", 1u32 << 30),
        "invalid model file: tensor blk.0.ffn_gate_inp.weight has shape [64, 6], not \
         [64, 1073741824]",
    ),
    (
        "qwen2moe",
        |file| {
            let name = "blk.0.ffn_gate_inp_shexp.weight";
            file.tensors.retain(|tensor| tensor.name != name);
        },
        "invalid model file: tensor blk.0.ffn_gate_inp_shexp.weight is missing",
    ),
    (
        "gemma3_listed",
        |file| {
            let key = "gemma3.attention.sliding_window_pattern";
            file.metadata.set(key, vec![true]);
        },
        "invalid model file: gemma3.attention.sliding_window_pattern has 1 entries for 3 layers",
    ),
    (
        "phi3",
        |file| file.tensor("blk.0.attn_qkv.weight").shape = vec![128, 64],
        "invalid model file: tensor blk.0.attn_qkv.weight has shape [128, 64], not [64, 128]",
    ),
    (
        "gemma2",
        |file| file.metadata.set("gemma2.attention.causal", false),
        "unsupported model: a decoder whose tokens see those after them",
    ),
    (
        "lfm2",
        |file| file.metadata.set("lfm2.attention.causal", false),
        "unsupported model: a decoder whose tokens see those after them",
    ),
    (
        "deci",
        |file| {
            let key = "deci.attention.head_count_kv";
            file.metadata.set(key, vec![2u32, 0, 0, 0, 4]);
        },
        "unsupported model: layer 2 has a matrix in place of attention",
    ),
    (
        "deci",
        |file| {
            let key = "deci.attention.head_count";
            file.metadata.set(key, vec![4u32, 0, 0, 0, 4]);
        },
        "invalid model file: deci.attention.head_count is 0 in layer 2",
    ),
    (
        "granite",
        |file| file.metadata.set("granite.logit_scale", 0.0f32),
        "invalid model file: granite.logit_scale is missing",
    ),
    (
        "arctic",
        |file| {
            let name = "blk.1.ffn_norm_exps.weight";
            file.tensors.retain(|tensor| tensor.name != name);
        },
        "invalid model file: tensor blk.1.ffn_norm_exps.weight is missing",
    ),
    (
        "arctic",
        |file| file.tensor("blk.0.ffn_up.weight").shape = vec![32, 128],
        "invalid model file: tensor blk.0.ffn_up.weight has shape [32, 128], not [64, 64]",
    ),
    (
        "arctic",
        |file| file.metadata.set("arctic.expert_count", 0u32),
        "invalid model file: tensor blk.0.ffn_gate.weight has shape [64, 64], not [64, 48]",
    ),
    (
        "bitnet",
        |file| file.tensor("blk.2.ffn_sub_norm.weight").shape = vec![48, 2],
        "invalid model file: tensor blk.2.ffn_sub_norm.weight has shape [48, 2], not [96]",
    ),
    (
        "bitnet_b158",
        |file| {
            let name = "blk.0.attn_sub_norm.weight";
            file.tensors.retain(|tensor| tensor.name != name);
        },
        "invalid model file: tensor blk.0.attn_sub_norm.weight is missing",
    ),
    (
        "deepseek32",
        |file| {
            file.metadata
                .set("deepseek32.attention.indexer.top_k", 0u32);
        },
        "invalid model file: deepseek32.attention.indexer.top_k is missing",
    ),
    (
        "dbrx",
        |file| file.metadata.set("dbrx.attention.clamp_kqv", -1.0f32),
        "invalid model file: dbrx.attention.clamp_kqv is negative",
    ),
    (
        "dbrx",
        |file| file.metadata.set("dbrx.attention.clamp_kqv", f32::NAN),
        "invalid model file: dbrx.attention.clamp_kqv is not finite",
    ),
    (
        "phimoe",
        |file| file.metadata.set("phimoe.expert_used_count", 7u32),
        "invalid model file: phimoe.expert_used_count is 7 of 6 experts",
    ),
    (
        "smallthinker",
        |file| file.metadata.set("smallthinker.expert_gating_func", 9u32),
        "unsupported model: smallthinker.expert_gating_func is 9",
    ),
    (
        "smallthinker_window",
        |file| {
            let key = "smallthinker.attention.sliding_window";
            file.metadata.set(key, 1u64 << 40);
        },
        "invalid model file: smallthinker.attention.sliding_window is 1099511627776, which is too large",
    ),
    (
        "deepseek2_ocr",
        |file| {
            file.metadata
                .set("deepseek2-ocr.leading_dense_block_count", 9u32);
        },
        "invalid model file: deepseek2-ocr.leading_dense_block_count is 9 of 3 layers",
    ),
    (
        "deepseek2_ocr",
        |file| {
            file.metadata
                .set("deepseek2-ocr.expert_shared_count", u32::MAX >> 1);
        },
        "invalid model file: tensor blk.1.ffn_gate_shexp.weight has shape [64, 48], not [64, 51539607528]",
    ),
];

#[test]
fn lies_are_named() {
    for (name, lie, expected) in LIES {
        let mut file = case(name).file();
        lie(&mut file);
        let error = load(&file.bytes()).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(*expected));
    }
}

#[test]
fn an_unknown_architecture_is_told_the_known_ones() {
    let mut file = case("llama").file();
    file.metadata.set("general.architecture", "clippy");
    let error = load(&file.bytes()).err().unwrap().to_string();
    let known: Vec<&str> = llmsrv_models::architectures()
        .chain(llmsrv_models::encoders())
        .collect();
    let known = known.join(", ");
    assert_eq!(
        error,
        format!("unsupported model: architecture \"clippy\" (known: {known})")
    );
    assert!(known.contains("llama, ") && known.contains("nomic-bert"));
}

#[test]
fn a_known_architecture_that_does_not_run_says_why() {
    let mut file = case("llama").file();
    file.metadata.set("general.architecture", "deepseek4");
    assert_eq!(
        load(&file.bytes()).err().unwrap().to_string(),
        "unsupported model: models of architecture \"deepseek4\" do not run here yet (attention to \
         compressed keys); docs/models.md lists those that do"
    );
}

/// The file can be shown and copied, but not computed with.
#[test]
fn a_tensor_of_unknown_type_is_refused_by_name() {
    let name = "blk.1.attn_norm.weight";
    let mut bytes = case("llama").bytes();
    let found = bytes.windows(name.len()).position(|w| w == name.as_bytes());
    // Behind the name: dimensions, one size, the type.
    let at = found.unwrap() + name.len() + 4 + 8;
    for (number, called) in [
        (777u32, "number 777, which is not known"),
        (36, "I2_S, which is of bitnet.cpp alone"),
    ] {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        assert_eq!(
            load(&bytes).err().unwrap().to_string(),
            format!("unsupported model: tensor {name} is of type {called}")
        );
    }
}

#[test]
fn files_that_are_not_there_or_not_models_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let missing = load_as(&folder.path().join("none"), "cpu", "f16");
    assert!(matches!(missing, Err(LoadError::Io(_))));
    assert!(matches!(load(b""), Err(LoadError::Invalid(_))));
    assert!(matches!(load(b"GGUF"), Err(LoadError::Invalid(_))));
}

#[test]
fn unknown_options_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = case("llama").write(folder.path());
    for (device, kv_cache_type, expected) in [
        (
            "abacus",
            "f16",
            "unsupported model: device \"abacus\" (known: auto, cpu, vulkan, candle)",
        ),
        (
            "cpu",
            "q1",
            "unsupported model: KV cache type \"q1\" (known: auto, f32, f16, bf16, q8_0, q4_0)",
        ),
    ] {
        let error = load_as(&path, device, kv_cache_type).err();
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some(expected)
        );
    }
    // Heads of 16 elements do not fill a block of 32, so the cache falls back to f16 (and pads them:
    // 3 layers, keys and values, 32 positions, 2 heads of 32 elements, 2 bytes).
    let mut loaded = load_as(&path, "cpu", "q8_0").unwrap();
    assert_eq!(
        loaded.model.spec().kv_block_bytes,
        3 * 2 * 32 * (2 * 32) * 2
    );
    all_logits(&mut *loaded.model, &[1, 2, 3]);
    load_as(&path, "auto", "f16").unwrap();
}

/// Queries see the positions that an indexer picks, and within so many positions that is all of them.
#[test]
fn a_context_is_not_longer_than_what_an_indexer_picks() {
    for (top_k, expected) in [(128u32, 128), (16, 16), (4096, 512)] {
        let mut file = case("deepseek32").file();
        let key = "deepseek32.attention.indexer.top_k";
        file.metadata.set(key, top_k);
        let loaded = load(&file.bytes()).unwrap();
        assert_eq!(loaded.model.spec().context_length, expected);
    }
}

/// More rows in the table than tokens, as padded vocabularies have: the rest is never predicted.
#[test]
fn padding_rows_of_the_vocabulary_are_left_out() {
    let mut file = case("llama_tied_biased").file();
    let expected = all_logits(
        &mut *load(&case("llama_tied_biased").bytes()).unwrap().model,
        &[5],
    );
    let table = file.tensor("token_embd.weight");
    table.shape[1] += 32;
    table.bytes.extend(vec![0; 32 * 64 * 4]);
    let mut loaded = load(&file.bytes()).unwrap();
    assert_eq!(loaded.model.spec().vocab_size, VOCAB);
    assert_eq!(all_logits(&mut *loaded.model, &[5]), expected);
}

/// Encoders for images and sound may be in the same file.
#[test]
fn tensors_of_other_parts_are_left_alone() {
    let mut file = case("gemma3").file();
    let mut more = case("gemma3").file().tensors;
    more.truncate(1);
    more[0].name = "v.patch_embd.weight".into();
    file.tensors.append(&mut more);
    load(&file.bytes()).unwrap();
}

#[test]
fn broken_plans_are_errors() {
    use llmsrv_engine::{BlockId, StepPlan};
    let mut model = load(&case("llama").bytes()).unwrap().model;
    model.reserve_blocks(2).unwrap();
    let blocks = [BlockId(0), BlockId(1)];
    let good = || plan(&[1, 2, 3], 4, &blocks, false);
    let breaks: [fn(&mut StepPlan); 12] = [
        |plan| plan.tokens[1] = 96,
        |plan| plan.tokens[1] = u32::MAX,
        |plan| plan.positions[0] = 9,
        |plan| plan.positions.truncate(2),
        |plan| plan.spans.clear(),
        |plan| plan.spans[0].rows = 0..2,
        |plan| plan.spans[0].rows = 1..3,
        |plan| plan.spans[0].blocks.clear(),
        |plan| plan.spans[0].blocks[0] = BlockId(2),
        |plan| plan.spans[0].tail = Some(BlockId(2)),
        |plan| plan.spans[0].start = u32::MAX,
        |plan| plan.logit_rows = vec![3],
    ];
    for (idx, break_it) in breaks.iter().enumerate() {
        let mut plan = good();
        break_it(&mut plan);
        let mut logits = vec![0.0; plan.logit_rows.len() * VOCAB];
        assert!(model.forward(&plan, &mut logits).is_err(), "{idx}");
    }
    assert!(model.forward(&good(), &mut [0.0; 95]).is_err());
    assert!(model.forward(&StepPlan::default(), &mut []).is_ok());
    assert!(model.forward(&good(), &mut vec![0.0; 96]).is_ok());
}

#[test]
fn broken_plans_of_states_are_errors() {
    use llmsrv_engine::{BlockId, SpanState, StateId, StepPlan};
    let mut model = load(&case("lfm2").bytes()).unwrap().model;
    model.reserve_blocks(2).unwrap();
    model.reserve_states(2).unwrap();
    let good = || {
        let mut plan = plan(&[1, 2, 3], 4, &[BlockId(0), BlockId(1)], false);
        plan.spans[0].state = Some(SpanState {
            slot: StateId(0),
            from: None,
            saves: vec![(1, StateId(1))],
        });
        plan
    };
    let breaks: [fn(&mut SpanState); 6] = [
        |state| state.slot = StateId(2),
        |state| state.from = Some(StateId(2)),
        |state| state.from = Some(state.slot),
        |state| state.saves[0].1 = state.slot,
        |state| state.saves[0].0 = 4,
        |state| state.saves.push((1, StateId(1))),
    ];
    let mut logits = vec![0.0; VOCAB];
    for (idx, break_it) in breaks.iter().enumerate() {
        let mut plan = good();
        break_it(plan.spans[0].state.as_mut().unwrap());
        assert!(model.forward(&plan, &mut logits).is_err(), "{idx}");
    }
    let without = |mut plan: StepPlan| {
        plan.spans[0].state = None;
        plan
    };
    assert!(model.forward(&without(good()), &mut logits).is_err());
    assert!(model.forward(&good(), &mut logits).is_ok());
    let mut other = load(&case("llama").bytes()).unwrap().model;
    other.reserve_blocks(2).unwrap();
    assert!(other.forward(&good(), &mut logits).is_err());
    assert!(other.forward(&without(good()), &mut logits).is_ok());
}

/// Loads damaged bytes and, if that works, computes a step.
fn try_all(bytes: &[u8]) {
    if let Ok(mut loaded) = load(bytes) {
        let spec = loaded.model.spec();
        if spec.vocab_size > 3 && spec.kv_block_bytes < 1 << 24 && spec.state_bytes < 1 << 24 {
            all_logits(&mut *loaded.model, &[0, 3, 1]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The header of a tiny model is about 6 kB; damage there matters most.
    #[test]
    fn damaged_bytes_do_no_harm(
        case in 0..CASES.len(),
        damage in prop::collection::vec((0usize..6000, any::<u8>()), 1..4),
    ) {
        let mut bytes = CASES[case].bytes();
        for (at, value) in damage {
            bytes[at] = value;
        }
        try_all(&bytes);
    }

    #[test]
    fn damaged_numbers_do_no_harm(
        case in 0..CASES.len(),
        which in any::<prop::sample::Index>(),
        value in prop_oneof![0u32..300, any::<u32>(), Just(f32::NAN.to_bits()), Just(0x7f80_0000)],
    ) {
        // Replaces the value of a whole u32 or f32 key.
        let mut file = CASES[case].file();
        let prefix = format!("{}.", CASES[case].architecture);
        let keys: Vec<(String, bool)> = file
            .metadata
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key.to_owned(), matches!(value, llmsrv_gguf::Value::F32(_))))
            .collect();
        let (key, is_float) = which.get(&keys);
        if *is_float {
            file.metadata.set(key, f32::from_bits(value));
        } else {
            file.metadata.set(key, value);
        }
        try_all(&file.bytes());
    }

    #[test]
    fn cut_files_do_no_harm(case in 0..CASES.len(), at in any::<prop::sample::Index>()) {
        let bytes = CASES[case].bytes();
        try_all(&bytes[..at.index(bytes.len())]);
    }
}
