//! The commands of logkit, for its own program and for `llmsrv logkit`.
//!
//! `args.rs` says what can be typed, one file does each command, and `render.rs` alone prints. The
//! work of reading and writing entries is done by the crate `logkit`.

mod args;
mod complete;
mod diff;
mod export;
mod failure;
mod filter;
mod logs;
mod prune;
mod render;
mod replay;
mod run;
mod serve;
mod settings;
mod stats;
mod time;
mod tree;

use std::{ffi::OsString, process::ExitCode};

use clap::{FromArgMatches, error::ErrorKind};

pub use args::command;

use crate::{
    args::{Cli, Command},
    failure::Failure,
};

/// Runs the program: `args` are those of the process, its name first. Returns its exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    ExitCode::from(status(args))
}

/// The same as [`main`], with the exit status as a number.
pub fn status(args: impl IntoIterator<Item = OsString>) -> u8 {
    let parsed = command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Whoever closed the pipe does not want to hear of it.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                _ => failure::USAGE,
            };
        }
    };
    render::set_color(parsed.color);
    match dispatch(parsed) {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => 0,
        Err(failure) => {
            render::failure(&failure);
            failure.code()
        }
    }
}

/// Answers a shell that asks what could be typed next, and then ends the process; else does
/// nothing.
pub fn complete() {
    clap_complete::CompleteEnv::with_factory(command).complete();
}

/// Answers a shell as [`complete`] does, with those arguments instead of those of the process.
/// Returns the exit status; `None` if no shell asks.
pub fn complete_with(args: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let folder = std::env::current_dir().ok();
    let asked =
        clap_complete::CompleteEnv::with_factory(command).try_complete(args, folder.as_deref());
    match asked {
        Ok(asked) => asked.then_some(0),
        Err(error) => {
            let _ = error.print();
            Some(failure::USAGE)
        }
    }
}

fn dispatch(parsed: Cli) -> Result<u8, Failure> {
    let Some(command) = parsed.command else {
        render::line(command().render_help().ansi())?;
        return Ok(0);
    };
    match command {
        Command::Run(args) => return run::run(args),
        Command::Diff(args) => return diff::run(&args),
        Command::Logs(args) => logs::run(&args)?,
        Command::Tail(args) => logs::tail(&args)?,
        Command::Tree(args) => tree::run(&args)?,
        Command::Stats(args) => stats::run(&args)?,
        Command::Export(args) => export::run(&args)?,
        Command::Prune(args) => prune::run(&args)?,
        Command::Replay(args) => replay::run(&args)?,
        Command::Serve(args) => serve::run(args)?,
        Command::Version => render::line(concat!("logkit ", env!("CARGO_PKG_VERSION")))?,
        Command::Completions(args) => complete::script(&args.shell.to_string())?,
    }
    Ok(0)
}
