//! What can be typed: names, help and shapes of all commands. Types only; nothing happens here.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts have brackets that are no links"
)]

mod bench;
mod config;
mod devices;
mod host;
mod imatrix;
mod install_model;
mod key;
mod launch;
mod load;
mod logkit;
mod misc;
mod models;
mod monitor;
mod run;
mod search;
mod serve;
mod service;
mod ssh;

use std::path::PathBuf;

use clap::{ArgMatches, Args, Parser, Subcommand};
use clap_complete::ArgValueCandidates;

use crate::{
    complete,
    term::{self, ColorArg},
};

pub use bench::{BEST, BenchArgs};
pub use config::{ConfigAction, ConfigArgs};
pub use devices::{DeviceArgs, DeviceWorkerArgs, GpuWorkerArgs, TestgpuArgs, TestnpuArgs};
pub use host::{ExamplesArgs, LanguageArg, StatusArgs, TestArgs};
pub use imatrix::ImatrixArgs;
pub use install_model::InstallModelArgs;
pub use key::{KeyAction, KeyArgs, RoleArg};
pub use launch::LaunchArgs;
pub use load::LoadArgs;
pub use logkit::LogkitArgs;
pub use misc::{CompletionsArgs, GenerateArgs, ShellArg, VersionArgs};
pub use models::{
    CpArgs, CreateArgs, DefaultArgs, ListArgs, PsArgs, PullArgs, PushArgs, RmArgs, ShowArgs,
    StopArgs,
};
pub use monitor::MonitorArgs;
pub use run::{RunArgs, ThinkArg};
pub use search::SearchArgs;
pub use serve::ServeArgs;
pub use service::{
    ApplyArgs, FirewallAction, FirewallArgs, InstallArgs, LogsArgs, NetArgs, ServiceAction,
    ServiceArgs,
};
pub use ssh::SshArgs;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "llmsrv",
    version,
    about = "A local language-model server in one binary",
    long_about = "A local language-model server in one binary.\n\n\
        It serves models to every client of the Ollama, OpenAI and Anthropic APIs, and talks to them from the \
        command line. A small demonstration model is built in, so the first answer needs no download.",
    after_help = "Examples:\n  \
        llmsrv run qwen3:0.6b            Get a model if need be, and chat with it\n  \
        llmsrv run default \"Hello!\"      Ask one question\n  \
        llmsrv serve                     Serve clients on 127.0.0.1:11434\n  \
        llmsrv list                      Show the models\n\n\
        All commands take --host, -p, --models, --set, --config, --env-file, -q, -v and --color;\n\
        `llmsrv --help` explains them, `llmsrv help COMMAND` a command, with examples.",
    after_long_help = HELP_MORE,
    max_term_width = 100,
    disable_help_subcommand = false,
    propagate_version = false
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Address of the server: host, :port, host:port, [v6]:port or a URL
    #[arg(long, global = true, value_name = "ADDRESS", hide_short_help = true)]
    pub host: Option<String>,
    /// Port of the server
    #[arg(
        short,
        long,
        global = true,
        value_name = "PORT",
        hide_short_help = true
    )]
    pub port: Option<u16>,
    /// Folder of the models
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath,
        hide_short_help = true)]
    pub models: Option<String>,
    /// Set any setting, such as server.keep_alive=1h (`llmsrv config` lists them)
    #[arg(long, global = true, value_name = "KEY=VALUE", hide_short_help = true,
        add = ArgValueCandidates::new(complete::settings))]
    pub set: Vec<String>,
    /// Settings file instead of the usual one
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
        hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// Also read NAME=value lines from this file; the environment is stronger
    #[arg(long, global = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath,
        hide_short_help = true)]
    pub env_file: Option<PathBuf>,
    /// Print errors only
    #[arg(
        short,
        long,
        global = true,
        conflicts_with = "more",
        hide_short_help = true
    )]
    pub quiet: bool,
    /// Log more: -v debug, -vv trace
    #[arg(short = 'v', id = "more", global = true, action = clap::ArgAction::Count,
        hide_short_help = true)]
    pub more: u8,
    /// Colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true
    )]
    pub color: ColorArg,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve models over HTTP
    #[command(alias = "start", long_about = serve::ABOUT)]
    Serve(ServeArgs),
    /// Chat with a model, or ask it one thing
    #[command(long_about = run::ABOUT)]
    Run(RunArgs),
    /// Start a coding agent on a model of the server, or print what to copy into an editor
    #[command(long_about = launch::ABOUT)]
    Launch(LaunchArgs),
    /// Find a model that can be pulled and fits this machine
    #[command(long_about = search::ABOUT)]
    Search(SearchArgs),
    /// List the models
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show what is known of a model
    Show(ShowArgs),
    /// Make a model from a Modelfile, another model or model files
    #[command(long_about = models::CREATE_ABOUT)]
    Create(CreateArgs),
    /// List the loaded models
    Ps(PsArgs),
    /// Unload a model from memory, or stop the server
    #[command(long_about = models::STOP_ABOUT)]
    Stop(StopArgs),
    /// Show what runs, where, and what it has loaded
    Status(StatusArgs),
    /// Watch the machine and the server in the terminal
    #[command(long_about = monitor::ABOUT)]
    Monitor(MonitorArgs),
    /// Check the running server, step by step
    #[command(long_about = host::TEST_ABOUT)]
    Test(TestArgs),
    /// Print requests that work as they are, for curl, Python and JavaScript
    Examples(ExamplesArgs),
    /// Run the server as a service of this machine
    #[command(long_about = service::ABOUT)]
    Service(ServiceArgs),
    /// Let other machines through the firewall of this one
    #[command(long_about = service::FIREWALL_ABOUT)]
    Firewall(FirewallArgs),
    /// Serve the network, all in one: service, firewall, checks, a model
    #[command(long_about = service::NET_ABOUT)]
    Net(NetArgs),
    /// Show the log of the server
    #[command(long_about = service::LOGS_ABOUT)]
    Logs(LogsArgs),
    /// Bring models in from a registry or the Hugging Face hub
    Pull(PullArgs),
    /// Install a model for code, if there is none yet
    #[command(long_about = install_model::ABOUT)]
    InstallModel(InstallModelArgs),
    /// Send a model to its registry
    Push(PushArgs),
    /// Copy a model under a new name
    Cp(CpArgs),
    /// Say which model `default` means, or choose another one
    #[command(long_about = models::DEFAULT_ABOUT)]
    Default(DefaultArgs),
    /// Remove models
    Rm(RmArgs),
    /// Log in to another machine; copies the key there if need be
    #[command(long_about = ssh::ABOUT)]
    Ssh(SshArgs),
    /// Log commands and calls, and look at what was logged
    #[command(alias = "log", long_about = logkit::ABOUT)]
    Logkit(LogkitArgs),
    /// Measure how fast models run here, beside the machine's limits and other engines
    #[command(long_about = bench::ABOUT)]
    Bench(BenchArgs),
    /// Measure which weights of a model matter, for quantising it
    #[command(long_about = imatrix::ABOUT)]
    Imatrix(ImatrixArgs),
    /// Test the GPUs of this machine
    #[command(long_about = devices::GPU_ABOUT)]
    Testgpu(TestgpuArgs),
    /// Test the NPUs of this machine
    #[command(long_about = devices::NPU_ABOUT)]
    Testnpu(TestnpuArgs),
    /// Make, list and remove the keys of those who may call the server
    #[command(long_about = key::ABOUT)]
    Key(KeyArgs),
    /// Print every setting, its value and where it came from
    #[command(long_about = config::ABOUT)]
    Config(ConfigArgs),
    /// Print the script that makes a shell complete commands and model names
    Completions(CompletionsArgs),
    /// Print versions of the program and of the running server
    Version(VersionArgs),
    /// Write man pages, completions and the settings reference
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Test a device in a process of its own
    #[command(hide = true)]
    DeviceWorker(DeviceWorkerArgs),
    /// Compute a model on a GPU for the server that started this
    #[command(hide = true)]
    GpuWorker(GpuWorkerArgs),
}

/// Tells whether results, and therefore errors, are wanted as JSON: the flag `json` of every command that writes some.
pub fn wants_json(matches: &ArgMatches) -> bool {
    let is_given = |json: Option<&bool>| json.copied().unwrap_or(false);
    let below = matches.subcommand();
    matches.try_get_one("json").is_ok_and(is_given)
        || below.is_some_and(|(_, matches)| wants_json(matches))
}

/// Returns the parser with the commands grouped in its help.
pub fn command() -> clap::Command {
    let command = <Cli as clap::CommandFactory>::command();
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut list = Vec::new();
    for (title, names) in GROUPS {
        list.push(format!("{header}{title}:{header:#}"));
        for name in *names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about);
            let about = about.map_or_else(|| "Explain a command".to_owned(), ToString::to_string);
            list.push(format!("  {literal}{name:<13}{literal:#} {about}"));
        }
        list.push(String::new());
    }
    let list = list.join("\n");
    let command = command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}\n\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ));
    // Where nobody sees how wide it is, help is as wide as the usual terminal.
    if term::stdout_is_terminal() {
        command
    } else {
        command.term_width(80)
    }
}

/// Returns the command that somebody may have meant by a word that is none.
pub fn meant(typed: &str) -> Option<String> {
    let typed = typed.to_lowercase();
    let of_others = OTHER_WORDS
        .iter()
        .find(|(words, _)| words.contains(&typed.as_str()));
    if let Some((_, command)) = of_others {
        return Some((*command).to_owned());
    }
    let names = GROUPS.iter().flat_map(|(_, names)| *names).copied();
    llmsrv_config::nearest(&typed, names).map(str::to_owned)
}

/// Words that other programs use for what these commands do.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (&["server", "up"], "serve"),
    (&["restart", "reload"], "serve --background --restart"),
    (&["chat", "ask", "generate", "prompt"], "run"),
    (&["delete", "remove", "del", "uninstall"], "rm"),
    (
        &["update", "upgrade", "download", "get", "install", "add"],
        "pull",
    ),
    (&["models", "tags"], "list"),
    (&["find", "catalog", "library"], "search"),
    (&["copy", "rename", "mv"], "cp"),
    (&["info", "inspect"], "show"),
    (&["unload", "kill", "down"], "stop"),
    (&["benchmark"], "bench"),
    (&["settings", "set"], "config"),
    (&["keys", "auth"], "key"),
    (&["top", "htop"], "monitor"),
];

/// The commands by what people want to do.
const GROUPS: &[(&str, &[&str])] = &[
    ("Talk to models", &["run", "serve", "launch"]),
    (
        "Manage models",
        &[
            "search",
            "list",
            "show",
            "pull",
            "install-model",
            "push",
            "create",
            "imatrix",
            "cp",
            "default",
            "rm",
        ],
    ),
    (
        "The running server",
        &[
            "status", "monitor", "ps", "stop", "test", "examples", "logs",
        ],
    ),
    (
        "This machine",
        &["net", "service", "firewall", "testgpu", "testnpu"],
    ),
    ("Other machines", &["ssh"]),
    ("Log calls", &["logkit"]),
    (
        "The program",
        &["bench", "key", "config", "completions", "version", "help"],
    ),
];

const HELP_MORE: &str = "\
Examples:
  llmsrv run                               Chat with the default model
  llmsrv run default \"Hello!\"              Ask one question
  llmsrv run qwen3:0.6b                    Get a model if need be, and chat with it
  git diff | llmsrv run qwen3 \"Review:\"    Ask about what a command prints
  llmsrv serve                             Serve clients on 127.0.0.1:11434
  llmsrv serve --network -p 8080           Serve the whole network on port 8080
  llmsrv list --json                       List the models for a script
  llmsrv config                            Print every setting and where it came from

  curl http://127.0.0.1:11434/api/generate -d '{\"model\": \"default\", \"prompt\": \"Hello!\"}'

Results go to stdout, everything else to stderr. Commands talk to the running server; when there is \
none, those that can do their work themselves.

Exit status:
  0    success
  1    failure
  2    wrong use of the command line
  3    no server runs (`status`, `stop`)
  4    the service is not installed (`service`)
  69   the server cannot be reached
  75   the server is busy: try again
  78   the settings are wrong
  128+N  ended by signal N

Settings come from flags, the environment (LLMSRV_*, with OLLAMA_* as a fallback), a file named by \
--env-file, and $XDG_CONFIG_HOME/llmsrv/config.toml; `llmsrv config` shows them all.";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn no_argument_of_a_command_has_the_id_of_a_global_one() {
        let command = command();
        let global: BTreeSet<&str> = command
            .get_arguments()
            .filter(|arg| arg.is_global_set())
            .map(|arg| arg.get_id().as_str())
            .collect();
        assert!(global.contains("models"));
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments() {
                assert!(
                    !global.contains(arg.get_id().as_str()),
                    "{}: {}",
                    sub.get_name(),
                    arg.get_id()
                );
            }
        }
    }

    #[test]
    fn other_words_lead_to_commands_that_are_there() {
        let command = command();
        for (words, meant) in OTHER_WORDS {
            let name = meant.split(' ').next().unwrap();
            let found = command.find_subcommand(name).unwrap();
            assert!(!found.is_hide_set(), "{meant}");
            for word in *words {
                let taken = command.find_subcommand(word);
                assert!(taken.is_none_or(clap::Command::is_hide_set), "{word}");
                assert_eq!(super::meant(word).as_deref(), Some(*meant));
            }
        }
        for (typed, expected) in [("rnu", Some("run")), ("lst", Some("list")), ("xyzzy", None)] {
            assert_eq!(meant(typed).as_deref(), expected, "{typed}");
        }
    }

    #[test]
    fn every_visible_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        grouped.retain(|name| *name != "help");
        let unique: BTreeSet<&str> = grouped.iter().copied().collect();
        let command = command();
        let visible: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        assert_eq!(unique, visible);
        assert_eq!(unique.len(), grouped.len());
    }

    #[test]
    fn every_visible_command_has_examples_of_itself() {
        for sub in command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = sub.get_name();
            let text = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                text.contains("Examples:") && text.contains(&format!("llmsrv {name}")),
                "{name}"
            );
        }
    }
}
