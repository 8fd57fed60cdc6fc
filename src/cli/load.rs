//! Load on the machine, as part of `test`.

use std::time::Duration;

use clap::Args;

/// What `test` puts load on, in place of checking the server.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Load on this machine, in place of the checks")]
pub struct LoadArgs {
    /// Compute with so many threads [default: one for each processor]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub cpu: Option<usize>,
    /// Write and read so much memory, such as 2GiB; never more than is free
    #[arg(long, value_name = "SIZE", value_parser = llmsrv_config::value::bytes)]
    pub mem: Option<u64>,
    /// Read each disk, and write nothing
    #[arg(long)]
    pub disk: bool,
    /// How long processors and memory are under load; a disk is read for three seconds at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub duration: Duration,
}

impl LoadArgs {
    /// Tells whether load was asked for.
    pub fn is_asked(&self) -> bool {
        self.cpu.is_some() || self.mem.is_some() || self.disk
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match llmsrv_config::value::duration(text)? {
        Some(time) if !time.is_zero() && time <= MOST => Ok(time),
        _ => Err("must be longer than nothing and no longer than a day".to_owned()),
    }
}

const MOST: Duration = Duration::from_hours(24);
