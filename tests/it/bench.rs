//! `llmsrv bench`: what it prints is complete and adds up, and what it makes can be measured.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    faults::Driver,
    gpu::GPU,
    util::{Output, Sandbox},
};

fn json(sandbox: &Sandbox, args: &[&str]) -> Value {
    let output = sandbox.run(args).ok();
    assert_eq!(
        output.stderr, "",
        "nothing but the document where nobody watches"
    );
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn a_made_model_is_measured_beside_its_limits_and_a_peer() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("tiny model.gguf");
    let path = file.to_str().unwrap();
    let make = [
        "bench",
        "--make-model",
        "tiny:vocab=1024",
        "-Q",
        "Q8_0",
        "-o",
        path,
    ];
    assert_eq!(sandbox.run(&make).ok().stdout, "");

    let peer = "test -f {model} && echo 100";
    let args = [
        "bench", path, "--pp", "16,40", "-n", "4", "-d", "0,33", "-b", "1,3", "-r", "2", "-t", "1",
        "--peer", peer, "--json",
    ];
    let report = json(&sandbox, &args);
    for limit in ["read", "int8", "float"] {
        assert!(
            report["limits"][limit]["median"].as_f64().unwrap() > 1e6,
            "{limit}"
        );
    }
    let model = &report["models"][0];
    assert_eq!(model["notes"], Value::Array(Vec::new()));
    assert_eq!(model["model"], "tiny model");
    let tests = model["tests"].as_array().unwrap();
    let names: Vec<&str> = tests
        .iter()
        .map(|test| test["test"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "pp16",
            "pp40",
            "pp16 @ d33",
            "pp40 @ d33",
            "tg4",
            "tg4 @ d33",
            "tg4 x3 @ d128"
        ]
    );
    for test in tests {
        let speed = test["speed"]["median"].as_f64().unwrap();
        let share = test["share"].as_f64().unwrap();
        let limit = test["limit"].as_f64().unwrap();
        assert!(
            speed > 0.0 && (share - speed / limit).abs() < 1e-9,
            "{test}"
        );
        assert_eq!(test["speed"]["samples"].as_array().unwrap().len(), 2);
        let is_plain = !test["test"].as_str().unwrap().contains('@');
        assert_eq!(
            test["peers"].as_array().unwrap().len(),
            usize::from(is_plain)
        );
    }
    let ratio = tests[0]["peers"][0]["ratio"].as_f64().unwrap();
    assert!((ratio * 100.0 - tests[0]["speed"]["median"].as_f64().unwrap()).abs() < 1e-6);
    for (part, figure) in [
        ("process", "ready"),
        ("first_token", "new"),
        ("first_token", "seen"),
        ("stream", "http"),
        ("stream", "engine"),
    ] {
        let figure = &model[part][figure]["median"];
        assert!(
            figure.as_f64().is_some_and(|figure| figure > 0.0),
            "{part} {model}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(".llmsrv-bench"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "what was lent is taken back");
}

/// As `bench` says it where any driver of Vulkan will do.
fn on_gpu(sandbox: &Sandbox, args: &[&str], env: &[(&str, String)]) -> Output {
    let mut command = sandbox.command();
    // The flag asks for the GPU, not the setting.
    command.args(args).envs(GPU).env_remove("LLMSRV_GPU");
    Output::of(command.envs(env.iter().cloned()))
}

#[test]
fn a_gpu_is_measured_with_its_limits_and_kernels() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("tiny.gguf");
    let path = file.to_str().unwrap();
    let make = ["bench", "--make-model", "tiny", "-Q", "Q8_0", "-o", path];
    sandbox.run(&make).ok();
    let args = [
        "bench",
        path,
        "--gpu=0",
        "--pp",
        "16",
        "-n",
        "4",
        "-d",
        "0,33",
        "-b",
        "1,3",
        "-r",
        "1",
        "--peer",
        "test -f {model} && echo 1$GGML_VK_VISIBLE_DEVICES",
        "--json",
    ];
    let report = on_gpu(&sandbox, &args, &[]).ok().json();
    let gpu = &report["gpu"];
    for text in ["name", "kind", "driver", "api_version", "uuid"] {
        assert!(
            gpu[text].as_str().is_some_and(|text| !text.is_empty()),
            "{gpu}"
        );
    }
    for number in ["memory_bytes", "read_bytes"] {
        assert!(gpu[number].as_u64().unwrap() >= 32 << 20, "{gpu}");
    }
    assert_eq!(gpu["number"], 0);
    assert!((1e-8..1.0).contains(&gpu["kernel"]["median"].as_f64().unwrap()));
    for limit in ["read", "float"] {
        let limit = &report["limits"][limit];
        assert!(limit["median"].as_f64().unwrap() > 1e8, "{limit}");
        // Once beside each of five tests.
        assert_eq!(limit["samples"].as_array().unwrap().len(), 5);
    }
    let model = &report["models"][0];
    assert_eq!(model["notes"], Value::Array(Vec::new()));
    for part in ["process", "first_token", "stream"] {
        assert!(model[part].is_object(), "{part} {model}");
    }
    let weights = model["weight_bytes"].as_f64().unwrap();
    for test in model["tests"].as_array().unwrap() {
        let name = test["test"].as_str().unwrap();
        let kernels = test["kernels"].as_array().unwrap();
        let of = |name: &str| kernels.iter().find(|kernel| kernel["kernel"] == name);
        let shares = kernels
            .iter()
            .map(|kernel| kernel["share"].as_f64().unwrap());
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-6, "{test}");
        let is_ordered =
            kernels.is_sorted_by(|a, b| a["seconds"].as_f64() >= b["seconds"].as_f64());
        assert!(is_ordered, "{test}");
        // One row a step, and several.
        let is_alone = name.starts_with("tg4") && !name.contains('x');
        let product = of(if is_alone { "q8_0_1" } else { "q8_0_8" }).unwrap();
        assert!(product["seconds"].as_f64().unwrap() > 0.0);
        if name == "tg4" {
            // Four times nearly all weights, but for the embedding.
            let bytes = product["bytes"].as_f64().unwrap();
            assert!(
                (1.0 * weights..4.2 * weights).contains(&bytes),
                "{product} {weights}"
            );
        }
        assert!(
            of("rms_norm").is_some() && of("attend_f16").is_some(),
            "{test}"
        );
        assert!(of("probe_read").is_none(), "{test}");
        if name == "pp16" {
            assert_eq!(test["peers"][0]["speed"]["median"], 10.0, "{test}");
        }
    }
    // For people.
    let args = [
        "bench",
        path,
        "--gpu",
        "--quick",
        "--pp",
        "8",
        "-n",
        "2",
        "-r",
        "1",
        "--markdown",
    ];
    let text = on_gpu(&sandbox, &args, &[]).ok().stdout;
    for part in [
        "Limits of ",
        "Vulkan 1.",
        "| pp8 | q8_0_8 |",
        "| tg2 | q8_0_1 |",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let limits = on_gpu(&sandbox, &["bench", "--gpu", "--limits", "-r", "1"], &[]).ok();
    for part in ["f32 fma", "int8 dot", "arithmetic int8"] {
        assert!(limits.stdout.contains(part), "{part}: {limits:?}");
    }
    // The same model with products in integers.
    let int8 = [("LLMSRV_GPU_ARITHMETIC", "int8".to_owned())];
    let args = [
        "bench", path, "--gpu", "--quick", "--pp", "20", "-n", "2", "-r", "1", "--json",
    ];
    let report = on_gpu(&sandbox, &args, &int8).ok().json();
    assert_eq!(report["gpu"]["arithmetic"], "int8");
    assert_eq!(report["limits"]["int8_instruction"], "int8 dot");
    let kernels = report["models"][0]["tests"].to_string();
    for kernel in ["quantize_32", "dot_q8_0_32", "dot_q8_0_1"] {
        assert!(
            kernels.contains(&format!("\"{kernel}\"")),
            "{kernel}: {kernels}"
        );
    }
}

#[test]
fn a_gpu_without_timestamps_is_measured_without_its_kernels() {
    let sandbox = Sandbox::new();
    let driver = Driver::new(&sandbox);
    driver.fail("clock");
    let args = [
        "bench", "--gpu", "--quick", "--pp", "8", "-n", "2", "-r", "1", "--json",
    ];
    let report = on_gpu(&sandbox, &args, &driver.env).ok().json();
    assert_eq!(report["gpu"]["times_kernels"], false);
    let model = &report["models"][0];
    let notes = model["notes"].to_string();
    assert!(notes.contains("has no timestamps"), "{notes}");
    let test = &model["tests"][0];
    assert!(test["speed"]["median"].as_f64().unwrap() > 0.0);
    assert!(test.get("kernels").is_none(), "{test}");
}

#[test]
fn a_gpu_that_is_not_there_is_not_measured() {
    let sandbox = Sandbox::new();
    for name in ["--gpu=99", "--gpu=GPU-ffffffff", "--gpu=card"] {
        let output = on_gpu(&sandbox, &["bench", name], &[]);
        assert_eq!(output.code, 1, "{output:?}");
        let is_told = output.stderr.contains("no GPU can be used");
        assert!(is_told && output.stderr.contains("testgpu"), "{output:?}");
        assert!(output.stderr.contains(name), "{output:?}");
    }
}

#[test]
fn the_table_has_a_row_for_each_test() {
    let sandbox = Sandbox::new();
    let args = [
        "bench",
        "--pp",
        "8",
        "-n",
        "2",
        "-r",
        "1",
        "--quick",
        "--markdown",
    ];
    let text = sandbox.run(&args).ok().stdout;
    for part in ["| pp8 |", "| tg2 |", "Limits of"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn mistakes_are_told_with_what_to_do() {
    let sandbox = Sandbox::new();
    let made = sandbox.path().join("made.gguf");
    let made = made.to_str().unwrap();
    for (args, status, text) in [
        (
            &["bench", "no-such-model"][..],
            1,
            "no-such-model is neither a file nor a model here",
        ),
        (&["bench", "--pp", "0", "-n", "0"], 2, "nothing to measure"),
        (&["bench", "--pp", "99999999"], 2, "larger than anything"),
        (
            &["bench", "--make-model", "7b", "-o", made],
            2,
            "0.5b, 1b, 1.7b, 8b",
        ),
        (
            &["bench", "--make-model", "tiny", "-Q", "Q9", "-o", made],
            2,
            "Q4_K_M",
        ),
        (&["bench", "--make-model", "tiny"], 2, "--output"),
        (
            &[
                "bench", "-n", "1", "--pp", "1", "-r", "1", "--peer", "exit 7",
            ],
            1,
            "exit status: 7",
        ),
        (
            &[
                "bench",
                "-n",
                "1",
                "--pp",
                "1",
                "-r",
                "1",
                "--peer-python",
                "/no/python",
            ],
            1,
            "/no/python",
        ),
    ] {
        let output = sandbox.run(args);
        assert_eq!(output.code, status, "{output:?}");
        assert!(output.stderr.contains(text), "{output:?}");
    }
    assert!(!std::path::Path::new(made).exists());
}

/// Half a model is of no use to anybody, and may be gigabytes.
#[test]
fn an_interrupted_model_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("made");
    std::fs::create_dir(&folder).unwrap();
    let (file, part) = (folder.join("8b.gguf"), folder.join("8b.gguf.part"));
    let child = sandbox
        .command()
        .args(["bench", "--make-model", "8b", "-o"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_mins(1);
    while part.metadata().map_or(0, |part| part.len()) == 0 {
        assert!(Instant::now() < end, "nothing is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("was not made"), "{stderr}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
