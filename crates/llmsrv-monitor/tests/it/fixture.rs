//! A machine made of files, at two moments.

use std::{fs, path::Path};

/// Everything at the first moment.
pub const BEFORE: &[(&str, &str)] = &[
    (
        "proc/stat",
        "cpu  4000 0 2000 90000 4000 0 0 0 300 0\n\
         cpu0 1000 0 500 22500 1000 0 0 0 75 0\n\
         cpu1 1000 0 500 22500 1000 0 0 0 75 0\n\
         cpu2 1000 0 500 22500 1000 0 0 0 75 0\n\
         cpu3 1000 0 500 22500 1000 0 0 0 75 0\n\
         intr 1 2 3\nctxt 5\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\n\
         SwapTotal:       2000000 kB\nSwapFree:        1500000 kB\n",
    ),
    (
        "proc/diskstats",
        "   7       0 loop0 99 0 999999 0 99 0 999999 0 0 0 0\n\
         259       0 nvme0n1 10 0 100000 5 10 0 200000 5 0 5 5\n\
         259       1 nvme0n1p1 10 0 100000 5 10 0 200000 5 0 5 5\n   \
           8       0 sda 10 0 0 5 10 0 1000 5 0 5 5\n   \
           9     127 md127 10 0 0 5 10 0 1000 5 0 5 5\n\
         253       0 dm-0 10 0 99 5 10 0 99 5 0 5 5\n",
    ),
    ("sys/block/md127/slaves/sda1/size", "1\n"),
    (
        "proc/net/dev",
        "Inter-|   Receive                |  Transmit\n face |bytes    packets errs\n    \
         lo: 900000 1 0 0 0 0 0 0 900000 1 0 0 0 0 0 0\n  \
         eth0: 10000000 9 0 0 0 0 0 0 4294967000 9 0 0 0 0 0 0\n\
         docker0: 50 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n",
    ),
    ("sys/class/net/eth0/device/vendor", "0x8086\n"),
    ("proc/loadavg", "1.50 1.25 0.75 2/345 6789\n"),
    ("proc/uptime", "273600.55 1000.00\n"),
    ("proc/sys/kernel/hostname", "workbench\n"),
    (
        "proc/4242/stat",
        "4242 (llmsrv serve) S 1 2 3 4 5 6 7 8 9 10 500 100 0 0 20 0 5 0 777 900000 131072 9\n",
    ),
    ("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n"),
    ("sys/class/thermal/thermal_zone0/temp", "54000\n"),
    ("sys/class/thermal/thermal_zone10/type", "acpitz\n"),
    ("sys/class/thermal/thermal_zone10/temp", "27800\n"),
    ("sys/class/thermal/cooling_device0/type", "Fan\n"),
    ("sys/class/hwmon/hwmon0/name", "k10temp\n"),
    ("sys/class/hwmon/hwmon0/temp1_input", "61500\n"),
    ("sys/class/hwmon/hwmon0/temp1_label", "Tctl\n"),
    ("sys/class/hwmon/hwmon1/name", "nvme\n"),
    ("sys/class/hwmon/hwmon1/temp1_input", "38850\n"),
    ("sys/class/hwmon/hwmon1/temp2_input", "-128000\n"),
    ("sys/class/drm/card0/device/uevent", "DRIVER=amdgpu\n"),
    ("sys/class/drm/card0/device/gpu_busy_percent", "37\n"),
    (
        "sys/class/drm/card0/device/mem_info_vram_used",
        "4000000000\n",
    ),
    (
        "sys/class/drm/card0/device/mem_info_vram_total",
        "16000000000\n",
    ),
    (
        "sys/class/drm/card0/device/hwmon/hwmon5/temp1_input",
        "66000\n",
    ),
    ("sys/class/drm/card0-DP-1/status", "connected\n"),
    ("sys/class/drm/card1/device/uevent", "DRIVER=i915\n"),
    ("sys/class/drm/card1/gt_act_freq_mhz", "600\n"),
    ("sys/class/drm/card1/gt_max_freq_mhz", "1200\n"),
    ("sys/class/accel/accel0/device/uevent", "DRIVER=intel_vpu\n"),
    (
        "sys/class/accel/accel0/device/npu_busy_time_us",
        "1000000\n",
    ),
    ("sys/class/devfreq/fdab0000.npu/load", "12@600000000Hz\n"),
    ("sys/class/devfreq/fdab0000.npu/cur_freq", "600000000\n"),
];

/// What is another two seconds later. Of the processors each got 100 ticks more.
pub const AFTER: &[(&str, &str)] = &[
    (
        "proc/stat",
        "cpu  4100 0 2070 90130 4100 0 0 0 350 0\n\
         cpu0 1010 0 500 22590 1000 0 0 0 75 0\n\
         cpu1 1010 0 510 22580 1000 0 0 0 75 0\n\
         cpu2 1020 0 530 22500 1050 0 0 0 75 0\n\
         cpu3 1060 0 530 22460 1050 0 0 0 125 0\n",
    ),
    (
        "proc/diskstats",
        "   7       0 loop0 99 0 9999999 0 99 0 9999999 0 0 0 0\n\
         259       0 nvme0n1 10 0 125000 5 10 0 250000 5 0 5 5\n\
         259       1 nvme0n1p1 10 0 125000 5 10 0 250000 5 0 5 5\n   \
           8       0 sda 10 0 0 5 10 0 2000 5 0 5 5\n   \
           9     127 md127 10 0 0 5 10 0 2000 5 0 5 5\n   \
           8      16 sdb 10 0 77777 5 10 0 77777 5 0 5 5\n",
    ),
    (
        "proc/net/dev",
        "    lo: 990000 1 0 0 0 0 0 0 990000 1 0 0 0 0 0 0\n  \
         eth0: 13000000 9 0 0 0 0 0 0 999704 9 0 0 0 0 0 0\n\
         docker0: 8000050 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n",
    ),
    (
        "proc/4242/stat",
        "4242 (llmsrv serve) S 1 2 3 4 5 6 7 8 9 10 560 140 0 0 20 0 5 0 777 900000 131072 9\n",
    ),
    (
        "sys/class/accel/accel0/device/npu_busy_time_us",
        "1500000\n",
    ),
];

/// Writes files below `dir`.
pub fn write(dir: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
