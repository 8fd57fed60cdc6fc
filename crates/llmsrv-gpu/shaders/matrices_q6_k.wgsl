// How `matrices.wgsl` takes weights of the type Q6_K.

// The scales of all stretches, and of the block.
fn q6_k_head(row: u32, block: u32) -> Head {
    let start = row + block * 210u;
    return Head(vec4<u32>(word_at(start + 192u), word_at(start + 196u), word_at(start + 200u), word_at(start + 204u)));
}
fn q6_k_begin(head: Head, output: u32) { scales_of_stretches[output] = head.words; }
// A step has 16 neighbouring weights of each quarter of half of a block.
fn q6_k_inputs(step: u32, part: u32) -> u32 { return step / 2u * 8u + part * 2u + step % 2u; }
// Eight weights of each quarter.
fn q6_k_read(row: u32, block: u32, step: u32, half: u32) -> Read {
    let start = row + block * 210u;
    let from_byte = (step % 2u) * 16u + half * 8u;
    let low = start + step / 2u * 64u + from_byte;
    let high = start + 128u + step / 2u * 32u + from_byte;
    return Read(
        vec4<u32>(word_at(low), word_at(low + 4u), word_at(low + 32u), word_at(low + 36u)),
        vec4<u32>(word_at(high), word_at(high + 4u), half_at(start + 208u), 0u),
    );
}
// Times the lower bits of the scales, or the upper ones.
fn q6_k_put(read: Read, step: u32, output: u32, half: u32) { q6_k_put_times(read, step, output, half, false); }
fn q6_k_put_again(read: Read, step: u32, output: u32, half: u32) { q6_k_put_times(read, step, output, half, true); }
fn q6_k_put_times(read: Read, step: u32, output: u32, half: u32, is_upper: bool) {
    let place = output * STRIDE + half;
    // Of each quarter that of 16 weights.
    let all = scales_of_stretches[output];
    let two = select(all.xy, all.zw, step >= 2u) >> vec2<u32>(8u * (step % 2u));
    let bytes = vec4<u32>(two.x, two.x >> 16u, two.y, two.y >> 16u);
    let both = bitcast<vec4<i32>>(bytes << vec4<u32>(24u)) >> vec4<u32>(24u);
    let counts = vec4<f16>(select(both & vec4<i32>(15), both >> vec4<u32>(4u), is_upper));
    w_tile[place] = eight_of(six_bits_of(read.a.x, read.b.x << 4u), six_bits_of(read.a.y, read.b.y << 4u), 1056.0h, counts.x);
    w_tile[place + 2u] = eight_of(six_bits_of(read.a.z, read.b.x << 2u), six_bits_of(read.a.w, read.b.y << 2u), 1056.0h, counts.y);
    w_tile[place + 4u] = eight_of(six_bits_of(read.a.x >> 4u, read.b.x), six_bits_of(read.a.y >> 4u, read.b.y), 1056.0h, counts.z);
    w_tile[place + 6u] = eight_of(six_bits_of(read.a.z >> 4u, read.b.x >> 2u), six_bits_of(read.a.w >> 4u, read.b.y >> 2u), 1056.0h, counts.w);
    if half == 0u && step == 0u { scales[output] = unpack2x16float(read.b.z).x; }
}
fn six_bits_of(low: u32, high: u32) -> u32 { return (low & 0x0f0f0f0fu) | (high & 0x30303030u); }
