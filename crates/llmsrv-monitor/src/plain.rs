//! One sample as text: a line for each figure, for scripts, pipes and tests.

use std::fmt::Write as _;

use crate::{
    sample::{AcceleratorKind, Sample},
    units,
};

/// Writes a sample as lines of `name  value  details`. What the machine does not have has no line.
pub fn plain(sample: &Sample, ascii: bool) -> String {
    let mut out = String::new();
    // Writing into a string cannot fail.
    let mut line = |name: &str, value: String, details: String| {
        let line = format!("{name:<9}{value:<18}{details}");
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let percent = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), units::percent);
    let host = &sample.host;
    if let Some(name) = &host.name {
        let uptime = host.uptime_seconds.map(units::uptime);
        let uptime = uptime.map(|up| format!("up {up}")).unwrap_or_default();
        let load = host
            .load_average
            .map(|[one, five, fifteen]| format!("load {one:.2} {five:.2} {fifteen:.2}"));
        line(
            "host",
            name.clone(),
            two(&uptime, &load.unwrap_or_default()),
        );
    }
    if let Some(cpu) = &sample.cpu {
        let cores: Vec<String> = cpu
            .cores
            .iter()
            .map(|core| {
                core.percent
                    .map_or_else(|| "-".to_owned(), |p| format!("{p:.1}"))
            })
            .collect();
        let details = format!("{} cores: {}", cores.len(), cores.join(" "));
        line("cpu", percent(cpu.percent), details);
    }
    for (name, memory) in [("memory", &sample.memory), ("swap", &sample.swap)] {
        match memory {
            Some(memory) if memory.total_bytes > 0 => line(
                name,
                units::of_total(memory.used_bytes, memory.total_bytes),
                percent(memory.percent),
            ),
            Some(_) => line(name, "none".into(), String::new()),
            None => {}
        }
    }
    if let Some(heat) = &sample.temperature {
        let sensors: Vec<String> = heat
            .sensors
            .iter()
            .map(|sensor| format!("{} {:.1}", sensor.name, sensor.celsius))
            .collect();
        line(
            "heat",
            units::celsius(heat.max_celsius, ascii),
            sensors.join(", "),
        );
    }
    if let Some(disk) = &sample.disk {
        let (read, write) = (disk.read_bytes_per_second, disk.write_bytes_per_second);
        let each = |of: fn(&crate::DiskDevice) -> u64| {
            let device = |d: &crate::DiskDevice| format!("{} {}", d.name, units::rate(of(d)));
            disk.devices
                .iter()
                .map(device)
                .collect::<Vec<_>>()
                .join(", ")
        };
        line("read", units::rate(read), each(|d| d.read_bytes_per_second));
        line(
            "write",
            units::rate(write),
            each(|d| d.write_bytes_per_second),
        );
    }
    if let Some(net) = &sample.network {
        let each = |of: fn(&crate::Interface) -> u64| {
            let one = |i: &crate::Interface| format!("{} {}", i.name, units::rate(of(i)));
            net.interfaces
                .iter()
                .map(one)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (down, up) = (net.receive_bytes_per_second, net.transmit_bytes_per_second);
        line(
            "receive",
            units::rate(down),
            each(|i| i.receive_bytes_per_second),
        );
        line(
            "send",
            units::rate(up),
            each(|i| i.transmit_bytes_per_second),
        );
    }
    for device in &sample.accelerators {
        let name = match device.kind {
            AcceleratorKind::Gpu => "gpu",
            AcceleratorKind::Npu => "npu",
        };
        let mut details = vec![format!("{} ({})", device.name, device.id)];
        match (device.memory_used_bytes, device.memory_total_bytes) {
            (Some(used), Some(total)) => details.push(units::of_total(used, total)),
            (Some(used), None) => details.push(units::size(used)),
            _ => {}
        }
        details.extend(device.frequency_mhz.map(|mhz| format!("{mhz} MHz")));
        details.extend(device.celsius.map(|celsius| units::celsius(celsius, ascii)));
        line(name, percent(device.percent), details.join(", "));
    }
    if let Some(server) = &sample.server {
        let value = match (server.cpu_percent, server.resident_bytes) {
            (Some(cpu), Some(memory)) => format!("{} {}", units::percent(cpu), units::size(memory)),
            _ => "answers".to_owned(),
        };
        let pid = server.pid.map(|pid| format!("process {pid}"));
        line("server", value, two(&server.url, &pid.unwrap_or_default()));
        if let Some(rate) = server.generated_tokens_per_second {
            let prompt = server.prompt_tokens_per_second.unwrap_or(0.0);
            let details = format!("{prompt:.1}/s of prompts");
            line("tokens", format!("{rate:.1}/s"), details);
        }
        for model in &server.models {
            let on_gpu = match model.size_vram_bytes {
                0 => String::new(),
                bytes => format!("{} on the GPU", units::size(bytes)),
            };
            let details = two(&model.name, &on_gpu);
            line("model", units::size(model.size_bytes), details);
        }
        if let Some(problem) = &server.problem {
            line("server", "no figures".into(), problem.clone());
        }
    }
    for problem in &sample.problems {
        let details = format!("{}: {}", problem.path, problem.reason);
        line(problem.subject, "not read".into(), details);
    }
    if ascii {
        out = out
            .chars()
            .map(|c| if c.is_ascii() { c } else { '?' })
            .collect();
    }
    out
}

fn two(first: &str, second: &str) -> String {
    format!("{first}   {second}").trim().to_owned()
}
