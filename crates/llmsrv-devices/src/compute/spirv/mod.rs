//! Made from `kernels/kernels.wgsl` by `tests/it/spirv.rs`.

/// The kernels as SPIR-V: name and module.
pub(super) const SPIRV: &[(&str, &[u8])] = &[
    ("add", include_bytes!("add.spv")),
    ("attend", include_bytes!("attend.spv")),
    ("blur", include_bytes!("blur.spv")),
    ("copy", include_bytes!("copy.spv")),
    ("fma_chain", include_bytes!("fma_chain.spv")),
    ("matmul", include_bytes!("matmul.spv")),
    ("matvec_q8", include_bytes!("matvec_q8.spv")),
    ("place", include_bytes!("place.spv")),
    ("rms_norm", include_bytes!("rms_norm.spv")),
    ("saxpy", include_bytes!("saxpy.spv")),
    ("sum", include_bytes!("sum.spv")),
    ("swiglu", include_bytes!("swiglu.spv")),
];
