//! What can be typed: names, help and shapes of all commands. Types only; nothing happens here.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::ArgValueCompleter;

use crate::{
    complete,
    render::ColorArg,
    time::{self, Moment},
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "logkit",
    version,
    about = "Log commands and calls, and look at what was logged",
    after_help = "Examples:\n  \
        logkit run -- make test          Run a command and log how it went\n  \
        logkit logs --errors --last 24h  Show the errors of the last day\n  \
        logkit tail -f deploy            Watch what comes in\n  \
        logkit tree 4bf92f3577b34da6     Show the calls of one trace as a tree\n\n\
        `logkit help COMMAND` explains a command. Everything is also `llmsrv logkit ...`.",
    after_long_help = HELP_MORE,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorArg,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command and log how it went
    #[command(long_about = RUN_ABOUT)]
    Run(RunArgs),
    /// Show what was logged, newest first
    Logs(LogsArgs),
    /// Show what comes in until interrupted
    Tail(TailArgs),
    /// Show the calls of a trace as a tree
    Tree(TreeArgs),
    /// Count calls, errors and times of each function
    Stats(StatsArgs),
    /// Compare what calls returned in two versions
    Diff(DiffArgs),
    /// Copy entries into another database or file
    Export(ExportArgs),
    /// Delete old entries
    Prune(PruneArgs),
    /// Show the commands that were logged as commands to type
    Replay(ReplayArgs),
    /// Take entries over HTTP and gRPC, and show them on a page
    Serve(ServeArgs),
    /// Print the version
    Version,
    /// Print the script that makes a shell complete commands
    Completions(CompletionsArgs),
}

/// Arguments of `run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit run -- cargo test\n  \
    logkit run --env prod --timeout 30m -- ./deploy.sh eu-1\n  \
    logkit run --sink csv:calls.csv --sink db:calls.db -- backup --all\n  \
    logkit run --env-file .env --cwd services/api -- npm start")]
pub(crate) struct RunArgs {
    /// Where the entry goes, such as db:FILE, csv:FILE, md:FILE or json:FILE; may be repeated
    #[arg(long = "sink", value_name = "SPEC")]
    pub(crate) sinks: Vec<String>,
    /// Environment tag of the entry
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Option<String>,
    /// Give the command our own streams: nothing of its output is kept
    #[arg(short, long, conflicts_with_all = ["tty", "no_tty"])]
    pub(crate) passthrough: bool,
    /// Run the command in a terminal of its own, even if ours is none
    #[arg(long, conflicts_with = "no_tty")]
    pub(crate) tty: bool,
    /// Run the command with pipes, even in a terminal
    #[arg(long)]
    pub(crate) no_tty: bool,
    /// End the command after this time, with exit status 124; bare numbers are seconds, 0 is never
    #[arg(long, value_name = "TIME", value_parser = time::limit)]
    pub(crate) timeout: Option<Duration>,
    /// Folder to run the command in
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) cwd: Option<PathBuf>,
    /// Read NAME=value lines from this file, for us and the command; the environment is stronger
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) env_file: Option<PathBuf>,
    /// Most bytes kept of each output stream: half of its start, half of its end
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024, value_parser = most_output)]
    pub(crate) max_output: usize,
    /// Print the entry on stderr when the command has ended
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Print nothing of our own, as without this option; for scripts that say so
    #[arg(short, long, hide = true)]
    pub(crate) quiet: bool,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

fn most_output(text: &str) -> Result<usize, String> {
    const MOST: usize = 64 * 1024 * 1024;
    match text.parse() {
        Ok(bytes) if bytes <= MOST => Ok(bytes),
        _ => Err(format!("give a number of bytes up to {MOST}")),
    }
}

/// Which entries.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters (all must hold)")]
pub(crate) struct FilterArgs {
    /// Only errors
    #[arg(short, long)]
    pub(crate) errors: bool,
    /// Only this level
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// Only the last 90s, 30m, 24h, 7d, 2w; bare numbers are hours
    #[arg(long, value_name = "TIME", value_parser = time::span)]
    pub(crate) last: Option<Duration>,
    /// Not before this time: 2026-11-20, 2026-11-20T19:54 (UTC unless it has an offset) or 2h
    #[arg(long, value_name = "TIME", value_parser = time::moment)]
    pub(crate) since: Option<Moment>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = time::moment)]
    pub(crate) until: Option<Moment>,
    /// Functions whose name has this in it
    #[arg(short, long, value_name = "TEXT", add = ArgValueCompleter::new(complete::functions))]
    pub(crate) function: Option<String>,
    /// Only this environment
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::environments))]
    pub(crate) env: Option<String>,
    /// Only this trace
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::traces))]
    pub(crate) trace: Option<String>,
    /// Entries with these words anywhere
    #[arg(long, value_name = "WORDS", conflicts_with = "grep")]
    pub(crate) search: Option<String>,
    /// Entries with exactly this text anywhere, whatever its case
    #[arg(long, value_name = "TEXT")]
    pub(crate) grep: Option<String>,
    /// Calls that took this many milliseconds or more
    #[arg(long, value_name = "MS", value_parser = time::milliseconds)]
    pub(crate) slow: Option<f64>,
}

/// Which database.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DatabaseArgs {
    /// The database; LOGKIT_DB when left out, or logkit_logs.db
    #[arg(value_name = "DB", value_hint = ValueHint::FilePath)]
    pub(crate) db: Option<PathBuf>,
    /// Table of the entries
    #[arg(long, value_name = "NAME", default_value = "logs")]
    pub(crate) table: String,
}

/// Arguments of `logs`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit logs                                  The last twenty entries\n  \
    logkit logs app.db --errors --last 24h       Errors of the last day\n  \
    logkit logs -f deploy -n 100 --json          For a script, one object a line\n  \
    logkit logs --search 'timeout payment'       Entries with both words\n  \
    logkit logs --sql 'SELECT level, count(*) FROM logs GROUP BY 1'")]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Most entries shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) form: FormArgs,
    /// Go on with what comes in until interrupted
    #[arg(long, conflicts_with_all = ["stats", "sql"])]
    pub(crate) follow: bool,
    /// Count instead of showing entries, as `logkit stats` does
    #[arg(long, conflicts_with = "csv")]
    pub(crate) stats: bool,
    /// Answer this query, which cannot change anything
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["stats", "errors", "level", "last", "since", "until",
        "function", "env", "trace", "search", "grep", "slow"])]
    pub(crate) sql: Option<String>,
}

/// How entries are written.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct FormArgs {
    /// Print JSON, one object a line
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print CSV with a header
    #[arg(long)]
    pub(crate) csv: bool,
}

impl FormArgs {
    /// Tells whether a script reads it.
    pub(crate) fn is_data(self) -> bool {
        self.json || self.csv
    }
}

/// Arguments of `tail`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit tail\n  \
    logkit tail app.db --errors --json")]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Entries shown at the start
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) form: FormArgs,
}

/// Arguments of `tree`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit tree 4bf92f3577b34da6\n  \
    logkit tree 4bf92f3577b34da6 app.db --json")]
pub(crate) struct TreeArgs {
    /// The trace
    #[arg(value_name = "TRACE", add = ArgValueCompleter::new(complete::traces))]
    pub(crate) trace: String,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// Print JSON, one nested object for each root
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `stats`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit stats --last 7d\n  \
    logkit stats app.db --sort errors --json")]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// What the first row has most of
    #[arg(long, value_name = "COLUMN", default_value = "count")]
    pub(crate) sort: SortArg,
    /// Most functions shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Columns of statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortArg {
    /// Calls
    #[default]
    Count,
    /// Errors
    Errors,
    /// The time that 95 of 100 calls keep to
    P95,
    /// All time together
    Total,
}

/// Arguments of `diff`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit diff 1.4.0 1.5.0\n  \
    logkit diff 1.4.0 1.5.0 app.db -f price --exit-code")]
pub(crate) struct DiffArgs {
    /// The older version
    #[arg(value_name = "V1")]
    pub(crate) old: String,
    /// The newer version
    #[arg(value_name = "V2")]
    pub(crate) new: String,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// Functions whose name has this in it
    #[arg(short, long, value_name = "TEXT", add = ArgValueCompleter::new(complete::functions))]
    pub(crate) function: Option<String>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 1 when there are differences
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// Arguments of `export`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit export --to csv:november.csv --since 2026-11-01\n  \
    logkit export app.db --to db:errors.db --errors")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Where entries go, such as csv:FILE, md:FILE, json:FILE or db:FILE; may be repeated
    #[arg(long = "to", value_name = "SPEC", required = true)]
    pub(crate) sinks: Vec<String>,
}

/// Arguments of `prune`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit prune --older-than 30d\n  \
    logkit prune app.db --keep 1000000 --dry-run")]
#[group(id = "what", required = true, multiple = true, args = ["older_than", "keep"])]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    /// Delete entries older than 90s, 30m, 24h, 7d, 2w; bare numbers are hours
    #[arg(long, value_name = "TIME", value_parser = time::span)]
    pub(crate) older_than: Option<Duration>,
    /// Delete all but the newest N entries
    #[arg(long, value_name = "N")]
    pub(crate) keep: Option<u64>,
    /// Only say how many would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Give the freed space back to the disk
    #[arg(long)]
    pub(crate) vacuum: bool,
}

/// Arguments of `serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit serve\n  \
    logkit serve --port 9000 --db logs.db\n  \
    LOGKIT_API_KEY=sesame logkit serve --network --tls-cert cert.pem --tls-key key.pem\n\n\
    curl localhost:8080/log -d '{\"cmd\": \"backup\", \"success\": true}'")]
pub(crate) struct ServeArgs {
    /// Address of both services; LOGKIT_HOST and LOGKIT_GRPC_HOST otherwise, or 127.0.0.1
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Listen on all addresses of this machine, so that others reach it; set an API key then
    #[arg(long, conflicts_with = "host")]
    pub(crate) network: bool,
    /// Port of HTTP
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Port of gRPC
    #[arg(long, value_name = "PORT")]
    pub(crate) grpc_port: Option<u16>,
    /// Do not speak gRPC
    #[arg(long, conflicts_with = "grpc_port")]
    pub(crate) no_grpc: bool,
    /// Key that callers must have; in LOGKIT_API_KEY other users cannot see it
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Database of the entries; logkit_central.db in LOGKIT_LOG_DIR otherwise
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) db: Option<String>,
    /// Certificates in PEM form: then both services speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Origin whose web pages may call, such as https://example.org; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
}

/// Arguments of `replay`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    logkit replay --dry-run --last 24h\n  \
    logkit replay --dry-run --errors -f deploy")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only print the commands; nothing is run
    #[arg(long, required = true)]
    pub(crate) dry_run: bool,
    /// Most commands shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: u64,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    source <(logkit completions bash)                            In ~/.bashrc\n  \
    logkit completions fish | source                             In ~/.config/fish/config.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Returns the parser.
pub fn command() -> clap::Command {
    let command = Cli::command();
    // Where nobody sees how wide it is, help is as wide as the usual terminal.
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        command
    } else {
        command.term_width(80)
    }
}

const RUN_ABOUT: &str = "\
Run a command and log how it went.

Its output appears at once where it would appear without us, and its exit status is ours. The entry \
holds the command line, the status, the time it took, and beginning and end of its output, with \
passwords, keys and tokens blanked. If the entry cannot be written the command still runs.

In a terminal the command gets a terminal of its own; otherwise pipes. Signals are passed on.

Exit status: that of the command; 128+N when signal N ended it; 124 when its time was over; 126 when \
it cannot be executed; 127 when it was not found; 2 when the options are wrong.";

const HELP_MORE: &str = "\
Examples:
  logkit run -- make test                        Run a command and log how it went
  logkit run --env prod -- ./deploy.sh eu-1      Tag the entry
  logkit logs                                    Show the last twenty entries
  logkit logs --errors --last 24h                Show the errors of the last day
  logkit logs -f deploy --json                   For a script, one object a line
  logkit tail --errors                           Watch errors come in
  logkit stats --last 7d                         Count calls, errors and times
  logkit diff 1.4.0 1.5.0                        Compare results of two versions
  logkit prune --older-than 30d                  Delete old entries

Settings come from the environment (LOGKIT_*), a file named by LOGKIT_ENV_FILE and the section \
[logkit] of llmsrv's settings file; `llmsrv config` shows them all.

Exit status:
  0    success
  1    failure
  2    wrong use of the command line
  `run` has the status of the command, see `logkit help run`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn everything_after_the_command_is_its_own() {
        for typed in [
            &["logkit", "run", "-q", "ls", "-q", "--env", "x"][..],
            &["logkit", "run", "-q", "--", "ls", "-q", "--env", "x"],
        ] {
            let Some(Command::Run(args)) = Cli::try_parse_from(typed).unwrap().command else {
                panic!("{typed:?}");
            };
            assert_eq!(args.command, ["ls", "-q", "--env", "x"]);
            assert!(args.quiet && args.env.is_none());
        }
    }

    #[test]
    fn bad_values_are_usage_errors() {
        for typed in [
            &["logkit", "logs", "--last", "soon"][..],
            &["logkit", "logs", "--since", "yesterday-ish"],
            &["logkit", "logs", "--json", "--csv"],
            &["logkit", "logs", "--slow", "-1"],
            &["logkit", "prune"],
            &["logkit", "replay"],
            &["logkit", "run", "--max-output", "1e9", "ls"],
            &["logkit", "run", "--timeout", "x", "ls"],
        ] {
            assert_eq!(
                Cli::try_parse_from(typed).unwrap_err().exit_code(),
                2,
                "{typed:?}"
            );
        }
    }
}
