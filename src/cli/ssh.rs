//! `llmsrv ssh`

use std::path::PathBuf;

use clap::{Args, ValueHint};
use llmsrv_ssh::{Destination, Forward, Jump};

/// The first part of the long help.
pub const ABOUT: &str = "Log in to another machine, with a key from the second time on.\n\n\
    The system's ssh connects, so ~/.ssh/config, the agent and known hosts count. Keys are tried \
    first. Only when the host refuses them is ~/.ssh/id_ed25519 copied there (made if it is \
    missing): ssh asks for the password once, and the same connection carries the session. \
    -p is the port of ssh here.";

/// Arguments of `ssh`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv ssh ann@gpu-box                       A shell there; copies the key if need be\n  \
    llmsrv ssh ann@gpu-box -- nvidia-smi -L      One command; its exit status is ours\n  \
    llmsrv ssh gpu-box -- 'cd src && git pull'   One word is a line for the shell there\n  \
    llmsrv ssh gpu-box --forward                 Its llmsrv at a local port, until Ctrl-C\n  \
    llmsrv ssh -p 2222 -J ann@gate ann@10.0.0.5  Another port, through a jump host\n  \
    llmsrv ssh --doctor gpu-box                  Check each step; says what to type\n  \
    llmsrv ssh --dry-run gpu-box                 What would be done\n\n\
    Exit status: that of the remote session; 255 = no connection, 2 = wrong use, 69 = nothing answers \
    through the tunnel; --doctor: 1 = something failed.")]
pub struct SshArgs {
    /// The host: a name, an address, or an alias of ~/.ssh/config
    #[arg(value_name = "[USER@]HOST", value_hint = ValueHint::Hostname)]
    pub destination: Destination,
    /// Command to run there instead of a shell; several words are passed on as they are
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["copy_id", "doctor"])]
    pub command: Vec<String>,
    /// Private key to use and to copy; the others of the agent are not offered
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
    /// Hosts on the way: [USER@]HOST[:PORT],...
    #[arg(short = 'J', long, value_name = "HOSTS")]
    pub jump: Option<Jump>,
    /// Settings of ssh instead of ~/.ssh/config
    #[arg(short = 'F', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ssh_config: Option<PathBuf>,
    /// Give the command a terminal
    #[arg(short, long, requires = "command")]
    pub tty: bool,
    /// Reach the server there (port 11434) at a local port; without a command until Ctrl-C
    #[arg(long, value_name = "LOCAL[:REMOTE]", num_args = 0..=1, conflicts_with_all = ["copy_id", "doctor", "dry_run"])]
    #[expect(clippy::option_option, reason = "absent, without and with a value")]
    pub forward: Option<Option<Forward>>,
    /// Store the key of a host that is not known yet, without asking
    #[arg(long)]
    pub accept_new: bool,
    /// Only copy the key
    #[arg(long)]
    pub copy_id: bool,
    /// Check each thing that a login needs; changes nothing
    #[arg(long, conflicts_with_all = ["copy_id", "dry_run"])]
    pub doctor: bool,
    /// Only print what would be done; does not connect
    #[arg(long)]
    pub dry_run: bool,
    /// Print the checks or the plan as JSON
    #[arg(long)]
    pub json: bool,
}
