// The kernels of kernels.c for Vulkan; `tests/it/spirv.rs` compiles them to SPIR-V. The comments are there.
//
// Several globals share a binding: each entry point uses the one of its type.

struct Params { p0: u32, p1: u32, p2: u32, p3: u32 }

@group(0) @binding(0) var<storage, read_write> out_f: array<f32>;
@group(0) @binding(0) var<storage, read_write> out_u: array<u32>;
@group(0) @binding(0) var<storage, read_write> out_u4: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> in1_f: array<f32>;
@group(0) @binding(1) var<storage, read> in1_u: array<u32>;
@group(0) @binding(1) var<storage, read> in1_u4: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> in2_f: array<f32>;
@group(0) @binding(3) var<storage, read> in3_f: array<f32>;
var<immediate> params: Params;

// A dimension of a dispatch may be too short for all items, so there are two.
fn item(group: vec3<u32>, n_groups: vec3<u32>, local: u32) -> u32 {
    return (group.y * n_groups.x + group.x) * 64u + local;
}

@compute @workgroup_size(64)
fn saxpy(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    out_f[i] = f32(params.p1) / 256.0 * in1_f[i] + in2_f[i];
}

@compute @workgroup_size(64)
fn sum(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    var total = 0.0;
    for (var at = i; at < params.p1; at += params.p0) { total += in1_f[at]; }
    out_f[i] = total;
}

@compute @workgroup_size(64)
fn matmul(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    let n_tiles = params.p1 / 4u;
    let row = i / n_tiles * 4u;
    let column = i % n_tiles * 4u;
    var t0 = vec4<f32>();
    var t1 = vec4<f32>();
    var t2 = vec4<f32>();
    var t3 = vec4<f32>();
    for (var k = 0u; k < params.p1; k++) {
        let at = k * params.p1 + column;
        let right = vec4<f32>(in2_f[at], in2_f[at + 1u], in2_f[at + 2u], in2_f[at + 3u]);
        t0 += in1_f[row * params.p1 + k] * right;
        t1 += in1_f[(row + 1u) * params.p1 + k] * right;
        t2 += in1_f[(row + 2u) * params.p1 + k] * right;
        t3 += in1_f[(row + 3u) * params.p1 + k] * right;
    }
    let at = row * params.p1 + column;
    let down = params.p1;
    out_f[at] = t0.x; out_f[at + 1u] = t0.y; out_f[at + 2u] = t0.z; out_f[at + 3u] = t0.w;
    out_f[at + down] = t1.x; out_f[at + down + 1u] = t1.y; out_f[at + down + 2u] = t1.z; out_f[at + down + 3u] = t1.w;
    out_f[at + 2u * down] = t2.x; out_f[at + 2u * down + 1u] = t2.y; out_f[at + 2u * down + 2u] = t2.z; out_f[at + 2u * down + 3u] = t2.w;
    out_f[at + 3u * down] = t3.x; out_f[at + 3u * down + 1u] = t3.y; out_f[at + 3u * down + 2u] = t3.z; out_f[at + 3u * down + 3u] = t3.w;
}

@compute @workgroup_size(64)
fn blur(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    let width = i32(params.p1);
    let height = i32(params.p2);
    let x = i32(i % params.p1);
    let y = i32(i / params.p1);
    var even = 0u;
    var odd = 0u;
    for (var dy = -1; dy <= 1; dy++) {
        for (var dx = -1; dx <= 1; dx++) {
            let column = clamp(x + dx, 0, width - 1);
            let row = clamp(y + dy, 0, height - 1);
            let weight = select(1u, 2u, dx == 0) * select(1u, 2u, dy == 0);
            let pixel = in1_u[u32(row) * params.p1 + u32(column)];
            even += (pixel & 0x00ff00ffu) * weight;
            odd += ((pixel >> 8u) & 0x00ff00ffu) * weight;
        }
    }
    out_u[i] = ((even >> 4u) & 0x00ff00ffu) | (((odd >> 4u) & 0x00ff00ffu) << 8u);
}

@compute @workgroup_size(64)
fn fma_chain(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    let b = in2_f[0];
    let c = in2_f[1];
    var low = vec4<f32>(in1_f[i]) + vec4<f32>(0.0, 1.0, 2.0, 3.0);
    var high = vec4<f32>(in1_f[i]) + vec4<f32>(4.0, 5.0, 6.0, 7.0);
    for (var k = 0u; k < params.p1; k++) {
        low = low * b + c;
        high = high * b + c;
    }
    out_f[i] = low.x + low.y + low.z + low.w + high.x + high.y + high.z + high.w;
}

@compute @workgroup_size(64)
fn copy(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    out_u4[i] = in1_u4[i];
}

@compute @workgroup_size(64)
fn place(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    out_f[params.p1 + i] = in1_f[i];
}

@compute @workgroup_size(64)
fn matvec_q8(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let row = item(g, n, l);
    if row >= params.p0 { return; }
    let n_blocks = params.p1 / 32u;
    var total = 0.0;
    for (var block = 0u; block < n_blocks; block++) {
        var part = 0.0;
        for (var w = 0u; w < 8u; w++) {
            let word = in1_u[(row * n_blocks + block) * 8u + w];
            let at = block * 32u + w * 4u;
            part += f32(bitcast<i32>(word << 24u) >> 24u) * in3_f[at];
            part += f32(bitcast<i32>(word << 16u) >> 24u) * in3_f[at + 1u];
            part += f32(bitcast<i32>(word << 8u) >> 24u) * in3_f[at + 2u];
            part += f32(bitcast<i32>(word) >> 24u) * in3_f[at + 3u];
        }
        total += part * in2_f[row * n_blocks + block];
    }
    out_f[row] = total;
}

@compute @workgroup_size(64)
fn rms_norm(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    var squares = 0.0;
    for (var at = 0u; at < params.p0; at++) { squares += in1_f[at] * in1_f[at]; }
    out_f[i] = in1_f[i] / sqrt(squares / f32(params.p0) + 1e-5);
}

@compute @workgroup_size(64)
fn attend(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    let head = i / params.p2 * params.p2;
    var largest = -1e30;
    var weight_sum = 0.0;
    var total = 0.0;
    for (var turn = 0u; turn < 2u; turn++) {
        for (var position = 0u; position < params.p1; position++) {
            var score = 0.0;
            for (var d = 0u; d < params.p2; d++) {
                score += in1_f[head + d] * in2_f[position * params.p0 + head + d];
            }
            score /= sqrt(f32(params.p2));
            if turn == 0u {
                largest = max(largest, score);
            } else {
                let weight = exp(score - largest);
                weight_sum += weight;
                total += weight * in3_f[position * params.p0 + i];
            }
        }
    }
    out_f[i] = total / weight_sum;
}

@compute @workgroup_size(64)
fn swiglu(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    out_f[i] = in1_f[i] / (1.0 + exp(-in1_f[i])) * in2_f[i];
}

@compute @workgroup_size(64)
fn add(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, n, l);
    if i >= params.p0 { return; }
    out_f[i] = in1_f[i] + in2_f[i];
}
