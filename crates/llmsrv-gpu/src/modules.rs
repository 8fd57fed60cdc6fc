//! The kernels as modules of SPIR-V.

use std::sync::OnceLock;

use crate::{
    Error,
    spirv::{MODULES, PACKED},
};

/// Returns the module of this kernel.
///
/// # Errors
/// [`Error::Unsupported`] where there is none of this name.
pub(crate) fn words(kernel: &str) -> Result<Vec<u32>, Error> {
    static UNPACKED: OnceLock<Vec<u8>> = OnceLock::new();
    // A test unpacks and compares what is committed: nothing is left to fail here.
    let all = UNPACKED.get_or_init(|| zstd::decode_all(PACKED).unwrap_or_default());
    let module = MODULES.iter().find(|(name, _)| *name == kernel);
    module
        .and_then(|(_, place)| all.get(place.clone()))
        .map(bytemuck::pod_collect_to_vec)
        .ok_or_else(|| Error::Unsupported(format!("there is no kernel {kernel}")))
}
