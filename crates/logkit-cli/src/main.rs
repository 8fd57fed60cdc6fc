//! The program `logkit`.

use std::process::ExitCode;

fn main() -> ExitCode {
    logkit_cli::complete();
    logkit_cli::main(std::env::args_os())
}
