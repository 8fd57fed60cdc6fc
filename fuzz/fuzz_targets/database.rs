//! Any bytes as a database that others wrote: read, searched and written to, or an error.
#![no_main]

use std::{fs, path::Path};

use libfuzzer_sys::fuzz_target;
use logkit::{
    DbSink, Durability, Entry, Sink,
    query::{Filter, Reader},
};

fn path() -> std::path::PathBuf {
    // In memory where there is such a folder: every input is a file.
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    };
    folder.join(format!("logkit-fuzz-{}.db", std::process::id()))
}

fn read(path: &Path) {
    let Ok(mut reader) = Reader::open(path, "logs") else {
        return;
    };
    let search = Filter {
        words: vec!["a".into()],
        limit: Some(10),
        ..Filter::default()
    };
    let _ = (
        reader.rows(&Filter::default()),
        reader.count(&search),
        reader.rows(&search),
    );
    let _ = (
        reader.last_id(),
        reader.stats(&Filter::default()),
        reader.after(0, 10),
    );
    reader.use_words();
    let _ = reader.rows(&search);
}

fuzz_target!(|bytes: &[u8]| {
    let path = path();
    for ending in ["-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(format!("{}{ending}", path.display()));
    }
    fs::write(&path, bytes).expect("the file can be written");
    read(&path);
    if let Ok(mut sink) = DbSink::open(&path, "logs", Durability::Buffered) {
        // Foreign triggers and the like may refuse it.
        let _ = sink.write_batch(&[Entry::default()]);
    }
    read(&path);
});
