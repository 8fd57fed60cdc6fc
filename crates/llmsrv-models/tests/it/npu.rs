//! Encoders through ONNX Runtime, whose CPU stands in for an NPU, against our own kernels.

use std::{
    fs,
    path::{Path, PathBuf},
};

use llmsrv_engine::{Adapter, EngineOptions, LoadError, LoadOptions, Loaded, NpuOptions, spawn};

use crate::{
    embeddings::{ADAPTED, encoder, files},
    tiny::{File, Random},
    tiny_encoder::ENCODERS,
};

/// The library of ONNX Runtime within the package for Python.
fn onnx_runtime() -> PathBuf {
    let clients = std::env::var_os("TEST_CLIENTS")
        .expect("ONNX Runtime is missing, which `tests/run` installs");
    let versions = fs::read_dir(Path::new(&clients).join("venv/lib")).unwrap();
    let folders = versions.flatten();
    let folders = folders.map(|version| version.path().join("site-packages/onnxruntime/capi"));
    let mut files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let library = files.find(|file| {
        let name = file.file_name();
        name.to_string_lossy().starts_with("libonnxruntime.so")
    });
    library.expect("requirements.txt has onnxruntime").path()
}

fn npu() -> NpuOptions {
    NpuOptions {
        runtime: onnx_runtime(),
        provider: "cpu".into(),
        cache: None,
    }
}

fn load(file: File, adapter: Option<File>, npu: Option<NpuOptions>) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, file.bytes()).unwrap();
    let adapters = adapter.into_iter().map(|adapter| {
        let path = folder.path().join("adapter.gguf");
        fs::write(&path, adapter.bytes()).unwrap();
        Adapter { path, scale: 1.0 }
    });
    let options = LoadOptions {
        n_threads: 1,
        device: if npu.is_some() { "npu" } else { "cpu" }.into(),
        npu,
        adapters: adapters.collect(),
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options)
}

fn vectors(loaded: Loaded, inputs: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let handle = spawn(loaded, EngineOptions::default());
    handle
        .embed(inputs.to_vec())
        .unwrap()
        .blocking_wait()
        .unwrap()
}

/// 1 less the cosine of the angle between two vectors.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    1.0 - product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

#[track_caller]
fn check(name: &str, found: &[Vec<f32>], right: &[Vec<f32>]) {
    assert_eq!(found.len(), right.len(), "{name}");
    for (found, right) in found.iter().zip(right) {
        let distance = distance(found, right);
        assert!(distance < 1e-3, "{name}: {distance}");
        // One score has no direction.
        for (found, right) in found.iter().zip(right) {
            let difference = (found - right).abs();
            assert!(
                difference < 0.01 * (1.0 + right.abs()),
                "{name}: {difference}"
            );
        }
    }
}

#[test]
fn encoders_compute_the_same_on_an_npu() {
    let mut refused = Vec::new();
    for (name, file, inputs) in files() {
        let right = vectors(load(copy(&name), None, None).unwrap(), &inputs);
        match load(file, None, Some(npu())) {
            Ok(loaded) => {
                let spec = loaded.model.spec();
                assert!(spec.npu && spec.gpus.is_empty(), "{name}");
                check(&name, &vectors(loaded, &inputs), &right);
            }
            Err(LoadError::Unsupported(reason)) => refused.push((name, reason)),
            Err(error) => panic!("{name}: {error}"),
        }
    }
    for (name, reason) in &refused {
        let what = match name.as_str() {
            "nomic_bert_moe" => "with experts",
            // By the mean of its rows.
            "modern_bert_rank" => "that classify whole texts",
            // Which ranks by what it would write.
            "qwen3_rank" => "that write text",
            name if name.starts_with("decoder_") => "that write text",
            name => panic!("{name}: {reason}"),
        };
        let expected = format!("models {what} are not computed on an NPU");
        assert_eq!(*reason, expected, "{name}");
    }
    assert!(refused.iter().any(|(name, _)| name == "nomic_bert_moe"));
}

/// The file of a name once more.
fn copy(name: &str) -> File {
    let all = files();
    all.into_iter().find(|(known, ..)| known == name).unwrap().1
}

#[test]
fn adapters_count_on_an_npu() {
    let case = encoder(ADAPTED);
    let inputs = case.inputs();
    let adapted = |npu| {
        vectors(
            load(case.file(), Some(case.adapter()), npu).unwrap(),
            &inputs,
        )
    };
    let (found, right) = (adapted(Some(npu())), adapted(None));
    check(ADAPTED, &found, &right);
    let plain = vectors(load(case.file(), None, Some(npu())).unwrap(), &inputs);
    assert!(distance(&plain[0], &right[0]) > 0.01);
}

/// All lengths about those that texts are padded to, more of them than graphs stay loaded.
#[test]
fn a_text_is_the_same_however_long_and_whatever_is_beside_it() {
    for name in ["bert", "jina_bert_v2", "nomic_bert"] {
        let case = *ENCODERS.iter().find(|case| case.name == name).unwrap();
        let mut file = case.file();
        // Texts longer than what the NPU takes, too; the table of positions is that long.
        const CONTEXT: usize = 4096;
        let key = format!("{}.context_length", case.architecture);
        file.metadata.set(key, CONTEXT as u32);
        if name == "bert" {
            let table = file.tensor("position_embd.weight");
            table.shape[1] = CONTEXT as u64;
            let row = table.bytes.clone();
            table.bytes = row.iter().cycle().take(64 * 4 * CONTEXT).copied().collect();
        }
        let mut random = Random::new(name);
        let lengths = [1, 31, 32, 33, 64, 65, 200, 300, 600, 33, 1, 2100];
        let inputs: Vec<Vec<u32>> = lengths
            .iter()
            .map(|n| (0..*n).map(|_| random.next() as u32 % 90).collect())
            .collect();
        let right = vectors(load(file.clone(), None, None).unwrap(), &inputs);
        let together = vectors(load(file.clone(), None, Some(npu())).unwrap(), &inputs);
        check(name, &together, &right);
        let alone = load(file, None, Some(npu())).unwrap();
        let handle = spawn(alone, EngineOptions::default());
        for (input, expected) in inputs.iter().zip(&together).rev() {
            let found = handle.embed(vec![input.clone()]).unwrap();
            assert_eq!(found.blocking_wait().unwrap()[0], *expected, "{name}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_said() {
    let of = |provider: &str, runtime: PathBuf| {
        let npu = NpuOptions {
            runtime,
            provider: provider.into(),
            cache: None,
        };
        let loaded = load(encoder("bert").file(), None, Some(npu));
        loaded.err().unwrap().to_string()
    };
    // A library without the provider, and without the device.
    let error = of("openvino", onnx_runtime());
    assert!(error.contains("execution provider"), "{error}");
    let error = of("tpu", onnx_runtime());
    assert!(error.contains("tpu"), "{error}");
    let error = of("cpu", "/none/libonnxruntime.so".into());
    assert!(error.contains("ONNX Runtime"), "{error}");
}
