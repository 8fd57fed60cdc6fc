//! The kernels in WGSL compile to the SPIR-V in `src/compute/spirv`, one module for each.
//!
//! After a change: `GENERATE=1 cargo test -p llmsrv-devices --test it spirv`

use std::{collections::BTreeMap, error::Error, fmt::Write as _, fs, path::Path};

use naga::{ShaderStage, back::spv, front::wgsl, valid};

#[test]
fn committed_modules_are_what_the_kernels_compile_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("src/compute/spirv");
    let source = fs::read_to_string(root.join("kernels/kernels.wgsl")).unwrap();
    let mut files = BTreeMap::new();
    let mut table =
        "//! Made from `kernels/kernels.wgsl` by `tests/it/spirv.rs`.\n\n/// The kernels as SPIR-V: name and module.\n\
        pub(super) const SPIRV: &[(&str, &[u8])] = &[\n"
            .to_owned();
    for (name, words) in modules(&source).unwrap() {
        writeln!(table, "    ({name:?}, include_bytes!(\"{name}.spv\")),").unwrap();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        files.insert(folder.join(format!("{name}.spv")), bytes);
    }
    files.insert(folder.join("mod.rs"), (table + "];\n").into_bytes());
    if std::env::var_os("GENERATE").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for (path, bytes) in &files {
            fs::write(path, bytes).unwrap();
        }
    }
    for (path, bytes) in &files {
        let committed: Vec<u8> = fs::read(path).unwrap_or_default();
        assert!(
            committed == *bytes,
            "{} is out of step: GENERATE=1 cargo test -p llmsrv-devices --test it spirv",
            path.display()
        );
    }
    let n_there = fs::read_dir(&folder).unwrap().count();
    assert_eq!(n_there, files.len(), "a module is of no kernel any more");
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
