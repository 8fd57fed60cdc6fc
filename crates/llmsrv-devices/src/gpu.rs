//! GPUs as the kernel shows them, without any driver library.

use serde::Serialize;

use crate::{Sysroot, pci};

/// A graphics card or another GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// Its name, or its numbers if nobody knows its name.
    pub name: String,
    /// Its PCI address, or its name in the device tree.
    pub place: String,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// The version of that driver, if it has one of its own.
    pub driver_version: Option<String>,
    /// Its own memory, if the kernel tells.
    pub memory_bytes: Option<u64>,
    /// Whether it can compute: display adapters of virtual machines and servers cannot.
    pub computes: bool,
}

/// Lists all GPUs.
pub fn cards(root: &Sysroot) -> Vec<Card> {
    let mut cards: Vec<Card> = pci::devices(root)
        .iter()
        .filter(|device| is_gpu(device))
        .map(|device| on_pci(root, device))
        .collect();
    cards.extend(on_platform(root));
    cards
}

/// Display controllers, and the accelerators of makers of GPUs that have no display.
fn is_gpu(device: &pci::PciDevice) -> bool {
    const NVIDIA: u16 = 0x10de;
    const AMD: u16 = 0x1002;
    match device.class >> 16 {
        0x03 => true,
        0x12 => [NVIDIA, AMD].contains(&device.vendor),
        _ => false,
    }
}

fn on_pci(root: &Sysroot, device: &pci::PciDevice) -> Card {
    let at = device.sysfs();
    let nvidia = root
        .read(&format!(
            "proc/driver/nvidia/gpus/{}/information",
            device.address
        ))
        .and_then(|text| value_of(&text, "Model"));
    let name = nvidia
        .or_else(|| device.name(root))
        .map(|name| format!("{name} [{}]", device.ids()));
    let memory = root.number(&format!("{at}/mem_info_vram_total"));
    Card {
        name: name.unwrap_or_else(|| device.ids()),
        place: device.address.clone(),
        driver_version: device
            .driver
            .as_deref()
            .and_then(|driver| driver_version(root, driver)),
        driver: device.driver.clone(),
        memory_bytes: memory.and_then(|bytes| u64::try_from(bytes).ok()),
        computes: !DISPLAY_ONLY.contains(&device.vendor),
    }
}

/// GPUs of systems on a chip: DRM devices that are on no bus.
fn on_platform(root: &Sysroot) -> Vec<Card> {
    let names = root.list("sys/class/drm");
    let cards = names
        .iter()
        .filter(|name| number_after(name, "card").is_some());
    cards
        .filter_map(|name| {
            let at = format!("sys/class/drm/{name}/device");
            let uevent = root.read(&format!("{at}/uevent"))?;
            let line = |key: &str| {
                let mut lines = uevent.lines();
                lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
            };
            // Only those that the device tree describes; what shows pictures alone is in it, too.
            let compatible = line("OF_COMPATIBLE_0")?;
            let driver = root
                .link(&format!("{at}/driver"))
                .or_else(|| line("DRIVER"));
            Some(Card {
                computes: PLATFORM_GPUS.iter().any(|gpu| compatible.contains(gpu)),
                name: compatible,
                place: line("OF_FULLNAME").unwrap_or_else(|| name.clone()),
                driver_version: None,
                driver,
                memory_bytes: None,
            })
        })
        .collect()
}

/// The version of a driver that is no part of the kernel.
pub(crate) fn driver_version(root: &Sysroot, driver: &str) -> Option<String> {
    root.read(&format!("sys/module/{driver}/version"))
}

/// Reads the value of a line such as `Model:   NVIDIA H200`.
pub(crate) fn value_of(text: &str, key: &str) -> Option<String> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| {
        line.trim_start()
            .strip_prefix(key)?
            .trim_start()
            .strip_prefix(':')
    })?;
    Some(value.trim().to_owned())
}

/// Reads the number of a name such as `card0`.
pub(crate) fn number_after(name: &str, word: &str) -> Option<u32> {
    let digits = name.strip_prefix(word)?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

/// Makers of adapters that show pictures and compute nothing: ASPEED, Matrox, the standard adapter of QEMU, QXL,
/// Cirrus, VMware, Hyper-V, virtio, VirtualBox.
const DISPLAY_ONLY: &[u16] = &[
    0x1a03, 0x102b, 0x1234, 0x1b36, 0x1013, 0x15ad, 0x1414, 0x1af4, 0x80ee,
];

/// Parts of the names of GPUs in device trees.
const PLATFORM_GPUS: &[&str] = &[
    "mali", "adreno", "v3d", "vc4", "gc7000", "vivante", "powervr", "img-", "tegra", "gpu",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_found_whatever_stands_around_them(before in "[a-z \n]{0,40}", value in "[A-Za-z0-9 ]{0,20}") {
            let text = format!("{before}\nModel: \t {value}\nIRQ: 12");
            let value = value.trim();
            prop_assert_eq!(value_of(&text, "Model"), Some(value.to_owned()));
        }

        #[test]
        fn any_text_is_read_without_harm(text in "\\PC{0,60}", key in "[A-Z]{0,3}") {
            value_of(&text, &key);
            if let Some(number) = number_after(&text, "card") {
                prop_assert!(text.ends_with(&number.to_string()));
            }
        }
    }
}
