//! Every check on every device that is here. PoCL and lavapipe make two of any CPU; `tests/run` installs them.

use std::sync::{Mutex, PoisonError};

use llmsrv_devices::{
    Api, Check, DeviceInfo, Outcome,
    worker::{self, Job, Message},
};

/// A worker is one thread of a process of its own, and loaders count on that.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn messages(job: &Job) -> Vec<Message> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut messages = Vec::new();
    let job = serde_json::to_string(job).unwrap();
    worker::work(&job, &mut |message| {
        // What is told must survive the way between processes.
        let line = serde_json::to_string(message).unwrap();
        assert!(!line.contains('\n'));
        messages.push(serde_json::from_str(&line).unwrap());
        Ok(())
    })
    .unwrap();
    messages
}

fn devices(api: Api) -> Vec<DeviceInfo> {
    match messages(&Job::List { api }).remove(0) {
        Message::Devices(devices) => devices,
        Message::Absent(_) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Makes all tests on all devices of an interface.
fn all_pass(api: Api) {
    let devices = devices(api);
    assert!(
        !devices.is_empty(),
        "there is no device for {}; `tests/run` installs a driver",
        api.name()
    );
    for device in devices {
        let names = [
            "saxpy",
            "reduction",
            "matrix product",
            "memory copy",
            "host to device",
            "device to host",
            "multiply-add",
            "large matrix product",
            "image filter",
            "small transformer",
        ];
        let job = Job::Test {
            device: device.clone(),
            tests: names.map(str::to_owned).to_vec(),
        };
        let messages = messages(&job);
        assert_eq!(messages.last(), Some(&Message::Done));
        let checks: Vec<&Check> = messages
            .iter()
            .filter_map(|message| match message {
                Message::Check(check) => Some(check),
                _ => None,
            })
            .collect();
        assert_eq!(checks.len(), names.len(), "{device:?}: {messages:?}");
        for check in checks {
            assert_eq!(check.outcome, Outcome::Pass, "{device:?}: {check:?}");
            assert!(check.name.starts_with(&device.label()), "{check:?}");
            assert!(
                check
                    .value
                    .is_none_or(|value| value > 0.0 && value.is_finite()),
                "{check:?}"
            );
            eprintln!("{check:?}");
        }
    }
}

#[test]
fn opencl_devices_compute_what_the_cpu_does() {
    all_pass(Api::OpenCl);
}

#[test]
fn vulkan_devices_compute_what_the_cpu_does() {
    all_pass(Api::Vulkan);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let device = DeviceInfo {
        api: Api::OpenCl,
        index: 99,
        name: String::new(),
        kind: llmsrv_devices::DeviceKind::Gpu,
        driver: String::new(),
        memory_bytes: 0,
    };
    for api in Api::ALL {
        let messages = messages(&Job::Test {
            device: DeviceInfo {
                api,
                ..device.clone()
            },
            tests: vec!["saxpy".into()],
        });
        assert!(
            matches!(&messages[..], [Message::Failed(_), Message::Done]),
            "{messages:?}"
        );
    }
}
