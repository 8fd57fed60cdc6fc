//! `llmsrv completions`: the script that makes a shell ask this program what can follow.

use clap_complete::env::Shells;

use crate::{
    cli::{CompletionsArgs, ShellArg},
    failure::{Code, Failure},
    term,
};

/// Prints the script for one shell.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let name = match args.shell {
        ShellArg::Bash => "bash",
        ShellArg::Zsh => "zsh",
        ShellArg::Fish => "fish",
        ShellArg::Powershell => "powershell",
        ShellArg::Elvish => "elvish",
    };
    let shells = Shells::builtins();
    let completer = shells.completer(name).ok_or_else(|| {
        Failure::new(Code::Failed, format!("no completions are known for {name}"))
    })?;
    let mut script = Vec::new();
    completer.write_registration("COMPLETE", "llmsrv", "llmsrv", "llmsrv", &mut script)?;
    term::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(())
}
