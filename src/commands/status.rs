//! `llmsrv status`

use std::{fmt::Write as _, process::ExitCode};

use llmsrv_api::client::Client;
use llmsrv_host::{
    instance::{self, Instance},
    net,
};
use serde_json::{Value, json};

use crate::{
    cli::StatusArgs,
    connect::{running, runtime},
    context::Context,
    failure::{Code, Failure},
    format, logging, term,
};

/// Prints what runs on the configured port. That nothing does is an exit status of its own.
pub fn run(context: &Context, args: &StatusArgs) -> Result<ExitCode, Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let state = State::find(context)?;
    if args.json {
        term::json(&state.json())?;
    } else if !context.global.quiet {
        term::line(state.text())?;
    }
    Ok(match state.answers {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(Code::NotRunning as u8),
    })
}

struct State {
    url: String,
    instance: Option<Instance>,
    answers: Option<Answers>,
}

/// What the server says of itself.
struct Answers {
    version: String,
    models: usize,
    /// `/api/ps`
    loaded: Value,
}

impl State {
    fn find(context: &Context) -> Result<State, Failure> {
        let config = context.config();
        let host = &config.server.host;
        let instance = host
            .is_local()
            .then(|| instance::on_port(&config.host.runtime_dir, host.port))
            .flatten();
        let answers = runtime()?.block_on(async {
            let client = running(context).await.ok()?;
            Answers::ask(&client).await
        });
        let url = instance
            .as_ref()
            .map_or_else(|| host.url(), |it| it.url.clone());
        Ok(State {
            url,
            instance,
            answers,
        })
    }

    fn json(&self) -> Value {
        let instance = self.instance.as_ref();
        let answers = self.answers.as_ref();
        json!({
            "running": answers.is_some(),
            "url": self.url,
            "version": answers.map(|answers| &answers.version),
            "pid": instance.map(|it| it.pid),
            "uptime_seconds": instance.and_then(Instance::uptime).map(|time| time.as_secs()),
            "resident_bytes": instance.and_then(Instance::resident),
            "bound": instance.map(|it| &it.bound),
            "all_interfaces": instance.map(Instance::is_bound_to_all),
            "addresses": self.network_urls(),
            "models": answers.map(|answers| answers.models),
            "loaded": answers.map(|answers| &answers.loaded["models"]),
            "queue": answers.map(|answers| &answers.loaded["queue"]),
        })
    }

    /// Addresses for other machines; none if the server listens for this machine alone.
    fn network_urls(&self) -> Vec<String> {
        match &self.instance {
            Some(instance) if instance.is_bound_to_all() => {
                super::network_urls(instance, &net::addresses())
            }
            _ => Vec::new(),
        }
    }

    fn text(&self) -> String {
        let (strong, url) = (term::STRONG, &self.url);
        let Some(answers) = &self.answers else {
            return match &self.instance {
                Some(it) => format!("○ process {} listens at {url} and does not answer", it.pid),
                None => format!("○ no server runs at {url}"),
            };
        };
        let mut rows = vec![("Version", answers.version.clone())];
        if let Some(it) = &self.instance {
            let mut process = it.pid.to_string();
            if let Some(bytes) = it.resident() {
                let _ = write!(process, ", {} of memory", format::size(bytes));
            }
            if let Some(time) = it.uptime() {
                let _ = write!(process, ", for {}", format::span(time.as_secs() as i64));
            }
            rows.push(("Process", process));
            rows.push((
                "Listens",
                if it.is_bound_to_all() {
                    let urls = self.network_urls();
                    format!("on every address: {}", urls.join(", "))
                } else {
                    format!("on {} only", it.bound)
                },
            ));
        }
        rows.push(("Models", answers.models.to_string()));
        let loaded = answers.loaded["models"].as_array().into_iter().flatten();
        let loaded: Vec<String> = loaded
            .map(|model| {
                let name = model["name"].as_str().unwrap_or_default();
                let size = model["size"].as_u64().unwrap_or(0);
                format!("{name} ({})", format::size(size))
            })
            .collect();
        let none = || "nothing".to_owned();
        let loaded = if loaded.is_empty() {
            none()
        } else {
            loaded.join(", ")
        };
        rows.push(("Loaded", loaded));
        if let Some(waiting @ 1..) = answers.loaded["queue"].as_u64() {
            rows.push(("Waiting", format!("{waiting} requests")));
        }
        let rows = rows
            .iter()
            .map(|(name, value)| format!("  {name:<9}{value}"));
        let rows: Vec<String> = rows.collect();
        format!(
            "{strong}●{strong:#} a server runs at {url}\n{}",
            rows.join("\n")
        )
    }
}

impl Answers {
    async fn ask(client: &Client) -> Option<Answers> {
        let version = client.version().await.ok()?;
        // A server that asks for a key says no more than its version without one.
        let tags: Value = client.get("/api/tags").await.unwrap_or_default();
        let loaded: Value = client.get("/api/ps").await.unwrap_or_default();
        Some(Answers {
            version,
            models: tags["models"].as_array().map_or(0, Vec::len),
            loaded,
        })
    }
}
