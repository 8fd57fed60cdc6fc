//! What it costs the host to record the commands of a step.

use std::time::Instant;

use llmsrv_gguf::TensorType;
use llmsrv_gpu::{Attention, Function, Matrix, Pairs, StepRow, counts};

use crate::kernels::{gpu, numbers, packed, read};

/// How long the host takes to record a token of a model of 32 layers, whatever the device then does: narrow ones, of the
/// kernels that those of a Llama have. `cargo test -p llmsrv-gpu --test it --config
/// profile.dev.package.llmsrv-gpu.opt-level=3 -- --ignored --nocapture recording`
#[test]
#[ignore = "a benchmark for docs/gpu.md: prints times, and asserts no time"]
fn recording_a_token() {
    const WIDTH: usize = 64;
    let shape = Attention {
        n_heads: 2,
        n_kv_heads: 2,
        head_dim: WIDTH / 2,
        scale: 1.0,
        softcap: None,
        window: None,
        chunk: None,
        causal: true,
    };
    let gpu = &mut *gpu();
    let mut layers = Vec::new();
    for layer in 0..32 {
        let bytes = packed(TensorType::F16, &numbers(layer, WIDTH * WIDTH));
        let mut matrix = || {
            gpu.matrix(TensorType::F16, WIDTH, WIDTH, &bytes, &[])
                .unwrap()
        };
        let matrices: [Matrix; 7] = std::array::from_fn(|_| matrix());
        layers.push((matrices, gpu.vector(&[1.0; WIDTH]).unwrap()));
    }
    let mut cache = gpu.cache(32, &[WIDTH; 32], TensorType::F16).unwrap();
    gpu.reserve(&mut cache, 8).unwrap();
    let table = [(0..8).collect::<Vec<u32>>()];
    let (mut times, mut n_kernels) = (Vec::new(), 0);
    for position in 0..200 {
        let (before, began) = (counts(), Instant::now());
        let row = StepRow {
            position,
            end: position + 1,
            sequence: 0,
        };
        let step = gpu.step(&cache, &[row], &table).unwrap();
        let angles = gpu
            .angles(&[1.0; 16], &[0.0; 16], 16, Pairs::Halves)
            .unwrap();
        let mut x = gpu.rows(&[0.5; WIDTH], WIDTH).unwrap();
        for (layer, ([q, k, v, output, gate, up, down], norm)) in layers.iter().enumerate() {
            let normed = gpu.rms_norm(&x, norm, 1e-5).unwrap();
            let mut qkv = gpu
                .linears(&normed, &[(q, None), (k, None), (v, None)])
                .unwrap();
            let [query, key, value] = &mut qkv[..] else {
                panic!()
            };
            gpu.store(
                (&cache, layer),
                (key, value),
                Some(query),
                Some(&angles),
                &step,
                &shape,
            )
            .unwrap();
            let attended = gpu
                .attend(&cache, layer, query, None, &step, &shape)
                .unwrap();
            gpu.add_linear(&mut x, &attended, output, None, 1.0)
                .unwrap();
            let normed = gpu.rms_norm(&x, norm, 1e-5).unwrap();
            let hidden = gpu
                .gated_linear(&normed, (gate, None), (up, None), Function::Silu)
                .unwrap();
            gpu.add_linear(&mut x, &hidden, down, None, 1.0).unwrap();
        }
        read(gpu, &x, WIDTH);
        let (took, after) = (began.elapsed(), counts());
        times.push((took + before.waited).saturating_sub(after.waited));
        n_kernels = after.dispatches - before.dispatches;
    }
    times.sort();
    let [least, median] = [times[0], times[100]];
    let each = median.as_secs_f64() * 1e6 / n_kernels as f64;
    eprintln!("{n_kernels} kernels: {median:?} (at least {least:?}), {each:.2} us each");
}
