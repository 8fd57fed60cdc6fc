//! `llmsrv logs`: the journal of the service, or the log of a server in the background.

use std::{
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use jiff::{Timestamp, Zoned, civil};
use llmsrv_host::{
    follow::{self, Follow},
    instance,
    systemd::Unit,
};
use serde_json::{Value, json};

use super::service;
use crate::{cli::LogsArgs, context::Context, failure::Failure, term};

/// Shows the log.
pub fn run(context: &Context, args: &LogsArgs) -> Result<ExitCode, Failure> {
    let since = args
        .since
        .as_deref()
        .map(|text| since(text, Zoned::now()))
        .transpose()?;
    match source(context, args.user) {
        Source::Journal(unit) => Err(journal(&unit, args, since)),
        Source::File(path) => file(&path, args, since).map(|()| ExitCode::SUCCESS),
    }
}

/// Where the log is.
enum Source {
    Journal(Box<Unit>),
    File(PathBuf),
}

/// A server that runs beside the service has its log in a file.
fn source(context: &Context, user: bool) -> Source {
    let host = &context.config().host;
    let port = context.config().server.host.port;
    let running = instance::on_port(&host.runtime_dir, port);
    match service::find(user) {
        Some(unit) if user || running.as_ref().is_none_or(|it| unit.pid == Some(it.pid)) => {
            Source::Journal(Box::new(unit))
        }
        _ => {
            let written = running.and_then(|it| it.log);
            Source::File(written.unwrap_or_else(|| host.log_of(port)))
        }
    }
}

/// The last warnings and errors of a server that runs for so long, for `status`; nothing if they
/// cannot be had.
pub fn troubles(context: &Context, uptime: Option<Duration>, most: usize) -> Vec<String> {
    let mut troubles = last(context, LOOKED_AT);
    let began = uptime.and_then(|uptime| Timestamp::now().checked_sub(uptime).ok());
    // The file goes on with each server that has this port. A process knows its beginning to
    // hundredths of a second.
    let began = began.and_then(|began| began.checked_sub(Duration::from_millis(100)).ok());
    let is_older =
        |line: &str| matches!((moment(line), began), (Some(at), Some(began)) if at < began);
    let n_older = troubles.iter().rposition(|line| is_older(line));
    troubles.drain(..n_older.map_or(0, |last| last + 1));
    troubles.retain(|line| is_trouble(line));
    troubles.split_off(troubles.len().saturating_sub(most))
}

/// Tells whether a line is a warning, an error or the beginning of a panic. The level stands behind
/// the time, and in a journal behind what is there before it.
fn is_trouble(line: &str) -> bool {
    if let Ok(line) = serde_json::from_str::<serde_json::Value>(line) {
        return matches!(line["level"].as_str(), Some("WARN" | "ERROR"));
    }
    let mut words = line.split_whitespace().take(6);
    words.any(|word| matches!(word, "WARN" | "ERROR" | "panicked" | "fatal"))
}

/// The last lines; nothing if they cannot be had.
pub fn last(context: &Context, lines: usize) -> Vec<String> {
    match source(context, false) {
        Source::Journal(unit) => {
            let number = lines.to_string();
            let options = [
                "--lines",
                &number,
                "--no-pager",
                "--quiet",
                "--output",
                "short-iso",
            ];
            let left = unit.scope.journal(&options).must();
            left.map_or_else(
                |_| Vec::new(),
                |left| left.stdout.lines().map(str::to_owned).collect(),
            )
        }
        Source::File(path) => follow::last(&path, lines).unwrap_or_default(),
    }
}

/// Becomes journalctl; returns only if that fails.
fn journal(unit: &Unit, args: &LogsArgs, since: Option<Timestamp>) -> Failure {
    let mut options = vec![format!("--lines={}", args.lines)];
    options.extend(args.follow.then(|| "--follow".to_owned()));
    options.extend(since.map(|since| format!("--since=@{}", since.as_second())));
    options.extend(args.json.then(|| "--output=json".to_owned()));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let command = unit.scope.journal(&options);
    let error = std::process::Command::new(&command.program)
        .args(&command.args)
        .exec();
    Failure::from(error)
        .context(format!("cannot run `{command}`"))
        .hint("the log of the service is in the journal of systemd")
}

fn file(path: &Path, args: &LogsArgs, since: Option<Timestamp>) -> Result<(), Failure> {
    let is_new =
        since.map(|since| move |line: &str| moment(line).is_some_and(|moment| moment >= since));
    let is_new = is_new
        .as_ref()
        .map(|is_new| is_new as &dyn Fn(&str) -> bool);
    let mut follow = match Follow::open(path, args.lines, is_new) {
        Ok(follow) => follow,
        Err(error) => {
            let text = format!("there is no log: {}: {error}", path.display());
            return Err(Failure::failed(text).hint(
                "a server in the foreground logs to its terminal; `llmsrv serve --background` and \
                 the service keep a log",
            ));
        }
    };
    let mut unfinished = Vec::new();
    loop {
        let piece = follow
            .read()
            .with_context(|| format!("cannot read {}", path.display()))?;
        if !piece.is_empty() && args.json {
            unfinished.extend(piece);
            let end = unfinished.iter().rposition(|byte| *byte == b'\n');
            let lines: Vec<u8> = unfinished.drain(..end.map_or(0, |at| at + 1)).collect();
            objects(&lines)?;
        } else if !piece.is_empty() {
            term::piece(String::from_utf8_lossy(&piece))?;
        } else if args.follow {
            std::thread::sleep(LOOK);
        } else {
            return Ok(objects(&unfinished)?);
        }
    }
}

/// Prints lines as objects.
fn objects(lines: &[u8]) -> io::Result<()> {
    let lines = String::from_utf8_lossy(lines);
    lines
        .lines()
        .try_for_each(|line| term::json_line(&object(line)))
}

/// Returns a line as `LLMSRV_LOG_FORMAT=json` writes it, as far as its text tells. What is no beginning
/// of an entry, as a line of a panic, is a message alone.
fn object(line: &str) -> Value {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(line) {
        return object;
    }
    let parts = || {
        let (time, rest) = line.split_once(' ')?;
        time.parse::<Timestamp>().ok()?;
        let (level, message) = rest.trim_start().split_once(' ')?;
        let fields = json!({ "message": message });
        Some(json!({ "timestamp": time, "level": level, "fields": fields }))
    };
    parts().unwrap_or_else(|| json!({ "fields": { "message": line } }))
}

/// Reads when a line was written: its first word, or the field `timestamp` of a line of JSON.
fn moment(line: &str) -> Option<Timestamp> {
    if line.starts_with('{') {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        return line["timestamp"].as_str()?.parse().ok();
    }
    line.split_whitespace().next()?.parse().ok()
}

/// Reads a time: so long ago (`30m`, `2 hours ago`), a moment, or a date with or without a time.
fn since(text: &str, now: Zoned) -> Result<Timestamp, Failure> {
    let text = text.trim();
    let span = text.trim_end_matches("ago").trim().trim_start_matches('-');
    let zoned = |moment: civil::DateTime| moment.to_zoned(now.time_zone().clone()).ok();
    let long_ago = || {
        let span: jiff::Span = span.parse().ok()?;
        now.checked_sub(span.abs())
            .ok()
            .map(|moment| moment.timestamp())
    };
    let day = || match text {
        "now" => Some(now.timestamp()),
        "today" => now.start_of_day().ok().map(|day| day.timestamp()),
        "yesterday" => Some(now.yesterday().ok()?.start_of_day().ok()?.timestamp()),
        _ => None,
    };
    let local = || {
        let moment = text.parse::<civil::DateTime>().ok();
        let date = || {
            text.parse::<civil::Date>()
                .ok()
                .map(|date| date.at(0, 0, 0, 0))
        };
        zoned(moment.or_else(date)?).map(|zoned| zoned.timestamp())
    };
    day()
        .or_else(|| text.parse::<Timestamp>().ok())
        .or_else(local)
        .or_else(long_ago)
        .ok_or_else(|| {
            Failure::usage(format!("--since {text}: not a valid time"))
                .hint("such as 30m, 2h, 1d, today, 2026-11-21 or 2026-11-21T08:00:00Z")
        })
}

/// Lines among which warnings are looked for.
const LOOKED_AT: usize = 200;
/// How often a file is looked at.
const LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Zoned = "2026-11-21T12:00:00+01:00[+01:00]".parse().unwrap();
        for (text, moment) in [
            ("30m", "2026-11-21T10:30:00Z"),
            ("2 hours ago", "2026-11-21T09:00:00Z"),
            ("-1d", "2026-11-20T11:00:00Z"),
            ("today", "2026-11-20T23:00:00Z"),
            ("yesterday", "2026-11-19T23:00:00Z"),
            ("2026-11-21", "2026-11-20T23:00:00Z"),
            ("2026-11-21 08:00", "2026-11-21T07:00:00Z"),
            ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
        ] {
            let expected: Timestamp = moment.parse().unwrap();
            assert_eq!(since(text, now.clone()).unwrap(), expected, "{text}");
        }
        for text in ["", "soon", "12"] {
            assert_eq!(
                since(text, now.clone()).unwrap_err().code,
                Code::Usage,
                "{text}"
            );
        }
    }

    #[test]
    fn lines_become_objects() {
        for (line, expected) in [
            (
                "2026-11-21T08:00:00.5Z  WARN llmsrv::serve: open to the network: 2 interfaces",
                json!({
                    "timestamp": "2026-11-21T08:00:00.5Z", "level": "WARN",
                    "fields": {"message": "llmsrv::serve: open to the network: 2 interfaces"},
                }),
            ),
            ("{\"level\":\"INFO\"}", json!({"level": "INFO"})),
            ("[1]", json!({"fields": {"message": "[1]"}})),
            (
                "thread 'main' panicked: x",
                json!({"fields": {"message": "thread 'main' panicked: x"}}),
            ),
            ("", json!({"fields": {"message": ""}})),
        ] {
            assert_eq!(object(line), expected, "{line}");
        }
    }

    #[test]
    fn warnings_and_errors_are_told_from_the_rest() {
        for (line, trouble) in [
            (
                "2026-11-21T08:00:00.5Z  WARN llmsrv: open to the network",
                true,
            ),
            ("2026-11-21T08:00:00.5Z ERROR llmsrv: it failed", true),
            (
                "2026-11-21T08:00:00+0000 box llmsrv[7]: 2026-11-21T08:00:00Z  WARN llmsrv: x",
                true,
            ),
            ("thread 'main' (7) panicked at src/main.rs:1:1:", true),
            (
                "{\"timestamp\":\"2026-11-21T08:00:00Z\",\"level\":\"WARN\"}",
                true,
            ),
            (
                "{\"timestamp\":\"2026-11-21T08:00:00Z\",\"level\":\"INFO\"}",
                false,
            ),
            (
                "2026-11-21T08:00:00.5Z  INFO llmsrv::request: GET /WARN 200",
                false,
            ),
            ("llmsrv 0.1.0 listens on http://127.0.0.1:1", false),
            ("", false),
        ] {
            assert_eq!(is_trouble(line), trouble, "{line}");
        }
    }

    #[test]
    fn lines_say_when_they_were_written() {
        let expected: Timestamp = "2026-11-21T08:00:00.5Z".parse().unwrap();
        for line in [
            "2026-11-21T08:00:00.500000Z  INFO llmsrv: stopping",
            "{\"timestamp\":\"2026-11-21T08:00:00.500000Z\",\"level\":\"INFO\"}",
        ] {
            assert_eq!(moment(line), Some(expected), "{line}");
        }
        assert_eq!(moment("llmsrv 0.1.0 listens on http://127.0.0.1:1"), None);
    }
}
