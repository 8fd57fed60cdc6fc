//! What the server says of itself, handed in as plain data by whoever can ask it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    parse,
    rates::{moved, rounded},
    sample::{Model, Server},
};

/// An answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Where it listens.
    pub url: String,
    /// Its version.
    pub version: Option<String>,
    /// Its process, if that is on this machine.
    pub pid: Option<u32>,
    /// Models in memory.
    pub models: Vec<Model>,
    /// Tokens of answers since it started.
    pub generated_tokens: Option<u64>,
    /// Tokens of prompts since it started.
    pub prompt_tokens: Option<u64>,
    /// Requests that are computed.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Why it says no more.
    pub problem: Option<String>,
}

/// Where reports are put and read; clones share one place.
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<Mutex<Option<(Instant, Report)>>>);

impl Feed {
    /// Puts a report there, or that there is no server.
    pub fn set(&self, report: Option<Report>) {
        let report = report.map(|report| (Instant::now(), report));
        *self.0.lock() = report;
    }

    pub(crate) fn read(&self) -> Option<(Instant, Report)> {
        self.0.lock().clone()
    }
}

/// Follows the counters of tokens over the reports.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    last: Option<(Instant, Report)>,
    generated: Option<f64>,
    prompt: Option<f64>,
}

impl Tokens {
    /// Takes a report, which may be the one of last time.
    fn take(&mut self, at: Instant, report: &Report) {
        if let Some((before_at, before)) = &self.last {
            if *before_at == at {
                return;
            }
            let seconds = at.duration_since(*before_at).as_secs_f64();
            let same = before.pid == report.pid && before.url == report.url;
            let rate = |before: Option<u64>, now: Option<u64>| {
                let (before, now) = before.zip(now).filter(|_| same && seconds >= 0.001)?;
                Some(rounded(moved(before, now) as f64 / seconds, 10.0))
            };
            self.generated = rate(before.generated_tokens, report.generated_tokens);
            self.prompt = rate(before.prompt_tokens, report.prompt_tokens);
        }
        self.last = Some((at, report.clone()));
    }

    /// Adds to what the process shows what the server says.
    pub(crate) fn add(
        &mut self,
        report: Option<(Instant, Report)>,
        process: Option<Server>,
    ) -> Option<Server> {
        let Some((at, report)) = report else {
            *self = Tokens::default();
            return None;
        };
        self.take(at, &report);
        let is_fresh = at.elapsed() < STALE;
        let models = report.models.into_iter().take(MAX_MODELS);
        Some(Server {
            url: parse::clean(&report.url),
            version: report.version.map(|version| parse::clean(&version)),
            pid: report.pid,
            generated_tokens_per_second: self.generated.filter(|_| is_fresh),
            prompt_tokens_per_second: self.prompt.filter(|_| is_fresh),
            running: report.running,
            waiting: report.waiting,
            models: models
                .map(|model| Model {
                    name: parse::clean(&model.name),
                    ..model
                })
                .collect(),
            problem: report.problem.map(|problem| parse::clean(&problem)),
            ..process.unwrap_or_default()
        })
    }
}

/// Rates older than this are of a server that hangs.
const STALE: Duration = Duration::from_secs(15);
/// Most models that are listed.
const MAX_MODELS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_between_reports_not_between_looks() {
        let report = |tokens| Report {
            url: "http://x".into(),
            pid: Some(7),
            generated_tokens: Some(tokens),
            ..Report::default()
        };
        let now = Instant::now();
        let before = now.checked_sub(Duration::from_secs(2)).unwrap();
        let mut tokens = Tokens::default();
        let rate = |tokens: &mut Tokens, at, report| {
            let server = tokens.add(Some((at, report)), None).unwrap();
            server.generated_tokens_per_second
        };
        assert_eq!(rate(&mut tokens, before, report(100)), None);
        assert_eq!(rate(&mut tokens, now, report(150)), Some(25.0));
        assert_eq!(rate(&mut tokens, now, report(150)), Some(25.0));
        let restarted = Report {
            pid: Some(8),
            ..report(3)
        };
        let later = now + Duration::from_secs(1);
        assert_eq!(rate(&mut tokens, later, restarted), None);
        assert_eq!(tokens.add(None, None), None);
        assert_eq!(rate(&mut tokens, later, report(5)), None);
    }
}
