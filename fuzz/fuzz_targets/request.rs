//! Any bytes as the body of a request in every dialect: a job, or a refusal that is the client's fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmsrv_server::parse_any;

fuzz_target!(|body: &[u8]| {
    for parsed in parse_any(body) {
        match parsed {
            Ok(job) => assert!(!job.model.is_empty()),
            Err(error) => assert!(error.status().is_client_error(), "{error}"),
        }
    }
});
