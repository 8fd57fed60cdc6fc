//! From the figures to what the panels hold: rows with a bar and a history, and cells beside them.

use crate::{
    sample::{Accelerator, Sample, Server},
    state::{History, Seen, Series, State},
    units,
};

/// A panel, whatever its size will be.
pub(crate) struct Panel<'a> {
    pub(crate) number: usize,
    pub(crate) title: &'static str,
    pub(crate) rows: Vec<Row<'a>>,
    pub(crate) groups: Vec<Vec<Cell>>,
}

/// A figure with its bar and its history.
pub(crate) struct Row<'a> {
    pub(crate) label: String,
    pub(crate) value: String,
    /// What is shown where there is room.
    pub(crate) note: String,
    pub(crate) now: f64,
    pub(crate) scale: Scale,
    pub(crate) history: Option<&'a History>,
    /// The history of a figure with the same scale, so that their bars can be compared.
    pub(crate) beside: Option<&'a History>,
    /// Writes a value at an axis.
    pub(crate) unit: fn(f64) -> String,
}

impl Row<'_> {
    /// Returns the value at which the bar is full, and the top of a chart of the last `n_values`.
    pub(crate) fn top(&self, n_values: usize) -> f64 {
        match self.scale {
            Scale::Share(full) => full,
            Scale::Heat => 100.0,
            Scale::Rate(least) => [self.history, self.beside]
                .into_iter()
                .flatten()
                .flat_map(|history| history.last(n_values).flatten())
                .fold(least, f64::max),
        }
    }
}

/// What is full, and which colours mean what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// Up to a limit, which it is bad to come near.
    Share(f64),
    /// Degrees up to 100.
    Heat,
    /// No limit: the highest value that is seen, at least this one.
    Rate(f64),
}

/// How a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Good,
    Warm,
    Hot,
    /// Neither good nor bad.
    Plain,
    /// Something is wrong.
    Wrong,
}

/// A small figure; several stand side by side.
pub(crate) struct Cell {
    pub(crate) label: String,
    pub(crate) value: String,
    /// Part of a small bar, in percent.
    pub(crate) share: Option<f64>,
    pub(crate) level: Level,
}

impl Scale {
    /// The colours of the specification: green below 30 %, yellow below 70 %, red from there on;
    /// temperatures are yellow above 50 °C, red above 70 °C.
    pub(crate) fn level(self, value: f64) -> Level {
        match self {
            Scale::Share(full) => match value / full * 100.0 {
                percent if percent < 30.0 => Level::Good,
                percent if percent < 70.0 => Level::Warm,
                _ => Level::Hot,
            },
            Scale::Heat if value > 70.0 => Level::Hot,
            Scale::Heat if value > 50.0 => Level::Warm,
            Scale::Heat => Level::Good,
            Scale::Rate(_) => Level::Plain,
        }
    }
}

/// Returns the panels that are to be shown.
pub(crate) fn panels(state: &State) -> Vec<Panel<'_>> {
    let seen = state.seen();
    let Some(sample) = &seen.sample else {
        return Vec::new();
    };
    let ascii = state.ascii;
    let mut panels = vec![
        processor(seen, sample, state.cores, ascii),
        memory(seen, sample),
        transfer(seen, sample),
        server(seen, sample, ascii),
    ];
    for problem in &sample.problems {
        let number = match problem.subject {
            "memory" => 2,
            "disk" | "network" => 3,
            "accelerator" | "server" => 4,
            _ => 1,
        };
        let text = format!("{}: {}", problem.path, problem.reason);
        panels[number - 1].groups.push(vec![Cell {
            label: format!("! {text}"),
            value: String::new(),
            share: None,
            level: Level::Wrong,
        }]);
    }
    panels.retain(|panel| state.panels[panel.number - 1]);
    panels
}

fn processor<'a>(seen: &'a Seen, sample: &Sample, cores: bool, ascii: bool) -> Panel<'a> {
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    if let Some(cpu) = &sample.cpu {
        let percent = cpu.percent.unwrap_or(0.0);
        rows.push(Row {
            label: "cpu".into(),
            value: units::percent(percent),
            note: String::new(),
            now: percent,
            scale: Scale::Share(100.0),
            history: seen.history(&Series::Cpu),
            beside: None,
            unit: whole_percent,
        });
        let cell = |core: &crate::Core| Cell {
            label: core.core.to_string(),
            value: core
                .percent
                .map_or_else(|| "-".into(), |percent| format!("{percent:.0} %")),
            share: Some(core.percent.unwrap_or(0.0)),
            level: Scale::Share(100.0).level(core.percent.unwrap_or(0.0)),
        };
        if cores {
            groups.push(cpu.cores.iter().map(cell).collect());
        }
    }
    if let Some(heat) = &sample.temperature {
        rows.push(Row {
            label: "temp".into(),
            value: units::celsius(heat.max_celsius, ascii),
            note: String::new(),
            now: heat.max_celsius,
            scale: Scale::Heat,
            history: seen.history(&Series::Heat),
            beside: None,
            unit: if ascii {
                |value| format!("{value:.0} C")
            } else {
                |value| format!("{value:.0} °C")
            },
        });
        let cell = |sensor: &crate::Sensor| Cell {
            label: sensor.name.clone(),
            value: units::celsius(sensor.celsius, ascii),
            share: None,
            level: Scale::Heat.level(sensor.celsius),
        };
        groups.push(heat.sensors.iter().map(cell).collect());
    }
    Panel {
        number: 1,
        title: "processors",
        rows,
        groups,
    }
}

fn memory<'a>(seen: &'a Seen, sample: &Sample) -> Panel<'a> {
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    for (label, series, memory) in [
        ("memory", Series::Memory, &sample.memory),
        ("swap", Series::Swap, &sample.swap),
    ] {
        let Some(memory) = memory else { continue };
        let Some(percent) = memory.percent else {
            groups.push(vec![Cell::text(label, "none")]);
            continue;
        };
        rows.push(Row {
            label: label.into(),
            value: units::of_total(memory.used_bytes, memory.total_bytes),
            note: format!("{:>7}", units::percent(percent)),
            now: percent,
            scale: Scale::Share(100.0),
            history: seen.history(&series),
            beside: None,
            unit: whole_percent,
        });
    }
    Panel {
        number: 2,
        title: "memory",
        rows,
        groups,
    }
}

fn transfer<'a>(seen: &'a Seen, sample: &Sample) -> Panel<'a> {
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    let mut row = |label: &str, [series, other]: [Series; 2], rate: u64| {
        rows.push(Row {
            label: label.into(),
            value: units::rate(rate),
            note: String::new(),
            now: rate as f64,
            scale: Scale::Rate(LEAST_BYTES),
            history: seen.history(&series),
            beside: seen.history(&other),
            unit: |value| units::rate(value as u64),
        });
    };
    // Letters of the rows: read, write, recv, send.
    let both = |[from, to]: [char; 2], inward: u64, outward: u64| {
        let (inward, outward) = (units::rate(inward), units::rate(outward));
        format!("{from} {inward} {to} {outward}")
    };
    if let Some(disk) = &sample.disk {
        row(
            "read",
            [Series::Read, Series::Write],
            disk.read_bytes_per_second,
        );
        row(
            "write",
            [Series::Write, Series::Read],
            disk.write_bytes_per_second,
        );
        if disk.devices.len() > 1 {
            let cell = |it: &crate::DiskDevice| {
                let (read, write) = (it.read_bytes_per_second, it.write_bytes_per_second);
                let rates = both(['r', 'w'], read, write);
                Cell::text(&it.name, rates)
            };
            groups.push(disk.devices.iter().map(cell).collect());
        }
    }
    if let Some(net) = &sample.network {
        row(
            "recv",
            [Series::Receive, Series::Send],
            net.receive_bytes_per_second,
        );
        row(
            "send",
            [Series::Send, Series::Receive],
            net.transmit_bytes_per_second,
        );
        if net.interfaces.len() > 1 {
            let cell = |it: &crate::Interface| {
                let (down, up) = (it.receive_bytes_per_second, it.transmit_bytes_per_second);
                let rates = both(['r', 's'], down, up);
                Cell::text(&it.name, rates)
            };
            groups.push(net.interfaces.iter().map(cell).collect());
        }
    }
    Panel {
        number: 3,
        title: "disk and network",
        rows,
        groups,
    }
}

fn server<'a>(seen: &'a Seen, sample: &Sample, ascii: bool) -> Panel<'a> {
    let mut rows = Vec::new();
    let mut groups = Vec::new();
    if let Some(server) = &sample.server {
        serving(seen, sample, server, &mut rows, &mut groups);
    } else {
        groups.push(vec![Cell::text("server", "none")]);
        groups.push(vec![Cell::text("start it with", "llmsrv serve")]);
    }
    for (idx, device) in sample.accelerators.iter().enumerate() {
        let is_same = |other: &&Accelerator| other.kind == device.kind;
        // Several of a kind are numbered.
        let n_same = sample.accelerators.iter().filter(is_same).count();
        let number = sample.accelerators[..idx].iter().filter(is_same).count();
        let number = if n_same > 1 {
            number.to_string()
        } else {
            String::new()
        };
        accelerator(seen, device, &number, ascii, &mut rows, &mut groups);
    }
    Panel {
        number: 4,
        title: if sample.accelerators.is_empty() {
            "server"
        } else {
            "server and accelerators"
        },
        rows,
        groups,
    }
}

fn serving<'a>(
    seen: &'a Seen,
    sample: &Sample,
    server: &Server,
    rows: &mut Vec<Row<'a>>,
    groups: &mut Vec<Vec<Cell>>,
) {
    let n_cores = sample.cpu.as_ref().map_or(1, |cpu| cpu.cores.len().max(1));
    if let Some(percent) = server.cpu_percent {
        rows.push(Row {
            label: "server".into(),
            value: units::percent(percent),
            note: "cpu".into(),
            now: percent,
            scale: Scale::Share(100.0 * n_cores as f64),
            history: seen.history(&Series::ServerCpu),
            beside: None,
            unit: whole_percent,
        });
    }
    if let Some(bytes) = server.resident_bytes {
        let total = sample.memory.map_or(bytes, |memory| memory.total_bytes);
        rows.push(Row {
            label: "rss".into(),
            value: units::size(bytes),
            note: "memory".into(),
            now: bytes as f64,
            scale: Scale::Share(total.max(1) as f64),
            history: seen.history(&Series::ServerMemory),
            beside: None,
            unit: |value| units::size(value as u64),
        });
    }
    if let Some(rate) = server.generated_tokens_per_second {
        rows.push(Row {
            label: "tokens".into(),
            value: format!("{rate:.1}/s"),
            note: server
                .prompt_tokens_per_second
                .map_or_else(String::new, |prompt| format!("prompt {prompt:>6.1}/s")),
            now: rate,
            scale: Scale::Rate(LEAST_TOKENS),
            history: seen.history(&Series::Tokens),
            beside: None,
            unit: |value| format!("{value:.0}/s"),
        });
    }
    groups.push(vec![Cell::text("at", server.url.clone())]);
    let about = [
        ("pid", server.pid.map(u64::from)),
        ("running", server.running),
        ("waiting", server.waiting),
    ];
    let cell = |(label, number): (&str, Option<u64>)| Some(Cell::text(label, number?.to_string()));
    groups.push(about.into_iter().filter_map(cell).collect());
    if server.models.is_empty() && server.problem.is_none() {
        groups.push(vec![Cell::text("models", "none in memory")]);
    }
    let models = server.models.iter();
    groups.push(
        models
            .map(|model| {
                let size = units::size(model.size_bytes);
                Cell::text(
                    &model.name,
                    match model.size_vram_bytes {
                        0 => size,
                        bytes => format!("{size}, {} GPU", units::size(bytes)),
                    },
                )
            })
            .collect(),
    );
    groups.extend(server.problem.as_ref().map(|problem| {
        vec![Cell {
            label: format!("! {problem}"),
            value: String::new(),
            share: None,
            level: Level::Wrong,
        }]
    }));
}

fn accelerator<'a>(
    seen: &'a Seen,
    device: &Accelerator,
    number: &str,
    ascii: bool,
    rows: &mut Vec<Row<'a>>,
    groups: &mut Vec<Vec<Cell>>,
) {
    let kind = match device.kind {
        crate::AcceleratorKind::Gpu => "gpu",
        crate::AcceleratorKind::Npu => "npu",
    };
    let heat = device.celsius.map(|celsius| units::celsius(celsius, ascii));
    let id = || device.id.clone();
    if let Some(percent) = device.percent {
        rows.push(Row {
            label: format!("{kind}{number}"),
            value: units::percent(percent),
            note: String::new(),
            now: percent,
            scale: Scale::Share(100.0),
            history: seen.history(&Series::Busy(id())),
            beside: None,
            unit: whole_percent,
        });
    } else if let (Some(mhz), Some(max @ 1..)) = (device.frequency_mhz, device.max_frequency_mhz) {
        rows.push(Row {
            label: format!("{kind}{number}"),
            value: format!("{mhz} MHz"),
            note: String::new(),
            now: mhz as f64,
            scale: Scale::Rate(max as f64),
            history: seen.history(&Series::Frequency(id())),
            beside: None,
            unit: |value| format!("{value:.0} MHz"),
        });
    }
    if let (Some(used), Some(total @ 1..)) = (device.memory_used_bytes, device.memory_total_bytes) {
        rows.push(Row {
            label: format!("vram{number}"),
            value: units::of_total(used, total),
            note: String::new(),
            now: used as f64,
            scale: Scale::Share(total as f64),
            history: seen.history(&Series::Vram(id())),
            beside: None,
            unit: |value| units::size(value as u64),
        });
    }
    let frequency = device.frequency_mhz.map(|mhz| format!("{mhz} MHz"));
    let facts = [frequency, heat].into_iter().flatten();
    let name = format!("{kind}{number} {}", device.name);
    groups.push(vec![Cell::text(
        &name,
        facts.collect::<Vec<_>>().join(", "),
    )]);
}

impl Cell {
    fn text(label: &str, value: impl Into<String>) -> Cell {
        Cell {
            label: label.to_owned(),
            value: value.into(),
            share: None,
            level: Level::Plain,
        }
    }
}

/// `100 %`, at an axis.
fn whole_percent(percent: f64) -> String {
    format!("{percent:.0} %")
}

/// Below this the bars of disks and networks do not fill: 100 kB/s.
const LEAST_BYTES: f64 = 100_000.0;
/// Below this the bar of tokens does not fill.
const LEAST_TOKENS: f64 = 10.0;
