//! From a parsed command line to the function that does it.

mod background;
mod bench;
mod completions;
mod config;
mod cp;
mod create;
mod default;
mod devices;
mod examples;
mod firewall;
mod generate;
mod gpu_worker;
mod imatrix;
mod install_model;
mod key;
mod launch;
mod list;
mod load;
mod logs;
mod monitor;
mod net;
mod ps;
mod pull;
mod push;
mod rm;
mod run;
pub mod search;
mod serve;
mod service;
mod show;
mod ssh;
mod status;
mod stop;
mod test;
mod testgpu;
mod testnpu;
mod version;

pub use version::long as long_version;

use std::{ffi::OsString, net::IpAddr, process::ExitCode};

use llmsrv_config::{Address, Network};
use llmsrv_host::{instance::Instance, net::addresses};

use crate::{
    cli::{self, Cli, Command},
    context::Context,
    failure::Failure,
    logging, term,
};

/// Runs the logger, whose command line is its own; its messages call it as it was called.
pub fn logkit(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = std::iter::once("llmsrv logkit".into());
    logkit_cli::main(name.chain(args))
}

/// Does what was asked; returns the exit status.
pub fn dispatch(parsed: Cli) -> Result<ExitCode, Failure> {
    let global = parsed.global;
    let Some(command) = parsed.command else {
        // Where nothing is done there is nothing to log: `-v` is the version, as others have it.
        let mut program = cli::command();
        if global.more > 0 {
            term::line(program.render_version().trim_end())?;
        } else {
            term::line(program.render_help().ansi())?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let plain = |global| {
        let context = Context::load(global, Vec::new())?;
        logging::start(context.config(), logging::Style::Command)?;
        Ok::<_, Failure>(context)
    };
    match command {
        Command::Serve(args) => {
            let context = Context::load_for(global, serve::flags(&args), args.network())?;
            serve::run(&context, &args)
        }
        Command::Run(args) => run::run(&plain(global)?, args),
        Command::Launch(args) => launch::run(&plain(global)?, &args),
        Command::Search(args) => search::run(&plain(global)?, &args),
        Command::List(args) => list::run(&plain(global)?, &args),
        Command::Show(mut args) => {
            let mut global = global;
            // The first `-v` is this command's own.
            args.verbose |= global.more > 0;
            global.more = global.more.saturating_sub(1);
            show::run(&plain(global)?, &args)
        }
        Command::Ps(args) => ps::run(&plain(global)?, &args),
        Command::Stop(args) => stop::run(&plain(global)?, &args),
        Command::Status(args) => return status::run(&plain(global)?, &args),
        Command::Monitor(args) => monitor::run(&plain(global)?, &args),
        Command::Test(args) if args.load.is_asked() => return load::run(&plain(global)?, &args),
        Command::Test(args) => return test::run(&plain(global)?, &args),
        Command::Examples(args) => examples::run(&plain(global)?, &args),
        Command::Service(args) => return service::run(&plain(global)?, &args),
        Command::Firewall(args) => firewall::run(&plain(global)?, &args),
        Command::Net(args) => {
            let context = Context::load_for(global, Vec::new(), Network::UnlessSet)?;
            return net::run(&context, &args);
        }
        Command::Logs(args) => return logs::run(&plain(global)?, &args),
        Command::Ssh(args) => return ssh::run(&global, args),
        Command::Create(args) => create::run(&plain(global)?, &args),
        Command::Pull(args) => pull::run(&plain(global)?, &args),
        Command::InstallModel(args) => install_model::run(&plain(global)?, &args),
        Command::Push(args) => push::run(&plain(global)?, &args),
        Command::Cp(args) => cp::run(&plain(global)?, &args),
        Command::Default(args) => default::run(&plain(global)?, &args),
        Command::Rm(args) => rm::run(&plain(global)?, &args),
        Command::Logkit(args) => {
            // What it prints and returns is its own; main comes here only after global options.
            return Ok(logkit(args.args));
        }
        Command::Bench(args) => bench::run(&plain(global)?, &args),
        Command::Imatrix(args) => imatrix::run(&plain(global)?, &args),
        Command::Testgpu(args) => return testgpu::run(&plain(global)?, &args),
        Command::Testnpu(args) => return testnpu::run(&plain(global)?, &args),
        Command::Key(args) => key::run(&Context::load(global, Vec::new())?, args),
        Command::Config(args) => config::run(global, &args),
        Command::Completions(args) => completions::run(&args),
        Command::Version(args) => version::run(&plain(global)?, &args),
        Command::Generate(args) => generate::run(&args),
        Command::DeviceWorker(args) => devices::work(&args),
        Command::GpuWorker(args) => gpu_worker::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Says where a server really listens: its address or, where it listens on all, each of them.
fn listens(instance: &Instance) -> String {
    let mut urls = vec![instance.url.clone()];
    if !instance.is_bound_to_all() {
        return urls.concat();
    }
    urls.extend(network_urls(instance, &addresses()));
    let (bound, port) = (&instance.bound, instance.port);
    let bound = if bound.contains(':') {
        format!("[{bound}]")
    } else {
        bound.clone()
    };
    format!("{bound}:{port}, every interface: {}", urls.join(", "))
}

/// Tells whether other machines can reach a server.
fn is_open(instance: &Instance) -> bool {
    let bound: Option<IpAddr> = instance.bound.parse().ok();
    bound.is_none_or(|bound| !bound.is_loopback())
}

/// Returns the addresses at which other machines reach a server that listens everywhere.
fn network_urls(instance: &Instance, addresses: &[IpAddr]) -> Vec<String> {
    let url = |address: &IpAddr| {
        Address {
            tls: instance.url.starts_with("https:"),
            host: address.to_string(),
            port: instance.port,
            path: String::new(),
        }
        .url()
    };
    // A socket bound to 0.0.0.0 does not hear IPv6.
    let heard = |address: &&IpAddr| instance.bound == "::" || address.is_ipv4();
    addresses.iter().filter(heard).map(url).collect()
}
