//! Every family against llama.cpp, and against candle's tensors.

use std::{fs, path::Path};

use crate::tiny::{CASES, Case, all_logits, argmax, difference, fingerprint};
use llmsrv_engine::{LoadOptions, Loaded};
use serde::{Deserialize, Serialize};

/// What `fixtures/make.py` writes.
#[derive(Deserialize)]
struct Expected {
    fingerprint: String,
    prompts: Vec<ExpectedPrompt>,
}

#[derive(Deserialize)]
struct ExpectedPrompt {
    tokens: Vec<u32>,
    argmax: Vec<usize>,
    columns: Vec<Vec<f32>>,
    last: Vec<f32>,
}

/// What `fixtures/make.py` reads.
#[derive(Serialize)]
struct Prompts {
    prompts: [Vec<u32>; 2],
    n_ctx: usize,
}

/// Every `STRIDE`th logit is kept at every position.
const STRIDE: usize = 12;
const N_CTX: usize = 512;
/// llama.cpp approximates exponentials and reads GELU from a table of f16 values.
const TOLERANCE: f32 = 1e-3;

fn load(case: &Case, device: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = case.write(folder.path());
    let options = LoadOptions {
        kv_cache_type: "f32".into(),
        n_threads: 2,
        device: device.into(),
    };
    llmsrv_models::load(&path, &options).unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

#[test]
fn all_families_agree_with_llama_cpp() {
    let mut worst = (0.0, "", "");
    for case in CASES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/families")
            .join(format!("{}.json", case.name));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let expected: Expected = serde_json::from_str(&text).unwrap();
        let found = format!("{:016x}", fingerprint(&case.bytes()));
        assert_eq!(
            found, expected.fingerprint,
            "{}: run make.py again",
            case.name
        );
        assert_eq!(expected.prompts.len(), 2);
        for device in ["cpu", "candle"] {
            let mut loaded = load(case, device);
            for prompt in &expected.prompts {
                let rows = all_logits(&mut *loaded.model, &prompt.tokens);
                assert_eq!(rows.len(), prompt.columns.len());
                let last = difference(rows.last().unwrap(), &prompt.last);
                let mut differences = vec![last];
                for (position, row) in rows.iter().enumerate() {
                    let columns: Vec<f32> = row.iter().copied().step_by(STRIDE).collect();
                    let scale = row.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
                    let worst = columns
                        .iter()
                        .zip(&prompt.columns[position])
                        .map(|(a, b)| (a - b).abs() / scale)
                        .fold(0.0, f32::max);
                    differences.push(worst);
                    // A tie may go either way.
                    let best = row[argmax(row)];
                    let theirs = row[prompt.argmax[position]];
                    assert!(
                        best - theirs <= TOLERANCE * scale,
                        "{} {device}: position {position} prefers another token",
                        case.name
                    );
                }
                for difference in differences {
                    assert!(
                        difference <= TOLERANCE,
                        "{} {device}: differs by {difference}",
                        case.name
                    );
                    if difference > worst.0 {
                        worst = (difference, case.name, device);
                    }
                }
            }
        }
    }
    println!("largest difference: {worst:?}");
}

#[test]
fn every_architecture_has_a_case() {
    for architecture in llmsrv_models::architectures() {
        let case = CASES.iter().find(|case| case.architecture == architecture);
        assert!(case.is_some(), "{architecture}");
    }
}

#[test]
fn cpu_and_candle_agree() {
    for case in CASES {
        let [prompt, _] = case.prompts();
        let cpu = all_logits(&mut *load(case, "cpu").model, &prompt);
        let candle = all_logits(&mut *load(case, "candle").model, &prompt);
        for (position, (cpu, candle)) in cpu.iter().zip(&candle).enumerate() {
            let difference = difference(cpu, candle);
            assert!(difference < 1e-4, "{} {position}: {difference}", case.name);
        }
    }
}

#[test]
#[ignore = "writes the input of fixtures/make.py"]
fn write_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny-models");
    fs::create_dir_all(&folder).unwrap();
    for case in CASES {
        case.write(&folder);
        let prompts = Prompts {
            prompts: case.prompts(),
            n_ctx: N_CTX,
        };
        let path = folder.join(format!("{}.prompts.json", case.name));
        fs::write(path, serde_json::to_string(&prompts).unwrap()).unwrap();
    }
    println!("{}", folder.display());
}
