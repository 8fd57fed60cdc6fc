//! The devices of the PCI bus.

use std::{
    fs,
    io::{BufRead, BufReader},
};

use crate::Sysroot;

/// A device on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Domain, bus, device and function, such as `0000:01:00.0`.
    pub address: String,
    /// Class, subclass and interface.
    pub class: u32,
    /// Its maker.
    pub vendor: u16,
    /// Its number among those of the maker.
    pub device: u16,
    /// The kernel driver that has it.
    pub driver: Option<String>,
}

impl PciDevice {
    /// Where the kernel describes it.
    pub fn sysfs(&self) -> String {
        format!("{FOLDER}/{}", self.address)
    }

    /// Maker and device as numbers: `10de:2335`.
    pub fn ids(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// Its name in the list that distributions have, if it is there.
    pub fn name(&self, root: &Sysroot) -> Option<String> {
        let files = ["usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"];
        let file = files
            .iter()
            .find_map(|file| fs::File::open(root.path(file)).ok())?;
        named(BufReader::new(file), self.vendor, self.device)
    }
}

/// Lists all devices.
pub fn devices(root: &Sysroot) -> Vec<PciDevice> {
    let device = |address: String| {
        let at = format!("{FOLDER}/{address}");
        let number = |name: &str| hex(&root.read(&format!("{at}/{name}"))?);
        Some(PciDevice {
            class: number("class")?,
            vendor: u16::try_from(number("vendor")?).ok()?,
            device: u16::try_from(number("device")?).ok()?,
            driver: root.link(&format!("{at}/driver")),
            address,
        })
    };
    root.list(FOLDER).into_iter().filter_map(device).collect()
}

const FOLDER: &str = "sys/bus/pci/devices";

/// Reads a number such as `0x10de`.
pub fn hex(text: &str) -> Option<u32> {
    let digits = text.trim().strip_prefix("0x")?;
    // The standard function would take a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Looks a device up in `pci.ids`: vendors at the begin of lines, their devices after one tab.
fn named(list: impl BufRead, vendor: u16, device: u16) -> Option<String> {
    let (vendor, device) = (format!("{vendor:04x}  "), format!("\t{device:04x}  "));
    let mut maker: Option<String> = None;
    for line in list.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(found) = &maker {
            if let Some(name) = line.strip_prefix(&device) {
                return Some(format!("{found} {}", name.trim()));
            }
            if !line.starts_with(['\t', '#']) {
                break;
            }
        } else if let Some(name) = line.strip_prefix(&vendor) {
            maker = Some(name.trim().to_owned());
        }
    }
    maker
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_device_has_the_name_in_the_list() {
        let list = "# a comment\n1002  AMD\n\t73bf  Navi 21\n\t\t1002 0e3a  A board\n\t744c  Navi 31\n\
                    10de  NVIDIA Corporation\n\t2335  GH100 [H200 SXM 141GB]\n";
        let name = |vendor, device| named(list.as_bytes(), vendor, device);
        assert_eq!(
            name(0x10de, 0x2335).unwrap(),
            "NVIDIA Corporation GH100 [H200 SXM 141GB]"
        );
        assert_eq!(name(0x1002, 0x744c).unwrap(), "AMD Navi 31");
        assert_eq!(name(0x1002, 0x2335).unwrap(), "AMD");
        assert_eq!(name(0x8086, 0x2335), None);
    }

    proptest! {
        #[test]
        fn any_list_is_read_without_harm(list in proptest::collection::vec(any::<u8>(), 0..400), ids: (u16, u16)) {
            let name = named(list.as_slice(), ids.0, ids.1);
            prop_assert!(name.is_none_or(|name| name.len() <= 3 * list.len() + 1));
        }

        #[test]
        fn numbers_are_read_back(number: u32, junk in "\\PC*") {
            prop_assert_eq!(hex(&format!("0x{number:x}\n")), Some(number));
            prop_assert_eq!(hex(&format!("0x{number:08x}g")), None);
            if let Some(number) = hex(&junk) {
                let digits = junk.trim().trim_start_matches("0x").to_lowercase();
                prop_assert!(digits.ends_with(&format!("{number:x}")), "{junk}");
            }
        }
    }
}
