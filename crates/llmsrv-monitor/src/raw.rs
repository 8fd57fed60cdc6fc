//! One reading of the machine: counters and gauges as they stand, nothing computed.

use std::collections::BTreeMap;

use crate::{
    accelerators::{self, RawAccelerator},
    parse::{self, Meminfo, Process, Stat, Traffic},
    reader::Reader,
    root::Root,
    sample::{Host, Problem, Sensor},
};

/// What was read at one time.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    pub(crate) host: Host,
    pub(crate) stat: Stat,
    pub(crate) memory: Meminfo,
    pub(crate) disks: Option<BTreeMap<String, Traffic>>,
    /// Disks made of others that are listed too.
    pub(crate) compound: Vec<String>,
    pub(crate) interfaces: Option<BTreeMap<String, Traffic>>,
    /// Interfaces with a device of their own.
    pub(crate) physical: Vec<String>,
    pub(crate) sensors: Vec<Sensor>,
    pub(crate) accelerators: Vec<RawAccelerator>,
    pub(crate) process: Option<(u32, Process)>,
    pub(crate) problems: Vec<Problem>,
}

impl Raw {
    /// Reads everything, and the process `pid`.
    pub fn read(root: &Root, pid: Option<u32>) -> Raw {
        let mut reader = Reader {
            root,
            problems: Vec::new(),
        };
        let stat = reader.text("cpu", "proc/stat");
        let memory = reader.text("memory", "proc/meminfo");
        let disks = reader.text("disk", "proc/diskstats");
        let disks = disks.as_deref().map(parse::diskstats);
        let interfaces = reader.text("network", "proc/net/dev");
        let interfaces = interfaces.as_deref().map(parse::net_dev);
        let process = pid.and_then(|pid| {
            let text = reader.text("server", &format!("proc/{pid}/stat"))?;
            Some((pid, parse::process(&text)?))
        });
        Raw {
            host: host(&mut reader),
            stat: stat.as_deref().map(parse::stat).unwrap_or_default(),
            memory: memory.as_deref().map(parse::meminfo).unwrap_or_default(),
            compound: disks
                .as_ref()
                .map(|disks| compound(root, disks))
                .unwrap_or_default(),
            disks,
            physical: physical(root, interfaces.as_ref()),
            interfaces,
            sensors: sensors(&mut reader),
            accelerators: accelerators::read(&mut reader),
            process,
            problems: reader.problems,
        }
    }

    /// Tells whether there was nothing of a machine at all.
    pub fn is_empty(&self) -> bool {
        let Raw { stat, memory, .. } = self;
        stat.total.is_none()
            && stat.cores.is_empty()
            && memory.total.is_none()
            && self.disks.is_none()
            && self.interfaces.is_none()
            && self.sensors.is_empty()
            && self.accelerators.is_empty()
    }
}

fn host(reader: &mut Reader<'_>) -> Host {
    let name = reader.text("host", "proc/sys/kernel/hostname");
    let uptime = reader.text("host", "proc/uptime");
    let load = reader.text("host", "proc/loadavg");
    Host {
        name: name.map(|name| parse::clean(&name)),
        uptime_seconds: uptime.as_deref().and_then(parse::uptime),
        load_average: load.as_deref().and_then(parse::loadavg),
    }
}

/// Returns the disks whose parts are listed as well: their bytes are counted there.
fn compound(root: &Root, disks: &BTreeMap<String, Traffic>) -> Vec<String> {
    let is_listed = |part: &String| disks.keys().any(|disk| part.starts_with(disk.as_str()));
    disks
        .keys()
        .filter(|disk| disk.starts_with("md"))
        .filter(|disk| {
            let parts = root.names(&format!("sys/block/{disk}/slaves"));
            parts.is_ok_and(|parts| parts.iter().any(is_listed))
        })
        .cloned()
        .collect()
}

/// Returns the interfaces that are devices; bridges, tunnels and the like pass on what those carry.
fn physical(root: &Root, interfaces: Option<&BTreeMap<String, Traffic>>) -> Vec<String> {
    let names = interfaces.into_iter().flat_map(BTreeMap::keys);
    names
        .filter(|name| !name.contains('/'))
        .filter(|name| root.names(&format!("sys/class/net/{name}/device")).is_ok())
        .cloned()
        .collect()
}

/// Reads the thermal zones and the sensors of `hwmon` (some processors have only the latter).
fn sensors(reader: &mut Reader<'_>) -> Vec<Sensor> {
    const SUBJECT: &str = "temperature";
    let mut sensors = Vec::new();
    let zones = "sys/class/thermal";
    for zone in reader.names(SUBJECT, zones) {
        if !zone.starts_with("thermal_zone") {
            continue;
        }
        let text = reader.text(SUBJECT, &format!("{zones}/{zone}/temp"));
        if let Some(celsius) = text.as_deref().and_then(parse::celsius) {
            let kind = reader.text(SUBJECT, &format!("{zones}/{zone}/type"));
            let name = kind
                .map(|kind| parse::clean(&kind))
                .filter(|kind| !kind.is_empty());
            sensors.push(Sensor {
                name: name.unwrap_or_else(|| parse::clean(&zone)),
                source: parse::clean(&zone),
                celsius,
            });
        }
    }
    let chips = "sys/class/hwmon";
    for chip in reader.names(SUBJECT, chips) {
        let folder = format!("{chips}/{chip}");
        let mut chip_name = None;
        for file in reader.names(SUBJECT, &folder) {
            let Some(input) = file.strip_suffix("_input") else {
                continue;
            };
            if !input.starts_with("temp") {
                continue;
            }
            let text = reader.text(SUBJECT, &format!("{folder}/{file}"));
            let Some(celsius) = text.as_deref().and_then(parse::celsius) else {
                continue;
            };
            let chip_name = chip_name.get_or_insert_with(|| {
                let name = reader.text(SUBJECT, &format!("{folder}/name"));
                name.map_or_else(|| chip.clone(), |name| parse::clean(&name))
            });
            let label = reader.text(SUBJECT, &format!("{folder}/{input}_label"));
            let name = match label.map(|label| parse::clean(&label)) {
                Some(label) if !label.is_empty() => format!("{chip_name} {label}"),
                _ => chip_name.clone(),
            };
            sensors.push(Sensor {
                name,
                source: parse::clean(&format!("{chip}/{input}")),
                celsius,
            });
        }
    }
    sensors.truncate(MAX_SENSORS);
    sensors
}

/// Most sensors that are listed.
const MAX_SENSORS: usize = 512;
