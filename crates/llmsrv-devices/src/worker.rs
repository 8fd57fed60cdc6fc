//! The other side of `child.rs`: what is done in a process of its own.

use std::{
    io::{self, Read as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    Api, Check, DeviceInfo, Outcome,
    compute::{self, checks::TESTS},
    onnx,
};

/// What a worker is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// List the devices of an interface.
    List {
        /// The interface.
        api: Api,
    },
    /// Test a device.
    Test {
        /// The device, as it was listed.
        device: DeviceInfo,
        /// Names of tests.
        tests: Vec<String>,
    },
    /// Load a model and run it.
    Model {
        /// The model.
        file: PathBuf,
        /// The library of ONNX Runtime.
        runtime: PathBuf,
        /// What computes.
        on: onnx::Processor,
    },
}

/// What a worker says, one in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The devices of an interface.
    Devices(Vec<DeviceInfo>),
    /// There is nothing to list them with, because of this.
    Absent(String),
    /// Something failed that is no test of its own.
    Failed(String),
    /// A test begins.
    Begin(String),
    /// A test ended.
    Check(Check),
    /// A model was run.
    Ran(onnx::Run),
    /// All is done.
    Done,
}

/// Does a job, given as JSON. Everything goes through `tell`.
pub fn work(job: &str, tell: &mut dyn FnMut(&Message) -> io::Result<()>) -> io::Result<()> {
    let job: Job = serde_json::from_str(job)?;
    match job {
        Job::List { api } => tell(&match compute::list(api) {
            Ok(devices) => Message::Devices(devices),
            Err(error @ compute::Error::NoLibrary(..)) => Message::Absent(error.to_string()),
            Err(error) => Message::Failed(error.to_string()),
        })?,
        Job::Test { device, tests } => test(&device, &tests, tell)?,
        Job::Model { file, runtime, on } => {
            tell(&match onnx::run(&file, &runtime, on) {
                Ok(run) => Message::Ran(run),
                Err(error) => Message::Failed(error.to_string()),
            })?;
        }
    }
    tell(&Message::Done)
}

fn test(
    info: &DeviceInfo,
    tests: &[String],
    tell: &mut dyn FnMut(&Message) -> io::Result<()>,
) -> io::Result<()> {
    let mut device = match compute::open(info.api, info.index) {
        Ok(device) => device,
        Err(error) => return tell(&Message::Failed(error.to_string())),
    };
    for test in TESTS
        .iter()
        .filter(|test| tests.iter().any(|name| name == test.name))
    {
        tell(&Message::Begin(test.name.to_owned()))?;
        let category = test.category.unwrap_or(info.api.name());
        let check = |outcome, detail| {
            Check::new(
                category,
                format!("{} {}", info.label(), test.name),
                outcome,
                detail,
            )
        };
        let check = match test.run(&mut *device, info) {
            Ok(found) => {
                let passed = check(Outcome::Pass, found.detail);
                found.value.map_or_else(
                    || passed.clone(),
                    |value| passed.clone().measured(value, found.unit),
                )
            }
            Err(problem) => check(Outcome::Fail, problem.to_string()),
        };
        tell(&Message::Check(check))?;
    }
    Ok(())
}

/// Ends this process when the one that started it is gone: it holds the other end of stdin.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) {}
        // Drivers may hang in what runs at an ordinary exit.
        std::process::abort();
    });
}
