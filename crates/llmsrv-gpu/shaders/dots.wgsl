// Products in integers, of few rows: 32 lanes share an output, each takes 32 weights at a time, ROUNDS times. The products
// of a block are whole numbers, exact in any order. Then lanes take blocks: each multiplies what a block gives with its
// scales, and one lane for each row and output adds that up, block by block in ascending order, as in `tiles.wgsl`.
//
// tests/it/spirv.rs repeats lines that end in `//each` for every one of TOKENS rows, and keeps those that end in
// `//minimums` (integers that are taken away) or `//minimum` (a number that is added) for formats that have such.

const LANES = 32u;
const OUTPUTS = 4u;
// Units between two waits, and what lies between rows and outputs in memory: one more, so that lanes read different banks.
const SPAN = LANES * ROUNDS;
const ROOM = SPAN + 1u;
// The same of blocks.
const BLOCKS = SPAN / UNITS;
const BLOCK_ROOM = BLOCKS + 1u;
var<workgroup> products: array<i32, TOKENS * OUTPUTS * ROOM>;
var<workgroup> excesses: array<i32, TOKENS * OUTPUTS * ROOM>; //minimums
var<workgroup> scaled: array<vec2<f32>, TOKENS * OUTPUTS * BLOCK_ROOM>;
var<workgroup> totals: array<f32, TOKENS * OUTPUTS>;

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
    for (var first = 0u; first < n_units; first += SPAN) {
        for (var round = 0u; round < ROUNDS; round++) {
            let u = first + round * LANES + l.x;
            if is_output && u < n_units {
                let both = THIRTY_TWO(row, u);
                let at = l.y * ROOM + round * LANES + l.x;
                products[$u * OUTPUTS * ROOM + at] = both.low.scale * dot_16(both.low.words, codes[2u * (x$ + u)]) + both.high.scale * dot_16(both.high.words, codes[2u * (x$ + u) + 1u]); //each
                let sums$ = x_sums(x$ + u); //minimums //each
                excesses[$u * OUTPUTS * ROOM + at] = both.low.min * sums$.x + both.high.min * sums$.y; //minimums //each
            }
        }
        workgroupBarrier();
        let n_blocks = min(SPAN, n_units - first) / UNITS;
        for (var i = lane; i < TOKENS * OUTPUTS * BLOCKS; i += LANES * OUTPUTS) {
            let b = i % BLOCKS;
            let place = i / BLOCKS;
            let of_place = output_of(group, place % OUTPUTS);
            if b < n_blocks && of_place.y < p.matrices[of_place.x].n_out {
                let at = place * ROOM + b * UNITS;
                var product = products[at];
                for (var k = 1u; k < UNITS; k++) { product += products[at + k]; }
                let block = first / UNITS + b;
                let scale = SCALES(weights_of(tile.x, of_place.x) + of_place.y * (p.n_in / BLOCK_LEN * BLOCK_BYTES), block);
                let of_x = x_scales(input_of(min(tile.y + place / OUTPUTS, tile.z - 1u)) * n_units + block * UNITS);
                var pair = vec2<f32>(f32(product) * (scale.x * of_x.x), 0.0);
                pair.y = scale.y * of_x.y; //minimum
                var excess = excesses[at]; //minimums
                for (var k = 1u; k < UNITS; k++) { excess += excesses[at + k]; } //minimums
                pair.y = -(f32(excess) * (scale.y * of_x.x)); //minimums
                scaled[place * BLOCK_ROOM + b] = pair;
            }
        }
        workgroupBarrier();
        if own.x < TOKENS {
            let at = lane * BLOCK_ROOM;
            for (var b = 0u; b < n_blocks; b++) {
                total += scaled[at + b].x;
                total += scaled[at + b].y; //minimum
                total += scaled[at + b].y; //minimums
            }
        }
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
