//! `llmsrv key`

use clap::{Args, Subcommand, ValueEnum};

/// The first part of the long help.
pub const ABOUT: &str = "Make, list and remove the keys of those who may call the server.\n\n\
    As soon as there is a keys file, every request needs a key. A running server on this machine \
    takes up changes within a few seconds. Only hashes are kept: a key is shown once, when it is made.";

/// Arguments of `key`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
        llmsrv key add laptop                    A key that may ask models and list them\n  \
        llmsrv key add ops --role manage         One that may also pull, create and delete models\n  \
        llmsrv key list                          Who has a key, and for what\n  \
        llmsrv key rm laptop                     Remove it\n  \
        llmsrv key off                           Serve without keys again\n  \
        LLMSRV_API_KEY=llmsrv_... llmsrv list    Use one")]
pub struct KeyArgs {
    #[command(subcommand)]
    pub action: KeyAction,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Make a key and print it; it cannot be shown again
    Add {
        /// Who or what will have it; the request log names it
        name: String,
        /// What it allows
        #[arg(long, value_name = "ROLE", default_value = "infer")]
        role: RoleArg,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the keys
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove all keys and serve without; a running server has to be started again
    Off {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a key: it stops working
    Rm {
        /// The name it was made with
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What a key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArg {
    /// Ask models and list them
    Infer,
    /// Also pull, push, create, copy and delete models
    Manage,
    /// Everything
    Admin,
}
