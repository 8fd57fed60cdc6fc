//! `llmsrv version`

use serde_json::json;

use crate::{
    about::{self, VERSION},
    cli::VersionArgs,
    connect::{self, Greeting, client, runtime},
    context::Context,
    embedded,
    failure::{Failure, KEY_HINT},
    format, term,
};

/// Prints the versions of this program and of the running server, if one runs.
pub fn run(context: &Context, args: &VersionArgs) -> Result<(), Failure> {
    let url = context.config().server.host.url();
    let client = client(context)?;
    let greeting = runtime()?.block_on(connect::greet(&client));
    if args.json {
        let (server, wants_key) = match &greeting {
            Greeting::Version(version) => (Some(version), false),
            Greeting::WantsKey => (None, true),
            Greeting::None(_) => (None, false),
        };
        term::json(&json!({
            "version": VERSION,
            "commit": about::COMMIT,
            "target": about::TARGET,
            "features": about::features(),
            "instruction_sets": about::instruction_sets(),
            "built_in_model_bytes": embedded::size(),
            "server": server,
            "server_url": url,
            "wants_key": wants_key,
        }))?;
        return Ok(());
    }
    term::line(format_args!("llmsrv {VERSION}"))?;
    match greeting {
        Greeting::Version(version) => term::line(format_args!("server {version} at {url}"))?,
        Greeting::WantsKey => term::line(format_args!(
            "a server runs at {url} and wants a key: {KEY_HINT}"
        ))?,
        Greeting::None(_) => term::line(format_args!("no server runs at {url}"))?,
    }
    Ok(())
}

/// Returns what `llmsrv --version` prints behind the name of the program.
pub fn long() -> String {
    let or_none = |names: Vec<&str>| match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(" "),
    };
    let model = embedded::size().map_or_else(|| "none".to_owned(), format::size);
    let mut lines = vec![VERSION.to_owned()];
    lines.extend(about::COMMIT.map(|commit| format!("commit: {commit}")));
    lines.push(format!("target: {}", about::TARGET));
    lines.push(format!("features: {}", or_none(about::features())));
    lines.push(format!(
        "instruction sets: {}",
        or_none(about::instruction_sets())
    ));
    lines.push(format!("built-in model: {model}"));
    lines.join("\n")
}
