//! Models on a GPU through the whole program; on a machine without one, on Mesa's lavapipe.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use llmsrv_engine::{ActivationPrecision, LoadOptions, Offload, Plan};
use serde_json::{Value, json};

use crate::{
    faults::{Driver, with_tiny_model},
    util::{Sandbox, Server, TIMEOUT},
};

/// Computes on whatever driver there is.
pub(crate) const GPU: [(&str, &str); 4] = [
    ("LLMSRV_GPU", "1"),
    ("LLMSRV_VENDOR_GPU", "1"),
    ("LLMSRV_GPU_ALLOW_SOFTWARE", "1"),
    // Kernels are asked for their known answers once, not in each sandbox.
    (
        "XDG_CACHE_HOME",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
    ),
];
/// As the GPU does it: activations are not rounded.
const CPU: [(&str, &str); 2] = [("LLMSRV_GPU", "0"), ("LLMSRV_CPU_ARITHMETIC", "exact")];

pub(crate) async fn text(server: &Server, prompt: &str) -> String {
    first_tokens(server, prompt, 40).await
}

/// The first words of it, which come sooner where a CPU computes for the GPU.
pub(crate) async fn few_words(server: &Server, prompt: &str) -> String {
    first_tokens(server, prompt, FEW).await
}

const FEW: u32 = 4;

async fn first_tokens(server: &Server, prompt: &str, num_predict: u32) -> String {
    let request = json!({
        "model": "default", "prompt": prompt, "stream": false,
        "options": {"temperature": 0, "num_predict": num_predict},
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
    assert_eq!(model.get("on_cpu"), None, "{model}");
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
    assert_eq!(running["models"][0].get("on_cpu"), None, "{running}");
}

/// The vectors that both APIs answer for some texts.
async fn vectors(server: &Server, model: &str, texts: &[&str]) -> Vec<Vec<f64>> {
    let request = json!({"model": model, "input": texts});
    let native: Value = server.post("/api/embed", &request).await.ok();
    let native: Vec<Vec<f64>> = serde_json::from_value(native["embeddings"].clone()).unwrap();
    let compatible: Value = server.post("/v1/embeddings", &request).await.ok();
    let compatible = compatible["data"].as_array().unwrap().iter();
    let compatible =
        compatible.map(|one| serde_json::from_value(one["embedding"].clone()).unwrap());
    assert_eq!(native, compatible.collect::<Vec<Vec<f64>>>());
    native
}

/// Of an encoder, and of a decoder.
#[tokio::test]
async fn vectors_are_computed_on_a_gpu_and_that_is_said() {
    let (on_gpu, on_cpu) = (with_tiny_model(), with_tiny_model());
    let (gpu, cpu) = (on_gpu.serve_with(&[], &GPU), on_cpu.serve_with(&[], &CPU));
    for (model, texts) in [
        ("tiny", ["a b c", "n a t u r e", "z"]),
        (
            "default",
            [
                "What is Rust?",
                "Tell me a joke",
                "Write a Python function that reverses a string.",
            ],
        ),
    ] {
        let expected = vectors(&cpu, model, &texts).await;
        let found = vectors(&gpu, model, &texts).await;
        assert_eq!(found.len(), texts.len());
        for (found, expected) in found.iter().zip(&expected) {
            let length: f64 = found.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-3, "{model}: {length}");
            let pairs = found.iter().zip(expected);
            let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-3, "{model}: off by {off}");
        }
        for (text, together) in texts.iter().zip(&found) {
            assert_eq!(vectors(&gpu, model, &[*text]).await[0], *together);
        }
        let listed: Value = gpu.get("/api/ps").await.ok();
        let name = format!("{model}:latest");
        let mut models = listed["models"].as_array().unwrap().iter();
        let running = models
            .find(|running| running["name"] == name.as_str())
            .unwrap();
        assert_eq!(running["gpu_layers"], running["layers"], "{running}");
        assert_eq!(running["size_vram"], running["size"], "{running}");
    }
    let mut ps = on_gpu.command();
    let ps = ps
        .env("LLMSRV_HOST", gpu.host())
        .arg("ps")
        .output()
        .unwrap();
    let ps = String::from_utf8(ps.stdout).unwrap();
    assert_eq!(ps.matches("100% GPU").count(), 2, "{ps}");

    // In part, and not at all.
    for (n, expected) in [(3, "CPU/GPU"), (0, "100% CPU")] {
        let request = json!({"model": "default", "input": "a", "keep_alive": 0});
        gpu.post("/api/embed", &request).await.ok();
        // The worker of the other model stays.
        wait_until("the worker ends", || workers(gpu.pid()).len() <= 1);
        let request = json!({"model": "default", "input": "a", "options": {"num_gpu": n}});
        gpu.post("/api/embed", &request).await.ok();
        let mut ps = on_gpu.command();
        let ps = ps.env("LLMSRV_HOST", gpu.host()).arg("ps");
        let ps = String::from_utf8(ps.output().unwrap().stdout).unwrap();
        let mut lines = ps.lines();
        let line = lines.find(|line| line.starts_with("default")).unwrap();
        assert!(line.contains(expected), "{n}: {ps}");
    }
}

/// What the built-in model takes with so many layers on a GPU.
fn plan(n_layers: Option<usize>) -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, include_bytes!("../../assets/embedded/model.gguf")).unwrap();
    let options = LoadOptions {
        offload: Offload {
            n_layers,
            ..Offload::default()
        },
        activation_precision: ActivationPrecision::F32,
        ..LoadOptions::default()
    };
    llmsrv_models::plan(&path, &options, &[u64::MAX], &|trained| trained.min(4096)).unwrap()
}

/// Built-in models multiply in integers as asked, and in f32 where the device cannot.
#[tokio::test]
async fn a_device_without_integer_products_is_named_and_multiplies_in_f32() {
    let sandbox = Sandbox::new();
    let driver = Driver::new(&sandbox);
    let exact = driver.with(&GPU);
    let int8 = [&exact[..], &[("LLMSRV_GPU_ARITHMETIC", "int8")]].concat();
    let prompt = "Hello! Who are you?";
    let in_f32 = text(&sandbox.serve_with(&[], &exact), prompt).await;
    let server = sandbox.serve_with(&[], &int8);
    let together = tokio::join!(text(&server, prompt), text(&server, prompt));
    assert_eq!(together.0, together.1);
    assert!(!together.0.is_empty());
    server.wait_for_log("arithmetic=\"int8\"", 1);
    drop(server);
    driver.fail("dot");
    let server = sandbox.serve_with(&[], &int8);
    assert_eq!(text(&server, prompt).await, in_f32);
    server.wait_for_log(
        "LLMSRV_GPU_ARITHMETIC=int8: the device has no integer dot products",
        1,
    );
}

/// A GPU is measured when it is met for the first time, and every start says what came of it. So does `testgpu`.
#[tokio::test]
async fn a_gpu_is_measured() {
    let sandbox = Sandbox::new();
    let mut tested = sandbox.command();
    let tested = tested.args([
        "testgpu",
        "--category",
        "model",
        "--json",
        "--timeout",
        "300",
    ]);
    let tested: Value = serde_json::from_slice(&tested.output().unwrap().stdout).unwrap();
    let is_rate = |rate: f64| (0.1..1e5).contains(&rate);
    for (what, unit) in [
        ("memory read", "GB/s"),
        ("f32 fma", "GFLOP/s"),
        ("memory read by the CPU", "GB/s"),
    ] {
        let mut checks = tested["checks"].as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == format!("vulkan:0 {what}"));
        let check = check.unwrap_or_else(|| panic!("no {what}: {tested}"));
        assert_eq!(check["unit"], unit);
        assert!(is_rate(check["value"].as_f64().unwrap()), "{check}");
    }

    let cache = sandbox.path().join("cache");
    let env = [&GPU[..], &[("XDG_CACHE_HOME", cache.to_str().unwrap())]].concat();
    let start = || {
        let server = sandbox.serve_with(&[], &env);
        server.wait_for_log(MEASURED, 1);
        let log = server.log();
        let line = log.lines().find(|line| line.contains(MEASURED)).unwrap();
        line[line.find(MEASURED).unwrap()..].to_owned()
    };
    let said = start();
    for unit in ["GB/s, f32", "GFLOP/s; the CPU", "GB/s"] {
        let (before, _) = said.split_once(unit).unwrap();
        let rate = before.split_whitespace().last().unwrap();
        assert!(is_rate(rate.parse().unwrap()), "{said}");
    }
    // The second time nothing is measured: the digits are the same.
    assert_eq!(start(), said);
    let kept = fs::read_to_string(cache.join("llmsrv/gpu-drivers")).unwrap();
    let words: Vec<&str> = kept.split_whitespace().collect();
    let [_, read, _, _, _, _] = words[..] else {
        panic!("{kept}")
    };
    let read: f64 = read.parse().unwrap();
    let first = format!("memory read {:.1} GB/s", read / 1e9);
    assert!(said.contains(&first), "{said} {kept}");
}

/// How the log begins to say what was measured.
const MEASURED: &str = "what the GPU can do at most: ";

/// Bytes of a GPU that this needs with the context that it is loaded for.
fn memory_for(plan: &Plan) -> u64 {
    plan.needed(plan.context_length.min(4096)).gpu(0)
}

#[tokio::test]
async fn a_model_larger_than_the_gpu_is_split() {
    let limit = memory_for(&plan(Some(3))).to_string();
    let arithmetic = ("LLMSRV_CPU_ARITHMETIC", "exact");
    let small = [("LLMSRV_GPU_MEMORY_LIMIT", limit.as_str()), arithmetic];
    let (on_both, on_cpu) = (Sandbox::new(), Sandbox::new());
    let both = on_both.serve_with(&[], &[&GPU[..], &small].concat());
    let cpu = on_cpu.serve_with(&[], &CPU);
    let prompts = ["Hello! Who are you?", "Count to five."];
    let mut answers = Vec::new();
    for prompt in prompts {
        let expected = text(&cpu, prompt).await;
        assert_eq!(text(&both, prompt).await, expected);
        answers.push(expected);
    }
    let together = tokio::join!(text(&both, prompts[0]), text(&both, prompts[1]));
    assert_eq!([together.0, together.1], answers[..]);

    let running: Value = both.get("/api/ps").await.ok();
    let model = &running["models"][0];
    let number = |name: &str| model[name].as_u64().unwrap();
    assert_eq!(number("gpu_layers"), 3, "{model}");
    assert!(number("layers") > 3, "{model}");
    assert!(0 < number("size_vram") && number("size_vram") < number("size"));
    both.wait_for_log(&format!("offloaded 3/{} layers to GPU", model["layers"]), 1);
    let all = memory_for(&plan(None));
    let why = format!(
        "3 of {} layers fit: all need {all} bytes of GPU memory, of which models may take {limit}",
        model["layers"]
    );
    assert_eq!(model["on_cpu"], why.as_str());
    both.wait_for_log(&format!("on_cpu={why:?}"), 1);
    for command in ["ps", "status"] {
        let mut shown = on_both.command();
        let shown = shown.env("LLMSRV_HOST", both.host()).arg(command);
        let output = shown.output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("% CPU/GPU"), "{shown}");
        let printed = String::from_utf8(output.stderr).unwrap() + &shown;
        assert!(printed.contains(&why), "{printed}");
    }
    let metrics = both.get("/metrics").await.text;
    let gauge = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit_once(' '));
        value
            .unwrap_or_else(|| panic!("{name} in {metrics}"))
            .1
            .parse()
            .unwrap()
    };
    assert_eq!(gauge("llmsrv_model_gpu_layers{"), 3.0);
    assert_eq!(
        gauge("llmsrv_models_gpu_memory_limit_bytes{gpu=\"0\"}").to_string(),
        limit
    );
    let taken = gauge("llmsrv_models_gpu_memory_bytes{gpu=\"0\"}");
    assert!(
        0.0 < taken && taken <= limit.parse().unwrap(),
        "{taken} {limit}"
    );
    assert!(gauge("llmsrv_models_memory_bytes") > 0.0, "the CPU's part");

    // What somebody insists on and does not fit is refused, in the words of places.
    both.post(
        "/api/generate",
        &json!({"model": "default", "keep_alive": 0}),
    )
    .await;
    let request = json!({
        "model": "default", "prompt": "Hello", "stream": false, "options": {"num_gpu": 99},
    });
    let reply = both.post("/api/generate", &request).await;
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(reply.text.contains("requires more GPU memory"), "{reply:?}");
}

#[tokio::test]
async fn requests_and_models_say_how_many_layers_are_on_the_gpu() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &GPU);
    let parameters = json!({"num_gpu": 1});
    let create =
        json!({"model": "one", "from": "default", "parameters": parameters, "stream": false});
    server.post("/api/create", &create).await.ok();
    for (model, options, expected) in [
        ("default", json!({"num_gpu": 0}), 0),
        ("default", json!({"num_gpu": 2}), 2),
        ("one", json!({}), 1),
        ("one", json!({"num_gpu": 3}), 3),
    ] {
        let request = json!({
            "model": model, "prompt": "Hello", "stream": false, "options": options,
        });
        server.post("/api/generate", &request).await.ok();
        let running: Value = server.get("/api/ps").await.ok();
        let loaded = &running["models"][0];
        assert_eq!(loaded["gpu_layers"], expected, "{running}");
        assert_eq!(loaded["size_vram"] == 0, expected == 0, "{running}");
        let why = loaded["on_cpu"].as_str().unwrap();
        assert!(why.starts_with(&format!("num_gpu is {expected}")), "{why}");
        assert_eq!(workers(server.pid()).is_empty(), expected == 0);
        server
            .post("/api/generate", &json!({"model": model, "keep_alive": 0}))
            .await;
        wait_until("the worker ends", || workers(server.pid()).is_empty());
    }
}

/// The draft model has its place first, and a worker of its own.
#[tokio::test]
async fn a_draft_model_shares_the_gpu_with_the_model_it_drafts_for() {
    let limit = memory_for(&plan(None)) + memory_for(&plan(Some(3)));
    let limit = limit.to_string();
    let env = [
        ("LLMSRV_GPU_MEMORY_LIMIT", limit.as_str()),
        ("LLMSRV_CPU_ARITHMETIC", "exact"),
        ("LLMSRV_DRAFT_MODEL", "default=small"),
    ];
    let (on_gpu, on_cpu) = (Sandbox::new(), Sandbox::new());
    let server = on_gpu.serve_with(&[], &[&GPU[..], &env].concat());
    let cpu = on_cpu.serve_with(&[], &CPU);
    let copy = json!({"source": "default", "destination": "small"});
    assert_eq!(server.post("/api/copy", &copy).await.status, 200);
    let prompt = "Hello! Who are you?";
    assert_eq!(text(&server, prompt).await, text(&cpu, prompt).await);
    assert_eq!(workers(server.pid()).len(), 2);
    let running: Value = server.get("/api/ps").await.ok();
    assert_eq!(running["models"][0]["gpu_layers"], 3, "{running}");
    let metrics = server.get("/metrics").await.text;
    let name = "llmsrv_models_gpu_memory_bytes{gpu=\"0\"} ";
    let taken = metrics.lines().find_map(|line| line.strip_prefix(name));
    let taken: u64 = taken.unwrap().parse().unwrap();
    assert!(taken > memory_for(&plan(None)), "{metrics}");
    assert!(taken <= limit.parse().unwrap(), "{metrics}");
}

/// One device that counts as two.
#[tokio::test]
async fn a_model_is_spread_over_several_gpus() {
    let two = [("LLMSRV_VISIBLE_GPUS", "0,0"), ("LLMSRV_SCHED_SPREAD", "1")];
    let (on_two, on_cpu) = (Sandbox::new(), Sandbox::new());
    let gpus = on_two.serve_with(&[], &[&GPU[..], &two].concat());
    let cpu = on_cpu.serve_with(&[], &CPU);
    let prompt = "Hello! Who are you?";
    assert_eq!(text(&gpus, prompt).await, text(&cpu, prompt).await);
    let running: Value = gpus.get("/api/ps").await.ok();
    let model = &running["models"][0];
    assert_eq!(model["gpu_layers"], model["layers"], "{model}");
    let metrics = gpus.get("/metrics").await.text;
    for gpu in 0..2 {
        let name = format!("llmsrv_models_gpu_memory_bytes{{gpu=\"{gpu}\"}} ");
        let bytes = metrics.lines().find_map(|line| line.strip_prefix(&name));
        assert!(bytes.is_some_and(|bytes| bytes != "0"), "{metrics}");
    }
}

#[tokio::test]
async fn gpus_that_are_not_visible_are_not_used() {
    let sandbox = Sandbox::new();
    let env = [&GPU[..], &[("GGML_VK_VISIBLE_DEVICES", "-1")]].concat();
    let server = sandbox.serve_with(&[], &env);
    server.wait_for_log("no model can be loaded", 1);
    let request = json!({"model": "default", "prompt": "Hello", "stream": false});
    let reply = server.post("/api/generate", &request).await;
    assert_eq!(reply.status, 500, "{reply:?}");
    assert!(reply.text.contains("LLMSRV_VISIBLE_GPUS"), "{reply:?}");
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

/// Processes whose parent is this one and that compute on a GPU.
pub(crate) fn workers(server: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let of_server = status.contains(&format!("PPid:\t{server}\n"));
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_worker = arguments
            .split(|byte| *byte == 0)
            .any(|word| word == b"gpu-worker");
        of_server && is_worker && !status.contains("State:\tZ")
    })
    .collect()
}

pub(crate) fn signal(pid: u32, signal: &str) {
    Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks until there is an answer; all that may come before it is "not now".
pub(crate) async fn answer_at_last(server: &Server, prompt: &str) -> String {
    let request = json!({
        "model": "default", "prompt": prompt, "stream": false,
        "options": {"temperature": 0, "num_predict": FEW},
    });
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let url = format!("{}/api/generate", server.url);
        let response = server.http.post(url).body(request.to_string()).send().await;
        let response = response.unwrap();
        if response.status() == 200 {
            let answer: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
            return answer["response"].as_str().unwrap().to_owned();
        }
        assert_eq!(response.status(), 503, "{response:?}");
        let wait = response.headers()["retry-after"].to_str().unwrap();
        let wait = Duration::from_secs(wait.parse().unwrap());
        let text = response.text().await.unwrap();
        assert!(
            text.contains("device that computed the model is lost"),
            "{text}"
        );
        assert!(Instant::now() < deadline, "{text}");
        tokio::time::sleep(wait).await;
    }
}

fn libraries(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
}

#[tokio::test]
async fn a_worker_that_is_killed_while_nobody_asks_costs_no_request() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &GPU);
    let prompt = "Hello! Who are you?";
    let expected = few_words(&server, prompt).await;
    assert!(
        !libraries(server.pid()).contains("libvulkan"),
        "no driver is in the server"
    );
    assert!(libraries(workers(server.pid())[0]).contains("libvulkan"));
    let idle = workers(server.pid());
    for worker in &idle {
        signal(*worker, "-KILL");
    }
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let running: Value = server.get("/api/ps").await.ok();
        if running["models"].as_array().unwrap().is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{running}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let metrics = server.get("/metrics").await.text;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("llmsrv_models_memory_bytes") && line.ends_with(" 0")),
        "{metrics}"
    );
    assert_eq!(few_words(&server, prompt).await, expected);
}

#[tokio::test]
async fn a_worker_that_hangs_is_ended_and_the_next_request_answered() {
    let sandbox = Sandbox::new();
    let limit = [GPU.as_slice(), &[("LLMSRV_GPU_TIMEOUT", "3s")]].concat();
    let server = sandbox.serve_with(&[], &limit);
    let expected = answer_at_last(&server, "Hello").await;
    for worker in workers(server.pid()) {
        signal(worker, "-STOP");
    }
    let request = json!({"model": "default", "prompt": "Hello", "stream": false});
    let reply = server.post("/api/generate", &request).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.text.contains("no answer in time"), "{reply:?}");
    assert_eq!(answer_at_last(&server, "Hello").await, expected);
}

#[tokio::test]
async fn no_worker_outlives_its_server() {
    for how in ["-KILL", "-TERM"] {
        let sandbox = Sandbox::new();
        let server = sandbox.serve_with(&[], &GPU);
        answer_at_last(&server, "Hello").await;
        let started = workers(server.pid());
        assert_eq!(started.len(), 1);
        server.end(how);
        wait_until("the worker ends", || {
            let is_gone = |pid: &u32| {
                let status = fs::read_to_string(format!("/proc/{pid}/status"));
                status.is_ok_and(|status| status.contains("State:\tZ"))
                    || !fs::exists(format!("/proc/{pid}")).unwrap()
            };
            started.iter().all(is_gone)
        });
    }
}

#[tokio::test]
async fn a_server_that_computes_on_the_cpu_has_no_worker_and_no_driver() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve_with(&[], &CPU);
    text(&server, "Hello").await;
    assert!(workers(server.pid()).is_empty());
    assert!(!libraries(server.pid()).contains("vulkan"));
}
