// Products of rows with matrices: out[row][n] = sum over i of matrix[n][i] * x[row][i], of up to four matrices of one type
// at once, each with its own rows of results.
//
// 32 lanes share an output: each sums its weights in ascending order, then the 32 sums are added in ascending order.
// That order depends on the number of inputs alone, so a row's result does not depend on how many rows are computed
// together, nor on the matrices beside its own. tests/it/spirv.rs repeats lines that end in `//each` for every one of
// TOKENS rows, with its number for `$`.
//
// Products of experts are the same ones: with EXPERTS a workgroup computes a tile of pairs (a row and an expert that it
// chose) that have one expert, whose matrix `table` names. `experts.wgsl` makes the tiles.

// Its outputs, where its rows begin in `weights` (in bytes) and its biases in `bias`, where the results of the first row
// begin in `out`, how far those of the next row are from them, and what multiplies the sums.
struct Matrix { n_out: u32, weights: u32, bias: u32, out: u32, stride: u32, factor: f32 }
// `codebook` is where that of the type begins in `weights`, in bytes; `kind` the function of a gate; `share` how many pairs
// have the same row of inputs; `word` where the first matrix is in the entry of an expert in `table`, with the next behind
// it: what is added to `weights` and to `bias`, and the factor.
struct Params { matrices: array<Matrix, 4>, n_in: u32, n_rows: u32, codebook: u32, flags: u32, scale: f32, kind: u32, share: u32, word: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> vectors: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> scalars: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
// Expert, first and end in `list`, which has the pairs sorted by expert.
@group(0) @binding(4) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> list: array<u32>;
@group(0) @binding(6) var<storage, read> table: array<u32>;

const LANES = 32u;
const OUTPUTS = 4u;
// The product is added to what is there, times `scale`.
const ADD = 1u;
// The first two matrices are a gate and what it multiplies: the results are those of both.
const GATED = 2u;
const EXPERTS = 4u;
// Words of `table` for each expert.
const ENTRY = 12u;
const NO_BIAS = 0xffffffffu;
var<workgroup> sums: array<f32, TOKENS * 128>;

// The matrix and its output that four of the workgroups' lanes compute.
fn output_of(group: u32, y: u32) -> vec2<u32> {
    if (p.flags & GATED) != 0u { return vec2<u32>(y / 2u, group * 2u + y % 2u); }
    var matrix = 0u;
    var n = group * OUTPUTS + y;
    while matrix < 3u && n >= p.matrices[matrix].n_out {
        n -= p.matrices[matrix].n_out;
        matrix += 1u;
    }
    return vec2<u32>(matrix, n);
}

fn has_experts() -> bool { return (p.flags & EXPERTS) != 0u; }

// Expert, first row and end of the rows of a workgroup.
fn tile_of(z: u32) -> vec3<u32> {
    if has_experts() { return tiles[z].xyz; }
    return vec3<u32>(0u, z * TOKENS, p.n_rows);
}
// Where the results of a row are.
fn place_of(row: u32) -> u32 {
    if has_experts() { return list[row]; }
    return row;
}
// Where its inputs are.
fn input_of(row: u32) -> u32 {
    if has_experts() { return list[row] / p.share; }
    return row;
}
fn entry_of(expert: u32, matrix: u32) -> u32 { return expert * ENTRY + p.word + 3u * matrix; }
// Where the rows of a matrix begin.
fn weights_of(expert: u32, matrix: u32) -> u32 {
    if has_experts() { return p.matrices[matrix].weights + table[entry_of(expert, matrix)]; }
    return p.matrices[matrix].weights;
}

fn sum_of(lane: u32, y: u32, matrix: u32, n: u32, expert: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) { sum += sums[(lane * OUTPUTS + y) * LANES + i]; }
    var factor = p.matrices[matrix].factor;
    var at = p.matrices[matrix].bias;
    let is_biased = at != NO_BIAS;
    if has_experts() {
        at += table[entry_of(expert, matrix) + 1u];
        factor = bitcast<f32>(table[entry_of(expert, matrix) + 2u]);
    }
    sum = sum * factor;
    if is_biased { sum += bias[at + n]; }
    return sum;
}

fn finish(lane: u32, y: u32, matrix: u32, n: u32, tile: vec3<u32>) {
    let row = tile.y + lane;
    if lane >= TOKENS || row >= tile.z || n >= p.matrices[matrix].n_out { return; }
    let at = p.matrices[matrix].out + place_of(row) * p.matrices[matrix].stride + n;
    if (p.flags & GATED) != 0u {
        if matrix == 0u { out[at] = gated_by(p.kind, sum_of(lane, y, 0u, n, tile.x), sum_of(lane, y + 2u, 1u, n, tile.x)); }
        return;
    }
    var sum = sum_of(lane, y, matrix, n, tile.x);
    if (p.flags & ADD) != 0u { sum = out[at] + p.scale * sum; }
    out[at] = sum;
}

@compute @workgroup_size(32, 4)
fn blocks(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    let output = output_of(flat(g, groups), l.y);
    let tile = tile_of(g.z);
    // There are fewer tiles than the most that there may be.
    if tile.y >= tile.z { return; }
    var sum$ = vec4<f32>(); //each
    let x$ = input_of(min(tile.y + $u, tile.z - 1u)) * (p.n_in / 4u); //each
    if output.y < p.matrices[output.x].n_out {
        let row = weights_of(tile.x, output.x) + output.y * (p.n_in / BLOCK_LEN * BLOCK_BYTES);
        for (var u = l.x; u < p.n_in / 8u; u += LANES) {
            let eight = UNPACK(row, u);
            let at = INPUTS(u);
            sum$ = fma(eight.b, vectors[x$ + at.y], fma(eight.a, vectors[x$ + at.x], sum$)); //each
        }
    }
    sums[($u * OUTPUTS + l.y) * LANES + l.x] = (sum$.x + sum$.y) + (sum$.z + sum$.w); //each
    workgroupBarrier();
    finish(l.x, l.y, output.x, output.y, tile);
}

@compute @workgroup_size(32, 4)
fn values(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    let output = output_of(flat(g, groups), l.y);
    let tile = tile_of(g.z);
    // There are fewer tiles than the most that there may be.
    if tile.y >= tile.z { return; }
    var sum$ = 0.0; //each
    let x$ = input_of(min(tile.y + $u, tile.z - 1u)) * p.n_in; //each
    if output.y < p.matrices[output.x].n_out {
        let row = weights_of(tile.x, output.x) + output.y * (p.n_in * BLOCK_BYTES);
        for (var i = l.x; i < p.n_in; i += LANES) {
            let weight = UNPACK(row, i);
            sum$ = fma(weight, scalars[x$ + i], sum$); //each
        }
    }
    sums[($u * OUTPUTS + l.y) * LANES + l.x] = sum$; //each
    workgroupBarrier();
    finish(l.x, l.y, output.x, output.y, tile);
}
