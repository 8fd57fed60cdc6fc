//! Any bytes as the header of a model whose weights are zeros: an error of one line, or a model that computes a step.
#![no_main]

use std::{fs::File, io::Write as _, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use llmsrv_engine::{
    BlockId, EngineOptions, LoadOptions, Span, SpanState, StateId, StepPlan, spawn,
};
use llmsrv_gguf::Header;
use tempfile::NamedTempFile;

/// Bytes of weights that a header may promise: tiny models have some ten thousand.
const WEIGHT_BYTES: u64 = 4 << 20;
/// Bytes that a step may take beside them.
const STEP_BYTES: usize = 1 << 24;
const TOKENS: [u32; 3] = [0, 3, 1];

static MODEL: LazyLock<NamedTempFile> =
    LazyLock::new(|| NamedTempFile::new().expect("a file in the folder for temporary ones"));

fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len() as u64 + WEIGHT_BYTES;
    if Header::parse(bytes, len).is_err() {
        return;
    }
    let mut file = File::create(MODEL.path()).expect("the file can be written");
    file.write_all(bytes).expect("there is room for a header");
    file.set_len(len).expect("zeros take no room");
    let options = LoadOptions {
        n_threads: 1,
        device: "cpu".into(),
        ..LoadOptions::default()
    };
    let mut loaded = match llmsrv_models::load(MODEL.path(), &options) {
        Ok(loaded) => loaded,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let spec = loaded.model.spec().clone();
    if spec.vocab_size <= 3 || spec.kv_block_bytes.max(spec.state_bytes) > STEP_BYTES {
        return;
    }
    if spec.embedding.is_some() {
        let handle = spawn(loaded, EngineOptions::default());
        if let Ok(vectors) = handle.embed(vec![TOKENS.to_vec()]) {
            let _ = vectors.blocking_wait();
        }
        return;
    }
    let n_blocks = TOKENS.len().div_ceil(spec.block_size);
    if loaded.model.reserve_blocks(n_blocks).is_err() {
        return;
    }
    let state = (spec.state_bytes > 0 && loaded.model.reserve_states(1).is_ok())
        .then(|| SpanState::new(StateId(0)));
    let plan = StepPlan {
        tokens: TOKENS.to_vec(),
        positions: (0..).take(TOKENS.len()).collect(),
        ends: (1..).take(TOKENS.len()).collect(),
        coordinates: Vec::new(),
        images: Vec::new(),
        spans: vec![Span {
            rows: 0..TOKENS.len(),
            start: 0,
            blocks: (0..n_blocks as u32).map(BlockId).collect(),
            tail: None,
            state,
        }],
        logit_rows: vec![TOKENS.len() as u32 - 1],
    };
    let _ = loaded.model.forward(&plan, &mut vec![0.0; spec.vocab_size]);
});
