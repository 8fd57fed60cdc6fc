//! The server on this machine: `status`, `test`, `examples`.

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;

use super::LoadArgs;
use crate::complete;

/// Arguments of `status`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv status                        What runs, where, and what it has loaded\n  \
    llmsrv status -q || llmsrv serve &   Start the server when it does not run\n  \
    llmsrv status --json | jq .url       For a script\n\n\
    Exit status: 0 = it runs, 3 = it does not.")]
pub struct StatusArgs {
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `test` is for.
pub const TEST_ABOUT: &str = "Check the running server, step by step\n\n\
    Each check says what was seen and, when it fails, what may help: the process, the port, the API \
    on this machine and on its network address, the models, and one answer of each kind.\n\n\
    With --cpu, --mem or --disk it puts load on this machine instead and says how it bore it; without \
    rights of root, without other programs, and without writing to a disk. Ctrl-C ends it early, with \
    the figures so far.";

/// Arguments of `test`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv test                          All checks, with the default model\n  \
    llmsrv test --model qwen3:0.6b       Let this model answer\n  \
    llmsrv test --json | jq '.checks[] | select(.outcome == \"fail\")'\n  \
    llmsrv test --cpu --mem 2GiB --disk --duration 30s\n\n\
    Exit status: 0 = nothing failed, 1 = something did.")]
pub struct TestArgs {
    /// The model that answers
    #[arg(long, value_name = "MODEL", default_value = "default", add = ArgValueCompleter::new(complete::models))]
    pub model: String,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub load: LoadArgs,
}

/// Arguments of `examples`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv examples                      For every endpoint and language\n  \
    llmsrv examples -l curl              With curl alone\n  \
    llmsrv examples chat embed           Those whose name has one of these words\n  \
    llmsrv examples -l curl version | sh  They can be run as they are")]
pub struct ExamplesArgs {
    /// Only examples whose name has one of these words
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// Only one language
    #[arg(short, long, value_name = "LANGUAGE")]
    pub language: Option<LanguageArg>,
    /// The model in the examples
    #[arg(long, value_name = "MODEL", default_value = "default", add = ArgValueCompleter::new(complete::models))]
    pub model: String,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// Languages of examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LanguageArg {
    /// The shell with curl
    Curl,
    /// Python, standard library only
    Python,
    /// JavaScript for Node.js 18 and browsers
    Js,
}
