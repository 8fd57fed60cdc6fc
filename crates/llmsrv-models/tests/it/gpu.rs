//! Whole models on a GPU: on a machine without one, on lavapipe, which computes on the CPU.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use llmsrv_engine::{
    ActivationPrecision, Adapter, BlockId, GpuArithmetic, GpuOptions, LoadError, LoadOptions,
    Model, Offload, Plan,
};
use llmsrv_gguf::TensorType;

use crate::{
    embeddings::{ADAPTED, encoder, files, vectors},
    equivalence::{SOFTWARE, check_copy, check_last, check_model, keep_drivers, load_on},
    tiny::{
        self, CASES, Case, EMBEDDERS, Parts, all_logits, argmax, difference, wide, wide_latent,
        with_state,
    },
    tiny_encoder::ENCODERS,
};

/// Both sides compute in f32 with a KV cache of f16, and differ in the order of sums alone. That is some 1e-6; but a key
/// or value that it moves over a boundary of f16 changes by a two-thousandth.
const TOLERANCE: f32 = 1e-3;

/// Sequences of one row, of more than the rows that a workgroup computes together, and of more than a block, and how they
/// are cut. Lavapipe takes a second for some hundred rows of a tiny model, so they are no longer than that.
const LENGTHS: [usize; 3] = [35, 9, 1];
const PIECES: [usize; 4] = [7, 1, 16, 3];

/// Two sequences, of which the first step has one and two rows and the second the rest of the longer one.
const FEW: ([usize; 2], [usize; 3]) = ([5, 2], [1, 2, 4]);

pub(crate) fn on_the_cpu(case: &Case) -> Box<dyn Model> {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions {
        kv_cache_type: "f16".into(),
        n_threads: 2,
        device: "cpu".into(),
        activation_precision: ActivationPrecision::F32,
        ..LoadOptions::default()
    };
    llmsrv_models::load(&case.write(folder.path()), &options)
        .unwrap()
        .model
}

/// The models all of whose layers a GPU computes.
fn computed() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(&case.write(folder.path()), &on_gpu(Offload::default()));
        plan.is_ok_and(|plan| plan.gpu_layers == [plan.n_layers])
    })
}

/// How a model is computed with products in integers.
fn in_integers() -> LoadOptions {
    LoadOptions {
        gpu: GpuOptions {
            arithmetic: GpuArithmetic::Int8,
            ..SOFTWARE
        },
        kv_cache_type: "f16".into(),
        activation_precision: ActivationPrecision::Int8,
        ..on_gpu(Offload::default())
    }
}

fn load(case: &Case, options: &LoadOptions) -> Box<dyn Model> {
    let folder = tempfile::tempdir().unwrap();
    let path = case.write(folder.path());
    llmsrv_models::load(&path, options).unwrap().model
}

pub(crate) fn on_gpu(offload: Offload) -> LoadOptions {
    keep_drivers();
    LoadOptions {
        device: "vulkan".into(),
        gpu: SOFTWARE,
        n_threads: 2,
        offload,
        ..LoadOptions::default()
    }
}

pub(crate) fn plan(path: &Path, options: &LoadOptions) -> Result<Plan, LoadError> {
    llmsrv_models::plan(path, options, &[u64::MAX], &|trained| trained.min(4096))
}

/// So many layers on the GPU.
pub(crate) fn last(n_layers: usize) -> Offload {
    Offload {
        n_layers: Some(n_layers),
        ..Offload::default()
    }
}

/// So many layers on the GPU, fewer than all, that all ways of sharing them out are seen: where each is wanted, each number
/// of few layers and some of many; else half of the layers.
pub(crate) fn splits(each: bool, n_layers: usize) -> impl Iterator<Item = usize> {
    let is_one = move |n: &usize| match (each, n_layers) {
        (true, ..=5) => true,
        (true, _) => [1, 2, n_layers / 2, n_layers - 1].contains(n),
        (false, _) => *n == n_layers / 2,
    };
    (1..n_layers).filter(is_one)
}

/// Tells whether a model stands for all of its kind in tests that take long on lavapipe.
pub(crate) fn stands_for_kind(case: &Case) -> bool {
    let mut same = CASES
        .iter()
        .filter(|other| other.architecture == case.architecture);
    KINDS.contains(&case.architecture) && same.next().is_some_and(|first| first.name == case.name)
}

fn check_logits(case: &Case) {
    let mut gpu = load_on(case, "auto", "vulkan");
    let spec = gpu.spec();
    assert_eq!(spec.n_gpu_layers(), spec.n_layers, "{}", case.name);
    assert_eq!(spec.kv_blocks(1).host, 0, "{}", case.name);
    let mut cpu = on_the_cpu(case);
    check_same(case.name, case, &mut *gpu, &mut *cpu);
}

fn check_same(name: &str, case: &Case, gpu: &mut dyn Model, cpu: &mut dyn Model) {
    for tokens in case.prompts() {
        let (found, expected) = (all_logits(gpu, &tokens), all_logits(cpu, &tokens));
        for (position, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let off = difference(found, expected);
            assert!(
                off < case_tolerance(case),
                "{name}: position {position} is off by {off}"
            );
        }
        let last = |rows: &[Vec<f32>]| argmax(rows.last().unwrap());
        assert_eq!(last(&found), last(&expected), "{name}");
    }
}

/// [`TOLERANCE`], but for a model of seven layers with experts in each: keys and values of f16 instead of f32 change its
/// logits on the CPU by up to 0.012, so those few that fall to the other side of a boundary here change them by more than
/// in other models, too, and by more on one processor than on another: by 0.0087 on one with AVX2.
fn case_tolerance(case: &Case) -> f32 {
    match case.name {
        "smallthinker_window" => 12.0 * TOLERANCE,
        _ => TOLERANCE,
    }
}

/// Loads a case with a KV cache of f16 in both places.
fn split(case: &Case, offload: Offload, precision: ActivationPrecision) -> Box<dyn Model> {
    let folder = tempfile::tempdir().unwrap();
    let options = LoadOptions {
        kv_cache_type: "f16".into(),
        activation_precision: precision,
        ..on_gpu(offload)
    };
    let path = case.write(folder.path());
    llmsrv_models::load(&path, &options).unwrap().model
}

/// The CPU computes its layers as where it computes all, the GPU its own: results differ from the CPU's by no more than
/// those of the GPU do. [`every_family_has_the_logits_of_the_cpu`] has all layers on the GPU.
#[test]
fn every_split_has_the_logits_of_the_cpu() {
    for case in CASES {
        let mut cpu = on_the_cpu(case);
        let n_layers = cpu.spec().n_layers;
        for n in splits(stands_for_kind(case), n_layers) {
            let mut model = split(case, last(n), ActivationPrecision::F32);
            assert!(model.spec().n_gpu_layers() <= n, "{}", case.name);
            let name = format!("{} with {n} of {n_layers} layers", case.name);
            check_same(&name, case, &mut *model, &mut *cpu);
        }
    }
}

/// Dense, with experts, with windows, with shared keys and values, with recurrent states, with latent attention.
const KINDS: [&str; 8] = [
    "llama",
    "qwen3moe",
    "gemma3",
    "gemma4",
    "lfm2",
    "falcon-h1",
    "deepseek2",
    "gpt-oss",
];

#[test]
fn batches_and_pieces_change_no_bit_at_any_split() {
    let mut seen = BTreeSet::new();
    for case in CASES {
        if !KINDS.contains(&case.architecture) || !seen.insert(case.architecture) {
            continue;
        }
        let n_layers = on_the_cpu(case).spec().n_layers;
        for (n, precision) in (1..=n_layers).zip(
            [ActivationPrecision::Int8, ActivationPrecision::Int16]
                .into_iter()
                .cycle(),
        ) {
            let name = format!("{} with {n} of {n_layers} layers", case.name);
            let mut model = split(case, last(n), precision);
            if n == n_layers / 2 {
                check_model(&name, &mut *model, &LENGTHS, &PIECES);
                check_last(case, &mut *model, 12);
                check_copy(&mut *model, (33, 2, 3));
            } else {
                check_model(&name, &mut *model, &FEW.0, &FEW.1);
            }
        }
    }
    assert_eq!(seen.len(), KINDS.len(), "{seen:?}");
    for (dtype, n) in [TensorType::Q4_K, TensorType::Q8_0].into_iter().zip(1..) {
        let mut model = split(&wide(dtype), last(n), ActivationPrecision::Int8);
        check_model(dtype.name(), &mut *model, &[70, 33, 1], &[1, 9, 30]);
    }
    let case = wide_latent(TensorType::Q8_0);
    let mut model = split(&case, last(2), ActivationPrecision::Int8);
    check_model(case.name, &mut *model, &[70, 33, 1], &[1, 9, 30]);
}

#[test]
fn experts_stay_with_the_cpu_as_asked() {
    let has_experts = |case: &&Case| {
        let file = case.file();
        file.tensors
            .iter()
            .any(|tensor| tensor.name.contains("_exps"))
    };
    let with_experts = computed().filter(has_experts);
    let mut n_cases = 0;
    for case in with_experts {
        n_cases += 1;
        let whole = split(case, Offload::default(), ActivationPrecision::F32);
        let n_cpu_moe = |n_cpu_moe| Offload {
            n_cpu_moe,
            ..Offload::default()
        };
        let mut last_bytes = whole.spec().weights().gpu(0);
        for n in BTreeSet::from([1, case.parts.n_layers - 1]) {
            let mut model = split(case, n_cpu_moe(n), ActivationPrecision::F32);
            let spec = model.spec();
            assert_eq!(spec.n_gpu_layers(), spec.n_layers, "{}", case.name);
            assert_eq!(spec.kv_blocks(1), whole.spec().kv_blocks(1));
            let bytes = spec.weights().gpu(0);
            assert!(bytes <= last_bytes, "{}", case.name);
            last_bytes = bytes;
            let name = format!("{} with experts of {n} layers on the CPU", case.name);
            check_same(&name, case, &mut *model, &mut *on_the_cpu(case));
        }
        assert!(last_bytes < whole.spec().weights().gpu(0), "{}", case.name);
        let mut model = split(case, n_cpu_moe(1), ActivationPrecision::Int8);
        if stands_for_kind(case) {
            check_model(case.name, &mut *model, &LENGTHS, &PIECES);
        } else {
            check_model(case.name, &mut *model, &FEW.0, &FEW.1);
        }
    }
    assert!(n_cases > 3, "{n_cases}");
}

#[test]
fn every_family_has_the_logits_of_the_cpu() {
    for case in computed() {
        check_logits(case);
    }
}

#[test]
fn every_type_has_the_logits_of_the_cpu() {
    for dtype in TYPES {
        let dense = Case {
            parts: Parts {
                n_experts: 0,
                ..wide(dtype).parts
            },
            ..wide(dtype)
        };
        check_logits(&dense);
    }
    check_logits(&wide(TensorType::Q4_K));
}

/// Activations are rounded to bytes in both places, so results differ in the order of sums and in whether products and
/// sums are rounded once. Where that moves a number over the boundary between two bytes, it counts as much as rounding
/// itself: up to half of what the results of f32, whose activations nobody rounds, are away from these.
#[test]
fn every_type_has_the_logits_of_the_cpu_in_integers() {
    let on_cpu = LoadOptions {
        device: "cpu".into(),
        ..in_integers()
    };
    for dtype in INT8 {
        let case = Case {
            parts: Parts {
                n_experts: 0,
                ..wide(dtype).parts
            },
            ..wide(dtype)
        };
        let [mut gpu, mut cpu] = [in_integers(), on_cpu.clone()].map(|how| load(&case, &how));
        let mut in_f32 = load_on(&case, "f16", "vulkan");
        let (mut worst, mut of_f32) = (0.0_f32, 0.0_f32);
        for tokens in case.prompts() {
            let expected = all_logits(&mut *cpu, &tokens);
            let off = |model: &mut dyn Model| {
                let rows = all_logits(model, &tokens).into_iter().zip(&expected);
                rows.fold(0.0_f32, |most, (found, expected)| {
                    most.max(difference(&found, expected))
                })
            };
            worst = worst.max(off(&mut *gpu));
            of_f32 = of_f32.max(off(&mut *in_f32));
        }
        assert!(worst < 0.6 * of_f32, "{dtype}: {worst}, in f32 {of_f32}");
    }
}

#[test]
fn batches_and_pieces_change_no_bit() {
    for case in computed() {
        let mut model = load_on(case, "auto", "vulkan");
        // More rows than a workgroup computes together, or as many: lavapipe takes twice as long for one more.
        if stands_for_kind(case) {
            check_model(case.name, &mut *model, &[9, 4, 1], &[1, 5, 3]);
            check_last(case, &mut *model, 12);
        } else {
            check_model(case.name, &mut *model, &FEW.0, &FEW.1);
        }
    }
    // `products` of the kernels' tests looks at more rows.
    for dtype in TYPES {
        let mut model = load_on(&wide(dtype), "auto", "vulkan");
        check_model(dtype.name(), &mut *model, &FEW.0, &FEW.1);
    }
    for dtype in INT8 {
        let mut model = load(&wide(dtype), &in_integers());
        check_model(dtype.name(), &mut *model, &[20, 1], &[17, 1, 2]);
    }
}

/// Contexts so long that workgroups share what a row sees, and steps of so many rows that they do not.
#[test]
fn long_contexts_change_no_bit() {
    let mut seen = BTreeSet::new();
    // They attend as llama and gemma3 do.
    let attend_alike = ["qwen3moe", "gemma4", "lfm2", "falcon-h1"];
    let cases = computed()
        .filter(|case| stands_for_kind(case) && !attend_alike.contains(&case.architecture));
    for case in cases {
        seen.insert(case.architecture);
        let mut model = load_on(case, "auto", "vulkan");
        check_model(case.name, &mut *model, &[330, 1], &[290, 1, 3, 36]);
    }
    assert_eq!(seen.len() + attend_alike.len(), KINDS.len(), "{seen:?}");
    for case in [wide(TensorType::F16), wide_latent(TensorType::F16)] {
        let mut model = load_on(&case, "q8_0", "vulkan");
        check_model(case.name, &mut *model, &[330, 1], &[290, 1, 3, 36]);
    }
}

/// Blocks of a common beginning are shared, and the one in which sequences part is copied.
#[test]
fn a_copy_changes_no_bit() {
    let more = ["gemma3n", "qwen3next", "mamba2", "llama4"];
    let mut seen = BTreeSet::new();
    let cases = computed().filter(|case| {
        let is_one = KINDS.contains(&case.architecture) || more.contains(&case.architecture);
        is_one && seen.insert(case.architecture)
    });
    for (case, lengths) in cases.zip(
        [(38, 4, 5), (32, 3, 3), (1, 34, 1), (35, 3, 30)]
            .into_iter()
            .cycle(),
    ) {
        check_copy(&mut *load_on(case, "auto", "vulkan"), lengths);
    }
    assert_eq!(seen.len(), KINDS.len() + more.len(), "{seen:?}");
}

/// The GPU of the tests, opened twice.
pub(crate) fn two(limit_bytes: Option<u64>) -> GpuOptions {
    GpuOptions {
        visible: Some(vec!["0".into(), "0".into()]),
        limit_bytes,
        ..SOFTWARE
    }
}

pub(crate) fn layers(model: &dyn Model) -> Vec<usize> {
    let gpus = model.spec().gpus.iter();
    gpus.map(|gpu| gpu.n_layers).collect()
}

#[test]
fn several_gpus_have_the_logits_of_the_cpu() {
    let mut seen = BTreeSet::new();
    for case in computed() {
        if !KINDS.contains(&case.architecture) || !seen.insert(case.architecture) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = case.write(folder.path());
        let mut cpu = on_the_cpu(case);
        let n_layers = cpu.spec().n_layers;
        // All on both, and the first layer on the CPU.
        for (n, first) in [(n_layers, 1), (n_layers, n_layers - 1), (n_layers - 1, 1)] {
            let options = LoadOptions {
                gpu: two(None),
                kv_cache_type: "f16".into(),
                activation_precision: ActivationPrecision::F32,
                ..on_gpu(Offload {
                    split: Some(vec![first, n - first]),
                    ..Offload::default()
                })
            };
            let mut model = llmsrv_models::load(&path, &options).unwrap().model;
            assert_eq!(layers(&*model), [first, n - first], "{}", case.name);
            let name = format!("{} with {first} and {} layers", case.name, n - first);
            check_same(&name, case, &mut *model, &mut *cpu);
            // Where all three have layers, one model for all kinds of steps.
            if n < n_layers {
                check_model(&name, &mut *model, &LENGTHS, &PIECES);
                check_copy(&mut *model, (33, 2, 3));
            }
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
}

fn refusal(path: &std::path::Path, gpu: GpuOptions) -> String {
    let options = LoadOptions {
        device: "vulkan".into(),
        gpu,
        ..LoadOptions::default()
    };
    match llmsrv_models::load(path, &options) {
        Err(LoadError::Gpu(reason)) => reason,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was loaded"),
    }
}

#[test]
fn what_cannot_be_computed_is_refused_with_a_reason_and_a_cure() {
    let folder = tempfile::tempdir().unwrap();
    let path = CASES[0].write(folder.path());
    let no_memory = GpuOptions {
        leave_free_bytes: u64::MAX,
        ..SOFTWARE
    };
    let reason = refusal(&path, no_memory);
    assert!(
        reason.contains("0 bytes of memory free") && reason.contains("LLMSRV_GPU=0"),
        "{reason}"
    );

    // A machine of the tests may have a real GPU, which is then used.
    if llmsrv_models::usable_gpus(&GpuOptions::default()).is_err() {
        let reason = refusal(&path, GpuOptions::default());
        assert!(
            reason.contains("computes on the CPU") && reason.contains("LLMSRV_GPU=0"),
            "{reason}"
        );
    }

    // Models no layer of which a GPU computes.
    let long = Case {
        name: "long_heads",
        parts: Parts {
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 648,
            ..CASES[0].parts
        },
        ..CASES[0]
    };
    let reason = refusal(&long.write(folder.path()), SOFTWARE);
    assert!(
        reason.contains("attention heads of 648 elements") && reason.contains("LLMSRV_GPU=0"),
        "{reason}"
    );
    assert_eq!(computed().count(), CASES.len(), "all families are computed");

    let path = wide(TensorType::Q8_K).write(folder.path());
    let reason = refusal(&path, SOFTWARE);
    assert!(reason.contains("is of type Q8_K"), "{reason}");
}

/// What one token costs beside the arithmetic, on a machine whose time says nothing: commands, waits, and bytes that are
/// copied. After a change that is meant: `GENERATE=1 cargo test -p llmsrv-models --test it one_token`
#[test]
fn one_token_takes_as_many_commands_as_known() {
    let mut text = String::from(
        "# One token after a prompt of 40, all layers on one GPU: kernels, barriers, waits, bytes to and from the device,\n\
         # bytes that kernels read and write.\n",
    );
    let mut n_dense = 0;
    for case in computed() {
        let mut model = load_on(case, "auto", "vulkan");
        let block_size = model.spec().block_size;
        model.reserve_blocks(2).unwrap();
        let blocks = [BlockId(0), BlockId(1)];
        assert!(block_size < 40);
        let mut logits = vec![0.0; model.spec().vocab_size];
        // What the first step of a model does once is not counted. The token after 40 that nobody computed takes what it
        // takes after a prompt.
        let first = with_state(&mut *model, tiny::plan(&[7], 0, &blocks, false));
        model.forward(&first, &mut logits).unwrap();
        let next = with_state(&mut *model, tiny::plan(&[10], 40, &blocks, false));
        let before = llmsrv_gpu::counts();
        model.forward(&next, &mut logits).unwrap();
        let after = llmsrv_gpu::counts();
        let n_kernels = after.dispatches - before.dispatches;
        writeln!(
            text,
            "{:<24} {n_kernels:>4} {:>4} {:>3} {:>6} {:>5} {:>9}",
            case.name,
            after.barriers - before.barriers,
            after.waits - before.waits,
            after.uploaded_bytes - before.uploaded_bytes,
            after.downloaded_bytes - before.downloaded_bytes,
            after.kernel_bytes - before.kernel_bytes,
        )
        .unwrap();
        if is_dense(case) {
            n_dense += 1;
            // The last norm and the logits are of no layer.
            let of_layers = n_kernels - 2;
            let most = 10 * case.parts.n_layers as u64;
            assert!(of_layers <= most, "{}: {of_layers} of {most}", case.name);
        }
    }
    assert!(n_dense > 40, "{n_dense}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpu_commands.txt");
    if std::env::var_os("GENERATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, known, "if that is meant: GENERATE=1");
}

/// Whether layers consist of attention over keys and values and of one network, and of nothing beside that.
fn is_dense(case: &Case) -> bool {
    let more = [
        "_exps",
        "ssm_",
        "shortconv",
        "attn_kv_a",
        "inp_gate",
        "altup",
    ];
    let file = case.file();
    let mut names = file.tensors.iter().map(|tensor| &tensor.name);
    names.all(|name| more.iter().all(|part| !name.contains(part)))
}

/// What a model took of a device is given back when it goes. `a_thousand_loads_leave_nothing` of the whole program looks
/// at the server, where each model has a process of its own.
#[test]
fn loads_leave_nothing_on_the_device() {
    keep_drivers();
    let before = llmsrv_gpu::pieces_taken();
    for case in CASES.iter().take(10) {
        let mut model = load_on(case, "auto", "vulkan");
        model.reserve_blocks(4).unwrap();
        assert!(llmsrv_gpu::pieces_taken() > before);
        let plan = tiny::plan(&[1, 2, 3], 0, &[BlockId(0)], false);
        let mut logits = vec![0.0; model.spec().vocab_size];
        let prompt = with_state(&mut *model, plan);
        model.forward(&prompt, &mut logits).unwrap();
        drop(model);
        assert_eq!(llmsrv_gpu::pieces_taken(), before, "{}", case.name);
    }
}

/// A KV cache of q8_0, in models whose heads are long enough for it.
#[test]
fn keys_and_values_in_bytes_are_those_of_the_cpu() {
    let mut n_cases = 0;
    let others = [wide(TensorType::Q8_0), wide_latent(TensorType::Q8_0)];
    for case in CASES.iter().chain(&others) {
        let folder = tempfile::tempdir().unwrap();
        let path = case.write(folder.path());
        let options = |offload, kv_cache_type: &str| LoadOptions {
            kv_cache_type: kv_cache_type.into(),
            activation_precision: ActivationPrecision::F32,
            ..on_gpu(offload)
        };
        let n_layers = on_the_cpu(case).spec().n_layers;
        let blocks = |kv_type| {
            let plan = plan(&path, &options(last(n_layers), kv_type)).unwrap();
            (plan.kv_block.gpu(0), plan.kv_block.host)
        };
        let ((in_bytes, _), (halves, _)) = (blocks("q8_0"), blocks("f16"));
        if in_bytes == halves {
            continue;
        }
        n_cases += 1;
        // A row of keys of 32 elements takes 36 bytes, longer ones less for each element.
        assert!(in_bytes * 16 <= halves * 9, "{}: {in_bytes}", case.name);
        let on_cpu = LoadOptions {
            device: "cpu".into(),
            ..options(Offload::default(), "q8_0")
        };
        let mut cpu = llmsrv_models::load(&path, &on_cpu).unwrap().model;
        let split = splits(false, n_layers).filter(|_| stands_for_kind(case));
        for n in split.chain([n_layers]) {
            let options = options(last(n), "q8_0");
            let plan = plan(&path, &options).unwrap();
            let mut model = llmsrv_models::load(&path, &options).unwrap().model;
            let name = format!("{} with {n} of {n_layers} layers in q8_0", case.name);
            assert_eq!(plan.kv_block, model.spec().kv_blocks(1), "{name}");
            for tokens in case.prompts() {
                let rows = all_logits(&mut *model, &tokens).into_iter();
                for (found, expected) in rows.zip(all_logits(&mut *cpu, &tokens)) {
                    // A key at the boundary between two bytes may be either.
                    let off = difference(&found, &expected);
                    assert!(off < 10.0 * TOLERANCE, "{name}: off by {off}");
                }
            }
            if stands_for_kind(case) && n == n_layers {
                check_model(&name, &mut *model, &LENGTHS, &PIECES);
                check_copy(&mut *model, (33, 2, 3));
            } else {
                check_model(&name, &mut *model, &FEW.0, &FEW.1);
            }
        }
    }
    assert!(n_cases > 1, "{n_cases}");
}

/// Vectors of texts: encoders in splits, and decoders that make vectors.
#[test]
fn vectors_are_those_of_the_cpu() {
    let (mut n_encoders, mut seen) = (0, Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let adapted = encoder(ADAPTED);
    let adapter = folder.path().join("adapter.gguf");
    std::fs::write(&adapter, adapted.adapter().bytes()).unwrap();
    let plain = files().into_iter().map(|model| (model, Vec::new()));
    let adapter = Adapter {
        path: adapter,
        scale: 1.0,
    };
    let with_adapter = ("adapted".to_owned(), adapted.file(), adapted.inputs());
    for ((name, file, inputs), adapters) in plain.chain([(with_adapter, vec![adapter])]) {
        let architecture = file.metadata.get("general.architecture").cloned();
        std::fs::write(&path, file.bytes()).unwrap();
        let options = |offload, limit_bytes| LoadOptions {
            adapters: adapters.clone(),
            kv_cache_type: "f16".into(),
            activation_precision: ActivationPrecision::F32,
            gpu: GpuOptions {
                limit_bytes,
                ..SOFTWARE
            },
            ..on_gpu(offload)
        };
        let on_cpu = LoadOptions {
            device: "cpu".into(),
            ..options(Offload::default(), None)
        };
        let cpu = llmsrv_models::load(&path, &on_cpu).unwrap();
        let n_layers = cpu.model.spec().n_layers;
        let is_encoder = cpu.model.spec().embedding.unwrap().bidirectional;
        let expected = vectors(cpu, &inputs, 512);
        let whole = plan(&path, &options(Offload::default(), None)).unwrap();
        assert_eq!(whole.gpu_layers, [n_layers], "{name}");
        n_encoders += usize::from(is_encoder);
        // The whole model, with as many rows as a step has; an encoder on a GPU with no more memory than was planned.
        let limit = is_encoder.then(|| whole.needed(512).gpu(0));
        let load = |offload, limit| {
            let loaded = llmsrv_models::load(&path, &options(offload, limit));
            loaded.unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let check = |found: &[Vec<f32>], expected: &[Vec<f32>], what: &str| {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                let off = difference(found, expected);
                assert!(off < TOLERANCE, "{name}, {what}: off by {off}");
            }
        };
        let loaded = load(last(n_layers), limit);
        let taken = loaded.model.spec().weights().gpu(0);
        assert_eq!(taken, whole.weights.gpu(0), "{name}");
        // Texts of encoders often enough to fill a step.
        let times = if is_encoder { 4 } else { 1 };
        let texts = inputs.iter().cycle().take(times * inputs.len()).cloned();
        let together = vectors(loaded, &texts.collect::<Vec<_>>(), 512);
        check(&together[..inputs.len()], &expected, "on the GPU");
        // Two of them alone, as each is a model that is loaded.
        for idx in [0, inputs.len() - 1] {
            let alone = vectors(load(last(n_layers), None), &inputs[idx..=idx], 512);
            let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&alone[0]), bits(&together[idx]), "{name}");
        }
        // One encoder of each architecture in all splits.
        let each = is_encoder && !seen.contains(&architecture);
        seen.push(architecture);
        for n in splits(each, n_layers) {
            let found = vectors(load(last(n), None), &inputs, 512);
            check(&found, &expected, &format!("{n} of {n_layers} layers"));
        }
    }
    assert!(
        n_encoders >= ENCODERS.len() + EMBEDDERS.len(),
        "{n_encoders}"
    );
}

/// Those for which there are kernels that compute in integers.
const INT8: [TensorType; 13] = [
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::MXFP4,
];

/// The types for which there are kernels.
const TYPES: [TensorType; 28] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q8_0,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::IQ4_NL,
    TensorType::IQ4_XS,
    TensorType::MXFP4,
    TensorType::TQ2_0,
    TensorType::TQ1_0,
    TensorType::IQ1_S,
    TensorType::IQ1_M,
    TensorType::IQ2_XXS,
    TensorType::IQ2_XS,
    TensorType::IQ2_S,
    TensorType::IQ3_XXS,
    TensorType::IQ3_S,
    TensorType::Q1_0,
    TensorType::Q2_0,
    TensorType::NVFP4,
];
