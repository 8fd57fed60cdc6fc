//! `logkit run`: a command runs as it would without us, and one entry says how it went.
//!
//! Nothing about logging may touch the command: databases are opened while it runs, on a thread of
//! their own, and what fails there is said once and changes neither output nor exit status.

mod capture;
mod child;
mod language;
mod relay;
mod report;
mod signals;
mod span;

use std::{
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    thread,
    time::Instant,
};

use llmsrv_config::LogkitConfig;
use logkit::{
    ConsoleTime, DbSink, Durability, Entry, Level, Logger, Setup, Sink, Timestamp, repr,
    spec::{self, Options, SpecError},
};

pub(crate) use report::MODULE;

use crate::{
    args::RunArgs,
    failure::{Failure, USAGE},
    render,
    settings::Settings,
};
use child::{Output, Plan};
use report::{Outcome, Report};
use signals::Signals;
use span::Span;

/// Exit status when the time is over.
const TIMED_OUT: i32 = 124;
/// Exit status of what cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
/// Exit status of what was not found.
const NOT_FOUND: i32 = 127;

/// Characters of output on the console line.
const SHOWN: usize = 200;

/// Does `run`; returns the exit status of the command.
pub(crate) fn run(args: RunArgs) -> Result<u8, Failure> {
    let settings = match &args.env_file {
        Some(_) => Settings::load(args.env_file.clone())
            .map_err(|failure| Failure::Usage(failure.to_string()))?,
        None => Settings::load_or_default()?,
    };
    if args.command.is_empty() {
        render::warning("no command given; write `logkit run -- CMD ARGS`");
        return Ok(USAGE);
    }
    if let Some(cwd) = args.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Err(Failure::Usage(format!(
            "--cwd {}: no such folder",
            cwd.display()
        )));
    }
    let mut plan = plan(&args, &settings);
    let span = Span::new(&settings.logkit);
    span.hand_down(&mut plan.environment);
    let timestamp = Timestamp::now();
    let began = Instant::now();
    let result = Signals::new().and_then(|signals| Ok((child::start(&plan)?, signals)));
    // From here on the command runs.
    let sinks = open_meanwhile(&args, &settings.logkit);
    let (outcome, code, took) = match result {
        Err(error) => {
            let took = began.elapsed();
            let (outcome, code) = not_started(&plan, error);
            (outcome, code, took)
        }
        Ok((started, signals)) => {
            let ended = relay::relay(
                started,
                signals,
                args.timeout.filter(|time| !time.is_zero()),
                args.max_output,
            )?;
            let took = began.elapsed();
            if let Some(error) = &ended.lost {
                render::warning(format_args!(
                    "cannot write the output of the command: {error}"
                ));
            }
            let code = match ended.status.signal() {
                _ if ended.timed_out => TIMED_OUT,
                Some(signal) => 128 + signal,
                None => ended.status.code().unwrap_or(1),
            };
            (Outcome::Ended(ended), code, took)
        }
    };
    let report = Report::new(&args, &settings.logkit, &plan);
    let entry = report.finish(outcome, code, timestamp, took, &span);
    let lowest = Level::parse(&settings.logkit.level);
    if entry.level.number() < lowest.number() {
        return Ok(code as u8);
    }
    if args.verbose {
        let time = console_time(&settings.logkit);
        // The output has just been seen; a piece of it is enough.
        let mut line = entry.clone();
        line.return_value = repr::truncate(&entry.return_value, SHOWN).into();
        line.exception = repr::truncate(&entry.exception, SHOWN).into();
        render::note(logkit::console_line(&line, "logkit", time));
    }
    write(sinks, &entry);
    Ok(code as u8)
}

fn plan(args: &RunArgs, settings: &Settings) -> Plan {
    let streams_are_terminals = io::stdin().is_terminal() && io::stdout().is_terminal();
    let output = if args.passthrough {
        Output::Inherited
    } else if args.tty || (!args.no_tty && streams_are_terminals && child::in_foreground()) {
        Output::Terminal
    } else {
        Output::Pipes
    };
    let mut words = args.command.iter().cloned();
    Plan {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        cwd: args.cwd.clone(),
        environment: settings.variables.clone(),
        output,
    }
}

/// Says why nothing was started, as shells do.
fn not_started(plan: &Plan, error: io::Error) -> (Outcome, i32) {
    let command = plan.command.to_string_lossy();
    let (outcome, code) = match error.kind() {
        io::ErrorKind::NotFound => {
            let broken = child::find(plan).filter(|file| file.exists());
            let why = match broken {
                // The file is there: what its first line names is not.
                Some(_) => format!("{command}: its interpreter was not found"),
                None => format!("command not found: {command}"),
            };
            (Outcome::NotStarted("FileNotFoundError", why), NOT_FOUND)
        }
        kind => {
            let name = match kind {
                io::ErrorKind::PermissionDenied => "PermissionError",
                _ => "OSError",
            };
            let why = format!("cannot execute {command}: {error}");
            (Outcome::NotStarted(name, why), NOT_EXECUTABLE)
        }
    };
    if let Outcome::NotStarted(_, why) = &outcome {
        render::note(format_args!("logkit: {why}"));
    }
    (outcome, code)
}

type Opened = Result<Box<dyn Sink>, SpecError>;

/// Where the entry goes.
enum Target {
    /// Straight into these sinks, each with its specification.
    Sinks(Vec<(String, Opened)>),
    /// Through all that settings ask for: announcements of errors, a model that explains them.
    Logger(Result<Logger, SpecError>),
}

/// Opens the sinks while the command runs: a busy database must not hold it back.
fn open_meanwhile(args: &RunArgs, config: &LogkitConfig) -> Option<thread::JoinHandle<Target>> {
    let typed = args.sinks.clone();
    let config = config.clone();
    let open = move || target(typed, &config);
    let thread = thread::Builder::new().name("logkit-sinks".into());
    thread.spawn(open).ok()
}

fn target(typed: Vec<String>, config: &LogkitConfig) -> Target {
    let specs = if typed.is_empty() {
        config.sinks.clone()
    } else {
        typed
    };
    let database = || vec![format!("db:{}", config.db.display())];
    if config.webhook_url.is_some() || config.llm_model.is_some() || config.detect_injection {
        let setup = Setup {
            sinks: Some(if specs.is_empty() { database() } else { specs }),
            console: false,
            ..Setup::default()
        };
        return Target::Logger(logkit::build(config, &setup));
    }
    let options = options(config);
    if specs.is_empty() {
        // The path is one whatever is in it.
        let sink = DbSink::open(&config.db, "logs", options.durability);
        let sink = sink.and_then(DbSink::leave_wal);
        let sink = sink.map(|sink| Box::new(sink) as Box<dyn Sink>);
        let sink = sink.map_err(|source| SpecError::Open {
            spec: "db".into(),
            source,
        });
        return Target::Sinks(vec![("db".into(), sink)]);
    }
    let open = |spec: String| {
        let sink = spec::open(&spec, &options);
        (spec, sink)
    };
    Target::Sinks(specs.into_iter().map(open).collect())
}

/// What opening a sink needs beside its specification.
pub(crate) fn options(config: &LogkitConfig) -> Options {
    Options {
        durability: Durability::parse(&config.durability).unwrap_or_default(),
        time: console_time(config),
        webhook_format: config.webhook_format.clone(),
        api_key: config.api_key.as_ref().map(|key| key.expose().to_owned()),
        safe_formulas: false,
    }
}

fn console_time(config: &LogkitConfig) -> ConsoleTime {
    let said = |word: &str| config.console_time.iter().any(|said| said == word);
    ConsoleTime {
        millis: said("ms"),
        utc: said("utc"),
    }
}

/// Writes the entry; what fails is said and nothing more.
fn write(target: Option<thread::JoinHandle<Target>>, entry: &Entry) {
    let not_logged = |why: &dyn std::fmt::Display| {
        render::warning(format_args!("the entry is not logged: {why}"));
    };
    match target.map(thread::JoinHandle::join) {
        None | Some(Err(_)) => not_logged(&"its sinks cannot be opened"),
        Some(Ok(Target::Logger(Err(error)))) => not_logged(&error),
        Some(Ok(Target::Logger(Ok(logger)))) => {
            logger.emit(entry.clone());
            logger.close();
        }
        Some(Ok(Target::Sinks(sinks))) => {
            for (spec, sink) in sinks {
                let written = sink.and_then(|mut sink| {
                    sink.write_batch(std::slice::from_ref(entry))
                        .and_then(|()| sink.close())
                        .map_err(|source| SpecError::Open { spec, source })
                });
                if let Err(error) = written {
                    not_logged(&error);
                }
            }
        }
    }
}
