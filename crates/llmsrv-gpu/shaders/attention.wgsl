// Rotation, the paged KV cache, and attention over it.
//
// `step` has four words for each row of the step: its position, the end of what it sees, where the block ids of its
// sequence begin, and the slot that its own key goes to; then the block ids. Where `block` is 0 nothing is stored: keys
// and values are rows of the step, and the third word is the first row of the sequence. `angles` has cosines and then
// sines, [rows][pairs] each.
//
// tests/it/spirv.rs compiles `attend_KEPT` and `attend_part_KEPT` once for each way of keeping keys and values, with its
// name for KEPT. It repeats lines that end in `//each` four times, with 0 to 3 for `$`, so that a lane asks for four things
// before it waits for the first.

struct Params {
    n_rows: u32, n_heads: u32, n_kv_heads: u32, head_dim: u32,
    n_pairs: u32, flags: u32, window: u32, block: u32,
    scale: f32, softcap: f32, n_parts: u32,
}
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(0) var<storage, read_write> out_keys: array<u32>;
@group(0) @binding(1) var<storage, read> angles: array<f32>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
@group(0) @binding(2) var<storage, read> query: array<f32>;
@group(0) @binding(2) var<storage, read> new_keys: array<f32>;
@group(0) @binding(2) var<storage, read> parts: array<f32>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> new_values: array<f32>;
@group(0) @binding(5) var<storage, read> values: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> out_values: array<u32>;
@group(0) @binding(6) var<storage, read_write> turned: array<f32>;

// Pairs are neighbours, else both halves of what is rotated.
const INTERLEAVED = 1u;
const ROTATED = 2u;
const SINKS = 4u;
const CAUSAL = 8u;
// The window is as wide behind the query as before it.
const BOTH_SIDES = 16u;
// What `sinks` binds is how much the scores of each head fall for each position of distance.
const SLOPES = 32u;
const TURNS = 64u;
// The window does not move with the query: it sees its own stretch of so many positions.
const CHUNKS = 128u;

// Rotates pair `i` of `turned`.
fn turn(i: u32) {
    let pair = i % p.n_pairs;
    let head = i / p.n_pairs;
    let row = head / p.n_heads;
    if row >= p.n_rows { return; }
    var at = head * p.head_dim + pair;
    var other = at + p.n_pairs;
    if (p.flags & INTERLEAVED) != 0u {
        at += pair;
        other = at + 1u;
    }
    let c = angles[row * p.n_pairs + pair];
    let s = angles[(p.n_rows + row) * p.n_pairs + pair];
    let a = turned[at];
    let b = turned[other];
    turned[at] = a * c - b * s;
    turned[other] = b * c + a * s;
}

@compute @workgroup_size(64)
fn rotate(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    turn(flat(g, groups) * 64u + l);
}

// Element `i` of the head of a key that begins at `start`, rotated.
fn rotated(row: u32, start: u32, i: u32) -> f32 {
    if (p.flags & ROTATED) == 0u || i >= 2u * p.n_pairs { return new_keys[start + i]; }
    var pair = i % p.n_pairs;
    var is_first = i < p.n_pairs;
    var other = pair + select(0u, p.n_pairs, is_first);
    if (p.flags & INTERLEAVED) != 0u {
        pair = i / 2u;
        is_first = i % 2u == 0u;
        other = i ^ 1u;
    }
    let c = angles[row * p.n_pairs + pair];
    let s = angles[(p.n_rows + row) * p.n_pairs + pair];
    let here = new_keys[start + i] * c;
    let there = new_keys[start + other] * s;
    if is_first { return here - there; }
    return here + there;
}

// Stores keys, rotated, and values. Lanes behind those rotate the queries, where TURNS says so.
@compute @workgroup_size(64)
fn store_f16(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = flat(g, groups) * 64u + l;
    let width = p.n_kv_heads * p.head_dim / 2u;
    let row = i / width;
    if row >= p.n_rows {
        if (p.flags & TURNS) != 0u { turn(i - p.n_rows * width); }
        return;
    }
    let word = i % width;
    let at = step[row * 4u + 3u] * width + word;
    let start = row * width * 2u + word * 2u / p.head_dim * p.head_dim;
    let element = word * 2u % p.head_dim;
    let key = vec2<f32>(rotated(row, start, element), rotated(row, start, element + 1u));
    out_keys[at] = pack2x16float(key);
    out_values[at] = pack2x16float(vec2<f32>(new_values[start + element], new_values[start + element + 1u]));
}

fn key_word(i: u32) -> u32 { return keys[i >> 2u][i & 3u]; }
fn value_word(i: u32) -> u32 { return values[i >> 2u][i & 3u]; }

// How keys and values are kept: the words of a position, and pair `i` of those that begin at word `base`; of keys also four
// pairs from `i` on, a multiple of four, where positions begin at a multiple of four words.
// Pairs of f16: [heads][pairs].
fn f16_words() -> u32 { return p.n_kv_heads * p.head_dim / 2u; }
fn f16_key(base: u32, i: u32) -> vec2<f32> { return unpack2x16float(key_word(base + i)); }
fn f16_keys(base: u32, i: u32) -> Four {
    let words = keys[(base + i) >> 2u];
    return Four(unpack2x16float(words.x), unpack2x16float(words.y), unpack2x16float(words.z), unpack2x16float(words.w));
}
fn f16_value(base: u32, i: u32) -> vec2<f32> { return unpack2x16float(value_word(base + i)); }
// Bytes in blocks of 32 elements, then the scales of all blocks, pairs of f16.
fn q8_0_words() -> u32 { return kv_width() / 4u + (kv_width() + 63u) / 64u; }
fn q8_0_key(base: u32, i: u32) -> vec2<f32> {
    let scales = unpack2x16float(key_word(base + kv_width() / 4u + i / 32u));
    return select(scales.x, scales.y, i / 16u % 2u == 1u) * two_bytes(key_word(base + i / 2u) >> (16u * (i % 2u)));
}
fn q8_0_keys(base: u32, i: u32) -> Four {
    let scales = unpack2x16float(key_word(base + kv_width() / 4u + i / 32u));
    let scale = select(scales.x, scales.y, i / 16u % 2u == 1u);
    let first = key_word(base + i / 2u);
    let second = key_word(base + i / 2u + 1u);
    return Four(scale * two_bytes(first), scale * two_bytes(first >> 16u), scale * two_bytes(second), scale * two_bytes(second >> 16u));
}
fn q8_0_value(base: u32, i: u32) -> vec2<f32> {
    let scales = unpack2x16float(value_word(base + kv_width() / 4u + i / 32u));
    return select(scales.x, scales.y, i / 16u % 2u == 1u) * two_bytes(value_word(base + i / 2u) >> (16u * (i % 2u)));
}
fn kv_width() -> u32 { return p.n_kv_heads * p.head_dim; }
fn two_bytes(word: u32) -> vec2<f32> {
    return vec2<f32>(f32(bitcast<i32>(word << 24u) >> 24u), f32(bitcast<i32>(word << 16u) >> 24u));
}
// As they were computed: [heads][elements].
fn f32_words() -> u32 { return p.n_kv_heads * p.head_dim; }
fn f32_key(base: u32, i: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(key_word(base + 2u * i)), bitcast<f32>(key_word(base + 2u * i + 1u)));
}
fn f32_keys(base: u32, i: u32) -> Four {
    let first = bitcast<vec4<f32>>(keys[(base + 2u * i) >> 2u]);
    let second = bitcast<vec4<f32>>(keys[((base + 2u * i) >> 2u) + 1u]);
    return Four(first.xy, first.zw, second.xy, second.zw);
}
fn f32_value(base: u32, i: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(value_word(base + 2u * i)), bitcast<f32>(value_word(base + 2u * i + 1u)));
}

// The nearest whole number, of halves that farther from 0, as a byte.
fn code(x: f32) -> u32 {
    let whole = select(floor(x + 0.5), ceil(x - 0.5), x < 0.0);
    return bitcast<u32>(i32(whole)) & 255u;
}

fn rotated_at(row: u32, element: u32) -> f32 {
    let start = row * kv_width() + element / p.head_dim * p.head_dim;
    return rotated(row, start, element % p.head_dim);
}

// Two blocks for each lane.
@compute @workgroup_size(64)
fn store_q8_0(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = flat(g, groups) * 64u + l;
    let width = kv_width();
    let n_pairs = (width + 63u) / 64u;
    let row = i / n_pairs;
    if row >= p.n_rows {
        if (p.flags & TURNS) != 0u { turn(i - p.n_rows * n_pairs); }
        return;
    }
    let base = step[row * 4u + 3u] * q8_0_words();
    var scales = array<vec2<f32>, 2>();
    for (var n = 0u; n < 2u; n++) {
        let first = (i % n_pairs * 2u + n) * 32u;
        if first >= width { continue; }
        var most = vec2<f32>();
        for (var j = first; j < first + 32u; j++) {
            most = max(most, abs(vec2<f32>(rotated_at(row, j), new_values[row * width + j])));
        }
        let scale = most / 127.0;
        var inverse = vec2<f32>();
        if scale.x != 0.0 { inverse.x = 1.0 / scale.x; }
        if scale.y != 0.0 { inverse.y = 1.0 / scale.y; }
        scales[n] = scale;
        for (var j = first; j < first + 32u; j += 4u) {
            var key = 0u;
            var value = 0u;
            for (var byte = 0u; byte < 4u; byte++) {
                key |= code(rotated_at(row, j + byte) * inverse.x) << (8u * byte);
                value |= code(new_values[row * width + j + byte] * inverse.y) << (8u * byte);
            }
            out_keys[base + j / 4u] = key;
            out_values[base + j / 4u] = value;
        }
    }
    let at = base + width / 4u + i % n_pairs;
    out_keys[at] = pack2x16float(vec2<f32>(scales[0].x, scales[1].x));
    out_values[at] = pack2x16float(vec2<f32>(scales[0].y, scales[1].y));
}

// Four pairs.
struct Four { a: vec2<f32>, b: vec2<f32>, c: vec2<f32>, d: vec2<f32> }

const LANES = 64u;
// Positions of a part.
const PART = 256u;
const NOTHING = -3.4e38;
var<workgroup> own: array<vec2<f32>, 320>;
var<workgroup> sum: array<vec2<f32>, 320>;
var<workgroup> scores: array<f32, LANES>;
var<workgroup> shares: array<f32, LANES>;
var<workgroup> slots: array<u32, LANES>;

// The first position that a row sees, and the end of those.
fn seen_by(row: u32) -> vec2<u32> {
    let position = step[row * 4u];
    var end = step[row * 4u + 1u];
    if (p.flags & CAUSAL) != 0u { end = min(end, position + 1u); }
    var first = 0u;
    if p.window != 0u && position + 1u > p.window { first = position + 1u - p.window; }
    if (p.flags & CHUNKS) != 0u { first = position - position % p.window; }
    if (p.flags & BOTH_SIDES) != 0u { end = min(end, position + p.window); }
    return vec2<u32>(first, end);
}

// The first part that a row sees something of, and the end of those.
fn parts_of(seen: vec2<u32>) -> vec2<u32> {
    let first = seen.x / PART;
    return vec2<u32>(first, max((seen.y + PART - 1u) / PART, first + 1u));
}

// What takes part in the softmax before all positions: the highest score, and the sum of what scores count.
fn before_all(head: u32) -> vec2<f32> {
    if (p.flags & SINKS) != 0u { return vec2<f32>(sinks[head], 1.0); }
    return vec2<f32>(NOTHING, 0.0);
}

// Positions are taken in segments of 64, ascending, and four of these that begin at a multiple of 256 are a part. Each
// part is summed by itself: `sum` then has its values, what is returned are its highest score and the sum of what its
// scores count. Parts are joined in ascending order. So the order of all sums depends on the row's own position alone,
// whether one workgroup goes through all parts (`attend`) or each takes one (`attend_part`, then `join_parts`).
fn sum_part_KEPT(row: u32, head: u32, part: u32, seen: vec2<u32>, lane: u32) -> vec2<f32> {
    let position = step[row * 4u];
    let table = step[row * 4u + 2u];
    let pairs = p.head_dim / 2u;
    let words = KEPT_words();
    let kv_head = head / (p.n_heads / p.n_kv_heads) * pairs;
    let first = max(seen.x, part * PART);
    let end = min(seen.y, (part + 1u) * PART);
    for (var i = lane; i < pairs; i += LANES) { sum[i] = vec2<f32>(); }
    var most = NOTHING;
    var total = 0.0;
    for (var segment = first / LANES * LANES; segment < end; segment += LANES) {
        workgroupBarrier();
        let at = segment + lane;
        let is_seen = at < end && at >= first;
        var score = NOTHING;
        var slot = 0u;
        if is_seen {
            slot = table + at;
            if p.block != 0u { slot = step[table + at / p.block] * p.block + at % p.block; }
            slot = slot * words;
            var products = vec2<f32>();
            var i = 0u;
            // Where whole vectors of words can be read, sixteen pairs are asked for before the first is waited for.
            if words % 4u == 0u && kv_head % 4u == 0u {
                for (; i + 16u <= pairs; i += 16u) {
                    let keys$ = KEPT_keys(slot, kv_head + i + 4u * $u); //each
                    products = fma(own[i + 4u * $u], keys$.a, products); products = fma(own[i + 4u * $u + 1u], keys$.b, products); products = fma(own[i + 4u * $u + 2u], keys$.c, products); products = fma(own[i + 4u * $u + 3u], keys$.d, products); //each
                }
            }
            for (; i < pairs; i++) { products = fma(own[i], KEPT_key(slot, kv_head + i), products); }
            score = (products.x + products.y) * p.scale;
            if (p.flags & SLOPES) != 0u { score = score - sinks[head] * f32(max(at, position) - min(at, position)); }
            if p.softcap != 0.0 {
                score = p.softcap * (1.0 - 2.0 / (exponential(2.0 * (score / p.softcap)) + 1.0));
            }
        }
        scores[lane] = score;
        slots[lane] = slot;
        workgroupBarrier();
        var higher = most;
        for (var i = 0u; i < LANES; i++) { higher = max(higher, scores[i]); }
        shares[lane] = select(0.0, exponential(score - higher), is_seen);
        workgroupBarrier();
        let fade = exponential(most - higher);
        most = higher;
        total = total * fade;
        for (var i = 0u; i < LANES; i++) { total += shares[i]; }
        for (var i = lane; i < pairs; i += LANES) {
            var here = sum[i] * fade;
            for (var j = 0u; j < LANES; j += 4u) {
                let share$ = shares[j + $u]; //each
                let value$ = KEPT_value(slots[j + $u], kv_head + i); //each
                here = select(here, fma(vec2<f32>(share$), value$, here), share$ > 0.0); //each
            }
            sum[i] = here;
        }
    }
    return vec2<f32>(most, total);
}

// Takes one query head of one row.
fn take_query(row: u32, head: u32, lane: u32) {
    let base = (row * p.n_heads + head) * p.head_dim;
    for (var i = lane; i < p.head_dim / 2u; i += LANES) {
        own[i] = vec2<f32>(query[base + 2u * i], query[base + 2u * i + 1u]);
    }
}

// All parts of a head of a row. What is joined so far is where the result will be: an element is of one lane alone.
@compute @workgroup_size(64)
fn attend_KEPT(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = g.x;
    let row = g.y;
    take_query(row, head, lane);
    let seen = seen_by(row);
    let of_row = parts_of(seen);
    let base = (row * p.n_heads + head) * p.head_dim;
    var all = before_all(head);
    for (var part = of_row.x; part < of_row.y; part++) {
        let found = sum_part_KEPT(row, head, part, seen, lane);
        let higher = max(all.x, found.x);
        let fade = exponential(all.x - higher);
        let gain = exponential(found.x - higher);
        all = vec2<f32>(higher, all.y * fade + found.y * gain);
        for (var i = lane; i < p.head_dim / 2u; i += LANES) {
            let at = base + 2u * i;
            var here = vec2<f32>();
            if part > of_row.x { here = vec2<f32>(out[at], out[at + 1u]); }
            here = here * fade + sum[i] * gain;
            if part + 1u == of_row.y { here = here / all.y; }
            out[at] = here.x;
            out[at + 1u] = here.y;
        }
    }
}

// One part of a head of a row: its values, then its highest score and the sum of what its scores count. `out` has
// [rows][heads][p.n_parts] of them, of each row from the first one that it sees on.
@compute @workgroup_size(64)
fn attend_part_KEPT(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = g.x;
    let row = g.y;
    let seen = seen_by(row);
    let of_row = parts_of(seen);
    let part = of_row.x + g.z;
    if part >= of_row.y { return; }
    take_query(row, head, lane);
    let found = sum_part_KEPT(row, head, part, seen, lane);
    let base = ((row * p.n_heads + head) * p.n_parts + g.z) * (p.head_dim + 2u);
    for (var i = lane; i < p.head_dim / 2u; i += LANES) {
        out[base + 2u * i] = sum[i].x;
        out[base + 2u * i + 1u] = sum[i].y;
    }
    if lane == 0u {
        out[base + p.head_dim] = found.x;
        out[base + p.head_dim + 1u] = found.y;
    }
}

var<workgroup> totals: array<f32, LANES>;
var<workgroup> fades: array<f32, LANES>;
var<workgroup> gains: array<f32, LANES>;

// Joins the parts of a head of a row, 64 at a time.
@compute @workgroup_size(64)
fn join_parts(@builtin(workgroup_id) g: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = g.x;
    let row = g.y;
    let of_row = parts_of(seen_by(row));
    let n_parts = of_row.y - of_row.x;
    let words = p.head_dim + 2u;
    let base = (row * p.n_heads + head) * p.n_parts * words;
    for (var i = lane; i < p.head_dim / 2u; i += LANES) { sum[i] = vec2<f32>(); }
    var all = before_all(head);
    for (var first = 0u; first < n_parts; first += LANES) {
        let n = min(LANES, n_parts - first);
        workgroupBarrier();
        if lane < n {
            let at = base + (first + lane) * words + p.head_dim;
            scores[lane] = parts[at];
            totals[lane] = parts[at + 1u];
        }
        workgroupBarrier();
        var before = all.x;
        for (var j = 0u; j < lane; j++) { before = max(before, scores[j]); }
        let higher = max(before, scores[lane]);
        fades[lane] = exponential(before - higher);
        gains[lane] = exponential(scores[lane] - higher);
        workgroupBarrier();
        for (var j = 0u; j < n; j++) {
            all = vec2<f32>(max(all.x, scores[j]), all.y * fades[j] + totals[j] * gains[j]);
        }
        for (var i = lane; i < p.head_dim / 2u; i += LANES) {
            var here = sum[i];
            for (var j = 0u; j < n; j++) {
                let at = base + (first + j) * words + 2u * i;
                here = here * fades[j] + vec2<f32>(parts[at], parts[at + 1u]) * gains[j];
            }
            sum[i] = here;
        }
    }
    let result = (row * p.n_heads + head) * p.head_dim;
    for (var i = lane; i < p.head_dim / 2u; i += LANES) {
        out[result + 2u * i] = sum[i].x / all.y;
        out[result + 2u * i + 1u] = sum[i].y / all.y;
    }
}
