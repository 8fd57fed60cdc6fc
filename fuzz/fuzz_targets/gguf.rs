//! Any bytes as a model file: an error or a header whose tensors lie within the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmsrv_gguf::Header;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::parse(bytes, bytes.len() as u64) else {
        return;
    };
    for tensor in &header.tensors {
        assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
        let _ = (
            tensor.n_elements(),
            tensor.n_rows(),
            tensor.row_len(),
            tensor.resident_bytes(),
            header.tensor(&tensor.name),
        );
    }
    for (key, value) in header.metadata.iter() {
        let metadata = &header.metadata;
        // The same value, not an equal one: NaN equals nothing.
        assert!(
            metadata
                .get(key)
                .is_some_and(|found| std::ptr::eq(found, value))
        );
        let _ = (
            metadata.u64(key),
            metadata.f32(key),
            metadata.str(key),
            metadata.strings(key),
        );
        let _ = (metadata.i64s(key), metadata.f32s(key), metadata.bools(key));
    }
    let _ = (header.parameter_count(), header.file_type_name());
});
