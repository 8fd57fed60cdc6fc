//! `logkit serve`: the services.

use std::path::PathBuf;

use logkit::{
    Durability,
    spec::{self, Options},
};
use logkit_server::{Bound, Settings as Server, TlsFiles};

use crate::{args::ServeArgs, failure::Failure, render, settings::Settings};

/// File of the entries within the folder of the settings.
const DATABASE: &str = "logkit_central.db";

/// All addresses of the machine.
const EVERYWHERE: &str = "0.0.0.0";

/// Does `serve`: runs until a signal to stop.
pub(crate) fn run(args: ServeArgs) -> Result<(), Failure> {
    let config = Settings::load(None)?.logkit;
    let durability = Durability::parse(&config.durability).unwrap_or_default();
    let mut sinks = config.sinks.clone();
    // The first database among the sinks is the one that is asked again.
    let found = sinks.iter().position(|sink| path_of(sink).is_some());
    let database = match (args.db, found) {
        (Some(path), _) => path_of(&path).unwrap_or_else(|| path.into()),
        (None, Some(idx)) => path_of(&sinks.remove(idx)).unwrap_or_default(),
        (None, None) => config.log_dir.join(DATABASE),
    };
    let options = Options {
        durability,
        webhook_format: config.webhook_format.clone(),
        // Whoever may log writes what the owner opens.
        safe_formulas: true,
        ..Options::default()
    };
    let keys = args.api_key.or_else(|| {
        let key = config.api_key.as_ref();
        key.map(|key| key.expose().to_owned())
    });
    let host = args
        .host
        .or_else(|| args.network.then(|| EVERYWHERE.into()));
    let grpc_host = host.clone().unwrap_or(config.grpc_host);
    let grpc_port = args.grpc_port.unwrap_or(config.grpc_port);
    let shown = database.clone();
    llmsrv_memory::give_back();
    logkit_server::serve(Server {
        http: (
            host.unwrap_or(config.host),
            args.port.unwrap_or(config.port),
        ),
        grpc: (!args.no_grpc).then_some((grpc_host, grpc_port)),
        sinks: spec::open_all(&sinks, &options)?,
        api_keys: keys.into_iter().collect(),
        tls: args
            .tls_cert
            .zip(args.tls_key)
            .map(|(certificate, key)| TlsFiles { certificate, key }),
        cors_origins: args.allow_origin,
        redact: config.redact,
        queue: config.queue,
        durability,
        database,
        on_ready: Some(Box::new(move |bound| ready(bound, &shown))),
        ..Server::default()
    })
    .map_err(|error| Failure::Other(error.to_string()))
}

/// The file of a sink that is a database.
fn path_of(sink: &str) -> Option<PathBuf> {
    let (kind, path) = sink.split_once(':')?;
    let is_database = ["db", "sqlite"].contains(&kind.trim().to_lowercase().as_str());
    // What follows the path is about retention, which is `logkit prune`'s work here.
    let path = path.split('?').next().unwrap_or_default().trim();
    (is_database && !path.is_empty()).then(|| path.into())
}

fn ready(bound: &Bound, database: &std::path::Path) {
    for warning in &bound.warnings {
        render::warning(warning);
    }
    render::note(format_args!("HTTP on {}, page included", bound.http));
    if let Some(grpc) = bound.grpc {
        render::note(format_args!("gRPC on {grpc}"));
    }
    render::note(format_args!("entries go to {}", database.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_among_sinks_are_found() {
        for (sink, path) in [
            ("db:logs.db", Some("logs.db")),
            (" SQLite : /x/logs.db?retain=30d", Some("/x/logs.db")),
            ("db:", None),
            ("csv:logs.csv", None),
            ("logs.db", None),
        ] {
            assert_eq!(path_of(sink), path.map(PathBuf::from), "{sink}");
        }
    }
}
