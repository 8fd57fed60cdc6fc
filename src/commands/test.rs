//! `llmsrv test`: the checks a user would make by hand, one after the other.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use llmsrv_api::client::{self, Client};
use llmsrv_host::{
    instance::{self, Instance},
    net, sockets,
    systemd::Unit,
};
use serde_json::{Value, json};

use crate::{
    checks::{self, Outcome, Totals, word},
    cli::TestArgs,
    connect::{self, Greeting, runtime},
    context::Context,
    failure::Failure,
    known, term,
};

/// Checks the running server.
pub fn run(context: &Context, args: &TestArgs) -> Result<ExitCode, Failure> {
    checks(context, &args.model, args.json)
}

/// Makes the checks, and shows them unless less is to be printed.
pub fn checks(context: &Context, model: &str, as_json: bool) -> Result<ExitCode, Failure> {
    let mut report = Report {
        shown: !as_json && !context.global.quiet,
        checks: Vec::new(),
    };
    runtime()?.block_on(make(context, model, &mut report))?;
    let totals = Totals::of(report.checks.iter().map(|check| check.seen.outcome));
    if as_json {
        let checks: Vec<Value> = report.checks.iter().map(Check::json).collect();
        term::json(&json!({
            "checks": checks,
            "passed": totals.passed,
            "failed": totals.failed,
            "skipped": totals.skipped,
        }))?;
    } else if report.shown {
        totals.show()?;
    }
    Ok(totals.status())
}

async fn make(context: &Context, model: &str, report: &mut Report) -> Result<(), Failure> {
    let config = context.config();
    let host = &config.server.host;
    let url = host.url();
    let instance = instance::find(&config.host.runtime_dir, host.port);
    let start = "start it: llmsrv serve";

    report
        .check("process", async {
            match &instance {
                Some(it) => pass(format!("{}", it.pid)),
                None if host.is_local() => fail(
                    format!("no server of this user runs on port {}", host.port),
                    start,
                ),
                None => skip("the server is on another machine"),
            }
        })
        .await?;
    report
        .check("port", async {
            let connected = tokio::net::TcpStream::connect(host.to_connect().authority());
            match tokio::time::timeout(TIMEOUT, connected).await {
                Ok(Ok(_)) => pass(format!("{} takes connections", host.authority())),
                Ok(Err(error)) => fail(format!("{}: {error}", host.authority()), start),
                Err(_) => fail(
                    format!("{} does not take connections", host.authority()),
                    "look at the firewall of that machine",
                ),
            }
        })
        .await?;
    let asked = connect::client(context)?;
    let greeting = connect::greet(&asked).await;
    report
        .check("API", async {
            match &greeting {
                Greeting::Version(version) => pass(format!("version {version} at {url}")),
                Greeting::WantsKey => pass(format!("a server answers at {url} and wants a key")),
                Greeting::None(error @ client::Error::Unreachable { .. }) => {
                    fail(error.to_string(), start)
                }
                Greeting::None(error) => fail(
                    error.to_string(),
                    "the program at this address is not llmsrv or compatible",
                ),
            }
        })
        .await?;
    report
        .check("all interfaces", async {
            match &instance {
                Some(it) if it.is_bound_to_all() => pass("bound to every address".into()),
                Some(it) => skip(&format!(
                    "bound to {} only; `llmsrv serve --network` serves the network",
                    it.bound
                )),
                None if !host.is_local() => skip("the server is on another machine"),
                None => all_interfaces(host.port),
            }
        })
        .await?;
    report
        .check("service", async {
            // Of another machine it is not known.
            if host.is_local() {
                unit(super::service::find(false).as_ref(), instance.as_ref())
            } else {
                skip("the server is on another machine")
            }
        })
        .await?;
    report
        .check("network API", network(instance.as_ref()))
        .await?;
    let client = match greeting {
        Greeting::Version(_) => Ok(&asked),
        Greeting::WantsKey => Err("it wants a key: set LLMSRV_API_KEY"),
        Greeting::None(_) => Err("no server answers"),
    };
    report
        .check("models", async {
            let client = match client {
                Ok(client) => client,
                Err(why) => return skip(why),
            };
            match known::names(client).await {
                Ok(names) => match names.len() {
                    0 => fail(
                        "there is none".into(),
                        "get one: llmsrv pull qwen2.5-coder:1.5b",
                    ),
                    n => pass(format!("{n}")),
                },
                Err(error) => fail(
                    error.to_string(),
                    "if it asks for a key, set LLMSRV_API_KEY",
                ),
            }
        })
        .await?;
    report.check("generate", async {
        let body = json!({"model": model, "prompt": "Say hello.", "stream": false, "options": short()});
        one(client, "/api/generate", &body, "/response").await
    }).await?;
    report.check("chat", async {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "Say hello."}], "stream": false, "options": short()});
        one(client, "/api/chat", &body, "/message/content").await
    }).await?;
    report.check("stream", stream(client, model)).await
}

/// Looks at the listeners of the machine, where the server is not written down.
fn all_interfaces(port: u16) -> Seen {
    let addresses = sockets::on_port(port);
    if sockets::hear_all(&addresses) {
        pass("bound to every address".into())
    } else if addresses.is_empty() {
        skip("nothing listens on the port")
    } else {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        skip(&format!("bound to {} only", addresses.join(", ")))
    }
}

/// The service must run and start with the machine, if it is installed.
fn unit(unit: Option<&Unit>, server: Option<&Instance>) -> Seen {
    match unit {
        None => skip("it is not installed; `llmsrv service install` does that"),
        Some(unit) if server.is_some_and(|it| unit.pid != Some(it.pid)) => skip(&format!(
            "this server is another one; the service is {}",
            super::service::in_words(unit)
        )),
        Some(unit) if !unit.is_active() => fail(
            format!("it does not run: {}", super::service::in_words(unit)),
            "start it: llmsrv service start; see why: llmsrv logs",
        ),
        Some(unit) if !unit.is_enabled() => fail(
            "it runs, and does not start with the machine".into(),
            "let it: llmsrv service enable",
        ),
        Some(unit) => pass(super::service::in_words(unit)),
    }
}

/// Asks at the address that other machines use.
async fn network(instance: Option<&Instance>) -> Seen {
    let Some(instance) = instance.filter(|it| it.is_bound_to_all()) else {
        return skip("the server is not bound to the network");
    };
    let urls = super::network_urls(instance, &net::addresses());
    let Some(url) = urls.first() else {
        return skip("this machine has no address on a network");
    };
    let greeting = async { Some(connect::greet(&Client::new(url, None).ok()?).await) };
    match tokio::time::timeout(TIMEOUT, greeting).await {
        Ok(Some(Greeting::Version(_) | Greeting::WantsKey)) => pass(url.clone()),
        _ => fail(
            format!("nothing answers at {url}"),
            "let the port through the firewall of this machine",
        ),
    }
}

async fn one(client: Result<&Client, &str>, path: &str, body: &Value, text: &str) -> Seen {
    let client = match client {
        Ok(client) => client,
        Err(why) => return skip(why),
    };
    match client.post::<Value>(path, body).await {
        Ok(answer) if answer.pointer(text).is_some_and(Value::is_string) => {
            let n_tokens = answer["eval_count"].as_u64().unwrap_or(0);
            pass(format!("{n_tokens} tokens"))
        }
        Ok(_) => fail(
            "the answer has no text".into(),
            "the program at this address is not llmsrv or compatible",
        ),
        Err(error) => fail(error.to_string(), "see what models there are: llmsrv list"),
    }
}

async fn stream(client: Result<&Client, &str>, model: &str) -> Seen {
    let client = match client {
        Ok(client) => client,
        Err(why) => return skip(why),
    };
    let body = json!({"model": model, "prompt": "Count to ten.", "options": short()});
    let mut lines = match client.stream::<Value>("/api/generate", &body).await {
        Ok(lines) => lines,
        Err(error) => return fail(error.to_string(), "see what models there are: llmsrv list"),
    };
    let (mut n_pieces, mut done) = (0, false);
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => done = line["done"] == true,
            Err(error) => return fail(error.to_string(), "look at the log of the server"),
        }
        n_pieces += 1;
    }
    if done {
        pass(format!("{n_pieces} pieces"))
    } else {
        fail("it broke off".into(), "look at the log of the server")
    }
}

/// What a check saw.
struct Seen {
    outcome: Outcome,
    detail: String,
    /// What may help.
    hint: Option<String>,
}

fn pass(detail: String) -> Seen {
    Seen {
        outcome: Outcome::Pass,
        detail,
        hint: None,
    }
}

fn fail(detail: String, hint: &str) -> Seen {
    Seen {
        outcome: Outcome::Fail,
        detail,
        hint: Some(hint.to_owned()),
    }
}

fn skip(why: &str) -> Seen {
    Seen {
        outcome: Outcome::Skip,
        detail: why.to_owned(),
        hint: None,
    }
}

struct Check {
    name: &'static str,
    seen: Seen,
    took: Duration,
}

impl Check {
    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "outcome": word(self.seen.outcome),
            "detail": self.seen.detail,
            "hint": self.seen.hint,
            "milliseconds": self.took.as_secs_f64() * 1e3,
        })
    }
}

struct Report {
    shown: bool,
    checks: Vec<Check>,
}

impl Report {
    /// Makes a check and shows at once what it saw.
    async fn check(
        &mut self,
        name: &'static str,
        check: impl Future<Output = Seen>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let seen = check.await;
        let check = Check {
            name,
            seen,
            took: begun.elapsed(),
        };
        if self.shown {
            let (seen, took) = (&check.seen, check.took.as_millis());
            let text = format_args!("{name:<15} {} ({took} ms)", seen.detail);
            checks::show(self.checks.len() + 1, seen.outcome, text, &seen.hint)?;
        }
        self.checks.push(check);
        Ok(())
    }
}

/// Keeps an answer short.
fn short() -> Value {
    json!({"num_predict": 8, "temperature": 0})
}

/// How long a connection may take.
const TIMEOUT: Duration = Duration::from_secs(5);
