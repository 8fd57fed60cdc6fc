// Products of rows with a matrix: out[row][first + n] = sum over i of matrix[n][i] * x[row][i].
//
// 32 lanes share an output: each sums its weights in ascending order, then the 32 sums are added in ascending order.
// That order depends on the number of inputs alone, so a row's result does not depend on how many rows are computed
// together. tests/it/spirv.rs repeats lines that end in `//each` for every one of TOKENS rows, with its number for `$`.

struct Params { n_out: u32, n_in: u32, n_rows: u32, first: u32, stride: u32, flags: u32, scale: f32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> vectors: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> scalars: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

const LANES = 32u;
const OUTPUTS = 4u;
// The product is added to what is there, times `scale`.
const ADD = 1u;
const BIAS = 2u;
var<workgroup> sums: array<f32, TOKENS * 128>;

fn finish(lane: u32, output: u32, n: u32, first_row: u32) {
    let row = first_row + lane;
    if lane >= TOKENS || row >= p.n_rows || n >= p.n_out { return; }
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) { sum += sums[(lane * OUTPUTS + output) * LANES + i]; }
    if (p.flags & BIAS) != 0u { sum += bias[p.first + n]; }
    let at = row * p.stride + p.first + n;
    if (p.flags & ADD) != 0u { sum = out[at] + p.scale * sum; }
    out[at] = sum;
}

@compute @workgroup_size(32, 4)
fn blocks(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    let n = flat(g, groups) * OUTPUTS + l.y;
    let first_row = g.z * TOKENS;
    var sum$ = vec4<f32>(); //each
    let x$ = min(first_row + $u, p.n_rows - 1u) * (p.n_in / 4u); //each
    if n < p.n_out {
        let row = n * (p.n_in / BLOCK_LEN * BLOCK_BYTES);
        for (var u = l.x; u < p.n_in / 8u; u += LANES) {
            let eight = UNPACK(row, u);
            let at = INPUTS(u);
            sum$ = fma(eight.b, vectors[x$ + at.y], fma(eight.a, vectors[x$ + at.x], sum$)); //each
        }
    }
    sums[($u * OUTPUTS + l.y) * LANES + l.x] = (sum$.x + sum$.y) + (sum$.z + sum$.w); //each
    workgroupBarrier();
    finish(l.x, l.y, n, first_row);
}

@compute @workgroup_size(32, 4)
fn values(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    let n = flat(g, groups) * OUTPUTS + l.y;
    let first_row = g.z * TOKENS;
    var sum$ = 0.0; //each
    let x$ = min(first_row + $u, p.n_rows - 1u) * p.n_in; //each
    if n < p.n_out {
        let row = n * (p.n_in * BLOCK_BYTES);
        for (var i = l.x; i < p.n_in; i += LANES) {
            let weight = UNPACK(row, i);
            sum$ = fma(weight, scalars[x$ + i], sum$); //each
        }
    }
    sums[($u * OUTPUTS + l.y) * LANES + l.x] = sum$; //each
    workgroupBarrier();
    finish(l.x, l.y, n, first_row);
}
