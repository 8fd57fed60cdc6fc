//! The checks of `llmsrv testgpu`.

use serde::Serialize;

use crate::{
    Api, Check, DeviceInfo, DeviceKind, Outcome, Report, Sysroot, Worker,
    compute::checks::TESTS,
    gpu::{self, Card},
    permissions::{self, Identity, Node},
    subprocess::End,
    worker::{Job, Message},
};

/// The categories, in the order of the checks, with what each is about.
pub const CATEGORIES: &[(&str, &str)] = &[
    ("hardware", "GPUs that the kernel sees"),
    ("driver", "kernel drivers of the GPUs and their versions"),
    ("permissions", "whether you may use the device nodes"),
    (
        "opencl",
        "OpenCL devices: saxpy, a reduction and a matrix product, compared with the CPU",
    ),
    ("vulkan", "Vulkan devices: the same kernels as SPIR-V"),
    ("cuda", "NVIDIA devices: the same kernels as PTX"),
    ("rocm", "AMD devices: the same kernels, compiled by HIP"),
    (
        "bandwidth",
        "memory of each device: copies on it, to it and from it",
    ),
    (
        "compute",
        "arithmetic of each device: multiply-adds, a matrix product, an image filter",
    ),
    (
        "inference",
        "a small transformer with random 8-bit weights, token by token as on the CPU",
    ),
    (
        MODEL,
        "the built-in model on Vulkan devices, as LLMSRV_GPU=1 loads models: its logits are those of the CPU",
    ),
];

/// The one category whose checks are made by who can load models.
const MODEL: &str = "model";

/// What there is to be checked.
#[derive(Debug, Serialize)]
pub struct Survey {
    /// GPUs that the kernel sees.
    pub cards: Vec<Card>,
    /// Device nodes.
    pub nodes: Vec<Node>,
    /// Devices that drivers offer to programs.
    pub devices: Vec<DeviceInfo>,
    /// What became of each interface that was asked and has no devices.
    #[serde(skip)]
    absent: Vec<(Api, Outcome, String)>,
}

impl Survey {
    /// Looks for GPUs; of the interfaces, only those that the categories need are asked.
    pub fn new(root: &Sysroot, categories: &[&str], worker: &dyn Worker) -> Survey {
        let mut nodes = permissions::nodes(root);
        nodes.retain(Node::is_gpu);
        let mut survey = Survey {
            cards: gpu::cards(root),
            nodes,
            devices: Vec::new(),
            absent: Vec::new(),
        };
        for api in Api::ALL.into_iter().filter(|api| {
            let loads_models = *api == Api::Vulkan && categories.contains(&MODEL);
            loads_models || !tests(*api, categories).is_empty()
        }) {
            let mut found = None;
            let end = worker.work(&Job::List { api }, &mut |message| found = Some(message));
            let (outcome, why) = match (found, end) {
                (Some(Message::Devices(devices)), _) if !devices.is_empty() => {
                    survey.devices.extend(devices);
                    continue;
                }
                (Some(Message::Devices(_)), _) => {
                    (Outcome::Skip, "its drivers offer no device".to_owned())
                }
                (Some(Message::Absent(why)), _) => (Outcome::Skip, why),
                (Some(Message::Failed(why)), _) | (_, End::Broken(why)) => (Outcome::Fail, why),
                _ => (Outcome::Fail, "the devices were not listed".to_owned()),
            };
            survey.absent.push((api, outcome, why));
        }
        survey
    }

    /// Tells whether there is a GPU. Drivers that compute on the CPU are none.
    pub fn has_device(&self) -> bool {
        let is_gpu = |device: &DeviceInfo| device.kind != DeviceKind::Cpu;
        self.devices.iter().any(is_gpu)
            || self.cards.iter().any(|card| card.computes)
            || !self.nodes_alone().is_empty()
    }
}

impl Survey {
    /// Nodes of GPUs that are on no bus: containers often show a device so.
    fn nodes_alone(&self) -> &[Node] {
        if self.cards.is_empty() {
            &self.nodes
        } else {
            &[]
        }
    }
}

/// Makes the checks of the categories, and calls `on` after each.
pub fn run(
    survey: &Survey,
    categories: &[&str],
    user: &Identity,
    worker: &dyn Worker,
    on: &mut dyn FnMut(&Check),
) -> Report {
    let mut report = Report::default();
    let mut add = |check: Check| {
        on(&check);
        report.checks.push(check);
    };
    let wanted = |category: &str| categories.contains(&category);
    if wanted("hardware") {
        hardware(survey).into_iter().for_each(&mut add);
    }
    if wanted("driver") {
        drivers(survey).into_iter().for_each(&mut add);
    }
    if wanted("permissions") {
        access(&survey.nodes, user).into_iter().for_each(&mut add);
    }
    for (api, outcome, why) in survey.absent.iter().filter(|(api, ..)| wanted(api.name())) {
        add(
            Check::new(api.name(), format!("{} devices", api.name()), *outcome, why)
                .hint(api.hint()),
        );
    }
    for device in &survey.devices {
        for check in with_restarts(device, tests(device.api, categories), worker) {
            add(check);
        }
    }
    for category in SHARED.iter().filter(|category| wanted(category)) {
        if survey.devices.is_empty() {
            add(Check::skip(
                category,
                *category,
                "there is no device to be tested",
            ));
        }
    }
    report
}

/// Categories whose tests run on the devices of every interface.
const SHARED: &[&str] = &["bandwidth", "compute", "inference"];

/// Names of the tests of some categories on the devices of an interface.
fn tests(api: Api, categories: &[&str]) -> Vec<String> {
    let tests = TESTS
        .iter()
        .filter(|test| categories.contains(&test.category.unwrap_or(api.name())));
    tests.map(|test| test.name.to_owned()).collect()
}

/// Tests a device. A test at which the worker breaks off has failed, and the next ones run in a new worker.
fn with_restarts(device: &DeviceInfo, mut tests: Vec<String>, worker: &dyn Worker) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    while !tests.is_empty() {
        let (mut current, mut failed) = (None, None);
        let job = Job::Test {
            device: device.clone(),
            tests: tests.clone(),
        };
        let end = worker.work(&job, &mut |message| match message {
            Message::Begin(name) => current = Some(name),
            Message::Check(check) => {
                tests.retain(|name| current.as_ref() != Some(name));
                current = None;
                checks.push(check);
            }
            Message::Failed(why) => failed = Some(why),
            _ => {}
        });
        let why = match (failed, end) {
            (Some(why), _) | (None, End::Broken(why)) => why,
            (None, End::Done) if tests.is_empty() => break,
            (None, End::Done) => "the test was not made".to_owned(),
        };
        let name = current.clone().unwrap_or_else(|| "preparation".to_owned());
        let category = TESTS
            .iter()
            .find(|test| test.name == name)
            .and_then(|test| test.category);
        let name_there = format!("{} {name}", device.label());
        checks.push(Check::fail(
            category.unwrap_or(device.api.name()),
            name_there,
            why,
        ));
        match current {
            Some(broken) => tests.retain(|name| *name != broken),
            // It does not even open.
            None => break,
        }
    }
    checks
}

fn hardware(survey: &Survey) -> Vec<Check> {
    let check = |card: &Card| {
        let memory = card
            .memory_bytes
            .map(|bytes| format!(", {:.1} GiB", bytes as f64 / f64::from(1 << 30)));
        let detail = format!(
            "{} at {}{}",
            card.name,
            card.place,
            memory.unwrap_or_default()
        );
        if card.computes {
            Check::pass("hardware", "GPU", detail)
        } else {
            Check::info(
                "hardware",
                "display adapter",
                format!("{detail}: it does not compute"),
            )
        }
    };
    let mut checks: Vec<Check> = survey.cards.iter().map(check).collect();
    if !survey.cards.iter().any(|card| card.computes) {
        let nodes = survey.nodes_alone().iter();
        let nodes: Vec<&str> = nodes.map(|node| node.path.as_str()).collect();
        checks.push(if nodes.is_empty() {
            Check::skip(
                "hardware",
                "GPU",
                "no GPU on the PCI bus or in the device tree",
            )
            .hint("in a container or a virtual machine, pass the device in")
        } else {
            Check::pass(
                "hardware",
                "GPU",
                format!("device nodes: {}", nodes.join(", ")),
            )
        });
    }
    checks
}

fn drivers(survey: &Survey) -> Vec<Check> {
    let cards = survey.cards.iter().filter(|card| card.computes);
    let checks: Vec<Check> = cards
        .map(|card| {
            let check =
                |outcome, detail: String| Check::new("driver", card.place.clone(), outcome, detail);
            match card.driver.as_deref() {
                Some("vfio-pci") => check(
                    Outcome::Skip,
                    "vfio-pci holds it for a virtual machine".into(),
                ),
                Some(driver) => {
                    let version = card
                        .driver_version
                        .as_deref()
                        .map(|version| format!(" {version}"));
                    check(
                        Outcome::Pass,
                        format!("{driver}{}", version.unwrap_or_default()),
                    )
                }
                None => check(Outcome::Fail, format!("no kernel driver has {}", card.name))
                    .hint("install the driver of its maker, or load its module; see `dmesg`"),
            }
        })
        .collect();
    if checks.is_empty() {
        return vec![Check::skip(
            "driver",
            "kernel driver",
            "there is no GPU that needs one",
        )];
    }
    checks
}

/// Checks whether a user may use device nodes.
pub(crate) fn access(nodes: &[Node], user: &Identity) -> Vec<Check> {
    if nodes.is_empty() {
        return vec![Check::skip(
            "permissions",
            "device nodes",
            "there is no device node",
        )];
    }
    let check = |node: &Node| {
        let mode = format!("mode {:04o}, group {}", node.mode, node.gid);
        if !node.allows(user) {
            let why = format!("{} may not use it ({mode})", user.name);
            return Check::fail("permissions", &node.path, why)
                .hint("see `llmsrv testgpu --fix-permissions`");
        }
        // NVIDIA's driver makes its nodes so, and guards what matters itself.
        let open = node.is_open_to_all() && !node.path.starts_with("/dev/nvidia");
        let open = if open {
            "; every user of this machine may, too"
        } else {
            ""
        };
        Check::pass(
            "permissions",
            &node.path,
            format!("{} may use it ({mode}){open}", user.name),
        )
    };
    nodes.iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceKind;

    /// Breaks off at one test, as a driver that crashes.
    struct Breaks(&'static str);

    impl Worker for Breaks {
        fn work(&self, job: &Job, on: &mut dyn FnMut(Message)) -> End {
            let Job::Test { device, tests } = job else {
                return End::Done;
            };
            for name in tests {
                on(Message::Begin(name.clone()));
                if name == self.0 {
                    return End::Broken("crashed".into());
                }
                on(Message::Check(Check::pass(
                    "opencl",
                    format!("{} {name}", device.label()),
                    "",
                )));
            }
            End::Done
        }
    }

    #[test]
    fn a_test_that_crashes_fails_alone() {
        let device = DeviceInfo {
            api: Api::OpenCl,
            index: 0,
            name: "d".into(),
            kind: DeviceKind::Gpu,
            driver: "d".into(),
            memory_bytes: 0,
        };
        let all: Vec<&str> = CATEGORIES.iter().map(|(name, _)| *name).collect();
        let names = tests(Api::OpenCl, &all);
        assert_eq!(names.len(), TESTS.len());
        for broken in ["saxpy", "image filter", "small transformer"] {
            let checks = with_restarts(&device, names.clone(), &Breaks(broken));
            assert_eq!(checks.len(), names.len(), "{broken}");
            let failed: Vec<&Check> = checks
                .iter()
                .filter(|check| check.outcome == Outcome::Fail)
                .collect();
            assert_eq!(failed.len(), 1);
            assert_eq!(
                (failed[0].name.as_str(), failed[0].detail.as_str()),
                (&*format!("opencl:0 {broken}"), "crashed")
            );
        }
    }

    #[test]
    fn every_test_belongs_to_a_category() {
        for category in TESTS.iter().filter_map(|test| test.category) {
            assert!(
                SHARED.contains(&category) && CATEGORIES.iter().any(|(name, _)| *name == category),
                "{category}"
            );
        }
    }
}
