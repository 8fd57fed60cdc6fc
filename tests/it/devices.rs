//! `testgpu` and `testnpu`: real drivers that compute on the CPU (PoCL, lavapipe), drivers that misbehave, machines
//! that are folders, and ONNX models.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::util::{Output, Sandbox};

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut checks = report["checks"].as_array().unwrap().iter();
    checks
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {report:#}"))
}

#[test]
fn software_devices_pass_all_tests_and_are_called_cpus() {
    let sandbox = Sandbox::new();
    let categories = ["opencl", "vulkan", "bandwidth", "compute", "inference"]
        .map(|name| format!("--category={name}"));
    let output = Output::of(
        sandbox
            .command()
            .args(["testgpu", "--json"])
            .args(&categories),
    );
    let report = output.json();
    let devices = report["devices"].as_array().unwrap();
    let labels: Vec<&str> = devices
        .iter()
        .map(|device| device["api"].as_str().unwrap())
        .collect();
    for api in ["opencl", "vulkan"] {
        assert!(
            labels.contains(&api),
            "no driver for {api}; `tests/run` installs PoCL and lavapipe"
        );
    }
    let has_gpu = devices.iter().any(|device| device["kind"] != "cpu");
    // They compute, and are no GPU.
    let expected = if has_gpu { 0 } else { 3 };
    assert_eq!(output.code, expected, "{report:#}");
    assert_eq!(report["totals"]["failed"], 0, "{report:#}");
    for device in devices {
        let (api, index) = (device["api"].as_str().unwrap(), &device["index"]);
        for name in [
            "saxpy",
            "matrix product",
            "memory copy",
            "multiply-add",
            "small transformer",
        ] {
            assert_eq!(
                check(&report, &format!("{api}:{index} {name}"))["outcome"],
                "pass"
            );
        }
    }
    assert!(
        devices.iter().any(|device| device["kind"] == "cpu"),
        "{devices:?}"
    );

    let text = sandbox.run(&["testgpu", "-c", "opencl"]).stdout;
    for part in ["DEVICE", "CPU", "✓ opencl", "Failed   0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains('\u{1b}'),
        "no colours where nobody sees them: {text}"
    );
}

#[test]
fn without_drivers_everything_is_skipped_with_a_reason() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command();
    command
        .args([
            "testgpu",
            "--json",
            "-c",
            "opencl",
            "-c",
            "vulkan",
            "-c",
            "bandwidth",
            "-c",
            "inference",
        ])
        .env("OCL_ICD_VENDORS", sandbox.path())
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .env("VK_ICD_FILENAMES", "/nonexistent.json");
    let output = Output::of(&mut command);
    let report = output.json();
    // Drivers that are linked to no file cannot be hidden: a machine with a GPU of its own fails here.
    assert_eq!(output.code, 3, "{report:#}");
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["outcome"], "skip", "{check}");
        assert!(!check["detail"].as_str().unwrap().is_empty());
    }
    assert_eq!(report["totals"]["skipped"], report["totals"]["total"]);
}

#[test]
fn wrong_use_is_told_with_the_categories() {
    let sandbox = Sandbox::new();
    for command in ["testgpu", "testnpu"] {
        let wrong = sandbox.run(&[command, "--category", "nonsense"]);
        assert_eq!(wrong.code, 2, "{wrong:?}");
        assert!(wrong.stderr.contains("hardware, driver"), "{wrong:?}");
        let list = sandbox.run(&[command, "--list"]).ok().stdout;
        assert!(
            list.lines().count() >= 7 && list.starts_with("hardware"),
            "{list}"
        );
        assert_eq!(sandbox.run(&[command, "--root", "/nonexistent"]).code, 2);
        assert_eq!(sandbox.run(&[command, "--user", "no-such-user"]).code, 2);
    }
    assert_eq!(
        sandbox
            .run(&["testgpu", "--root", ".", "-c", "opencl"])
            .code,
        2
    );
    assert_eq!(sandbox.run(&["testgpu", "--yes"]).code, 2);
    assert_eq!(sandbox.run(&["testnpu", "--model", "none.onnx"]).code, 2);
}

/// Compiles C to a library.
pub(crate) fn library(arguments: &[&str], source: &Path, out: &Path) {
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-O1"])
        .args(arguments)
        .arg(source)
        .arg("-o")
        .arg(out)
        .arg("-lm");
    Output::of(&mut compiler).ok();
}

#[test]
fn a_driver_that_crashes_or_hangs_is_a_failed_test() {
    for (fault, limit, wanted) in [
        ("*(volatile int *)8 = 0", "60", "SIGSEGV"),
        ("for (;;) pause()", "1", "no answer for 1 s"),
    ] {
        let sandbox = Sandbox::new();
        let source = sandbox.path().join("icd.c");
        let code = format!(
            "#include <unistd.h>\n__attribute__((constructor)) static void start(void) {{ {fault}; }}\n"
        );
        fs::write(&source, code).unwrap();
        let icd = sandbox.path().join("libfault.so");
        library(&[], &source, &icd);
        fs::write(sandbox.path().join("fault.icd"), icd.to_str().unwrap()).unwrap();
        let mut command = sandbox.command();
        command
            .args(["testgpu", "--json", "-c", "opencl", "--timeout", limit])
            .env("OCL_ICD_VENDORS", sandbox.path());
        let output = Output::of(&mut command);
        let report = output.json();
        let check = check(&report, "opencl devices");
        assert_eq!(
            (output.code, &check["outcome"]),
            (1, &Value::from("fail")),
            "{report:#}"
        );
        assert!(
            check["detail"].as_str().unwrap().contains(wanted),
            "{check}"
        );
    }
}

/// The stand-in runs the kernels on the CPU; it proves the sequence of calls, and no GPU.
#[test]
fn cuda_and_hip_are_called_as_their_drivers_want() {
    let sandbox = Sandbox::new();
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/llmsrv-devices/tests/fake_driver.c");
    library(&[], &source, &sandbox.path().join("libcuda.so.1"));
    library(&["-DHIP"], &source, &sandbox.path().join("libamdhip64.so"));
    fs::copy(
        sandbox.path().join("libamdhip64.so"),
        sandbox.path().join("libhiprtc.so"),
    )
    .unwrap();
    let run = |api: &str, fault: &str| {
        let limit = if fault == "hang" { "1" } else { "20" };
        let mut command = sandbox.command();
        command
            .args(["testgpu", "--json", "-c", api, "--timeout", limit])
            .env("LD_LIBRARY_PATH", sandbox.path())
            .env("FAKE_DRIVER", fault);
        let output = Output::of(&mut command);
        (output.code, output.json())
    };
    for api in ["cuda", "rocm"] {
        let (code, report) = run(api, "");
        assert_eq!(code, 0, "{report:#}");
        assert_eq!(report["devices"][0]["name"], "Stand-in");
        assert_eq!(report["totals"]["passed"], 3, "{report:#}");

        let (code, report) = run(api, "none");
        assert_eq!(
            (code, &report["totals"]["skipped"]),
            (3, &Value::from(1)),
            "{report:#}"
        );
    }
    let saxpy = "cuda:0 saxpy";
    for (fault, wanted) in [
        ("wrong", "wrong result: value 7"),
        ("error", "cuLaunchKernel: error 700 (FAKE_ERROR)"),
        ("crash", "SIGSEGV"),
        ("hang", "no answer for 1 s"),
    ] {
        let (code, report) = run("cuda", fault);
        assert_eq!(code, 1, "{report:#}");
        let failed = check(&report, saxpy);
        assert_eq!(failed["outcome"], "fail");
        assert!(
            failed["detail"].as_str().unwrap().contains(wanted),
            "{failed}"
        );
        // The others are made all the same.
        assert_eq!(
            check(&report, "cuda:0 matrix product")["outcome"],
            "pass",
            "{report:#}"
        );
    }
}

#[test]
fn permissions_are_mended_with_groups_and_never_for_all() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    let node = sandbox.path().join("dev/dri/renderD128");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    fs::create_dir_all(sandbox.path().join("etc")).unwrap();
    fs::write(
        sandbox.path().join("etc/group"),
        "root:x:0:\nrender:x:105:\n",
    )
    .unwrap();
    fs::write(&node, "").unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o600)).unwrap();
    let root = sandbox.path().to_str().unwrap();
    let failed = sandbox.run(&["testgpu", "--root", root, "--user", "daemon", "--json"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert_eq!(
        check(&failed.json(), "/dev/dri/renderD128")["outcome"],
        "fail"
    );
    let fix = sandbox
        .run(&[
            "testgpu",
            "--root",
            root,
            "--user",
            "daemon",
            "--fix-permissions",
        ])
        .ok();
    assert!(
        fix.stdout
            .contains(r#"KERNEL=="renderD*", GROUP="render", MODE="0660""#),
        "{fix:?}"
    );
    assert!(fix.stdout.contains("usermod -aG render daemon"), "{fix:?}");
    assert!(fix.stderr.contains("nothing was changed"), "{fix:?}");
}

#[test]
fn an_npu_of_another_machine_is_described_by_a_copy_of_its_folders() {
    let sandbox = Sandbox::new();
    let at = sandbox.path().join("sys/bus/pci/devices/0000:00:0b.0");
    fs::create_dir_all(&at).unwrap();
    for (name, text) in [
        ("class", "0x120000\n"),
        ("vendor", "0x8086\n"),
        ("device", "0x643e\n"),
    ] {
        fs::write(at.join(name), text).unwrap();
    }
    let root = sandbox.path().to_str().unwrap();
    let hardware = sandbox
        .run(&["testnpu", "--root", root, "-c", "hardware"])
        .ok();
    assert!(
        hardware.stdout.contains("Intel NPU of Lunar Lake"),
        "{hardware:?}"
    );
    let all = sandbox.run(&["testnpu", "--root", root, "--json"]);
    assert_eq!(all.code, 1, "no driver has it: {all:?}");
    assert_eq!(all.json()["npus"][0]["maker"], "Intel");

    let none = sandbox.path().join("none");
    fs::create_dir(&none).unwrap();
    let none = sandbox.run(&["testnpu", "--root", none.to_str().unwrap()]);
    assert_eq!(none.code, 3, "{none:?}");
    assert!(none.stdout.contains("Skipped  7"), "{none:?}");
}

/// A field of a protocol buffer that holds bytes.
fn bytes(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![tag << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(content);
    field
}

/// A field that holds a small number.
fn number(tag: u8, value: u8) -> Vec<u8> {
    vec![tag << 3, value]
}

/// y = x W, where x is a batch of unknown length by 4, and W is 4 by 3.
fn onnx() -> Vec<u8> {
    let axis = |length: u8| bytes(1, &number(1, length));
    let value = |name: &str, shape: Vec<u8>| {
        let tensor = [number(1, 1), bytes(2, &shape)].concat();
        [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
    };
    let batch = bytes(1, &bytes(2, b"batch"));
    let weights: Vec<u8> = (0..12_u8)
        .flat_map(|i| f32::from(i).to_le_bytes())
        .collect();
    let weights = [
        number(1, 4),
        number(1, 3),
        number(2, 1),
        bytes(8, b"w"),
        bytes(9, &weights),
    ]
    .concat();
    let node = [
        bytes(1, b"x"),
        bytes(1, b"w"),
        bytes(2, b"y"),
        bytes(4, b"MatMul"),
    ]
    .concat();
    let graph = [
        bytes(1, &node),
        bytes(2, b"g"),
        bytes(5, &weights),
        bytes(11, &value("x", [batch.clone(), axis(4)].concat())),
        bytes(12, &value("y", [batch, axis(3)].concat())),
    ];
    let opset = [bytes(1, b""), number(2, 17)].concat();
    [
        number(1, 8),
        bytes(2, b"llmsrv tests"),
        bytes(7, &graph.concat()),
        bytes(8, &opset),
    ]
    .concat()
}

/// The library of ONNX Runtime within the package for Python.
pub(crate) fn onnx_runtime() -> PathBuf {
    let clients = std::env::var_os("TEST_CLIENTS")
        .expect("ONNX Runtime is missing, which `tests/run` installs");
    let versions = fs::read_dir(Path::new(&clients).join("venv/lib"))
        .unwrap()
        .flatten();
    let folders = versions.map(|version| version.path().join("site-packages/onnxruntime/capi"));
    let mut files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let library = files.find(|file| {
        file.file_name()
            .to_string_lossy()
            .starts_with("libonnxruntime.so")
    });
    library.expect("requirements.txt has onnxruntime").path()
}

#[test]
fn a_model_runs_on_the_cpu_and_that_is_not_counted_for_an_npu() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("m.onnx"), onnx()).unwrap();
    let library = onnx_runtime();
    let library = library.to_str().unwrap();
    let root = sandbox.path().to_str().unwrap();
    let test = |model: &str, runtime: &[&str]| {
        let arguments = [
            &["testnpu", "--json", "--root", root, "--model", model],
            runtime,
        ]
        .concat();
        sandbox.run(&arguments)
    };
    let output = test("m.onnx", &["--runtime", library]);
    let report = output.json();
    assert_eq!(output.code, 3, "there is no NPU: {report:#}");
    assert_eq!(check(&report, "header")["outcome"], "pass");
    assert!(
        check(&report, "header")["detail"]
            .as_str()
            .unwrap()
            .contains("llmsrv tests"),
        "{report:#}"
    );
    let cpu = check(&report, "on the CPU");
    assert_eq!(cpu["outcome"], "info", "{report:#}");
    assert!(cpu["value"].as_f64().unwrap() > 0.0 && cpu["unit"] == "ms");
    assert!(cpu["detail"].as_str().unwrap().contains("[1, 4]"), "{cpu}");
    assert_eq!(check(&report, "on an NPU")["outcome"], "skip");

    // The setting names it, too.
    let mut command = sandbox.command();
    command
        .args(["testnpu", "--json", "--root", root, "--model", "m.onnx"])
        .env("ORT_DYLIB_PATH", library);
    assert_eq!(
        check(&Output::of(&mut command).json(), "on the CPU")["outcome"],
        "info"
    );

    // A machine with an NPU whose provider this library lacks: the CPU does not step in.
    let at = sandbox.path().join("sys/bus/pci/devices/0000:00:0b.0");
    fs::create_dir_all(&at).unwrap();
    for (name, text) in [
        ("class", "0x120000\n"),
        ("vendor", "0x8086\n"),
        ("device", "0x643e\n"),
    ] {
        fs::write(at.join(name), text).unwrap();
    }
    let report = test("m.onnx", &["--runtime", library]).json();
    let npu = check(&report, "Intel NPU of Lunar Lake with OpenVINO");
    assert_eq!(npu["outcome"], "fail", "{report:#}");
    fs::remove_dir_all(sandbox.path().join("sys")).unwrap();

    // A sound header around a broken graph, and a library that is none.
    let mut broken = onnx();
    let at = broken
        .windows(6)
        .position(|window| window == b"MatMul")
        .unwrap();
    broken[at..at + 6].copy_from_slice(b"Mutter");
    fs::write(sandbox.path().join("broken.onnx"), broken).unwrap();
    let output = test("broken.onnx", &["--runtime", library]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        check(&output.json(), "on the CPU")["detail"]
            .as_str()
            .unwrap()
            .contains("Mutter"),
        "{output:?}"
    );
    let output = test("m.onnx", &["--runtime", "m.onnx"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        check(&output.json(), "on the CPU")["detail"]
            .as_str()
            .unwrap()
            .contains("ONNX Runtime"),
        "{output:?}"
    );
}

#[test]
fn what_is_no_model_is_refused_before_any_library_sees_it() {
    let sandbox = Sandbox::new();
    let root = sandbox.path().to_str().unwrap();
    let whole = onnx();
    for (name, content, why) in [
        ("empty.onnx", &[][..], "empty"),
        ("cut.onnx", &whole[..whole.len() - 9], "breaks off"),
        (
            "picture.onnx",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "protocol buffer",
        ),
        ("model.bin", &whole, ".onnx, .xml"),
    ] {
        fs::write(sandbox.path().join(name), content).unwrap();
        let output = sandbox.run(&["testnpu", "--json", "--root", root, "--model", name]);
        assert_eq!(output.code, 1, "{output:?}");
        let report = output.json();
        let header = check(&report, "header");
        assert!(header["detail"].as_str().unwrap().contains(why), "{header}");
    }
    for name in ["model.rknn", "model.xml", "model.hef"] {
        fs::write(sandbox.path().join(name), "x").unwrap();
        let output = sandbox.run(&[
            "testnpu", "--json", "--root", root, "-c", "model", "--model", name,
        ]);
        assert_eq!(output.code, 3, "{output:?}");
        let report = output.json();
        assert!(
            check(&report, "model")["hint"]
                .as_str()
                .unwrap()
                .contains("ONNX"),
            "{report:#}"
        );
    }
}
