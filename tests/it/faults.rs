//! Workers that die, drivers that fail, and what a server keeps of a thousand loads.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    devices::library,
    gpu::{GPU, answer_at_last, few_words, signal, wait_until, workers},
    npu::bert,
    util::{Output, Sandbox, Server, TIMEOUT},
};

const PROMPT: &str = "Hello! Who are you?";

/// A driver that fails on demand: Mesa's, with a layer of ours above it.
pub(crate) struct Driver {
    pub(crate) env: Vec<(&'static str, String)>,
    fault: std::path::PathBuf,
}

impl Driver {
    pub(crate) fn new(sandbox: &Sandbox) -> Driver {
        let folder = sandbox.path().join("layer");
        fs::create_dir(&folder).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = root.join("crates/llmsrv-gpu/tests/fault_layer.c");
        library(&[], &source, &folder.join("libfault.so"));
        let layer = json!({
            "file_format_version": "1.2.0",
            "layer": {
                "name": "VK_LAYER_LLMSRV_fault",
                "type": "GLOBAL",
                "library_path": "./libfault.so",
                "api_version": "1.3.0",
                "implementation_version": "1",
                "description": "calls that fail",
            },
        });
        fs::write(folder.join("fault.json"), layer.to_string()).unwrap();
        let fault = folder.join("fault");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Driver {
            env: vec![
                ("VK_LAYER_PATH", text(&folder)),
                ("VK_INSTANCE_LAYERS", "VK_LAYER_LLMSRV_fault".into()),
                ("FAULT_FILE", text(&fault)),
            ],
            fault,
        }
    }

    /// Adds what brings the layer in to an environment.
    pub(crate) fn with<'a>(&'a self, env: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = self.env.iter();
        let own = own.map(|(name, value)| (*name, value.as_str()));
        env.iter().copied().chain(own).collect()
    }

    /// What fails from now on, as the layer names it; nothing if it is empty.
    pub(crate) fn fail(&self, fault: &str) {
        // Replaced as a whole: a driver may be reading it.
        let fresh = self.fault.with_extension("new");
        fs::write(&fresh, fault).unwrap();
        fs::rename(fresh, &self.fault).unwrap();
    }
}

async fn ask(server: &Server, model: &str, options: Value) -> crate::util::Reply {
    let request = json!({"model": model, "prompt": PROMPT, "stream": false, "options": options});
    server.post("/api/generate", &request).await
}

/// A sandbox with a model that the server itself computes, on the CPU.
pub(crate) fn with_tiny_model() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("bert.gguf"), bert()).unwrap();
    sandbox.run(&["create", "tiny", "--from", "bert.gguf"]).ok();
    sandbox
}

async fn embed(server: &Server) -> Value {
    let request = json!({"model": "tiny", "input": "a b c", "options": {"num_gpu": 0}});
    let answer: Value = server.post("/api/embed", &request).await.ok();
    answer["embeddings"].clone()
}

async fn unload(server: &Server, model: &str) {
    let request = json!({"model": model, "keep_alive": 0});
    server.post("/api/generate", &request).await;
}

/// Waits until no model is left, and with it no worker and no byte in an account.
async fn all_is_free(server: &Server) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let metrics = server.get("/metrics").await.text;
        let accounts = [
            "llmsrv_models_memory_bytes",
            "llmsrv_models_gpu_memory_bytes",
        ];
        let mut lines = metrics.lines().filter(|line| {
            let name = line.split(['{', ' ']).next().unwrap();
            accounts.contains(&name)
        });
        let running: Value = server.get("/api/ps").await.ok();
        let is_free = running["models"] == json!([])
            && lines.all(|line| line.ends_with(" 0"))
            && workers(server.pid()).is_empty();
        if is_free {
            return;
        }
        assert!(Instant::now() < deadline, "{running}\n{metrics}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_driver_that_fails_costs_its_requests_and_nothing_else() {
    let sandbox = with_tiny_model();
    let driver = Driver::new(&sandbox);
    let mut env = driver.with(&GPU);
    // All kernels are asked before there is a limit.
    let server = sandbox.serve_with(&[], &env);
    server.wait_for_log("llmsrv_models::ops::gpu: GPU", 1);
    drop(server);
    env.push(("LLMSRV_GPU_TIMEOUT", "3s"));
    env.push(("LLMSRV_LOAD_TIMEOUT", "5s"));
    let server = sandbox.serve_with(&[], &env);
    let expected = few_words(&server, PROMPT).await;
    let beside = embed(&server).await;

    // While it computes.
    for (fault, reason) in [
        ("lost", "device that computed the model is lost"),
        ("never", "no answer in time"),
    ] {
        assert_eq!(answer_at_last(&server, PROMPT).await, expected);
        driver.fail(fault);
        let (failed, untouched) = tokio::join!(ask(&server, "default", json!({})), embed(&server));
        assert_eq!(failed.status, 503, "{fault}: {failed:?}");
        assert!(failed.text.contains(reason), "{fault}: {failed:?}");
        assert_eq!(untouched, beside, "{fault}");
        driver.fail("");
        assert_eq!(answer_at_last(&server, PROMPT).await, expected, "{fault}");
    }

    // While it loads.
    for (fault, status, reason) in [
        ("memory", 500, "memory"),
        ("lost", 503, "lost"),
        ("never", 500, "timed out waiting for the model to load"),
    ] {
        unload(&server, "default").await;
        wait_until("the worker ends", || workers(server.pid()).is_empty());
        driver.fail(fault);
        let (failed, untouched) = tokio::join!(ask(&server, "default", json!({})), embed(&server));
        assert_eq!(failed.status, status, "{fault}: {failed:?}");
        assert!(failed.text.contains(reason), "{fault}: {failed:?}");
        assert_eq!(untouched, beside, "{fault}");
        driver.fail("");
        assert_eq!(answer_at_last(&server, PROMPT).await, expected, "{fault}");
    }
    unload(&server, "default").await;
    server
        .post(
            "/api/embed",
            &json!({"model": "tiny", "input": [], "keep_alive": 0}),
        )
        .await;
    all_is_free(&server).await;
}

/// Where nobody asks for a GPU, one that reads faster than the CPU is used, and the CPU computes what its driver cannot.
#[tokio::test]
async fn a_gpu_that_nobody_asked_for_costs_no_answer() {
    let sandbox = Sandbox::new();
    let driver = Driver::new(&sandbox);
    let cache = sandbox.path().join("cache");
    let mut env = driver.with(&GPU);
    env.push(("XDG_CACHE_HOME", cache.to_str().unwrap()));
    env.push(("LLMSRV_GPU", ""));
    let running = async |server: &Server| {
        let answer = ask(server, "default", few_tokens()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let running: Value = server.get("/api/ps").await.ok();
        unload(server, "default").await;
        wait_until("the worker ends", || workers(server.pid()).is_empty());
        running["models"][0].clone()
    };
    let on_cpu = |running: &Value, why: Option<&str>| {
        assert_eq!(running["size_vram"], 0, "{running}");
        match why {
            None => assert_eq!(running.get("on_cpu"), None, "{running}"),
            Some(why) => {
                let said = running["on_cpu"].as_str().unwrap();
                assert!(said.contains(why), "{running}");
            }
        }
    };

    // Its driver computes wrongly: one warning, and the CPU computes.
    driver.fail("wrong");
    let server = sandbox.serve_with(&[], &env);
    server.wait_for_log("WARN llmsrv::local: models are computed on the CPU", 1);
    on_cpu(&running(&server).await, Some("computes f32_1 wrongly"));
    drop(server);
    // It never answers: the start waits for it no longer than for a model.
    driver.fail("never");
    let briefly = [&env[..], &[("LLMSRV_LOAD_TIMEOUT", "2s")]].concat();
    let server = sandbox.serve_with(&[], &briefly);
    on_cpu(&running(&server).await, Some("no answer in time"));
    drop(server);
    driver.fail("");

    // lavapipe is slower than the CPU that it runs on, and one that is hidden is not used.
    let server = sandbox.serve_with(&[], &env);
    server.wait_for_log("the GPU is not known to be faster", 1);
    on_cpu(&running(&server).await, None);
    drop(server);
    let hidden = [&env[..], &[("LLMSRV_VISIBLE_GPUS", "-1")]].concat();
    let server = sandbox.serve_with(&[], &hidden);
    server.wait_for_log("INFO llmsrv::local: models are computed on the CPU", 1);
    on_cpu(&running(&server).await, None);
    drop(server);

    // As if the CPU read slowly.
    let file = cache.join("llmsrv/gpu-drivers");
    let kept = fs::read_to_string(&file).unwrap();
    let mut numbers: Vec<&str> = kept.split_whitespace().collect();
    numbers[3] = "1";
    fs::write(&file, numbers.join(" ") + "\n").unwrap();
    let server = sandbox.serve_with(&[], &env);
    let on_gpu = running(&server).await;
    assert_eq!(on_gpu["size_vram"], on_gpu["size"], "{on_gpu}");
    assert_eq!(on_gpu.get("on_cpu"), None, "{on_gpu}");
    // What it cannot do once it may do the next time.
    driver.fail("memory");
    on_cpu(&running(&server).await, Some("memory"));
    driver.fail("");
    assert_eq!(running(&server).await["size_vram"], on_gpu["size_vram"]);
    let asked_of_cpu = ask(&server, "default", json!({"num_gpu": 0, "num_predict": 4})).await;
    assert_eq!(asked_of_cpu.status, 200, "{asked_of_cpu:?}");
    unload(&server, "default").await;
    // It is given up when it was lost too often.
    driver.fail("lost");
    for _ in 0..3 {
        on_cpu(&running(&server).await, Some("lost"));
    }
    driver.fail("");
    server.wait_for_log("from now on models are loaded for the CPU", 1);
    on_cpu(&running(&server).await, Some("the GPU was lost 3 times"));
    all_is_free(&server).await;
}

/// The kernels of one driver are asked for their known answers once; where one is wrong, each time.
#[tokio::test]
async fn a_driver_that_computes_wrongly_is_refused_with_the_kernel_and_a_cure() {
    let sandbox = Sandbox::new();
    let driver = Driver::new(&sandbox);
    let cache = sandbox.path().join("cache");
    let mut env = driver.with(&GPU);
    env.push(("XDG_CACHE_HOME", cache.to_str().unwrap()));
    let file = cache.join("llmsrv/gpu-drivers");

    driver.fail("wrong");
    for _ in 0..2 {
        let server = sandbox.serve_with(&[], &env);
        server.wait_for_log("no model can be loaded", 1);
        let failed = ask(&server, "default", json!({})).await;
        assert_eq!(failed.status, 500, "{failed:?}");
        for part in [
            "computes f32_1 wrongly",
            "install another version of the GPU's driver",
            "LLMSRV_GPU=0",
        ] {
            assert!(failed.text.contains(part), "{part}: {failed:?}");
        }
        assert!(!file.exists());
    }

    driver.fail("");
    let server = sandbox.serve_with(&[], &env);
    let expected = few_words(&server, PROMPT).await;
    server.wait_for_log("all kernels give the known answers", 1);
    drop(server);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = fs::read_to_string(&file).unwrap();
    assert_eq!(kept.lines().count(), 1, "{kept}");

    // What is kept is believed, and what is damaged is not.
    for (damage, is_asked) in [("", false), ("no key\n", true)] {
        if !damage.is_empty() {
            fs::write(&file, damage).unwrap();
        }
        let server = sandbox.serve_with(&[], &env);
        assert_eq!(few_words(&server, PROMPT).await, expected);
        let log = server.log();
        assert_eq!(log.contains("known answers"), is_asked, "{log}");
    }
    // It was measured again, too.
    let again = fs::read_to_string(&file).unwrap();
    let key = |line: &str| line.split(' ').next().unwrap().to_owned();
    assert_eq!(key(&again), key(&kept), "{again}");
}

#[test]
fn testgpu_sees_what_a_driver_does_to_a_model() {
    let sandbox = Sandbox::new();
    let driver = Driver::new(&sandbox);
    // Every kernel is asked for its known answer first, which takes a while.
    for (fault, limit, outcome, detail) in [
        ("", "300", "pass", "logits of 48 tokens are within"),
        ("memory", "300", "fail", "bytes of memory free"),
        ("lost", "300", "fail", "the device is lost"),
        ("never", "5", "fail", "no answer in time"),
        ("wrong", "300", "fail", "computes f32_1 wrongly"),
    ] {
        driver.fail(fault);
        let mut command = sandbox.command();
        command
            .args(["testgpu", "--json", "-c", "model", "--timeout", limit])
            .envs(driver.env.iter().map(|(name, value)| (*name, value)));
        let report = Output::of(&mut command).json();
        let check = &report["checks"][0];
        assert_eq!(check["outcome"], outcome, "{fault}: {report:#}");
        let found = check["detail"].as_str().unwrap();
        assert!(found.contains(detail), "{fault}: {found}");
    }
}

/// What the Khronos validation layer knows of Vulkan's rules: every kernel is made and run, weights and rows are copied.
#[test]
fn no_rule_of_vulkan_is_broken() {
    let sandbox = Sandbox::new();
    let args = ["testgpu", "--json", "-c", "model", "--timeout", "300"];
    let report = without_broken_rules(&sandbox, sandbox.command().args(args)).json();
    assert_eq!(report["checks"][0]["outcome"], "pass", "{report:#}");
    // A device that is measured for integer products is asked for the known answers of their kernels, too.
    let mut command = sandbox.command();
    command
        .args(["bench", "--gpu", "--limits", "-r", "1"])
        .envs(GPU)
        .env_remove("XDG_CACHE_HOME")
        .env("LLMSRV_GPU_ARITHMETIC", "int8");
    let said = without_broken_rules(&sandbox, &mut command).ok();
    assert!(said.stdout.contains("arithmetic int8"), "{said:?}");
}

/// Runs a command under the validation layer, which must have nothing to say.
fn without_broken_rules(sandbox: &Sandbox, command: &mut Command) -> Output {
    let log = sandbox.path().join("validation.log");
    let settings = format!(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n\
         khronos_validation.report_flags = error,warn,info\n\
         khronos_validation.log_filename = {}\n",
        log.display()
    );
    fs::write(sandbox.path().join("vk_layer_settings.txt"), settings).unwrap();
    command
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
        .env("VK_LAYER_SETTINGS_PATH", sandbox.path());
    let output = Output::of(command);
    let said = fs::read_to_string(log).expect("the layer, of vulkan-validationlayers");
    assert!(said.contains("Validation Layer Active"), "{said}");
    let broken = said.lines().filter(|line| {
        ["Error", "Warning"]
            .iter()
            .any(|word| line.starts_with(&format!("Validation {word}")))
    });
    assert_eq!(broken.count(), 0, "{said}");
    output
}

/// Each tenth time while it loads, else while it computes or waits, as chance has it.
#[tokio::test]
async fn whatever_kills_a_worker_a_hundred_times_the_server_goes_on() {
    const KILLS: usize = 100;
    let sandbox = Sandbox::new();
    // One that loads and answers soon where a CPU computes for the GPU.
    let make = ["bench", "--make-model", "tiny", "-o", "small.gguf"];
    sandbox.run(&make).ok();
    sandbox
        .run(&["create", "default", "--from", "small.gguf"])
        .ok();
    let server = sandbox.serve_with(&[], &GPU);
    let expected = answer(&server).await;
    assert!(!expected.is_empty());
    let before = Held::of(server.pid());
    let n_answers = Arc::new(AtomicUsize::new(0));
    let killer = {
        let (pid, n_answers) = (server.pid(), n_answers.clone());
        tokio::task::spawn_blocking(move || {
            let mut seed = u64::from(std::process::id());
            eprintln!("seed {seed}");
            for n in 0..KILLS {
                let seen = n_answers.load(Ordering::Relaxed);
                wait_until("there is a worker", || !workers(pid).is_empty());
                if n % 10 != 0 {
                    // A load that fails is not tried again for a second, and longer each time.
                    wait_until("an answer", || n_answers.load(Ordering::Relaxed) > seen);
                }
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                std::thread::sleep(Duration::from_millis((seed >> 33) % 100));
                for worker in workers(pid) {
                    signal(worker, if n % 2 == 0 { "-KILL" } else { "-ABRT" });
                }
            }
        })
    };
    while !killer.is_finished() {
        let two = tokio::join!(answer(&server), answer(&server));
        assert_eq!([two.0, two.1], [expected.as_str(); 2]);
        n_answers.fetch_add(2, Ordering::Relaxed);
    }
    killer.await.unwrap();
    assert_eq!(answer(&server).await, expected);
    eprintln!("{n_answers:?} answers between {KILLS} kills");
    unload(&server, "default").await;
    all_is_free(&server).await;
    Held::of(server.pid()).check(&before);
}

fn few_tokens() -> Value {
    json!({"temperature": 0, "num_predict": 4})
}

/// Asks until there is an answer; all that may come before it is that a worker was lost.
async fn answer(server: &Server) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let reply = ask(server, "default", few_tokens()).await;
        if reply.status == 200 {
            return reply.json()["response"].as_str().unwrap().to_owned();
        }
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.text.contains("is lost"), "{reply:?}");
        assert!(Instant::now() < deadline, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a process holds.
#[derive(Debug)]
struct Held {
    n_files: usize,
    n_threads: usize,
    memory_bytes: usize,
}

impl Held {
    fn of(pid: u32) -> Held {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |key: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let word = line.unwrap().split_whitespace().next().unwrap();
            word.parse().unwrap()
        };
        Held {
            n_files: fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            n_threads: number("Threads:"),
            memory_bytes: number("VmRSS:") << 10,
        }
    }

    /// Fails if there is more than before, but for what comes and goes: connections of clients, threads for blocking
    /// work, memory that the allocator keeps.
    #[track_caller]
    fn check(&self, before: &Held) {
        eprintln!("{before:?} became {self:?}");
        assert!(self.n_files <= before.n_files + 8, "{before:?} {self:?}");
        assert!(
            self.n_threads <= before.n_threads + 8,
            "{before:?} {self:?}"
        );
        let most = before.memory_bytes + MOST_GROWTH;
        assert!(self.memory_bytes <= most, "{before:?} {self:?}");
    }
}

/// Bytes that a server may have more after a thousand loads: 16 KiB for each.
const MOST_GROWTH: usize = 16 << 20;

/// Models of both kinds: computed by the server, and one of twenty by a worker.
#[tokio::test]
async fn a_thousand_loads_leave_nothing() {
    const LOADS: usize = 1000;
    let sandbox = with_tiny_model();
    let server = sandbox.serve_with(&[], &GPU);
    let load = async |n: usize| {
        if n.is_multiple_of(20) {
            let options = json!({"num_gpu": 1, "num_predict": 1});
            let request = json!({
                "model": "default", "prompt": "Hi", "stream": false, "options": options,
                "keep_alive": 0,
            });
            let reply = server.post("/api/generate", &request).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        } else {
            let request = json!({
                "model": "tiny", "input": "a b c", "keep_alive": 0, "options": {"num_gpu": 0},
            });
            let reply = server.post("/api/embed", &request).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
    };
    for n in 0..LOADS / 10 {
        load(n).await;
    }
    all_is_free(&server).await;
    let before = Held::of(server.pid());
    for n in LOADS / 10..LOADS {
        load(n).await;
    }
    all_is_free(&server).await;
    Held::of(server.pid()).check(&before);
    let metrics = server.get("/metrics").await.text;
    let loads: u64 = metrics
        .lines()
        .filter(|line| line.starts_with("llmsrv_model_loads_total{") && line.contains("loaded"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(loads, LOADS as u64, "{metrics}");
}
