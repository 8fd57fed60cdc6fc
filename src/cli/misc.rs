//! Commands about the program itself.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    source <(llmsrv completions bash)                            In ~/.bashrc\n  \
    source <(llmsrv completions zsh)                             In ~/.zshrc\n  \
    llmsrv completions fish | source                             In ~/.config/fish/config.fish\n  \
    llmsrv completions powershell | Out-String | Invoke-Expression\n  \
    eval (llmsrv completions elvish | slurp)                     In rc.elv")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: ShellArg,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    Bash,
    Zsh,
    Fish,
    Powershell,
    Elvish,
}

/// Arguments of `version`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv version                       This program, and the server if one runs\n  \
    llmsrv version --json                The same for a script")]
pub struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Folder below which man/, completions/ and docs/ are written
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub out: PathBuf,
}
