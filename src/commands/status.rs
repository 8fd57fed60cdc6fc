//! `llmsrv status`

use std::{fmt::Write as _, net::SocketAddr, process::ExitCode};

use llmsrv_api::client::Client;
use llmsrv_host::{
    instance::{self, Instance},
    net, sockets,
    systemd::Unit,
};
use serde_json::{Value, json};

use crate::{
    cli::StatusArgs,
    connect::{self, Greeting, client, runtime},
    context::Context,
    failure::{Code, Failure, KEY_HINT},
    format, term,
};

/// Prints what runs on the configured port. That nothing does is an exit status of its own.
pub fn run(context: &Context, args: &StatusArgs) -> Result<ExitCode, Failure> {
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
    /// The service, if it is installed.
    unit: Option<Unit>,
    /// Where the process listens, as the system says.
    sockets: Vec<SocketAddr>,
    log: Vec<String>,
}

/// What the server says of itself.
struct Answers {
    /// Nothing where a key is wanted that was not given.
    version: Option<String>,
    models: Vec<String>,
    /// `/api/ps`
    loaded: Value,
}

/// Lines of the log that are shown.
const LOG_LINES: usize = 5;

impl State {
    fn find(context: &Context) -> Result<State, Failure> {
        let config = context.config();
        let host = &config.server.host;
        let instance = host
            .is_local()
            .then(|| instance::find(&config.host.runtime_dir, host.port))
            .flatten();
        let answers = runtime()?.block_on(async {
            let client = client(context).ok()?;
            Answers::ask(&client).await
        });
        let url = instance
            .as_ref()
            .map_or_else(|| host.url(), |it| it.url.clone());
        // A probe of scripts needs none of it.
        let (mut unit, mut sockets, mut log) = (None, Vec::new(), Vec::new());
        if !context.global.quiet && host.is_local() {
            unit = super::service::find(false);
            let of_process = instance.as_ref().and_then(|it| sockets::of_process(it.pid));
            // Those of another user's process are known by their port alone.
            sockets = of_process.unwrap_or_else(|| sockets::on_port(host.port));
            // A server in the foreground logs to its terminal.
            if unit.is_some() || instance.as_ref().is_some_and(|it| it.log.is_some()) {
                // Of one that does not run, the last lines say why.
                log = match answers {
                    Some(_) => {
                        let uptime = instance.as_ref().and_then(Instance::uptime);
                        super::logs::troubles(context, uptime, LOG_LINES)
                    }
                    None => super::logs::last(context, LOG_LINES),
                };
            }
        }
        Ok(State {
            url,
            instance,
            answers,
            unit,
            sockets,
            log,
        })
    }

    fn json(&self) -> Value {
        let instance = self.instance.as_ref();
        let answers = self.answers.as_ref();
        json!({
            "running": answers.is_some(),
            "wants_key": answers.is_some_and(|answers| answers.version.is_none()),
            "url": self.url,
            "version": answers.and_then(|answers| answers.version.as_ref()),
            "pid": instance.map(|it| it.pid),
            "uptime_seconds": instance.and_then(Instance::uptime).map(|time| time.as_secs()),
            "resident_bytes": instance.and_then(Instance::resident),
            "bound": instance.map(|it| &it.bound),
            "all_interfaces": self.hears_all(),
            "sockets": self.sockets,
            "service": self.unit.as_ref().map(super::service::json_of),
            "log": self.log,
            "addresses": self.network_urls(),
            "models": answers.map(|answers| answers.models.len()),
            "loaded": answers.map(|answers| &answers.loaded["models"]),
            "queue": answers.map(|answers| &answers.loaded["queue"]),
        })
    }

    /// Tells whether other machines can reach it, as far as that is known.
    fn hears_all(&self) -> Option<bool> {
        let written = self.instance.as_ref().map(Instance::is_bound_to_all);
        written.or_else(|| {
            let known = !self.sockets.is_empty();
            known.then(|| sockets::hear_all(&self.sockets))
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
        let url = &self.url;
        let Some(answers) = &self.answers else {
            let mut lines = vec![match &self.instance {
                Some(it) => format!("○ process {} listens at {url} and does not answer", it.pid),
                None => format!("○ no server runs at {url}"),
            }];
            lines.extend(
                self.unit
                    .as_ref()
                    .map(|unit| format!("  {:<9}{}", "Service", super::service::in_words(unit))),
            );
            lines.extend(self.log.iter().map(|line| format!("    {line}")));
            return lines.join("\n");
        };
        let version = answers.version.clone();
        let wants_key = || format!("unknown: it wants a key; {KEY_HINT}");
        let mut rows = vec![("Version", version.unwrap_or_else(wants_key))];
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
                    let at = if urls.is_empty() { "" } else { ": " };
                    format!("on every address{at}{}", urls.join(", "))
                } else {
                    format!("on {} only", it.bound)
                },
            ));
        }
        if !self.sockets.is_empty() {
            let sockets: Vec<String> = self.sockets.iter().map(ToString::to_string).collect();
            rows.push(("Sockets", sockets.join(", ")));
        }
        if let Some(unit) = &self.unit {
            rows.push(("Service", super::service::in_words(unit)));
        }
        if answers.version.is_none() {
            return self.with_log(&rows);
        }
        rows.push(("Models", names(&answers.models)));
        let models = answers.loaded["models"].as_array();
        let models = models.map_or(&[][..], Vec::as_slice);
        let loaded: Vec<String> = models
            .iter()
            .map(|model| {
                let name = model["name"].as_str().unwrap_or_default();
                let size = model["size"].as_u64().unwrap_or(0);
                let npu = model["npu"].as_bool().unwrap_or(false);
                let place = match model["size_vram"].as_u64() {
                    None | Some(0) if !npu => String::new(),
                    vram => {
                        let vram = vram.unwrap_or(0);
                        format!(", {}", super::ps::processor(npu, size, vram))
                    }
                };
                format!("{name} ({}{place})", format::size(size))
            })
            .collect();
        let none = || "nothing".to_owned();
        let on_cpu = models.iter().filter_map(|model| {
            let (name, why) = (model["name"].as_str()?, model["on_cpu"].as_str()?);
            Some(format!("{name}: {why}"))
        });
        let on_cpu: Vec<String> = on_cpu.collect();
        let loaded = if loaded.is_empty() {
            none()
        } else {
            loaded.join(", ")
        };
        rows.push(("Loaded", loaded));
        if !on_cpu.is_empty() {
            rows.push(("On CPU", on_cpu.join("; ")));
        }
        if let Some(waiting @ 1..) = answers.loaded["queue"].as_u64() {
            rows.push(("Waiting", format!("{waiting} requests")));
        }
        self.with_log(&rows)
    }

    /// Lays out what is known of a server that runs.
    fn with_log(&self, rows: &[(&str, String)]) -> String {
        let (strong, url) = (term::STRONG, &self.url);
        let rows = rows
            .iter()
            .map(|(name, value)| format!("  {name:<9}{value}"));
        let log = self.log.iter().map(|line| format!("    {line}"));
        let log_title = (!self.log.is_empty()).then(|| "  Log".to_owned());
        let rows: Vec<String> = rows.chain(log_title).chain(log).collect();
        format!(
            "{strong}●{strong:#} a server runs at {url}\n{}",
            rows.join("\n")
        )
    }
}

impl Answers {
    async fn ask(client: &Client) -> Option<Answers> {
        let version = match connect::greet(client).await {
            Greeting::Version(version) => Some(version),
            Greeting::WantsKey => None,
            Greeting::None(_) => return None,
        };
        let ask = async |path| client.get::<Value>(path).await.unwrap_or_default();
        let (tags, loaded) = match version {
            Some(_) => (ask("/api/tags").await, ask("/api/ps").await),
            None => Default::default(),
        };
        let models = tags["models"].as_array().into_iter().flatten();
        // `default` stands for one of the others.
        let models = models
            .filter_map(|model| model["name"].as_str())
            .filter(|name| *name != "default:latest")
            .map(str::to_owned)
            .collect();
        Some(Answers {
            version,
            models,
            loaded,
        })
    }
}

/// Writes how many models there are, and the first of their names.
fn names(models: &[String]) -> String {
    const MOST: usize = 5;
    let mut first: Vec<&str> = models.iter().take(MOST).map(String::as_str).collect();
    if models.len() > MOST {
        first.push("...");
    }
    match models.len() {
        0 => "0".to_owned(),
        n => format!("{n}: {}", first.join(", ")),
    }
}
