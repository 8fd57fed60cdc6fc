//! Which files hold an encoder for images that is known.

use std::fs;

use llmsrv_gguf::TensorType;

use crate::tiny::{CASES, FileTensor};

#[test]
fn a_file_sees_if_it_says_so_and_has_the_tensors_of_a_known_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    assert!(!llmsrv_models::sees(&path), "there is no file");
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
        llmsrv_models::sees(&path)
    };
    let (key, tensor) = (Some("vision.block_count"), "v.patch_embedding.weight");
    assert!(sees("gemma3", key, tensor));
    assert!(!sees("gemma3", None, tensor));
    assert!(!sees("gemma3", key, "v.patch_embd.weight"));
    assert!(!sees("llama", key, tensor));
}
