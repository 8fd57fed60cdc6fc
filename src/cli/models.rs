//! Commands that look at models or manage them.

use std::path::PathBuf;

use clap::Args;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};

use crate::{catalogue, complete};

/// Arguments of `list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv list                          All models, newest first\n  \
    llmsrv list qwen                     Models whose name starts with qwen\n  \
    llmsrv list --json | jq -r '.models[].name'")]
pub struct ListArgs {
    /// Only models whose name starts with this
    #[arg(value_name = "PREFIX", add = ArgValueCompleter::new(complete::models))]
    pub prefix: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `show`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv show default                  The most important facts\n  \
    llmsrv show default --template       Only the prompt template\n  \
    llmsrv show default --verbose        All metadata of the model file\n  \
    llmsrv show default --json           Everything, for a script")]
pub struct ShowArgs {
    /// The model
    #[arg(value_name = "MODEL", add = ArgValueCompleter::new(complete::models))]
    pub model: String,
    /// Only the Modelfile
    #[arg(long, group = "part")]
    pub modelfile: bool,
    /// Only the parameters
    #[arg(long, group = "part")]
    pub parameters: bool,
    /// Only the prompt template
    #[arg(long, group = "part")]
    pub template: bool,
    /// Only the system prompt
    #[arg(long, group = "part")]
    pub system: bool,
    /// Only the licence
    #[arg(long, group = "part")]
    pub license: bool,
    /// Also all metadata and tensors; -v does the same
    #[arg(long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "part")]
    pub json: bool,
}

/// Arguments of `pull`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv pull qwen3:0.6b                          From the default registry\n  \
    llmsrv pull hf.co/unsloth/Qwen3-0.6B-GGUF:Q4_K_M   From the Hugging Face hub (HF_TOKEN for private ones)\n  \
    llmsrv pull localhost:5000/team/model           From any registry\n  \
    llmsrv pull qwen3:0.6b --json | jq .status      Steps as JSON lines\n\n\
    A pull that was interrupted goes on where it was.")]
pub struct PullArgs {
    /// The models
    #[arg(value_name = "NAME", required = true,
        add = ArgValueCandidates::new(catalogue::candidates))]
    pub names: Vec<String>,
    /// Allow plain http and unverified certificates for a host of a private network
    #[arg(long)]
    pub insecure: bool,
    /// Print each step as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `push`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv cp mine localhost:5000/team/mine         Give a model the name of its registry\n  \
    llmsrv push localhost:5000/team/mine            Send what the registry lacks")]
pub struct PushArgs {
    /// The model
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::models))]
    pub name: String,
    /// Allow plain http and unverified certificates for a host of a private network
    #[arg(long)]
    pub insecure: bool,
    /// Print each step as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ps`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv ps                            What is in memory, and until when\n  \
    llmsrv ps qwen                       Models whose name starts with qwen\n  \
    llmsrv ps --host gpu-box:11434       The same on another machine\n  \
    llmsrv ps --json | jq '.models[].size'")]
pub struct PsArgs {
    /// Only models whose name starts with this
    #[arg(value_name = "PREFIX", add = ArgValueCompleter::new(complete::models))]
    pub prefix: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `stop` is for.
pub const STOP_ABOUT: &str = "Unload a model from memory, or stop the server\n\n\
    With a model, the running server frees its memory. Without one, the server of this user on the \
    configured port is asked to end, which lets running requests finish, and killed when it does \
    not within half a minute.";

/// Arguments of `stop`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv stop default                  Free the memory of a model now\n  \
    llmsrv stop                          Stop the server\n  \
    llmsrv stop -p 8080                  Stop the one on another port\n  \
    llmsrv ps                            See which models are loaded")]
pub struct StopArgs {
    /// The model; none = the server itself
    #[arg(value_name = "MODEL", add = ArgValueCompleter::new(complete::models))]
    pub model: Option<String>,
    /// Print what was stopped as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `create` is for.
pub const CREATE_ABOUT: &str = "Make a model from a Modelfile, another model or model files\n\n\
    The Modelfile says in FROM what the model is made from: a model, a GGUF file, or a folder with \
    GGUF or safetensors files; relative paths begin at the Modelfile. A file on the file system of the \
    models is not copied but linked: it must not be changed afterwards. --copy copies it.";

/// Arguments of `create`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv create mine                       From the file Modelfile in this folder\n  \
    llmsrv create mine -f brief.modelfile    From another one\n  \
    llmsrv create mine --from model.gguf     From a model file alone\n  \
    llmsrv create small --from big --quantize Q4_K_M\n  \
    llmsrv create small --from big -Q IQ2_M --imatrix big.imatrix.gguf\n  \
    llmsrv show mine --modelfile | llmsrv create copy -f -")]
pub struct CreateArgs {
    /// Name of the new model
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// The Modelfile; `-` is standard input [default: Modelfile, unless --from is given]
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// A model, a GGUF file or a folder, in place of what the Modelfile says
    #[arg(long, value_name = "MODEL|PATH", add = ArgValueCompleter::new(complete::models_and_files))]
    pub from: Option<String>,
    /// Quantize the weights: Q4_K_M, Q8_0, Q3_K_M, IQ4_XS, IQ2_M, F16, ...
    #[arg(short = 'Q', long, value_name = "TYPE", add = ArgValueCandidates::new(complete::targets))]
    pub quantize: Option<String>,
    /// With --quantize: weigh errors with the importance matrix that `llmsrv imatrix` or llama-imatrix wrote
    #[arg(long, value_name = "FILE", requires = "quantize", value_hint = clap::ValueHint::FilePath)]
    pub imatrix: Option<PathBuf>,
    /// Copy model files where they could be linked
    #[arg(long)]
    pub copy: bool,
    /// Print the steps as JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cp`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv cp default mine               The copy shares the files of the original\n  \
    llmsrv cp mine mine:backup           A second tag")]
pub struct CpArgs {
    /// The model
    #[arg(value_name = "SOURCE", add = ArgValueCompleter::new(complete::models))]
    pub source: String,
    /// Its new name
    #[arg(value_name = "DESTINATION")]
    pub destination: String,
    /// Print both names as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `default` is for.
pub const DEFAULT_ABOUT: &str = "Say which model `default` means, or choose another one\n\n\
    The commands use this model where no other one is named, and so do requests for the model \
    `default`. It is the built-in one until another one is chosen here; pulling or creating models \
    does not change it.";

/// Arguments of `default`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv default                       Print the name of the model\n  \
    llmsrv default qwen3:0.6b            Use this one from now on\n  \
    llmsrv default llmsrv-tiny-code      Use the built-in one again")]
pub struct DefaultArgs {
    /// The model to use from now on
    #[arg(value_name = "MODEL", add = ArgValueCompleter::new(complete::models))]
    pub model: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `rm`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv rm mine                       Remove a model and the files only it uses\n  \
    llmsrv rm mine:backup other          Remove several")]
pub struct RmArgs {
    /// The models
    #[arg(value_name = "MODEL", required = true, add = ArgValueCompleter::new(complete::models))]
    pub names: Vec<String>,
    /// Print what was removed as JSON
    #[arg(long)]
    pub json: bool,
}
