// Products in integers, of many rows: a workgroup computes 64 outputs of TOKENS rows. In turns it unpacks 32 weights of
// each output to signed bytes that all lanes share, and each lane multiplies those of four outputs with four rows. So a
// weight is read and unpacked once for all rows. The bits are those of `dots.wgsl`: products of a block are exact, and
// blocks are added in ascending order.
//
// Lines that end in `//each` stand for each of a lane's four rows; those that end in `//scaled` or `//plain` are for formats
// whose stretches of 16 weights have integer scales, or have none.

const OUTPUTS = 64u;
// Outputs of a lane are so far apart.
const COLUMNS = 16u;
// First the lower 16 weights of all outputs, then the upper ones; so for the rows.
var<workgroup> w_words: array<vec4<u32>, 128>;
var<workgroup> w_scales: array<i32, 128>; //scaled
var<workgroup> w_minimums: array<i32, 128>; //minimums
var<workgroup> scales: array<vec2<f32>, 64>;
var<workgroup> x_words: array<vec4<u32>, TOKENS * 2>;
var<workgroup> sums_of_x: array<vec2<i32>, TOKENS>; //minimums
var<workgroup> scales_of_x: array<vec2<f32>, TOKENS>;

@compute @workgroup_size(128)
fn tiles_of_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let group = g.y;
    let tile = tile_of(g.x);
    if tile.y >= tile.z { return; }
    // What this lane brings: 16 weights of an output, and of a row 16 elements or the scale.
    let half = l / OUTPUTS;
    let brought = output_of(group, l % OUTPUTS);
    let is_output = brought.y < p.matrices[brought.x].n_out;
    let weights_row = weights_of(tile.x, brought.x) + brought.y * (p.n_in / BLOCK_LEN * BLOCK_BYTES);
    let n_units = p.n_in / 32u;
    let x = input_of(min(tile.y + l % TOKENS, tile.z - 1u)) * n_units;
    // What it multiplies.
    let column = l % COLUMNS;
    let line = l / COLUMNS * 4u;
    var total$ = vec4<f32>(); //each
    var product$ = vec4<i32>(); //each
    var excess$ = vec4<i32>(); //minimums //each
    for (var u = 0u; u < n_units; u++) {
        if is_output {
            let sixteen = SIXTEEN(weights_row, 2u * u + half);
            w_words[l] = sixteen.words;
            w_scales[l] = sixteen.scale; //scaled
            w_minimums[l] = sixteen.min; //minimums
            if half == 0u && u % UNITS == 0u { scales[l] = SCALES(weights_row, u / UNITS); }
        }
        if l < 2u * TOKENS {
            x_words[l] = codes[2u * (x + u) + l / TOKENS];
        } else if l < 3u * TOKENS {
            sums_of_x[l % TOKENS] = x_sums(x + u); //minimums
            if u % UNITS == 0u { scales_of_x[l % TOKENS] = x_scales(x + u); }
        }
        workgroupBarrier();
        let w0 = w_words[column];
        let w1 = w_words[column + COLUMNS];
        let w2 = w_words[column + 2u * COLUMNS];
        let w3 = w_words[column + 3u * COLUMNS];
        let a$ = x_words[line + $u]; //each
        let low$ = vec4<i32>(dot_16(w0, a$), dot_16(w1, a$), dot_16(w2, a$), dot_16(w3, a$)); //each
        let v0 = w_words[OUTPUTS + column];
        let v1 = w_words[OUTPUTS + column + COLUMNS];
        let v2 = w_words[OUTPUTS + column + 2u * COLUMNS];
        let v3 = w_words[OUTPUTS + column + 3u * COLUMNS];
        let b$ = x_words[TOKENS + line + $u]; //each
        let high$ = vec4<i32>(dot_16(v0, b$), dot_16(v1, b$), dot_16(v2, b$), dot_16(v3, b$)); //each
        product$ += low$ + high$; //plain //each
        let low_scales = of_outputs(column); //scaled
        let high_scales = of_outputs(OUTPUTS + column); //scaled
        product$ += low_scales * low$ + high_scales * high$; //scaled //each
        let low_minimums = minimums_of_outputs(column); //minimums
        let high_minimums = minimums_of_outputs(OUTPUTS + column); //minimums
        let sums$ = sums_of_x[line + $u]; //minimums //each
        excess$ += low_minimums * sums$.x + high_minimums * sums$.y; //minimums //each
        if u % UNITS == UNITS - 1u {
            let s0 = scales[column];
            let s1 = scales[column + COLUMNS];
            let s2 = scales[column + 2u * COLUMNS];
            let s3 = scales[column + 3u * COLUMNS];
            let scale = vec4<f32>(s0.x, s1.x, s2.x, s3.x);
            let minimum = vec4<f32>(s0.y, s1.y, s2.y, s3.y); //minimum
            let minimum = vec4<f32>(s0.y, s1.y, s2.y, s3.y); //minimums
            let of_x$ = scales_of_x[line + $u]; //each
            total$ += vec4<f32>(product$) * (scale * of_x$.x); //each
            total$ += minimum * of_x$.y; //minimum //each
            total$ += -(vec4<f32>(excess$) * (minimum * of_x$.x)); //minimums //each
            product$ = vec4<i32>(); //each
            excess$ = vec4<i32>(); //minimums //each
        }
        workgroupBarrier();
    }
    finish(total$, tile.y + line + $u, group, column, tile); //each
}

fn of_outputs(at: u32) -> vec4<i32> { //scaled
    return vec4<i32>(w_scales[at], w_scales[at + COLUMNS], w_scales[at + 2u * COLUMNS], w_scales[at + 3u * COLUMNS]); //scaled
} //scaled
fn minimums_of_outputs(at: u32) -> vec4<i32> { //minimums
    return vec4<i32>(w_minimums[at], w_minimums[at + COLUMNS], w_minimums[at + 2u * COLUMNS], w_minimums[at + 3u * COLUMNS]); //minimums
} //minimums

fn finish(totals: vec4<f32>, row: u32, group: u32, column: u32, tile: vec3<u32>) {
    if row >= tile.z { return; }
    for (var i = 0u; i < 4u; i++) {
        let output = output_of(group, column + i * COLUMNS);
        if output.y >= p.matrices[output.x].n_out { continue; }
        let total = ended(totals[i], output.x, output.y, tile.x);
        let at = result_at(row, output.x, output.y);
        if is_gated() {
            // The second half of the outputs is what the first one multiplies.
            if i < 2u { out[at] = gated_by(p.kind, total, ended(totals[i + 2u], 1u, output.y, tile.x)); }
        } else {
            put(at, total);
        }
    }
}
