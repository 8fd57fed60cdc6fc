//! What was written is read, and the embedded model is what it should be.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use llmsrv_gguf::{Array, GgufFile, Header, Metadata, TensorType, Value, Writer};
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> Header {
    Header::parse(bytes, bytes.len() as u64).unwrap()
}

/// Any array, up to four arrays deep.
fn array() -> impl Strategy<Value = Array> {
    fn many<T: Arbitrary>() -> impl Strategy<Value = Vec<T>> {
        prop::collection::vec(any::<T>(), 0..9)
    }
    let leaf = prop_oneof![
        many().prop_map(Array::U8),
        many().prop_map(Array::I8),
        many().prop_map(Array::U16),
        many().prop_map(Array::I16),
        many().prop_map(Array::U32),
        many().prop_map(Array::I32),
        many().prop_map(Array::F32),
        many().prop_map(Array::Bool),
        many().prop_map(Array::U64),
        many().prop_map(Array::I64),
        many().prop_map(Array::F64),
        many::<Vec<u8>>().prop_map(|strings| Array::Strings(strings.into_iter().collect())),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Array::Nested)
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
        array().prop_map(Value::Array),
    ]
}

/// A type, a shape whose rows are whole blocks, and the byte that fills the data.
fn tensor() -> impl Strategy<Value = (TensorType, Vec<u64>, u8)> {
    let shape = (1_u64..3, prop::collection::vec(1_u64..4, 0..4));
    (prop::sample::select(TensorType::ALL), shape, any::<u8>()).prop_map(
        |(dtype, (blocks, rest), fill)| {
            let row = blocks * dtype.block_len() as u64;
            (dtype, [vec![row], rest].concat(), fill)
        },
    )
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        values in prop::collection::hash_map(any::<String>(), value(), 0..8),
        alignment in prop::option::of(prop::sample::select(&[1_u32, 8, 32, 256, 4096])),
        tensors in prop::collection::hash_map(any::<String>(), tensor(), 0..6),
    ) {
        let mut metadata = Metadata::new();
        for (key, value) in values {
            metadata.set(key, value);
        }
        if let Some(alignment) = alignment {
            metadata.set("general.alignment", alignment);
        }
        let mut writer = Writer::new(metadata.clone());
        for (name, (dtype, shape, fill)) in &tensors {
            let n_bytes = dtype.bytes_for(shape.iter().product()).unwrap() as usize;
            writer.tensor(name, shape, *dtype, vec![*fill; n_bytes]).unwrap();
        }

        let bytes = writer.to_bytes().unwrap();
        let header = parse(&bytes);
        prop_assert_eq!(header.version, 3);
        prop_assert_eq!(&header.metadata, &metadata);
        prop_assert!(header.metadata.iter().eq(metadata.iter()), "the order of keys");
        prop_assert_eq!(header.alignment, u64::from(alignment.unwrap_or(32)));
        prop_assert_eq!(header.tensors.len(), tensors.len());
        for (read, (name, (dtype, shape, fill))) in header.tensors.iter().zip(&tensors) {
            prop_assert_eq!((&read.name, read.dtype, &read.shape), (name, *dtype, shape));
            let data = &bytes[read.offset as usize..(read.offset + read.bytes) as usize];
            prop_assert!(data.iter().all(|byte| byte == fill));
        }
        let n_elements: u64 = tensors.values().map(|(_, shape, _)| shape.iter().product::<u64>()).sum();
        prop_assert_eq!(header.parameter_count(), n_elements);
        prop_assert_eq!(writer.to_bytes().unwrap(), bytes);
    }
}

#[test]
fn version_2_is_the_same() {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    let mut bytes = Writer::new(metadata).to_bytes().unwrap();
    bytes[4] = 2;
    let header = parse(&bytes);
    assert_eq!(header.version, 2);
    assert_eq!(header.metadata.architecture(), Some("llama"));
}

#[test]
fn the_mix_is_named_as_declared_or_by_its_largest_type() {
    let both = [("a", TensorType::F32, 64), ("b", TensorType::Q8_0, 96)];
    let cases: [(Option<u32>, &[_], &str); 6] = [
        (Some(15), &both, "Q4_K_M"),
        (Some(0), &both, "F32"),
        (Some(1000), &both, "Q8_0"),
        (None, &both, "Q8_0"),
        (None, &both[..1], "F32"),
        (None, &[], "unknown"),
    ];
    for (declared, tensors, name) in cases {
        let mut metadata = Metadata::new();
        if let Some(declared) = declared {
            metadata.set("general.file_type", declared);
        }
        let mut writer = Writer::new(metadata);
        for (name, dtype, n_elements) in tensors {
            let n_bytes = dtype.bytes_for(*n_elements).unwrap() as usize;
            writer
                .tensor(name, &[*n_elements], *dtype, vec![0; n_bytes])
                .unwrap();
        }
        let header = parse(&writer.to_bytes().unwrap());
        assert_eq!(header.file_type_name(), name);
    }
}

#[test]
fn what_cannot_be_read_is_not_written() {
    let cases: [(&str, &[u64], usize, &str); 7] = [
        ("a", &[32, 0], 0, "no elements"),
        ("a", &[], 0, "one to four dimensions"),
        ("a", &[32, 1, 1, 1, 1], 34, "one to four dimensions"),
        ("a", &[31], 34, "does not fit"),
        ("a", &[32], 33, "does not fit"),
        ("a", &[32, u64::MAX], 34, "does not fit"),
        ("there", &[32], 34, "there already"),
    ];
    let mut writer = Writer::new(Metadata::new());
    writer
        .tensor("there", &[32], TensorType::Q8_0, vec![0; 34])
        .unwrap();
    for (name, shape, n_bytes, says) in cases {
        let text = writer
            .tensor(name, shape, TensorType::Q8_0, vec![0; n_bytes])
            .unwrap_err()
            .to_string();
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn the_embedded_model_is_read_whole() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../assets/embedded/model.gguf");
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.len(), std::fs::metadata(&path).unwrap().len());
    assert_eq!(file.metadata().architecture(), Some("llama"));
    assert_eq!(file.header().file_type_name(), "Q8_0");
    assert!((1_000_000..10_000_000).contains(&file.header().parameter_count()));
    let tokens = file.metadata().strings("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.len(), 4096);
    assert!(tokens.iter().all(|token| !token.is_empty()));
    assert_eq!(file.tensor("token_embd.weight").unwrap().n_rows(), 4096);
    for tensor in &file.header().tensors {
        let data = file.data(tensor);
        assert_eq!(data.len() as u64, tensor.bytes, "{}", tensor.name);
        assert!(data.iter().any(|byte| *byte != 0), "{}", tensor.name);
    }

    // A description of another file gives no bytes.
    let mut foreign = file.header().tensors[0].clone();
    foreign.offset = u64::MAX - 1;
    assert!(file.data(&foreign).is_empty());
    assert!(file.tensor("no such tensor").is_none());
}
