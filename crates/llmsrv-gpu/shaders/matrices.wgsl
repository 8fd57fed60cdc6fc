// Products in integers, of many rows, on the matrix units of a device (cooperative matrices of 16 times 16 f16, with sums
// in f32): a workgroup of four subgroups computes 64 outputs of TOKENS rows, each subgroup ROW_TILES times COLUMN_TILES
// matrices. tests/it/spirv.rs repeats lines by the mark that they end in:
//
//   //rows      for each of these rows of matrices, with its number for `#`
//   //columns   for each of their columns, with its number for `$`
//   //tiles     for each of all
//   //inputs    for each row of which a lane brings inputs, with its number for `@`
//   //sums      for each row of which it brings a sum of inputs
//
// and, with `~` in it, for each of four stretches of 16 weights. Neighbouring lines with `//pair` are repeated as a whole,
// for two steps, with 0 and 1 for `%`. `//minimums`, `//offsets` and `//passes` stand where a format has such.
//
// The bits are those of `dots.wgsl` and `tiles.wgsl`, because no sum of whole numbers is rounded: what is multiplied are
// whole numbers that f16 holds (of at most 11 bits), and their sums over a block of 256 weights stay below 2^24:
//
//   Q4_K: a weight less 8, times its scale of 6 bits:                               256 * 8 * 63 * 127 < 2^24
//         and 8 times that scale, times the sums of stretches of 16 inputs:         16 * 8 * 63 * 16 * 127 < 2^24
//   Q6_K: a weight times the upper four bits of its scale, then times the lower four, which count a sixteenth:
//                                                                                   256 * 32 * 15 * 127 < 2^24
//
// The sum of the two is rounded once, as where a sum in integers becomes an f32. Minimums take one more product: those of
// all stretches with the sums of their inputs. Elements of matrices are multiplied where the text says `-`: WGSL has no
// such product of them, and tests/it/spirv.rs puts it there.
//
// Matrices that are multiplied are of f16, although the text says f32: such is the memory that they are read from, and what
// WGSL lets be read from it. tests/it/spirv.rs writes f16.
//
// In which order weights of a block are taken does not matter to whole numbers, as long as inputs are taken in the same.

const OUTPUTS = 64u;
// Weights of an output, and inputs of a row, that are multiplied between two waits, in vectors of eight f16 (WGSL has none:
// a vector of four f32 whose bits they are), and what lies between outputs and rows: more, so that they are in other banks.
const STRIDE = 9u;
// The same of sums of inputs, and of what is multiplied with them.
const SHORT = 2u;
var<workgroup> w_tile: array<vec4<f32>, OUTPUTS * STRIDE>;
var<workgroup> x_tile: array<vec4<f32>, TOKENS * STRIDE>;
var<workgroup> minimums: array<vec4<f32>, OUTPUTS * SHORT>; //minimums
var<workgroup> offsets: array<vec4<f32>, OUTPUTS * SHORT>; //offsets
var<workgroup> scales_of_stretches: array<vec4<u32>, OUTPUTS>; //passes
var<workgroup> sums_of_x: array<vec4<f32>, TOKENS * SHORT>; //minimums
var<workgroup> scales: array<f32, OUTPUTS>;
var<workgroup> scales_of_minimums: array<f32, OUTPUTS>; //minimums
var<workgroup> scales_of_x: array<f32, TOKENS>;
var<workgroup> ends: array<f32, 16 * OUTPUTS>;

// Two whole numbers of at most ten bits that lie in the lower halves of a word's halves, with a number taken away: the bits
// of 1024 + n are those of 1024 with n in its last bits.
fn two_of(halves: u32, less: f16) -> vec2<f16> {
    return vec2<f16>(unpack2x16float(halves | 0x64006400u)) - less;
}
// Two f16 as the f32 whose bits they are.
fn packed(two: vec2<f16>) -> f32 { return bitcast<f32>(pack2x16float(vec2<f32>(two))); }
// The bytes of two words, of each in the order 0 2 1 3, with a number taken away, times another one.
fn eight_of(word: u32, other: u32, less: f16, times: f16) -> vec4<f32> {
    return vec4<f32>(
        packed(two_of(word & 0x00ff00ffu, less) * times),
        packed(two_of((word >> 8u) & 0x00ff00ffu, less) * times),
        packed(two_of(other & 0x00ff00ffu, less) * times),
        packed(two_of((other >> 8u) & 0x00ff00ffu, less) * times),
    );
}

// Sixteen signed bytes of a row.
fn put_inputs(place: u32, words: vec4<u32>) {
    let biased = words ^ vec4<u32>(0x80808080u);
    x_tile[place] = eight_of(biased.x, biased.y, 1152.0h, 1.0h);
    x_tile[place + 1u] = eight_of(biased.z, biased.w, 1152.0h, 1.0h);
}

// What a lane has read of an output, a step before it unpacks it: half of 64 weights.
struct Read { a: vec4<u32>, b: vec4<u32> }

// What is read at the head of a block of an output.
struct Head { words: vec4<u32> }

// The inputs of row `row` of a workgroup: where they begin, in 32.
fn row_of(first_row: u32, row: u32) -> u32 { return min(first_row + row, p.n_rows - 1u) * (p.n_in / 32u); }

// Lanes next to each other read what lies next to each other.
@compute @workgroup_size(128)
fn matrices(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) l: u32, @builtin(subgroup_id) subgroup: u32) {
    let group = g.y;
    let first_row = g.x * TOKENS;
    let n_blocks = p.n_in / BLOCK_LEN;
    // Of each output two lanes bring half each, and one what is at the head of its blocks.
    let own = l / 2u;
    let half = l % 2u;
    let brought = output_of(group, own);
    let is_output = brought.y < p.matrices[brought.x].n_out;
    let weights_row = p.matrices[brought.x].weights + select(0u, brought.y, is_output) * (p.n_in / BLOCK_LEN * BLOCK_BYTES);
    // Of each row four lanes bring a quarter each.
    let quarter = l % 4u;
    let x_@ = row_of(first_row, l / 4u + 32u * @u); //inputs
    // What it multiplies.
    let rows = subgroup / (OUTPUTS / 16u / COLUMN_TILES) * (16u * ROW_TILES);
    let columns = subgroup % (OUTPUTS / 16u / COLUMN_TILES) * (16u * COLUMN_TILES);
    var total_#_$ = coop_mat16x16<f32, C>(); //tiles
    var first_#_$ = coop_mat16x16<f32, C>(); //passes //tiles
    var sum_#_$ = coop_mat16x16<f32, C>(); //tiles
    // What is read ahead: of a block, and of two steps in turns.
    var head = HEAD(weights_row, 0u);
    var of_x = x_scales(row_of(first_row, l)).x;
    var sums_@ = x_sums(row_of(first_row, l / 8u + 16u * @u) + l % 8u); //minimums //sums
    var read_% = READ(weights_row, 0u, %u, half); //pair
    var codes_@_% = codes[2u * x_@ + INPUTS(%u, quarter)]; //pair //inputs
    for (var block = 0u; block < n_blocks; block++) {
        let next_block = min(block + 1u, n_blocks - 1u);
        // What was brought before was read by all.
        workgroupBarrier();
        if half == 0u { BEGIN(head, own); }
        sums_of_x[(l / 8u + 16u * @u) * SHORT + l % 8u / 4u][l % 4u] = packed(vec2<f16>(sums_@)); //minimums //sums
        if l < TOKENS { scales_of_x[l] = of_x; }
        head = HEAD(weights_row, next_block);
        of_x = x_scales(row_of(first_row, l) + next_block * 8u).x;
        sums_@ = x_sums(row_of(first_row, l / 8u + 16u * @u) + next_block * 8u + l % 8u); //minimums //sums
        for (var two = 0u; two < 2u; two++) {
            // Two steps ahead.
            let ahead = select(block, next_block, two == 1u);
            workgroupBarrier(); //pair
            PUT(read_%, 2u * two + %u, own, half); //pair
            put_inputs((l / 4u + 32u * @u) * STRIDE + quarter * 2u, codes_@_%); //pair //inputs
            workgroupBarrier(); //pair
            codes_@_% = codes[2u * (x_@ + ahead * 8u) + INPUTS(2u - 2u * two + %u, quarter)]; //pair //inputs
            read_% = READ(weights_row, ahead, 2u - 2u * two + %u, half); //offsets //pair
            let a_#_~_% = coopLoadT<coop_mat16x16<f32, A>>(&x_tile[(rows + 16u * #u) * STRIDE + 2u * ~u], STRIDE); //pair //rows
            let b_$_~_% = coopLoad<coop_mat16x16<f32, B>>(&w_tile[(columns + 16u * $u) * STRIDE + 2u * ~u], STRIDE); //pair //columns
            sum_#_$ = coopMultiplyAdd(a_#_~_%, b_$_~_%, sum_#_$); //pair //tiles
            workgroupBarrier(); //passes //pair
            PUT_AGAIN(read_%, 2u * two + %u, own, half); //passes //pair
            workgroupBarrier(); //passes //pair
            read_% = READ(weights_row, ahead, 2u - 2u * two + %u, half); //passes //pair
            let c_$_~_% = coopLoad<coop_mat16x16<f32, B>>(&w_tile[(columns + 16u * $u) * STRIDE + 2u * ~u], STRIDE); //passes //pair //columns
            first_#_$ = coopMultiplyAdd(a_#_~_%, c_$_~_%, first_#_$); //passes //pair //tiles
        }
        let of_x_# = coopLoad<coop_mat16x16<f32, C>>(&scales_of_x[rows + 16u * #u], 0u); //rows
        let scale_$ = coopLoadT<coop_mat16x16<f32, C>>(&scales[columns + 16u * $u], 0u); //columns
        total_#_$ = total_#_$ + ((first_#_$ * 16.0 + sum_#_$) - (scale_$ - of_x_#)); //passes //tiles
        first_#_$ = coop_mat16x16<f32, C>(); //passes //tiles
        let s_# = coopLoadT<coop_mat16x16<f32, A>>(&sums_of_x[(rows + 16u * #u) * SHORT], SHORT); //minimums //rows
        let o_$ = coopLoad<coop_mat16x16<f32, B>>(&offsets[(columns + 16u * $u) * SHORT], SHORT); //offsets //columns
        total_#_$ = total_#_$ + (coopMultiplyAdd(s_#, o_$, sum_#_$) - (scale_$ - of_x_#)); //offsets //tiles
        sum_#_$ = coop_mat16x16<f32, C>(); //tiles
        let m_$ = coopLoad<coop_mat16x16<f32, B>>(&minimums[(columns + 16u * $u) * SHORT], SHORT); //minimums //columns
        let minimum_$ = coopLoadT<coop_mat16x16<f32, C>>(&scales_of_minimums[columns + 16u * $u], 0u); //minimums //columns
        total_#_$ = total_#_$ + (coopMultiplyAdd(s_#, m_$, sum_#_$) - (minimum_$ - of_x_#)); //minimums //tiles
    }
    // Sixteen rows at a time.
    for (var turn = 0u; turn < TOKENS / 16u; turn++) {
        workgroupBarrier();
        if turn * 16u == rows + 16u * #u { coopStoreT(total_#_$, &ends[columns + 16u * $u], OUTPUTS); } //tiles
        workgroupBarrier();
        for (var i = l; i < 16u * OUTPUTS; i += 128u) { finish(i, first_row + turn * 16u + i / OUTPUTS, group); }
    }
}

fn finish(i: u32, row: u32, group: u32) {
    let column = i % OUTPUTS;
    let output = output_of(group, column);
    if row >= p.n_rows || output.y >= p.matrices[output.x].n_out { return; }
    let total = ended(ends[i], output.x, output.y, 0u);
    let at = result_at(row, output.x, output.y);
    if is_gated() {
        if output.x == 0u { out[at] = gated_by(p.kind, total, ended(ends[i + OUTPUTS / 2u], 1u, output.y, 0u)); }
        return;
    }
    put(at, total);
}
