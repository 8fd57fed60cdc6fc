//! `llmsrv testnpu`

use std::process::ExitCode;

use llmsrv_devices::{
    npu,
    testnpu::{self, CATEGORIES, Options},
};

use super::devices;
use crate::{cli::TestnpuArgs, context::Context, failure::Failure, term};

/// Tests the NPUs of this machine.
pub fn run(context: &Context, args: &TestnpuArgs) -> Result<ExitCode, Failure> {
    let common = &args.common;
    if common.list {
        return devices::list(CATEGORIES, common.json);
    }
    for file in [&args.model, &args.runtime].into_iter().flatten() {
        if !file.exists() {
            return Err(Failure::usage(format!("{} does not exist", file.display())));
        }
    }
    let options = Options {
        root: devices::root(common)?,
        categories: devices::chosen(CATEGORIES, &args.category),
        model: args.model.clone(),
        runtime: args
            .runtime
            .clone()
            .or_else(|| context.config().host.onnx_runtime.clone()),
        user: devices::user(common)?,
    };
    let worker = devices::worker(common)?;
    let npus = npu::list(&options.root);
    let has_device = !npus.is_empty();
    let shown = !common.json && !context.global.quiet;
    if shown && has_device {
        let row = |npu: &npu::Npu| {
            let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".into());
            vec![
                npu.name.clone(),
                npu.place.clone(),
                text(&npu.driver),
                text(&npu.node),
            ]
        };
        let rows: Vec<Vec<String>> = npus.iter().map(row).collect();
        term::line(term::table(&["NPU", "PLACE", "DRIVER", "NODE"], &rows))?;
        term::line("")?;
    }
    let mut printed = Ok(());
    let found = testnpu::run(&options, npus, &worker, &mut |check| {
        if shown && printed.is_ok() {
            printed = devices::show(check, context.global.more > 0);
        }
    });
    printed?;
    if common.json {
        let mut value = serde_json::to_value(&found)?;
        value["totals"] = serde_json::to_value(found.report.totals())?;
        term::json(&value)?;
    } else if shown {
        devices::summary(&found.report)?;
    }
    Ok(devices::status(found.report.verdict(has_device)))
}
