//! NPUs as the kernel shows them: on the PCI and USB buses, as accelerators, in the device tree, by their nodes.

use serde::Serialize;

use crate::{
    Sysroot,
    gpu::{driver_version, number_after},
    onnx::Processor,
    pci,
};

/// A maker of NPUs, and how theirs are found and used.
#[derive(Debug)]
pub struct Maker {
    /// Their name.
    pub name: &'static str,
    /// Vendor and device on PCI, with the name of the NPU; device 0 stands for all of the vendor's.
    pci: &'static [(u16, u16, &'static str)],
    /// The same on USB.
    usb: &'static [(u16, u16)],
    /// Kernel drivers.
    drivers: &'static [&'static str],
    /// Begins of names in `/dev`; a number or nothing follows.
    nodes: &'static [&'static str],
    /// Parts of names in the device tree.
    compatible: &'static [&'static str],
    /// Libraries with which programs use it; one is enough.
    pub libraries: &'static [&'static str],
    /// What to do when the driver is missing.
    pub driver_hint: &'static str,
    /// What to do when the libraries are missing.
    pub library_hint: &'static str,
    /// The execution provider of ONNX Runtime.
    pub provider: Option<Processor>,
}

/// All makers.
pub const MAKERS: &[Maker] = &[
    Maker {
        name: "Intel",
        pci: &[
            (0x8086, 0x7d1d, "NPU of Meteor Lake"),
            (0x8086, 0xad1d, "NPU of Arrow Lake"),
            (0x8086, 0x643e, "NPU of Lunar Lake"),
            (0x8086, 0xb03e, "NPU of Panther Lake"),
        ],
        usb: &[],
        drivers: &["intel_vpu"],
        nodes: &[],
        compatible: &[],
        libraries: &["libze_intel_npu.so.1", "libze_intel_vpu.so.1"],
        driver_hint: "the kernel has the module intel_vpu since 6.3; it needs the firmware intel/vpu",
        library_hint: "install intel-level-zero-npu and OpenVINO",
        provider: Some(Processor::OpenVino),
    },
    Maker {
        name: "AMD",
        pci: &[
            (0x1022, 0x1502, "XDNA NPU (Phoenix, Hawk Point)"),
            (0x1022, 0x17f0, "XDNA 2 NPU (Strix, Krackan)"),
        ],
        usb: &[],
        drivers: &["amdxdna"],
        nodes: &[],
        compatible: &[],
        libraries: &["libxrt_coreutil.so.2", "libxrt_core.so.2"],
        driver_hint: "the kernel has the module amdxdna since 6.14; it needs the firmware amdnpu",
        library_hint: "install XRT with the plugin for XDNA",
        provider: Some(Processor::Vitis),
    },
    Maker {
        name: "Rockchip",
        pci: &[],
        usb: &[],
        drivers: &["RKNPU", "rknpu", "rocket"],
        nodes: &["rknpu"],
        compatible: &["rknpu", "rk3588-rknn-core"],
        libraries: &["librknnrt.so", "librknn_api.so"],
        driver_hint: "use a kernel with the driver rknpu (of Rockchip) or rocket (Linux 6.18 and later)",
        library_hint: "install librknnrt.so of rknn-toolkit2",
        provider: None,
    },
    Maker {
        name: "Qualcomm",
        pci: &[
            (0x17cb, 0xa100, "Cloud AI 100"),
            (0x17cb, 0xa080, "Cloud AI 80"),
        ],
        usb: &[],
        drivers: &["qaic"],
        nodes: &["fastrpc-cdsp", "fastrpc-cdsp-secure", "adsprpc-smd"],
        compatible: &[],
        libraries: &["libQnnHtp.so", "libcdsprpc.so", "libcdsprpc.so.1"],
        driver_hint: "the kernel has the module qaic since 6.4, and fastrpc for Hexagon",
        library_hint: "install the QNN SDK (Qualcomm AI Engine Direct)",
        provider: Some(Processor::Qnn),
    },
    Maker {
        name: "Hailo",
        pci: &[
            (0x1e60, 0x2864, "Hailo-8"),
            (0x1e60, 0x45c4, "Hailo-10H"),
            (0x1e60, 0, "accelerator"),
        ],
        usb: &[],
        drivers: &["hailo", "hailo_pci", "hailo1x_pci"],
        nodes: &["hailo"],
        compatible: &[],
        libraries: &["libhailort.so"],
        driver_hint: "install hailort-pcie-driver",
        library_hint: "install HailoRT",
        provider: None,
    },
    Maker {
        name: "Coral",
        pci: &[(0x1ac1, 0x089a, "Edge TPU")],
        usb: &[(0x1a6e, 0x089a), (0x18d1, 0x9302)],
        drivers: &["apex"],
        nodes: &["apex_"],
        compatible: &[],
        libraries: &["libedgetpu.so.1"],
        driver_hint: "install gasket-dkms",
        library_hint: "install libedgetpu1-std",
        provider: None,
    },
];

/// An NPU.
#[derive(Debug, Serialize)]
pub struct Npu {
    /// Its maker.
    #[serde(serialize_with = "maker_name")]
    pub maker: &'static Maker,
    /// Its name.
    pub name: String,
    /// PCI address, name in the device tree, or node.
    pub place: String,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// The version of that driver, if it has one of its own.
    pub driver_version: Option<String>,
    /// The node in `/dev` that programs open.
    pub node: Option<String>,
    /// Where the kernel describes it.
    #[serde(skip)]
    pub sysfs: Option<String>,
    /// USB devices need no kernel driver.
    #[serde(skip)]
    pub needs_driver: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands fields over by reference"
)]
fn maker_name<S: serde::Serializer>(maker: &&Maker, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(maker.name)
}

/// Lists all NPUs.
pub fn list(root: &Sysroot) -> Vec<Npu> {
    let mut found = on_pci(root);
    found.extend(on_usb(root));
    add_accelerators(root, &mut found);
    add_platform(root, &mut found);
    add_nodes(root, &mut found);
    for npu in &mut found {
        npu.driver_version = npu
            .driver
            .as_deref()
            .and_then(|driver| driver_version(root, driver));
    }
    found
}

fn npu(maker: &'static Maker, name: &str, place: String) -> Npu {
    Npu {
        maker,
        name: format!("{} {name}", maker.name),
        place,
        driver: None,
        driver_version: None,
        node: None,
        sysfs: None,
        needs_driver: true,
    }
}

fn on_pci(root: &Sysroot) -> Vec<Npu> {
    let mut found = Vec::new();
    for device in pci::devices(root) {
        let known = MAKERS.iter().find_map(|maker| {
            let mut ids = maker.pci.iter();
            let (_, _, name) = ids.find(|(vendor, id, _)| {
                *vendor == device.vendor && (*id == device.device || *id == 0)
            })?;
            Some((maker, *name))
        });
        if let Some((maker, name)) = known {
            let sysfs = Some(device.sysfs());
            found.push(Npu {
                driver: device.driver,
                sysfs,
                ..npu(maker, name, device.address)
            });
        }
    }
    found
}

fn on_usb(root: &Sysroot) -> Vec<Npu> {
    let mut found = Vec::new();
    for name in root.list("sys/bus/usb/devices") {
        let number = |file: &str| {
            let text = root.read(&format!("sys/bus/usb/devices/{name}/{file}"))?;
            u16::from_str_radix(&text, 16).ok()
        };
        let (Some(vendor), Some(device)) = (number("idVendor"), number("idProduct")) else {
            continue;
        };
        if let Some(maker) = MAKERS
            .iter()
            .find(|maker| maker.usb.contains(&(vendor, device)))
        {
            found.push(Npu {
                needs_driver: false,
                ..npu(maker, "accelerator", format!("USB {name}"))
            });
        }
    }
    found
}

/// `/sys/class/accel`: gives devices of the PCI bus their nodes, and finds those that are on none.
fn add_accelerators(root: &Sysroot, found: &mut Vec<Npu>) {
    for name in root.list("sys/class/accel") {
        if number_after(&name, "accel").is_none() {
            continue;
        }
        let sysfs = format!("sys/class/accel/{name}/device");
        let node = Some(format!("/dev/accel/{name}"));
        let place = root.link(&sysfs);
        if let Some(known) = found
            .iter_mut()
            .find(|npu| Some(&npu.place) == place.as_ref())
        {
            known.node = node;
            known.sysfs = Some(sysfs);
            continue;
        }
        let Some(driver) = root.link(&format!("{sysfs}/driver")) else {
            continue;
        };
        // Accelerators that are no NPU of a known maker (for training, for video) are not ours.
        if let Some(maker) = MAKERS
            .iter()
            .find(|maker| maker.drivers.contains(&driver.as_str()))
        {
            let place = place.unwrap_or(name);
            found.push(Npu {
                driver: Some(driver),
                node,
                sysfs: Some(sysfs),
                ..npu(maker, "NPU", place)
            });
        }
    }
}

/// Systems on a chip: devices that a driver has, then those of the device tree that none has.
fn add_platform(root: &Sysroot, found: &mut Vec<Npu>) {
    for maker in MAKERS {
        for driver in maker.drivers {
            let folder = format!("sys/bus/platform/drivers/{driver}");
            for place in root.list(&folder) {
                // Beside the devices there are files such as `bind`.
                let is_new = found.iter().all(|npu| npu.place != place);
                if is_new
                    && place.contains('.')
                    && root.link(&format!("{folder}/{place}")).is_some()
                {
                    let (driver, sysfs) = (
                        Some((*driver).to_owned()),
                        Some(format!("{folder}/{place}")),
                    );
                    found.push(Npu {
                        driver,
                        sysfs,
                        ..npu(maker, "NPU", place)
                    });
                }
            }
        }
    }
    for name in root
        .list("proc/device-tree")
        .iter()
        .filter(|name| name.starts_with("npu@"))
    {
        let compatible = root
            .read(&format!("proc/device-tree/{name}/compatible"))
            .unwrap_or_default();
        // The kernel calls npu@fdab0000 fdab0000.npu.
        let address = name.trim_start_matches("npu@");
        if found.iter().any(|npu| npu.place.starts_with(address)) {
            continue;
        }
        let named = |maker: &&Maker| {
            maker
                .compatible
                .iter()
                .any(|part| compatible.contains(part))
        };
        if let Some(maker) = MAKERS.iter().find(named) {
            let names = compatible.split('\0').next().unwrap_or_default();
            found.push(npu(maker, &format!("NPU ({names})"), name.clone()));
        }
    }
}

/// Nodes of drivers that use none of the classes above.
fn add_nodes(root: &Sysroot, found: &mut Vec<Npu>) {
    for name in root.list("dev") {
        let owner = MAKERS.iter().find(|maker| {
            let mut nodes = maker.nodes.iter();
            nodes.any(|begin| name == *begin || number_after(&name, begin).is_some())
        });
        let Some(maker) = owner else { continue };
        let node = format!("/dev/{name}");
        let mut of_maker = found
            .iter_mut()
            .filter(|npu| std::ptr::eq(npu.maker, maker));
        match of_maker.find(|npu| npu.node.is_none() && npu.driver.is_some()) {
            Some(npu) => npu.node = Some(node),
            // Several nodes of one system on a chip are one NPU.
            None if maker.pci.is_empty() || maker.drivers == ["qaic"] => {
                if !found.iter().any(|npu| std::ptr::eq(npu.maker, maker)) {
                    found.push(Npu {
                        node: Some(node.clone()),
                        needs_driver: false,
                        ..npu(maker, "NPU", node)
                    });
                }
            }
            None => found.push(Npu {
                node: Some(node.clone()),
                needs_driver: false,
                ..npu(maker, "accelerator", node)
            }),
        }
    }
}

/// Finds a library in the usual folders.
pub fn library(root: &Sysroot, name: &str) -> Option<String> {
    let folders = LIBRARY_FOLDERS.iter();
    folders
        .map(|folder| format!("/{folder}/{name}"))
        .find(|path| root.exists(path))
}

const LIBRARY_FOLDERS: &[&str] = &[
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/local/lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "opt/xilinx/xrt/lib",
    "opt/intel/openvino/runtime/lib/intel64",
];

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_id_belongs_to_two_makers() {
        let mut ids = BTreeSet::new();
        for (vendor, device, _) in MAKERS.iter().flat_map(|maker| maker.pci) {
            assert!(ids.insert((vendor, device)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Whatever a kernel (or someone who made the folder) says, it is read without harm.
        #[test]
        fn any_tree_is_read_without_harm(files in proptest::collection::vec((0_usize..10, "\\PC{0,20}"), 0..8)) {
            let folder = tempfile::tempdir().unwrap();
            let at = ["sys/bus/pci/devices/0000:00:0b.0/vendor", "sys/bus/pci/devices/0000:00:0b.0/device",
                "sys/bus/pci/devices/0000:00:0b.0/class", "sys/bus/usb/devices/1-1/idVendor",
                "sys/bus/usb/devices/1-1/idProduct", "sys/class/accel/accel0/x", "sys/class/accel/accel/x",
                "proc/device-tree/npu@0/compatible", "dev/hailo0", "dev/apex_"];
            for (file, text) in &files {
                let path = folder.path().join(at[*file]);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let found = list(&Sysroot::new(folder.path()));
            let n_nodes = files.iter().filter(|(file, _)| *file >= 8).count();
            prop_assert!(found.len() <= n_nodes + 3);
        }
    }
}
