//! SPIR-V that is committed, compared with what the kernels compile to.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

/// Compares the files of `folder`, a module of the crate, with `modules`: a file of SPIR-V for each, and the table of
/// them. `source` is what they are made from, `visibility` that of the table. With `GENERATE` in the environment the
/// files are written anew first.
pub(crate) fn assert_committed(
    folder: &Path,
    source: &str,
    visibility: &str,
    modules: BTreeMap<String, Vec<u32>>,
) {
    let mut files = BTreeMap::new();
    let mut table = format!(
        "//! Made from `{source}` by `tests/it/spirv.rs`.\n\n/// The kernels as SPIR-V: name and module.\n\
         {visibility} const SPIRV: &[(&str, &[u8])] = &[\n"
    );
    for (name, words) in modules {
        writeln!(table, "    ({name:?}, include_bytes!(\"{name}.spv\")),").unwrap();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        files.insert(folder.join(format!("{name}.spv")), bytes);
    }
    files.insert(folder.join("mod.rs"), (table + "];\n").into_bytes());
    if std::env::var_os("GENERATE").is_some() {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap();
        for (path, bytes) in &files {
            fs::write(path, bytes).unwrap();
        }
    }
    for (path, bytes) in &files {
        let committed: Vec<u8> = fs::read(path).unwrap_or_default();
        assert!(
            committed == *bytes,
            "{} is out of step: run this test with GENERATE=1",
            path.display()
        );
    }
    let n_there = fs::read_dir(folder).unwrap().count();
    assert_eq!(n_there, files.len(), "a module is of no kernel any more");
}
