//! Every key and every tensor of every kind of file, replaced by what no good file has there: an error of one line, or
//! a model that computes something.

use std::{collections::BTreeSet, fs, path::Path};

use llmsrv_engine::{EngineOptions, LoadOptions, Loaded, spawn};
use llmsrv_gguf::{Array, Header, TensorType, Value};

use crate::{
    tiny::{CASES, EMBEDDERS, File, FileTensor, all_logits, encode},
    tiny_encoder::ENCODERS,
    vision_files::{EYES, Picture},
};

/// Elements of an absurd list.
const MANY: usize = 10_000;

/// What stands in place of a value.
fn values() -> Vec<Value> {
    vec![
        Value::U32(0),
        Value::U32(1),
        Value::U32(7),
        Value::U32(u32::MAX),
        Value::U64(u64::MAX),
        Value::I64(-1),
        Value::F32(f32::NAN),
        Value::F32(f32::INFINITY),
        Value::F32(0.0),
        Value::Bool(true),
        Value::String("x".repeat(MANY)),
        Value::Array(Array::U32(Vec::new())),
        Value::Array(Array::U32(vec![0; 3])),
        Value::Array(Array::I32(vec![-1; 4])),
        Value::Array(Array::U32(vec![u32::MAX; MANY])),
        Value::Array(Array::F32(vec![f32::NAN; 3])),
        Value::from(vec![String::new(); MANY]),
    ]
}

/// What stands in place of a tensor: shapes that do not fit, of as many elements as they say.
fn shapes(shape: &[u64]) -> Vec<Vec<u64>> {
    let larger: Vec<u64> = shape.iter().map(|n| n + 1).collect();
    let turned: Vec<u64> = shape.iter().rev().copied().collect();
    let mut deeper = shape.to_vec();
    deeper.insert(0, 1);
    let all = shape.iter().product();
    [
        vec![1],
        vec![all],
        vec![1, 1, 1, all],
        larger,
        turned,
        deeper,
    ]
    .into_iter()
    .filter(|other| other != shape && other.len() <= 4)
    .collect()
}

/// A name without the number of its layer: layers are all alike.
fn kind_of(name: &str) -> String {
    let parts = name.split('.').filter(|part| part.parse::<u32>().is_err());
    parts.collect::<Vec<_>>().join(".")
}

/// Calls `check` for every variant of the files that `family` has not seen yet, with what was changed.
fn for_each_variant<'a>(
    files: impl Iterator<Item = (&'a str, Box<dyn Fn() -> File + 'a>)>,
    check: &mut dyn FnMut(&str, &str, File),
) -> usize {
    let mut seen = BTreeSet::new();
    let mut n_variants = 0;
    for (family, make) in files {
        let good = make();
        let keys: Vec<String> = good
            .metadata
            .iter()
            .map(|(key, _)| key.to_owned())
            .collect();
        let tokenizer = format!("{:?}", good.metadata.get("tokenizer.ggml.model"));
        for key in keys {
            // What is no family's own is read in one place for all that have such a tokenizer.
            let whose = match key.split_once('.') {
                Some(("general" | "tokenizer", _)) => &tokenizer,
                _ => family,
            };
            if key == "general.architecture" || !seen.insert((whose.to_owned(), key.clone())) {
                continue;
            }
            for value in values() {
                let what = format!("{key} = {:.60}", format!("{value:?}"));
                let mut file = good.clone();
                file.metadata.set(&key, value);
                check(family, &what, file);
                n_variants += 1;
            }
        }
        for idx in 0..good.tensors.len() {
            let name = good.tensors[idx].name.clone();
            if !seen.insert((family.to_owned(), kind_of(&name))) {
                continue;
            }
            let mut file = good.clone();
            file.tensors.remove(idx);
            check(family, &format!("without {name}"), file);
            n_variants += 1;
            for shape in shapes(&good.tensors[idx].shape) {
                let what = format!("{name} of {shape:?}");
                let n: u64 = shape.iter().product();
                let mut file = good.clone();
                file.tensors[idx] = FileTensor {
                    name: name.clone(),
                    bytes: encode(TensorType::F32, &vec![0.0; n as usize]),
                    shape,
                    dtype: TensorType::F32,
                };
                check(family, &what, file);
                n_variants += 1;
            }
        }
    }
    n_variants
}

/// Loads files, and says what is wrong with the error if there is one.
fn load(path: &Path, projector: Option<&Path>, what: &str) -> Option<Loaded> {
    let options = LoadOptions {
        n_threads: 1,
        device: "cpu".into(),
        projector: projector.map(Into::into),
        ..LoadOptions::default()
    };
    match llmsrv_models::load(path, &options) {
        Ok(loaded) => Some(loaded),
        Err(error) => {
            let text = error.to_string();
            assert!(
                !text.contains('\n') && text.len() < 1000,
                "{what}: {text:.300}"
            );
            None
        }
    }
}

#[test]
fn of_decoders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let files = CASES.iter().map(|case| {
        let make: Box<dyn Fn() -> File> = Box::new(|| case.file());
        (case.architecture, make)
    });
    let n_variants = for_each_variant(files, &mut |family, what, file| {
        fs::write(&path, file.bytes()).unwrap();
        let Some(mut loaded) = load(&path, None, &format!("{family}: {what}")) else {
            return;
        };
        let spec = loaded.model.spec();
        if spec.vocab_size > 3 && spec.kv_block_bytes < 1 << 24 && spec.state_bytes < 1 << 24 {
            all_logits(&mut *loaded.model, &[0, 3, 1]);
        }
    });
    println!("{n_variants} variants");
}

#[test]
fn of_encoders() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let encoders = ENCODERS.iter().map(|case| {
        let make: Box<dyn Fn() -> File> = Box::new(|| case.file());
        (case.architecture, make)
    });
    let embedders = EMBEDDERS.iter().map(|case| {
        let make: Box<dyn Fn() -> File> = Box::new(|| case.file());
        (case.name, make)
    });
    let n_variants = for_each_variant(encoders.chain(embedders), &mut |family, what, file| {
        fs::write(&path, file.bytes()).unwrap();
        let what = format!("{family}: {what}");
        let Some(loaded) = load(&path, None, &what) else {
            return;
        };
        let (vocab_size, embedding) = (
            loaded.model.spec().vocab_size,
            loaded.model.spec().embedding,
        );
        if vocab_size > 3 && embedding.is_some() {
            let handle = spawn(loaded, EngineOptions::default());
            // Too long for the context that such a file allows, or a vector.
            if let Ok(vectors) = handle.embed(vec![vec![0, 3, 1]]) {
                let _ = vectors.blocking_wait();
            }
        }
    });
    println!("{n_variants} variants");
}

#[test]
fn of_encoders_of_images() {
    let folder = tempfile::tempdir().unwrap();
    let (path, projector) = (
        folder.path().join("model.gguf"),
        folder.path().join("mmproj.gguf"),
    );
    let png = Picture::new("variants", 30, 20).png();
    let files = EYES.iter().map(|eyes| {
        let make: Box<dyn Fn() -> File> = Box::new(|| eyes.file());
        (eyes.projector, make)
    });
    let mut decoder = "";
    let n_variants = for_each_variant(files, &mut |family, what, file| {
        let eyes = EYES.iter().find(|eyes| eyes.projector == family).unwrap();
        if decoder != eyes.name {
            decoder = eyes.name;
            fs::write(&path, eyes.decoder_file().bytes()).unwrap();
        }
        fs::write(&projector, file.bytes()).unwrap();
        let what = format!("{family}: {what}");
        let vision = load(&path, Some(&projector), &what).and_then(|loaded| loaded.vision);
        if let Some(vision) = vision {
            match vision.encode(&png) {
                Ok(image) => assert!(image.rows <= 4096, "{what}: {} rows", image.rows),
                Err(error) => assert!(!error.to_string().contains('\n'), "{what}: {error}"),
            }
        }
    });
    println!("{n_variants} variants");
}

/// Decoders whose headers have most of the keys that any has.
const SEEDS: [&str; 14] = [
    "llama",
    "llama4",
    "gemma3n",
    "gemma4_experts",
    "gpt_oss",
    "qwen2vl",
    "minimax_m2",
    "deepseek2",
    "falcon_h1",
    "mamba2",
    "nemotron_h_moe_latent",
    "lfm2moe",
    "qwen35moe",
    "gemma_embedding",
];

/// The headers that the fuzz target `model` starts from are those of tiny models. `GENERATE=1` writes them.
#[test]
fn seeds_of_the_fuzz_target_are_headers_of_tiny_models() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/model");
    let decoders = CASES.iter().chain(EMBEDDERS);
    let decoders = decoders.filter(|case| SEEDS.contains(&case.name));
    let decoders = decoders.map(|case| (case.name, case.bytes()));
    let encoders = ENCODERS.iter().filter(|case| case.name == "jina_bert_v3");
    let encoders = encoders.map(|case| (case.name, case.file().bytes()));
    let mut n_seeds = 0;
    for (name, bytes) in decoders.chain(encoders) {
        let header = Header::parse(&bytes, bytes.len() as u64).unwrap();
        let weights = header.tensors.iter().map(|tensor| tensor.offset).min();
        let seed = &bytes[..weights.unwrap() as usize];
        let path = folder.join(format!("{name}.gguf"));
        if std::env::var_os("GENERATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, seed).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == seed,
            "{}: make it anew with GENERATE=1",
            path.display()
        );
        n_seeds += 1;
    }
    assert_eq!(n_seeds, SEEDS.len() + 1);
}
