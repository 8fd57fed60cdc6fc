//! `llmsrv launch`

use std::ffi::OsString;

use clap::Args;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};

use crate::{complete, tools};

/// The first part of the long help.
pub const ABOUT: &str = "Start a coding agent on a model of the server, or print what to copy.\n\n\
    Agents of the terminal are started with the variables and arguments that lead them to the \
    server: nothing is written, so nothing has to be undone. For editors and programs with settings \
    of their own it prints what to put where; --write puts it there and keeps a backup of the file, \
    --undo takes it out again. Without a tool it lists them, and the address, key and model for any \
    other one.";

/// Arguments of `launch`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv launch                                List the tools, and what others need\n  \
    llmsrv launch claude -m qwen3-coder:30b      Start Claude Code\n  \
    llmsrv launch codex -m gpt-oss:20b -- exec \"Explain this folder\"\n  \
    llmsrv launch aider -m qwen3:8b --print      Print the commands, start nothing\n  \
    llmsrv launch zed                            Print the settings for Zed\n  \
    llmsrv launch zed --write                    Write them, after a question\n  \
    llmsrv launch zed --undo                     Take them out again")]
pub struct LaunchArgs {
    /// The tool
    #[arg(value_name = "TOOL", add = ArgValueCandidates::new(tools::candidates))]
    pub tool: Option<String>,
    /// Model for the tool
    #[arg(short, long, value_name = "MODEL", default_value = "default",
        add = ArgValueCompleter::new(complete::models))]
    pub model: String,
    /// Print the commands, start nothing
    #[arg(long)]
    pub print: bool,
    /// Put an entry into the tool's settings file, with a backup
    #[arg(long, requires = "tool", conflicts_with_all = ["print", "undo", "args"])]
    pub write: bool,
    /// Take the entry out of the settings file again
    #[arg(long, requires = "tool", conflicts_with_all = ["print", "args"])]
    pub undo: bool,
    /// With --write and --undo: do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Print JSON, start nothing
    #[arg(long)]
    pub json: bool,
    /// Arguments of the tool, after `--`
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}
