//! Where the layers of a model are computed, and whether the memory that is planned for them there is what they take.

use std::{collections::BTreeSet, path::Path};

use llmsrv_engine::{
    ActivationPrecision, BlockId, GpuArithmetic, GpuOptions, LoadError, LoadOptions, Offload, Span,
    SpanState, StateId, StepPlan,
};
use llmsrv_gguf::TensorType;

use crate::{
    equivalence::SOFTWARE,
    gpu::{last, layers, on_gpu, on_the_cpu, plan, splits, stands_for_kind, two},
    tiny::{self, CASES, Case, EMBEDDERS, Parts, wide},
};

#[test]
fn what_was_planned_is_what_is_taken() {
    for case in CASES.iter().chain(EMBEDDERS) {
        let folder = tempfile::tempdir().unwrap();
        let path = case.write(folder.path());
        let n_layers = on_the_cpu(case).spec().n_layers;
        for n in splits(stands_for_kind(case), n_layers).chain([n_layers]) {
            let options = LoadOptions {
                // Nothing is packed, which pads the rows of such small matrices to twice as many.
                activation_precision: ActivationPrecision::F32,
                ..on_gpu(last(n))
            };
            let plan = plan(&path, &options).unwrap();
            let model = llmsrv_models::load(&path, &options).unwrap().model;
            let spec = model.spec();
            let name = format!("{} with {n} of {n_layers} layers", case.name);
            assert_eq!(plan.n_layers, spec.n_layers, "{name}");
            assert_eq!(plan.gpu_layers, [spec.n_gpu_layers()], "{name}");
            assert_eq!(plan.kv_block, spec.kv_blocks(1), "{name}");
            assert_eq!(plan.states, spec.states(1), "{name}");
            assert_eq!(plan.weights, spec.weights(), "{name}");
        }
    }
}

/// A GPU with no more memory than was planned computes the largest step, and a small one after it.
#[test]
fn rows_of_a_step_find_the_room_that_was_planned() {
    // The largest step has 512 rows.
    const SEQUENCES: usize = 16;
    const ROWS: usize = 32;
    // With several streams, with inputs of each layer, with states of both kinds, and with latent attention.
    let kinds = ["gemma3n", "gemma4", "falcon-h1", "qwen3next", "deepseek2"];
    let mut seen = BTreeSet::new();
    let cases = CASES
        .iter()
        .filter(|case| kinds.contains(&case.architecture));
    let cases = cases.filter(|case| seen.insert(case.architecture));
    let mut cases: Vec<Case> = cases.copied().collect();
    assert_eq!(cases.len(), kinds.len());
    for case in &mut cases {
        // The room is that of the widest layer: more of them only take longer.
        case.parts.n_layers = case.parts.n_layers.min(10);
    }
    cases.push(wide(TensorType::Q8_0));
    let exact = cases.into_iter().map(|case| (case, GpuArithmetic::Exact));
    let int8 = [(wide(TensorType::Q4_K), GpuArithmetic::Int8)];
    for (case, arithmetic) in exact.chain(int8) {
        let folder = tempfile::tempdir().unwrap();
        let path = case.write(folder.path());
        let plan = plan(&path, &on_gpu(Offload::default())).unwrap();
        // Of states one is planned, and here are as many as sequences.
        let states = plan.states.times(SEQUENCES as u64 - 1);
        let limit = plan.needed(SEQUENCES * ROWS).plus(&states);
        let options = LoadOptions {
            gpu: GpuOptions {
                arithmetic,
                limit_bytes: Some(limit.gpu(0)),
                ..SOFTWARE
            },
            ..on_gpu(last(plan.n_layers))
        };
        let mut model = llmsrv_models::load(&path, &options).unwrap().model;
        model.reserve_blocks(SEQUENCES).unwrap();
        let keeps_state = model.spec().state_bytes > 0;
        if keeps_state {
            model.reserve_states(SEQUENCES).unwrap();
        }
        for n_rows in [ROWS as u32, 1] {
            let mut step = StepPlan::default();
            for sequence in 0..SEQUENCES as u32 {
                let first = step.tokens.len();
                step.tokens
                    .extend((0..n_rows).map(|row| (7 * row + sequence) % 90));
                step.positions.extend(0..n_rows);
                step.ends.extend(1..=n_rows);
                step.logit_rows.push(step.tokens.len() as u32 - 1);
                step.spans.push(Span {
                    rows: first..step.tokens.len(),
                    start: 0,
                    blocks: vec![BlockId(sequence)],
                    tail: None,
                    state: keeps_state.then(|| SpanState::new(StateId(sequence))),
                });
            }
            let mut logits = vec![0.0; SEQUENCES * model.spec().vocab_size];
            model.forward(&step, &mut logits).unwrap();
        }
    }
}

/// What workgroups that share a long context keep for each other is planned, too: a model of one head has most of it.
#[test]
fn long_contexts_find_the_room_that_was_planned() {
    let case = Case {
        name: "long_context",
        keys: &[("context_length", tiny::Key::U(2048))],
        parts: Parts {
            n_layers: 1,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 64,
            ..CASES[0].parts
        },
        ..CASES[0]
    };
    let folder = tempfile::tempdir().unwrap();
    let path = case.write(folder.path());
    let plan = plan(&path, &on_gpu(Offload::default())).unwrap();
    assert_eq!(plan.context_length, 2048);
    let options = LoadOptions {
        gpu: GpuOptions {
            limit_bytes: Some(plan.needed(2048).gpu(0)),
            ..SOFTWARE
        },
        ..on_gpu(last(plan.n_layers))
    };
    let mut model = llmsrv_models::load(&path, &options).unwrap().model;
    model.reserve_blocks(64).unwrap();
    let blocks: Vec<BlockId> = (0..64).map(BlockId).collect();
    let tokens: Vec<u32> = (0..2048).map(|i| i * 7 % 90).collect();
    let mut logits = vec![0.0; model.spec().vocab_size];
    let mut start = 0;
    // As many rows as workgroups still share the context of, then fewer.
    while start < tokens.len() {
        let n = (tokens.len() - start).min(511);
        let step = tiny::plan(&tokens[start..start + n], start, &blocks, false);
        model.forward(&step, &mut logits).unwrap();
        start += n;
    }
    for n in [200, 30, 1] {
        let start = tokens.len() - n;
        let step = tiny::plan(&tokens[start..], start, &blocks, false);
        model.forward(&step, &mut logits).unwrap();
    }
}

/// A plan says why a part of a model is computed by the CPU.
#[test]
fn what_is_on_the_cpu_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = wide(TensorType::Q8_0).write(folder.path());
    let reasons = |path: &Path, offload: Offload, free: u64| {
        let plan = llmsrv_models::plan(path, &on_gpu(offload), &[free], &|trained| trained);
        let plan = plan.unwrap();
        (plan.gpu_layers.iter().sum::<usize>(), plan.on_cpu)
    };
    let needed = |n| plan(&path, &on_gpu(last(n))).unwrap().needed(512).gpu(0);
    let n_layers = plan(&path, &on_gpu(last(1))).unwrap().n_layers;
    let (all, some) = (needed(n_layers), needed(2));
    assert_eq!(reasons(&path, Offload::default(), all), (n_layers, vec![]));
    let memory = format!(
        "2 of {n_layers} layers fit: all need {all} bytes of GPU memory, of which models may take {some}"
    );
    assert_eq!(reasons(&path, Offload::default(), some), (2, vec![memory]));
    let asked = format!("num_gpu is 1, of {n_layers} layers");
    assert_eq!(reasons(&path, last(1), all), (1, vec![asked]));
    let experts = Offload {
        n_cpu_moe: 1,
        ..Offload::default()
    };
    let expected = (n_layers, vec!["num_cpu_moe is 1".to_owned()]);
    assert_eq!(reasons(&path, experts, all), expected);

    // The first layer has weights for which there is no kernel.
    let mut file = wide(TensorType::Q8_0).file();
    let others = wide(TensorType::Q8_K).file().tensors;
    for (tensor, other) in file.tensors.iter_mut().zip(others) {
        if tensor.name.starts_with("blk.0.") {
            *tensor = other;
        }
    }
    std::fs::write(&path, file.bytes()).unwrap();
    let (n, lines) = reasons(&path, Offload::default(), all);
    assert_eq!(n, n_layers - 1);
    let [reason] = &lines[..] else {
        panic!("{lines:?}")
    };
    let expected = "is of type Q8_K, for which there is no kernel for GPUs (1 layer)";
    assert!(
        reason.starts_with("tensor blk.0.") && reason.ends_with(expected),
        "{reason}"
    );
}

/// The limit is met to the byte: with one less, one layer less is on the GPU.
#[test]
fn as_many_layers_as_fit_are_on_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let path = wide(TensorType::Q8_0).write(folder.path());
    let load = |limit_bytes| {
        let options = LoadOptions {
            gpu: GpuOptions {
                limit_bytes: Some(limit_bytes),
                ..SOFTWARE
            },
            ..on_gpu(Offload::default())
        };
        llmsrv_models::load(&path, &options).map(|loaded| loaded.model.spec().n_gpu_layers())
    };
    let n_layers = plan(&path, &on_gpu(last(1))).unwrap().n_layers;
    for n in 1..=n_layers {
        let plan = plan(&path, &on_gpu(last(n))).unwrap();
        let needed = plan.needed(plan.context_length.min(4096)).gpu(0);
        assert_eq!(load(needed).unwrap(), n);
        match load(needed - 1) {
            Ok(fewer) => assert_eq!(fewer, n - 1),
            Err(LoadError::Gpu(reason)) => {
                assert!(
                    n == 1 && reason.contains(&format!("{} bytes", needed - 1)),
                    "{reason}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn as_few_gpus_as_needed_compute_a_model_and_all_where_it_is_to_be_spread() {
    let folder = tempfile::tempdir().unwrap();
    let path = wide(TensorType::Q8_0).write(folder.path());
    let load = |offload: Offload, limit_bytes| {
        let options = LoadOptions {
            gpu: two(limit_bytes),
            ..on_gpu(offload)
        };
        let loaded = llmsrv_models::load(&path, &options);
        loaded.map(|loaded| layers(&*loaded.model))
    };
    let all = plan(&path, &on_gpu(Offload::default())).unwrap();
    let n_layers = all.n_layers;
    assert_eq!(load(Offload::default(), None).unwrap(), [n_layers, 0]);
    let second = Offload {
        main_gpu: 1,
        ..Offload::default()
    };
    assert_eq!(load(second, None).unwrap(), [0, n_layers]);
    let spread = Offload {
        spread: true,
        ..Offload::default()
    };
    let both = load(spread, None).unwrap();
    assert_eq!(both.iter().sum::<usize>(), n_layers);
    assert!(both.iter().all(|n| *n > 0), "{both:?}");
    // A byte less than one needs.
    let needed = all.needed(all.context_length.min(4096)).gpu(0);
    let both = load(Offload::default(), Some(needed - 1)).unwrap();
    assert_eq!(both.iter().sum::<usize>(), n_layers);
    assert!(both.iter().all(|n| *n > 0), "{both:?}");
    // What does not fit on both is on the CPU as well.
    let least = plan(&path, &on_gpu(last(1))).unwrap();
    let needed = least.needed(least.context_length.min(4096)).gpu(0);
    let split = load(Offload::default(), Some(needed)).unwrap();
    assert!(split.iter().sum::<usize>() < n_layers, "{split:?}");
}
