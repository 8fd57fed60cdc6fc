//! `monitor`

use std::{path::PathBuf, time::Duration};

use clap::Args;

/// What `monitor` is for.
pub const ABOUT: &str = "Watch the machine and the server in the terminal\n\n\
    Processors, memory, temperatures, disks, network, GPUs and NPUs, and the server with its models \
    and tokens per second, each with a bar and its history. The keys are in the help: press ?. \
    Where the output is no terminal one frame of text is printed.";

/// Arguments of `monitor`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv monitor                       Watch until q is pressed\n  \
    llmsrv monitor --interval 500ms      Refresh twice a second\n  \
    llmsrv monitor --once                Print the figures of one second as text\n  \
    llmsrv monitor --json | jq .cpu      For a script\n  \
    llmsrv monitor --json --interval 5s  A line of JSON every five seconds")]
pub struct MonitorArgs {
    /// Print one frame as text
    #[arg(long)]
    pub once: bool,
    /// Print one frame as JSON; with --interval one line after another
    #[arg(long)]
    pub json: bool,
    /// Refresh interval, from 100ms to 1h [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub interval: Option<Duration>,
    /// Draw with plain characters
    #[arg(long)]
    pub ascii: bool,
    /// No colours, as with --color never
    #[arg(long)]
    pub no_color: bool,
    /// Read proc and sys below this folder alone, not those of this machine
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time from 100ms to 1h, such as 500ms or 2s".to_owned();
    llmsrv_config::value::duration(text)
        .ok()
        .flatten()
        .filter(|interval| llmsrv_monitor::INTERVALS.contains(interval))
        .ok_or_else(wrong)
}
