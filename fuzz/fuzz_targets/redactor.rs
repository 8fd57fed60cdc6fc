//! Any text through what blanks secrets: a planted secret never comes out, and the rest stays text.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use logkit::{Redactor, repr};

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);
const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";

fuzz_target!(|text: &str| {
    let blanked = REDACTOR.redact_string(text);
    let _ = REDACTOR.redact_string(&blanked);
    let arguments: Vec<&str> = text.split(' ').collect();
    assert_eq!(REDACTOR.redact_args(&arguments).len(), arguments.len());
    // A key of a known shape, with anything but more of a word around it.
    let planted = format!("{text} {SECRET} {text}");
    assert!(
        !REDACTOR.redact_string(&planted).contains(SECRET),
        "{text:?}"
    );
    let literal = repr::repr_str(text);
    assert_eq!(repr::parse_str(&literal).as_deref(), Some(text));
    assert_eq!(repr::to_json(&literal), text);
    let _ = (
        repr::parse_tuple(text),
        repr::parse_dict(text),
        repr::to_json(text),
    );
});
