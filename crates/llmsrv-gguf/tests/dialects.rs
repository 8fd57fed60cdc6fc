//! Files of the public library's own dialects are read as what they mean.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use llmsrv_gguf::{GgufFile, Header, Metadata, TensorType, Writer};
use proptest::prelude::*;

/// Makes the header of a file with these keys and tensors of one row.
fn header(set: &dyn Fn(&mut Metadata), tensors: &[(&str, [u64; 2])]) -> Header {
    let mut metadata = Metadata::new();
    set(&mut metadata);
    let mut writer = Writer::new(metadata);
    for (name, shape) in tensors {
        let data = vec![0; (shape[0] * shape[1]) as usize * 4];
        writer.tensor(name, shape, TensorType::F32, data).unwrap();
    }
    let bytes = writer.to_bytes().unwrap();
    Header::parse(&bytes, bytes.len() as u64).unwrap()
}

#[test]
fn architectures_keys_and_tensors_get_their_usual_names() {
    let mut header = header(
        &|metadata| {
            metadata.set("general.architecture", "gptoss");
            metadata.set("gptoss.block_count", 1u32);
            metadata.set("gptossy.block_count", 9u32);
        },
        &[
            ("blk.0.attn_out.weight", [1, 1]),
            ("blk.0.attn_sinks", [1, 1]),
            ("blk.0.ffn_norm.weight", [1, 1]),
            ("blk.0.attn_q.weight", [1, 1]),
            ("attn_out.weight", [1, 1]),
        ],
    );
    header.translate();
    let metadata = &header.metadata;
    assert_eq!(metadata.architecture(), Some("gpt-oss"));
    assert_eq!(metadata.u64("gpt-oss.block_count"), Some(1));
    assert_eq!(metadata.get("gptoss.block_count"), None);
    assert_eq!(metadata.u64("gptossy.block_count"), Some(9));
    assert_eq!(metadata.str("gpt-oss.rope.scaling.type"), Some("yarn"));
    assert_eq!(metadata.str("tokenizer.ggml.pre"), Some("gpt-4o"));
    let names: Vec<&str> = header.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "blk.0.attn_output.weight",
            "blk.0.attn_sinks.weight",
            "blk.0.post_attention_norm.weight",
            "blk.0.attn_q.weight",
            "attn_out.weight",
        ]
    );
}

#[test]
fn what_a_file_says_itself_is_kept() {
    let mut header = header(
        &|metadata| {
            metadata.set("general.architecture", "glmocr");
            metadata.set("glmocr.attention.key_length", 128u32);
            metadata.set("glmocr.rope.dimension_count", 64u32);
            metadata.set("glmocr.rope.mrope_section", vec![8u32, 12, 12]);
            metadata.set("tokenizer.ggml.pre", "glm4");
        },
        &[
            ("blk.0.attn_out.weight", [1, 1]),
            ("blk.0.attn_output.weight", [1, 1]),
        ],
    );
    header.translate();
    let metadata = &header.metadata;
    assert_eq!(metadata.u64("glm4.rope.dimension_count"), Some(64));
    assert_eq!(
        metadata.i64s("glm4.rope.dimension_sections"),
        Some(vec![8, 12, 12])
    );
    assert_eq!(metadata.str("tokenizer.ggml.pre"), Some("glm4"));
    // No two tensors get one name.
    assert_eq!(header.tensors[0].name, "blk.0.attn_out.weight");
    // A second time changes nothing.
    let once = header.clone();
    header.translate();
    assert_eq!(header, once);
}

/// The library's converter knows few splitters, and calls the others "default".
#[test]
fn files_that_do_not_name_their_splitter_have_that_of_their_family() {
    let pre = |architecture: &'static str, written: Option<&'static str>| {
        let set = |metadata: &mut Metadata| {
            metadata.set("general.architecture", architecture);
            if let Some(written) = written {
                metadata.set("tokenizer.ggml.pre", written);
            }
        };
        let mut header = header(&set, &[]);
        header.translate();
        let pre = header.metadata.str("tokenizer.ggml.pre");
        pre.map(str::to_owned)
    };
    for (architecture, of_family) in [
        ("deepseekocr", "deepseek-v3"),
        ("glm4moelite", "glm4"),
        ("glmocr", "chatglm-bpe"),
        ("gptoss", "gpt-4o"),
        ("llama4", "llama4"),
        ("mistral3", "tekken"),
    ] {
        let of_family = Some(of_family.to_owned());
        for written in [None, Some(""), Some("default")] {
            assert_eq!(pre(architecture, written), of_family, "{architecture}");
        }
        let kept = Some("smaug-bpe".to_owned());
        assert_eq!(pre(architecture, Some("smaug-bpe")), kept, "{architecture}");
    }
    // Elsewhere nothing is known of it.
    assert_eq!(pre("qwen2", None), None);
}

/// Only files with projections are sentence encoders.
#[test]
fn a_tensor_may_say_which_dialect_a_file_speaks() {
    let translated = |tensors: &[(&str, [u64; 2])]| {
        let set = |metadata: &mut Metadata| {
            metadata.set("general.architecture", "gemma3");
            metadata.set("gemma3.block_count", 2u32);
        };
        let mut header = header(&set, tensors);
        header.translate();
        let names = header.tensors.iter().map(|tensor| tensor.name.clone());
        let names: Vec<String> = names.collect();
        let count = header.metadata.architecture().map(|name| {
            let key = format!("{name}.block_count");
            (name.to_owned(), header.metadata.u64(&key))
        });
        (count.unwrap(), names)
    };
    let all = [
        "dense.0.weight",
        "dense.1.weight",
        "norm.weight",
        "blk.0.norm.weight",
    ];
    let (count, names) = translated(&all.map(|name| (name, [1, 1])));
    assert_eq!(count, ("gemma-embedding".to_owned(), Some(2)));
    let usual = [
        "dense_2.weight",
        "dense_3.weight",
        "output_norm.weight",
        "blk.0.norm.weight",
    ];
    assert_eq!(names, usual);
    let (count, names) = translated(&[("norm.weight", [1, 1])]);
    assert_eq!(
        (count.0.as_str(), names[0].as_str()),
        ("gemma3", "norm.weight")
    );
}

#[test]
fn tokens_without_a_row_are_left_out() {
    let cut = |architecture: &'static str| {
        let mut header = header(
            &|metadata| {
                metadata.set("general.architecture", architecture);
                metadata.set("tokenizer.ggml.tokens", vec!["a", "b", "c"]);
                metadata.set("tokenizer.ggml.scores", vec![0.5f32, 1.0, 2.0]);
                metadata.set("tokenizer.ggml.token_type", vec![1i32, 1, 3]);
            },
            &[("token_embd.weight", [1, 2])],
        );
        header.translate();
        let metadata = &header.metadata;
        let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap();
        let tokens: Vec<Vec<u8>> = tokens.iter().map(<[u8]>::to_vec).collect();
        let scores = metadata.f32s("tokenizer.ggml.scores").unwrap();
        let kinds = metadata.i64s("tokenizer.ggml.token_type").unwrap();
        (tokens, scores.len(), kinds.len())
    };
    let two = (vec![b"a".to_vec(), b"b".to_vec()], 2, 2);
    assert_eq!(cut("gemma3"), two);
    assert_eq!(cut("gemma3n"), two);
    // Elsewhere a missing row is a fault of the file.
    assert_eq!(cut("llama").1, 3);
}

#[test]
fn the_first_files_of_llama_3_are_known_by_their_tokens() {
    let llama = |pre: Option<&'static str>, eot: &'static str| {
        let mut header = header(
            &|metadata| {
                let mut tokens = vec!["x"; 128_256];
                tokens[128_009] = eot;
                metadata.set("general.architecture", "llama");
                metadata.set("tokenizer.ggml.tokens", tokens);
                if let Some(pre) = pre {
                    metadata.set("tokenizer.ggml.pre", pre);
                }
            },
            &[],
        );
        header.translate();
        let metadata = header.metadata;
        let pre = metadata.str("tokenizer.ggml.pre").map(str::to_owned);
        (pre, metadata.u64("tokenizer.ggml.eot_token_id"))
    };
    let named = (Some("llama-bpe".to_owned()), Some(128_009));
    assert_eq!(llama(None, "<|eot_id|>"), named);
    assert_eq!(llama(Some("default"), "<|eot_id|>"), named);
    let kept = (Some("smaug-bpe".to_owned()), None);
    assert_eq!(llama(Some("smaug-bpe"), "<|eot_id|>"), kept);
    assert_eq!(llama(None, "x"), (None, None));
}

#[test]
fn a_file_is_shown_as_it_is_and_loaded_translated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "olmo3");
    metadata.set("olmo3.block_count", 2u32);
    std::fs::write(&path, Writer::new(metadata).to_bytes().unwrap()).unwrap();
    let shown = GgufFile::open(&path).unwrap();
    assert_eq!(shown.metadata().architecture(), Some("olmo3"));
    let loaded = GgufFile::open_model(&path).unwrap();
    assert_eq!(loaded.metadata().u64("olmo2.block_count"), Some(2));
}

proptest! {
    /// Whatever keys and tensors a file mixes, names stay unique and nothing is lost.
    #[test]
    fn names_stay_unique(
        architecture in prop::sample::select(
            vec!["gptoss", "glmocr", "glm4moelite", "olmo3", "qwen25vl", "gemma4", "nemotron_h_omni"]),
        keys in prop::collection::hash_set("(gptoss|gpt-oss|glmocr|glm4|olmo2|olmo3)\\.[ab]", 0..6),
        names in prop::collection::hash_set(
            "blk\\.[01]\\.(attn_out|attn_output|ffn_norm|post_attention_norm)\\.weight", 0..6),
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let tensors: Vec<(&str, [u64; 2])> = names.iter().map(|name| (name.as_str(), [1, 1])).collect();
        let set = |metadata: &mut Metadata| {
            metadata.set("general.architecture", architecture);
            for key in &keys {
                metadata.set(key.as_str(), 1u32);
            }
        };
        let mut header = header(&set, &tensors);
        let n_keys = header.metadata.len();
        header.translate();
        prop_assert!(header.metadata.len() >= n_keys);
        for (key, _) in header.metadata.iter() {
            prop_assert!(header.metadata.get(key).is_some());
        }
        let unique: std::collections::HashSet<&str> =
            header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        prop_assert_eq!(unique.len(), tensors.len());
    }
}
