//! Any text as a Go template of a model or a request: it is refused or rendered within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llmsrv_chat::Template;

#[path = "../template.rs"]
mod template;

fuzz_target!(|text: &str| template::check(text, Template::go));
