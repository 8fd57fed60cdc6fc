// What all kernels of products share: out[row][n] = sum over i of matrix[n][i] * x[row][i], of up to four matrices of one
// type at once, each with its own rows of results. `matmul.wgsl` computes the sums in f32, `dots.wgsl` and `tiles.wgsl` in
// integers.
//
// Products of experts are the same ones: with EXPERTS a workgroup computes a tile of pairs (a row and an expert that it
// chose) that have one expert, whose matrix `table` names. `experts.wgsl` makes the tiles.

// Its outputs, where its rows begin in `weights` (in bytes) and its biases in `bias`, where the results of the first row
// begin in `out`, how far those of the next row are from them, and what multiplies the sums.
struct Matrix { n_out: u32, weights: u32, bias: u32, out: u32, stride: u32, factor: f32 }
// `extra` is where the codebook of the type begins in `weights`, in bytes, or where the sums of rounded inputs begin, in
// words; `kind` the function of a gate; `share` how many pairs have the same row of inputs; `word` where the first matrix is
// in the entry of an expert in `table`, with the next behind it: what is added to `weights` and to `bias`, and the factor.
struct Params { matrices: array<Matrix, 4>, n_in: u32, n_rows: u32, extra: u32, flags: u32, scale: f32, kind: u32, share: u32, word: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> vectors_of_weights: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
// Expert, first and end in `list`, which has the pairs sorted by expert.
@group(0) @binding(4) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> list: array<u32>;
@group(0) @binding(6) var<storage, read> table: array<u32>;

// The product is added to what is there, times `scale`.
const ADD = 1u;
// The first two matrices are a gate and what it multiplies: the results are those of both.
const GATED = 2u;
const EXPERTS = 4u;
// Words of `table` for each expert.
const ENTRY = 12u;
const NO_BIAS = 0xffffffffu;

// The matrix and its output that is number `y` of the OUTPUTS of a workgroup: of a gate and what it multiplies half each.
fn output_of(group: u32, y: u32) -> vec2<u32> {
    let half = OUTPUTS / 2u;
    if is_gated() { return vec2<u32>(y / half, group * half + y % half); }
    var matrix = 0u;
    var n = group * OUTPUTS + y;
    while matrix < 3u && n >= p.matrices[matrix].n_out {
        n -= p.matrices[matrix].n_out;
        matrix += 1u;
    }
    return vec2<u32>(matrix, n);
}

fn is_gated() -> bool { return (p.flags & GATED) != 0u; }
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

// What a sum becomes with the factor and the bias of its matrix.
fn ended(total: f32, matrix: u32, n: u32, expert: u32) -> f32 {
    var factor = p.matrices[matrix].factor;
    var at = p.matrices[matrix].bias;
    let is_biased = at != NO_BIAS;
    if has_experts() {
        at += table[entry_of(expert, matrix) + 1u];
        factor = bitcast<f32>(table[entry_of(expert, matrix) + 2u]);
    }
    var sum = total * factor;
    if is_biased { sum += bias[at + n]; }
    return sum;
}
// Where the result of a row is.
fn result_at(row: u32, matrix: u32, n: u32) -> u32 {
    return p.matrices[matrix].out + place_of(row) * p.matrices[matrix].stride + n;
}
fn put(at: u32, sum: f32) {
    if (p.flags & ADD) != 0u { out[at] = out[at] + p.scale * sum; } else { out[at] = sum; }
}
