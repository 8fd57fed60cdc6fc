//! From two readings to the figures of the interval between them.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    accelerators::RawAccelerator,
    parse::{self, Ticks, Traffic},
    raw::Raw,
    sample::{
        Accelerator, Core, Cpu, Disk, DiskDevice, Interface, Memory, Network, Sample, Server,
        Temperature,
    },
};

impl Sample {
    /// Computes the figures of an interval. A device that was not there before has none yet, one
    /// that is gone has none any more.
    pub fn between(before: &Raw, now: &Raw, elapsed: Duration) -> Sample {
        let seconds = elapsed.as_secs_f64();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Sample {
            timestamp_ms: since_1970.map_or(0, |time| time.as_millis() as u64),
            interval_seconds: rounded(seconds, 1000.0),
            host: now.host.clone(),
            cpu: cpu(before, now),
            memory: now.memory.total.map(|total| {
                let available = now.memory.available.unwrap_or(0);
                memory(total.saturating_sub(available), total)
            }),
            swap: now.memory.swap_total.map(|total| {
                let free = now.memory.swap_free.unwrap_or(0);
                memory(total.saturating_sub(free), total)
            }),
            temperature: temperature(now),
            disk: disk(before, now, seconds),
            network: network(before, now, seconds),
            accelerators: accelerators(&before.accelerators, &now.accelerators, seconds),
            server: server(before, now, seconds),
            problems: now.problems.clone(),
        }
    }
}

fn cpu(before: &Raw, now: &Raw) -> Option<Cpu> {
    if now.stat.total.is_none() && now.stat.cores.is_empty() {
        return None;
    }
    let cores = now.stat.cores.iter().map(|(core, ticks)| Core {
        core: *core,
        percent: before
            .stat
            .cores
            .get(core)
            .and_then(|before| busy(before, ticks)),
    });
    let total = before.stat.total.zip(now.stat.total);
    Some(Cpu {
        percent: total.and_then(|(before, now)| busy(&before, &now)),
        cores: cores.collect(),
    })
}

/// Returns the share of work in percent. Counters of waiting for disks may go back a little; a
/// processor that was off and on again counts from zero.
fn busy(before: &Ticks, now: &Ticks) -> Option<f64> {
    let all = now.all.checked_sub(before.all)?;
    if all == 0 {
        return Some(0.0);
    }
    let busy = now.busy.saturating_sub(before.busy).min(all);
    Some(rounded(busy as f64 / all as f64 * 100.0, 10.0))
}

pub(crate) fn memory(used_bytes: u64, total_bytes: u64) -> Memory {
    let percent = used_bytes as f64 / total_bytes as f64 * 100.0;
    Memory {
        used_bytes,
        total_bytes,
        percent: (total_bytes > 0).then(|| rounded(percent.min(100.0), 10.0)),
    }
}

fn temperature(now: &Raw) -> Option<Temperature> {
    let highest = now.sensors.iter().map(|sensor| sensor.celsius);
    let highest = highest.reduce(f64::max)?;
    Some(Temperature {
        max_celsius: highest,
        sensors: now.sensors.clone(),
    })
}

fn disk(before: &Raw, now: &Raw, seconds: f64) -> Option<Disk> {
    let rates = rates(before.disks.as_ref(), now.disks.as_ref()?, seconds);
    let all = total(&rates, |name| !now.compound.contains(name));
    let devices = rates.iter().map(|(name, rate)| DiskDevice {
        name: parse::clean(name),
        read_bytes_per_second: rate.inward,
        write_bytes_per_second: rate.outward,
    });
    Some(Disk {
        read_bytes_per_second: all.inward,
        write_bytes_per_second: all.outward,
        devices: devices.collect(),
    })
}

fn network(before: &Raw, now: &Raw, seconds: f64) -> Option<Network> {
    let rates = rates(
        before.interfaces.as_ref(),
        now.interfaces.as_ref()?,
        seconds,
    );
    let all = total(&rates, |name| {
        now.physical.is_empty() || now.physical.contains(name)
    });
    let interfaces = rates.iter().map(|(name, rate)| Interface {
        name: parse::clean(name),
        receive_bytes_per_second: rate.inward,
        transmit_bytes_per_second: rate.outward,
    });
    Some(Network {
        receive_bytes_per_second: all.inward,
        transmit_bytes_per_second: all.outward,
        interfaces: interfaces.collect(),
    })
}

/// Sums the rates of the devices that count.
fn total(rates: &BTreeMap<String, Traffic>, counts: impl Fn(&String) -> bool) -> Traffic {
    let counted = rates.iter().filter(|(name, _)| counts(name));
    counted.fold(Traffic::default(), |sum, (_, rate)| Traffic {
        inward: sum.inward.saturating_add(rate.inward),
        outward: sum.outward.saturating_add(rate.outward),
    })
}

/// Returns the bytes per second of each device that is there now.
fn rates(
    before: Option<&BTreeMap<String, Traffic>>,
    now: &BTreeMap<String, Traffic>,
    seconds: f64,
) -> BTreeMap<String, Traffic> {
    let rate = |name: &String, now: &Traffic| {
        // Between its appearance and the first reading it may have done anything.
        let before = before.and_then(|before| before.get(name)).unwrap_or(now);
        let rate = |before, now| per_second(moved(before, now), seconds) as u64;
        Traffic {
            inward: rate(before.inward, now.inward),
            outward: rate(before.outward, now.outward),
        }
    };
    now.iter()
        .map(|(name, now)| (name.clone(), rate(name, now)))
        .collect()
}

/// Returns by how much a counter went on. One of 32 bits starts again from zero at the end; a device
/// that left and came back does so from anywhere, and what it did meanwhile is not known.
pub(crate) fn moved(before: u64, now: u64) -> u64 {
    const SPAN: u64 = 1 << 32;
    match now.checked_sub(before) {
        Some(more) => more,
        None if (SPAN / 4 * 3..SPAN).contains(&before) && now < SPAN / 4 => now + SPAN - before,
        None => 0,
    }
}

/// An interval too short to be measured has no rate.
fn per_second(amount: u64, seconds: f64) -> f64 {
    if seconds < 0.001 {
        0.0
    } else {
        amount as f64 / seconds
    }
}

fn accelerators(
    before: &[RawAccelerator],
    now: &[RawAccelerator],
    seconds: f64,
) -> Vec<Accelerator> {
    let figures = |device: &RawAccelerator| {
        let mut figures = device.now.clone();
        let earlier = before
            .iter()
            .find(|other| other.now.id == figures.id && other.now.kind == figures.kind);
        if let Some((before, now)) = earlier
            .and_then(|earlier| earlier.busy_us)
            .zip(device.busy_us)
        {
            let share = per_second(moved(before, now), seconds) / 1e6;
            figures.percent = Some(rounded(share * 100.0, 10.0).min(100.0));
        }
        figures
    };
    now.iter().map(figures).collect()
}

/// The server as its process shows it; what it says itself is added by the sampler.
fn server(before: &Raw, now: &Raw, seconds: f64) -> Option<Server> {
    let (pid, process) = now.process?;
    // The number of a process may belong to another one by now.
    let earlier = before
        .process
        .filter(|(earlier_pid, earlier)| *earlier_pid == pid && earlier.started == process.started);
    let cpu = earlier.map(|(_, earlier)| {
        let ticks = process.ticks.saturating_sub(earlier.ticks);
        per_second(ticks, seconds) / rustix::param::clock_ticks_per_second() as f64
    });
    Some(Server {
        pid: Some(pid),
        cpu_percent: cpu.map(|share| rounded(share * 100.0, 10.0)),
        resident_bytes: Some(
            process
                .pages
                .saturating_mul(rustix::param::page_size() as u64),
        ),
        ..Server::default()
    })
}

/// Rounds to a fraction: 10 gives tenths.
pub(crate) fn rounded(number: f64, fraction: f64) -> f64 {
    (number * fraction).round() / fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_start_again_are_told_from_devices_that_do() {
        const END: u64 = u32::MAX as u64;
        assert_eq!(moved(5, 12), 7);
        assert_eq!(moved(END - 9, 10), 20);
        assert_eq!(moved(5000, 10), 0, "the device was removed and came back");
        assert_eq!(moved(1 << 40, 10), 0);
        assert_eq!(moved(u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn processors_that_stand_still_or_begin_again_have_no_wrong_share() {
        let ticks = |busy, all| Ticks { busy, all };
        assert_eq!(busy(&ticks(5, 100), &ticks(30, 200)), Some(25.0));
        assert_eq!(busy(&ticks(5, 100), &ticks(5, 100)), Some(0.0));
        assert_eq!(busy(&ticks(50, 100), &ticks(10, 20)), None);
        assert_eq!(busy(&ticks(50, 100), &ticks(40, 200)), Some(0.0));
        assert_eq!(busy(&ticks(0, 0), &ticks(u64::MAX, u64::MAX)), Some(100.0));
    }
}
