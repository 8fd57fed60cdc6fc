// Weights as they lie in model files. Each format has a function that unpacks eight of them, of unit `u` of the row
// that begins at byte `row`, and one that says which vectors of four inputs belong to them. Blocks begin at even bytes,
// but for those of MXFP4.

struct Eight { a: vec4<f32>, b: vec4<f32> }

fn half_at(byte: u32) -> u32 {
    return (weights[byte >> 2u] >> ((byte & 2u) * 8u)) & 0xffffu;
}
fn word_at(byte: u32) -> u32 {
    if (byte & 2u) == 0u { return weights[byte >> 2u]; }
    return (weights[byte >> 2u] >> 16u) | (weights[(byte >> 2u) + 1u] << 16u);
}
fn byte_at(byte: u32) -> u32 {
    return (weights[byte >> 2u] >> ((byte & 3u) * 8u)) & 0xffu;
}
fn f16_at(byte: u32) -> f32 {
    return unpack2x16float(half_at(byte)).x;
}
fn bytes_of(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack_bytes(word));
}
fn unpack_bytes(word: u32) -> vec4<u32> {
    return (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu);
}
fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Blocks of 32 weights, four units each: in order, or as two halves of 16.
fn in_order(u: u32) -> vec2<u32> { return vec2<u32>(2u * u, 2u * u + 1u); }
fn in_halves(u: u32) -> vec2<u32> {
    let first = (u / 4u) * 8u + u % 4u;
    return vec2<u32>(first, first + 4u);
}

fn q8_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 34u;
    let d = f16_at(block);
    let at = block + 2u + (u % 4u) * 8u;
    return Eight(d * signed_bytes(word_at(at)), d * signed_bytes(word_at(at + 4u)));
}
fn q4_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 18u;
    let d = f16_at(block);
    let word = word_at(block + 2u + (u % 4u) * 4u);
    return Eight(
        d * (bytes_of(word & 0x0f0f0f0fu) - 8.0),
        d * (bytes_of((word >> 4u) & 0x0f0f0f0fu) - 8.0),
    );
}
fn q4_1(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 20u;
    let d = f16_at(block);
    let m = f16_at(block + 2u);
    let word = word_at(block + 4u + (u % 4u) * 4u);
    return Eight(
        d * bytes_of(word & 0x0f0f0f0fu) + m,
        d * bytes_of((word >> 4u) & 0x0f0f0f0fu) + m,
    );
}
// The fifth bits of four weights, in the place that their bytes have.
fn fifth_bits(bits: u32) -> u32 {
    let four = bits & 0xfu;
    return ((four & 1u) << 4u) | ((four & 2u) << 11u) | ((four & 4u) << 18u) | ((four & 8u) << 25u);
}
fn q5_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 22u;
    let d = f16_at(block);
    let high = word_at(block + 2u) >> ((u % 4u) * 4u);
    let word = word_at(block + 6u + (u % 4u) * 4u);
    return Eight(
        d * (bytes_of((word & 0x0f0f0f0fu) | fifth_bits(high)) - 16.0),
        d * (bytes_of(((word >> 4u) & 0x0f0f0f0fu) | fifth_bits(high >> 16u)) - 16.0),
    );
}
fn q5_1(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 24u;
    let d = f16_at(block);
    let m = f16_at(block + 2u);
    let high = word_at(block + 4u) >> ((u % 4u) * 4u);
    let word = word_at(block + 8u + (u % 4u) * 4u);
    return Eight(
        d * bytes_of((word & 0x0f0f0f0fu) | fifth_bits(high)) + m,
        d * bytes_of(((word >> 4u) & 0x0f0f0f0fu) | fifth_bits(high >> 16u)) + m,
    );
}

// Sixteen signed steps in four words: those of the four bytes of `indices`.
fn steps(table: vec4<u32>, indices: u32) -> vec4<f32> {
    let i = unpack_bytes(indices);
    let words = vec4<u32>(table[i.x >> 2u], table[i.y >> 2u], table[i.z >> 2u], table[i.w >> 2u]);
    let up = vec4<u32>(24u) - (i & vec4<u32>(3u)) * 8u;
    return vec4<f32>((vec4<i32>(words << up)) >> vec4<u32>(24u));
}
// -127 -104 -83 -65, -49 -35 -22 -10, 1 13 25 38, 53 69 89 113.
const IQ4_STEPS = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
fn iq4_nl(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 18u;
    let d = f16_at(block);
    let word = word_at(block + 2u + (u % 4u) * 4u);
    return Eight(
        d * steps(IQ4_STEPS, word & 0x0f0f0f0fu),
        d * steps(IQ4_STEPS, (word >> 4u) & 0x0f0f0f0fu),
    );
}
// 0 1 2 3, 4 6 8 12, and their negatives: the numbers of E2M1, doubled so that they are whole.
const E2M1_DOUBLED = vec4<u32>(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
// Half the power of two that a byte stands for. The two smallest are subnormal.
fn half_power(exponent: u32) -> f32 {
    return bitcast<f32>(select((exponent - 1u) << 23u, 0x00200000u << exponent, exponent < 2u));
}
fn mxfp4(row: u32, u: u32) -> Eight {
    let block = row + (u / 4u) * 17u;
    let d = half_power(byte_at(block));
    let at = block + 1u + (u % 4u) * 4u;
    let low = byte_at(at) | (byte_at(at + 1u) << 8u);
    let word = low | (byte_at(at + 2u) << 16u) | (byte_at(at + 3u) << 24u);
    return Eight(
        d * steps(E2M1_DOUBLED, word & 0x0f0f0f0fu),
        d * steps(E2M1_DOUBLED, (word >> 4u) & 0x0f0f0f0fu),
    );
}

// Blocks of 256 weights, 32 units each. In the formats of four and five bits a unit has its first weights in the low
// halves of bytes and the second ones, 32 weights on, in the high halves.
fn in_pairs_of_32(u: u32) -> vec2<u32> {
    let first = (u / 32u) * 64u + ((u % 32u) / 8u) * 16u + u % 8u;
    return vec2<u32>(first, first + 8u);
}
// The scale and the minimum of 32 weights, six bits each.
fn six_bits(scales: u32, j: u32) -> vec2<u32> {
    if j < 4u {
        return vec2<u32>(byte_at(scales + j) & 63u, byte_at(scales + j + 4u) & 63u);
    }
    let low = byte_at(scales + j + 4u);
    return vec2<u32>(
        (low & 0xfu) | ((byte_at(scales + j - 4u) >> 6u) << 4u),
        (low >> 4u) | ((byte_at(scales + j) >> 6u) << 4u),
    );
}
fn scale_and_min(scales: u32, j: u32) -> vec2<f32> { return vec2<f32>(six_bits(scales, j)); }
// Blocks of Q4_K begin at multiples of 16 bytes: 16 bytes say of all scales what they are.
fn q4_k(row: u32, u: u32) -> Eight {
    let block = (row + (u / 32u) * 144u) >> 4u;
    let j = u % 32u;
    let head = vectors_of_weights[block];
    let d = unpack2x16float(head.x);
    let first = vec2<f32>(scale_and_min_of(head, 2u * (j / 8u)));
    let second = vec2<f32>(scale_and_min_of(head, 2u * (j / 8u) + 1u));
    let word = vectors_of_weights[block + 1u + j / 4u][j % 4u];
    return Eight(
        d.x * first.x * bytes_of(word & 0x0f0f0f0fu) - d.y * first.y,
        d.x * second.x * bytes_of((word >> 4u) & 0x0f0f0f0fu) - d.y * second.y,
    );
}
// The scale and the minimum of 32 weights, by the first 16 bytes of their block: as `six_bits`.
fn scale_and_min_of(head: vec4<u32>, j: u32) -> vec2<i32> {
    let by = 8u * (j % 4u);
    let bytes = (head.yzw >> vec3<u32>(by)) & vec3<u32>(0xffu);
    if j < 4u { return vec2<i32>(bytes.xy & vec2<u32>(63u)); }
    let low = vec2<u32>(bytes.z & 15u, bytes.z >> 4u);
    return vec2<i32>(low | ((bytes.xy >> vec2<u32>(6u)) << vec2<u32>(4u)));
}
fn q5_k(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 176u;
    let j = u % 32u;
    let d = f16_at(block);
    let d_min = f16_at(block + 2u);
    let first = scale_and_min(block + 4u, 2u * (j / 8u));
    let second = scale_and_min(block + 4u, 2u * (j / 8u) + 1u);
    let high = word_at(block + 16u + (j % 8u) * 4u) >> (2u * (j / 8u));
    let word = word_at(block + 48u + j * 4u);
    return Eight(
        d * first.x * bytes_of((word & 0x0f0f0f0fu) | ((high & 0x01010101u) << 4u)) - d_min * first.y,
        d * second.x * bytes_of(((word >> 4u) & 0x0f0f0f0fu) | ((high & 0x02020202u) << 3u)) - d_min * second.y,
    );
}

// Six bits: two halves of 128 weights; a unit's second weights come 64 after its first ones.
fn in_pairs_of_64(u: u32) -> vec2<u32> {
    let j = u % 32u;
    let first = (u / 32u) * 64u + (j / 16u) * 32u + j % 16u;
    return vec2<u32>(first, first + 16u);
}
fn signed_at(byte: u32) -> i32 { return bitcast<i32>(byte_at(byte) << 24u) >> 24u; }
fn signed_byte(byte: u32) -> f32 { return f32(signed_at(byte)); }
fn q6_k(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 210u;
    let j = u % 32u;
    let half = j / 16u;
    let second = (j % 16u) / 8u;
    let word = word_at(block + j * 4u);
    let high = word_at(block + 128u + half * 32u + (j % 8u) * 4u) >> (2u * second);
    let scale = block + 192u + half * 8u + 2u * second + (j % 8u) / 4u;
    let d = f16_at(block + 208u);
    return Eight(
        d * signed_byte(scale) * (bytes_of((word & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4u)) - 32.0),
        d * signed_byte(scale + 4u) * (bytes_of(((word >> 4u) & 0x0f0f0f0fu) | (high & 0x30303030u)) - 32.0),
    );
}

// Two bits: two halves of 128 weights; a byte has four of them, 32 weights apart, and a unit two of these.
fn pairs_at(packed: u32, j: u32) -> u32 {
    return word_at(packed + (j / 16u) * 32u + (j % 8u) * 4u) >> (4u * ((j % 16u) / 8u));
}
// The stretch of 16 weights that the first weights of unit `j` are in; the second ones are two stretches on.
fn stretch(j: u32) -> u32 {
    return (j / 8u) * 4u + (j % 8u) / 4u;
}
fn q2_k(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 84u;
    let j = u % 32u;
    let word = pairs_at(block + 16u, j);
    let first = byte_at(block + stretch(j));
    let second = byte_at(block + stretch(j) + 2u);
    let d = f16_at(block + 80u);
    let d_min = f16_at(block + 82u);
    return Eight(
        d * f32(first & 15u) * bytes_of(word & 0x03030303u) - d_min * f32(first >> 4u),
        d * f32(second & 15u) * bytes_of((word >> 2u) & 0x03030303u) - d_min * f32(second >> 4u),
    );
}
fn tq2_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 66u;
    let word = pairs_at(block, u % 32u);
    let d = f16_at(block + 64u);
    return Eight(
        d * (bytes_of(word & 0x03030303u) - 1.0),
        d * (bytes_of((word >> 2u) & 0x03030303u) - 1.0),
    );
}
// The scale of stretch `n`: four low bits, and above them two of another byte.
fn q3_bits(scales: u32, n: u32) -> u32 {
    let low = (byte_at(scales + n % 8u) >> (4u * (n / 8u))) & 15u;
    let top = (byte_at(scales + 8u + n % 4u) >> (2u * (n / 4u))) & 3u;
    return low | (top << 4u);
}
fn q3_scale(scales: u32, n: u32) -> f32 { return f32(q3_bits(scales, n)) - 32.0; }
fn q3_k(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 110u;
    let j = u % 32u;
    let word = pairs_at(block + 32u, j);
    // The third bits, one of a byte for each 32 weights.
    let high = word_at(block + (j % 8u) * 4u) >> (2u * (j / 8u));
    let n = stretch(j);
    let d = f16_at(block + 108u);
    return Eight(
        d * q3_scale(block + 96u, n) * (bytes_of((word & 0x03030303u) | ((high & 0x01010101u) << 2u)) - 4.0),
        d * q3_scale(block + 96u, n + 2u) * (bytes_of(((word >> 2u) & 0x03030303u) | ((high & 0x02020202u) << 1u)) - 4.0),
    );
}
fn iq4_bits(block: u32, n: u32) -> u32 {
    let low = (byte_at(block + 4u + n / 2u) >> (4u * (n % 2u))) & 15u;
    let top = (half_at(block + 2u) >> (2u * n)) & 3u;
    return low | (top << 4u);
}
fn iq4_xs(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 136u;
    let j = u % 32u;
    // Stretches of 32 weights, with a scale of six bits each.
    let n = j / 4u;
    let scale = f16_at(block) * (f32(iq4_bits(block, n)) - 32.0);
    let word = word_at(block + 8u + j * 4u);
    return Eight(
        scale * steps(IQ4_STEPS, word & 0x0f0f0f0fu),
        scale * steps(IQ4_STEPS, (word >> 4u) & 0x0f0f0f0fu),
    );
}

// Codebooks: an index stands for eight weights (or four), whose levels the point of that index has. The points lie behind
// the rows of the matrix, 16 bits each, from a whole word on: two bits a level, or three.
fn point(index: u32) -> u32 {
    return half_at(p.extra + 2u * index);
}
fn of_three(point: u32) -> vec4<u32> {
    return (vec4<u32>(point) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u);
}
fn of_eight(point: u32) -> vec4<u32> {
    return (vec4<u32>(point) >> vec4<u32>(0u, 3u, 6u, 9u)) & vec4<u32>(7u);
}
// Values that are negative where a bit is set.
fn with_signs(values: vec4<u32>, signs: u32) -> vec4<f32> {
    let bits = (vec4<u32>(signs) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    return vec4<f32>(values) * (1.0 - 2.0 * vec4<f32>(bits));
}
// Eight signs from seven: the number of negative weights is even.
fn eighth_sign(signs: u32) -> u32 {
    let seven = signs & 127u;
    return seven | ((countOneBits(seven) & 1u) << 7u);
}
fn odd(n: u32) -> f32 { return f32(2u * n + 1u); }
// The number of a stretch of weights, of which a byte has two.
fn nibble_at(bytes: u32, n: u32) -> u32 { return (byte_at(bytes + n / 2u) >> (4u * (n % 2u))) & 15u; }

// Levels 8, 25 and 43.
fn iq2_eight(scale: f32, point: u32, signs: u32) -> Eight {
    let first = of_three(point);
    let second = of_three(point >> 8u);
    return Eight(
        scale * with_signs(8u + 17u * first + (first >> vec4<u32>(1u)), signs),
        scale * with_signs(8u + 17u * second + (second >> vec4<u32>(1u)), signs >> 4u),
    );
}
fn iq2_xxs(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 66u;
    let e = u % 32u;
    let part = block + 2u + (e / 4u) * 8u;
    let word = word_at(part + 4u);
    let scale = f16_at(block) * 0.125 * odd(word >> 28u);
    return iq2_eight(scale, point(byte_at(part + e % 4u)), eighth_sign(word >> (7u * (e % 4u))));
}
fn iq2_xs(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 74u;
    let e = u % 32u;
    let half = half_at(block + 2u + 2u * e);
    let scale = f16_at(block) * 0.125 * odd(nibble_at(block + 66u, e / 2u));
    return iq2_eight(scale, point(half & 511u), eighth_sign(half >> 9u));
}
fn iq2_s(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 82u;
    let e = u % 32u;
    let high = (byte_at(block + 66u + e / 4u) >> (2u * (e % 4u))) & 3u;
    let scale = f16_at(block) * 0.125 * odd(nibble_at(block + 74u, e / 2u));
    return iq2_eight(scale, point(byte_at(block + 2u + e) | (high << 8u)), byte_at(block + 34u + e));
}
fn iq3_xxs(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 98u;
    let e = u % 32u;
    let word = word_at(block + 66u + (e / 4u) * 4u);
    let signs = eighth_sign(word >> (7u * (e % 4u)));
    let scale = f16_at(block) * 0.25 * odd(word >> 28u);
    // Levels 4, 12, ... 52 and 62.
    let first = of_eight(point(byte_at(block + 2u + 2u * e)));
    let second = of_eight(point(byte_at(block + 3u + 2u * e)));
    let last = vec4<u32>(7u);
    return Eight(
        scale * with_signs(4u + 8u * first + select(vec4<u32>(), vec4<u32>(2u), first == last), signs),
        scale * with_signs(4u + 8u * second + select(vec4<u32>(), vec4<u32>(2u), second == last), signs >> 4u),
    );
}
fn iq3_s(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 110u;
    let e = u % 32u;
    let ninths = byte_at(block + 66u + e / 4u) >> (2u * (e % 4u));
    let signs = byte_at(block + 74u + e);
    let scale = f16_at(block) * odd(nibble_at(block + 106u, e / 4u));
    let first = of_eight(point(byte_at(block + 2u + 2u * e) | ((ninths & 1u) << 8u)));
    let second = of_eight(point(byte_at(block + 3u + 2u * e) | ((ninths & 2u) << 7u)));
    return Eight(
        scale * with_signs(1u + 2u * first, signs),
        scale * with_signs(1u + 2u * second, signs >> 4u),
    );
}
// -1, 0 and 1, shifted up or down by an eighth, in eighths.
fn iq1_eight(scale: f32, point: u32, is_down: bool) -> Eight {
    let shift = select(-7.0, -9.0, is_down);
    return Eight(
        scale * (8.0 * vec4<f32>(of_three(point)) + shift),
        scale * (8.0 * vec4<f32>(of_three(point >> 8u)) + shift),
    );
}
fn iq1_s(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 50u;
    let e = u % 32u;
    let half = half_at(block + 34u + (e / 4u) * 2u);
    let high = (half >> (3u * (e % 4u))) & 7u;
    let scale = f16_at(block) * 0.125 * odd((half >> 12u) & 7u);
    return iq1_eight(scale, point(byte_at(block + 2u + e) | (high << 8u)), half >= 0x8000u);
}
fn iq1_m(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 56u;
    let e = u % 32u;
    // The scale lies in the upper bits of four numbers of 16 bits.
    let low = word_at(block + 48u);
    let high = word_at(block + 52u);
    let d = ((low >> 12u) & 0xfu) | ((low >> 24u) & 0xf0u) | ((high >> 4u) & 0xf00u) | ((high >> 16u) & 0xf000u);
    let n = (half_at(block + 48u + (e / 8u) * 2u) >> (3u * ((e / 2u) % 4u))) & 7u;
    let four = nibble_at(block + 32u, e);
    let scale = unpack2x16float(d).x * 0.125 * odd(n);
    return iq1_eight(scale, point(byte_at(block + e) | ((four & 7u) << 8u)), four >= 8u);
}

// Digits in base 3: a byte `b` stands for the fraction `b / 256`. Digit `n` of each of four bytes.
fn digits(word: u32, n: u32) -> vec4<f32> {
    var power = 1u;
    for (var i = 0u; i < n; i++) { power *= 3u; }
    return vec4<f32>((((unpack_bytes(word) * power) & vec4<u32>(0xffu)) * 3u) >> vec4<u32>(8u));
}
fn tq1_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 32u) * 54u;
    let e = u % 32u;
    let d = f16_at(block + 52u);
    // Five digits of 32 bytes, five of 16, then four of 4.
    if e >= 30u {
        let word = word_at(block + 48u);
        return Eight(d * (digits(word, 2u * (e - 30u)) - 1.0), d * (digits(word, 2u * (e - 30u) + 1u) - 1.0));
    }
    let k = e - 20u;
    let at = block + select(8u * (e % 4u), 32u + 8u * (k % 2u), e >= 20u);
    let n = select(e / 4u, k / 2u, e >= 20u);
    return Eight(d * (digits(word_at(at), n) - 1.0), d * (digits(word_at(at + 4u), n) - 1.0));
}

// Blocks of 128 weights of one bit: is it positive?
fn q1_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 16u) * 18u;
    let d = f16_at(block);
    let negative = ~byte_at(block + 2u + u % 16u);
    return Eight(d * with_signs(vec4<u32>(1u), negative), d * with_signs(vec4<u32>(1u), negative >> 4u));
}
// Blocks of 64 weights: of two bits side by side, or of four with a scale of eight bits for 16 of them.
fn q2_0(row: u32, u: u32) -> Eight {
    let block = row + (u / 8u) * 18u;
    let d = f16_at(block);
    let half = half_at(block + 2u + 2u * (u % 8u));
    return Eight(d * (vec4<f32>(of_three(half)) - 1.0), d * (vec4<f32>(of_three(half >> 8u)) - 1.0));
}
fn in_pairs_of_8(u: u32) -> vec2<u32> {
    let first = (u / 2u) * 4u + u % 2u;
    return vec2<u32>(first, first + 2u);
}
// A number of four bits of exponent and three of mantissa; what would not be a number is 0.
fn e4m3(bits: u32) -> f32 {
    let exponent = (bits >> 3u) & 15u;
    let mantissa = f32(bits & 7u);
    let normal = (1.0 + mantissa / 8.0) * bitcast<f32>((exponent + 120u) << 23u);
    return select(select(normal, mantissa / 512.0, exponent == 0u), 0.0, bits == 0x7fu);
}
fn nvfp4(row: u32, u: u32) -> Eight {
    let block = row + (u / 8u) * 36u;
    let d = 0.5 * e4m3(byte_at(block + (u % 8u) / 2u));
    let word = word_at(block + 4u + 4u * (u % 8u));
    return Eight(
        d * steps(E2M1_DOUBLED, word & 0x0f0f0f0fu),
        d * steps(E2M1_DOUBLED, (word >> 4u) & 0x0f0f0f0fu),
    );
}

// Single values, of element `i` of a row.
fn f32_value(row: u32, i: u32) -> f32 { return bitcast<f32>(weights[(row >> 2u) + i]); }
fn f16_value(row: u32, i: u32) -> f32 { return f16_at(row + 2u * i); }
fn bf16_value(row: u32, i: u32) -> f32 { return bitcast<f32>(half_at(row + 2u * i) << 16u); }
