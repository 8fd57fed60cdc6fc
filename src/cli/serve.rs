//! `llmsrv serve`

use clap::Args;

/// The first part of the long help.
pub const ABOUT: &str = "Serve models over HTTP.\n\n\
    Clients of the Ollama API work unchanged; OpenAI clients use the same address with /v1. \
    The server runs until Ctrl-C or SIGTERM and lets running requests end first.";

/// Arguments of `serve`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:\n  \
        llmsrv serve                              Listen on 127.0.0.1:11434\n  \
        llmsrv serve -p 8080                      Listen on another port\n  \
        llmsrv serve --host 0.0.0.0               Listen on every interface\n  \
        llmsrv serve --preload default            Load a model at the start\n  \
        llmsrv serve --background                 Serve the network, and return\n  \
        sudo llmsrv serve --install               As a service, from now on\n  \
        LLMSRV_KEEP_ALIVE=-1 llmsrv serve         Never unload an idle model")]
pub struct ServeArgs {
    /// Models to load at the start, between commas
    #[arg(long, value_name = "MODELS")]
    pub preload: Option<String>,
    /// How long an idle model stays loaded, such as 30m; -1 = forever
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub keep_alive: Option<String>,
    /// Requests one model answers at the same time
    #[arg(long, value_name = "N")]
    pub parallel: Option<String>,
    /// Go on in the background, for all machines unless an address is set; see `logs` and `stop`
    #[arg(long, conflicts_with = "install")]
    pub background: bool,
    /// Install the service and start it (as `service install` and `service start`)
    #[arg(long, conflicts_with_all = ["preload", "keep_alive", "parallel"])]
    pub install: bool,
    /// Show what --background or --install would do
    #[arg(long)]
    pub dry_run: bool,
    /// With --install: for this user, not for the machine
    #[arg(long, requires = "install")]
    pub user: bool,
    /// With --install: listen on all addresses
    #[arg(long, requires = "install")]
    pub network: bool,
    /// With --background: leave the firewall as it is
    #[arg(long, requires = "background")]
    pub no_firewall: bool,
    /// Leaves the session of the terminal
    #[arg(long, hide = true)]
    pub detached: bool,
}
