//! Any text as what names a sink, a duration, a moment: a value or an error that shows no credentials.
#![no_main]

use libfuzzer_sys::fuzz_target;
use logkit::{Level, Timestamp, spec};

fuzz_target!(|text: &str| {
    if let Err(error) = spec::check(text) {
        assert!(!error.to_string().is_empty());
    }
    let _ = spec::duration(text);
    if let Ok(moment) = text.parse::<Timestamp>() {
        assert_eq!(moment.to_string().parse::<Timestamp>().ok(), Some(moment));
    }
    let level = Level::parse(text);
    assert_eq!(Level::parse(level.as_str()), level);
});
