//! Any bytes as an importance matrix, in either format: an error of one line, or one that is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmsrv_convert::Imatrix;

fuzz_target!(|bytes: &[u8]| {
    match Imatrix::parse(bytes) {
        Ok(imatrix) => {
            // What the older format names may be no name of a tensor.
            let written = imatrix.to_bytes();
            if let Ok(again) = written.and_then(|bytes| Imatrix::parse(&bytes)) {
                assert_eq!(again, imatrix);
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
