//! Attention against its twin, bit for bit, with shapes drawn at random.

use llmsrv_gguf::TensorType;
use llmsrv_gpu::{Attention, Gpu, Pairs, StepRow, counts};
use proptest::prelude::*;

use crate::{
    kernels::{check, check_within, config, gpu, numbers, read},
    twin::{self, OfHead},
};

/// Keys and values of a sequence, position by position.
type Stored = (Vec<Vec<f32>>, Vec<Vec<f32>>);

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn attention(
        (n_kv_heads, group, half_dim, n_pairs) in (1_usize..4, 1_usize..5, 1_usize..40, 0_usize..40),
        contexts in prop::collection::vec((1_usize..150, 1_usize..6), 1..4),
        (windowed, capped, with_sinks, interleaved, causal, fused) in
            any::<(bool, bool, bool, bool, bool, bool)>(),
        (in_bytes, chunked) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let (dtype, half_dim) = if in_bytes {
            (TensorType::Q8_0, 16 * (1 + half_dim % 3))
        } else {
            (TensorType::F16, half_dim)
        };
        let kept = |row: &[f32]| if in_bytes { twin::q8_0_of(row) } else { twin::f16_of(row) };
        let shape = Attention {
            n_heads: n_kv_heads * group,
            n_kv_heads,
            head_dim: 2 * half_dim,
            scale: 0.7,
            softcap: capped.then_some(3.0),
            window: windowed.then_some(70),
            chunk: chunked.then_some(50),
            causal,
        };
        let n_pairs = n_pairs.min(half_dim);
        let (width, query_width) = (n_kv_heads * shape.head_dim, shape.n_heads * shape.head_dim);
        let gpu = &mut *gpu();
        let mut cache = gpu.cache(32, &[width], dtype).unwrap();
        gpu.reserve(&mut cache, 2).unwrap();
        gpu.reserve(&mut cache, 20).unwrap();
        // Blocks in an order of no meaning.
        let mut free: Vec<u32> = (0..20).map(|i| i * 7 % 20).collect();
        let tables: Vec<Vec<u32>> = contexts
            .iter()
            .map(|(before, new)| (0..(before + new).div_ceil(32)).map(|_| free.pop().unwrap()).collect())
            .collect();
        let sinks = numbers(seed ^ 9, shape.n_heads);
        let sink_vector = gpu.vector(&sinks).unwrap();
        let pairs = if interleaved { Pairs::Interleaved } else { Pairs::Halves };

        // All keys and values of a sequence, rotated.
        let mut all: Vec<Stored> = vec![Default::default(); contexts.len()];
        // What is there already, one step for each sequence, then the new rows of all together.
        let mut steps: Vec<Vec<StepRow>> = Vec::new();
        for (sequence, (before, _)) in contexts.iter().enumerate() {
            steps.push((0..*before as u32).map(|position| StepRow { position, end: position + 1, sequence }).collect());
        }
        let new = contexts.iter().enumerate().flat_map(|(sequence, (before, new))| {
            // The last row's end holds for all, as within an image.
            let end = (before + new) as u32;
            (*before as u32..end).map(move |position| StepRow { position, end, sequence })
        });
        steps.push(new.collect());
        let last = steps.len() - 1;
        for (idx, rows) in steps.iter().enumerate() {
            let n = rows.len();
            let seed = seed.wrapping_add(idx as u64 * 77);
            let (keys, values) = (numbers(seed ^ 3, n * width), numbers(seed ^ 4, n * width));
            let (cos, sin) = (numbers(seed ^ 5, n * n_pairs), numbers(seed ^ 6, n * n_pairs));
            let angles = (n_pairs > 0).then(|| gpu.angles(&cos, &sin, n_pairs, pairs).unwrap());
            let step = gpu.step(&cache, rows, &tables).unwrap();
            let (key, value) = (gpu.rows(&keys, width).unwrap(), gpu.rows(&values, width).unwrap());
            // The queries are rotated on the way, or by themselves.
            let queries = numbers(seed ^ 7, n * query_width);
            let mut query = gpu.rows(&queries, query_width).unwrap();
            let on_the_way = fused.then_some(&mut query);
            gpu.store((&cache, 0), (&key, &value), on_the_way, angles.as_ref(), &step, &shape).unwrap();
            let turned = |x: &[f32], row: usize, width: usize| {
                let mut x = x[row * width..][..width].to_vec();
                for head in x.chunks_mut(shape.head_dim) {
                    let at = row * n_pairs..(row + 1) * n_pairs;
                    twin::rotate(head, &cos[at.clone()], &sin[at], interleaved);
                }
                x
            };
            for (row, place) in rows.iter().enumerate() {
                let (all_keys, all_values) = &mut all[place.sequence];
                all_keys.push(kept(&turned(&keys, row, width)));
                all_values.push(kept(&values[row * width..][..width]));
            }
            if idx < last {
                continue;
            }
            if let Some(angles) = angles.as_ref().filter(|_| !fused) {
                gpu.rotate(&mut query, angles, shape.head_dim).unwrap();
            }
            let of_step = with_sinks.then_some(&sink_vector);
            let out = gpu.attend(&cache, 0, &query, of_step, &step, &shape).unwrap();
            let turned_queries: Vec<f32> = (0..n).flat_map(|row| turned(&queries, row, query_width)).collect();
            let found = read(gpu, &query, n * query_width);
            check(gpu, &found, &turned_queries)?;
            let mut expected = Vec::new();
            for (row, place) in rows.iter().enumerate() {
                for head in 0..shape.n_heads {
                    let query = &turned_queries[row * query_width + head * shape.head_dim..][..shape.head_dim];
                    let of_head = |all: &[Vec<f32>]| -> Vec<Vec<f32>> {
                        all.iter().map(|row| row[head / group * shape.head_dim..][..shape.head_dim].to_vec()).collect()
                    };
                    let (keys, values) = &all[place.sequence];
                    let sink = if with_sinks { OfHead::Sink(sinks[head]) } else { OfHead::Nothing };
                    let at = (place.position as usize, place.end as usize);
                    expected.extend(twin::attend(query, &of_head(keys), &of_head(values), sink, at, &shape));
                }
            }
            let found = read(gpu, &out, n * query_width);
            // A key or value that lies halfway between two bytes becomes either.
            check_within(gpu, &found, &expected, if in_bytes { 1e-2 } else { 2e-4 })?;
        }
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn attention_of_whole_sequences(
        (n_kv_heads, group, half_dim) in (1_usize..4, 1_usize..4, 1_usize..40),
        lengths in prop::collection::vec(1_usize..150, 1..4),
        window in prop::option::of(1_usize..100),
        (capped, with_slopes) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let shape = Attention {
            n_heads: n_kv_heads * group,
            n_kv_heads,
            head_dim: 2 * half_dim,
            scale: 0.7,
            softcap: capped.then_some(3.0),
            window,
            chunk: None,
            causal: false,
        };
        let (width, query_width) = (n_kv_heads * shape.head_dim, shape.n_heads * shape.head_dim);
        let n: usize = lengths.iter().sum();
        let queries = numbers(seed, n * query_width);
        let (keys, values) = (numbers(seed ^ 1, n * width), numbers(seed ^ 2, n * width));
        let slopes = numbers(seed ^ 3, shape.n_heads);
        let of_heads = with_slopes.then_some(&slopes[..]);
        let gpu = &mut *gpu();
        let compute = |gpu: &mut Gpu, rows: std::ops::Range<usize>, lengths: &[usize]| {
            let step = gpu.whole_step(lengths).unwrap();
            let of = |x: &[f32], width: usize| x[rows.start * width..rows.end * width].to_vec();
            let query = gpu.rows(&of(&queries, query_width), query_width).unwrap();
            let key = gpu.rows(&of(&keys, width), width).unwrap();
            let value = gpu.rows(&of(&values, width), width).unwrap();
            let out = gpu.attend_whole(&query, (&key, &value), of_heads, &step, &shape).unwrap();
            read(gpu, &out, rows.len() * query_width)
        };
        let found = compute(gpu, 0..n, &lengths);
        let mut expected = Vec::new();
        let mut first = 0;
        for len in &lengths {
            for position in 0..*len {
                for head in 0..shape.n_heads {
                    let of_head = |all: &[f32]| -> Vec<Vec<f32>> {
                        let rows = all[first * width..(first + len) * width].chunks(width);
                        rows.map(|row| row[head / group * shape.head_dim..][..shape.head_dim].to_vec()).collect()
                    };
                    let query = &queries[(first + position) * query_width + head * shape.head_dim..][..shape.head_dim];
                    let both = OfHead::BothSides(if with_slopes { slopes[head] } else { 0.0 });
                    expected.extend(twin::attend(query, &of_head(&keys), &of_head(&values), both, (position, *len), &shape));
                }
            }
            first += len;
        }
        check(gpu, &found, &expected)?;
        // A sequence alone has the same bits.
        let rows = n - lengths[lengths.len() - 1]..n;
        let alone = compute(gpu, rows.clone(), &lengths[lengths.len() - 1..]);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&alone), bits(&found[rows.start * query_width..]));
    }
}

proptest! {
    #![proptest_config(config(12))]

    /// Rows that see more than a part of 256 positions: all together, where each head of a row has a workgroup of its own,
    /// and one by one, where workgroups share what a row sees.
    #[test]
    fn attention_over_many_parts(
        (n_kv_heads, group, half_dim) in (1_usize..4, 2_usize..5, 1_usize..9),
        len in 300_usize..1100,
        (near, far) in (prop::option::of((any::<bool>(), 1_usize..700)), 0.0..1.0),
        (capped, with_sinks, in_bytes, ahead) in any::<(bool, bool, bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let (dtype, half_dim) = if in_bytes { (TensorType::Q8_0, 16) } else { (TensorType::F16, half_dim) };
        let kept = |row: &[f32]| if in_bytes { twin::q8_0_of(row) } else { twin::f16_of(row) };
        let shape = Attention {
            n_heads: n_kv_heads * group,
            n_kv_heads,
            head_dim: 2 * half_dim,
            scale: 1.7,
            softcap: capped.then_some(3.0),
            window: near.and_then(|(chunked, n)| (!chunked).then_some(n)),
            chunk: near.and_then(|(chunked, n)| chunked.then_some(n)),
            causal: !ahead,
        };
        let (width, query_width) = (n_kv_heads * shape.head_dim, shape.n_heads * shape.head_dim);
        let gpu = &mut *gpu();
        let mut cache = gpu.cache(32, &[width], dtype).unwrap();
        gpu.reserve(&mut cache, 40).unwrap();
        let tables = [(0..len.div_ceil(32) as u32).map(|i| (i * 7 + 3) % 40).collect::<Vec<u32>>()];
        let row = |position: usize| StepRow {
            position: position as u32,
            end: if ahead { len } else { position + 1 } as u32,
            sequence: 0,
        };
        let (keys, values) = (numbers(seed ^ 3, len * width), numbers(seed ^ 4, len * width));
        let stored = [&keys, &values].map(|all| all.chunks(width).map(kept).collect::<Vec<_>>());
        let all: Vec<StepRow> = (0..len).map(row).collect();
        let step = gpu.step(&cache, &all, &tables).unwrap();
        let (key, value) = (gpu.rows(&keys, width).unwrap(), gpu.rows(&values, width).unwrap());
        gpu.store((&cache, 0), (&key, &value), None, None, &step, &shape).unwrap();

        let sinks = numbers(seed ^ 9, shape.n_heads);
        let sink_vector = gpu.vector(&sinks).unwrap();
        let of_step = with_sinks.then_some(&sink_vector);
        let first = len - 512_usize.div_ceil(shape.n_heads);
        let queries = numbers(seed ^ 7, (len - first) * query_width);
        let attend = |gpu: &mut Gpu, rows: std::ops::Range<usize>| {
            let step = gpu.step(&cache, &all[rows.clone()], &tables).unwrap();
            let query = &queries[(rows.start - first) * query_width..(rows.end - first) * query_width];
            let query = gpu.rows(query, query_width).unwrap();
            let before = counts().dispatches;
            let out = gpu.attend(&cache, 0, &query, of_step, &step, &shape).unwrap();
            let n_kernels = counts().dispatches - before;
            (read(gpu, &out, rows.len() * query_width), n_kernels)
        };
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let (together, n_kernels) = attend(gpu, first..len);
        prop_assert_eq!(n_kernels, 1);
        let (some, _) = attend(gpu, len - 7..len);
        prop_assert_eq!(bits(&some), bits(&together[(len - 7 - first) * query_width..]));
        let drawn = first + ((len - first) as f64 * far) as usize;
        for position in [first, drawn, len - 1] {
            let (alone, n_kernels) = attend(gpu, position..position + 1);
            let found = &together[(position - first) * query_width..][..query_width];
            prop_assert_eq!(bits(&alone), bits(found), "row {} of {}", position, len);
            let seen = match (shape.chunk, shape.window) {
                (Some(chunk), _) => position - position % chunk,
                (None, Some(window)) => (position + 1).saturating_sub(window),
                (None, None) => 0,
            };
            let last = if ahead { len } else { position + 1 } - 1;
            prop_assert_eq!(n_kernels, if seen / 256 == last / 256 { 1 } else { 2 });
            let query = &queries[(position - first) * query_width..][..query_width];
            let mut expected = Vec::new();
            for head in 0..shape.n_heads {
                let of_head = |all: &[Vec<f32>]| -> Vec<Vec<f32>> {
                    all.iter().map(|row| row[head / group * shape.head_dim..][..shape.head_dim].to_vec()).collect()
                };
                let sink = if with_sinks { OfHead::Sink(sinks[head]) } else { OfHead::Nothing };
                let query = &query[head * shape.head_dim..][..shape.head_dim];
                let at = (position, last + 1);
                let [keys, values] = [&stored[0], &stored[1]].map(|all| of_head(all));
                expected.extend(twin::attend(query, &keys, &values, sink, at, &shape));
            }
            check_within(gpu, found, &expected, if in_bytes { 1e-2 } else { 2e-4 })?;
        }

        // Whole sequences, whose keys and values are those of the step.
        let shape = Attention { causal: false, chunk: None, ..shape };
        let queries = numbers(seed ^ 8, len * query_width);
        let query = gpu.rows(&queries, query_width).unwrap();
        let step = gpu.whole_step(&[len]).unwrap();
        let out = gpu.attend_whole(&query, (&key, &value), None, &step, &shape).unwrap();
        let found = read(gpu, &out, len * query_width);
        for position in [0, drawn, len - 1] {
            let mut expected = Vec::new();
            for head in 0..shape.n_heads {
                let of_head = |all: &[f32]| -> Vec<Vec<f32>> {
                    all.chunks(width).map(|row| row[head / group * shape.head_dim..][..shape.head_dim].to_vec()).collect()
                };
                let query = &queries[position * query_width + head * shape.head_dim..][..shape.head_dim];
                let both = OfHead::BothSides(0.0);
                expected.extend(twin::attend(query, &of_head(&keys), &of_head(&values), both, (position, len), &shape));
            }
            check(gpu, &found[position * query_width..][..query_width], &expected)?;
        }
    }
}
