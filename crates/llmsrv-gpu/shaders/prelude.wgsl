// What all kernels begin with. `fma` is fused or not, as the driver likes; no other product is ever joined with a sum,
// nor are sums reordered (tests/it/spirv.rs decorates them).

// Workgroups come in two dimensions, because one may be too short.
fn flat(group: vec3<u32>, n_groups: vec3<u32>) -> u32 {
    return group.y * n_groups.x + group.x;
}

// exp(x) = 2^n * exp(r); the polynomial of Cephes, as on the CPU. Above 88 it is that of 88, below -87 it is 0. Without
// `fma`: drivers have been seen to put the two steps to `r` into one, which loses its digits.
fn exponential(x: f32) -> f32 {
    let bounded = min(x, 88.0);
    let shifted = bounded * 1.442695 + 12582912.0;
    let n = shifted - 12582912.0;
    let r = (bounded - n * 0.693359375) + n * 2.12194440e-4;
    var sum = 1.9875691500e-4;
    sum = sum * r + 1.3981999507e-3;
    sum = sum * r + 8.3334519073e-3;
    sum = sum * r + 4.1665795894e-2;
    sum = sum * r + 1.6666665459e-1;
    sum = sum * r + 5.0000001201e-1;
    let of_r = sum * (r * r) + (r + 1.0);
    let exponent = bitcast<u32>(shifted) - (bitcast<u32>(12582912.0) - 127u);
    let value = of_r * bitcast<f32>(exponent << 23u);
    return select(value, 0.0, x < -87.0);
}

const SILU = 0u;
const GELU = 1u;
const CLAMPED_SWIGLU = 2u;
const RELU_SQUARED = 3u;
const SIGMOID = 4u;
const TANH = 5u;
const IDENTITY = 6u;
const RELU = 7u;

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
        case IDENTITY: { return x; }
        case RELU: { return max(x, 0.0); }
        case TANH: { return 1.0 - 2.0 / (exponential(2.0 * x) + 1.0); }
        default: { return 1.0 / (1.0 + exponential(-x)); }
    }
}
// What a gate lets through of `up`.
fn gated_by(kind: u32, gate: f32, up: f32) -> f32 {
    if kind == CLAMPED_SWIGLU { return activated(kind, gate) * (clamp(up, -7.0, 7.0) + 1.0); }
    return activated(kind, gate) * up;
}
