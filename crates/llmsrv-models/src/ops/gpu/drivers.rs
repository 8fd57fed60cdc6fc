//! Which drivers gave the known answers of all kernels: asked once for each driver, device, arithmetic and version of this
//! program.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    sync::LazyLock,
    time::Instant,
};

use llmsrv_gpu::{self as gpu, Arithmetic, Choice, Found, Gpu};
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
    if known.contains(&own) || file.is_some_and(|file| read(file).contains(&own)) {
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
        && let Err(error) = add(file, &own)
    {
        tracing::debug!(%error, file = %file.display(), "the driver will be checked again");
    }
    known.insert(own);
    Ok(())
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
        ..
    } = device;
    digest.update(format!(
        "{} {vendor_id} {device_id} {driver_version} {api_version} {arithmetic:?} {has_integer_dot} {driver:?} {name:?}",
        env!("CARGO_PKG_VERSION")
    ));
    for bytes in gpu::kernel_bytes() {
        digest.update(bytes);
    }
    hex::encode(digest.finalize())
}

/// Reads the keys of a file, the last ones alone of one that somebody made longer. What is no key does not count, and a
/// file that cannot be read has none.
fn read(path: &Path) -> Vec<String> {
    let mut text = Vec::new();
    let found = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut text));
    if found.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let is_key = |line: &&str| line.len() == 64 && line.bytes().all(|c| c.is_ascii_hexdigit());
    let mut keys: Vec<String> = text.lines().filter(is_key).map(str::to_owned).collect();
    keys.drain(..keys.len().saturating_sub(MOST_KEYS));
    keys
}

/// Writes the file as a whole, with one more key and at most [`MOST_KEYS`]. Of two processes that do so at the same time
/// one is forgotten, which costs one more check.
fn add(path: &Path, key: &str) -> io::Result<()> {
    let mut keys = read(path);
    keys.push(key.to_owned());
    keys.drain(..keys.len().saturating_sub(MOST_KEYS));
    let folder = path.parent().unwrap_or(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // Readable by the user alone, and gone if it is not whole.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all((keys.join("\n") + "\n").as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// Keys that are kept; the oldest ones leave.
const MOST_KEYS: usize = 64;
/// Far more than so many take.
const MOST_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_kept_and_damage_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/gpu-drivers");
        let key = |n: usize| format!("{n:064x}");
        assert!(read(&path).is_empty());
        add(&path, &key(1)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read(&path), [key(1)]);
        // Not text, half a line, a line that is too long.
        let mut damaged = vec![0xff, 0, b'\n'];
        damaged.extend(format!("{}\n{}\n{}00\n{}", key(2), &key(3)[1..], key(4), key(5)).bytes());
        fs::write(&path, damaged).unwrap();
        assert_eq!(read(&path), [key(2), key(5)]);
        add(&path, &key(6)).unwrap();
        assert_eq!(read(&path), [key(2), key(5), key(6)]);
        for n in 0..2 * MOST_KEYS {
            add(&path, &key(n)).unwrap();
        }
        let last: Vec<String> = (MOST_KEYS..2 * MOST_KEYS).map(key).collect();
        assert_eq!(read(&path), last);
        fs::write(&path, vec![b'a'; 10 << 20]).unwrap();
        assert!(read(&path).is_empty());
        assert!(read(folder.path()).is_empty(), "a folder");
        assert!(add(&path.join("below-a-file"), &key(0)).is_err());
        let n_files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(n_files, 1, "nothing is left beside it");
    }

    #[test]
    fn another_version_of_a_driver_is_another_driver() {
        let device = |driver_version, number| Found {
            has_integer_dot: true,
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
