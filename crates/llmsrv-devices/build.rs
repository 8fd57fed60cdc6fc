//! Compiles the kernels in WGSL to SPIR-V, one module for each, and writes the table of them.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use naga::{ShaderStage, back::spv, front::wgsl, valid};

const SOURCE: &str = "kernels/kernels.wgsl";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    let source = fs::read_to_string(SOURCE)?;
    let module = wgsl::parse_str(&source).map_err(|error| error.emit_to_string(&source))?;
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
    let mut table = "const SPIRV: &[(&str, &[u32])] = &[\n".to_owned();
    for entry in &module.entry_points {
        let pipeline = spv::PipelineOptions {
            shader_stage: ShaderStage::Compute,
            entry_point: entry.name.clone(),
        };
        let words = spv::write_vec(&module, &info, &options, Some(&pipeline))?;
        write!(table, "({:?}, &[", entry.name)?;
        for word in words {
            write!(table, "0x{:04x}_{:04x},", word >> 16, word & 0xffff)?;
        }
        writeln!(table, "]),")?;
    }
    table += "];\n";
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("spirv.rs"), table)?;
    Ok(())
}
