// Layers with a recurrent state: convolutions over the last rows, gated delta rules, selective scans. A state goes through
// the rows of a sequence one after the other, so results do not depend on where a prompt was cut.
//
// `stretches` has three words for each: the slot of its state, its first row, and how many rows it has. A slot is
// `slot_len` elements of `states`; what a kernel keeps begins at element `start` of it.

struct Params {
    slot_len: u32, start: u32, n_stretches: u32, flags: u32,
    n_heads: u32, dim: u32, n_kept: u32, n_groups: u32, eps: f32,
}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read_write> states: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> stretches: array<u32>;
@group(0) @binding(4) var<storage, read> taps: array<f32>;
@group(0) @binding(4) var<storage, read> alpha: array<f32>;
@group(0) @binding(4) var<storage, read> steps: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> beta: array<f32>;
@group(0) @binding(5) var<storage, read> skip: array<f32>;
@group(0) @binding(6) var<storage, read> decay: array<f32>;
@group(0) @binding(7) var<storage, read> decay_bias: array<f32>;

const WITH_SILU = 1u;
const BIAS = 2u;
const INTERLEAVED = 4u;
const LANES = 64u;

// The natural logarithm of a positive number; the polynomial of Cephes.
fn logarithm(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    var n = f32(i32(bits >> 23u) - 127);
    var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
    if m > 1.4142135 {
        m = m * 0.5;
        n = n + 1.0;
    }
    let f = m - 1.0;
    let square = f * f;
    var sum = 7.0376836292e-2;
    sum = sum * f - 1.1514610310e-1;
    sum = sum * f + 1.1676998740e-1;
    sum = sum * f - 1.2420140846e-1;
    sum = sum * f + 1.4249322787e-1;
    sum = sum * f - 1.6668057665e-1;
    sum = sum * f + 2.0000714765e-1;
    sum = sum * f - 2.4999993993e-1;
    sum = sum * f + 3.3333331174e-1;
    let rest = (sum * f * square - n * 2.12194440e-4) - square * 0.5;
    return (f + rest) + n * 0.693359375;
}

// ln(1 + exp(x)), which is `x` where that is large.
fn softplus(x: f32) -> f32 {
    if x > 20.0 { return x; }
    let e = exponential(x);
    let u = 1.0 + e;
    return logarithm(u) + (e - (u - 1.0)) / u;
}

// `dim` channels, `n_kept` rows before each; a lane for each channel of a stretch.
@compute @workgroup_size(64)
fn short_conv(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = flat(g, groups) * LANES + l;
    let stretch = i / p.dim;
    if stretch >= p.n_stretches { return; }
    let channel = i % p.dim;
    let base = stretches[stretch * 3u] * p.slot_len + p.start + channel;
    let first = stretches[stretch * 3u + 1u] * p.dim + channel;
    let n_rows = stretches[stretch * 3u + 2u];
    for (var row = 0u; row < n_rows; row++) {
        var sum = 0.0;
        if (p.flags & BIAS) != 0u { sum = bias[channel]; }
        for (var tap = 0u; tap <= p.n_kept; tap++) {
            let at = row + tap;
            var input = 0.0;
            if at < p.n_kept { input = states[base + at * p.dim]; } else { input = x[first + (at - p.n_kept) * p.dim]; }
            sum = fma(taps[tap * p.dim + channel], input, sum);
        }
        if (p.flags & WITH_SILU) != 0u { sum = activated(SILU, sum); }
        out[first + row * p.dim] = sum;
    }
    // The last inputs are those of the next rows. What is read here lies behind what was written.
    for (var kept = 0u; kept < p.n_kept; kept++) {
        let at = n_rows + kept;
        var input = 0.0;
        if at < p.n_kept { input = states[base + at * p.dim]; } else { input = x[first + (at - p.n_kept) * p.dim]; }
        states[base + kept * p.dim] = input;
    }
}

var<workgroup> key: array<f32, 512>;
var<workgroup> query: array<f32, 512>;
var<workgroup> sums: array<vec2<f32>, LANES>;

// A group for each value head of a stretch, a lane for each column of its state. `n_heads` value heads, `n_groups` heads of
// queries and keys.
@compute @workgroup_size(64)
fn delta_rule(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = g.x;
    let stretch = g.y;
    var key_head = head / (p.n_heads / p.n_groups);
    if (p.flags & INTERLEAVED) != 0u { key_head = head % p.n_groups; }
    let base = stretches[stretch * 3u] * p.slot_len + p.start + head * p.dim * p.dim;
    let first = stretches[stretch * 3u + 1u];
    let n_rows = stretches[stretch * 3u + 2u];
    let width = (2u * p.n_groups + p.n_heads) * p.dim;
    for (var row = first; row < first + n_rows; row++) {
        let queries = row * width + key_head * p.dim;
        let keys = queries + p.n_groups * p.dim;
        let values = row * width + (2u * p.n_groups + head) * p.dim;
        var squares = vec2<f32>();
        for (var i = lane; i < p.dim; i += LANES) {
            let both = vec2<f32>(x[keys + i], x[queries + i]);
            squares = fma(both, both, squares);
        }
        workgroupBarrier();
        sums[lane] = squares;
        workgroupBarrier();
        var total = vec2<f32>();
        for (var i = 0u; i < LANES; i++) { total += sums[i]; }
        let of_key = 1.0 / sqrt(total.x + p.eps);
        let of_query = 1.0 / sqrt(total.y + p.eps) / sqrt(f32(p.dim));
        for (var i = lane; i < p.dim; i += LANES) {
            key[i] = x[keys + i] * of_key;
            query[i] = x[queries + i] * of_query;
        }
        workgroupBarrier();
        let at = row * p.n_heads + head;
        let kept = exponential(decay[head] * softplus(alpha[at] + decay_bias[head]));
        let learned = 1.0 / (1.0 + exponential(-beta[at]));
        for (var j = lane; j < p.dim; j += LANES) {
            var found = 0.0;
            for (var i = 0u; i < p.dim; i++) { found = fma(key[i], states[base + i * p.dim + j], found); }
            let added = learned * fma(-kept, found, x[values + j]);
            var result = 0.0;
            for (var i = 0u; i < p.dim; i++) {
                let state = fma(key[i], added, kept * states[base + i * p.dim + j]);
                states[base + i * p.dim + j] = state;
                result = fma(query[i], state, result);
            }
            out[at * p.dim + j] = result;
        }
    }
}

// A group for each head of a stretch, a lane for each of its elements.
@compute @workgroup_size(64)
fn selective_scan(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = g.x;
    let stretch = g.y;
    let group = head / (p.n_heads / p.n_groups);
    let base = stretches[stretch * 3u] * p.slot_len + p.start + head * p.n_kept * p.dim;
    let first = stretches[stretch * 3u + 1u];
    let n_rows = stretches[stretch * 3u + 2u];
    let width = p.n_heads * p.dim + 2u * p.n_groups * p.n_kept;
    for (var row = first; row < first + n_rows; row++) {
        let heads = row * width + head * p.dim;
        let written = row * width + p.n_heads * p.dim + group * p.n_kept;
        let read = written + p.n_groups * p.n_kept;
        let step = softplus(steps[row * p.n_heads + head] + decay_bias[head]);
        let kept = exponential(decay[head] * step);
        for (var j = lane; j < p.dim; j += LANES) {
            let own = x[heads + j];
            var result = skip[head] * own;
            for (var i = 0u; i < p.n_kept; i++) {
                let state = fma(x[written + i] * step, own, kept * states[base + i * p.dim + j]);
                states[base + i * p.dim + j] = state;
                result = fma(x[read + i], state, result);
            }
            out[(row * p.n_heads + head) * p.dim + j] = result;
        }
    }
}
