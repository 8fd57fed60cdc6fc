//! Models on a GPU through the whole program; on a machine without one, on Mesa's lavapipe.

use serde_json::{Value, json};

use crate::util::{Sandbox, Server};

/// Computes on whatever driver there is.
const GPU: [(&str, &str); 3] = [
    ("LLMSRV_GPU", "1"),
    ("LLMSRV_VENDOR_GPU", "1"),
    ("LLMSRV_GPU_ALLOW_SOFTWARE", "1"),
];
/// As the GPU does it: activations are not rounded.
const CPU: [(&str, &str); 2] = [("LLMSRV_GPU", "0"), ("LLMSRV_CPU_ARITHMETIC", "exact")];

async fn text(server: &Server, prompt: &str) -> String {
    let request = json!({
        "model": "default", "prompt": prompt, "stream": false,
        "options": {"temperature": 0, "num_predict": 40},
    });
    let answer: Value = server.post("/api/generate", &request).await.ok();
    answer["response"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_built_in_model_says_the_same_on_a_gpu() {
    let (on_gpu, on_cpu) = (Sandbox::new(), Sandbox::new());
    let (gpu, cpu) = (on_gpu.serve_with(&[], &GPU), on_cpu.serve_with(&[], &CPU));
    let prompts = [
        "Hello! Who are you?",
        "Write a Python function that reverses a string.",
    ];
    let mut answers = Vec::new();
    for prompt in prompts {
        let expected = text(&cpu, prompt).await;
        assert!(!expected.is_empty());
        assert_eq!(text(&gpu, prompt).await, expected);
        answers.push(expected);
    }
    // Together, and with prefixes that are there already.
    let both = tokio::join!(text(&gpu, prompts[0]), text(&gpu, prompts[1]));
    assert_eq!([both.0, both.1], answers[..]);

    let running: Value = gpu.get("/api/ps").await.ok();
    let model = &running["models"][0];
    assert!(model["size_vram"].as_u64().unwrap() > 0);
    assert_eq!(model["size_vram"], model["size"]);
    let listed = on_gpu
        .command()
        .env("LLMSRV_HOST", gpu.host())
        .arg("ps")
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("100% GPU"), "{listed}");
    let running: Value = cpu.get("/api/ps").await.ok();
    assert_eq!(running["models"][0]["size_vram"], 0);
}

#[tokio::test]
async fn without_a_gpu_a_model_is_refused_with_reason_and_cure() {
    let sandbox = Sandbox::new();
    // No driver at all, whatever the machine has.
    let server = sandbox.serve_with(
        &[],
        &[
            ("LLMSRV_GPU", "1"),
            ("VK_ICD_FILENAMES", "/dev/null"),
            ("VK_DRIVER_FILES", "/dev/null"),
        ],
    );
    server.wait_for_log("no model can be loaded", 1);
    let request = json!({"model": "default", "prompt": "Hello", "stream": false});
    let reply = server.post("/api/generate", &request).await;
    assert_eq!(reply.status, 500, "{reply:?}");
    let error = reply.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("GPU") && error.contains("LLMSRV_GPU=0"),
        "{error}"
    );
}

#[test]
fn an_npu_is_said_to_do_nothing() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &[("LLMSRV_NPU", "1")]);
    server.wait_for_log("no model is computed on an NPU", 1);
}
