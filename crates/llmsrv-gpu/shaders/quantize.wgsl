// Rounds rows to signed bytes for integer products, as the CPU does it: of each 32 or 256 elements the largest magnitude
// becomes 127. Four bytes are a word; behind the bytes of all rows is a word for each 32 elements, then the scales.
//
// Where blocks have 32 elements, that word is the scale times the sum of the bytes, an f32; where they have 256, the sums
// of the first 16 and of the last 16 bytes, 16 bits each. What is not finite gives a scale that is not a number.

// `n` elements of all rows; where rows are normed, those of one, and what is added to the mean of their squares.
struct Params { n: u32, len: u32, eps: f32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> plain: array<f32>;
@group(0) @binding(4) var<storage, read_write> normed: array<vec4<f32>>;

// Of each lane, which has four elements: first magnitudes, then sums.
var<workgroup> magnitudes: array<u32, 128>;
var<workgroup> largest: array<u32, 16>;
var<workgroup> sums: array<i32, 128>;
var<workgroup> squares: array<f32, 128>;

// 1e-30: below it the inverse of the scale would not be finite.
const SMALLEST = 0x0da24260u;
const INFINITE = 0x7f800000u;
const NO_NUMBER = 0x7fc00000u;

// As integers magnitudes are in the same order, and what is not a number is the largest.
fn magnitude_of(four: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}
// Of the eight lanes whose first one this is.
fn largest_of_eight(first: u32) -> u32 {
    var most = 0u;
    for (var i = 0u; i < 8u; i++) { most = max(most, magnitudes[first + i]); }
    return most;
}
// The bytes of four elements, the lowest of each integer.
fn rounded(four: vec4<f32>, most: u32) -> vec4<u32> {
    if most < SMALLEST { return vec4<u32>(); }
    let inverse = 127.0 / bitcast<f32>(most);
    // 1.5 * 2^23: neighbours of the sum's size are 1 apart, and its last bits are the nearest integer.
    return bitcast<vec4<u32>>(four * inverse + 12582912.0) & vec4<u32>(0xffu);
}
fn scale_bits(most: u32) -> u32 {
    if most < SMALLEST { return 0u; }
    if most >= INFINITE { return NO_NUMBER; }
    return bitcast<u32>(bitcast<f32>(most) / 127.0);
}
fn word_of(bytes: vec4<u32>) -> u32 {
    let placed = bytes << vec4<u32>(0u, 8u, 16u, 24u);
    return (placed.x | placed.y) | (placed.z | placed.w);
}
fn sum_of(bytes: vec4<u32>) -> i32 {
    let signed = bitcast<vec4<i32>>(bytes << vec4<u32>(24u)) >> vec4<u32>(24u);
    return (signed.x + signed.y) + (signed.z + signed.w);
}
fn sum_of_four(first: u32) -> i32 { return (sums[first] + sums[first + 1u]) + (sums[first + 2u] + sums[first + 3u]); }

@compute @workgroup_size(64)
fn quantize_32(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let n = p.n / 4u;
    let i = flat(g, groups) * 64u + l;
    let four = x[min(i, n - 1u)];
    magnitudes[l] = magnitude_of(four);
    workgroupBarrier();
    let first = l / 8u * 8u;
    let most = largest_of_eight(first);
    let bytes = rounded(four, most);
    sums[l] = sum_of(bytes);
    workgroupBarrier();
    if i >= n { return; }
    out[i] = word_of(bytes);
    if l == first {
        let scale = scale_bits(most);
        let sum = sum_of_four(first) + sum_of_four(first + 4u);
        out[n + i / 8u] = bitcast<u32>(bitcast<f32>(scale) * f32(sum));
        out[n + n / 8u + i / 8u] = scale;
    }
}

@compute @workgroup_size(64)
fn quantize_256(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let n = p.n / 4u;
    let i = flat(g, groups) * 64u + l;
    let four = x[min(i, n - 1u)];
    magnitudes[l] = magnitude_of(four);
    workgroupBarrier();
    let first = l / 8u * 8u;
    if l == first { largest[l / 8u] = largest_of_eight(first); }
    workgroupBarrier();
    var most = 0u;
    for (var k = 0u; k < 8u; k++) { most = max(most, largest[k]); }
    let bytes = rounded(four, most);
    sums[l] = sum_of(bytes);
    workgroupBarrier();
    if i >= n { return; }
    out[i] = word_of(bytes);
    if l == first {
        let sums_of_16 = vec2<u32>(bitcast<u32>(sum_of_four(first)), bitcast<u32>(sum_of_four(first + 4u)));
        out[n + i / 8u] = (sums_of_16.x & 0xffffu) | (sums_of_16.y << 16u);
    }
    if l == 0u { out[n + n / 8u + i / 64u] = scale_bits(most); }
}

// `rms_norm` of `norms.wgsl` to the last bit, of rows whose length is a multiple of 256, and `quantize_256` of what comes of
// it: lanes take two blocks at a time. Lines that end in `//each` are repeated as there, but four times.
@compute @workgroup_size(128)
fn rms_norm_256(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let row = flat(g, groups);
    let n = p.n / 4u;
    let is_row = row < p.n / p.len;
    let start = select(0u, row * p.len, is_row);
    let end = start + p.len;
    var square = 0.0;
    var i = start + l;
    for (; i + 384u < end; i += 512u) {
        let value$ = plain[i + $u * 128u]; //each
        square = fma(value$, value$, square); //each
    }
    for (; i < end; i += 128u) { square = fma(plain[i], plain[i], square); }
    squares[l] = square;
    workgroupBarrier();
    var total = 0.0;
    for (var k = 0u; k < 128u; k++) { total += squares[k]; }
    let scale = 1.0 / sqrt(total / f32(p.len) + p.eps);
    let n_blocks = p.len / 256u;
    let lane = l % 64u;
    let first = l / 8u * 8u;
    for (var two = 0u; two < n_blocks; two += 2u) {
        let block = two + l / 64u;
        let is_there = is_row && block < n_blocks;
        let at = min(block, n_blocks - 1u) * 64u + lane;
        let four = vec4<f32>(
            plain[start + 4u * at] * scale * weight[4u * at],
            plain[start + 4u * at + 1u] * scale * weight[4u * at + 1u],
            plain[start + 4u * at + 2u] * scale * weight[4u * at + 2u],
            plain[start + 4u * at + 3u] * scale * weight[4u * at + 3u],
        );
        let to = start / 4u + at;
        if is_there { normed[to] = four; }
        magnitudes[l] = magnitude_of(four);
        workgroupBarrier();
        if l == first { largest[l / 8u] = largest_of_eight(first); }
        workgroupBarrier();
        var most = 0u;
        for (var k = 0u; k < 8u; k++) { most = max(most, largest[l / 64u * 8u + k]); }
        let bytes = rounded(four, most);
        sums[l] = sum_of(bytes);
        workgroupBarrier();
        if is_there {
            out[to] = word_of(bytes);
            if l == first {
                let sums_of_16 = vec2<u32>(bitcast<u32>(sum_of_four(first)), bitcast<u32>(sum_of_four(first + 4u)));
                out[n + to / 8u] = (sums_of_16.x & 0xffffu) | (sums_of_16.y << 16u);
            }
            if lane == 0u { out[n + n / 8u + to / 64u] = scale_bits(most); }
        }
    }
}
