//! GPUs and NPUs as `/sys` shows them. NVIDIA's driver shows nothing there: see `nvidia.rs`.

use crate::{
    parse,
    reader::Reader,
    sample::{Accelerator, AcceleratorKind},
};

/// A device as it was read: how busy it is, or how long it was.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawAccelerator {
    /// What is known at once.
    pub(crate) now: Accelerator,
    /// Microseconds it has worked since it was started.
    pub(crate) busy_us: Option<u64>,
}

/// Reads all devices that show any figure.
pub(crate) fn read(reader: &mut Reader<'_>) -> Vec<RawAccelerator> {
    let mut found = Vec::new();
    for card in reader.names(SUBJECT, "sys/class/drm") {
        // `card0-HDMI-A-1` is a socket of `card0`.
        let number = card.strip_prefix("card").unwrap_or("x");
        if number.bytes().all(|byte| byte.is_ascii_digit()) {
            found.push(graphics(reader, &card));
        }
    }
    for name in reader.names(SUBJECT, "sys/class/accel") {
        if name.starts_with("accel") {
            found.push(neural(reader, &name));
        }
    }
    for name in reader.names(SUBJECT, "sys/class/devfreq") {
        let kind = match name.to_ascii_lowercase() {
            name if name.contains("npu") => AcceleratorKind::Npu,
            name if name.contains("gpu") => AcceleratorKind::Gpu,
            _ => continue,
        };
        found.push(scaled(reader, &name, kind));
    }
    found.retain(|device| {
        let now = &device.now;
        device.busy_us.is_some()
            || now.percent.is_some()
            || now.memory_used_bytes.is_some()
            || now.frequency_mhz.is_some()
    });
    found.truncate(MAX_ACCELERATORS);
    found
}

/// A graphics card: amdgpu says how busy it is, i915 and xe at which frequency it runs.
fn graphics(reader: &mut Reader<'_>, card: &str) -> RawAccelerator {
    let folder = format!("sys/class/drm/{card}");
    let device = format!("{folder}/device");
    let driver = driver(reader, &device);
    let percent = reader.number(SUBJECT, &format!("{device}/gpu_busy_percent"));
    let product = reader.text(SUBJECT, &format!("{device}/product_name"));
    let product = product.map(|name| parse::clean(&name));
    let maker = match driver.as_deref() {
        Some("amdgpu") => "AMD GPU",
        Some("i915" | "xe") => "Intel GPU",
        _ => "GPU",
    };
    let mut first = |paths: [&str; 3]| {
        let mut numbers = paths.into_iter();
        numbers.find_map(|path| reader.number(SUBJECT, &format!("{folder}/{path}")))
    };
    let frequency_mhz = first([
        "gt_act_freq_mhz",
        "gt/gt0/rps_act_freq_mhz",
        "device/tile0/gt0/freq0/act_freq",
    ]);
    let max_frequency_mhz = first([
        "gt_max_freq_mhz",
        "gt/gt0/rps_max_freq_mhz",
        "device/tile0/gt0/freq0/max_freq",
    ]);
    let mut memory = |name: &str| reader.number(SUBJECT, &format!("{device}/mem_info_vram_{name}"));
    RawAccelerator {
        now: Accelerator {
            kind: AcceleratorKind::Gpu,
            id: parse::clean(card),
            memory_used_bytes: memory("used"),
            memory_total_bytes: memory("total"),
            name: product
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| maker.to_owned()),
            driver,
            percent: percent.map(|percent| percent.min(100) as f64),
            frequency_mhz,
            max_frequency_mhz,
            celsius: heat(reader, &device),
        },
        busy_us: None,
    }
}

/// A device of the kernel's compute subsystem; Intel's NPUs say how long they have worked.
fn neural(reader: &mut Reader<'_>, name: &str) -> RawAccelerator {
    let device = format!("sys/class/accel/{name}/device");
    let driver = driver(reader, &device);
    let maker = match driver.as_deref() {
        Some("intel_vpu") => "Intel NPU",
        Some("amdxdna") => "AMD NPU",
        _ => "NPU",
    };
    let mut number = |file: &str| reader.number(SUBJECT, &format!("{device}/{file}"));
    RawAccelerator {
        busy_us: number("npu_busy_time_us"),
        now: Accelerator {
            kind: AcceleratorKind::Npu,
            id: parse::clean(name),
            name: maker.to_owned(),
            percent: None,
            memory_used_bytes: number("npu_memory_utilization"),
            memory_total_bytes: None,
            frequency_mhz: number("npu_current_frequency_mhz"),
            max_frequency_mhz: number("npu_max_frequency_mhz"),
            celsius: None,
            driver,
        },
    }
}

/// A device whose frequency the kernel sets by its load, as on boards of Rockchip.
fn scaled(reader: &mut Reader<'_>, name: &str, kind: AcceleratorKind) -> RawAccelerator {
    let folder = format!("sys/class/devfreq/{name}");
    let load = reader.text(SUBJECT, &format!("{folder}/load"));
    let mut mhz = |file: &str| {
        let hertz = reader.number(SUBJECT, &format!("{folder}/{file}"))?;
        Some(hertz / 1_000_000)
    };
    RawAccelerator {
        now: Accelerator {
            kind,
            id: parse::clean(name),
            name: match kind {
                AcceleratorKind::Gpu => "GPU".to_owned(),
                AcceleratorKind::Npu => "NPU".to_owned(),
            },
            driver: None,
            percent: load.as_deref().and_then(parse::devfreq_load),
            memory_used_bytes: None,
            memory_total_bytes: None,
            frequency_mhz: mhz("cur_freq"),
            max_frequency_mhz: mhz("max_freq"),
            celsius: None,
        },
        busy_us: None,
    }
}

fn driver(reader: &mut Reader<'_>, device: &str) -> Option<String> {
    let facts = reader.text(SUBJECT, &format!("{device}/uevent"))?;
    let driver = facts
        .lines()
        .find_map(|line| line.strip_prefix("DRIVER="))?;
    Some(parse::clean(driver))
}

/// Returns the highest temperature of a card's own sensors.
fn heat(reader: &mut Reader<'_>, device: &str) -> Option<f64> {
    let mut highest: Option<f64> = None;
    for chip in reader.names(SUBJECT, &format!("{device}/hwmon")) {
        for sensor in 1..=3 {
            let path = format!("{device}/hwmon/{chip}/temp{sensor}_input");
            let celsius = reader.text(SUBJECT, &path);
            if let Some(celsius) = celsius.as_deref().and_then(parse::celsius) {
                highest = Some(highest.map_or(celsius, |other| other.max(celsius)));
            }
        }
    }
    highest
}

const SUBJECT: &str = "accelerator";
/// Most devices that are listed.
const MAX_ACCELERATORS: usize = 64;
