// Norms: 64 lanes share a stretch. Each sums its elements in ascending order, then the sums are added in ascending
// order, by every lane for itself.

// Stretches take turns with the `n_groups` parts of `weight`.
struct Params { len: u32, n_stretches: u32, flags: u32, eps: f32, n_groups: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

const LANES = 64u;
var<workgroup> sums: array<f32, LANES>;
var<workgroup> squares: array<f32, LANES>;

@compute @workgroup_size(64)
fn rms_norm(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let stretch = flat(g, groups);
    let start = stretch * p.len;
    var square = 0.0;
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) { square = fma(x[start + i], x[start + i], square); }
    }
    squares[lane] = square;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += squares[i]; }
    let scale = 1.0 / sqrt(total / f32(p.len) + p.eps);
    if stretch < p.n_stretches {
        let first = stretch % p.n_groups * p.len;
        for (var i = lane; i < p.len; i += LANES) { out[start + i] = x[start + i] * scale * weight[first + i]; }
    }
}

@compute @workgroup_size(64)
fn layer_norm(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let stretch = flat(g, groups);
    let start = stretch * p.len;
    var sum = 0.0;
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) { sum += x[start + i]; }
    }
    sums[lane] = sum;
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += sums[i]; }
    let mean = total / f32(p.len);
    var square = 0.0;
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            let off = x[start + i] - mean;
            square = fma(off, off, square);
        }
    }
    squares[lane] = square;
    workgroupBarrier();
    total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += squares[i]; }
    let scale = 1.0 / sqrt(total / f32(p.len) + p.eps);
    if stretch < p.n_stretches {
        for (var i = lane; i < p.len; i += LANES) {
            var value = (x[start + i] - mean) * scale * weight[i];
            if p.flags != 0u { value += bias[i]; }
            out[start + i] = value;
        }
    }
}
