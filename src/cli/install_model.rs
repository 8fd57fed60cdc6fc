//! A default model for code.

use clap::Args;

/// What `install-model` is for.
pub const ABOUT: &str = "Install a model for code, if there is none yet\n\n\
    Without a name it tries, one after the other until one is there: deepseek-coder:1.3b, \
    deepseek-coder, qwen2.5-coder:1.5b and tinyllama; and it does nothing when a model other than \
    the built-in one is installed. A model that does not fit on the disk is not begun. An installation \
    that was interrupted goes on where it was.";

/// Arguments of `install-model`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:\n  \
    llmsrv install-model                       A small model for code, unless there is a model\n  \
    llmsrv install-model --best                The best one for code that fits this machine\n  \
    llmsrv install-model --dry-run             What would be done, and how large it is\n  \
    llmsrv install-model qwen2.5-coder:7b      This one, whatever else is installed\n  \
    llmsrv install-model --json | jq -r .model  For a script\n\n\
    Exit status: 0 = a model is installed (now or before), 1 = none could be installed: there is no \
    network, no space, or no such model. The built-in model goes on serving then.")]
pub struct InstallModelArgs {
    /// The model, in place of the usual ones
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// In place of the usual ones, the best one for code with tools that fits this machine (`llmsrv search`)
    #[arg(long, conflicts_with = "model")]
    pub best: bool,
    /// Pull it again, or another one, whatever is installed
    #[arg(long)]
    pub force: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Allow plain http and unverified certificates for a host of a private network
    #[arg(long)]
    pub insecure: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
}
