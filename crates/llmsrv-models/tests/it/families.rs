//! Every family against llama.cpp, and against candle's tensors.

use std::{fs, path::Path, sync::LazyLock};

use crate::tiny::{
    CASES, Case, File, FileTensor, Key, all_logits, argmax, difference, fingerprint,
};
use llmsrv_engine::{
    EngineOptions, Event, GenRequest, LoadError, LoadOptions, Loaded, SamplingParams, spawn,
};
use llmsrv_gguf::{Metadata, TensorType};
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
    /// Files of before it was kept have none.
    #[serde(default)]
    greedy: Vec<u32>,
}

/// What `fixtures/make.py` reads.
#[derive(Serialize)]
struct Prompts {
    prompts: [Vec<u32>; 2],
    n_ctx: usize,
}

/// A tensor that no one asks for.
static PLAIN_NORM: LazyLock<FileTensor> = LazyLock::new(|| FileTensor {
    name: String::new(),
    shape: vec![1],
    dtype: TensorType::F32,
    bytes: vec![0; 4],
});

/// Every `STRIDE`th logit is kept at every position.
const STRIDE: usize = 12;
const N_CTX: usize = 512;
/// llama.cpp approximates exponentials and reads GELU from a table of f16 values.
const TOLERANCE: f32 = 1e-3;

fn expected(case: &Case) -> Expected {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/families")
        .join(format!("{}.json", case.name));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn load(case: &Case, device: &str) -> Loaded {
    load_bytes(&case.bytes(), device).unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

fn load_bytes(bytes: &[u8], device: &str) -> Result<Loaded, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    let options = LoadOptions {
        kv_cache_type: "f32".into(),
        n_threads: 2,
        device: device.into(),
        ..LoadOptions::default()
    };
    llmsrv_models::load(&path, &options)
}

#[test]
fn all_families_agree_with_llama_cpp() {
    let mut worst = (0.0, "", "");
    for case in CASES {
        let expected = expected(case);
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

/// Returns the most likely tokens after a prompt, at most as many as asked for, through the engine.
fn continuation(loaded: Loaded, prompt: &[u32], n: usize) -> Vec<u32> {
    let request = GenRequest {
        tokens: prompt.to_vec(),
        images: Vec::new(),
        params: SamplingParams {
            temperature: 0.0,
            repeat_penalty: 1.0,
            ..SamplingParams::default()
        },
        num_ctx: N_CTX,
        max_tokens: Some(n),
        stop: Vec::new(),
        num_keep: 0,
        shift: true,
        grammar: None,
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
    };
    let handle = spawn(loaded, EngineOptions::default());
    let mut generation = handle.submit(request).unwrap();
    loop {
        match generation.blocking_next() {
            Some(Event::Text { .. }) => {}
            Some(Event::Done(finish)) => return finish.context[prompt.len()..].to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn greedy_continuations_are_those_of_llama_cpp() {
    let mut n_compared = 0;
    for case in CASES {
        for prompt in expected(case).prompts {
            // The end of a text is not kept.
            let n = prompt.greedy.len();
            if n > 0 {
                let found = continuation(load(case, "cpu"), &prompt.tokens, n);
                assert_eq!(found, prompt.greedy, "{}", case.name);
                n_compared += n;
            }
        }
    }
    assert!(n_compared > 100);
}

#[test]
fn every_architecture_has_a_case() {
    for architecture in llmsrv_models::architectures() {
        let case = CASES.iter().find(|case| case.architecture == architecture);
        assert!(case.is_some(), "{architecture}");
    }
}

/// `docs/models.md` says what the tables say.
#[test]
fn the_list_of_models_is_that_of_the_program() {
    let text = include_str!("../../../../docs/models.md");
    let listed = |state: &str| {
        let rows = text.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let found = rest.split(" | ").next()?;
            (found.split(',').next() == Some(state)).then_some((name, rest))
        });
        rows.collect::<Vec<_>>()
    };
    let names = |rows: Vec<(&'static str, &'static str)>| {
        let names = rows.into_iter().map(|(name, _)| name);
        names.collect::<Vec<&str>>()
    };
    let run = llmsrv_models::architectures().chain(llmsrv_models::encoders());
    assert_eq!(names(listed("runs")), run.collect::<Vec<_>>());
    let not_yet = listed("not yet");
    let known: Vec<_> = llmsrv_models::not_yet().collect();
    assert_eq!(names(not_yet.clone()), names(known.clone()));
    for ((name, row), (_, why)) in not_yet.into_iter().zip(known) {
        assert!(row.ends_with(&format!(": {why} |")), "{name}");
        let refusal = llmsrv_models::refusal(name).unwrap();
        assert!(refusal.contains(name) && refusal.contains(why), "{refusal}");
    }
    assert_eq!(llmsrv_models::refusal("llama"), None);
    assert_eq!(llmsrv_models::refusal("clippy"), None);
}

/// So does its table of what people pull, whose rows name one architecture or several.
#[test]
fn what_people_pull_runs_if_its_architectures_do() {
    let text = include_str!("../../../../docs/models.md");
    let (_, section) = text.split_once("## What people pull\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let known: Vec<&str> = llmsrv_models::architectures()
        .chain(llmsrv_models::encoders())
        .collect();
    let mut n_rows = 0;
    for row in section.lines().filter(|line| line.contains("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, architectures, state] = cells[..] else {
            panic!("{row}");
        };
        let mut names = architectures.split(", ").map(|name| name.trim_matches('`'));
        let expected = if names.all(|name| known.contains(&name)) {
            "runs"
        } else {
            "not yet"
        };
        assert_eq!(state, expected, "{row}");
        n_rows += 1;
    }
    assert_eq!(n_rows, 50 + 25);
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

/// Where all layers attend in chunks, a chunk knows nothing of those before it, and positions are encoded by
/// their distance alone.
#[test]
fn a_chunk_has_the_logits_of_a_text_of_its_own() {
    let mut case = *CASES.iter().find(|case| case.name == "llama4").unwrap();
    case.parts.n_layers = 3;
    let mut file = case.file();
    file.metadata.set("llama4.attention.chunk_size", 11u32);
    let bytes = file.bytes();
    let [prompt, _] = case.prompts();
    for device in ["cpu", "candle"] {
        let load = || load_bytes(&bytes, device).unwrap().model;
        let whole = all_logits(&mut *load(), &prompt);
        let whole = whole.chunks(11);
        assert_eq!(whole.len(), 4);
        for (chunk, (tokens, expected)) in prompt.chunks(11).zip(whole).enumerate() {
            let alone = all_logits(&mut *load(), tokens);
            for (found, expected) in alone.iter().zip(expected) {
                let difference = difference(found, expected);
                assert!(difference < 1e-4, "{device} {chunk}: {difference}");
            }
        }
        let unlike = difference(
            &all_logits(
                &mut *load_bytes(&case.bytes(), device).unwrap().model,
                &prompt,
            )[39],
            &all_logits(&mut *load(), &prompt)[39],
        );
        assert!(unlike > 1e-2, "one chunk sees everything");
    }
}

/// Its file holds an encoder, which is not known.
#[test]
fn llama_3_2_vision_reads_texts_alone() {
    let case = CASES.iter().find(|case| case.name == "mllama").unwrap();
    assert!(load(case, "cpu").vision.is_none());
    let mut file = case.file();
    let key = "mllama.attention.cross_attention_layers";
    file.metadata.set(key, vec![1u32, 5]);
    assert_eq!(
        load_bytes(&file.bytes(), "cpu").err().unwrap().to_string(),
        format!("invalid model file: {key} has layer 5 of 5 layers")
    );
}

/// Programs that write model files do not agree on every key; what one leaves out or calls by
/// another name gives the same model.
#[test]
fn other_spellings_give_the_same_model() {
    let named = |name: &str| *CASES.iter().find(|case| case.name == name).unwrap();
    let check_case = |case: &Case, change: &dyn Fn(&mut File)| {
        let [prompt, _] = case.prompts();
        let expected = all_logits(&mut *load(case, "cpu").model, &prompt);
        let mut file = case.file();
        change(&mut file);
        let found = all_logits(
            &mut *load_bytes(&file.bytes(), "cpu").unwrap().model,
            &prompt,
        );
        assert_eq!(found, expected, "{}", case.name);
    };
    let check = |name: &str, change: &dyn Fn(&mut File)| check_case(&named(name), change);
    // The architecture's name is the first half of its keys.
    let renamed = |file: &mut File, pairs: &[(&str, &str)]| {
        let mut metadata = Metadata::new();
        for (key, value) in file.metadata.iter() {
            let mut key = key.to_owned();
            for (from, to) in pairs {
                key = key.replace(from, to);
            }
            metadata.set(key, value.clone());
        }
        file.metadata = metadata;
    };
    check("gemma3", &|file| {
        let from_to = [("gemma3.rope.freq_base", "gemma3.rope.global.freq_base")];
        renamed(file, &from_to);
    });
    check("gemma3_listed", &|file| {
        renamed(file, &[("rope.freq_base_swa", "rope.local.freq_base")]);
    });
    // Sizes whose first files lack the factor, or have a cap too many.
    let mut case = named("gemma3");
    case.parts.n_layers = 34;
    check_case(&case, &|file| {
        renamed(file, &[("scaling.factor", "unknown")]);
    });
    case.parts.n_layers = 26;
    check_case(&case, &|file| {
        file.metadata.set("gemma3.final_logit_softcapping", 1.0f32);
    });
    // Without a fourth layer, and within one chunk, attention to everything is the same.
    let mut case = named("llama4");
    case.parts.n_layers = 3;
    check_case(&case, &|file| {
        file.metadata.set("llama4.attention.sliding_window", 0u32);
    });
    check("llama4", &|file| {
        renamed(
            file,
            &[("expert_feed_forward_length", "intermediate_size_moe")],
        );
        file.metadata.set("llama4.feed_forward_length", 48u32);
        file.metadata.set("llama4.use_qk_norm", true);
    });
    // The first files have none of the factors: 12, 1.4 / sqrt(4) and 64 / 256.
    let mut case = named("minicpm");
    case.parts.n_layers = 4;
    case.keys = &[
        ("embedding_scale", Key::F(12.0)),
        ("residual_scale", Key::F(0.7)),
        ("logit_scale", Key::F(0.25)),
    ];
    check_case(&case, &|file| {
        renamed(file, &[("_scale", "_unknown")]);
    });
    check("mistral3", &|file| {
        let from_to = [
            ("scaling.yarn_beta", "scaling.beta"),
            ("yarn_log_multiplier", "mscale_all_dim"),
            ("attention.temperature_scale", "rope.scaling_beta"),
        ];
        renamed(file, &from_to);
    });
    check("llama", &|file| {
        file.metadata.set("llama.rope.scaling.type", "");
        file.metadata.set("llama.rope.scaling.factor", 0.0f32);
    });
    // What the public library calls them.
    check("qwen2vl", &|file| {
        let section = ("rope.dimension_sections", "rope.mrope_section");
        renamed(file, &[("qwen2vl.", "qwen25vl."), section]);
        file.metadata.set("general.architecture", "qwen25vl");
    });
    check("olmo3", &|file| {
        renamed(file, &[("olmo2.", "olmo3.")]);
        file.metadata.set("general.architecture", "olmo3");
    });
    check("glm4_sections", &|file| {
        let section = ("rope.dimension_sections", "rope.mrope_section");
        renamed(file, &[("glm4.", "glmocr."), section]);
        file.metadata.set("general.architecture", "glmocr");
        for tensor in &mut file.tensors {
            for (ours, theirs) in [
                ("attn_output", "attn_out"),
                ("post_attention_norm", "post_attn_norm"),
                ("post_ffw_norm", "post_ffn_norm"),
            ] {
                tensor.name = tensor.name.replace(ours, theirs);
            }
        }
        // Gate and up lie in tensors of their own.
        for layer in 0..3 {
            let both = file.tensor(&format!("blk.{layer}.ffn_up.weight"));
            let rest = both.bytes.split_off(both.bytes.len() / 2);
            let up = FileTensor {
                name: both.name.clone(),
                shape: vec![64, 96],
                dtype: both.dtype,
                bytes: rest,
            };
            both.name = format!("blk.{layer}.ffn_gate.weight");
            both.shape = vec![64, 96];
            file.tensors.push(up);
        }
        // A multi-token-prediction layer, which is not used.
        file.metadata.set("glmocr.block_count", 4u32);
        file.metadata.set("glmocr.nextn_predict_layers", 1u32);
        for name in ["blk.3.attn_norm.weight", "blk.3.nextn.enorm.weight"] {
            let mut tensor = PLAIN_NORM.clone();
            tensor.name = name.into();
            file.tensors.push(tensor);
        }
    });
    check("deepseek2_lite", &|file| {
        renamed(file, &[("deepseek2.", "glm4moelite.")]);
        file.metadata.set("general.architecture", "glm4moelite");
        for (key, stored) in [("key_length_mla", 32u32), ("value_length_mla", 24)] {
            let key = format!("glm4moelite.attention.{key}");
            file.metadata.set(key, stored);
        }
        file.metadata.set("tokenizer.ggml.pre", "gpt-2");
    });
    // A layer behind the others, which predicts the token after the next, is not used.
    check("glm4moe", &|file| {
        file.metadata.set("glm4moe.block_count", 5u32);
        file.metadata.set("glm4moe.nextn_predict_layers", 1u32);
        for name in ["blk.4.ffn_gate_inp.weight", "blk.4.nextn.eh_proj.weight"] {
            let mut tensor = PLAIN_NORM.clone();
            tensor.name = name.into();
            file.tensors.push(tensor);
        }
    });
    // The softmax of the chosen scores alone is that of all scores, made to sum to one.
    let mut case = named("qwen3moe");
    case.name = "chosen";
    check_case(&case, &|file| {
        file.metadata.set("qwen3moe.expert_gating_func", 3u32);
        file.metadata.set("qwen3moe.expert_weights_norm", false);
    });
    // What makes keys and values in two tensors, and the sizes of heads under names of their own.
    check("deepseek2_lite", &|file| {
        let (n_heads, rank, dim) = (4, 24, 16);
        for layer in 0..3 {
            let both = file.tensor(&format!("blk.{layer}.attn_kv_b.weight"));
            let bytes = both.bytes.clone();
            let row = |row: usize| &bytes[row * rank * 4..][..rank * 4];
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for first in (0..n_heads).map(|head| 2 * head * dim) {
                for at in dim..2 * dim {
                    values.extend_from_slice(row(first + at));
                }
                for column in 0..rank {
                    for at in 0..dim {
                        keys.extend_from_slice(&row(first + at)[column * 4..][..4]);
                    }
                }
            }
            let keys = FileTensor {
                name: format!("blk.{layer}.attn_k_b.weight"),
                shape: vec![dim as u64, rank as u64, n_heads as u64],
                dtype: both.dtype,
                bytes: keys,
            };
            both.name = format!("blk.{layer}.attn_v_b.weight");
            both.shape = vec![rank as u64, dim as u64, n_heads as u64];
            both.bytes = values;
            file.tensors.push(keys);
        }
        for (key, value) in [
            ("head_count_kv", 1u32),
            ("key_length", 32),
            ("value_length", 24),
            ("key_length_mla", 24),
            ("value_length_mla", 16),
        ] {
            let key = format!("deepseek2.attention.{key}");
            file.metadata.set(key, value);
        }
    });
    check("nemotron_h_moe_latent", &|file| {
        renamed(
            file,
            &[
                ("nemotron_h_moe.", "nemotron_h_omni."),
                ("moe_latent_size", "unknown"),
            ],
        );
        file.metadata.set("general.architecture", "nemotron_h_omni");
        for (ours, theirs) in [("latent_down", "latent_in"), ("latent_up", "latent_out")] {
            let tensor = file.tensor(&format!("blk.1.ffn_{ours}.weight"));
            tensor.name = format!("blk.1.ffn_{theirs}.weight");
        }
        let mut draft = PLAIN_NORM.clone();
        draft.name = "mtp.layers.0.norm.weight".into();
        file.tensors.push(draft);
    });
    // With the ending that others have.
    check("falcon_h1", &|file| {
        for layer in 0..3 {
            let name = format!("blk.{layer}.ffn_norm");
            file.tensor(&name).name = format!("{name}.weight");
        }
    });
    check("lfm2", &|file| {
        file.tensor("token_embd_norm.weight").name = "output_norm.weight".into();
        file.metadata.set("lfm2.feed_forward_length", 144u32);
    });
    check("qwen35", &|file| {
        for layer in [0, 1, 2, 4] {
            let bias = file.tensor(&format!("blk.{layer}.ssm_dt.bias"));
            bias.name = format!("blk.{layer}.ssm_dt");
        }
        let heads = vec![0u32, 0, 0, 1, 0];
        file.metadata.set("qwen35.attention.head_count_kv", heads);
        file.metadata.set("qwen35.ssm.v_head_reordered", true);
        file.metadata.set("qwen35.full_attention_interval", 9u32);
        let recurs = vec![true, true, true, false, true];
        file.metadata
            .set("qwen35.attention.recurrent_layers", recurs);
    });
    // One token more than the embedding has rows.
    check("gemma3", &|file| {
        let mut tokens: Vec<String> = ('!'..='~').map(|letter| letter.to_string()).collect();
        tokens.extend(["ab", "<end>", "<more>"].map(str::to_owned));
        file.metadata.set("tokenizer.ggml.tokens", tokens);
    });
    check("qwen3moe", &|file| {
        renamed(file, &[("expert_feed_forward_length", "unknown")]);
        file.metadata.set("qwen3moe.feed_forward_length", 999u32);
        file.metadata.set("qwen3moe.norm_top_k_prob", true);
    });
}

/// As Bamba has none.
#[test]
fn a_hybrid_without_a_divisor_leaves_logits_as_they_are() {
    let mut cases = CASES.iter();
    let case = cases.find(|case| case.name == "granitehybrid").unwrap();
    let [prompt, _] = case.prompts();
    let logits = |divisor: f32| {
        let mut file = case.file();
        file.metadata.set("granitehybrid.logit_scale", divisor);
        all_logits(
            &mut *load_bytes(&file.bytes(), "cpu").unwrap().model,
            &prompt,
        )
    };
    // 0 counts as absent.
    assert_eq!(logits(0.0), logits(1.0));
}

/// llama.cpp forgets what such a layer attended to; the published model adds it.
#[test]
fn a_layer_without_a_network_attends() {
    let case = CASES.iter().find(|case| case.name == "deci").unwrap();
    let [prompt, _] = case.prompts();
    let logits = |change: &dyn Fn(&mut File)| {
        let mut file = case.file();
        change(&mut file);
        all_logits(
            &mut *load_bytes(&file.bytes(), "cpu").unwrap().model,
            &prompt,
        )
    };
    let lacks = logits(&|file| {
        let key = "deci.feed_forward_length";
        file.metadata.set(key, vec![96u32, 64, 0, 0, 96]);
        file.tensors
            .retain(|tensor| !tensor.name.starts_with("blk.2.ffn_"));
    });
    let zero = logits(&|file| file.tensor("blk.2.ffn_down.weight").bytes.fill(0));
    assert_eq!(lacks, zero);
    assert_ne!(lacks, logits(&|_| {}));
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
