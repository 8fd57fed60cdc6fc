//! `llmsrv install-model`: a default model for code.

use llmsrv_api::client::Client;
use llmsrv_registry::Registry;
use llmsrv_store::ModelName;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    catalogue::refreshed::Refreshed,
    cli::InstallModelArgs,
    connect::Connection,
    context::Context,
    embedded,
    failure::Failure,
    format,
    local::{self, Access, Prune},
    machine::Machine,
    term, transfer,
};

/// The usual models, best first: each is tried when those before it cannot be had.
const CHAIN: [&str; 4] = [
    "deepseek-coder:1.3b",
    "deepseek-coder",
    "qwen2.5-coder:1.5b",
    "tinyllama",
];

/// Installs the first model of the chain that can be had, or the one that is named.
pub fn run(context: &Context, args: &InstallModelArgs) -> Result<(), Failure> {
    Connection::with(context, Access::Add, async |connection| {
        install(context, args, connection).await
    })
}

async fn install(
    context: &Context,
    args: &InstallModelArgs,
    connection: &Connection,
) -> Result<(), Failure> {
    let wanted: Vec<ModelName> = match &args.model {
        Some(name) => vec![parse(name)?],
        None if args.best => vec![parse(&best(context)?)?],
        None => CHAIN
            .iter()
            .map(|name| parse(name))
            .collect::<Result<_, _>>()?,
    };
    let installed = installed(&connection.client).await?;
    let there = if args.model.is_some() || args.best {
        installed.iter().find(|name| is(name, &wanted[0]))
    } else {
        installed.first()
    };
    if let (Some(there), false) = (there, args.force) {
        return Report::new(args).end(Outcome::Already(there.clone()));
    }
    let mut report = Report::new(args);
    for name in &wanted {
        let tried = if args.dry_run {
            look(context, args, connection, name).await
        } else {
            let pulled = pull(context, args, &connection.client, name).await;
            pulled.map(|()| Outcome::Installed(name.to_string()))
        };
        match tried {
            Ok(outcome) => return report.end(outcome),
            Err(failure) => report.failed(context, name, &failure),
        }
    }
    report.end(Outcome::None)
}

/// Returns, of the models for code that call tools and fit this machine, the one that people pull most.
fn best(context: &Context) -> Result<String, Failure> {
    let words = ["code", "tools"].map(str::to_owned);
    let list = Machine::measure(context.threads()).list(&words, &Refreshed::default());
    let mut models = list.models.into_iter();
    let best = models.find(|model| model.suggested && model.about == "code");
    let best = best.ok_or_else(|| {
        let text = "no model for code in the list fits the memory of this machine";
        Failure::failed(text).hint("`llmsrv search --all code` lists what they need")
    })?;
    Ok(best.name)
}

fn parse(name: &str) -> Result<ModelName, Failure> {
    name.parse()
        .map_err(|error| Failure::usage(format!("{name}: {error}")))
}

fn is(listed: &str, name: &ModelName) -> bool {
    listed
        .parse::<ModelName>()
        .is_ok_and(|listed| listed == *name)
}

/// Returns the names of all models but the built-in one and its copies.
async fn installed(client: &Client) -> Result<Vec<String>, Failure> {
    let tags: Tags = client.get("/api/tags").await?;
    let built_in: Vec<&str> = match embedded::name()? {
        Some(name) => {
            let entries = tags.models.iter().filter(|model| is(&model.name, &name));
            entries.map(|model| model.digest.as_str()).collect()
        }
        None => Vec::new(),
    };
    let models = tags.models.iter();
    let others = models.filter(|model| !built_in.contains(&model.digest.as_str()));
    Ok(others.map(|model| model.name.clone()).collect())
}

/// Pulls a model and makes sure that it is listed afterwards. The server looks at its disk before
/// the first byte.
async fn pull(
    context: &Context,
    args: &InstallModelArgs,
    client: &Client,
    name: &ModelName,
) -> Result<(), Failure> {
    let mut shown = if args.json {
        term::Steps::hidden()
    } else {
        transfer::shown(context, false)
    };
    if !args.json && !context.global.quiet {
        term::note(format_args!("installing {name}"));
    }
    let request = json!({ "model": name.to_string(), "insecure": args.insecure });
    transfer::run(client, "/api/pull", &request, &mut shown).await?;
    let listed: Tags = client.get("/api/tags").await?;
    if listed.models.iter().any(|model| is(&model.name, name)) {
        return Ok(());
    }
    Err(Failure::failed(
        "it was pulled, but the server does not list it",
    ))
}

/// Finds out how large a model is and whether it fits, without pulling it.
async fn look(
    context: &Context,
    args: &InstallModelArgs,
    connection: &Connection,
    name: &ModelName,
) -> Result<Outcome, Failure> {
    let config = context.config();
    let store = local::open_store(&config.server, Prune::No)?;
    let registry = Registry::new(local::registry(&config.server)?, store.into());
    // Its text has its causes already.
    let failed = |error: llmsrv_registry::Error| Failure::failed(error);
    let preview = registry
        .preview(name, args.insecure)
        .await
        .map_err(failed)?;
    // The disk of a server that runs is its own matter: it looks before it pulls.
    let here = connection.is_local();
    if here && preview.missing > preview.free {
        return Err(failed(llmsrv_registry::Error::NoSpace {
            needed: preview.missing,
            free: preview.free,
        }));
    }
    Ok(Outcome::Would {
        name: name.to_string(),
        size: preview.size,
        missing: here.then_some(preview.missing),
        free: here.then_some(preview.free),
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tags {
    models: Vec<Tag>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tag {
    name: String,
    digest: String,
}

/// How it ended.
enum Outcome {
    /// There is a model, and nothing was to be done.
    Already(String),
    /// A model is there now.
    Installed(String),
    /// A model could be installed; sizes in bytes.
    Would {
        name: String,
        size: u64,
        missing: Option<u64>,
        free: Option<u64>,
    },
    /// No model can be had.
    None,
}

/// What is told at the end.
struct Report<'a> {
    args: &'a InstallModelArgs,
    /// What was tried in vain, and why.
    failed: Vec<(String, String)>,
}

impl<'a> Report<'a> {
    fn new(args: &'a InstallModelArgs) -> Report<'a> {
        Report {
            args,
            failed: Vec::new(),
        }
    }

    fn failed(&mut self, context: &Context, name: &ModelName, failure: &Failure) {
        if !self.args.json && !context.global.quiet {
            term::warning(format_args!("{name}: {failure}"));
        }
        self.failed.push((name.to_string(), failure.to_string()));
    }

    fn end(self, outcome: Outcome) -> Result<(), Failure> {
        if self.args.json {
            term::json(&self.json(&outcome))?;
        }
        let line = match outcome {
            Outcome::Already(name) => format!("{name} is installed: nothing to do"),
            Outcome::Installed(name) => format!("{name} is installed; try: llmsrv run {name}"),
            Outcome::Would {
                name,
                size,
                missing,
                free,
            } => {
                let size = format::size(size);
                match (missing, free) {
                    (Some(missing), Some(free)) => format!(
                        "would install {name}: {size}, of which {} are still to come; {} are free",
                        format::size(missing),
                        format::size(free)
                    ),
                    _ => format!(
                        "would install {name}: {size}; the server that runs looks at its disk before it pulls"
                    ),
                }
            }
            Outcome::None => return Err(self.nothing()),
        };
        if !self.args.json {
            term::line(line)?;
        }
        Ok(())
    }

    fn nothing(&self) -> Failure {
        let names: Vec<&str> = self.failed.iter().map(|(name, _)| name.as_str()).collect();
        let serves = match embedded::name() {
            Ok(Some(name)) => format!("; the built-in model {name} serves as before"),
            _ => String::new(),
        };
        Failure::failed(format!(
            "no model could be installed ({}){serves}",
            names.join(", ")
        ))
        .hint(
            "with a network, run it again: it goes on where it was; or bring in a model file: \
             llmsrv create NAME --from FILE.gguf",
        )
    }

    fn json(&self, outcome: &Outcome) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(model, error)| json!({ "model": model, "error": error }))
            .collect();
        let (word, model) = match outcome {
            Outcome::Already(name) => ("already installed", Some(name)),
            Outcome::Installed(name) => ("installed", Some(name)),
            Outcome::Would { name, .. } => ("would install", Some(name)),
            Outcome::None => ("failed", None),
        };
        let mut value = json!({ "outcome": word, "model": model, "failed": failed });
        if let Outcome::Would {
            size,
            missing,
            free,
            ..
        } = outcome
        {
            value["size_bytes"] = json!(size);
            value["missing_bytes"] = json!(missing);
            value["free_bytes"] = json!(free);
        }
        value
    }
}
