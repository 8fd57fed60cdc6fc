//! `llmsrv run`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::{ArgValueCandidates, ArgValueCompleter};

use crate::complete;

/// The first part of the long help.
pub const ABOUT: &str = "Chat with a model, or ask it one thing.\n\n\
    With a prompt (as arguments, from a pipe, or both) the answer goes to stdout and the command \
    ends. Without one it starts a chat; type /help there. It uses the running server; when there \
    is none, it runs the model itself. A model that is not here is pulled first.";

/// Arguments of `run`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:\n  \
        llmsrv run                                     Chat with the default model\n  \
        llmsrv run default \"Who are you?\"              Ask one question\n  \
        llmsrv run qwen3:0.6b                          Pull a model if need be, and chat with it\n  \
        llmsrv run ./model.gguf \"Hello!\"              A model file, without a store\n  \
        llmsrv run qwen3:0.6b < question.txt           Take the prompt from a file\n  \
        git diff | llmsrv run qwen3:0.6b \"Review:\"    Both: the prompt, then the text\n  \
        llmsrv run gemma3 \"What is in ./cat.png?\"     With an image\n  \
        llmsrv run qwen3:0.6b --format json \"Three colours as a JSON list\"\n  \
        llmsrv run all-minilm \"Some text\" | jq length  The vector of a text, in one line of JSON\n  \
        llmsrv run default -o temperature=0 --verbose \"Hello!\"")]
pub struct RunArgs {
    /// Model to use: a name, or the path of a GGUF file
    #[arg(value_name = "MODEL", default_value = "default",
        add = ArgValueCompleter::new(complete::models_and_files))]
    pub model: String,
    /// What to ask, with paths of images if the model sees; without it and without a pipe a chat starts
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,
    /// Image for a model that sees (may be repeated)
    #[arg(long = "image", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub images: Vec<PathBuf>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Form of the answer: `json`, or a JSON Schema
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Set an option of the model, such as temperature=0 (may be repeated)
    #[arg(short, long = "option", value_name = "NAME=VALUE",
        add = ArgValueCandidates::new(complete::options))]
    pub options: Vec<String>,
    /// Randomness of the answer: 0 always takes the most likely token; short for -o temperature=N
    #[arg(long, value_name = "N")]
    pub temperature: Option<f64>,
    /// The same seed gives the same answer; short for -o seed=N
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Longest answer in tokens; short for -o num_predict=N
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub num_predict: Option<i64>,
    /// How long the model stays loaded afterwards, such as 30m; -1 = forever
    #[arg(long, alias = "keep-alive", value_name = "TIME", allow_hyphen_values = true,
        value_parser = time)]
    pub keepalive: Option<String>,
    /// Pull a model that is not here over plain http or with an unverified certificate, from a private network
    #[arg(long)]
    pub insecure: bool,
    /// For a model that makes vectors: cut a text that is too long (false: refuse it)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub truncate: Option<bool>,
    /// For a model that makes vectors: numbers of the vector that are printed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dimensions: Option<u32>,
    /// Let the model think first
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub think: Option<ThinkArg>,
    /// Do not let the model think first
    #[arg(long, conflicts_with = "think")]
    pub nothink: bool,
    /// Do not show what the model thinks
    #[arg(long)]
    pub hidethinking: bool,
    /// Do not wrap lines at the width of the terminal
    #[arg(long)]
    pub nowordwrap: bool,
    /// Show Markdown of answers as it is written
    #[arg(long)]
    pub nomarkdown: bool,
    /// Print timings after the answer
    #[arg(long)]
    pub verbose: bool,
}

/// Checks how long a model stays loaded.
fn time(text: &str) -> Result<String, String> {
    llmsrv_config::value::duration(text).map(|_| text.to_owned())
}

/// How much to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThinkArg {
    /// Yes
    True,
    /// No
    False,
    /// A little
    Low,
    /// Some
    Medium,
    /// A lot
    High,
    /// As much as it can
    Max,
}
