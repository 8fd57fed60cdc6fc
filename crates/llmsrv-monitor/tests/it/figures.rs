//! Known files give known figures.

use std::{fs, path::Path, time::Duration};

use llmsrv_monitor::{
    AcceleratorKind, Error, Feed, Raw, Report, Root, Sample, Sampler, Sensor, plain,
};
use serde_json::json;

use crate::fixture::{AFTER, BEFORE, write};

const TWO_SECONDS: Duration = Duration::from_secs(2);

/// The fixture over its two seconds; `meanwhile` changes it after the first reading.
fn sample(meanwhile: impl FnOnce(&Path)) -> Sample {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), BEFORE);
    let root = Root::new(dir.path()).unwrap();
    let before = Raw::read(&root, Some(4242));
    write(dir.path(), AFTER);
    meanwhile(dir.path());
    let after = Raw::read(&root, Some(4242));
    Sample::between(&before, &after, TWO_SECONDS)
}

#[test]
fn figures_are_those_of_the_interval() {
    let sample = sample(|_| {});
    let cpu = sample.cpu.unwrap();
    assert_eq!(cpu.percent, Some(42.5));
    let cores: Vec<_> = cpu.cores.iter().map(|core| core.percent.unwrap()).collect();
    assert_eq!(cores, [10.0, 20.0, 50.0, 90.0]);

    let memory = sample.memory.unwrap();
    assert_eq!(memory.used_bytes, 4_096_000_000);
    assert_eq!(memory.total_bytes, 16_384_000_000);
    assert_eq!(memory.percent, Some(25.0));
    assert_eq!(sample.swap.unwrap().used_bytes, 512_000_000);

    assert_eq!(sample.host.name.as_deref(), Some("workbench"));
    assert_eq!(sample.host.uptime_seconds, Some(273_600));
    assert_eq!(sample.host.load_average, Some([1.5, 1.25, 0.75]));
    assert_eq!(sample.problems, []);
}

#[test]
fn disks_are_counted_once_and_only_whole_ones() {
    let disk = sample(|_| {}).disk.unwrap();
    let names: Vec<_> = disk.devices.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["md127", "nvme0n1", "sda", "sdb"]);
    // 25 000 and 50 000 sectors of 512 bytes on nvme0n1; 1000 written to sda, which is a part of
    // md127; sdb has just appeared.
    assert_eq!(disk.read_bytes_per_second, 6_400_000);
    assert_eq!(disk.write_bytes_per_second, 12_800_000 + 256_000);
    assert_eq!(disk.devices[0].write_bytes_per_second, 256_000);
    assert_eq!(disk.devices[3].read_bytes_per_second, 0);
}

#[test]
fn networks_are_counted_where_they_leave_the_machine() {
    let net = sample(|_| {}).network.unwrap();
    let names: Vec<_> = net.interfaces.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["docker0", "eth0"]);
    assert_eq!(net.receive_bytes_per_second, 1_500_000);
    // The counter of 32 bits went over its end.
    assert_eq!(net.transmit_bytes_per_second, 500_000);
    assert_eq!(net.interfaces[0].receive_bytes_per_second, 4_000_000);
    let without_device = sample(|dir| {
        fs::remove_dir_all(dir.join("sys/class/net")).unwrap();
    });
    let all = without_device.network.unwrap().receive_bytes_per_second;
    assert_eq!(all, 5_500_000);
}

#[test]
fn sensors_are_found_in_both_places() {
    let heat = sample(|_| {}).temperature.unwrap();
    assert_eq!(heat.max_celsius, 61.5);
    let sensor = |name: &str, source: &str, celsius| Sensor {
        name: name.into(),
        source: source.into(),
        celsius,
    };
    assert_eq!(
        heat.sensors,
        [
            sensor("x86_pkg_temp", "thermal_zone0", 54.0),
            sensor("acpitz", "thermal_zone10", 27.8),
            sensor("k10temp Tctl", "hwmon0/temp1", 61.5),
            sensor("nvme", "hwmon1/temp1", 38.85),
        ]
    );
}

#[test]
fn accelerators_of_all_makers_have_their_figures() {
    let devices = sample(|_| {}).accelerators;
    let ids: Vec<_> = devices.iter().map(|it| (it.kind, it.id.as_str())).collect();
    let (gpu, npu) = (AcceleratorKind::Gpu, AcceleratorKind::Npu);
    assert_eq!(
        ids,
        [
            (gpu, "card0"),
            (gpu, "card1"),
            (npu, "accel0"),
            (npu, "fdab0000.npu")
        ]
    );
    let [amd, intel, npu, rockchip] = &devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!((amd.percent, amd.celsius), (Some(37.0), Some(66.0)));
    assert_eq!(amd.memory_used_bytes, Some(4_000_000_000));
    assert_eq!(amd.memory_total_bytes, Some(16_000_000_000));
    assert_eq!(
        (intel.percent, intel.frequency_mhz, intel.max_frequency_mhz),
        (None, Some(600), Some(1200))
    );
    assert_eq!(npu.percent, Some(25.0), "half a second of two");
    assert_eq!(
        (rockchip.percent, rockchip.frequency_mhz),
        (Some(12.0), Some(600))
    );
}

#[test]
fn the_process_of_the_server_is_followed() {
    let sample = sample(|_| {});
    let server = sample.server.unwrap();
    assert_eq!(server.pid, Some(4242));
    // 100 ticks of a hundredth of a second, in two seconds.
    assert_eq!(server.cpu_percent, Some(50.0));
    let page = rustix::param::page_size() as u64;
    assert_eq!(server.resident_bytes, Some(131_072 * page));
    let reused = self::sample(|dir| {
        let path = dir.join("proc/4242/stat");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(" 777 ", " 99999 ")).unwrap();
    });
    assert_eq!(reused.server.unwrap().cpu_percent, None);
}

#[test]
fn what_vanishes_has_no_row_and_no_figure() {
    let sample = sample(|dir| {
        let gone = [
            "proc/stat",
            "proc/meminfo",
            "proc/diskstats",
            "proc/4242/stat",
        ];
        for file in gone {
            fs::remove_file(dir.join(file)).unwrap();
        }
        fs::remove_dir_all(dir.join("sys/class/thermal")).unwrap();
        fs::remove_dir_all(dir.join("sys/class/drm/card0")).unwrap();
    });
    assert_eq!((sample.cpu, sample.memory, sample.swap), (None, None, None));
    assert_eq!((sample.disk, sample.server), (None, None));
    assert_eq!(sample.temperature.unwrap().sensors.len(), 2);
    assert_eq!(sample.accelerators[0].id, "card1");
    assert!(sample.network.is_some());
}

#[test]
fn processors_that_come_back_have_no_share_for_one_interval() {
    let sample = sample(|dir| {
        let text = "cpu  4100 0 2070 90130 4100 0 0 0\ncpu0 5 0 5 5 5 0 0 0\ncpu9 1 2 3 4\n";
        fs::write(dir.join("proc/stat"), text).unwrap();
    });
    let cores = sample.cpu.unwrap().cores;
    let percents: Vec<_> = cores.iter().map(|core| (core.core, core.percent)).collect();
    assert_eq!(percents, [(0, None), (9, None)]);
}

#[test]
fn an_interval_of_no_length_gives_no_rates() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), BEFORE);
    let root = Root::new(dir.path()).unwrap();
    let before = Raw::read(&root, None);
    write(dir.path(), AFTER);
    let sample = Sample::between(&before, &Raw::read(&root, None), Duration::ZERO);
    assert_eq!(sample.disk.unwrap().read_bytes_per_second, 0);
    assert_eq!(sample.network.unwrap().receive_bytes_per_second, 0);
}

#[test]
fn what_may_not_be_read_is_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), BEFORE);
    for file in ["proc/diskstats", "sys/class/hwmon/hwmon0/temp1_input"] {
        fs::set_permissions(dir.path().join(file), fs::Permissions::from_mode(0o000)).unwrap();
    }
    if fs::read(dir.path().join("proc/diskstats")).is_ok() {
        // The superuser may read everything; the test of the program runs as somebody else.
        return;
    }
    let root = Root::new(dir.path()).unwrap();
    let raw = Raw::read(&root, None);
    let sample = Sample::between(&raw, &raw, TWO_SECONDS);
    assert_eq!(sample.disk, None);
    let text = plain(&sample, false);
    assert!(
        text.contains("disk     not read          /proc/diskstats: permission denied"),
        "{text}"
    );
}

#[test]
fn the_keys_of_the_json_stay() {
    let sample = Sample {
        timestamp_ms: 1,
        ..sample(|_| {})
    };
    let mut value = serde_json::to_value(&sample).unwrap();
    value["server"]["resident_bytes"] = 1.into();
    insta::assert_json_snapshot!(value);
    let nothing = serde_json::to_value(Sample::default()).unwrap();
    assert_eq!(nothing["cpu"], json!(null));
    assert_eq!(nothing["accelerators"], json!([]));
}

#[test]
fn the_plain_frame_has_a_line_for_each_figure() {
    let mut sample = sample(|_| {});
    let server = sample.server.as_mut().unwrap();
    server.resident_bytes = Some(536_870_912);
    server.url = "http://127.0.0.1:11434".into();
    server.generated_tokens_per_second = Some(34.2);
    insta::assert_snapshot!(plain(&sample, true));
    assert!(plain(&sample, false).contains("61.5 °C"));
}

#[test]
fn a_sampler_joins_machine_and_server() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), BEFORE);
    let feed = Feed::default();
    let report = |generated_tokens| Report {
        url: "http://x\u{1b}[2J".into(),
        pid: Some(4242),
        generated_tokens: Some(generated_tokens),
        ..Report::default()
    };
    feed.set(Some(report(10)));
    let interval = Duration::from_millis(100);
    let mut sampler = Sampler::new(dir.path(), feed.clone(), interval).unwrap();
    let first = sampler.once(interval);
    assert!(first.interval_seconds >= 0.1);
    let server = first.server.unwrap();
    assert_eq!(server.url, "http://x?[2J");
    assert_eq!(server.generated_tokens_per_second, None);
    feed.set(Some(report(30)));
    let server = sampler.sample().server.unwrap();
    assert!(server.generated_tokens_per_second.unwrap() > 0.0);
    feed.set(None);
    assert_eq!(sampler.sample().server, None);
}

#[test]
fn folders_that_are_no_machine_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let start = |path: &Path| Sampler::new(path, Feed::default(), TWO_SECONDS);
    assert!(matches!(start(dir.path()), Err(Error::Nothing)));
    let missing = dir.path().join("missing");
    assert!(matches!(start(&missing), Err(Error::Root { .. })));
}
