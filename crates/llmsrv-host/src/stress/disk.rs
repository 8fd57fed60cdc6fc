//! How fast disks give what is on them. They are read, never written.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{Advice, OFlags, fadvise};

use super::{Error, Stop, rate};

/// A disk of this machine and what of it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, such as `sda` or `nvme0n1`.
    pub name: String,
    /// What is read; `None` when this user may read nothing large enough.
    pub source: Option<Source>,
}

/// What is read of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The disk itself.
    Device(PathBuf),
    /// A file on it.
    File(PathBuf),
}

impl Source {
    /// Returns the path that is opened.
    pub fn path(&self) -> &Path {
        match self {
            Source::Device(path) | Source::File(path) => path,
        }
    }
}

/// How fast a disk was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// Bytes that were read.
    pub bytes: u64,
    /// How long.
    pub time: Duration,
    /// Bytes in a second from the disk.
    pub rate: f64,
    /// Bytes in a second from the system's cache.
    pub cached_rate: f64,
    /// Whether the cache was passed by; else it was only asked to forget the file.
    pub direct: bool,
}

/// Reads a disk for so long at most, then a part of it from the cache.
pub fn disk(source: &Source, duration: Duration, stop: &Stop) -> Result<Disk, Error> {
    let path = source.path();
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(path);
    let read = match direct {
        Ok(file) => read(file, duration, Until::TimeIsOver, stop).map(|(n, time)| (n, time, true)),
        Err(error) => Err(error),
    };
    let (bytes, time, direct) = match read {
        // Some file systems cannot do without the cache.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            let file = File::open(path).map_err(Error::Read)?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Error::Read(error.into()))?;
            let (bytes, time) =
                self::read(file, duration, Until::End, stop).map_err(Error::Read)?;
            (bytes, time, false)
        }
        read => read.map_err(Error::Read)?,
    };
    Ok(Disk {
        bytes,
        time,
        rate: rate(bytes, time),
        cached_rate: cached(path, stop).map_err(Error::Read)?,
        direct,
    })
}

/// How far a file is read.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// From the beginning again as long as there is time.
    TimeIsOver,
    /// Once at most.
    End,
}

fn read(
    mut file: File,
    duration: Duration,
    until: Until,
    stop: &Stop,
) -> io::Result<(u64, Duration)> {
    // Reading past the cache wants memory on the boundary of a page.
    let mut memory = vec![0_u8; CHUNK + PAGE];
    let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
    let chunk = &mut memory[start..start + CHUNK];
    let (begun, mut bytes) = (Instant::now(), 0_u64);
    while !stop.is_wanted() && (bytes == 0 || begun.elapsed() < duration) {
        match file.read(chunk) {
            Ok(0) if until == Until::End || bytes == 0 => break,
            Ok(0) => file.rewind()?,
            Ok(n) => {
                bytes += n as u64;
                // A short read is the end; asking there again is refused by some file systems.
                if n < CHUNK {
                    match until {
                        Until::End => break,
                        Until::TimeIsOver => file.rewind()?,
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((bytes, begun.elapsed()))
}

/// Reads the same part twice; the second time it comes from memory.
fn cached(path: &Path, stop: &Stop) -> io::Result<f64> {
    let mut last = 0.0;
    let mut chunk = vec![0_u8; 1 << 20];
    for _ in 0..2 {
        let (mut file, begun, mut bytes) = (File::open(path)?, Instant::now(), 0_u64);
        while bytes < CACHED_BYTES && !stop.is_wanted() {
            match file.read(&mut chunk)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
        last = rate(bytes, begun.elapsed());
    }
    Ok(last)
}

/// Finds the disks of this machine and, for each, what this user may read: the disk itself, or the
/// largest of the `known` files on it, or another large file.
pub fn targets(known: &[PathBuf], stop: &Stop) -> Vec<Target> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounted(&mounts, &parents);
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_disk(name))
        .collect();
    names.sort();
    let target = |name: String| {
        let device = Path::new("/dev").join(&name);
        let is_device = fs::metadata(&device).is_ok_and(|it| it.file_type().is_block_device());
        let source = if is_device && File::open(&device).is_ok() {
            Some(Source::Device(device))
        } else {
            let places = mounts.get(&name).map_or(&[][..], Vec::as_slice);
            let mut files = places
                .iter()
                .filter_map(|place| file_on(place, known, stop));
            files.next().map(Source::File)
        };
        Target { name, source }
    };
    names.into_iter().map(target).collect()
}

/// Tells whether this is a disk, and no memory, image or drive for removable discs.
fn is_disk(name: &str) -> bool {
    let folder = Path::new("/sys/block").join(name);
    let sectors = fs::read_to_string(folder.join("size")).unwrap_or_default();
    folder.join("device").exists() && !name.starts_with("sr") && sectors.trim() != "0"
}

/// Returns where each disk is mounted. `parents` names the disks below a device.
fn mounted(
    mountinfo: &str,
    parents: &dyn Fn(&str) -> Vec<String>,
) -> BTreeMap<String, Vec<PathBuf>> {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for line in mountinfo.lines() {
        // See proc_pid_mountinfo(5): after the dash come the file system and its source.
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let (place, source) = (left.split(' ').nth(4), right.split(' ').nth(1));
        let (Some(place), Some(source)) = (place, source) else {
            continue;
        };
        if !source.starts_with("/dev/") {
            continue;
        }
        let real = fs::canonicalize(source).unwrap_or_else(|_| PathBuf::from(source));
        let Some(device) = real.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        for disk in parents(device) {
            places
                .entry(disk)
                .or_default()
                .push(PathBuf::from(unescape(place)));
        }
    }
    places
}

/// Spaces and the like are written as three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = text.to_owned();
    for (escaped, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        plain = plain.replace(escaped, character);
    }
    plain
}

/// Returns the disks a partition or a volume is on.
fn parents(device: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![device.to_owned()];
    for _ in 0..MAX_DEVICES {
        let Some(device) = open.pop() else { break };
        let below = Path::new("/sys/class/block").join(&device).join("slaves");
        let slaves = fs::read_dir(below).into_iter().flatten().flatten();
        let slaves: Vec<String> = slaves
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        if !slaves.is_empty() {
            open.extend(slaves);
            continue;
        }
        // A partition is a folder within that of its disk.
        let Ok(folder) = fs::canonicalize(Path::new("/sys/class/block").join(&device)) else {
            continue;
        };
        let is_partition = folder.join("partition").exists();
        let whole = if is_partition {
            folder.parent()
        } else {
            Some(&*folder)
        };
        let name = whole
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        found.extend(name.map(str::to_owned));
    }
    found
}

/// Finds a file on the file system of `place` that is worth reading.
fn file_on(place: &Path, known: &[PathBuf], stop: &Stop) -> Option<PathBuf> {
    let device = fs::metadata(place).ok()?.dev();
    let worth = |path: &Path| -> Option<u64> {
        let facts = fs::symlink_metadata(path).ok()?;
        let fits = facts.is_file() && facts.dev() == device && facts.len() >= MIN_BYTES;
        (fits && File::open(path).is_ok()).then_some(facts.len())
    };
    let mut best = known
        .iter()
        .filter_map(|path| Some((worth(path)?, path.clone())))
        .max();
    if best.as_ref().is_some_and(|(size, _)| *size >= GOOD_BYTES) {
        return best.map(|(_, path)| path);
    }
    let mut open = vec![place.to_path_buf()];
    let deadline = Instant::now() + LOOK_FOR;
    while let Some(folder) = open.pop() {
        if Instant::now() > deadline || stop.is_wanted() {
            break;
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            if facts.is_dir() && facts.dev() == device {
                open.push(path);
            } else if let Some(size) = worth(&path) {
                if best.as_ref().is_none_or(|(most, _)| size > *most) {
                    best = Some((size, path));
                }
                if size >= GOOD_BYTES {
                    return best.map(|(_, path)| path);
                }
            }
        }
    }
    best.map(|(_, path)| path)
}

const PAGE: usize = 4096;
const CHUNK: usize = 2 << 20;
const CACHED_BYTES: u64 = 256 << 20;
/// Less says nothing of a disk.
const MIN_BYTES: u64 = 16 << 20;
/// With so much nobody looks for more.
const GOOD_BYTES: u64 = 512 << 20;
const LOOK_FOR: Duration = Duration::from_secs(2);
const MAX_DEVICES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_often_as_time_allows_and_stays_as_it_is() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("data");
        let content: Vec<u8> = (0..(5_usize << 20) + 123)
            .map(|i| (i % 251) as u8)
            .collect();
        fs::write(&path, &content).unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let source = Source::File(path.clone());
        let seen = disk(&source, Duration::from_millis(100), &Stop::default()).unwrap();
        assert!(seen.bytes >= content.len() as u64, "{seen:?}");
        assert!(seen.rate > 0.0 && seen.cached_rate > 0.0, "{seen:?}");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read(&path).unwrap(), content);

        let stop = Stop::default();
        stop.now();
        let seen = disk(&source, Duration::from_hours(1), &stop).unwrap();
        assert!(seen.time < Duration::from_secs(30));
        let none = Source::File(dir.path().join("none"));
        assert!(disk(&none, Duration::ZERO, &Stop::default()).is_err());
    }

    #[test]
    fn mounts_belong_to_their_disks() {
        let text = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
23 22 0:5 / /proc rw - proc proc rw
24 22 253:0 / /home/a\\040b rw - xfs /dev/mapper/home rw
nonsense
25 22 8:1 / /boot rw - vfat /dev/sda1";
        let parents = |device: &str| match device {
            "sda1" | "sda2" => vec!["sda".to_owned()],
            "home" => vec!["sda".to_owned(), "sdb".to_owned()],
            other => panic!("{other}"),
        };
        let places = mounted(text, &parents);
        let of = |disk: &str| -> Vec<&str> {
            places[disk].iter().map(|it| it.to_str().unwrap()).collect()
        };
        assert_eq!(of("sda"), ["/", "/home/a b", "/boot"]);
        assert_eq!(of("sdb"), ["/home/a b"]);
    }

    #[test]
    fn disks_of_this_machine_are_found_without_rights() {
        // Which ones there are is the machine's matter; each that is found can be read.
        for target in targets(&[], &Stop::default()) {
            assert!(!target.name.starts_with("loop"), "{target:?}");
            if let Some(source) = target.source {
                disk(&source, Duration::from_millis(1), &Stop::default()).unwrap();
            }
        }
    }
}
