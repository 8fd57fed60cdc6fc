// Norms: 128 lanes share a stretch. Each sums its elements in ascending order, then the sums are added in ascending
// order, by every lane for itself. tests/it/spirv.rs repeats lines that end in `//each` eight times, with 0 to 7 for `$`: a
// lane asks for eight elements before it waits for the first.

// Stretches take turns with the `n_groups` parts of `weight`. `second` and `third` have the length and the number of
// those of further tensors, which come after the first one's.
struct Params { len: u32, n_stretches: u32, flags: u32, eps: f32, n_groups: u32, scale: f32, second: vec2<u32>, third: vec2<u32> }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> second: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> like: array<f32>;
@group(0) @binding(2) var<storage, read_write> third: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> first_weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> normed: array<f32>;
@group(0) @binding(4) var<storage, read> second_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read> third_weight: array<f32>;

const NEXT = 1u;

const LANES = 128u;
const EIGHT = 8u * LANES;
var<workgroup> sums: array<f32, LANES>;
var<workgroup> squares: array<f32, LANES>;

// What all lanes have together. All of them call it, once in a kernel: the next one would write over what some still read.
fn total_sum(lane: u32, part: f32) -> f32 {
    sums[lane] = part;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += sums[i]; }
    return total;
}

fn total_square(lane: u32, part: f32) -> f32 {
    squares[lane] = part;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += squares[i]; }
    return total;
}

// A lane's part of the sum of squares of `x`.
fn square_of(start: u32, lane: u32) -> f32 {
    var square = 0.0;
    var i = start + lane;
    let end = start + p.len;
    for (; i + 7u * LANES < end; i += EIGHT) {
        let value$ = x[i + $u * LANES]; //each
        square = fma(value$, value$, square); //each
    }
    for (; i < end; i += LANES) { square = fma(x[i], x[i], square); }
    return square;
}

@compute @workgroup_size(128)
fn rms_norm(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let stretch = flat(g, groups);
    let start = stretch * p.len;
    var square = 0.0;
    if stretch < p.n_stretches {
        square = square_of(start, lane);
    }
    var total = total_square(lane, square);
    let scale = 1.0 / sqrt(total / f32(p.len) + p.eps);
    if stretch < p.n_stretches {
        let first = stretch % p.n_groups * p.len;
        var i = lane;
        for (; i + 7u * LANES < p.len; i += EIGHT) {
            let value$ = x[start + i + $u * LANES] * scale * weight[first + i + $u * LANES]; //each
            out[start + i + $u * LANES] = value$; //each
        }
        for (; i < p.len; i += LANES) { out[start + i] = x[start + i] * scale * weight[first + i]; }
    }
}

fn element(tensor: u32, i: u32) -> f32 {
    switch tensor {
        case 0u: { return out[i]; }
        case 1u: { return second[i]; }
        default: { return third[i]; }
    }
}

// `rms_norm` of up to three tensors in place.
@compute @workgroup_size(128)
fn rms_norms(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var stretch = flat(g, groups);
    var tensor = 0u;
    var shape = vec2<u32>(p.len, p.n_stretches);
    if stretch >= shape.y {
        stretch -= shape.y;
        tensor = 1u;
        shape = p.second;
        if stretch >= shape.y {
            stretch -= shape.y;
            tensor = 2u;
            shape = p.third;
        }
    }
    let start = stretch * shape.x;
    var square = 0.0;
    if stretch < shape.y {
        for (var i = lane; i < shape.x; i += LANES) {
            let value = element(tensor, start + i);
            square = fma(value, value, square);
        }
    }
    var total = total_square(lane, square);
    let scale = 1.0 / sqrt(total / f32(shape.x) + p.eps);
    if stretch < shape.y {
        for (var i = lane; i < shape.x; i += LANES) {
            let value = element(tensor, start + i) * scale;
            switch tensor {
                case 0u: { out[start + i] = value * first_weight[i]; }
                case 1u: { second[start + i] = value * second_weight[i]; }
                default: { third[start + i] = value * third_weight[i]; }
            }
        }
    }
}

// Adds `scale` times the norm of each row of `x` to that of `out`, and with NEXT writes the norm of the sum.
@compute @workgroup_size(128)
fn add_normed(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(g, groups);
    let start = row * p.len;
    var square = 0.0;
    if row < p.n_stretches {
        square = square_of(start, lane);
    }
    var total = total_square(lane, square);
    let factor = 1.0 / sqrt(total / f32(p.len) + p.eps);
    square = 0.0;
    if row < p.n_stretches {
        var i = lane;
        for (; i + 7u * LANES < p.len; i += EIGHT) {
            let at$ = start + i + $u * LANES; //each
            let value$ = out[at$] + p.scale * (x[at$] * factor * weight[i + $u * LANES]); //each
            out[at$] = value$; //each
            square = fma(value$, value$, square); //each
        }
        for (; i < p.len; i += LANES) {
            let value = out[start + i] + p.scale * (x[start + i] * factor * weight[i]);
            out[start + i] = value;
            square = fma(value, value, square);
        }
    }
    total = total_sum(lane, square);
    if row >= p.n_stretches || (p.flags & NEXT) == 0u { return; }
    let next = 1.0 / sqrt(total / f32(p.len) + p.eps);
    var i = lane;
    for (; i + 7u * LANES < p.len; i += EIGHT) {
        let value$ = out[start + i + $u * LANES] * next * next_weight[i + $u * LANES]; //each
        normed[start + i + $u * LANES] = value$; //each
    }
    for (; i < p.len; i += LANES) { normed[start + i] = out[start + i] * next * next_weight[i]; }
}

// How much longer rows of `like` are than those of `x`.
@compute @workgroup_size(128)
fn length_ratios(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(g, groups);
    let start = row * p.len;
    var square = 0.0;
    var wanted = 0.0;
    if row < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            square = fma(x[start + i], x[start + i], square);
            wanted = fma(like[start + i], like[start + i], wanted);
        }
    }
    let found = sqrt(total_square(lane, square));
    let length = sqrt(total_sum(lane, wanted));
    if row >= p.n_stretches || lane > 0u { return; }
    // A row of zeros stays one.
    out[row] = length / max(found, 1e-30);
}

// Leaves of each row what is above its mean by `scale` times its standard deviation (of a sample), less that.
@compute @workgroup_size(128)
fn peaks(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(g, groups);
    let start = row * p.len;
    var sum = 0.0;
    if row < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) { sum += out[start + i]; }
    }
    var total = total_sum(lane, sum);
    let mean = total / f32(p.len);
    var square = 0.0;
    if row < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            let off = out[start + i] - mean;
            square = fma(off, off, square);
        }
    }
    total = total_square(lane, square);
    if row >= p.n_stretches { return; }
    let least = mean + p.scale * sqrt(total / f32(max(p.len, 2u) - 1u));
    for (var i = lane; i < p.len; i += LANES) { out[start + i] = max(out[start + i] - least, 0.0); }
}

@compute @workgroup_size(128)
fn layer_norm(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let stretch = flat(g, groups);
    let start = stretch * p.len;
    var sum = 0.0;
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) { sum += x[start + i]; }
    }
    var total = total_sum(lane, sum);
    let mean = total / f32(p.len);
    var square = 0.0;
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            let off = x[start + i] - mean;
            square = fma(off, off, square);
        }
    }
    total = total_square(lane, square);
    let scale = 1.0 / sqrt(total / f32(p.len) + p.eps);
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            var value = (x[start + i] - mean) * scale * weight[i];
            if p.flags != 0u { value += bias[i]; }
            out[start + i] = value;
        }
    }
}
