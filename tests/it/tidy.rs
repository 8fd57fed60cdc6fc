//! Rules of the house that a compiler does not check; `docs/architecture.md` explains them.

use std::{collections::BTreeSet, ffi::OsStr, fs, path::Path, process::Command};

use serde_json::Value;

/// Which of our crates each crate may import.
const EDGES: &[(&str, &[&str])] = &[
    (
        "logkit",
        &[
            "llmsrv-config",
            "llmsrv-tls",
            "logkit-macros",
            "logkit-proto",
        ],
    ),
    ("logkit-macros", &[]),
    ("logkit-proto", &[]),
    ("logkit-server", &["http-front", "logkit", "logkit-proto"]),
    ("http-front", &[]),
    ("llmsrv-tls", &[]),
    ("llmsrv-api", &["llmsrv-tls"]),
    (
        "llmsrv-bench",
        &[
            "llmsrv-engine",
            "llmsrv-gguf",
            // For the limits of GPUs, as the kernels for those of the CPU.
            "llmsrv-gpu",
            "llmsrv-kernels",
            "llmsrv-tokenizer",
        ],
    ),
    ("llmsrv-config", &[]),
    (
        "llmsrv-convert",
        &["llmsrv-gguf", "llmsrv-kernels", "llmsrv-tokenizer"],
    ),
    ("llmsrv-devices", &["llmsrv-gpu", "llmsrv-onnx"]),
    ("llmsrv-gguf", &[]),
    ("llmsrv-gpu", &["llmsrv-gguf"]),
    ("llmsrv-host", &[]),
    ("llmsrv-memory", &[]),
    ("llmsrv-onnx", &[]),
    ("llmsrv-ssh", &[]),
    ("llmsrv-kernels", &["llmsrv-gguf"]),
    ("llmsrv-tokenizer", &["llmsrv-gguf"]),
    ("llmsrv-engine", &["llmsrv-tokenizer"]),
    ("llmsrv-worker", &["llmsrv-engine"]),
    (
        "llmsrv-models",
        &[
            "llmsrv-engine",
            "llmsrv-gguf",
            "llmsrv-gpu",
            "llmsrv-kernels",
            "llmsrv-onnx",
            "llmsrv-tokenizer",
        ],
    ),
    ("llmsrv-monitor", &[]),
    ("llmsrv-chat", &["llmsrv-api"]),
    ("llmsrv-store", &["llmsrv-gguf"]),
    (
        "llmsrv-registry",
        &["llmsrv-api", "llmsrv-store", "llmsrv-tls"],
    ),
    (
        "llmsrv-server",
        &[
            "llmsrv-api",
            "llmsrv-chat",
            "llmsrv-config",
            "llmsrv-convert",
            "llmsrv-engine",
            "http-front",
            "llmsrv-gguf",
            "llmsrv-registry",
            "llmsrv-store",
            "llmsrv-tls",
            "llmsrv-tokenizer",
        ],
    ),
    (
        "llmsrv",
        &[
            "llmsrv-api",
            "llmsrv-bench",
            "llmsrv-config",
            "llmsrv-convert",
            "llmsrv-devices",
            "llmsrv-engine",
            "llmsrv-host",
            "llmsrv-memory",
            "llmsrv-models",
            "llmsrv-monitor",
            "llmsrv-registry",
            "llmsrv-server",
            "llmsrv-ssh",
            "llmsrv-store",
            "llmsrv-tls",
            "llmsrv-worker",
            "logkit",
            "logkit-cli",
        ],
    ),
    (
        "logkit-cli",
        &["llmsrv-config", "llmsrv-memory", "logkit", "logkit-server"],
    ),
    ("logkit-py", &["llmsrv-config", "logkit", "logkit-cli"]),
    (
        "llmsrv-fuzz",
        &[
            "llmsrv-api",
            "llmsrv-chat",
            "llmsrv-convert",
            "llmsrv-engine",
            "llmsrv-gguf",
            "llmsrv-models",
            "llmsrv-server",
            "logkit",
            "logkit-server",
        ],
    ),
];

/// Libraries that only the named crates may import, so that each has one home.
const FENCED: &[(&str, &[&str])] = &[
    ("ash", &["llmsrv-gpu"]),
    ("axum", &["http-front", "llmsrv-server", "logkit-server"]),
    ("candle-core", &["llmsrv-models"]),
    ("clap", &["llmsrv", "logkit-cli"]),
    ("governor", &["llmsrv-server"]),
    ("gotmpl", &["llmsrv-chat"]),
    ("image", &["llmsrv-models"]),
    ("libc", &["llmsrv-memory"]),
    ("llguidance", &["llmsrv-engine"]),
    ("memmap2", &["llmsrv-gguf"]),
    ("ureq", &["logkit"]),
    ("opencl3", &["llmsrv-devices"]),
    ("ort", &["llmsrv-onnx"]),
    ("postgres", &["logkit"]),
    ("pyo3", &["logkit-py"]),
    ("tokio-postgres-rustls", &["logkit"]),
    ("minijinja", &["llmsrv-chat"]),
    // Drawing on all of a terminal; lines of text are printed elsewhere.
    ("crossterm", &["llmsrv-monitor"]),
    ("ratatui", &["llmsrv-monitor"]),
    ("rayon", &["llmsrv-models"]),
    ("safetensors", &["llmsrv-convert"]),
    ("tokio-rustls", &["http-front"]),
    (
        "reqwest",
        &["llmsrv-api", "llmsrv-registry", "llmsrv-server"],
    ),
    ("rusqlite", &["logkit"]),
    ("rustls", &["http-front", "llmsrv-tls"]),
    ("openssh", &["llmsrv-ssh"]),
    ("ssh-key", &["llmsrv-registry", "llmsrv-ssh"]),
    ("toml", &["llmsrv-config", "llmsrv-store"]),
    ("tonic", &["logkit-proto", "logkit-server"]),
];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn crates_import_only_what_the_table_allows() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(
        packages.len(),
        EDGES.len(),
        "every crate has a row in EDGES"
    );
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let allowed = EDGES
            .iter()
            .find(|(row, _)| *row == name)
            .unwrap_or_else(|| panic!("{name} has no row"))
            .1;
        for dependency in package["dependencies"].as_array().unwrap() {
            if !dependency["kind"].is_null() {
                continue; // tests and build scripts may use more
            }
            let dependency = dependency["name"].as_str().unwrap();
            if dependency.starts_with("llmsrv") || dependency.starts_with("logkit") {
                assert!(
                    allowed.contains(&dependency),
                    "{name} may not import {dependency}"
                );
            }
            if let Some((_, homes)) = FENCED.iter().find(|(fenced, _)| *fenced == dependency) {
                assert!(
                    homes.contains(&name),
                    "{dependency} belongs to {homes:?}, not to {name}"
                );
            }
        }
    }
}

#[test]
fn only_the_config_crate_reads_the_environment_and_unsafe_stays_fenced() {
    let unsafe_homes = [
        "crates/llmsrv-kernels/",
        "crates/llmsrv-gguf/src/map.rs",
        "crates/llmsrv-memory/src/glibc.rs",
        // They call drivers and the libraries of their makers, always in a process of their own.
        "crates/llmsrv-devices/src/compute/driver.rs",
        "crates/llmsrv-devices/src/compute/opencl.rs",
        "crates/llmsrv-onnx/src/measure.rs",
        // They call a driver within the worker of a model.
        "crates/llmsrv-gpu/src/device.rs",
        "crates/llmsrv-gpu/src/memory.rs",
        "crates/llmsrv-gpu/src/recorder.rs",
        "crates/llmsrv-gpu/src/times.rs",
        // It gives SQLite another system call.
        "crates/logkit/src/sinks/locks.rs",
    ];
    for path in sources() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        // A build script is told by variables where to write.
        if !path.starts_with("crates/llmsrv-config/") && !path.ends_with("build.rs") {
            assert!(
                !code.contains("env::var"),
                "{path} reads the environment; llmsrv-config does that"
            );
        }
        if !unsafe_homes.iter().any(|home| path.starts_with(home)) {
            assert!(
                !code.contains("unsafe {") && !code.contains("unsafe fn"),
                "{path} has unsafe code"
            );
        }
    }
}

/// Files that print for people: the program's, and that of the logger's commands, which are also a
/// program of their own. (A logger's console sink writes entries, which is its work.)
const PRINTERS: &[&str] = &["src/term.rs", "crates/logkit-cli/src/render.rs"];

#[test]
fn only_the_printers_print() {
    for path in sources() {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let prints = code.contains("anstream::stdout") || code.contains("anstream::stderr");
        assert!(
            !prints || PRINTERS.contains(&path.as_str()),
            "{path} prints; {PRINTERS:?} do that"
        );
    }
}

#[test]
fn every_test_file_is_part_of_the_suite() {
    let main = fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    for entry in fs::read_dir(root().join("tests/it")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || main.contains(&format!("mod {module};")),
            "tests/it/{name} is not in main.rs"
        );
    }
}

/// A promise whose test is gone is one that nobody holds.
#[test]
fn every_test_that_the_coverage_of_the_api_names_exists() {
    let document = fs::read_to_string(root().join("docs/api-coverage.md")).unwrap();
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| ") && *line != "| promise | test |");
    let mut n_rows = 0;
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<&str> = tests
            .split(' ')
            .map(|name| name.trim_matches('`'))
            .collect();
        for name in names {
            let [home, module, test] = name.split("::").collect::<Vec<_>>()[..] else {
                panic!("`{name}` is not crate::module::test: {row}");
            };
            let folder = match home {
                "llmsrv" => root().to_path_buf(),
                home => root().join("crates").join(format!("llmsrv-{home}")),
            };
            assert!(has_test(&folder, module, test), "{name} does not exist");
        }
        n_rows += 1;
    }
    assert!(n_rows > 240, "{n_rows} rows");
}

/// Tells whether a module of a crate, or of its tests, has a test.
fn has_test(folder: &Path, module: &str, test: &str) -> bool {
    let is_module = |path: &Path| {
        let name = path.file_stem().and_then(OsStr::to_str);
        let inner = matches!(name, Some("tests" | "mod"));
        let named = if inner { path.parent() } else { Some(path) };
        named.and_then(Path::file_stem).and_then(OsStr::to_str) == Some(module)
    };
    let declared = format!("fn {test}(");
    let is_test = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.contains(&declared));
        at.is_some_and(|at| {
            let mut before = lines[..at].iter().rev().take(3);
            before.any(|line| line.contains("test]") || line.contains("test("))
        })
    };
    let mut folders = vec![folder.join("src"), folder.join("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if is_module(&path) && is_test(&path) {
                return true;
            }
        }
    }
    false
}

/// Paths of our own Rust sources without tests and benches, relative to the root.
pub(crate) fn sources() -> BTreeSet<String> {
    let output = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|path| {
            ![
                "/tests/",
                "tests/",
                "/benches/",
                "benches/",
                "fuzz/",
                "/examples/",
            ]
            .iter()
            .any(|f| path.contains(f))
        })
        .map(str::to_owned)
        .collect()
}
