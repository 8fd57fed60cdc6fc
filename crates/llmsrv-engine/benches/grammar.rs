//! What a grammar costs: compiling a schema, taking it from the cache, and the mask of a token.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use llmsrv_engine::{
    EngineOptions, GenRequest, GrammarSpec, Handle, SamplingParams,
    fake::{self, FakeOptions},
    spawn,
};
use serde_json::{Value, json};

fn compile(criterion: &mut Criterion) {
    let engine = spawn(
        fake::loaded(FakeOptions::default()),
        EngineOptions::default(),
    );
    let mut number = 0;
    criterion.bench_function("a request with a new schema of 20 properties", |bencher| {
        bencher.iter(|| {
            number += 1;
            submit(&engine, schema(&format!("p{number}")));
        });
    });
    criterion.bench_function(
        "a request with a known schema of 20 properties",
        |bencher| {
            bencher.iter(|| submit(&engine, schema("p")));
        },
    );
}

/// Gives the engine a request that ends at once: its grammar is compiled all the same.
fn submit(engine: &Handle, schema: Value) {
    let generation = engine.submit(GenRequest {
        tokens: vec![1],
        params: SamplingParams::default(),
        num_ctx: 64,
        max_tokens: Some(0),
        stop: Vec::new(),
        num_keep: 0,
        shift: false,
        grammar: Some(GrammarSpec::JsonSchema(schema)),
        grammar_after: None,
        grammar_unless: None,
        logprobs: None,
        images: Vec::new(),
    });
    drop(black_box(generation));
}

fn schema(first: &str) -> Value {
    let mut properties = serde_json::Map::new();
    properties.insert(
        first.into(),
        json!({"type": "string", "pattern": "^[a-z]+$"}),
    );
    for idx in 0..19 {
        properties.insert(
            format!("field_{idx}"),
            json!({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1000}, {"type": "null"}]}),
        );
    }
    json!({"type": "object", "properties": properties, "required": [first], "additionalProperties": false})
}

criterion_group!(benches, compile);
criterion_main!(benches);
