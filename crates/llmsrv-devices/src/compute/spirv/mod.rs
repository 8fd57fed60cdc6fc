//! Made from `kernels/kernels.wgsl` by `tests/it/spirv.rs`.

/// All modules one after another, compressed with zstd: most of what they say is the same.
pub(super) const PACKED: &[u8] = include_bytes!("modules.zst");

/// The kernels as SPIR-V: name, and first byte and end of the module.
pub(super) const MODULES: &[(&str, std::ops::Range<usize>)] = &[
    ("add", 0..2_024),
    ("attend", 2_024..6_644),
    ("blur", 6_644..10_716),
    ("copy", 10_716..12_536),
    ("fma_chain", 12_536..16_056),
    ("matmul", 16_056..22_052),
    ("matvec_q8", 22_052..26_476),
    ("place", 26_476..28_368),
    ("rms_norm", 28_368..30_952),
    ("saxpy", 30_952..33_108),
    ("sum", 33_108..35_476),
    ("swiglu", 35_476..37_640),
];
