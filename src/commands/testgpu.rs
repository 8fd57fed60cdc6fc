//! `llmsrv testgpu`

mod model;

use std::process::ExitCode;

use llmsrv_devices::{
    permissions::{self, Identity},
    testgpu::{self, CATEGORIES, Survey},
};
use llmsrv_worker::Limits;
use serde_json::json;

use super::devices;
use crate::{cli::TestgpuArgs, context::Context, failure::Failure, format, local, logging, term};

/// Tests the GPUs of this machine.
pub fn run(context: &Context, args: &TestgpuArgs) -> Result<ExitCode, Failure> {
    let common = &args.common;
    if common.list {
        return devices::list(CATEGORIES, common.json);
    }
    let (root, user) = (devices::root(common)?, devices::user(common)?);
    if args.fix_permissions {
        let steps = permissions::steps(&root, &permissions::nodes(&root), &user);
        return fix(&steps, &user, args);
    }
    let mut categories = devices::chosen(CATEGORIES, &args.category);
    if !root.is_machine() {
        // A folder has no driver that could be called.
        let readable = |name: &&str| ["hardware", "driver", "permissions"].contains(name);
        if !args.category.is_empty() && !categories.iter().all(readable) {
            return Err(
                Failure::usage("--root can be read, but nothing can be computed there")
                    .hint("with --root, the categories are hardware, driver and permissions"),
            );
        }
        categories.retain(readable);
    }
    let worker = devices::worker(common)?;
    let shown = !common.json && !context.global.quiet;
    let spinner = shown.then(|| term::Spinner::start("looking for devices"));
    let survey = Survey::new(&root, &categories, &worker);
    drop(spinner);
    if shown && !survey.devices.is_empty() {
        term::line(table(&survey))?;
        term::line("")?;
    }
    let mut printed = Ok(());
    let mut report = testgpu::run(&survey, &categories, &user, &worker, &mut |check| {
        if shown && printed.is_ok() {
            printed = devices::show(check, context.global.more > 0);
        }
    });
    if categories.contains(&model::CATEGORY) {
        let limit = Some(common.timeout);
        let limits = Limits {
            step: limit,
            load: limit,
        };
        let style = logging::Style::Command;
        let workers = local::workers(&context.config().server, style).with_limits(limits);
        model::check(&survey.devices, &workers, &mut |check| {
            if shown && printed.is_ok() {
                printed = devices::show(&check, context.global.more > 0);
            }
            report.checks.push(check);
        })?;
    }
    printed?;
    if common.json {
        let mut value = serde_json::to_value(&survey)?;
        value["checks"] = serde_json::to_value(&report.checks)?;
        value["totals"] = serde_json::to_value(report.totals())?;
        term::json(&value)?;
    } else if shown {
        devices::summary(&report)?;
    }
    if shown && !survey.has_device() && !survey.devices.is_empty() {
        term::note("there is no GPU: these drivers compute on the CPU");
    }
    Ok(devices::status(report.verdict(survey.has_device())))
}

/// The devices that drivers offer.
fn table(survey: &Survey) -> String {
    let rows: Vec<Vec<String>> = survey
        .devices
        .iter()
        .map(|device| {
            let memory = format::size(device.memory_bytes);
            let kind = device.kind.name().to_owned();
            vec![
                device.label(),
                device.name.clone(),
                kind,
                device.driver.clone(),
                memory,
            ]
        })
        .collect();
    term::table(&["DEVICE", "NAME", "TYPE", "DRIVER", "MEMORY"], &rows)
}

/// Prints what lets a user use the devices, or does it.
fn fix(
    steps: &[permissions::Step],
    user: &Identity,
    args: &TestgpuArgs,
) -> Result<ExitCode, Failure> {
    let sudo = Identity::current().uid != 0;
    if args.common.json && !args.yes {
        let lines: Vec<String> = steps.iter().map(|step| step.line(sudo)).collect();
        term::json(&json!({"user": user.name, "commands": lines}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if steps.is_empty() {
        term::note(format_args!(
            "{} may use all devices that are here",
            user.name
        ));
        if user.uid == 0 {
            term::note("root always may; name the user who wants to use them with --user");
        }
        return Ok(ExitCode::SUCCESS);
    }
    for step in steps {
        term::line(step.line(sudo))?;
        if args.yes {
            let status = step.run(sudo).map_err(|error| {
                Failure::failed(format!("{} cannot be run: {error}", step.command[0]))
            })?;
            if !status.success() {
                return Err(Failure::failed(format!(
                    "{} failed: {status}",
                    step.line(sudo)
                )));
            }
        }
    }
    if args.yes {
        term::note(format_args!(
            "groups count from the next login of {}",
            user.name
        ));
    } else {
        term::note("nothing was changed; --yes runs these commands");
    }
    Ok(ExitCode::SUCCESS)
}
