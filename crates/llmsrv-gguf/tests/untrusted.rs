//! Files from strangers: every lie is named in one line, damage never panics, and reading costs no
//! more memory than the bytes that are there.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a counting allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    path::PathBuf,
};

use llmsrv_gguf::{Array, GgufFile, Header, Metadata, StringArray, TensorType, Value, Writer};
use proptest::prelude::*;

/// Counts what one thread asks for.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn embedded() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../assets/embedded/model.gguf")
}

fn parse(bytes: &[u8]) -> Result<Header, llmsrv_gguf::Error> {
    Header::parse(bytes, bytes.len() as u64)
}

/// A sound little file: two keys, two tensors.
fn small() -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("tokenizer.ggml.tokens", vec!["a", "b"]);
    let mut writer = Writer::new(metadata);
    writer
        .tensor("w", &[32, 2], TensorType::Q8_0, vec![7; 68])
        .unwrap();
    writer
        .tensor("n", &[4], TensorType::F32, vec![1; 16])
        .unwrap();
    writer.to_bytes().unwrap()
}

/// Puts bytes in place of others, counted from where `after` ends.
fn patched(after: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = small();
    let at = file
        .windows(after.len())
        .position(|window| window == after)
        .unwrap()
        + after.len()
        + offset;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// A type from the future is no reason not to show, list or copy a file.
#[test]
fn tensors_of_unknown_type_are_known_by_name_and_place() {
    let bytes = patched(b"\x01\0\0\0\0\0\0\0w", 20, &777_u32.to_le_bytes());
    let header = parse(&bytes).unwrap();
    let [tensor, next] = &header.tensors[..] else {
        panic!("two tensors");
    };
    assert_eq!(tensor.dtype, TensorType::Unknown(777));
    assert_eq!(tensor.dtype.id(), 777);
    assert_eq!(tensor.dtype.to_string(), "number 777, which is not known");
    assert_eq!(tensor.shape, [32, 2]);
    assert_eq!(tensor.offset + tensor.bytes, next.offset);
    // Nothing can be written of what is not understood.
    let mut writer = Writer::new(Metadata::new());
    let written = writer.tensor("w", &tensor.shape, tensor.dtype, vec![0; 68]);
    assert!(written.is_err());
    // The last one ends with the file.
    let bytes = patched(b"\x01\0\0\0\0\0\0\0n", 12, &777_u32.to_le_bytes());
    let header = parse(&bytes).unwrap();
    let last = header.tensor("n").unwrap();
    assert_eq!(last.offset + last.bytes, bytes.len() as u64);
    // It must still begin within the file.
    let huge = (u64::MAX / 3) & !31;
    let mut bytes = bytes;
    let at = bytes.len() - 16 - 8;
    let name = bytes.windows(9).position(|w| w == b"\x01\0\0\0\0\0\0\0n");
    let offset = name.unwrap() + 9 + 4 + 8 + 4;
    assert!(offset < at);
    bytes[offset..offset + 8].copy_from_slice(&huge.to_le_bytes());
    assert!(parse(&bytes).is_err());
}

#[test]
fn lies_are_named_in_one_line() {
    let huge = u64::MAX / 3;
    // After the name of a tensor: dimensions (4 bytes), sizes (8 each), type (4), offset (8).
    let cases = [
        (b"GGML".to_vec(), "not a GGUF file"),
        (
            patched(b"GGUF", 0, &1_u32.to_le_bytes()),
            "GGUF version 1 is not supported",
        ),
        (
            patched(b"GGUF", 0, &3_u32.to_be_bytes()),
            "big-endian files are not",
        ),
        (
            patched(b"GGUF", 4, &huge.to_le_bytes()),
            "tensors are announced",
        ),
        (
            patched(b"GGUF", 12, &huge.to_le_bytes()),
            "keys are announced",
        ),
        (
            patched(b"GGUF", 20, &huge.to_le_bytes()),
            "the file ends inside key 0",
        ),
        (
            patched(b"general.architecture", 0, &99_u32.to_le_bytes()),
            "key `general.architecture` has the unknown type 99",
        ),
        (
            patched(b"general.architecture", 4, &huge.to_le_bytes()),
            "the file ends inside key `general.architecture`",
        ),
        (patched(b"GGUF", 28, b"\xff"), "key 0 is not UTF-8 text"),
        (
            patched(b"ggml.tokens", 8, &huge.to_le_bytes()),
            "strings are announced",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 0, &0_u32.to_le_bytes()),
            "tensor `w` has 0 dimensions",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 0, &5_u32.to_le_bytes()),
            "tensor `w` has 5 dimensions",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 4, &31_u64.to_le_bytes()),
            "tensor `w` of type Q8_0 cannot have shape [31, 2]",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 12, &huge.to_le_bytes()),
            "cannot have shape",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 12, &64_u64.to_le_bytes()),
            "the file ends inside tensor `w`",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 24, &8_u64.to_le_bytes()),
            "tensor `w` is not aligned",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0w", 24, &(huge & !31).to_le_bytes()),
            "the file ends inside tensor `w`",
        ),
        (
            patched(b"\x01\0\0\0\0\0\0\0n", 16, &32_u64.to_le_bytes()),
            "overlap",
        ),
        (
            patched(b"b\x01\0\0\0\0\0\0\0", 0, b"n"),
            "tensor `n` appears twice",
        ),
    ];
    for (file, says) in cases {
        let text = parse(&file).unwrap_err().to_string();
        assert!(
            text.contains(says) && !text.contains('\n') && text.len() < 300,
            "{says}: {text}"
        );
    }
    assert!(parse(&small()).is_ok());
}

/// A header of `n_keys` keys, which `write` writes.
fn header_of(n_keys: u64, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = [b"GGUF".as_slice(), &3_u32.to_le_bytes()].concat();
    file.extend(0_u64.to_le_bytes());
    file.extend(n_keys.to_le_bytes());
    write(&mut file);
    file
}

/// A key's name and the type of its value.
fn key(file: &mut Vec<u8>, name: &str, kind: u32) {
    file.extend((name.len() as u64).to_le_bytes());
    file.extend(name.as_bytes());
    file.extend(kind.to_le_bytes());
}

#[test]
fn headers_have_upper_bounds() {
    let keys = |n: u64| {
        header_of(n, |file| {
            for index in 0..n {
                key(file, &format!("{index:07}"), 0);
                file.push(1);
            }
        })
    };
    let most = keys(1 << 16);
    let before = ASKED.get();
    assert_eq!(parse(&most).unwrap().metadata.len(), 1 << 16);
    let asked = ASKED.get() - before;
    // Two names, a value, and a place in a table that doubles as it grows.
    assert!(
        asked < 400 << 16,
        "{asked} bytes for a file of {}",
        most.len()
    );
    let text = parse(&keys((1 << 16) + 1)).unwrap_err().to_string();
    assert!(
        text.contains("65537 keys") && text.contains("at most 65536"),
        "{text}"
    );

    // Arrays of empty arrays of numbers.
    let arrays = |n: u64| {
        header_of(1, |file| {
            key(file, "a", 9);
            file.extend(9_u32.to_le_bytes());
            file.extend(n.to_le_bytes());
            for _ in 0..n {
                file.extend(0_u32.to_le_bytes());
                file.extend(0_u64.to_le_bytes());
            }
        })
    };
    assert!(parse(&arrays(1 << 16)).is_ok());
    let text = parse(&arrays((1 << 16) + 1)).unwrap_err().to_string();
    assert!(text.contains("arrays"), "{text}");

    let mut tensors = header_of(0, |file| file.resize(64 << 16, 0));
    tensors[8..16].copy_from_slice(&((1_u64 << 16) + 1).to_le_bytes());
    let text = parse(&tensors).unwrap_err().to_string();
    assert!(text.contains("65537 tensors"), "{text}");

    // A text that the file holds but the header may not.
    let start = header_of(1, |file| {
        key(file, "a", 8);
        file.extend((256_u64 << 20).to_le_bytes());
    });
    let mut long = vec![0; start.len() + (256 << 20)];
    long[..start.len()].copy_from_slice(&start);
    let text = parse(&long).unwrap_err().to_string();
    assert!(text.contains("larger than 256 MiB"), "{text}");
}

#[test]
fn things_that_are_no_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    for path in [
        folder.path().to_owned(),
        folder.path().join("nothing"),
        empty,
    ] {
        assert!(GgufFile::open(&path).is_err(), "{}", path.display());
    }
}

#[test]
fn the_embedded_model_is_read_whole() {
    let file = GgufFile::open(&embedded()).unwrap();
    assert_eq!(file.metadata().architecture(), Some("llama"));
    assert_eq!(file.header().file_type_name(), "Q8_0");
    let n_tokens = file
        .metadata()
        .strings("tokenizer.ggml.tokens")
        .unwrap()
        .len() as u64;
    let table = file.tensor("token_embd.weight").unwrap();
    assert_eq!(table.n_rows(), n_tokens);
    assert_eq!(file.data(table).len() as u64, table.bytes);
    assert!(file.header().parameter_count() > 1_000_000);
}

fn value() -> impl Strategy<Value = Value> {
    let array = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Array::U8),
        prop::collection::vec(any::<i32>(), 0..9).prop_map(Array::I32),
        prop::collection::vec(-1e9_f32..1e9, 0..9).prop_map(Array::F32),
        prop::collection::vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..9)
            .prop_map(|strings| Array::Strings(strings.into_iter().collect::<StringArray>())),
    ];
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<bool>().prop_map(Value::Bool),
        (-1e9_f64..1e9).prop_map(Value::F64),
        ".{0,9}".prop_map(Value::String),
        array.clone().prop_map(Value::Array),
        prop::collection::vec(array, 0..3).prop_map(|arrays| Value::Array(Array::Nested(arrays))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn what_was_written_is_read(
        values in prop::collection::btree_map("[a-z.]{1,12}", value(), 0..8),
        rows in prop::collection::vec(1_u64..5, 0..4),
    ) {
        let mut metadata = Metadata::new();
        for (key, value) in values {
            metadata.set(key, value);
        }
        let mut writer = Writer::new(metadata.clone());
        for (index, rows) in rows.iter().enumerate() {
            writer.tensor(&format!("t{index}"), &[32, *rows], TensorType::Q4_0, vec![index as u8; 18 * *rows as usize]).unwrap();
        }
        let bytes = writer.to_bytes().unwrap();
        let header = parse(&bytes).unwrap();
        prop_assert_eq!(&header.metadata, &metadata);
        for (index, (tensor, rows)) in header.tensors.iter().zip(&rows).enumerate() {
            prop_assert_eq!(&tensor.shape, &[32, *rows]);
            let data = &bytes[tensor.offset as usize..(tensor.offset + tensor.bytes) as usize];
            prop_assert!(data.len() == 18 * *rows as usize && data.iter().all(|byte| *byte == index as u8));
        }
    }

    #[test]
    fn damage_is_survived_within_bounds(
        changes in prop::collection::vec((0_usize..70_000, any::<u8>()), 0..12), cut in 0_usize..70_000, whole in any::<bool>(),
    ) {
        // Keys, the vocabulary and its merges lie at the front.
        let mut bytes = std::fs::read(embedded()).unwrap();
        bytes.truncate(if whole { bytes.len() } else { cut });
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let before = ASKED.get();
        let parsed = parse(&bytes);
        let asked = ASKED.get() - before;
        prop_assert!(asked < 6 * bytes.len() + 100_000, "{asked} bytes for a file of {}", bytes.len());
        if let Err(error) = parsed {
            let text = error.to_string();
            prop_assert!(!text.contains('\n') && text.len() < 400, "{text}");
        }
    }
}
