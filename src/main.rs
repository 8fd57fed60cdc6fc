//! The command line of llmsrv.

#![allow(
    unreachable_pub,
    reason = "in a program `pub` marks what a file offers to the others"
)]

mod cli;
mod commands;
mod complete;
mod connect;
mod context;
mod embedded;
mod failure;
mod format;
mod legacy;
mod local;
mod logging;
mod reload;
mod run;
mod term;
mod transfer;

use std::process::ExitCode;

use clap::{FromArgMatches, error::ErrorKind};

use crate::{cli::Cli, failure::Failure};

fn main() -> ExitCode {
    llmsrv_tls::init();
    // Answers a shell that asks for completions, and ends.
    clap_complete::CompleteEnv::with_factory(cli::command).complete();

    let parsed = match parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    term::set_color(parsed.global.color);
    let as_json = parsed
        .command
        .as_ref()
        .is_some_and(cli::Command::wants_json);
    match commands::dispatch(parsed) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => exit(&failure, as_json),
    }
}

fn parse() -> Result<Cli, ExitCode> {
    let args = legacy::translate(std::env::args_os().collect())
        .map_err(|failure| exit(&failure, false))?;
    let parsed = cli::command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        // Help and version are results; whoever closed the pipe does not want to hear of it.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(failure::Code::Usage as u8),
        }
    })
}

fn exit(failure: &Failure, as_json: bool) -> ExitCode {
    term::failure(failure, as_json);
    ExitCode::from(failure.code as u8)
}
