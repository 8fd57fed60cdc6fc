// Weights as signed bytes for integer products. Each format has a function that returns 16 of them, of stretch `s` of the
// row that begins at byte `row`, with the integers that they are scaled by, and one that returns the scales of block `b`:
// of the products and of the minimums. Where there are no minimums, nobody reads those.

struct Sixteen { words: vec4<u32>, scale: i32, min: i32 }
// Two neighbours of these.
struct ThirtyTwo { low: Sixteen, high: Sixteen }

// Sixteen bytes from any address on.
fn four_at(byte: u32) -> vec4<u32> {
    let at = byte >> 2u;
    let words = vec4<u32>(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
    let by = (byte & 3u) * 8u;
    if by == 0u { return words; }
    let next = vec4<u32>(words.yzw, weights[at + 4u]);
    return (words >> vec4<u32>(by)) | (next << vec4<u32>(32u - by));
}
// The bits of `mask` of four words, shifted right.
fn bits_of(words: vec4<u32>, by: u32, mask: u32) -> vec4<u32> { return (words >> vec4<u32>(by)) & vec4<u32>(mask); }
// Takes the bytes of `offset` away from bytes below 128; neither borrows from its neighbour.
fn less(words: vec4<u32>, offset: u32) -> vec4<u32> {
    return ((words | vec4<u32>(0x80808080u)) - vec4<u32>(offset)) ^ vec4<u32>(0x80808080u);
}
fn unscaled(words: vec4<u32>) -> Sixteen { return Sixteen(words, 1, 0); }
fn nibbles_at(byte: u32, s: u32) -> vec4<u32> { return bits_of(four_at(byte), 4u * (s % 2u), 0x0f0f0f0fu); }
fn fifths_of(bits: u32) -> vec4<u32> {
    return vec4<u32>(fifth_bits(bits), fifth_bits(bits >> 4u), fifth_bits(bits >> 8u), fifth_bits(bits >> 12u));
}
// The steps that the bytes of a word, all below 16, stand for.
fn step_bytes(steps: vec4<u32>, indices: u32) -> u32 {
    let i = unpack_bytes(indices);
    let words = vec4<u32>(steps[i.x >> 2u], steps[i.y >> 2u], steps[i.z >> 2u], steps[i.w >> 2u]);
    let bytes = ((words >> ((i & vec4<u32>(3u)) * 8u)) & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);
    return (bytes.x | bytes.y) | (bytes.z | bytes.w);
}
fn stepped(steps: vec4<u32>, indices: vec4<u32>) -> vec4<u32> {
    return vec4<u32>(
        step_bytes(steps, indices.x), step_bytes(steps, indices.y), step_bytes(steps, indices.z), step_bytes(steps, indices.w),
    );
}
fn scale_at(byte: u32) -> vec2<f32> { return vec2<f32>(f16_at(byte), 0.0); }
fn scales_at(byte: u32) -> vec2<f32> { return vec2<f32>(f16_at(byte), f16_at(byte + 2u)); }

// Blocks of 32 weights: two stretches, for most formats the low and the high halves of the same bytes.
fn q8_0_sixteen(row: u32, s: u32) -> Sixteen {
    return unscaled(four_at(row + (s / 2u) * 34u + 2u + 16u * (s % 2u)));
}
fn q8_0_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 34u); }
fn q4_0_sixteen(row: u32, s: u32) -> Sixteen {
    return unscaled(less(nibbles_at(row + (s / 2u) * 18u + 2u, s), 0x08080808u));
}
fn q4_0_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 18u); }
fn q4_1_sixteen(row: u32, s: u32) -> Sixteen { return unscaled(nibbles_at(row + (s / 2u) * 20u + 4u, s)); }
fn q4_1_scales(row: u32, b: u32) -> vec2<f32> { return scales_at(row + b * 20u); }
fn q5_0_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 2u) * 22u;
    let fifths = fifths_of(word_at(block + 2u) >> (16u * (s % 2u)));
    return unscaled(less(nibbles_at(block + 6u, s) | fifths, 0x10101010u));
}
fn q5_0_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 22u); }
fn q5_1_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 2u) * 24u;
    return unscaled(nibbles_at(block + 8u, s) | fifths_of(word_at(block + 4u) >> (16u * (s % 2u))));
}
fn q5_1_scales(row: u32, b: u32) -> vec2<f32> { return scales_at(row + b * 24u); }
fn iq4_nl_sixteen(row: u32, s: u32) -> Sixteen {
    return unscaled(stepped(IQ4_STEPS, nibbles_at(row + (s / 2u) * 18u + 2u, s)));
}
fn iq4_nl_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 18u); }
fn mxfp4_sixteen(row: u32, s: u32) -> Sixteen {
    return unscaled(stepped(E2M1_DOUBLED, nibbles_at(row + (s / 2u) * 17u + 1u, s)));
}
fn mxfp4_scales(row: u32, b: u32) -> vec2<f32> { return vec2<f32>(half_power(byte_at(row + b * 17u)), 0.0); }

// Blocks of 256 weights: stretch `e` of 16.
fn q4_k_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 144u;
    let e = s % 16u;
    let scale = vec2<i32>(six_bits(block + 4u, e / 2u));
    let words = bits_of(four_at(block + 16u + 32u * (e / 4u) + 16u * (e % 2u)), 4u * ((e / 2u) % 2u), 0x0f0f0f0fu);
    return Sixteen(words, scale.x, scale.y);
}
// Blocks begin at multiples of 16 bytes, with what 16 bytes say of all its scales.
fn q4_k_thirty_two(row: u32, u: u32) -> ThirtyTwo {
    let block = (row + (u / 8u) * 144u) >> 4u;
    let j = u % 8u;
    let scale = scale_and_min_of(vectors_of_weights[block], j);
    let at = block + 1u + 2u * (j / 2u);
    let by = 4u * (j % 2u);
    return ThirtyTwo(
        Sixteen(bits_of(vectors_of_weights[at], by, 0x0f0f0f0fu), scale.x, scale.y),
        Sixteen(bits_of(vectors_of_weights[at + 1u], by, 0x0f0f0f0fu), scale.x, scale.y),
    );
}
fn q4_k_aligned_scales(row: u32, b: u32) -> vec2<f32> {
    return unpack2x16float(vectors_of_weights[(row + b * 144u) >> 4u].x);
}
fn q4_k_scales(row: u32, b: u32) -> vec2<f32> { return scales_at(row + b * 144u); }
fn q5_k_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 176u;
    let e = s % 16u;
    let scale = vec2<i32>(six_bits(block + 4u, e / 2u));
    let words = bits_of(four_at(block + 48u + 32u * (e / 4u) + 16u * (e % 2u)), 4u * ((e / 2u) % 2u), 0x0f0f0f0fu);
    let fifths = bits_of(four_at(block + 16u + 16u * (e % 2u)), e / 2u, 0x01010101u) << vec4<u32>(4u);
    return Sixteen(words | fifths, scale.x, scale.y);
}
fn q5_k_scales(row: u32, b: u32) -> vec2<f32> { return scales_at(row + b * 176u); }
fn q6_k_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 210u;
    let e = s % 16u;
    let part = e / 8u;
    let quarter = (e % 8u) / 2u;
    let low = bits_of(four_at(block + part * 64u + (e % 4u) * 16u), 4u * (quarter / 2u), 0x0f0f0f0fu);
    let high = bits_of(four_at(block + 128u + part * 32u + (e % 2u) * 16u), 2u * quarter, 0x03030303u) << vec4<u32>(4u);
    return Sixteen(less(low | high, 0x20202020u), signed_at(block + 192u + e), 0);
}
fn q6_k_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 210u + 208u); }
// Two bits of a byte, of which four stretches share sixteen.
fn twos_at(packed: u32, e: u32) -> vec4<u32> {
    return bits_of(four_at(packed + (e / 8u) * 32u + (e % 2u) * 16u), (e % 8u) / 2u * 2u, 0x03030303u);
}
fn q2_k_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 84u;
    let e = s % 16u;
    let both = byte_at(block + e);
    return Sixteen(twos_at(block + 16u, e), i32(both & 15u), i32(both >> 4u));
}
fn q2_k_scales(row: u32, b: u32) -> vec2<f32> { return scales_at(row + b * 84u + 80u); }
fn q3_k_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 110u;
    let e = s % 16u;
    let thirds = bits_of(four_at(block + 16u * (e % 2u)), e / 2u, 0x01010101u) << vec4<u32>(2u);
    return Sixteen(less(twos_at(block + 32u, e) | thirds, 0x04040404u), i32(q3_bits(block + 96u, e)) - 32, 0);
}
fn q3_k_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 110u + 108u); }
fn iq4_xs_sixteen(row: u32, s: u32) -> Sixteen {
    let block = row + (s / 16u) * 136u;
    let n = (s % 16u) / 2u;
    return Sixteen(stepped(IQ4_STEPS, nibbles_at(block + 8u + 16u * n, s)), i32(iq4_bits(block, n)) - 32, 0);
}
fn iq4_xs_scales(row: u32, b: u32) -> vec2<f32> { return scale_at(row + b * 136u); }

// The same for the formats that have no faster way to two stretches.
fn thirty_two(row: u32, u: u32) -> ThirtyTwo { return ThirtyTwo(SIXTEEN(row, 2u * u), SIXTEEN(row, 2u * u + 1u)); }

// Rows in signed bytes, as `quantize.wgsl` makes them, twice: a unit is 32 elements.
@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read> words: array<u32>;

fn dot_16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return (dot4I8Packed(a.x, b.x) + dot4I8Packed(a.y, b.y)) + (dot4I8Packed(a.z, b.z) + dot4I8Packed(a.w, b.w));
}
// Units of a block, which has one scale.
const UNITS = BLOCK_LEN / 32u;
// Of a unit that is the first one of its block: the scale, and of blocks of 32 its product with the sum.
fn x_scales(unit: u32) -> vec2<f32> {
    let scale = bitcast<f32>(words[p.extra + p.extra / 8u + unit / UNITS]);
    return vec2<f32>(scale, bitcast<f32>(words[p.extra + unit]));
}
// Of blocks of 256: the sums of both halves of a unit.
fn x_sums(unit: u32) -> vec2<i32> {
    let both = bitcast<i32>(words[p.extra + unit]);
    return vec2<i32>((both << 16u) >> 16u, both >> 16u);
}
