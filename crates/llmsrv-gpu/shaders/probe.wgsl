// What the device can do at most: reading memory, and multiplying floats and signed bytes.

// `n` vectors of four words; lanes that are next to each other read vectors that are.
struct Params { n: u32, rounds: u32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read> data: array<vec4<u32>>;

@compute @workgroup_size(64)
fn probe_read(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let lane = flat(g, groups) * 64u + l;
    let n_lanes = groups.x * groups.y * 64u;
    var sum = vec4<u32>();
    for (var i = lane; i < p.n; i += n_lanes) { sum ^= data[i]; }
    out[lane] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}

// Sixteen chains of multiplications and sums in each lane, which do not wait for each other.
@compute @workgroup_size(64)
fn probe_fma(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let lane = flat(g, groups) * 64u + l;
    let start = f32(lane);
    let factor = vec4<f32>(f32(p.n) * 0.001);
    let added = vec4<f32>(0.25, 0.5, 0.75, 1.0);
    var a = vec4<f32>(start);
    var b = vec4<f32>(start + 1.0);
    var c = vec4<f32>(start + 2.0);
    var d = vec4<f32>(start + 3.0);
    for (var i = 0u; i < p.rounds; i++) {
        a = fma(a, factor, added);
        b = fma(b, factor, added);
        c = fma(c, factor, added);
        d = fma(d, factor, added);
    }
    let sum = (a + b) + (c + d);
    out[lane] = bitcast<u32>((sum.x + sum.y) + (sum.z + sum.w));
}

// Sixteen chains of products of four signed bytes each.
@compute @workgroup_size(64)
fn probe_dot(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let lane = flat(g, groups) * 64u + l;
    let factor = p.n * 0x01020304u + lane;
    var a = vec4<u32>(lane, lane + 1u, lane + 2u, lane + 3u);
    var b = a + vec4<u32>(4u);
    var c = a + vec4<u32>(8u);
    var d = a + vec4<u32>(12u);
    for (var i = 0u; i < p.rounds; i++) {
        a = added_dots(a, factor);
        b = added_dots(b, factor);
        c = added_dots(c, factor);
        d = added_dots(d, factor);
    }
    let sum = (a + b) + (c + d);
    out[lane] = (sum.x + sum.y) + (sum.z + sum.w);
}
fn added_dots(sums: vec4<u32>, factor: u32) -> vec4<u32> {
    let dots = vec4<i32>(
        dot4I8Packed(sums.x, factor), dot4I8Packed(sums.y, factor), dot4I8Packed(sums.z, factor), dot4I8Packed(sums.w, factor),
    );
    return sums + bitcast<vec4<u32>>(dots);
}
