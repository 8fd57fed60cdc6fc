//! Machines with known GPUs and NPUs, as folders.

use std::{fs, os::unix::fs::symlink, path::Path};

use llmsrv_devices::{Check, Outcome, Spawn, Sysroot, gpu, npu, permissions, testgpu, testnpu};

/// A machine under construction.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        Machine(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> Sysroot {
        Sysroot::new(self.0.path())
    }

    fn file(self, path: &str, text: &str) -> Machine {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn link(self, path: &str, to: &str) -> Machine {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(Path::new(to), path).unwrap();
        self
    }

    /// A device on the PCI bus: class, vendor, device, driver.
    fn pci(
        self,
        address: &str,
        [class, vendor, device]: [&str; 3],
        driver: Option<&str>,
    ) -> Machine {
        let at = format!("sys/bus/pci/devices/{address}");
        let machine = self
            .file(&format!("{at}/class"), &format!("0x{class}\n"))
            .file(&format!("{at}/vendor"), &format!("0x{vendor}\n"))
            .file(&format!("{at}/device"), &format!("0x{device}\n"));
        match driver {
            Some(driver) => machine.link(
                &format!("{at}/driver"),
                &format!("../../../../bus/pci/drivers/{driver}"),
            ),
            None => machine,
        }
    }
}

fn nobody() -> permissions::Identity {
    permissions::Identity {
        name: "ada".into(),
        uid: 4711,
        groups: vec![4711],
    }
}

/// No driver library is asked for these folders.
fn no_worker() -> Spawn {
    Spawn {
        program: "/nonexistent".into(),
        arguments: Vec::new(),
        limit: std::time::Duration::from_secs(1),
    }
}

fn check_gpus(machine: &Machine) -> Vec<Check> {
    let categories = ["hardware", "driver", "permissions"];
    let survey = testgpu::Survey::new(&machine.root(), &categories, &no_worker());
    testgpu::run(&survey, &categories, &nobody(), &no_worker(), &mut |_| ()).checks
}

fn check_npus(machine: &Machine) -> Vec<Check> {
    let options = testnpu::Options {
        root: machine.root(),
        categories: testnpu::CATEGORIES.iter().map(|(name, _)| *name).collect(),
        model: None,
        runtime: None,
        user: nobody(),
    };
    let npus = npu::list(&options.root);
    testnpu::run(&options, npus, &no_worker(), &mut |_| ())
        .report
        .checks
}

fn outcomes<'a>(checks: &'a [Check], category: &str) -> Vec<(Outcome, &'a str)> {
    let checks = checks.iter().filter(|check| check.category == category);
    checks
        .map(|check| (check.outcome, check.detail.as_str()))
        .collect()
}

#[test]
fn an_empty_machine_has_nothing_and_every_check_says_so() {
    let machine = Machine::new();
    for checks in [check_gpus(&machine), check_npus(&machine)] {
        assert!(!checks.is_empty());
        assert!(
            checks
                .iter()
                .all(|check| check.outcome == Outcome::Skip && !check.detail.is_empty()),
            "{checks:?}"
        );
    }
}

#[test]
fn cards_are_found_with_name_driver_and_memory() {
    let machine = Machine::new()
        .pci("0000:01:00.0", ["030200", "10de", "2335"], Some("nvidia"))
        .file(
            "proc/driver/nvidia/gpus/0000:01:00.0/information",
            "Model: \t\t NVIDIA H200\nIRQ:  42\n",
        )
        .file("sys/module/nvidia/version", "570.133.20\n")
        .pci("0000:03:00.0", ["030000", "1002", "744c"], Some("amdgpu"))
        .file(
            "sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total",
            "25753026560\n",
        )
        .file("usr/share/misc/pci.ids", "1002  AMD\n\t744c  Navi 31\n")
        .pci("0000:04:00.0", ["030000", "8086", "56a0"], None)
        .pci("0000:05:00.0", ["030000", "1a03", "2000"], Some("ast"))
        .pci("0000:06:00.0", ["010802", "144d", "a808"], Some("nvme"))
        .pci("0000:07:00.0", ["zz", "10de", "1234"], None);
    let cards = gpu::cards(&machine.root());
    let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "NVIDIA H200 [10de:2335]",
            "AMD Navi 31 [1002:744c]",
            "8086:56a0",
            "1a03:2000"
        ]
    );
    assert_eq!(cards[0].driver_version.as_deref(), Some("570.133.20"));
    assert_eq!(cards[1].memory_bytes, Some(25_753_026_560));
    assert_eq!(
        cards.iter().map(|card| card.computes).collect::<Vec<_>>(),
        [true, true, true, false]
    );

    let checks = check_gpus(&machine);
    let drivers = outcomes(&checks, "driver");
    assert_eq!(drivers[0], (Outcome::Pass, "nvidia 570.133.20"));
    assert_eq!(drivers[1], (Outcome::Pass, "amdgpu"));
    assert_eq!(drivers[2].0, Outcome::Fail);
    assert_eq!(drivers.len(), 3, "the adapter of the board needs no driver");
    assert_eq!(outcomes(&checks, "hardware")[3].0, Outcome::Info);
}

#[test]
fn a_gpu_of_the_device_tree_is_found() {
    let machine = Machine::new()
        .file(
            "sys/class/drm/card1/device/uevent",
            "DRIVER=panthor\nOF_FULLNAME=/gpu@fb000000\nOF_COMPATIBLE_0=rockchip,rk3588-mali\n",
        )
        .file(
            "sys/class/drm/card0/device/uevent",
            "DRIVER=rockchip-drm\nOF_COMPATIBLE_0=rockchip,display-subsystem\n",
        )
        .file("sys/class/drm/card1-HDMI-A-1/status", "connected\n");
    let cards = gpu::cards(&machine.root());
    assert_eq!(cards.len(), 2, "{cards:?}");
    assert_eq!(
        (cards[1].driver.as_deref(), cards[1].computes),
        (Some("panthor"), true)
    );
    assert!(!cards[0].computes);
}

#[test]
fn nodes_that_a_user_may_not_use_fail() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::new()
        .file("dev/dri/renderD128", "")
        .file("dev/dri/card0", "")
        .file("dev/nvidia0", "")
        .file("dev/nvidia-caps/nvidia-cap1", "")
        .file("dev/null", "");
    let mode = |node: &str, mode| {
        let path = machine.0.path().join(node);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("dev/dri/renderD128", 0o660);
    mode("dev/nvidia0", 0o666);
    let checks = check_gpus(&machine);
    let access = outcomes(&checks, "permissions");
    assert_eq!(access.len(), 2, "{access:?}");
    assert_eq!(
        (access[0].0, access[1].0),
        (Outcome::Fail, Outcome::Pass),
        "{access:?}"
    );
    // Nodes alone are hardware, too: a container shows no bus.
    assert_eq!(outcomes(&checks, "hardware")[0].0, Outcome::Pass);
    mode("dev/dri/renderD128", 0o666);
    let checks = check_gpus(&machine);
    assert!(
        outcomes(&checks, "permissions")[0].1.contains("every user"),
        "{checks:?}"
    );
}

#[test]
fn npus_of_all_makers_are_found() {
    let machine = Machine::new()
        .pci(
            "0000:00:0b.0",
            ["120000", "8086", "7d1d"],
            Some("intel_vpu"),
        )
        .link(
            "sys/class/accel/accel0/device",
            "../../../bus/pci/devices/0000:00:0b.0",
        )
        .file(
            "sys/bus/pci/devices/0000:00:0b.0/npu_current_frequency_mhz",
            "950\n",
        )
        .file(
            "sys/bus/pci/devices/0000:00:0b.0/npu_max_frequency_mhz",
            "1400\n",
        )
        .file("dev/accel/accel0", "")
        .file("usr/lib/x86_64-linux-gnu/libze_intel_npu.so.1", "")
        .pci("0000:c5:00.1", ["118000", "1022", "17f0"], None)
        .pci("0000:07:00.0", ["120000", "1e60", "2864"], Some("hailo"))
        .file("dev/hailo0", "")
        .pci("0000:08:00.0", ["088000", "1ac1", "089a"], Some("apex"))
        .file("dev/apex_0", "")
        .file("sys/class/apex/apex_0/temp", "61550\n")
        .file("sys/bus/usb/devices/1-2/idVendor", "18d1\n")
        .file("sys/bus/usb/devices/1-2/idProduct", "9302\n")
        .link(
            "sys/bus/platform/drivers/RKNPU/fdab0000.npu",
            "../../../../devices/platform/fdab0000.npu",
        )
        .file("sys/bus/platform/drivers/RKNPU/bind", "")
        .file(
            "proc/device-tree/npu@fdab0000/compatible",
            "rockchip,rk3588-rknpu\0",
        )
        .file("sys/class/devfreq/fdab0000.npu/cur_freq", "1000000000\n")
        .file(
            "sys/class/devfreq/fdab0000.npu/governor",
            "rknpu_ondemand\n",
        )
        .file("sys/class/thermal/thermal_zone6/type", "npu-thermal\n")
        .file("sys/class/thermal/thermal_zone6/temp", "48076\n")
        .file(
            "sys/class/thermal/thermal_zone6/trip_point_1_type",
            "critical\n",
        )
        .file(
            "sys/class/thermal/thermal_zone6/trip_point_1_temp",
            "115000\n",
        )
        .file("dev/fastrpc-cdsp", "")
        .file(
            "proc/meminfo",
            "MemTotal: 32 kB\nMemAvailable:   8388608 kB\nCmaTotal: 16384 kB\nCmaFree: 8192 kB\n",
        );
    let npus = npu::list(&machine.root());
    let found: Vec<(&str, Option<&str>, Option<&str>)> = npus
        .iter()
        .map(|npu| {
            (
                npu.name.as_str(),
                npu.driver.as_deref(),
                npu.node.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                "Intel NPU of Meteor Lake",
                Some("intel_vpu"),
                Some("/dev/accel/accel0")
            ),
            ("Hailo Hailo-8", Some("hailo"), Some("/dev/hailo0")),
            ("Coral Edge TPU", Some("apex"), Some("/dev/apex_0")),
            ("AMD XDNA 2 NPU (Strix, Krackan)", None, None),
            ("Coral accelerator", None, None),
            ("Rockchip NPU", Some("RKNPU"), None),
            ("Qualcomm NPU", None, Some("/dev/fastrpc-cdsp")),
        ]
    );
    let checks = check_npus(&machine);
    let of = |category: &str, name: &str| {
        let mut all = checks
            .iter()
            .filter(|check| check.category == category && check.name.contains(name));
        all.next()
            .unwrap_or_else(|| panic!("{category} {name}: {checks:?}"))
    };
    assert_eq!(of("driver", "AMD").outcome, Outcome::Fail);
    assert!(
        of("driver", "AMD")
            .hint
            .as_deref()
            .unwrap()
            .contains("amdxdna")
    );
    assert_eq!(of("driver", "Intel").outcome, Outcome::Pass);
    assert_eq!(
        of("runtime", "Intel").detail,
        "/usr/lib/x86_64-linux-gnu/libze_intel_npu.so.1"
    );
    assert_eq!(of("runtime", "Hailo").outcome, Outcome::Fail);
    assert_eq!(of("memory", "available").value, Some(8192.0));
    assert_eq!(of("memory", "contiguous").value, Some(8.0));
    assert_eq!(
        (
            of("thermal", "npu-thermal").value,
            of("thermal", "npu-thermal").outcome
        ),
        (Some(48.076), Outcome::Pass)
    );
    assert_eq!(of("thermal", "Coral").value, Some(61.55));
    assert_eq!(of("thermal", "clock").value, Some(950.0));
    assert_eq!(of("model", "model").outcome, Outcome::Skip);
}

#[test]
fn a_device_of_the_tree_without_a_driver_is_found_and_fails() {
    let machine = Machine::new().file(
        "proc/device-tree/npu@fdab0000/compatible",
        "rockchip,rk3588-rknpu\0x\0",
    );
    let checks = check_npus(&machine);
    assert_eq!(
        outcomes(&checks, "hardware")[0].0,
        Outcome::Pass,
        "{checks:?}"
    );
    assert_eq!(outcomes(&checks, "driver")[0].0, Outcome::Fail);
}

#[test]
fn an_npu_that_is_too_hot_fails() {
    let machine = Machine::new()
        .link(
            "sys/bus/platform/drivers/rocket/fdab0000.npu",
            "../../../../devices/platform/fdab0000.npu",
        )
        .file("sys/class/thermal/thermal_zone0/type", "npu-thermal\n")
        .file("sys/class/thermal/thermal_zone0/temp", "115500\n")
        .file(
            "sys/class/thermal/thermal_zone0/trip_point_0_type",
            "critical\n",
        )
        .file(
            "sys/class/thermal/thermal_zone0/trip_point_0_temp",
            "115000\n",
        );
    assert_eq!(
        outcomes(&check_npus(&machine), "thermal")[0].0,
        Outcome::Fail
    );
}
