//! `llmsrv config`

use clap::{Args, Subcommand};

/// The first part of the long help.
pub const ABOUT: &str = "Print every setting, its value and where it came from.\n\n\
    A setting comes from a flag, a variable, the settings file, or is the default; the first of \
    these that says something wins. Secrets are masked.";

/// Arguments of `config`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  \
        llmsrv config                            Every setting\n  \
        llmsrv config --changed                  Only those that are not the default\n  \
        llmsrv config check                      Look for mistakes; exit status 78 if there are any\n  \
        llmsrv config path                       Where the settings file is\n  \
        llmsrv config --json | jq '.settings[] | select(.name == \"LLMSRV_HOST\")'",
    args_conflicts_with_subcommands = true
)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub action: Option<ConfigAction>,
    /// Only settings that are not the default
    #[arg(long)]
    pub changed: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do with the settings.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Look for mistakes in all places settings come from
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print where the settings file is, or would be
    Path,
}
