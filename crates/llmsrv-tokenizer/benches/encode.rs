//! Speed of encoding, with the vocabulary of the embedded model.

use std::{hint::black_box, path::Path};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use llmsrv_gguf::GgufFile;
use llmsrv_tokenizer::{Special, Tokenizer, Vocab};

fn encode(criterion: &mut Criterion) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file =
        GgufFile::open(&root.join("assets/embedded/model.gguf")).expect("the embedded model opens");
    let vocab = Vocab::from_metadata(file.metadata()).expect("the embedded model has a vocabulary");
    let text = source_text(&root);
    for pre in ["qwen2", "gpt-4o", "deepseek-v3", "default"] {
        let vocab = Vocab {
            pre: pre.into(),
            ..vocab.clone()
        };
        let mut group = criterion.benchmark_group(pre);
        group
            .sample_size(10)
            .throughput(Throughput::Bytes(text.len() as u64));
        let tokenizer = Tokenizer::new(vocab.clone()).expect("the vocabulary is sound");
        group.bench_function("warm", |bencher| {
            bencher.iter(|| black_box(tokenizer.encode(&text, Special::Parse)));
        });
        group.bench_function("first", |bencher| {
            let new = || Tokenizer::new(vocab.clone()).expect("the vocabulary is sound");
            let encode = |tokenizer: Tokenizer| black_box(tokenizer.encode(&text, Special::Parse));
            bencher.iter_batched(new, encode, BatchSize::LargeInput);
        });
        group.finish();
    }
}

/// The sources and licences of the project, in a fixed order.
fn source_text(root: &Path) -> String {
    let mut folders = vec![root.join("crates")];
    let mut files = vec![root.join("LICENSE-APACHE")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect()
}

criterion_group!(benches, encode);
criterion_main!(benches);
