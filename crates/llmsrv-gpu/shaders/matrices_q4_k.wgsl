// How `matrices.wgsl` takes weights of the type Q4_K.

// The first 16 bytes of a block: what all scales are.
fn q4_k_head(row: u32, block: u32) -> Head { return Head(vectors_of_weights[(row + block * 144u) >> 4u]); }
fn q4_k_begin(head: Head, output: u32) {
    let both = unpack2x16float(head.words.x);
    scales[output] = both.x;
    scales_of_minimums[output] = -both.y;
    let at = output * SHORT;
    for (var i = 0u; i < 2u; i++) {
        let a = vec2<f16>(scale_and_min_of(head.words, 4u * i));
        let b = vec2<f16>(scale_and_min_of(head.words, 4u * i + 1u));
        let c = vec2<f16>(scale_and_min_of(head.words, 4u * i + 2u));
        let d = vec2<f16>(scale_and_min_of(head.words, 4u * i + 3u));
        minimums[at + i] = vec4<f32>(packed(a.yy), packed(b.yy), packed(c.yy), packed(d.yy));
        let e = vec4<f16>(a.x, b.x, c.x, d.x) * 8.0h;
        offsets[at + i] = vec4<f32>(packed(e.xx), packed(e.yy), packed(e.zz), packed(e.ww));
    }
}
// Where a step finds its inputs in a block, in 16 bytes: `part` is 0 to 3.
fn q4_k_inputs(step: u32, part: u32) -> u32 { return step * 4u + part; }
// The nibbles of 16 bytes.
fn q4_k_read(row: u32, block: u32, step: u32, half: u32) -> Read {
    return Read(vectors_of_weights[((row + block * 144u) >> 4u) + 1u + 2u * step + half], vec4<u32>());
}
fn q4_k_put(read: Read, step: u32, output: u32, half: u32) {
    let at = output * SHORT + step / 2u;
    let first = f16(unpack2x16float(bitcast<u32>(offsets[at][step % 2u * 2u])).x) * 0.125h;
    let second = f16(unpack2x16float(bitcast<u32>(offsets[at][step % 2u * 2u + 1u])).x) * 0.125h;
    let place = output * STRIDE + half * 2u;
    let low = read.a & vec4<u32>(0x0f0f0f0fu);
    let high = (read.a >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
    w_tile[place] = eight_of(low.x, low.y, 1032.0h, first);
    w_tile[place + 1u] = eight_of(low.z, low.w, 1032.0h, first);
    w_tile[place + 4u] = eight_of(high.x, high.y, 1032.0h, second);
    w_tile[place + 5u] = eight_of(high.z, high.w, 1032.0h, second);
}
