//! The server as a service: `service`, `firewall`, `net`, `logs`.

use clap::{Args, Subcommand};

/// What `service` is for.
pub const ABOUT: &str = "Run the server as a service of this machine\n\n\
    The service is a unit of systemd, llmsrv-network.service, for the machine or, with --user, for \
    one user. Everything is done through systemctl, in steps that are shown before they are done; \
    what is so already is left as it is. Without systemd, `start` runs the server in the background.";

/// Arguments of `service`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo llmsrv service install              For this machine alone, on 127.0.0.1:11434\n  \
    sudo llmsrv service install --network    For all machines that reach this one\n  \
    llmsrv service install --user --dry-run  Show what would be written and run\n  \
    llmsrv service status                    What systemd says of it\n  \
    sudo llmsrv service restart              After an update\n\n\
    Exit status: 0 = done, 1 = a step failed, 3 = `status`: it does not run, 4 = not installed.")]
pub struct ServiceArgs {
    #[command(subcommand)]
    pub action: ServiceAction,
}

/// What to do with the service.
#[derive(Debug, Subcommand)]
pub enum ServiceAction {
    /// Write the unit and let it start with the machine
    #[command(long_about = INSTALL_ABOUT)]
    Install(InstallArgs),
    /// Stop it and remove the unit; models and keys stay
    #[command(after_help = "Examples:\n  \
        sudo llmsrv service uninstall\n  \
        llmsrv service uninstall --user --dry-run")]
    Uninstall {
        #[command(flatten)]
        manner: ApplyArgs,
        /// Do not change the firewall
        #[arg(long)]
        no_firewall: bool,
    },
    /// Show what systemd says of it
    #[command(after_help = "Examples:\n  \
        llmsrv service status\n  \
        llmsrv service status --json | jq -r .active\n\n\
        Exit status: 0 = it runs, 3 = it does not, 4 = it is not installed.")]
    Status {
        /// That of this user, not that of the machine
        #[arg(long)]
        user: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start it; without systemd, in the background
    #[command(after_help = START_HELP)]
    Start(ApplyArgs),
    /// Stop it, and let running requests end first
    #[command(after_help = "Examples:\n  sudo llmsrv service stop\n  llmsrv service stop --user")]
    Stop(ApplyArgs),
    /// Stop and start it
    #[command(
        after_help = "Examples:\n  sudo llmsrv service restart\n  llmsrv service restart --user"
    )]
    Restart(ApplyArgs),
    /// Let it start with the machine
    #[command(
        after_help = "Examples:\n  sudo llmsrv service enable\n  llmsrv service enable --user"
    )]
    Enable(ApplyArgs),
    /// Do not start it with the machine any more
    #[command(
        after_help = "Examples:\n  sudo llmsrv service disable\n  llmsrv service disable --user"
    )]
    Disable(ApplyArgs),
}

const START_HELP: &str = "Examples:\n  \
    sudo llmsrv service start\n  \
    llmsrv service start --user\n  \
    llmsrv service start --dry-run           What would be done here\n\n\
    Without systemd it does what `llmsrv serve --background` does.";

const INSTALL_ABOUT: &str = "Write the unit and let it start with the machine\n\n\
    The service runs as the user who called sudo or, as root, as the system user llmsrv, which is \
    made where it is missing. It cannot see homes: models elsewhere than in /var/lib/llmsrv/models \
    are given with --models, and their folder is let through.";

/// Arguments of `service install`.
#[derive(Args, Debug, Default)]
#[command(after_help = "Examples:\n  \
    sudo llmsrv service install\n  \
    sudo llmsrv service install --network -p 8080\n  \
    sudo llmsrv service install --models /srv/models --run-as ann\n  \
    llmsrv service install --user\n  \
    llmsrv service install --dry-run --json | jq -r '.steps[].file.text // empty'")]
pub struct InstallArgs {
    #[command(flatten)]
    pub manner: ApplyArgs,
    /// Listen on all interfaces: other machines can use the models unless keys are made
    #[arg(long)]
    pub network: bool,
    /// Let web pages of every origin call it, as the unit of the script this program replaces
    #[arg(skip)]
    pub every_origin: bool,
    /// Account the service runs as
    #[arg(long, value_name = "USER", conflicts_with = "user")]
    pub run_as: Option<String>,
}

/// How steps are done.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ApplyArgs {
    /// For this user, not for the machine; no root needed
    #[arg(long)]
    pub user: bool,
    /// Show the commands and files, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the steps as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `firewall` is for.
pub const FIREWALL_ABOUT: &str = "Let other machines through the firewall of this one\n\n\
    Knows firewalld, ufw, nftables and iptables (with ip6tables), and changes one only if it is \
    active. The commands are shown before they are run; a rule that is there already is not made \
    again, and only rules of ours are removed.";

/// Arguments of `firewall`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo llmsrv firewall status              Which firewall is active, and whom it lets in\n  \
    sudo llmsrv firewall allow               Let port 11434 in\n  \
    sudo llmsrv firewall allow --lan-only    From private addresses only\n  \
    sudo llmsrv firewall allow --dry-run     Show the commands\n  \
    sudo llmsrv firewall remove -p 8080      Remove the rule\n\n\
    Exit status: 0 = done, or nothing to do; 1 = a command failed, or root is needed.")]
pub struct FirewallArgs {
    #[command(subcommand)]
    pub action: FirewallAction,
}

/// What to do with the firewall.
#[derive(Debug, Subcommand)]
pub enum FirewallAction {
    /// Show which firewalls there are, and whether they let the port in
    #[command(
        after_help = "Examples:\n  sudo llmsrv firewall status\n  sudo llmsrv firewall status --json"
    )]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the port in
    #[command(after_help = "Examples:\n  \
        sudo llmsrv firewall allow\n  \
        sudo llmsrv firewall allow -p 8080 --lan-only")]
    Allow {
        /// Only from private addresses (10/8, 172.16/12, 192.168/16, fc00::/7, fe80::/10)
        #[arg(long)]
        lan_only: bool,
        /// Show the commands, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Print the steps as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the rule that `allow` made
    #[command(
        after_help = "Examples:\n  sudo llmsrv firewall remove\n  sudo llmsrv firewall remove --dry-run"
    )]
    Remove {
        /// Show the commands, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Print the steps as JSON
        #[arg(long)]
        json: bool,
    },
}

/// What `net` is for.
pub const NET_ABOUT: &str = "Serve the network, all in one: service, firewall, checks, a model\n\n\
    Stops the running server, lets the port through the firewall, writes and enables the service \
    and starts it (without systemd: in the background), tests it, gets a model if there is none, and \
    says how to reach it. Each step can be done again. With one of --stop, --status, --test, \
    --examples, --install-model and --logs it does that alone.";

/// Arguments of `net`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo llmsrv net                          Serve the network on port 11434\n  \
    sudo llmsrv net -p 8080 --dry-run        Show what would be done\n  \
    llmsrv net --user --no-firewall          As a service of this user\n  \
    llmsrv net --status -p 8080              As `llmsrv status -p 8080`\n  \
    llmsrv net --logs                        As `llmsrv logs -f`\n\n\
    Exit status: 0 = it serves and passes the tests, 1 = something failed; with one of the other \
    actions, that of their command.")]
pub struct NetArgs {
    #[command(flatten)]
    pub action: NetAction,
    /// Show the commands and files, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not change the firewall
    #[arg(long)]
    pub no_firewall: bool,
    /// Get no model
    #[arg(long)]
    pub no_model: bool,
    /// As a service of this user; no root needed
    #[arg(long)]
    pub user: bool,
}

/// What to do in place of everything.
#[derive(Args, Clone, Copy, Debug)]
#[group(multiple = false)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one flag each, as they were always typed"
)]
pub struct NetAction {
    /// Stop the service and the server (as `service stop` and `stop`)
    #[arg(long)]
    pub stop: bool,
    /// Show what runs (as `status`)
    #[arg(long)]
    pub status: bool,
    /// Check the running server (as `test`)
    #[arg(long)]
    pub test: bool,
    /// Print requests that work (as `examples`)
    #[arg(long)]
    pub examples: bool,
    /// Get a model if there is none (as `install-model`)
    #[arg(long)]
    pub install_model: bool,
    /// Follow the log (as `logs -f`)
    #[arg(long)]
    pub logs: bool,
}

/// What `logs` is for.
pub const LOGS_ABOUT: &str = "Show the log of the server\n\n\
    That of the service is in the journal, and journalctl shows it; that of a server in the \
    background is the file server-PORT.log in the state folder, unless LLMSRV_LOG_FILE names another.";

/// Arguments of `logs`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    llmsrv logs                              The last 100 lines\n  \
    llmsrv logs -f                           Those to come as well, until Ctrl-C\n  \
    llmsrv logs -n 20 --since 1h             The last 20 of the last hour\n  \
    llmsrv logs --since 2026-11-21T08:00:00Z\n  \
    llmsrv logs --json | jq 'select(.level == \"WARN\")'\n\n\
    Exit status: 0, or that of journalctl; 1 = there is no log.")]
pub struct LogsArgs {
    /// Go on with what is written from now on
    #[arg(short, long)]
    pub follow: bool,
    /// Lines to begin with
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100)]
    pub lines: usize,
    /// Only since then: 30m, 2h, 1d ago, a date or a moment
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// The service of this user, not that of the machine
    #[arg(long)]
    pub user: bool,
    /// Print each line as a JSON object
    #[arg(long)]
    pub json: bool,
}
