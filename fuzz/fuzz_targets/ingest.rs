//! Any bytes as the body of entries sent over HTTP: entries, or a refusal that is the client's fault.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use logkit::{Entry, Redactor};

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);

fuzz_target!(|body: &[u8]| {
    for is_batch in [false, true] {
        match logkit_server::entries(body, is_batch, &REDACTOR) {
            Ok(entries) => {
                assert!(is_batch || entries.len() == 1);
                for entry in entries {
                    // What is stored can be given back.
                    let again = Entry::from_json(entry.as_json());
                    assert_eq!(again.as_json(), entry.as_json());
                    let _ = (logkit::scan_entry_for_injection(&entry), entry.as_compact());
                }
            }
            Err(status) => assert!((400..500).contains(&status), "{status}"),
        }
    }
});
