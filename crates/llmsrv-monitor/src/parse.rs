//! The texts of `/proc`, read without trust: a line that makes no sense costs that line alone.
//!
//! The formats are those of the kernel's `Documentation/filesystems/proc.rst` and
//! `Documentation/admin-guide/iostats.rst`.

use std::collections::BTreeMap;

/// Ticks of a processor since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// Spent on work.
    pub busy: u64,
    /// Spent at all.
    pub all: u64,
}

/// `/proc/stat`: all processors together, and each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// All together.
    pub total: Option<Ticks>,
    /// Each by its number.
    pub cores: BTreeMap<u32, Ticks>,
}

/// `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    /// Memory of the machine.
    pub total: Option<u64>,
    /// What programs can have without swapping.
    pub available: Option<u64>,
    /// Swap space.
    pub swap_total: Option<u64>,
    /// Swap space that is free.
    pub swap_free: Option<u64>,
}

/// Bytes in both directions since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read from a disk, or received.
    pub inward: u64,
    /// Written to a disk, or sent.
    pub outward: u64,
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Ticks it was computing.
    pub ticks: u64,
    /// When it began, in ticks since the machine started.
    pub started: u64,
    /// Pages of memory in use.
    pub pages: u64,
}

/// Reads `/proc/stat`.
pub fn stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let Some(ticks) = ticks(words) else { continue };
        match name.strip_prefix("cpu") {
            Some("") => stat.total = Some(ticks),
            Some(number) => {
                if let Ok(number) = number.parse()
                    && stat.cores.len() < MAX_DEVICES
                {
                    stat.cores.insert(number, ticks);
                }
            }
            None => {}
        }
    }
    stat
}

/// user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user and nice.
fn ticks<'a>(words: impl Iterator<Item = &'a str>) -> Option<Ticks> {
    let mut ticks = Ticks::default();
    let mut n_words = 0;
    for (idx, word) in words.take(8).enumerate() {
        let number: u64 = word.parse().ok()?;
        ticks.all = ticks.all.saturating_add(number);
        if idx != 3 && idx != 4 {
            ticks.busy = ticks.busy.saturating_add(number);
        }
        n_words += 1;
    }
    (n_words >= 4).then_some(ticks)
}

/// Reads `/proc/meminfo`. Kernels before 3.14 do not say what is available: what is free and cached
/// stands for it.
pub fn meminfo(text: &str) -> Meminfo {
    let mut said: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let mut words = rest.split_ascii_whitespace();
        let number: Option<u64> = words.next().and_then(|word| word.parse().ok());
        let Some(number) = number else { continue };
        let unit = if words.next() == Some("kB") { 1024 } else { 1 };
        said.insert(name, number.saturating_mul(unit));
    }
    let said = |name: &str| said.get(name).copied();
    let available = said("MemAvailable").or_else(|| {
        let rest = ["Buffers", "Cached"].into_iter().filter_map(said);
        said("MemFree").map(|free| rest.fold(free, u64::saturating_add))
    });
    Meminfo {
        total: said("MemTotal"),
        available,
        swap_total: said("SwapTotal"),
        swap_free: said("SwapFree"),
    }
}

/// Reads `/proc/diskstats`: whole disks alone.
pub fn diskstats(text: &str) -> BTreeMap<String, Traffic> {
    let disk = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let name = *words.get(2)?;
        let sectors = |idx: usize| words.get(idx)?.parse::<u64>().ok();
        let traffic = Traffic {
            inward: sectors(5)?.saturating_mul(SECTOR),
            outward: sectors(9)?.saturating_mul(SECTOR),
        };
        is_whole_disk(name).then(|| (name.to_owned(), traffic))
    };
    text.lines().filter_map(disk).take(MAX_DEVICES).collect()
}

/// Tells a disk from its partitions, and from what is no disk or made of others (loop, ram, dm, sr).
pub fn is_whole_disk(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let letters = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase());
    if let Some(rest) = name.strip_prefix("nvme") {
        // With several paths to one disk, `nvme0c1n1` is a path and `nvme0n1` the disk.
        return rest
            .split_once('n')
            .is_some_and(|(controller, space)| number(controller) && number(space));
    }
    for prefix in ["mmcblk", "md"] {
        if let Some(rest) = name.strip_prefix(prefix) {
            return number(rest);
        }
    }
    ["sd", "hd", "vd", "xvd"]
        .iter()
        .any(|prefix| name.strip_prefix(prefix).is_some_and(letters))
}

/// Reads `/proc/net/dev`: all interfaces but the machine itself.
pub fn net_dev(text: &str) -> BTreeMap<String, Traffic> {
    let interface = |line: &str| {
        // Old kernels leave no space after the colon; an alias has one in its name.
        let (name, rest) = line.rsplit_once(':')?;
        let numbers: Vec<&str> = rest.split_ascii_whitespace().take(9).collect();
        let traffic = Traffic {
            inward: numbers.first()?.parse().ok()?,
            outward: numbers.get(8)?.parse().ok()?,
        };
        let name = name.trim();
        (name != "lo" && !name.is_empty()).then(|| (name.to_owned(), traffic))
    };
    text.lines()
        .filter_map(interface)
        .take(MAX_DEVICES)
        .collect()
}

/// Reads `/proc/<pid>/stat`. The name in parentheses may hold anything, parentheses too.
pub fn process(text: &str) -> Option<Process> {
    let (_, rest) = text.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
    let number = |idx: usize| words.get(idx)?.parse::<u64>().ok();
    // What is left of a process that has ended says nothing.
    if matches!(words.first(), Some(&"Z" | &"X")) {
        return None;
    }
    Some(Process {
        ticks: number(11)?.saturating_add(number(12)?),
        started: number(19)?,
        pages: number(21)?,
    })
}

/// Reads `/proc/loadavg`.
pub fn loadavg(text: &str) -> Option<[f64; 3]> {
    let mut words = text.split_ascii_whitespace();
    let mut load = [0.0; 3];
    for place in &mut load {
        *place = finite(words.next()?)?;
    }
    Some(load)
}

/// Reads the seconds of `/proc/uptime`.
pub fn uptime(text: &str) -> Option<u64> {
    let seconds = finite(text.split_ascii_whitespace().next()?)?;
    Some(seconds as u64)
}

/// Reads a file of `/sys` that holds one number.
pub fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Reads thousandths of a degree; what no sensor near a processor can mean is no temperature.
pub fn celsius(text: &str) -> Option<f64> {
    let degrees = text.trim().parse::<i64>().ok()? as f64 / 1000.0;
    (-50.0..=150.0).contains(&degrees).then_some(degrees)
}

/// Reads the load of a device of the kernel's frequency scaling: `37@600000000Hz`, or a number.
pub fn devfreq_load(text: &str) -> Option<f64> {
    let percent = text.trim().split('@').next()?;
    let percent = finite(percent.trim_end_matches('%'))?;
    (percent <= 100.0).then_some(percent)
}

fn finite(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Makes text of a device or a server fit to be shown: one line, no control characters, not long.
pub fn clean(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let shown = line.chars().take(MAX_NAME);
    shown
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The kernel counts in these, whatever the disk does.
const SECTOR: u64 = 512;
/// Most devices of one kind.
const MAX_DEVICES: usize = 4096;
/// Longest name that is shown, in characters.
const MAX_NAME: usize = 80;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn processors_are_read_without_counting_guests_twice() {
        let stat = stat(
            "cpu  100 10 50 800 40 5 3 2 90 9\n\
             cpu0 50 5 25 400 20 2 1 1 45 4\ncpu7 1 2 3 4\ncpux 1 2 3 4\ncpu2 1 2 x 4\nintr 5\ncpu9 1 1 1 1\n",
        );
        let total = Ticks {
            busy: 170,
            all: 1010,
        };
        assert_eq!(stat.total, Some(total));
        assert_eq!(stat.cores.keys().collect::<Vec<_>>(), [&0, &7]);
        assert_eq!(stat.cores[&7], Ticks { busy: 6, all: 10 });
    }

    #[test]
    fn memory_is_what_is_available_also_on_old_kernels() {
        let new = meminfo(
            "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
        );
        assert_eq!(
            (new.total, new.available),
            (Some(1_024_000), Some(400 * 1024))
        );
        assert_eq!(
            (new.swap_total, new.swap_free),
            (Some(10_240), Some(4 * 1024))
        );
        let old = meminfo("MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 30 kB\n");
        assert_eq!(old.available, Some(150 * 1024));
        assert_eq!(
            meminfo("MemTotal: 99999999999999999999 kB\nx"),
            Meminfo::default()
        );
    }

    #[test]
    fn whole_disks_alone_count() {
        for name in [
            "sda", "sdaa", "hdb", "vda", "xvdb", "nvme0n1", "nvme10n2", "mmcblk0", "md0", "md127",
        ] {
            assert!(is_whole_disk(name), "{name}");
        }
        for name in [
            "sda1",
            "nvme0n1p2",
            "nvme0c1n1",
            "nvme0",
            "mmcblk0p1",
            "mmcblk0boot0",
            "md0p1",
            "md",
            "loop0",
            "ram0",
            "dm-0",
            "sr0",
            "zram0",
            "sd",
            "fd0",
            "",
        ] {
            assert!(!is_whole_disk(name), "{name}");
        }
        let disks = diskstats(
            " 254 0 vda 68 29 2000 12 21 95 4000 18 0 63 14\n   7 0 loop0 1 1 1 1 1 1 1 1\n 8 0 sda 1 2 x 4 5 6 7\n",
        );
        let vda = Traffic {
            inward: 1_024_000,
            outward: 2_048_000,
        };
        assert_eq!(disks.into_iter().collect::<Vec<_>>(), [("vda".into(), vda)]);
    }

    #[test]
    fn interfaces_are_read_with_and_without_spaces() {
        let net = net_dev(
            "Inter-|  Receive |  Transmit\n face |bytes packets\n    lo: 5 0 0 0 0 0 0 0 5 0\n\
             eth0:1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\neth0:1: 7 0 0 0 0 0 0 0 8\nbad: 1 2\n",
        );
        let expected = |inward, outward| Traffic { inward, outward };
        assert_eq!(net["eth0"], expected(1000, 2000));
        assert_eq!(net["eth0:1"], expected(7, 8));
        assert_eq!(net.len(), 2);
    }

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 5 0 777 123456 250 184";
        let process = |name: &str| super::process(&format!("42 ({name}) {fields}"));
        let expected = Process {
            ticks: 42,
            started: 777,
            pages: 250,
        };
        assert_eq!(process("llmsrv"), Some(expected));
        assert_eq!(process("a) Z (b"), Some(expected));
        assert_eq!(super::process(&format!("42 (x) Z{}", &fields[1..])), None);
        assert_eq!(super::process("42 (x) S 1"), None);
    }

    #[test]
    fn numbers_that_no_device_means_are_left_out() {
        assert_eq!(celsius("54250\n"), Some(54.25));
        assert_eq!(celsius("-5000"), Some(-5.0));
        assert_eq!(celsius("255000"), None);
        assert_eq!(celsius("hot"), None);
        assert_eq!(devfreq_load("37@600000000Hz\n"), Some(37.0));
        assert_eq!(devfreq_load("nan"), None);
        assert_eq!(devfreq_load("101"), None);
        assert_eq!(
            loadavg("0.5 1.25 inf 1/2 3").map(|load| load[0].to_bits()),
            None
        );
        assert_eq!(loadavg("0.5 1.25 2 1/2 3"), Some([0.5, 1.25, 2.0]));
        assert_eq!(uptime("100.9 3"), Some(100));
        assert_eq!(
            clean(" a\u{1b}[31mb\nc").as_str(),
            "a?[31mb",
            "escape sequences do not reach the terminal"
        );
    }

    /// Texts near to what the kernel writes, and texts that are not.
    fn hostile() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            Just("cpu"),
            Just("cpu0"),
            Just("MemTotal:"),
            Just("kB"),
            Just("sda"),
            Just("eth0:"),
            Just("(x)"),
            Just("18446744073709551615"),
            Just("-1"),
            Just("9e999"),
            Just("\n"),
            Just("\u{0}"),
            Just("٣"),
        ]
        .prop_map(str::to_owned);
        let words = prop::collection::vec(prop_oneof![word, "[0-9]{1,25}"], 0..60)
            .prop_map(|words| words.join(" "));
        prop_oneof![words, any::<String>()]
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_fail(text in hostile()) {
            let stat = stat(&text);
            let all = stat.cores.values().chain(stat.total.iter());
            for ticks in all {
                prop_assert!(ticks.busy <= ticks.all);
            }
            meminfo(&text);
            diskstats(&text);
            net_dev(&text);
            process(&text);
            loadavg(&text);
            uptime(&text);
            number(&text);
            celsius(&text);
            devfreq_load(&text);
            prop_assert!(!clean(&text).contains(char::is_control));
        }
    }
}
