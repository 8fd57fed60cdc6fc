// Mixtures of experts: which experts a row takes is decided here, so that the host need not wait for the scores. A pair is
// a row and one of its experts; those of a row lie one behind the other, by ascending expert. The products of experts are
// those of `product.wgsl`.

struct Params {
    n_rows: u32, n_experts: u32, n_used: u32, flags: u32, gating: u32, n_groups: u32, n_groups_used: u32, scale: f32,
    width: u32, n_tiles: u32,
}
var<immediate> p: Params;
// The expert of each pair, and how much it counts.
@group(0) @binding(0) var<storage, read_write> chosen: array<u32>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
// Pairs of one expert that a workgroup computes together: expert, first and end in `list`, which has all pairs sorted by
// expert. One with nothing between these is none.
@group(0) @binding(2) var<storage, read_write> tiles: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> list: array<u32>;
@group(0) @binding(4) var<storage, read> scores: array<f32>;
@group(0) @binding(5) var<storage, read> table: array<f32>;

// Of experts the probabilities are made to sum to one.
const NORMALIZE = 1u;
// Added to each probability where rows choose.
const BIASED = 2u;
// So few pairs that each is a tile.
const ALONE = 4u;
// What experts give is multiplied with a factor of each.
const SCALED = 8u;
// What they give is multiplied with how much they count.
const WEIGHED = 16u;

const SOFTMAX = 0u;
const SIGMOID_GATING = 1u;
const SPARSE_MIXER = 2u;

// Words of `table` for each expert, and two of them.
const ENTRY = 12u;
const BIAS = 9u;
const SCALE = 10u;

const LANES = 128u;
const MOST_EXPERTS = 1024u;
// Pairs of a tile.
const TILE = 8u;
const LOWEST = -3.4e38;
// The key of minus infinity.
const KEY_OF_LOWEST = 0x007fffffu;
var<workgroup> keys: array<u32, MOST_EXPERTS>;
var<workgroup> maxima: array<f32, LANES>;
var<workgroup> totals: array<f32, LANES>;
var<workgroup> worths: array<u32, LANES>;
var<workgroup> picks: array<u32, LANES>;
var<workgroup> probabilities: array<f32, LANES>;

// Numbers in the order of `total_cmp`, as whole ones.
fn key_of(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) != 0u);
}
fn number_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) != 0u));
}

fn probability(score: f32, most: f32, total: f32) -> f32 {
    if p.gating == SIGMOID_GATING { return 1.0 / (1.0 + exponential(-score)); }
    return exponential(score - most) / total;
}

// A group is worth as much as its two best experts.
fn worth_of(group: u32, size: u32) -> f32 {
    var first = number_of(KEY_OF_LOWEST);
    var second = first;
    for (var i = 0u; i < size; i++) {
        let rank = number_of(keys[group * size + i]);
        if rank > first {
            second = first;
            first = rank;
        } else {
            second = max(second, rank);
        }
    }
    return select(first, first + second, size > 1u);
}

// A workgroup chooses for a row: the experts of the highest probability, with their bias, within the best groups; of equal
// ones the lower number.
@compute @workgroup_size(128)
fn choose_experts(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = flat(g, groups);
    if row >= p.n_rows { return; }
    let start = row * p.n_experts;
    var most = LOWEST;
    for (var i = lane; i < p.n_experts; i += LANES) { most = max(most, scores[start + i]); }
    maxima[lane] = most;
    workgroupBarrier();
    for (var i = 0u; i < LANES; i++) { most = max(most, maxima[i]); }
    var total = 0.0;
    for (var i = lane; i < p.n_experts; i += LANES) { total += exponential(scores[start + i] - most); }
    totals[lane] = total;
    workgroupBarrier();
    total = 0.0;
    for (var i = 0u; i < LANES; i++) { total += totals[i]; }

    // Scores are in the order of their probabilities, and differ where those are all 0 or 1.
    let by_score = p.gating == SPARSE_MIXER || ((p.flags & BIASED) == 0u && p.n_groups == 0u);
    for (var i = lane; i < p.n_experts; i += LANES) {
        var rank = scores[start + i];
        if !by_score {
            rank = probability(rank, most, total);
            if (p.flags & BIASED) != 0u { rank += table[i * ENTRY + BIAS]; }
        }
        keys[i] = key_of(rank);
    }
    workgroupBarrier();
    if p.n_groups != 0u {
        let size = p.n_experts / p.n_groups;
        if lane < p.n_groups { worths[lane] = key_of(worth_of(lane, size)); }
        workgroupBarrier();
        for (var i = lane; i < p.n_experts; i += LANES) {
            let own = i / size;
            var n_better = 0u;
            for (var j = 0u; j < p.n_groups; j++) {
                n_better += u32(worths[j] > worths[own] || (worths[j] == worths[own] && j < own));
            }
            if n_better >= p.n_groups_used { keys[i] = KEY_OF_LOWEST; }
        }
        workgroupBarrier();
    }
    for (var i = lane; i < p.n_experts; i += LANES) {
        let key = keys[i];
        var n_better = 0u;
        for (var j = 0u; j < p.n_experts; j++) { n_better += u32(keys[j] > key || (keys[j] == key && j < i)); }
        if n_better < p.n_used { picks[n_better] = i; }
    }
    workgroupBarrier();
    let expert = picks[min(lane, p.n_used - 1u)];
    let score = scores[start + expert];
    probabilities[lane] = probability(score, most, total);
    workgroupBarrier();
    if lane >= p.n_used { return; }
    var factor = 0.0;
    if p.gating == SPARSE_MIXER {
        // Its part in the softmax over those of about its score, without what was picked before.
        var near = 0.0;
        for (var i = 0u; i < p.n_experts; i++) {
            var is_left = true;
            for (var j = 0u; j < lane; j++) { is_left = is_left && picks[j] != i; }
            let other = scores[start + i];
            let is_far = (score - other) / max(abs(other), score) > 0.02;
            if is_left && !is_far { near += exponential(other - score); }
        }
        factor = 1.0 / near;
    } else {
        var scale = p.scale;
        if (p.flags & NORMALIZE) != 0u {
            var sum = 0.0;
            for (var i = 0u; i < p.n_used; i++) { sum += probabilities[i]; }
            scale = scale / max(sum, 6.1035156e-5);
        }
        factor = scale * probabilities[lane];
    }
    var pair = row * p.n_used;
    for (var i = 0u; i < p.n_used; i++) { pair += u32(picks[i] < expert); }
    chosen[pair] = expert;
    factors[pair] = factor;
    if (p.flags & ALONE) != 0u {
        tiles[pair] = vec4<u32>(expert, pair, pair + 1u, 0u);
        list[pair] = pair;
    }
}

// How many pairs each expert has, and how many of them have their place in `list`.
var<workgroup> counts: array<atomic<u32>, MOST_EXPERTS>;
var<workgroup> placed: array<atomic<u32>, MOST_EXPERTS>;

// One workgroup sorts all pairs by expert; those of one are in any order, which no result depends on. Each lane goes through
// few pairs: lavapipe ends a kernel's loops after 65,535 rounds of all of them together.
@compute @workgroup_size(128)
fn sort_pairs(@builtin(local_invocation_index) lane: u32) {
    let n_pairs = p.n_rows * p.n_used;
    for (var expert = lane; expert < p.n_experts; expert += LANES) { atomicStore(&counts[expert], 0u); }
    workgroupBarrier();
    for (var i = lane; i < n_pairs; i += LANES) { atomicAdd(&counts[chosen[i]], 1u); }
    workgroupBarrier();
    for (var expert = lane; expert < p.n_experts; expert += LANES) {
        var first = 0u;
        var tile = 0u;
        for (var i = 0u; i < expert; i++) {
            let n = atomicLoad(&counts[i]);
            first += n;
            tile += (n + TILE - 1u) / TILE;
        }
        atomicStore(&placed[expert], first);
        let end = first + atomicLoad(&counts[expert]);
        for (var at = first; at < end; at += TILE) {
            tiles[tile] = vec4<u32>(expert, at, min(at + TILE, end), 0u);
            tile += 1u;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < n_pairs; i += LANES) { list[atomicAdd(&placed[chosen[i]], 1u)] = i; }
    var n_tiles = 0u;
    for (var i = 0u; i < p.n_experts; i++) { n_tiles += (atomicLoad(&counts[i]) + TILE - 1u) / TILE; }
    for (var i = n_tiles + lane; i < p.n_tiles; i += LANES) { tiles[i] = vec4<u32>(); }
}

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read> experts_of_pairs: array<u32>;
@group(0) @binding(3) var<storage, read> factors_of_pairs: array<f32>;

// The row of each pair times how much its expert counts.
@compute @workgroup_size(64)
fn weigh_pairs(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = flat(g, groups) * 64u + l;
    let pair = i / p.width;
    if pair >= p.n_rows * p.n_used { return; }
    out[i] = parts[pair / p.n_used * p.width + i % p.width] * factors_of_pairs[pair];
}

// What the experts of a row give, by ascending expert.
@compute @workgroup_size(64)
fn sum_pairs(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = flat(g, groups) * 64u + l;
    let row = i / p.width;
    if row >= p.n_rows { return; }
    var sum = 0.0;
    for (var pair = row * p.n_used; pair < (row + 1u) * p.n_used; pair++) {
        var part = parts[pair * p.width + i % p.width];
        if (p.flags & SCALED) != 0u { part = part * table[experts_of_pairs[pair] * ENTRY + SCALE]; }
        if (p.flags & WEIGHED) != 0u { part = part * factors_of_pairs[pair]; }
        sum += part;
    }
    out[i] = sum;
}
