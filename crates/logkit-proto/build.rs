//! Compiles the definitions without an external compiler.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["proto/logkit.proto", "proto/otlp.proto"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection sends these to clients that ask what there is.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // `client` needs no transport of tonic's: the users bring a channel or turn on the feature.
        .build_transport(false)
        .codec_path("crate::codec::Bounded")
        .compile_fds(descriptors)?;
    Ok(())
}
