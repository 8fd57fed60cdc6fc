//! The least that a step can take: bytes that must be read and operations that must be done, counted
//! from the tensors of the file.

use llmsrv_gguf::{Header, TensorInfo, TensorType};

use crate::{Limits, Test};

/// What a step of a model costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Bytes of all tensors.
    pub total_bytes: u64,
    /// Weights of all tensors.
    pub n_weights: u64,
    /// Bytes of weights that every step reads.
    step_bytes: f64,
    /// Bytes of weights that some rows read: all experts of all layers.
    expert_bytes: f64,
    /// Share of the experts that a row takes.
    expert_share: f64,
    /// Operations on quantised weights for each row.
    row_int8: f64,
    /// Operations on float weights for each row.
    row_float: f64,
    /// The same for each row of logits.
    head_int8: f64,
    head_float: f64,
    /// Operations of attention for each row and each position it sees.
    attention: f64,
    /// Bytes of keys and values of one position.
    kv_bytes: f64,
}

impl Cost {
    /// Counts the tensors of a decoder. `kv_bytes` are those of the cache for one position.
    pub fn of(header: &Header, kv_bytes: f64) -> Cost {
        let metadata = &header.metadata;
        let architecture = metadata.architecture().unwrap_or_default();
        let count = |key: &str| metadata.usize(&format!("{architecture}.{key}"));
        let n_experts = count("expert_count").unwrap_or(0);
        let n_used = count("expert_used_count").unwrap_or(0);
        let heads = count("attention.head_count").unwrap_or(0);
        let head_dim = count("attention.key_length")
            .or_else(|| count("embedding_length")?.checked_div(heads))
            .unwrap_or(0);
        let n_layers = count("block_count").unwrap_or(0);
        let mut cost = Cost {
            expert_share: if n_experts > 0 {
                n_used as f64 / n_experts as f64
            } else {
                0.0
            },
            // Two products of two operations for each element of the queries.
            attention: 4.0 * (n_layers * heads * head_dim) as f64,
            kv_bytes,
            ..Cost::default()
        };
        let is_tied = header.tensor("output.weight").is_none();
        for tensor in &header.tensors {
            cost.add(tensor, is_tied);
        }
        cost
    }

    fn add(&mut self, tensor: &TensorInfo, is_tied: bool) {
        self.total_bytes = self.total_bytes.saturating_add(tensor.bytes);
        self.n_weights = self.n_weights.saturating_add(tensor.n_elements());
        let name = tensor.name.as_str();
        if ["v.", "mm."].iter().any(|part| name.starts_with(part)) {
            return;
        }
        let (bytes, ops) = (tensor.bytes as f64, 2.0 * tensor.n_elements() as f64);
        let is_matrix = tensor.shape.len() > 1;
        let is_float = tensor.dtype.block_len() == 1 && tensor.dtype != TensorType::I8;
        let is_head = name == "output.weight" || is_tied && name == "token_embd.weight";
        if name == "token_embd.weight" && !is_tied {
            return; // one row of it
        }
        if name.contains("_exps.") {
            self.expert_bytes += bytes;
            let ops = ops * self.expert_share;
            *(if is_float {
                &mut self.row_float
            } else {
                &mut self.row_int8
            }) += ops;
            return;
        }
        self.step_bytes += bytes;
        if !is_matrix {
            return;
        }
        let sum = match (is_head, is_float) {
            (true, true) => &mut self.head_float,
            (true, false) => &mut self.head_int8,
            (false, true) => &mut self.row_float,
            (false, false) => &mut self.row_int8,
        };
        *sum += ops;
    }

    /// Returns the tokens per second that the machine's limits allow. Sliding windows are not taken
    /// into account: there the true limit at depth is higher.
    pub fn limit(&self, test: Test, limits: &Limits) -> f64 {
        let seconds = match test {
            Test::Prefill { n, depth } => {
                let n_steps = n.div_ceil(STEP_TOKENS) as f64;
                let n = n as f64;
                let seen = n * (depth as f64 + f64::midpoint(n, 1.0));
                let compute = (n * self.row_int8 + self.head_int8) / limits.int8.median
                    + (n * self.row_float + self.head_float + seen * self.attention)
                        / limits.float.median;
                let memory = n_steps * (self.step_bytes + self.expert_bytes) / limits.read.median;
                compute.max(memory)
            }
            Test::Decode { n, depth, batch } => {
                let (n, rows) = (n as f64, batch as f64);
                let seen = rows * (depth as f64 + f64::midpoint(n, 1.0));
                let experts = 1.0 - (1.0 - self.expert_share).powf(rows);
                let bytes = self.step_bytes + experts * self.expert_bytes + seen * self.kv_bytes;
                let compute = rows * (self.row_int8 + self.head_int8) / limits.int8.median
                    + (rows * (self.row_float + self.head_float) + seen * self.attention)
                        / limits.float.median;
                n * compute.max(bytes / limits.read.median)
            }
        };
        test.tokens() as f64 / seconds
    }
}

/// Rows of a step while a prompt is read; the engine's own default.
pub(crate) const STEP_TOKENS: usize = 512;

#[cfg(test)]
mod tests {
    use llmsrv_gguf::Metadata;

    use super::*;
    use crate::Figure;

    /// The shape of Qwen2.5-0.5B with all matrices in one type.
    fn header(dtype: TensorType) -> Header {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", "qwen2");
        metadata.set("qwen2.block_count", 24_u32);
        metadata.set("qwen2.embedding_length", 896_u32);
        metadata.set("qwen2.attention.head_count", 14_u32);
        let mut tensors = Vec::new();
        let mut add = |name: &str, shape: &[u64]| {
            let n_elements = shape.iter().product();
            let ty = if shape.len() > 1 {
                dtype
            } else {
                TensorType::F32
            };
            tensors.push(TensorInfo {
                name: name.to_owned(),
                shape: shape.to_vec(),
                dtype: ty,
                offset: 0,
                bytes: ty.bytes_for(n_elements).unwrap_or(0),
            });
        };
        add("token_embd.weight", &[896, 151_936]);
        for layer in 0..24 {
            for (part, shape) in [
                ("attn_q", [896, 896]),
                ("attn_k", [896, 128]),
                ("attn_v", [896, 128]),
                ("attn_output", [896, 896]),
                ("ffn_gate", [896, 4864]),
                ("ffn_up", [896, 4864]),
                ("ffn_down", [4864, 896]),
            ] {
                add(&format!("blk.{layer}.{part}.weight"), &shape);
            }
            add(&format!("blk.{layer}.attn_norm.weight"), &[896]);
        }
        Header {
            version: 3,
            metadata,
            tensors,
            alignment: 32,
            data_start: 0,
        }
    }

    #[test]
    fn limits_follow_from_bytes_and_operations() {
        let limits = Limits {
            read: Figure::of(vec![60e9]),
            int8: Figure::of(vec![935e9]),
            int8_instruction: "",
            float: Figure::of(vec![461e9]),
            float_instruction: "",
        };
        let cost = Cost::of(&header(TensorType::Q8_0), 12_288.0);
        let tg = cost.limit(
            Test::Decode {
                n: 1,
                depth: 0,
                batch: 1,
            },
            &limits,
        );
        // 494 M weights of 8.5 bits at 60 GB/s.
        assert!((tg - 114.0).abs() < 2.0, "{tg}");
        let pp = cost.limit(Test::Prefill { n: 512, depth: 0 }, &limits);
        // 0.716 Gop for each token at 935 Gop/s, and some attention.
        assert!((1190.0..1306.0).contains(&pp), "{pp}");
        let float = Cost::of(&header(TensorType::BF16), 12_288.0);
        let slower = float.limit(Test::Prefill { n: 512, depth: 0 }, &limits);
        assert!(slower < pp * 0.55, "{slower}");
        let batch = |batch| {
            cost.limit(
                Test::Decode {
                    n: 16,
                    depth: 128,
                    batch,
                },
                &limits,
            )
        };
        assert!(
            (batch(2) / batch(1) - 2.0).abs() < 0.05,
            "two for the price of one"
        );
        assert!(batch(64) < 1300.0, "then the multipliers are the limit");
    }
}
