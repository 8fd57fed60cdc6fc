// Operations on single elements, one lane each.

struct Params { n: u32, width: u32, first: u32, stride: u32, kind: u32, scale: f32 }
var<immediate> p: Params;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(0) var<storage, read_write> out_bits: array<u32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> y_bits: array<u32>;
@group(0) @binding(2) var<storage, read> indices: array<u32>;

fn item(g: vec3<u32>, groups: vec3<u32>, lane: u32) -> u32 { return flat(g, groups) * 64u + lane; }

const SILU = 0u;
const GELU = 1u;
const CLAMPED_SWIGLU = 2u;
const RELU_SQUARED = 3u;
const SIGMOID = 4u;
const TANH = 5u;

// The GELU is the tanh approximation: x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)).
fn activated(kind: u32, x: f32) -> f32 {
    switch kind {
        case SILU: { return x / (1.0 + exponential(-x)); }
        case GELU: { return x / (1.0 + exponential(-1.5957691 * (x + 0.044715 * x * x * x))); }
        case CLAMPED_SWIGLU: {
            let bounded = min(x, 7.0);
            return bounded / (1.0 + exponential(-1.702 * bounded));
        }
        case RELU_SQUARED: { return max(x, 0.0) * max(x, 0.0); }
        case TANH: { return 1.0 - 2.0 / (exponential(2.0 * x) + 1.0); }
        default: { return 1.0 / (1.0 + exponential(-x)); }
    }
}

@compute @workgroup_size(64)
fn gated(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    var up = y[i];
    if p.kind == CLAMPED_SWIGLU { up = clamp(up, -7.0, 7.0) + 1.0; }
    out[i] = activated(p.kind, out[i]) * up;
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
@compute @workgroup_size(64)
fn gather_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    out_bits[i] = y_bits[indices[i / p.width] * p.width + i % p.width];
}
// No row is named twice.
@compute @workgroup_size(64)
fn add_to_rows(@builtin(workgroup_id) g: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) l: u32) {
    let i = item(g, groups, l);
    if i >= p.n { return; }
    let at = indices[i / p.width] * p.width + i % p.width;
    out[at] = out[at] + y[i];
}
