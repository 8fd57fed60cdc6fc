//! Any bytes as the body of entries sent over HTTP, in all forms: entries, or a refusal that is the client's
//! fault, and never much memory.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use logkit::{Entry, Redactor};

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);

fuzz_target!(|body: &[u8]| {
    for is_batch in [false, true] {
        let outcome = logkit_server::entries(body, is_batch, &REDACTOR);
        assert!(
            is_batch
                || outcome.as_ref().is_ok_and(|entries| entries.len() == 1)
                || outcome.is_err()
        );
        check(outcome, body.len());
    }
    for is_json in [false, true] {
        for is_traces in [false, true] {
            check(
                logkit_server::otlp_entries(body, is_json, is_traces),
                body.len(),
            );
        }
    }
});

fn check(outcome: Result<Vec<Entry>, u16>, n_bytes: usize) {
    match outcome {
        Ok(entries) => {
            let held: usize = entries.iter().map(Entry::size_bytes).sum();
            assert!(
                held <= 4 * n_bytes + (16 << 20),
                "{held} bytes of {n_bytes}"
            );
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
