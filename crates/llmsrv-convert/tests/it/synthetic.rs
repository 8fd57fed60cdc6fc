//! Models with random weights: valid, finite, the same every time, with the types of `quantize`.

use std::{ops::ControlFlow, path::Path};

use llmsrv_convert::{Error, Family, SHAPES, Shape, Target, quantize, synthesize};
use llmsrv_engine::{BlockId, LoadOptions, Span, SpanState, StateId, StepPlan};
use llmsrv_gguf::{GgufFile, TensorType};

fn tiny(family: Family, tied: bool) -> Shape {
    let (_, _, shape) = SHAPES.iter().find(|row| row.0 == "tiny").unwrap();
    let (n_experts, n_used) = if matches!(family, Family::GptOss | Family::Qwen3Moe) {
        (4, 2)
    } else {
        (0, 0)
    };
    Shape {
        family,
        tied,
        n_experts,
        n_used,
        ..*shape
    }
}

fn tiny_without_experts() -> Shape {
    Shape {
        n_experts: 0,
        ..tiny(Family::GptOss, true)
    }
}

fn make(path: &Path, shape: &Shape, target: Target) {
    synthesize(path, "tiny", shape, target, &mut |_, _| {
        ControlFlow::Continue(())
    })
    .unwrap();
}

#[test]
fn every_target_and_family_runs_and_gives_finite_logits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (index, target) in Target::ALL.iter().enumerate() {
        let family = Family::ALL[index % Family::ALL.len()];
        make(&path, &tiny(family, index % 2 == 0), *target);
        let options = LoadOptions {
            n_threads: 1,
            device: "cpu".into(),
            ..LoadOptions::default()
        };
        let mut model = llmsrv_models::load(&path, &options).unwrap().model;
        model.reserve_blocks(1).unwrap();
        let keeps_state = model.spec().state_bytes > 0;
        if keeps_state {
            model.reserve_states(1).unwrap();
        }
        let plan = StepPlan {
            tokens: vec![5, 300, 2000],
            positions: vec![0, 1, 2],
            ends: vec![1, 2, 3],
            coordinates: Vec::new(),
            spans: vec![Span {
                rows: 0..3,
                start: 0,
                blocks: vec![BlockId(0)],
                tail: None,
                state: keeps_state.then(|| SpanState::new(StateId(0))),
            }],
            logit_rows: vec![2],
            ..StepPlan::default()
        };
        let mut logits = vec![0.0; model.spec().vocab_size];
        model.forward(&plan, &mut logits).unwrap();
        let largest = logits.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
        assert!(
            largest.is_finite() && (0.05..50.0).contains(&largest),
            "{target} {family:?}: {largest}"
        );
    }
}

/// Shapes of large models, in few layers and with few tokens.
#[test]
fn every_shape_is_that_of_a_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (name, _, shape) in SHAPES
        .iter()
        .filter(|row| row.2.hidden > 9000 || row.2.n_experts > 0)
    {
        let shape = Shape {
            n_layers: if shape.family == Family::Gemma4 { 7 } else { 1 },
            n_vocab: 2048,
            n_experts: shape.n_experts.min(8),
            ..*shape
        };
        make(&path, &shape, Target::Q4_K_M);
        let file = GgufFile::open(&path).unwrap();
        let experts = file.tensor("blk.0.ffn_up_exps.weight");
        let expected = match shape.family {
            Family::GptOss => Some(TensorType::MXFP4),
            Family::Qwen3Moe => Some(TensorType::Q4_K),
            _ => None,
        };
        assert_eq!(experts.map(|tensor| tensor.dtype), expected, "{name}");
        llmsrv_models::load(&path, &LoadOptions::default()).unwrap();
    }
}

/// Through a link, so that a mistake would cost this folder a link and not the system its device.
#[test]
fn what_is_no_file_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("full");
    std::os::unix::fs::symlink("/dev/full", &link).unwrap();
    let shape = tiny(Family::Qwen2, true);
    let mut go = |_, _| ControlFlow::Continue(());
    let made = synthesize(&link, "tiny", &shape, Target::Q8_0, &mut go);
    assert!(matches!(made, Err(Error::Io(_))), "{made:?}");
    assert!(link.is_symlink());
}

#[test]
fn types_are_those_of_quantising_and_bytes_are_the_same_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Rows that are no multiple of 256 fall back to types with short blocks.
    let shape = Shape {
        width: 320,
        n_layers: 9,
        ..tiny(Family::Qwen2, true)
    };
    make(&at("wide.gguf"), &shape, Target::Bf16);
    for target in [Target::Q4_K_M, Target::Q5_K_S, Target::Q8_0] {
        make(&at("direct.gguf"), &shape, target);
        make(&at("again.gguf"), &shape, target);
        let mut go = |_, _| ControlFlow::Continue(());
        quantize(&at("wide.gguf"), &at("packed.gguf"), target, None, &mut go).unwrap();
        let types = |name: &str| -> Vec<(String, TensorType)> {
            let file = GgufFile::open(&at(name)).unwrap();
            let tensors = file.header().tensors.iter();
            tensors
                .map(|tensor| (tensor.name.clone(), tensor.dtype))
                .collect()
        };
        assert_eq!(types("direct.gguf"), types("packed.gguf"), "{target}");
        let bytes = |name: &str| std::fs::read(at(name)).unwrap();
        assert_eq!(bytes("direct.gguf"), bytes("again.gguf"), "{target}");
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let shape = tiny(Family::Llama, true);
    for wrong in [
        Shape {
            n_kv_heads: 3,
            ..shape
        },
        Shape { width: 33, ..shape },
        Shape {
            head_dim: 63,
            ..shape
        },
        Shape {
            n_experts: 4,
            n_used: 2,
            ..shape
        },
        tiny_without_experts(),
        Shape {
            n_used: 5,
            ..tiny(Family::GptOss, true)
        },
        Shape {
            n_layers: 0,
            ..shape
        },
        Shape {
            n_vocab: 3,
            ..shape
        },
        Shape {
            n_vocab: 1 << 22,
            ..shape
        },
        Shape {
            hidden: usize::MAX,
            ..shape
        },
    ] {
        let mut go = |_, _| ControlFlow::Continue(());
        let made = synthesize(&path, "wrong", &wrong, Target::Q8_0, &mut go);
        assert!(matches!(made, Err(Error::Invalid(_))), "{wrong:?}");
        assert!(!path.exists());
    }
}
