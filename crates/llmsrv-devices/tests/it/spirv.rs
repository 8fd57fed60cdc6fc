//! The kernels in WGSL compile to the SPIR-V in `src/compute/spirv`, one module for each.
//!
//! After a change: `GENERATE=1 cargo test -p llmsrv-devices --test it spirv`

use std::{collections::BTreeMap, error::Error, fs, path::Path};

use naga::{ShaderStage, back::spv, front::wgsl, valid};

use crate::committed::assert_committed;

#[test]
fn committed_modules_are_what_the_kernels_compile_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = "kernels/kernels.wgsl";
    let text = fs::read_to_string(root.join(source)).unwrap();
    let folder = root.join("src/compute/spirv");
    assert_committed(&folder, source, "pub(super)", modules(&text).unwrap());
}

/// Compiles all kernels; returns the words of each.
fn modules(source: &str) -> Result<BTreeMap<String, Vec<u32>>, Box<dyn Error>> {
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let mut validator = valid::Validator::new(
        valid::ValidationFlags::all(),
        valid::Capabilities::IMMEDIATES,
    );
    let info = validator.validate(&module)?;
    let options = spv::Options {
        // What every driver of Vulkan 1.1 takes.
        lang_version: (1, 3),
        force_loop_bounding: false,
        ..spv::Options::default()
    };
    let mut modules = BTreeMap::new();
    for entry in &module.entry_points {
        let pipeline = spv::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: entry.name.clone(),
        };
        let words = spv::write_vec(&module, &info, &options, Some(&pipeline))?;
        modules.insert(entry.name.clone(), words);
    }
    Ok(modules)
}
