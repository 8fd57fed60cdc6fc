// Operations on single elements, one lane each.

struct Params { n: u32, width: u32, first: u32, stride: u32, kind: u32, scale: f32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(0) var<storage, read_write> out_bits: array<u32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> y_bits: array<u32>;
@group(0) @binding(2) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> factors: array<f32>;
@group(0) @binding(3) var<storage, read> second: array<f32>;
@group(0) @binding(4) var<storage, read> third: array<f32>;
@group(0) @binding(5) var<storage, read> fourth: array<f32>;

fn item(g: vec3<u32>, groups: vec3<u32>, lane: u32) -> u32 { return flat(g, groups) * 64u + lane; }

@compute @workgroup_size(64)
fn gated(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out[i] = gated_by(p.kind, out[i], y[i]);
}
@compute @workgroup_size(64)
fn activate(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out[i] = activated(p.kind, out[i]);
}
@compute @workgroup_size(64)
fn add(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out[i] = out[i] + p.scale * y[i];
}
// Row r times y[r], or times the sigmoid of that.
@compute @workgroup_size(64)
fn scale_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    var factor = y[i / p.width];
    if p.kind == SIGMOID { factor = activated(SIGMOID, factor); }
    out[i] = out[i] * factor;
}
@compute @workgroup_size(64)
fn zero(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out_bits[i] = 0u;
}
// `width` columns from `first` on of rows of `stride`.
@compute @workgroup_size(64)
fn columns(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out_bits[i] = y_bits[i / p.width * p.stride + p.first + i % p.width];
}
// The other way round: all columns of `y` go there.
@compute @workgroup_size(64)
fn put_columns(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out_bits[i / p.width * p.stride + p.first + i % p.width] = y_bits[i];
}
// Between the number whose bits `first` has and `scale`.
@compute @workgroup_size(64)
fn bound(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out[i] = min(max(out[i], bitcast<f32>(p.first)), p.scale);
}
@compute @workgroup_size(64)
fn gather_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out_bits[i] = y_bits[indices[i / p.width] * p.width + i % p.width];
}
// Column c times factors[c].
@compute @workgroup_size(64)
fn scale_columns(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out[i] = y[i] * factors[i % p.width];
}
const MORE = 8u;
// The sum of up to four tensors, each row times a factor of its own: from `first` on in rows of `stride`. With MORE it is
// added to what is there; the rest of `kind` says how many.
@compute @workgroup_size(64)
fn weighted_sum(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    let at = i / p.width * p.stride + p.first;
    let n = p.kind & (MORE - 1u);
    var sum = 0.0;
    if (p.kind & MORE) != 0u { sum = out[i]; }
    sum += factors[at] * y[i];
    if n > 1u { sum += factors[at + 1u] * second[i]; }
    if n > 2u { sum += factors[at + 2u] * third[i]; }
    if n > 3u { sum += factors[at + 3u] * fourth[i]; }
    out[i] = sum;
}
// How much streams count in others: of `stride` scores of a row, each the last number of its `stride` + 1 in `factors`, and
// the others times the hyperbolic tangents of the scores.
@compute @workgroup_size(64)
fn stream_factors(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    let scores = i / p.width * p.stride;
    let at = i % p.width * (p.stride + 1u);
    var sum = 0.0;
    for (var k = 0u; k < p.stride; k++) { sum += factors[at + k] * activated(TANH, y[scores + k]); }
    out[i] = factors[at + p.stride] + sum;
}
// No row is named twice.
@compute @workgroup_size(64)
fn add_to_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    let at = indices[i / p.width] * p.width + i % p.width;
    out[at] = out[at] + y[i];
}
