//! Any bytes as the body of a request: a job, or a refusal that is the client's fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmsrv_server::{parse_chat, parse_generate};

fuzz_target!(|body: &[u8]| {
    for parsed in [parse_generate(body), parse_chat(body)] {
        match parsed {
            Ok(job) => assert!(!job.model.is_empty()),
            Err(error) => assert!(error.status().is_client_error(), "{error}"),
        }
    }
});
