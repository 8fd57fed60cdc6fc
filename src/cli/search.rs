//! `llmsrv search`

use clap::Args;

/// The first part of the long help.
pub const ABOUT: &str = "Find a model that can be pulled and fits this machine.\n\n\
    Without words it names, of each well-known model, the largest size that fits and keeps up with a \
    reader (5 tokens a second). Words are looked for \
    in names, families, licences and what a model can do: tools, thinking, vision, embedding, insert, \
    code. The list is part of the program; nothing is asked of the network without --refresh, which asks \
    the Hugging Face hub (or a registry that lists what it has) for models with these words in their \
    names, in all quantizations, and keeps the answer for later searches and the web app.\n\n\
    The speed is what the memory of this machine allows for one chat, measured now: decoding reads the \
    weights once for every token. Mixtures of experts read a part of them; of models found with \
    --refresh that part is not known, and they are faster than it says.";

/// Arguments of `search`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv search                        The best that fits, of each model\n  \
    llmsrv search code                   Models for code, in all sizes\n  \
    llmsrv search vision                 Models that see\n  \
    llmsrv search qwen --all             Those that do not fit or run, too\n  \
    llmsrv search --refresh qwen3 coder  Ask the hub, too, and keep what it says\n  \
    llmsrv search --refresh=reg.lan      Ask a registry of one's own\n  \
    llmsrv search embedding --json | jq -r '.models[].name'")]
pub struct SearchArgs {
    /// What to look for; all words must match
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    /// List models that do not fit or do not run here, too
    #[arg(short, long)]
    pub all: bool,
    /// Ask the hub, or a registry, and keep what it offers
    #[arg(long, value_name = "HOST", num_args = 0..=1, require_equals = true, default_missing_value = "hf.co")]
    pub refresh: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
