//! `llmsrv monitor`

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use jiff::{Timestamp, tz::TimeZone};
use llmsrv_api::client::{self, Client};
use llmsrv_host::instance;
use llmsrv_monitor::{Error, Feed, Model, Options, Report, Sampler, plain, watch};
use serde_json::Value;
use tokio::runtime::Builder;

use crate::{cli::MonitorArgs, connect, context::Context, failure::Failure, term};

/// Shows the monitor, or prints what it would show.
pub fn run(context: &Context, args: &MonitorArgs) -> Result<(), Failure> {
    let feed = Feed::default();
    let interval = args.interval.unwrap_or(Duration::from_secs(1));
    // A fixture has no server.
    if args.root.is_none() {
        let asked = Asked::of(context)?;
        asked.ask(&feed);
        let feed = feed.clone();
        thread::spawn(move || asked.go_on(&feed, interval));
    }
    let root = args.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    if args.json || args.once || !term::can_draw() {
        return print(args, &root, feed, interval);
    }
    let options = Options {
        root,
        interval,
        ascii: args.ascii,
        color: !args.no_color && term::stdout_has_color(),
        clock,
    };
    watch(&options, feed, term::screen).map_err(failed)
}

/// Prints one frame, or line after line of JSON.
fn print(args: &MonitorArgs, root: &Path, feed: Feed, interval: Duration) -> Result<(), Failure> {
    let mut sampler = Sampler::new(root, feed, interval).map_err(failed)?;
    if args.json && args.interval.is_some() && !args.once {
        loop {
            let sample = sampler.once(interval);
            term::json_line(&serde_json::to_value(&sample)?)?;
        }
    }
    let sample = sampler.once(interval);
    if args.json {
        term::json(&serde_json::to_value(&sample)?)?;
    } else {
        term::piece(plain(&sample, args.ascii))?;
    }
    Ok(())
}

fn clock(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or_default();
    let zone = TimeZone::system();
    time.to_zoned(zone).strftime("%H:%M:%S").to_string()
}

/// The server that is asked again and again what it does.
struct Asked {
    client: Client,
    url: String,
    /// Where servers of this machine write themselves down, if it is one of those.
    instance: Option<(PathBuf, u16)>,
    runtime: tokio::runtime::Runtime,
}

impl Asked {
    fn of(context: &Context) -> Result<Asked, Failure> {
        let config = context.config();
        let host = &config.server.host;
        Ok(Asked {
            client: connect::client(context)?,
            url: host.url(),
            instance: host
                .is_local()
                .then(|| (config.host.runtime_dir.clone(), host.port)),
            runtime: Builder::new_current_thread().enable_all().build()?,
        })
    }

    fn go_on(&self, feed: &Feed, interval: Duration) {
        loop {
            // Its figures cost it some work; more than one look each second is not worth that.
            thread::sleep(interval.max(Duration::from_secs(1)));
            self.ask(feed);
        }
    }

    fn ask(&self, feed: &Feed) {
        let instance = self
            .instance
            .as_ref()
            .and_then(|(folder, port)| instance::on_port(folder, *port));
        let report = self.runtime.block_on(async {
            let answer = tokio::time::timeout(TIMEOUT, report(&self.client));
            answer.await.unwrap_or(Err(None))
        });
        let mut report = match (report, &instance) {
            (Ok(report), _) => report,
            // A server that does not answer, or not to us, is there.
            (Err(Some(problem)), _) => Report {
                problem: Some(problem),
                ..Report::default()
            },
            (Err(None), Some(_)) => Report {
                problem: Some("it does not answer".to_owned()),
                ..Report::default()
            },
            (Err(None), None) => return feed.set(None),
        };
        report.pid = instance.as_ref().and_then(|it| u32::try_from(it.pid).ok());
        report.version = instance.as_ref().map(|it| it.version.clone());
        report.url = instance.map_or_else(|| self.url.clone(), |it| it.url);
        feed.set(Some(report));
    }
}

/// Asks for models and counters; an error without a text says that there is no server.
async fn report(client: &Client) -> Result<Report, Option<String>> {
    let loaded: Value = client.get("/api/ps").await.map_err(|error| match error {
        client::Error::Unreachable { .. } => None,
        client::Error::Status {
            status: 401 | 403, ..
        } => Some("it runs and wants a key (LLMSRV_API_KEY)".to_owned()),
        error => Some(error.to_string()),
    })?;
    let models = loaded["models"].as_array().into_iter().flatten();
    let number = |model: &Value, key: &str| model[key].as_u64().unwrap_or(0);
    let mut report = Report {
        models: models
            .map(|model| Model {
                name: model["name"].as_str().unwrap_or_default().to_owned(),
                size_bytes: number(model, "size"),
                size_vram_bytes: number(model, "size_vram"),
                context_length: number(model, "context_length"),
            })
            .collect(),
        ..Report::default()
    };
    // A server of another kind has none, or others.
    if let Ok(text) = client.text("/metrics").await {
        let sum = |name| sum(&text, name);
        report.generated_tokens = sum("llmsrv_generated_tokens_total");
        report.prompt_tokens = sum("llmsrv_prompt_tokens_total");
        report.running = sum_of(&text, "llmsrv_model_sequences", "state=\"running\"");
        report.waiting = sum("llmsrv_queue_length");
        // Counters without a series yet have counted nothing.
        if report.waiting.is_some() {
            report.generated_tokens.get_or_insert(0);
            report.prompt_tokens.get_or_insert(0);
            report.running.get_or_insert(0);
        }
    }
    Ok(report)
}

/// Adds up all series of a metric in Prometheus' text form.
fn sum(text: &str, name: &str) -> Option<u64> {
    sum_of(text, name, "")
}

/// Adds up the series of a metric whose labels have `label`.
fn sum_of(text: &str, name: &str, label: &str) -> Option<u64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        // Names of models may hold anything but line ends and bare quotes.
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let value: f64 = value.split(' ').next()?.parse().ok()?;
        labels.contains(label).then_some(value.max(0.0) as u64)
    };
    text.lines().filter_map(value).fold(None, |sum, value| {
        Some(sum.unwrap_or(0_u64).saturating_add(value))
    })
}

/// Adds to an error what the user can do about it.
fn failed(error: Error) -> Failure {
    let hint = match &error {
        Error::Root { .. } => Some("--root wants a folder with `proc` and `sys` in it"),
        Error::Nothing => {
            Some("the monitor reads the /proc and /sys of Linux; --root names others")
        }
        Error::Terminal(_) => Some("`llmsrv monitor --once` needs no terminal"),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// How long a server may take to say what it does.
const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_all_models_are_added_up() {
        let text = "# TYPE llmsrv_generated_tokens_total counter\n\
            llmsrv_generated_tokens_total{model=\"a\"} 10\n\
            llmsrv_generated_tokens_total{model=\"b} 7\"} 5\n\
            llmsrv_generated_tokens_total_x 99\n\
            llmsrv_model_sequences{model=\"a\",state=\"running\"} 2\n\
            llmsrv_model_sequences{model=\"a\",state=\"waiting\"} 4\n\
            llmsrv_queue_length 3\n";
        assert_eq!(sum(text, "llmsrv_generated_tokens_total"), Some(15));
        assert_eq!(
            sum_of(text, "llmsrv_model_sequences", "state=\"running\""),
            Some(2)
        );
        assert_eq!(sum(text, "llmsrv_queue_length"), Some(3));
        assert_eq!(sum(text, "llmsrv_prompt_tokens_total"), None);
        assert_eq!(
            sum(
                "llmsrv_queue_length x\nllmsrv_queue_length -5",
                "llmsrv_queue_length"
            ),
            Some(0)
        );
    }
}
