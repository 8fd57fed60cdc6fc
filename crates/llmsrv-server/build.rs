//! Compresses the files of the web app, and gives them a common version by their contents.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new("src/web");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        names.extend(name.to_str().map(str::to_owned));
    }
    names.sort();
    let mut files = Vec::new();
    let mut hasher = DefaultHasher::new();
    for name in names {
        let text = fs::read_to_string(folder.join(&name))?;
        (&name, &text).hash(&mut hasher);
        files.push((name, text));
    }
    let version = format!("{:016x}", hasher.finish());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut code =
        format!("const VERSION: &str = {version:?};\nconst FILES: &[(&str, &[u8])] = &[\n");
    for (name, text) in &files {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(text.replace("@VERSION@", &version).as_bytes())?;
        let compressed = format!("{name}.gz");
        fs::write(out.join(&compressed), gzip.finish()?)?;
        writeln!(
            code,
            "({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/\", {compressed:?}))),"
        )?;
    }
    code.push_str("];\n");
    fs::write(out.join("web.rs"), code)?;
    Ok(())
}
