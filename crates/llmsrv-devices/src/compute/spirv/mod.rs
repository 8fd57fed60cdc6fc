//! Made from `kernels/kernels.wgsl` by `tests/it/spirv.rs`.

/// All modules one after another, compressed with zstd: most of what they say is the same.
pub(super) const PACKED: &[u8] = include_bytes!("modules.zst");

/// The kernels as SPIR-V: name, and first byte and end of the module.
pub(super) const MODULES: &[(&str, std::ops::Range<usize>)] = &[
    ("add", 0..2024),
    ("attend", 2024..6644),
    ("blur", 6644..10716),
    ("copy", 10716..12536),
    ("fma_chain", 12536..16056),
    ("matmul", 16056..22052),
    ("matvec_q8", 22052..26476),
    ("place", 26476..28368),
    ("rms_norm", 28368..30952),
    ("saxpy", 30952..33108),
    ("sum", 33108..35476),
    ("swiglu", 35476..37640),
];
