//! A small transformer with random weights of 8 bits, computed on a device and on the CPU.
//!
//! It says whether the kernels of inference work together: norms, products of quantised matrices with vectors,
//! attention over a growing memory of keys and values, gated feed-forward. It is no language model, and its speed,
//! which is mostly that of launching small kernels, says little about real ones.

use std::time::Instant;

use super::{
    Buffer, Device, DeviceInfo, Error, Launch,
    checks::{Found, Problem, filled, filled_words, floats, noise},
};

const DIM: usize = 256;
const HEAD: usize = 32;
const HIDDEN: usize = 512;
const LAYERS: usize = 2;
const VOCABULARY: usize = 512;
const TOKENS: usize = 16;

/// Weights of 8 bits, with a scale for each 32 of a row.
struct Matrix {
    rows: usize,
    columns: usize,
    weights: Vec<i8>,
    scales: Vec<f32>,
}

impl Matrix {
    fn random(rows: usize, columns: usize, seed: u64) -> Matrix {
        let mut noise = noise(seed);
        let mut next = || noise.next().unwrap_or_default();
        let weights = (0..rows * columns)
            .map(|_| (next() % 255) as u8 as i16 - 127)
            .map(|w| w as i8)
            .collect();
        // Keeps the size of what passes through.
        let scale = 1.7 / (127.0 * (columns as f32).sqrt());
        let scales = (0..rows * columns / 32)
            .map(|_| scale * (0.75 + (next() % 512) as f32 / 1024.0))
            .collect();
        Matrix {
            rows,
            columns,
            weights,
            scales,
        }
    }

    fn times(&self, x: &[f32]) -> Vec<f32> {
        let blocks = self.weights.chunks(32).zip(&self.scales);
        let parts: Vec<f32> = blocks
            .enumerate()
            .map(|(block, (weights, scale))| {
                let x = &x[block * 32 % self.columns..];
                weights
                    .iter()
                    .zip(x)
                    .map(|(w, x)| f32::from(*w) * x)
                    .sum::<f32>()
                    * scale
            })
            .collect();
        parts
            .chunks(self.columns / 32)
            .map(|row| row.iter().sum())
            .collect()
    }
}

struct Layer {
    query: Matrix,
    key: Matrix,
    value: Matrix,
    out: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

struct Model {
    tokens: Vec<f32>,
    positions: Vec<f32>,
    layers: Vec<Layer>,
    head: Matrix,
}

impl Model {
    fn new() -> Model {
        let mut seed = 100;
        let mut random = |rows, columns| {
            seed += 1;
            Matrix::random(rows, columns, seed)
        };
        let layers = (0..LAYERS)
            .map(|_| Layer {
                query: random(DIM, DIM),
                key: random(DIM, DIM),
                value: random(DIM, DIM),
                out: random(DIM, DIM),
                gate: random(HIDDEN, DIM),
                up: random(HIDDEN, DIM),
                down: random(DIM, HIDDEN),
            })
            .collect();
        let head = random(VOCABULARY, DIM);
        let values = |n: usize, seed| {
            noise(seed)
                .take(n)
                .map(|word| word as f32 / 2.0_f32.powi(31) - 1.0)
                .collect()
        };
        Model {
            tokens: values(VOCABULARY * DIM, 3),
            positions: values(TOKENS * DIM, 2),
            layers,
            head,
        }
    }

    fn input(&self, token: usize, position: usize) -> Vec<f32> {
        let token = &self.tokens[token * DIM..][..DIM];
        token
            .iter()
            .zip(&self.positions[position * DIM..])
            .map(|(a, b)| a + b)
            .collect()
    }
}

/// What a run made: a token for each position, and the logits it was taken from.
#[derive(Default)]
struct Run {
    tokens: Vec<usize>,
    logits: Vec<Vec<f32>>,
}

impl Run {
    /// Computes greedily; `step` makes logits of a vector at a position.
    fn of<E>(
        model: &Model,
        mut step: impl FnMut(&[f32], usize) -> Result<Vec<f32>, E>,
    ) -> Result<Run, E> {
        let (mut run, mut token) = (Run::default(), 1);
        for position in 0..TOKENS {
            let logits = step(&model.input(token, position), position)?;
            token = (0..logits.len())
                .max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
                .unwrap_or(0);
            run.tokens.push(token);
            run.logits.push(logits);
        }
        Ok(run)
    }
}

/// Compares the device with the CPU.
pub fn check(device: &mut dyn Device, _: &DeviceInfo) -> Result<Found, Problem> {
    let model = Model::new();
    let wanted = on_cpu(&model);
    let mut there = OnDevice::new(device, &model)?;
    // The first run compiles what the driver has not yet compiled.
    Run::of(&model, |x, position| there.step(x, position))?;
    let begun = Instant::now();
    let found = Run::of(&model, |x, position| there.step(x, position))?;
    let seconds = begun.elapsed().as_secs_f64();
    if found.tokens != wanted.tokens {
        return Err(Problem::Wrong(format!(
            "tokens {:?}, on the CPU {:?}",
            found.tokens, wanted.tokens
        )));
    }
    let pairs = found
        .logits
        .iter()
        .flatten()
        .zip(wanted.logits.iter().flatten());
    let difference = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    if difference.is_nan() || difference > TOLERANCE {
        return Err(Problem::Wrong(format!(
            "logits differ from those of the CPU by {difference}"
        )));
    }
    Ok(Found {
        value: Some(TOKENS as f64 / seconds),
        unit: "tokens/s",
        detail: format!(
            "{TOKENS} tokens of a {LAYERS}-layer transformer with random 8-bit weights, as on the CPU (logits differ \
             by {difference:.0e} at most)"
        ),
    })
}

/// How far logits, which are about 1, may be apart.
const TOLERANCE: f32 = 1e-4;

fn on_cpu(model: &Model) -> Run {
    let mut memory = vec![(Vec::new(), Vec::new()); LAYERS];
    let step = |x: &[f32], _| {
        let mut x = x.to_vec();
        let add = |x: &mut Vec<f32>, more: &[f32]| {
            x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
        };
        for (layer, (keys, values)) in model.layers.iter().zip(&mut memory) {
            let normal = rms_norm(&x);
            keys.extend(layer.key.times(&normal));
            values.extend(layer.value.times(&normal));
            let seen = attend(&layer.query.times(&normal), keys, values);
            add(&mut x, &layer.out.times(&seen));
            let normal = rms_norm(&x);
            let (gate, up) = (layer.gate.times(&normal), layer.up.times(&normal));
            let hidden: Vec<f32> = gate
                .iter()
                .zip(&up)
                .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                .collect();
            add(&mut x, &layer.down.times(&hidden));
        }
        Ok::<_, std::convert::Infallible>(model.head.times(&rms_norm(&x)))
    };
    match Run::of(model, step) {
        Ok(run) => run,
        Err(never) => match never {},
    }
}

fn rms_norm(x: &[f32]) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    x.iter().map(|x| x / (mean + 1e-5).sqrt()).collect()
}

fn attend(query: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(DIM);
    for head in (0..DIM).step_by(HEAD) {
        let query = &query[head..head + HEAD];
        let scores = keys.chunks(DIM).map(|key| {
            let key = &key[head..head + HEAD];
            query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>() / (HEAD as f32).sqrt()
        });
        let scores: Vec<f32> = scores.collect();
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        for i in head..head + HEAD {
            let weighted = weights
                .iter()
                .zip(values.chunks(DIM))
                .map(|(weight, value)| weight * value[i]);
            out.push(weighted.sum::<f32>() / sum);
        }
    }
    out
}

/// The model in the memory of a device.
struct OnDevice<'a> {
    device: &'a mut dyn Device,
    layers: Vec<LayerThere>,
    head: MatrixThere,
    x: Buffer,
    normal: Buffer,
    query: Buffer,
    row: Buffer,
    seen: Buffer,
    gate: Buffer,
    up: Buffer,
    hidden: Buffer,
    sum: Buffer,
    logits: Buffer,
}

struct MatrixThere {
    weights: Buffer,
    scales: Buffer,
    rows: u32,
    columns: u32,
}

struct LayerThere {
    query: MatrixThere,
    key: MatrixThere,
    value: MatrixThere,
    out: MatrixThere,
    gate: MatrixThere,
    up: MatrixThere,
    down: MatrixThere,
    keys: Buffer,
    values: Buffer,
}

impl OnDevice<'_> {
    fn new<'a>(device: &'a mut dyn Device, model: &Model) -> Result<OnDevice<'a>, Error> {
        let layer = |device: &mut dyn Device, layer: &Layer| {
            Ok::<_, Error>(LayerThere {
                query: there(device, &layer.query)?,
                key: there(device, &layer.key)?,
                value: there(device, &layer.value)?,
                out: there(device, &layer.out)?,
                gate: there(device, &layer.gate)?,
                up: there(device, &layer.up)?,
                down: there(device, &layer.down)?,
                keys: device.allocate(TOKENS * DIM)?,
                values: device.allocate(TOKENS * DIM)?,
            })
        };
        let mut layers = Vec::new();
        for each in &model.layers {
            layers.push(layer(device, each)?);
        }
        Ok(OnDevice {
            layers,
            head: there(device, &model.head)?,
            x: device.allocate(DIM)?,
            normal: device.allocate(DIM)?,
            query: device.allocate(DIM)?,
            row: device.allocate(DIM)?,
            seen: device.allocate(DIM)?,
            gate: device.allocate(HIDDEN)?,
            up: device.allocate(HIDDEN)?,
            hidden: device.allocate(HIDDEN)?,
            sum: device.allocate(DIM)?,
            logits: device.allocate(VOCABULARY)?,
            device,
        })
    }

    fn step(&mut self, x: &[f32], position: usize) -> Result<Vec<f32>, Error> {
        self.device.write(self.x, bytemuck::cast_slice(x))?;
        let dim = DIM as u32;
        let at = position as u32;
        let mut launches = Vec::new();
        let mut go = |kernel, buffers: &[Buffer], params| {
            launches.push(Launch {
                kernel,
                buffers: buffers.to_vec(),
                params,
            });
        };
        let matrix = |out, matrix: &MatrixThere, x| {
            (
                [out, matrix.weights, matrix.scales, x],
                [matrix.rows, matrix.columns, 0, 0],
            )
        };
        let (mut x, mut other) = (self.x, self.sum);
        for layer in &self.layers {
            go("rms_norm", &[self.normal, x], [dim, 0, 0, 0]);
            for (projection, memory) in [(&layer.key, layer.keys), (&layer.value, layer.values)] {
                let (buffers, params) = matrix(self.row, projection, self.normal);
                go("matvec_q8", &buffers, params);
                go("place", &[memory, self.row], [dim, at * dim, 0, 0]);
            }
            let (buffers, params) = matrix(self.query, &layer.query, self.normal);
            go("matvec_q8", &buffers, params);
            go(
                "attend",
                &[self.seen, self.query, layer.keys, layer.values],
                [dim, at + 1, HEAD as u32, 0],
            );
            let (buffers, params) = matrix(self.row, &layer.out, self.seen);
            go("matvec_q8", &buffers, params);
            go("add", &[other, x, self.row], [dim, 0, 0, 0]);
            std::mem::swap(&mut x, &mut other);
            go("rms_norm", &[self.normal, x], [dim, 0, 0, 0]);
            for (projection, out) in [(&layer.gate, self.gate), (&layer.up, self.up)] {
                let (buffers, params) = matrix(out, projection, self.normal);
                go("matvec_q8", &buffers, params);
            }
            go(
                "swiglu",
                &[self.hidden, self.gate, self.up],
                [HIDDEN as u32, 0, 0, 0],
            );
            let (buffers, params) = matrix(self.row, &layer.down, self.hidden);
            go("matvec_q8", &buffers, params);
            go("add", &[other, x, self.row], [dim, 0, 0, 0]);
            std::mem::swap(&mut x, &mut other);
        }
        go("rms_norm", &[self.normal, x], [dim, 0, 0, 0]);
        let (buffers, params) = matrix(self.logits, &self.head, self.normal);
        go("matvec_q8", &buffers, params);
        self.device.run(&launches)?;
        floats(self.device, self.logits, VOCABULARY)
    }
}

fn there(device: &mut dyn Device, matrix: &Matrix) -> Result<MatrixThere, Error> {
    let words: Vec<u32> = matrix
        .weights
        .chunks(4)
        .map(|four| {
            four.iter()
                .rev()
                .fold(0, |word, weight| word << 8 | u32::from(*weight as u8))
        })
        .collect();
    Ok(MatrixThere {
        weights: filled_words(device, &words)?,
        scales: filled(device, &matrix.scales)?,
        rows: matrix.rows as u32,
        columns: matrix.columns as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounding on another device must not be able to change a token.
    #[test]
    fn the_best_token_leads_by_far_more_than_the_tolerance() {
        let run = on_cpu(&Model::new());
        for logits in &run.logits {
            let mut sorted = logits.clone();
            sorted.sort_by(f32::total_cmp);
            let lead = sorted[VOCABULARY - 1] - sorted[VOCABULARY - 2];
            assert!(lead > 10.0 * TOLERANCE, "{lead}");
            assert!(
                sorted[VOCABULARY - 1] > 0.5 && sorted[VOCABULARY - 1] < 20.0,
                "{sorted:?}"
            );
        }
        let mut tokens = run.tokens.clone();
        tokens.sort_unstable();
        tokens.dedup();
        assert!(tokens.len() > TOKENS / 2, "{:?}", run.tokens);
    }
}
