//! What is known of a model before it is loaded.

use std::fs;

use llmsrv_engine::LoadOptions;
use llmsrv_gguf::TensorType;

use crate::{
    embeddings::encoder,
    tiny::{CASES, FileTensor},
    tiny_encoder::EncoderCase,
};

#[test]
fn a_file_sees_if_it_says_so_and_has_the_tensors_of_a_known_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    assert!(llmsrv_models::facts(&path).is_err(), "there is no file");
    let sees = |architecture: &str, key: Option<&str>, tensor: &str| {
        let case = CASES.iter().find(|case| case.architecture == architecture);
        let mut file = case.unwrap().file();
        if let Some(key) = key {
            file.metadata.set(format!("{architecture}.{key}"), 1u32);
        }
        file.tensors.push(FileTensor {
            name: tensor.into(),
            shape: vec![1],
            dtype: TensorType::F32,
            bytes: vec![0; 4],
        });
        fs::write(&path, file.bytes()).unwrap();
        llmsrv_models::facts(&path).unwrap().sees
    };
    let (key, tensor) = (Some("vision.block_count"), "v.patch_embedding.weight");
    assert!(sees("gemma3", key, tensor));
    assert!(!sees("gemma3", None, tensor));
    assert!(!sees("gemma3", key, "v.patch_embd.weight"));
    assert!(!sees("llama", key, tensor));
}

/// Whoever shows an encoder does not offer it for a talk.
#[test]
fn an_encoder_pools_though_its_file_does_not_say_how() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let case = EncoderCase {
        pooling: 0,
        ..encoder("bert")
    };
    fs::write(&path, case.file().bytes()).unwrap();
    assert!(llmsrv_models::facts(&path).unwrap().pools);
    let path = CASES[0].write(folder.path());
    assert!(!llmsrv_models::facts(&path).unwrap().pools);
}

/// Memory is planned with what is known before: it is what the loaded model takes.
#[test]
fn keys_and_values_take_what_was_known_before() {
    let folder = tempfile::tempdir().unwrap();
    for case in CASES {
        let path = case.write(folder.path());
        let facts = llmsrv_models::facts(&path).unwrap();
        for kv_type in ["auto", "f32", "q8_0"] {
            let options = LoadOptions {
                kv_cache_type: kv_type.into(),
                n_threads: 1,
                ..LoadOptions::default()
            };
            let loaded = llmsrv_models::load(&path, &options).unwrap();
            let spec = loaded.model.spec();
            let n_tokens = spec.block_size as u64;
            let known = facts.kv_bytes(n_tokens, kv_type);
            let name = case.name;
            assert_eq!(known, spec.kv_block_bytes as u64, "{name} {kv_type}");
            // Some are computed up to a part of what they were trained for.
            let trained = facts.context_length.map(|n| n as usize);
            assert!(trained >= Some(spec.context_length), "{name}");
        }
    }
}
