// Products in integers, of few rows: 32 lanes share an output, each takes 32 weights at a time. The products of a block
// are whole numbers, exact in any order. One lane for each row and output multiplies them with the scales and adds them
// up, block by block in ascending order: as on the CPU, and as in `tiles.wgsl`.
//
// tests/it/spirv.rs repeats lines that end in `//each` for every one of TOKENS rows, and keeps those that end in
// `//minimums` (integers that are taken away) or `//minimum` (a number that is added) for formats that have such.

const LANES = 32u;
const OUTPUTS = 4u;
// What lies between rows and outputs in memory: 32 and one more, so that lanes read different banks.
const ROOM = 33u;
var<workgroup> products: array<i32, TOKENS * 4 * 33>;
var<workgroup> excesses: array<i32, TOKENS * 4 * 33>; //minimums
var<workgroup> scales: array<vec2<f32>, 4 * 33>;
var<workgroup> scales_of_x: array<vec2<f32>, TOKENS * 33>;
var<workgroup> totals: array<f32, TOKENS * 4>;

@compute @workgroup_size(32, 4)
fn dots(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
    let group = flat(g, groups);
    let output = output_of(group, l.y);
    let tile = tile_of(g.z);
    // There are fewer tiles than the most that there may be.
    if tile.y >= tile.z { return; }
    let is_output = output.y < p.matrices[output.x].n_out;
    let row = weights_of(tile.x, output.x) + output.y * (p.n_in / BLOCK_LEN * BLOCK_BYTES);
    let n_units = p.n_in / 32u;
    let x$ = input_of(min(tile.y + $u, tile.z - 1u)) * n_units; //each
    // The row and the output whose sum this lane adds up.
    let lane = l.y * LANES + l.x;
    let own = vec2<u32>(lane / OUTPUTS, lane % OUTPUTS);
    var total = 0.0;
    for (var first = 0u; first < n_units; first += LANES) {
        let u = first + l.x;
        if is_output && u < n_units {
            let a = SIXTEEN(row, 2u * u);
            let b = SIXTEEN(row, 2u * u + 1u);
            let at = l.y * ROOM + l.x;
            products[$u * OUTPUTS * ROOM + at] = a.scale * dot_16(a.words, codes[2u * (x$ + u)]) + b.scale * dot_16(b.words, codes[2u * (x$ + u) + 1u]); //each
            let sums$ = x_sums(x$ + u); //minimums //each
            excesses[$u * OUTPUTS * ROOM + at] = a.min * sums$.x + b.min * sums$.y; //minimums //each
            if u % UNITS == 0u { scales[l.y * ROOM + l.x / UNITS] = SCALES(row, u / UNITS); }
        }
        if l.y == 0u && u < n_units && u % UNITS == 0u {
            scales_of_x[$u * ROOM + l.x / UNITS] = x_scales(x$ + u); //each
        }
        workgroupBarrier();
        if own.x < TOKENS {
            let at = lane * ROOM;
            let n_blocks = min(LANES, n_units - first) / UNITS;
            for (var b = 0u; b < n_blocks; b++) {
                var product = 0;
                for (var k = 0u; k < UNITS; k++) { product += products[at + b * UNITS + k]; }
                let scale = scales[own.y * ROOM + b];
                let of_x = scales_of_x[own.x * ROOM + b];
                total = fma(f32(product), scale.x * of_x.x, total);
                total = fma(scale.y, of_x.y, total); //minimum
                var excess = 0; //minimums
                for (var k = 0u; k < UNITS; k++) { excess += excesses[at + b * UNITS + k]; } //minimums
                total = fma(-f32(excess), scale.y * of_x.x, total); //minimums
            }
        }
        workgroupBarrier();
    }
    if own.x < TOKENS { totals[lane] = total; }
    workgroupBarrier();
    if own.x < TOKENS { finish(own.x, own.y, output_of(group, own.y), tile); }
}

fn finish(lane: u32, y: u32, output: vec2<u32>, tile: vec3<u32>) {
    let row = tile.y + lane;
    if row >= tile.z || output.y >= p.matrices[output.x].n_out { return; }
    let total = ended(totals[lane * OUTPUTS + y], output.x, output.y, tile.x);
    let at = result_at(row, output.x, output.y);
    if is_gated() {
        if output.x == 0u { out[at] = gated_by(p.kind, total, ended(totals[lane * OUTPUTS + y + 2u], 1u, output.y, tile.x)); }
        return;
    }
    put(at, total);
}
