//! Man pages, completions and the settings reference are in step with the program.

use std::{collections::BTreeMap, fs, path::Path};

use crate::util::Sandbox;

#[test]
fn committed_files_are_what_the_program_generates() {
    let sandbox = Sandbox::new();
    let out = sandbox.path().join("out");
    sandbox
        .run(&["generate", "--out", out.to_str().unwrap()])
        .ok();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fresh = files(&out);
    assert!(fresh.len() > 15, "{:?}", fresh.keys());
    for (name, text) in &fresh {
        let committed = fs::read_to_string(root.join(name)).unwrap_or_default();
        assert!(
            *text == committed,
            "{name} is out of step: run `cargo run -- generate --out .`"
        );
    }
    for folder in ["man", "completions"] {
        for name in files(&root.join(folder)).into_keys() {
            assert!(
                fresh.contains_key(&format!("{folder}/{name}")),
                "{folder}/{name} is not generated any more"
            );
        }
    }
}

/// Each option of each page says what it does.
#[test]
fn every_option_of_a_man_page_has_a_text() {
    let pages = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("man"));
    let mut n_options = 0;
    for (name, page) in pages {
        for part in page.split(".TP\n").skip(1) {
            let mut lines = part.lines();
            let option = lines.next().unwrap();
            let text = lines.next().unwrap_or_default();
            assert!(
                !text.is_empty() && !text.starts_with(".TP"),
                "{name}: {option}"
            );
            assert!(!text.starts_with(".SH"), "{name}: {option}");
            n_options += 1;
        }
    }
    assert!(n_options > 300, "{n_options}");
}

/// Relative path to content of every file below `dir`.
fn files(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}
