// Products in f32: weights are unpacked.
//
// 32 lanes share an output: each sums its weights in ascending order, then the 32 sums are added in ascending order.
// That order depends on the number of inputs alone, so a row's result does not depend on how many rows are computed
// together, nor on the matrices beside its own. tests/it/spirv.rs repeats lines that end in `//each` for every one of
// TOKENS rows, with its number for `$`.

@group(0) @binding(2) var<storage, read> vectors: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> scalars: array<f32>;

const LANES = 32u;
const OUTPUTS = 4u;
var<workgroup> sums: array<f32, TOKENS * 128>;

fn sum_of(lane: u32, y: u32, matrix: u32, n: u32, expert: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < LANES; i++) { sum += sums[(lane * OUTPUTS + y) * LANES + i]; }
    return ended(sum, matrix, n, expert);
}

fn finish(lane: u32, y: u32, matrix: u32, n: u32, tile: vec3<u32>) {
    let row = tile.y + lane;
    if lane >= TOKENS || row >= tile.z || n >= p.matrices[matrix].n_out { return; }
    let at = result_at(row, matrix, n);
    if is_gated() {
        if matrix == 0u { out[at] = gated_by(p.kind, sum_of(lane, y, 0u, n, tile.x), sum_of(lane, y + 2u, 1u, n, tile.x)); }
        return;
    }
    put(at, sum_of(lane, y, matrix, n, tile.x));
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
