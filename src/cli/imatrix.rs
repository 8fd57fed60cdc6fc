//! Making importance matrices.

use std::path::PathBuf;

use clap::Args;
use clap_complete::ArgValueCompleter;

use crate::complete;

/// What `imatrix` is for.
pub const ABOUT: &str = "Measure which weights of a model matter, for quantising it\n\n\
    Reads a text with the model and sums, for each matrix, the squares of what its columns are multiplied with: \
    an error of a weight costs as much as its input is large. `create --quantize TYPE --imatrix FILE` quantises \
    with it, which costs less quality at the same size, the more the fewer bits there are; types of two bits need \
    it. The text should be like what the model will read and write; 100 to 200 windows are enough for most. Take \
    the unquantised model, or the best there is.\n\n\
    The file is a GGUF file as llama.cpp's llama-imatrix writes them.";

/// Arguments of `imatrix`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv imatrix big.gguf -f text.txt -o big.imatrix.gguf\n  \
    llmsrv create small --from big.gguf -Q IQ3_M --imatrix big.imatrix.gguf\n  \
    llmsrv bench small --perplexity other.txt --kl big.gguf   What that cost")]
pub struct ImatrixArgs {
    /// A model, or the path of a GGUF file
    #[arg(value_name = "MODEL|PATH", add = ArgValueCompleter::new(complete::models_and_files))]
    pub what: String,
    /// The text to read (UTF-8, at most 64 MiB)
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// The file to write; one that is there is replaced
    #[arg(short, long, value_name = "FILE", default_value = "imatrix.gguf",
        value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub window: usize,
    /// Windows to read at most [default: all]
    #[arg(long, value_name = "COUNT")]
    pub chunks: Option<usize>,
    /// Also for the matrix that gives the logits, which takes longer
    #[arg(long)]
    pub process_output: bool,
    /// Threads of the arithmetic [default: the setting, or one for each core]
    #[arg(short, long, value_name = "COUNT")]
    pub threads: Option<usize>,
    /// Print what was made as JSON
    #[arg(long)]
    pub json: bool,
}
