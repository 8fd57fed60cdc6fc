//! Which drivers gave the known answers of all kernels, and what some devices can do at most: asked once for each driver,
//! device, arithmetic and version of this program.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::LazyLock,
    thread,
    time::Instant,
};

use llmsrv_engine::{GpuLimits, GpuOptions};
use llmsrv_gpu::{self as gpu, Arithmetic, Choice, DeviceName, Found, Gpu, Probe};
use llmsrv_kernels::probe::BandwidthProbe;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Lets a device compute with every kernel, unless it is known that its driver does that right. `file` keeps which do;
/// drivers that compute wrongly are asked again each time.
///
/// # Errors
/// [`gpu::Error::Wrong`]; or what fails meanwhile.
pub(super) fn check(
    choice: &Choice,
    number: usize,
    device: &Found,
    file: Option<&Path>,
) -> Result<(), gpu::Error> {
    // Those of this process.
    static KNOWN: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let own = key(device, choice.arithmetic);
    let mut known = KNOWN.lock();
    let is_own = |driver: &Driver| driver.key == own;
    if known.contains(&own) || file.is_some_and(|file| read(file).iter().any(is_own)) {
        return Ok(());
    }
    let begun = Instant::now();
    // What models must leave free is no matter here.
    let choice = Choice {
        leave_free_bytes: 0,
        limit_bytes: None,
        ..choice.clone()
    };
    let codebook = |dtype| llmsrv_kernels::codebook(dtype);
    Gpu::open(&choice, number)?.check_answers(&codebook)?;
    tracing::info!(
        device = device.name,
        driver = device.driver,
        ms = begun.elapsed().as_millis(),
        "all kernels give the known answers"
    );
    if let Some(file) = file
        && let Err(error) = add(file, Driver::of(own.clone()))
    {
        tracing::debug!(%error, file = %file.display(), "the driver will be checked again");
    }
    known.insert(own);
    Ok(())
}

/// Returns what was measured of a device before, if it was.
pub(super) fn known_limits(
    arithmetic: Arithmetic,
    device: &Found,
    file: Option<&Path>,
) -> Option<GpuLimits> {
    let own = key(device, arithmetic);
    let mut known = read(file?).into_iter();
    known.find(|driver| driver.key == own)?.limits
}

/// Returns what a device can do at most: measured once, in some tenths of a second, and kept beside its driver.
///
/// # Errors
/// [`gpu::Error::OutOfMemory`], or what fails meanwhile.
pub(super) fn limits(options: &GpuOptions, device: &Found) -> Result<GpuLimits, gpu::Error> {
    // Those of this process.
    static KNOWN: LazyLock<Mutex<HashMap<String, GpuLimits>>> = LazyLock::new(Mutex::default);
    let choice = super::gpu_choice(options);
    let (own, file) = (key(device, choice.arithmetic), options.checked.as_deref());
    let mut known = KNOWN.lock();
    let before = known.get(&own).copied();
    if let Some(limits) = before.or_else(|| known_limits(choice.arithmetic, device, file)) {
        return Ok(limits);
    }
    let begun = Instant::now();
    let mut probe = Probe::brief(&Choice {
        leave_free_bytes: 0,
        limit_bytes: None,
        visible: Some(vec![DeviceName::Number(device.number)]),
        ..choice
    })?;
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let limits = GpuLimits {
        read: probe.bytes_per_second()? as u64,
        float: probe.float_ops_per_second()? as u64,
        // As many bytes as the GPU reads.
        cpu_read: BandwidthProbe::with_bytes(128 << 20).bytes_per_second(n_threads) as u64,
        tiles_from: probe.tiles_from()?.map(|n_rows| n_rows as u64),
        matrices: probe.matrices_pay()?,
    };
    let ms = begun.elapsed().as_millis();
    tracing::debug!(device = device.name, ms, ?limits, "measured");
    known.insert(own.clone(), limits);
    let measured = Driver {
        key: own,
        limits: Some(limits),
    };
    if let Some(file) = file
        && let Err(error) = add(file, measured)
    {
        tracing::debug!(%error, file = %file.display(), "the GPU will be measured again");
    }
    Ok(limits)
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
struct Driver {
    /// Of a driver whose kernels gave the known answers.
    key: String,
    /// What was measured, if it was.
    limits: Option<GpuLimits>,
}

impl Driver {
    fn of(key: String) -> Driver {
        Driver { key, limits: None }
    }

    /// Reads a key, or a key and three numbers, or five where rows are multiplied in integers.
    fn read(line: &str) -> Option<Driver> {
        let mut words = line.split(' ');
        let key = words.next()?;
        if key.len() != 64 || !key.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        let numbers: Result<Vec<u64>, _> = words.map(str::parse).collect();
        let limits = match numbers.ok()?[..] {
            [] => None,
            [read, float, cpu_read, ref more @ ..] => {
                let (tiles_from, matrices) = match more {
                    [] => (None, false),
                    [n_rows, matrices @ 0..=1] => (Some(*n_rows), *matrices == 1),
                    _ => return None,
                };
                Some(GpuLimits {
                    read,
                    float,
                    cpu_read,
                    tiles_from,
                    matrices,
                })
            }
            _ => return None,
        };
        let key = key.to_owned();
        Some(Driver { key, limits })
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        if let Some(it) = &self.limits {
            write!(f, " {} {} {}", it.read, it.float, it.cpu_read)?;
            if let Some(n_rows) = it.tiles_from {
                write!(f, " {n_rows} {}", u8::from(it.matrices))?;
            }
        }
        Ok(())
    }
}

/// Returns the digest of all that a result depends on, and of what was asked.
fn key(device: &Found, arithmetic: Arithmetic) -> String {
    let mut digest = Sha256::new();
    let Found {
        name,
        vendor_id,
        device_id,
        driver,
        driver_version,
        api_version,
        has_integer_dot,
        has_matrices,
        ..
    } = device;
    digest.update(format!(
        "{} {vendor_id} {device_id} {driver_version} {api_version} {arithmetic:?} {has_integer_dot} {has_matrices} {driver:?} {name:?}",
        env!("CARGO_PKG_VERSION")
    ));
    for bytes in gpu::kernel_bytes() {
        digest.update(bytes);
    }
    hex::encode(digest.finalize())
}

/// Reads the lines of a file, the last ones alone of one that somebody made longer. What is none does not count, and a file
/// that cannot be read has none.
fn read(path: &Path) -> Vec<Driver> {
    let mut text = Vec::new();
    let found = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    if found.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let mut drivers: Vec<Driver> = text.lines().filter_map(Driver::read).collect();
    drivers.drain(..drivers.len().saturating_sub(MOST_DRIVERS));
    drivers
}

/// Writes the file as a whole, with one more driver, or more of one, and at most [`MOST_DRIVERS`]. Of two processes that do
/// so at the same time one is forgotten, which costs one more check.
fn add(path: &Path, driver: Driver) -> io::Result<()> {
    let mut drivers = read(path);
    drivers.retain(|known| known.key != driver.key);
    drivers.push(driver);
    drivers.drain(..drivers.len().saturating_sub(MOST_DRIVERS));
    let folder = path.parent().unwrap_or(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // Readable by the user alone, and gone if it is not whole.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    for driver in drivers {
        writeln!(file, "{driver}")?;
    }
    file.persist(path)?;
    Ok(())
}

/// Drivers that are kept; the oldest ones leave.
const MOST_DRIVERS: usize = 64;
/// Far more than so many take.
const MOST_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn drivers_are_kept_and_damage_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/gpu-drivers");
        let key = |n: usize| format!("{n:064x}");
        let driver = |n| Driver::of(key(n));
        assert!(read(&path).is_empty());
        add(&path, driver(1)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read(&path), [driver(1)]);
        // Not text, half a line, a line that is too long.
        let mut damaged = vec![0xff, 0, b'\n'];
        damaged.extend(format!("{}\n{}\n{}00\n{}", key(2), &key(3)[1..], key(4), key(5)).bytes());
        // Too few numbers, one too large, one that is none, too many, and a last one that is neither 0 nor 1.
        let large = u128::from(u64::MAX) + 1;
        let numbers = format!(
            "\n{0} 1 2\n{0} 1 2 {large}\n{0} 1 -2 3\n{0} 1 2 3 4\n{0} 1 2 3 4 1 6\n{0} 1 2 3 4 2",
            key(7)
        );
        damaged.extend(numbers.bytes());
        fs::write(&path, damaged).unwrap();
        assert_eq!(read(&path), [driver(2), driver(5)]);
        add(&path, driver(6)).unwrap();
        assert_eq!(read(&path), [driver(2), driver(5), driver(6)]);
        // What was measured takes the place of the line without it.
        let measured = Driver {
            limits: Some(GpuLimits {
                read: 1 << 40,
                float: u64::MAX,
                cpu_read: 0,
                tiles_from: None,
                matrices: false,
            }),
            ..driver(5)
        };
        add(&path, measured.clone()).unwrap();
        assert_eq!(read(&path), [driver(2), driver(6), measured.clone()]);
        let limits = measured.limits.map(|limits| GpuLimits {
            tiles_from: Some(u64::MAX),
            matrices: true,
            ..limits
        });
        let in_integers = Driver {
            limits,
            ..driver(2)
        };
        add(&path, in_integers.clone()).unwrap();
        assert_eq!(read(&path), [driver(6), measured, in_integers]);
        for n in 0..2 * MOST_DRIVERS {
            add(&path, driver(n)).unwrap();
        }
        let last: Vec<Driver> = (MOST_DRIVERS..2 * MOST_DRIVERS).map(driver).collect();
        assert_eq!(read(&path), last);
        fs::write(&path, vec![b'a'; 10 << 20]).unwrap();
        assert!(read(&path).is_empty());
        assert!(read(folder.path()).is_empty(), "a folder");
        assert!(add(&path.join("below-a-file"), driver(0)).is_err());
        let n_files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(n_files, 1, "nothing is left beside it");
    }

    #[test]
    fn another_version_of_a_driver_is_another_driver() {
        let device = |driver_version, number| Found {
            has_integer_dot: true,
            has_matrices: false,
            name: "card".into(),
            kind: gpu::Kind::Discrete,
            number,
            vendor_id: 1,
            device_id: 2,
            driver: "driver".into(),
            driver_version,
            api_version: "1.3.0".into(),
            uuid: String::new(),
            memory_bytes: 0,
            lacks: None,
        };
        let key = |device: &Found| key(device, Arithmetic::F32);
        assert_ne!(key(&device(1, 0)), key(&device(2, 0)));
        assert_eq!(key(&device(1, 0)), key(&device(1, 1)));
    }
}
