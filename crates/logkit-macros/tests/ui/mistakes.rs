use logkit_macros::{auto_log, log_call, logged};

#[log_call]
const fn constant() -> u8 {
    1
}

#[log_call(levle = "info")]
fn misspelt() {}

#[log_call(level = "loud")]
fn no_level() {}

#[log_call(skip(nobody))]
fn no_parameter(a: u8) -> u8 {
    a
}

#[log_call(sample = 2)]
fn too_often() {}

#[log_call(err = Form)]
fn no_form() {}

#[log_call]
struct NoFunction;

#[logged]
fn no_block() {}

#[auto_log(default = 1)]
mod no_catch {}

fn main() {}
