//! Embeddings on an NPU through the whole program; ONNX Runtime's CPU stands in for one.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use llmsrv_gguf::{Metadata, TensorType, Writer};
use serde_json::{Value, json};

use crate::{
    devices::onnx_runtime,
    gpu::{signal, workers},
    util::{Sandbox, Server, TIMEOUT},
};

const WIDTH: u64 = 32;
const CONTEXT: u64 = 256;

/// A BERT of one layer whose tokens are letters.
pub(crate) fn bert() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "bert");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", CONTEXT as u32),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", 2 * WIDTH as u32),
        ("attention.head_count", 2),
    ] {
        metadata.set(format!("bert.{key}"), value);
    }
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(str::to_owned);
    let letters = ('a'..='z').flat_map(|letter| [format!("\u{2581}{letter}"), letter.to_string()]);
    let tokens: Vec<String> = specials.into_iter().chain(letters).collect();
    let n_vocab = tokens.len() as u64;
    metadata.set("tokenizer.ggml.model", "bert");
    metadata.set("tokenizer.ggml.tokens", tokens);
    for (role, id) in [
        ("unknown", 1u32),
        ("cls", 2),
        ("bos", 2),
        ("eos", 3),
        ("seperator", 3),
    ] {
        metadata.set(format!("tokenizer.ggml.{role}_token_id"), id);
    }
    let mut writer = Writer::new(metadata);
    let mut seed = 1_u64;
    let mut add = |name: &str, shape: &[u64]| {
        let n: u64 = shape.iter().product();
        let values = (0..n).flat_map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (seed >> 40) as f32 / (1 << 23) as f32 - 1.0;
            let middle = f32::from(u8::from(name.contains("norm.weight")));
            (middle + 0.5 * unit).to_le_bytes()
        });
        writer
            .tensor(name, shape, TensorType::F32, values.collect())
            .unwrap();
    };
    add("token_embd.weight", &[WIDTH, n_vocab]);
    add("position_embd.weight", &[WIDTH, CONTEXT]);
    for name in [
        "token_embd_norm",
        "blk.0.attn_output_norm",
        "blk.0.layer_output_norm",
    ] {
        add(&format!("{name}.weight"), &[WIDTH]);
        add(&format!("{name}.bias"), &[WIDTH]);
    }
    for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
        add(&format!("blk.0.{name}.weight"), &[WIDTH, WIDTH]);
    }
    add("blk.0.ffn_up.weight", &[WIDTH, 2 * WIDTH]);
    add("blk.0.ffn_down.weight", &[2 * WIDTH, WIDTH]);
    writer.to_bytes().unwrap()
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("bert.gguf"), bert()).unwrap();
    sandbox.run(&["create", "tiny", "--from", "bert.gguf"]).ok();
    sandbox
}

fn texts() -> Vec<String> {
    let text = |n: usize| (0..n).map(|at| [b'a' + (at * at % 26) as u8, b' ']);
    let text = |n: usize| String::from_utf8(text(n).flatten().collect()).unwrap();
    [3, 40, 150].map(text).into()
}

async fn embed(server: &Server) -> Vec<Vec<f64>> {
    let answer: Value = server
        .post("/api/embed", &json!({"model": "tiny", "input": texts()}))
        .await
        .ok();
    serde_json::from_value(answer["embeddings"].clone()).unwrap()
}

#[track_caller]
fn check(found: &[Vec<f64>], right: &[Vec<f64>]) {
    assert_eq!((found.len(), right.len()), (texts().len(), texts().len()));
    for (found, right) in found.iter().zip(right) {
        // Both have the length 1.
        let cosine: f64 = found.iter().zip(right).map(|(a, b)| a * b).sum();
        assert!(1.0 - cosine < 1e-3, "{cosine}");
    }
}

fn said(sandbox: &Sandbox, server: &Server, command: &str) -> String {
    let mut command_line = sandbox.command();
    let output = command_line.env("LLMSRV_HOST", server.host()).arg(command);
    String::from_utf8(output.output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn embeddings_are_computed_on_an_npu_and_that_is_said() {
    let sandbox = sandbox();
    let right = {
        let cpu = sandbox.serve();
        let right = embed(&cpu).await;
        assert!(said(&sandbox, &cpu, "ps").contains("100% CPU"));
        right
    };
    let library = onnx_runtime();
    let env = [
        ("LLMSRV_NPU", "1"),
        ("LLMSRV_NPU_ALLOW_SOFTWARE", "1"),
        ("LLMSRV_ONNX_RUNTIME", library.to_str().unwrap()),
    ];
    let server = sandbox.serve_with(&[], &env);
    let found = embed(&server).await;
    check(&found, &right);
    for command in ["ps", "status"] {
        let said = said(&sandbox, &server, command);
        assert!(said.contains("100% NPU"), "{said}");
    }
    let running: Value = server.get("/api/ps").await.ok();
    assert_eq!(running["models"][0]["npu"], true, "{running}");
    assert_eq!(running["models"][0]["size_vram"], 0, "{running}");

    // The library and what may crash with it are in a process of their own, for each model.
    let maps = |pid: u32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let name = Path::new("libonnxruntime").to_str().unwrap();
    let [worker] = workers(server.pid())[..] else {
        panic!("one worker")
    };
    assert!(!maps(server.pid()).contains(name) && maps(worker).contains(name));
    signal(worker, "-ABRT");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let running: Value = server.get("/api/ps").await.ok();
        if running["models"] == json!([]) {
            break;
        }
        assert!(Instant::now() < deadline, "{running}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(
        embed(&server).await,
        found,
        "the next request loads it anew"
    );

    // A model that writes text is computed as ever.
    let text: Value = server
        .post(
            "/api/generate",
            &json!({"model": "default", "prompt": "Hi", "stream": false}),
        )
        .await
        .ok();
    assert!(!text["response"].as_str().unwrap().is_empty());
    assert_eq!(workers(server.pid()).len(), 1);
}

#[tokio::test]
async fn with_a_gpu_beside_it_encoders_are_on_the_npu() {
    let sandbox = sandbox();
    let library = onnx_runtime();
    let env = [
        ("LLMSRV_NPU", "1"),
        ("LLMSRV_NPU_ALLOW_SOFTWARE", "1"),
        ("LLMSRV_ONNX_RUNTIME", library.to_str().unwrap()),
        ("LLMSRV_GPU", "1"),
        ("LLMSRV_VENDOR_GPU", "1"),
        ("LLMSRV_GPU_ALLOW_SOFTWARE", "1"),
    ];
    let server = sandbox.serve_with(&[], &env);
    embed(&server).await;
    assert!(said(&sandbox, &server, "ps").contains("100% NPU"));
}

#[tokio::test]
async fn without_an_npu_the_cpu_computes_and_one_warning_says_why() {
    let sandbox = sandbox();
    let right = embed(&sandbox.serve()).await;

    // No NPU in this machine: see `tests/it/devices.rs` for those that have one.
    let server = sandbox.serve_with(&[], &[("LLMSRV_NPU", "1")]);
    server.wait_for_log("no NPU was found", 1);
    server.wait_for_log("llmsrv testnpu", 1);
    check(&embed(&server).await, &right);
    assert!(said(&sandbox, &server, "ps").contains("100% CPU"));

    // A library that is none.
    let env = [
        ("LLMSRV_NPU", "1"),
        ("LLMSRV_NPU_ALLOW_SOFTWARE", "1"),
        ("LLMSRV_ONNX_RUNTIME", "bert.gguf"),
    ];
    let server = sandbox.serve_with(&[], &env);
    check(&embed(&server).await, &right);
    server.wait_for_log(
        "the model is computed on the CPU, because the NPU cannot",
        1,
    );
    server.wait_for_log("loading ONNX Runtime", 1);
    assert!(said(&sandbox, &server, "ps").contains("100% CPU"));
}
