//! Arguments of `logkit`, which has a command line of its own.

use std::ffi::OsString;

use clap::Args;

/// Arguments of `logkit`.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  \
    llmsrv logkit run -- make test        Run a command and log how it went\n  \
    llmsrv logkit logs --last 24h         Show what was logged\n  \
    llmsrv logkit help                    List the commands of the logger"
)]
pub struct LogkitArgs {
    /// What the program `logkit` takes; see logkit(1)
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    pub args: Vec<OsString>,
}

/// Long description of `logkit`.
pub const ABOUT: &str = "\
Log commands and calls, and look at what was logged.

Everything that follows belongs to the logger, which has commands and options of its own: \
`llmsrv logkit help` lists them. The program also is the logger when it is called by the name logkit.";
