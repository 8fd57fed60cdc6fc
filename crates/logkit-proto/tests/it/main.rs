//! The definitions compile to the code in `src/generated`, without an external compiler.
//!
//! After a change: `GENERATE=1 cargo test -p logkit-proto --test it`

use std::{fs, path::Path};

use prost::Message as _;

#[test]
fn committed_code_is_what_the_definitions_compile_to() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("proto");
    let files = ["logkit.proto", "otlp.proto"].map(|name| proto.join(name));
    let descriptors = protox::compile(files, [proto]).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    // Reflection sends these to clients that ask what there is.
    fs::write(
        fresh.path().join("descriptors.bin"),
        descriptors.encode_to_vec(),
    )
    .unwrap();
    tonic_prost_build::configure()
        // `client` needs no transport of tonic's: the users bring a channel or turn on the feature.
        .build_transport(false)
        .codec_path("crate::codec::Bounded")
        .out_dir(fresh.path())
        .compile_fds(descriptors)
        .unwrap();

    let generated = root.join("src/generated");
    let names = ["descriptors.bin", "logkit.rs", "logkit.otlp.rs"];
    for name in names {
        if std::env::var_os("GENERATE").is_some() {
            fs::create_dir_all(&generated).unwrap();
            fs::copy(fresh.path().join(name), generated.join(name)).unwrap();
        }
        let committed = fs::read(generated.join(name)).unwrap_or_default();
        assert!(
            committed == fs::read(fresh.path().join(name)).unwrap(),
            "{name} is out of step: GENERATE=1 cargo test -p logkit-proto --test it"
        );
    }
    assert_eq!(fs::read_dir(fresh.path()).unwrap().count(), names.len());
}
