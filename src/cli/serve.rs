//! `llmsrv serve`

use clap::Args;
use llmsrv_config::Network;

/// The first part of the long help.
pub const ABOUT: &str = "Serve models over HTTP.\n\n\
    Clients of the Ollama API work unchanged; OpenAI clients use the same address with /v1. \
    The server runs until Ctrl-C or SIGTERM and lets running requests end first.";

/// Arguments of `serve`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:\n  \
        llmsrv serve                              Listen on 127.0.0.1:11434\n  \
        llmsrv serve -p 8080                      Listen on another port\n  \
        llmsrv serve --network                    Listen for other machines, too\n  \
        llmsrv serve --preload default            Load a model at the start\n  \
        llmsrv serve --background                 Start it in the background\n  \
        sudo llmsrv serve --install               As a service, from now on\n  \
        LLMSRV_KEEP_ALIVE=-1 llmsrv serve         Never unload an idle model")]
pub struct ServeArgs {
    /// Models to load at the start, between commas
    #[arg(long, value_name = "MODELS")]
    pub preload: Option<String>,
    /// How long an idle model stays loaded, such as 30m; -1 = forever
    #[arg(
        long,
        alias = "keepalive",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub keep_alive: Option<String>,
    /// Requests one model answers at the same time
    #[arg(long, value_name = "N")]
    pub parallel: Option<String>,
    /// Run in the background; see `status`, `logs` and `stop`
    #[arg(long, conflicts_with = "install")]
    pub background: bool,
    /// Listen on all interfaces: other machines can use the models unless keys are made
    #[arg(long)]
    pub network: bool,
    /// With --background: stop the running server once the new one is known to start
    #[arg(long, requires = "background")]
    pub restart: bool,
    /// Install the service and start it (as `service install` and `service start`)
    #[arg(long, conflicts_with_all = ["preload", "keep_alive", "parallel"])]
    pub install: bool,
    /// Show what --background or --install would do
    #[arg(long)]
    pub dry_run: bool,
    /// With --install: for this user, not for the machine
    #[arg(long, requires = "install")]
    pub user: bool,
    /// With --background: do not change the firewall
    #[arg(long, requires = "background")]
    pub no_firewall: bool,
    /// Leaves the session of the terminal
    #[arg(long, hide = true)]
    pub detached: bool,
    /// As --network, unless an address is set: the form of the script this program replaces
    #[arg(long, hide = true)]
    pub network_unless_set: bool,
}

impl ServeArgs {
    /// Tells whether the server is opened to other machines.
    pub fn network(&self) -> Network {
        match (self.network, self.network_unless_set) {
            // The unit says it, not this process.
            _ if self.install => Network::AsSet,
            (true, _) => Network::Open,
            (false, true) => Network::UnlessSet,
            (false, false) => Network::AsSet,
        }
    }
}
