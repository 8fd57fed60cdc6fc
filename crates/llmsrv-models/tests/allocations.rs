//! A decode step takes no memory once a few of its kind were computed: what its layers need is there already.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a counting allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use llmsrv_engine::{BlockId, LoadOptions, Span, StepPlan};

#[path = "it/tiny.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod tiny;

/// Counts what all threads ask for.
struct Counting;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The next token of two sequences, of which the second is one token longer.
fn decode(position: u32) -> StepPlan {
    let span = |idx: u32| Span {
        rows: idx as usize..idx as usize + 1,
        start: position + idx,
        blocks: vec![BlockId(2 * idx), BlockId(2 * idx + 1)],
        tail: None,
        state: None,
    };
    StepPlan {
        tokens: vec![7, 8],
        positions: vec![position, position + 1],
        ends: vec![position + 1, position + 2],
        spans: vec![span(0), span(1)],
        logit_rows: vec![0, 1],
        ..StepPlan::default()
    }
}

/// Dense decoders: plain, with norms of queries and keys, with several kinds of rotation, with windows, with caps.
const NAMES: [&str; 6] = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"];

#[test]
fn a_warm_decode_step_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in NAMES {
        let case = tiny::CASES.iter().find(|case| case.name == name).unwrap();
        let path = case.write(folder.path());
        for kv_cache_type in ["auto", "f16", "q8_0"] {
            let options = LoadOptions {
                // Another thread makes its scratch memory with its first task, whenever that is.
                n_threads: 1,
                kv_cache_type: kv_cache_type.into(),
                ..LoadOptions::default()
            };
            let mut loaded = llmsrv_models::load(&path, &options).unwrap();
            let model = &mut loaded.model;
            model.reserve_blocks(4).unwrap();
            let mut logits = vec![0.0; 2 * model.spec().vocab_size];
            let plans: Vec<StepPlan> = (0..30).map(decode).collect();
            let mut counts = [0; 30];
            for (plan, count) in plans.iter().zip(&mut counts) {
                let before = ASKED.load(Ordering::Relaxed);
                model.forward(plan, &mut logits).unwrap();
                *count = ASKED.load(Ordering::Relaxed) - before;
            }
            // The first steps make the buffers that the later ones take.
            assert!(counts[0] > 0, "{name}: nothing is counted");
            assert_eq!(counts[20..], [0; 10], "{name} {kv_cache_type}");
        }
    }
}
