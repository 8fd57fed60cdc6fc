//! What `testgpu` and `testnpu` have in common: who asks, the worker, and how checks are shown.

use std::{io, process::ExitCode};

use llmsrv_devices::{
    Check, Outcome, Report, Spawn, Sysroot, Verdict, permissions::Identity, worker,
};
use serde_json::Value;

use crate::{
    cli::{DeviceArgs, DeviceWorkerArgs},
    failure::{Code, Failure},
    term,
};

/// Does a job in this process, and says what became of it in lines of JSON.
pub fn work(args: &DeviceWorkerArgs) -> Result<(), Failure> {
    worker::end_with_parent();
    worker::work(&args.job, &mut |message| {
        let value = serde_json::to_value(message).map_err(io::Error::other)?;
        term::json_line(&value)
    })?;
    Ok(())
}

/// Prints the categories.
pub fn list(categories: &[(&str, &str)], json: bool) -> Result<ExitCode, Failure> {
    if json {
        let object =
            |(name, about): &(&str, &str)| serde_json::json!({"name": name, "about": about});
        term::json(&Value::Array(categories.iter().map(object).collect()))?;
    } else {
        for (name, about) in categories {
            term::line(format_args!("{name:<12} {about}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The categories that were asked for, or all.
pub fn chosen<'a>(all: &[(&'a str, &str)], wanted: &[String]) -> Vec<&'a str> {
    let names = all.iter().map(|(name, _)| *name);
    names
        .filter(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .collect()
}

/// The machine, or the folder that stands for one.
pub fn root(args: &DeviceArgs) -> Result<Sysroot, Failure> {
    match &args.root {
        None => Ok(Sysroot::machine()),
        Some(folder) if folder.is_dir() => Ok(Sysroot::new(folder)),
        Some(folder) => Err(
            Failure::usage(format!("{} is not a folder", folder.display()))
                .hint("--root wants a folder with sys, dev and proc in it"),
        ),
    }
}

/// The user of `--user`, or who runs this.
pub fn user(args: &DeviceArgs) -> Result<Identity, Failure> {
    match &args.user {
        None => Ok(Identity::current()),
        Some(name) => Identity::named(name)
            .ok_or_else(|| Failure::usage(format!("this machine has no user {name}"))),
    }
}

/// Starts this program again for whatever calls a driver.
pub fn worker(args: &DeviceArgs) -> Result<Spawn, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::usage(format!("this program does not find itself: {error}")))?;
    Ok(Spawn {
        program,
        arguments: vec!["device-worker".into()],
        limit: args.timeout,
    })
}

/// Prints a check: what was measured, or what was seen; with `verbose` both.
pub fn show(check: &Check, verbose: bool) -> io::Result<()> {
    let (symbol, style) = match check.outcome {
        Outcome::Pass => ('✓', term::GOOD),
        Outcome::Fail => ('✗', term::BAD),
        Outcome::Skip => ('⚠', term::DOUBTFUL),
        Outcome::Info => ('ℹ', term::FAINT),
    };
    let value = match (check.value, &check.unit) {
        (Some(value), Some(unit)) => format!("{} {unit}", digits(value)),
        _ => String::new(),
    };
    let detail = if value.is_empty() {
        check.detail.clone()
    } else if verbose || check.outcome != Outcome::Pass {
        format!("{value}  {}", check.detail)
    } else {
        value
    };
    let (category, name) = (&check.category, &check.name);
    term::line(format_args!(
        "{style}{symbol}{style:#} {category:<12} {name:<32} {detail}"
    ))?;
    match &check.hint {
        Some(hint) if verbose || check.outcome != Outcome::Pass => {
            term::line(format_args!("  {:<12} {hint}", ""))
        }
        _ => Ok(()),
    }
}

/// Three digits, or all before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0..1.0 => format!("{value:.3}"),
        1.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Prints the sums.
pub fn summary(report: &Report) -> io::Result<()> {
    let totals = report.totals();
    for (what, count) in [
        ("Total", totals.total),
        ("Passed", totals.passed),
        ("Failed", totals.failed),
        ("Skipped", totals.skipped),
    ] {
        term::line(format_args!("{what:<8} {count}"))?;
    }
    Ok(())
}

/// The exit status.
pub fn status(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Failed => ExitCode::from(Code::Failed as u8),
        Verdict::NoDevice => ExitCode::from(NO_DEVICE),
    }
}

const NO_DEVICE: u8 = 3;
