//! Measuring models.

use std::path::PathBuf;

use clap::Args;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};

use crate::complete;

/// What `bench` is for.
pub const ABOUT: &str = "Measure how fast models run here\n\n\
    Reads prompts (pp) and generates tokens (tg) as llama-bench does, without sampling and without a server, \
    and says which part of the machine's own limits that is: the limits are memory bandwidth and the speed of \
    the multipliers, measured between the rounds. Then the time to the first token, loading in a new process, \
    and streaming over HTTP against streaming inside the process.\n\n\
    --gpu computes on a GPU: then the limits are its own, measured by kernels, and a second table says what each \
    kernel took. Its --json is what to paste into a report about a card.\n\n\
    Other engines can be measured in the same rounds, so that a ratio does not depend on the hour. \
    --make-model writes models of known shapes with random weights, so that nothing needs to be downloaded.\n\n\
    --perplexity measures how well a model predicts a text instead of how fast it is, and --kl how far it is from \
    another one, such as the model it was quantised from: both as llama-perplexity defines them, over the second \
    halves of windows of the text. Lower is better; figures compare only where text and window are the same.";

/// What `--gpu` says without a name.
pub const BEST: &str = "best";

/// Arguments of `bench`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv bench                                       The built-in model\n  \
    llmsrv bench --make-model 1b -Q Q4_K_M -o 1b.gguf  A model of the shape of Llama-3.2-1B\n  \
    llmsrv bench 1b.gguf --pp 512,2048 -d 0,2048 -b 1,2,4,8\n  \
    llmsrv bench 1b.gguf --peer-python venv/bin/python Beside llama.cpp of llama-cpp-python\n  \
    llmsrv bench 1b.gguf --peer 'llama-bench -m {model} -t {threads} -p {pp} -n {tg} -r 1 -o json'\n  \
    llmsrv bench --limits                              What the machine can do, no model\n  \
    llmsrv bench 1b.gguf --gpu --quick --json          On the GPU, to be pasted into a report\n  \
    llmsrv bench 1b.gguf --gpu --peer 'llama-bench -m {model} -ngl 99 -p {pp} -n {tg} -r 1 -o json'\n  \
    llmsrv bench small.gguf --perplexity text.txt      How well it predicts a text\n  \
    llmsrv bench small.gguf --perplexity text.txt --kl big.gguf  And what quantising cost")]
pub struct BenchArgs {
    /// Models, or paths of GGUF files [default: default]
    #[arg(value_name = "MODEL|PATH", add = ArgValueCompleter::new(complete::models_and_files))]
    pub what: Vec<String>,
    /// Lengths of prompts to read
    #[arg(
        long,
        value_name = "TOKENS",
        value_delimiter = ',',
        default_value = "512"
    )]
    pub pp: Vec<usize>,
    /// Numbers of tokens to generate
    #[arg(
        short = 'n',
        long,
        value_name = "TOKENS",
        value_delimiter = ',',
        default_value = "128"
    )]
    pub tg: Vec<usize>,
    /// Tokens that come before
    #[arg(
        short,
        long,
        value_name = "TOKENS",
        value_delimiter = ',',
        default_value = "0"
    )]
    pub depth: Vec<usize>,
    /// Sequences to generate together
    #[arg(
        short,
        long,
        value_name = "COUNT",
        value_delimiter = ',',
        default_value = "1"
    )]
    pub batch: Vec<usize>,
    /// Rounds of every test
    #[arg(short, long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Threads of the arithmetic [default: the setting, or one for each core]
    #[arg(short, long, value_name = "COUNT")]
    pub threads: Option<usize>,
    /// Compute on the best GPU, or on this one: its number in Vulkan's order, or its UUID
    #[arg(long, value_name = "DEVICE", num_args = 0..=1, require_equals = true,
        default_missing_value = BEST, conflicts_with = "make_model")]
    pub gpu: Option<String>,
    /// Only pp and tg: no first token, no new process, no HTTP
    #[arg(long)]
    pub quick: bool,
    /// Measure this command, too; {model}, {threads}, {pp}, {tg}, {depth} and {batch} are replaced
    #[arg(long, value_name = "COMMAND")]
    pub peer: Vec<String>,
    /// Measure llama.cpp or ik_llama.cpp, too, through the package llama-cpp-python or
    /// ik-llama-cpp-python of this interpreter; may be given for each
    #[arg(long, value_name = "PYTHON", value_hint = clap::ValueHint::ExecutablePath)]
    pub peer_python: Vec<PathBuf>,
    /// With --peer-python: also without packing the weights, which is faster for some models
    #[arg(long, requires = "peer_python")]
    pub peer_unpacked: bool,
    /// Measure the limits of the machine and nothing else
    #[arg(long, conflicts_with = "what")]
    pub limits: bool,
    /// Measure how well the models predict this text (UTF-8, at most 64 MiB), nothing else
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
        conflicts_with_all = ["limits", "make_model"])]
    pub perplexity: Option<PathBuf>,
    /// With --perplexity: also how far they are from this model or GGUF file, which has the same vocabulary
    #[arg(long, value_name = "MODEL|PATH", requires = "perplexity",
        add = ArgValueCompleter::new(complete::models_and_files))]
    pub kl: Option<String>,
    /// With --perplexity: tokens of a window
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 512,
        requires = "perplexity"
    )]
    pub window: usize,
    /// With --perplexity: windows to read at most [default: all]
    #[arg(long, value_name = "COUNT", requires = "perplexity")]
    pub chunks: Option<usize>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Print a table for a document
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Write a model with random weights: 0.5b, 1b, 1.7b, 8b, 30b-a3b, qwen3.5-9b, gemma4-e4b, gpt-oss-20b or tiny, or one of
    /// these with changes (30b-a3b:layers=8,vocab=4096)
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["what", "limits"], requires = "output")]
    pub make_model: Option<String>,
    /// With --make-model: the type of the weights
    #[arg(short = 'Q', long, value_name = "TYPE", default_value = "Q4_K_M",
        add = ArgValueCandidates::new(complete::targets))]
    pub quantize: String,
    /// With --make-model: the file
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Load this file, compute one token, print the resident bytes
    #[arg(long, value_name = "FILE", hide = true)]
    pub ready: Option<PathBuf>,
}
