//! SPIR-V that is committed, compared with what the kernels compile to.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

/// Compares the files of `folder`, a module of the crate, with `modules`: `modules.zst`, which has all of them one after
/// another, and `mod.rs`, which says where each is. `source` is what they are made from, `visibility` that of both.
/// With `GENERATE` in the environment the files are written anew first.
pub(crate) fn assert_committed(
    folder: &Path,
    source: &str,
    visibility: &str,
    modules: BTreeMap<String, Vec<u32>>,
) {
    let mut table = format!(
        "//! Made from `{source}` by `tests/it/spirv.rs`.\n\n\
         /// All modules one after another, compressed with zstd: most of what they say is the same.\n\
         {visibility} const PACKED: &[u8] = include_bytes!(\"modules.zst\");\n\n\
         /// The kernels as SPIR-V: name, and first byte and end of the module.\n\
         {visibility} const MODULES: &[(&str, std::ops::Range<usize>)] = &[\n"
    );
    let mut all = Vec::new();
    for (name, words) in modules {
        let start = all.len();
        all.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let (start, end) = (grouped(start), grouped(all.len()));
        writeln!(table, "    ({name:?}, {start}..{end}),").unwrap();
    }
    table += "];\n";
    let (packed, module) = (folder.join("modules.zst"), folder.join("mod.rs"));
    if std::env::var_os("GENERATE").is_some() {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).unwrap();
        fs::write(&packed, zstd::encode_all(&all[..], 19).unwrap()).unwrap();
        fs::write(&module, &table).unwrap();
    }
    // What is packed counts, not what a version of zstd makes of it.
    let committed = zstd::decode_all(&*fs::read(packed).unwrap_or_default()).unwrap_or_default();
    let same = committed == all && fs::read_to_string(module).unwrap_or_default() == table;
    assert!(
        same,
        "{} is out of step: run this test with GENERATE=1",
        folder.display()
    );
}

/// A number with its digits in groups of three.
fn grouped(n: usize) -> String {
    if n < 1000 {
        return n.to_string();
    }
    format!("{}_{:03}", grouped(n / 1000), n % 1000)
}
