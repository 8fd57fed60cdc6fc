//! What the tests share.

use llmsrv_gguf::{Metadata, TensorType, Writer};

/// Numbers that look random and are the same everywhere: xorshift,
/// <https://www.jstatsoft.org/article/view/v008i14>.
pub(crate) fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| unit()).collect()
}

/// The blocks of some values.
pub(crate) fn packed(ty: TensorType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() / ty.block_len() * ty.block_bytes()];
    llmsrv_kernels::quantize(ty, values, &mut bytes).unwrap();
    bytes
}

/// The values of some blocks.
pub(crate) fn unpacked(ty: TensorType, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    llmsrv_kernels::dequantize(ty, bytes, &mut values).unwrap();
    values
}

/// A Llama of `n_layers` layers without a vocabulary, its matrices of type `ty`.
pub(crate) fn llama(n_layers: usize, width: u64, hidden: u64, ty: TensorType) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("llama.block_count", n_layers as u32);
    metadata.set("llama.attention.head_count", 4_u32);
    metadata.set("llama.attention.head_count_kv", 2_u32);
    metadata.set("split.no", 0_u16);
    metadata.set("split.count", 0_u16);
    let mut writer = Writer::new(metadata);
    let mut add = |name: String, shape: &[u64], ty| {
        let len = shape.iter().product::<u64>() as usize;
        let data = packed(ty, &values(len, name.len() as u64 + 7 * len as u64));
        writer.tensor(&name, shape, ty, data).unwrap();
    };
    add("token_embd.weight".into(), &[width, 40], ty);
    add("output.weight".into(), &[width, 40], ty);
    add("output_norm.weight".into(), &[width], TensorType::F32);
    for layer in 0..n_layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        add(name("attn_norm"), &[width], TensorType::F32);
        add(name("attn_q"), &[width, width], ty);
        add(name("attn_k"), &[width, width / 2], ty);
        add(name("attn_v"), &[width, width / 2], ty);
        add(name("attn_output"), &[width, width], ty);
        add(name("ffn_norm"), &[width], TensorType::F32);
        add(name("ffn_gate"), &[width, hidden], ty);
        add(name("ffn_up"), &[width, hidden], ty);
        add(name("ffn_down"), &[hidden, width], ty);
    }
    writer.to_bytes().unwrap()
}
