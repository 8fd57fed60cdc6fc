//! The checks of `llmsrv testnpu`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    Check, Outcome, Report, Sysroot, Worker,
    npu::{self, Npu},
    onnx::{self, Format, Processor, Run},
    permissions::{self, Identity},
    subprocess::End,
    worker::{Job, Message},
};

/// The categories, in the order of the checks, with what each is about.
pub const CATEGORIES: &[(&str, &str)] = &[
    ("hardware", "NPUs that the kernel sees"),
    ("driver", "their kernel drivers and device nodes"),
    (
        "runtime",
        "the libraries that programs use them with, and ONNX Runtime",
    ),
    ("memory", "memory that NPUs can use"),
    ("thermal", "temperatures and clocks"),
    (
        "model",
        "the model of --model: its header, loading it, running it",
    ),
    ("benchmark", "the time the model takes on the NPU"),
];

/// What is checked, and with what.
#[derive(Debug)]
pub struct Options<'a> {
    /// The machine, or a copy of what another one shows.
    pub root: Sysroot,
    /// Names of categories.
    pub categories: Vec<&'a str>,
    /// A model to be run.
    pub model: Option<PathBuf>,
    /// The library of ONNX Runtime; it is looked for if this is none.
    pub runtime: Option<PathBuf>,
    /// Who wants to use the NPUs.
    pub user: Identity,
}

/// NPUs and the checks.
#[derive(Debug, Serialize)]
pub struct Findings {
    /// The NPUs.
    pub npus: Vec<Npu>,
    /// The checks.
    #[serde(flatten)]
    pub report: Report,
}

/// Makes the checks, and calls `on` after each.
pub fn run(
    options: &Options<'_>,
    npus: Vec<Npu>,
    worker: &dyn Worker,
    on: &mut dyn FnMut(&Check),
) -> Findings {
    let mut report = Report::default();
    let mut add = |check: Check| {
        on(&check);
        report.checks.push(check);
    };
    let root = &options.root;
    let wanted = |category: &str| options.categories.contains(&category);
    for (category, checks) in [
        ("hardware", hardware as fn(&Options<'_>, &Npu) -> Vec<Check>),
        ("driver", driver),
        ("runtime", runtime),
        ("thermal", thermal),
    ] {
        if wanted(category) && npus.is_empty() {
            let skipped = Check::skip(category, "NPU", "no NPU was found");
            add(if category == "hardware" {
                skipped.hint(MAKERS_HINT)
            } else {
                skipped
            });
        } else if wanted(category) {
            npus.iter()
                .flat_map(|npu| checks(options, npu))
                .for_each(&mut add);
        }
        // In the order of the list.
        if category == "runtime" && wanted("memory") {
            memory(root, &npus).into_iter().for_each(&mut add);
        }
    }
    if wanted("model") || wanted("benchmark") {
        for check in model(options, &npus, worker) {
            if wanted(&check.category) {
                add(check);
            }
        }
    }
    Findings { npus, report }
}

const MAKERS_HINT: &str = "known are those of Intel, AMD, Rockchip, Qualcomm, Hailo and Coral";

fn hardware(_: &Options<'_>, npu: &Npu) -> Vec<Check> {
    vec![Check::pass(
        "hardware",
        &npu.name,
        format!("at {}", npu.place),
    )]
}

fn driver(options: &Options<'_>, npu: &Npu) -> Vec<Check> {
    let check = |outcome, detail: String| Check::new("driver", &npu.name, outcome, detail);
    let mut checks = vec![match &npu.driver {
        Some(driver) => {
            let version = npu
                .driver_version
                .as_deref()
                .map(|version| format!(" {version}"));
            check(
                Outcome::Pass,
                format!("{driver}{}", version.unwrap_or_default()),
            )
        }
        None if !npu.needs_driver => check(
            Outcome::Pass,
            "it needs no kernel driver that has a name".into(),
        ),
        None => check(Outcome::Fail, "no kernel driver has it".into()).hint(npu.maker.driver_hint),
    }];
    let nodes = permissions::nodes(&options.root);
    if let Some(node) = nodes
        .iter()
        .find(|node| Some(&node.path) == npu.node.as_ref())
    {
        let name = &options.user.name;
        checks.push(if node.allows(&options.user) {
            Check::pass("driver", &node.path, format!("{name} may use it"))
        } else {
            Check::fail(
                "driver",
                &node.path,
                format!("{name} may not use it (mode {:04o})", node.mode),
            )
            .hint("see `llmsrv testgpu --fix-permissions`")
        });
    }
    checks
}

fn runtime(options: &Options<'_>, npu: &Npu) -> Vec<Check> {
    let found = npu
        .maker
        .libraries
        .iter()
        .find_map(|name| npu::library(&options.root, name));
    if let Some(path) = found {
        return vec![Check::pass("runtime", &npu.name, path)];
    }
    let names = npu.maker.libraries.join(" or ");
    let missing = format!("{names} is not in the usual folders");
    vec![Check::fail("runtime", &npu.name, missing).hint(npu.maker.library_hint)]
}

/// NPUs have no memory of their own but that of the machine, of which some can only use what is contiguous.
fn memory(root: &Sysroot, npus: &[Npu]) -> Vec<Check> {
    if npus.is_empty() {
        return vec![Check::skip("memory", "NPU", "no NPU was found")];
    }
    let text = root.read("proc/meminfo").unwrap_or_default();
    let mebibytes = |key: &str| {
        let value = crate::gpu::value_of(&text, key)?;
        let kibibytes: f64 = value.strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes / 1024.0)
    };
    let mut checks = Vec::new();
    checks.push(match mebibytes("MemAvailable") {
        Some(available) => Check::pass("memory", "available", "memory of the machine that is free")
            .measured(available, "MiB"),
        None => Check::skip("memory", "available", "/proc/meminfo does not tell"),
    });
    if let (Some(total), Some(free)) = (
        mebibytes("CmaTotal").filter(|total| *total > 0.0),
        mebibytes("CmaFree"),
    ) {
        let detail = format!("contiguous memory that is free, of {total:.0} MiB");
        checks.push(Check::info("memory", "contiguous", detail).measured(free, "MiB"));
    }
    for npu in npus {
        let used = npu
            .sysfs
            .as_deref()
            .and_then(|at| root.number(&format!("{at}/npu_memory_utilization")));
        if let Some(used) = used {
            let used = used as f64 / f64::from(1 << 20);
            let check = Check::info("memory", format!("{} in use", npu.name), "by all programs");
            checks.push(check.measured(used, "MiB"));
        }
    }
    checks
}

fn thermal(options: &Options<'_>, npu: &Npu) -> Vec<Check> {
    let root = &options.root;
    let mut checks = Vec::new();
    for zone in root.list("sys/class/thermal") {
        let at = format!("sys/class/thermal/{zone}");
        let kind = root.read(&format!("{at}/type")).unwrap_or_default();
        if kind.to_lowercase().contains("npu")
            && let Some(milli) = root.number(&format!("{at}/temp"))
        {
            checks.push(temperature(&kind, milli, critical(root, &at)));
        }
    }
    // Coral tells the temperature of its chip in a place of its own.
    if let Some(node) = npu
        .node
        .as_deref()
        .and_then(|node| node.strip_prefix("/dev/apex_"))
        && let Some(milli) = root.number(&format!("sys/class/apex/apex_{node}/temp"))
    {
        checks.push(temperature(&npu.name, milli, None));
    }
    if let Some(at) = &npu.sysfs {
        let clock = |name: &str| root.number(&format!("{at}/{name}"));
        if let Some(now) = clock("npu_current_frequency_mhz") {
            let most = clock("npu_max_frequency_mhz").map(|most| format!(", at most {most} MHz"));
            let detail = format!("clock now{}", most.unwrap_or_default());
            checks.push(Check::info("thermal", "clock", detail).measured(now as f64, "MHz"));
        }
    }
    for name in root
        .list("sys/class/devfreq")
        .iter()
        .filter(|name| name.contains("npu"))
    {
        let at = format!("sys/class/devfreq/{name}");
        if let Some(hertz) = root.number(&format!("{at}/cur_freq")) {
            let governor = root.read(&format!("{at}/governor")).unwrap_or_default();
            let check = Check::info("thermal", "clock", format!("governor {governor}"));
            checks.push(check.measured(hertz as f64 / 1e6, "MHz"));
        }
    }
    if checks.iter().all(|check| check.outcome == Outcome::Info) {
        let why = "the kernel shows no temperature of it";
        checks.push(Check::skip("thermal", &npu.name, why));
    }
    checks
}

/// The temperature at which the kernel would switch the machine off.
fn critical(root: &Sysroot, zone: &str) -> Option<i64> {
    (0..16).find_map(|trip| {
        let kind = root.read(&format!("{zone}/trip_point_{trip}_type"))?;
        (kind == "critical").then(|| root.number(&format!("{zone}/trip_point_{trip}_temp")))?
    })
}

fn temperature(name: &str, milli: i64, critical: Option<i64>) -> Check {
    let limit = critical.unwrap_or(HOT);
    let outcome = if milli < limit {
        Outcome::Pass
    } else {
        Outcome::Fail
    };
    let detail = format!("critical are {} °C", limit / 1000);
    Check::new("thermal", name, outcome, detail).measured(milli as f64 / 1000.0, "°C")
}

/// Thousandths of a degree, where the kernel names no limit.
const HOT: i64 = 100_000;

/// Checks a model; work of the CPU is told, and never counted as that of an NPU.
fn model(options: &Options<'_>, npus: &[Npu], worker: &dyn Worker) -> Vec<Check> {
    let skip = |category: &str, why: &str| Check::skip(category, "model", why);
    let Some(file) = &options.model else {
        let why = "no model was given (--model FILE)";
        return vec![skip("model", why), skip("benchmark", why)];
    };
    let header = match Format::of(file).map(Format::needs) {
        Some(None) => match onnx::read(file) {
            Ok(header) => header,
            Err(error) => {
                return vec![Check::fail("model", "header", error.to_string())];
            }
        },
        Some(Some(needs)) => {
            let why = "models of this format are compiled for one maker's library, which is not part of this program";
            return vec![skip("model", why).hint(needs), skip("benchmark", why)];
        }
        None => {
            let why = "the end of its name tells no format: .onnx, .xml, .rknn, .hef or .tflite";
            return vec![Check::fail("model", "header", why)];
        }
    };
    let mut checks = vec![Check::pass(
        "model",
        "header",
        format!(
            "ONNX of version {}, operators {}, {} operations, inputs {}, made by {}",
            header.ir_version,
            header.opset,
            header.n_nodes,
            header.inputs.join(", "),
            if header.producer.is_empty() {
                "an unnamed program"
            } else {
                &header.producer
            }
        ),
    )];
    let Some(runtime) = options
        .runtime
        .clone()
        .or_else(|| find_runtime(&options.root))
    else {
        let why = "there is no library of ONNX Runtime";
        let hint = "name it with --runtime or ORT_DYLIB_PATH; `pip install onnxruntime` brings one";
        checks.extend([skip("model", why).hint(hint), skip("benchmark", why)]);
        return checks;
    };
    checks.extend(on_npus(file, &runtime, npus, worker));
    checks.push(on_cpu(file, &runtime, worker));
    checks
}

fn on_npus(file: &Path, runtime: &Path, npus: &[Npu], worker: &dyn Worker) -> Vec<Check> {
    let mut checks = Vec::new();
    for npu in npus {
        let Some(processor) = npu.maker.provider else {
            let why = format!(
                "ONNX Runtime has no execution provider for NPUs of {}",
                npu.maker.name
            );
            checks.push(Check::skip("model", &npu.name, &why));
            checks.push(Check::skip("benchmark", &npu.name, why));
            continue;
        };
        let name = format!("{} with {}", npu.name, processor.provider());
        match try_run(file, runtime, processor, worker) {
            Ok(run) => {
                let detail = format!(
                    "loaded in {:.0} ms, ran; the CPU did nothing",
                    run.load_seconds * 1e3
                );
                checks.push(Check::pass("model", &name, detail));
                checks.push(timing("benchmark", name, Outcome::Pass, &run));
            }
            Err(why) => {
                let hint = format!(
                    "this needs an ONNX Runtime built with {}",
                    processor.provider()
                );
                checks.push(Check::fail("model", &name, why).hint(hint));
                checks.push(Check::skip(
                    "benchmark",
                    name,
                    "the model did not run there",
                ));
            }
        }
    }
    if npus.is_empty() {
        checks.push(Check::skip(
            "model",
            "on an NPU",
            "no NPU was found; only the CPU ran the model",
        ));
        checks.push(Check::skip("benchmark", "on an NPU", "no NPU was found"));
    }
    checks
}

/// A fact about the model; a failure is one of the model, since the CPU runs all sound ones.
fn on_cpu(file: &Path, runtime: &Path, worker: &dyn Worker) -> Check {
    match try_run(file, runtime, Processor::Cpu, worker) {
        Ok(run) => {
            let check = timing("model", "on the CPU", Outcome::Info, &run);
            Check {
                detail: format!(
                    "{}; inputs of zeros: {}",
                    check.detail,
                    run.inputs.join(", ")
                ),
                ..check
            }
        }
        Err(why) => Check::fail("model", "on the CPU", why),
    }
}

fn timing(category: &str, name: impl Into<String>, outcome: Outcome, run: &Run) -> Check {
    let (shortest, median, longest) = run.milliseconds();
    let detail = format!(
        "median of {} runs, {shortest:.3} to {longest:.3} ms",
        run.seconds.len()
    );
    Check::new(category, name, outcome, detail).measured(median, "ms")
}

fn try_run(file: &Path, runtime: &Path, on: Processor, worker: &dyn Worker) -> Result<Run, String> {
    let job = Job::Model {
        file: file.to_owned(),
        runtime: runtime.to_owned(),
        on,
    };
    let mut found = None;
    let end = worker.work(&job, &mut |message| found = Some(message));
    match (found, end) {
        (Some(Message::Ran(run)), _) => Ok(run),
        (Some(Message::Failed(why)), _) | (_, End::Broken(why)) => Err(why),
        _ => Err("the model was not run".to_owned()),
    }
}

/// Returns the library of ONNX Runtime in the usual folders.
pub fn find_runtime(root: &Sysroot) -> Option<PathBuf> {
    let found = ["libonnxruntime.so", "libonnxruntime.so.1"]
        .iter()
        .find_map(|name| npu::library(root, name))?;
    Some(root.path(&found))
}
