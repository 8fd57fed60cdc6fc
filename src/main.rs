//! The command line of llmsrv.

#![allow(
    unreachable_pub,
    reason = "in a program `pub` marks what a file offers to the others"
)]

mod about;
mod catalogue;
mod checks;
mod cli;
mod commands;
mod complete;
mod connect;
mod context;
mod embedded;
mod failure;
mod format;
mod known;
mod legacy;
mod local;
mod logging;
mod machine;
mod notify;
mod npu;
mod overview;
mod reload;
mod request_log;
mod run;
mod steps;
mod term;
mod text;
mod tools;
mod transfer;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{
    FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{cli::Cli, failure::Failure};

fn main() -> ExitCode {
    llmsrv_tls::init();
    let args: Vec<OsString> = std::env::args_os().collect();
    if is_named_logkit(&args) {
        logkit_cli::complete();
        return logkit_cli::main(args);
    }
    // The logger has a command line of its own, and its commands must start fast.
    if args
        .get(1)
        .is_some_and(|arg| arg == "logkit" || arg == "log")
    {
        return commands::logkit(args.into_iter().skip(2));
    }
    // So does its help.
    if let [_, help, logkit, rest @ ..] = args.as_slice()
        && help == "help"
        && (logkit == "logkit" || logkit == "log")
    {
        let help = std::iter::once(help.clone());
        return commands::logkit(help.chain(rest.iter().cloned()));
    }
    // Answers a shell that asks for completions, and ends.
    clap_complete::CompleteEnv::with_factory(cli::command).complete();

    let (parsed, as_json) = match parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    term::set_color(parsed.global.color);
    match commands::dispatch(parsed) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => exit(&failure, as_json),
    }
}

/// Tells whether the program was called by the logger's name.
fn is_named_logkit(args: &[OsString]) -> bool {
    let name = args.first().and_then(|name| Path::new(name).file_stem());
    name.is_some_and(|name| name == "logkit")
}

/// Returns what was asked, and whether it is wanted as JSON.
fn parse(args: Vec<OsString>) -> Result<(Cli, bool), ExitCode> {
    let parsed = cli::command()
        .long_version(commands::long_version())
        .try_get_matches_from(legacy::translate(args))
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, cli::wants_json(&matches))));
    parsed.map_err(|mut error| {
        if error.kind() == ErrorKind::InvalidSubcommand {
            suggest(&mut error);
        }
        // Help and version are results; whoever closed the pipe does not want to hear of it.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(failure::Code::Usage as u8),
        }
    })
}

/// Proposes the command that was meant, and none that people are not shown.
fn suggest(error: &mut clap::Error) {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    match cli::meant(typed) {
        Some(meant) => {
            let meant = ContextValue::Strings(vec![meant]);
            error.insert(ContextKind::SuggestedSubcommand, meant);
        }
        None => {
            error.remove(ContextKind::SuggestedSubcommand);
        }
    }
}

fn exit(failure: &Failure, as_json: bool) -> ExitCode {
    term::failure(failure, as_json);
    ExitCode::from(failure.code as u8)
}
