//! Processes that are killed, get in each other's way, or run out of disk, must never leave a
//! store with half a model in it.

use std::{
    env, fs,
    io::Cursor,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use llmsrv_store::{Digest, Error, Layer, LayerKind, Manifest, OpenOptions, Store};

use crate::support::{Gguf, embedded, files, listed, name};

#[test]
fn a_killed_process_leaves_only_whole_models() {
    const N_KILLS: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let mut random = Random(0x5eed);
    let mut n_models = 0;
    for round in 0..N_KILLS {
        let begun = folder.path().join(format!("begun-{round}"));
        let mut child = worker(&root, round, None, &begun).spawn().unwrap();
        wait_for(&begun);
        thread::sleep(Duration::from_micros(random.below(60_000)));
        child.kill().unwrap();
        assert_eq!(
            child.wait().unwrap().signal(),
            Some(9),
            "the worker works until it is killed"
        );
        n_models += check(&root);
    }
    assert!(
        n_models > N_KILLS as usize,
        "the workers got something done: {n_models}"
    );
}

#[test]
fn two_processes_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let mut children: Vec<Child> = (0..2)
        .map(|seed| {
            let begun = folder.path().join(format!("begun-{seed}"));
            worker(&root, seed, Some(120), &begun).spawn().unwrap()
        })
        .collect();
    let store = Store::open(&root, OpenOptions::default()).unwrap();
    let mut ended: Vec<ExitStatus> = Vec::new();
    let deadline = Instant::now() + Duration::from_mins(1);
    while ended.len() < children.len() {
        assert!(Instant::now() < deadline, "the workers are stuck");
        // Whatever is listed at any moment can be read.
        for entry in store.list().unwrap() {
            assert!(matches!(
                store.model(&entry.name),
                Ok(_) | Err(Error::NotFound { .. })
            ));
        }
        ended = children
            .iter_mut()
            .filter_map(|child| child.try_wait().unwrap())
            .collect();
    }
    assert!(ended.iter().all(ExitStatus::success), "{ended:?}");
    assert!(check(&root) > 0);
}

#[test]
fn a_full_disk_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    // The limit is 64 blocks of 512 or 1024 bytes; without the trap the signal would kill.
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "kill::full_disk_worker", "--ignored"])
        .env("STORE_ROOT", folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status:?}");
    assert_eq!(check(folder.path()), 1);
}

#[test]
#[ignore = "the other process of a_full_disk_is_a_clear_error"]
fn full_disk_worker() {
    let Some(root) = env::var_os("STORE_ROOT").map(PathBuf::from) else {
        return;
    };
    let store = Store::open(&root, OpenOptions::default()).unwrap();
    let small = weights("small", 8);
    put_model(&store, "small", &small).unwrap();
    let large = weights("large", 1 << 13);
    let error = put_model(&store, "small", &large).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    assert!(!error.to_string().contains(&root.display().to_string()));
    let error = store
        .install_embedded(&embedded("tiny", &large))
        .unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    assert_eq!(
        fs::read(store.model(&name("small")).unwrap().weights).unwrap(),
        small
    );
}

#[test]
#[ignore = "the other process of the tests above"]
fn endless_worker() {
    let Some(root) = env::var_os("STORE_ROOT").map(PathBuf::from) else {
        return;
    };
    let variable = |key: &str| env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    let mut random = Random(variable("STORE_SEED").unwrap());
    let embeddeds = ["v1", "v2"].map(|version| weights(version, 1 << 12));
    fs::write(env::var_os("STORE_BEGUN").unwrap(), "").unwrap();
    for _ in 0..variable("STORE_STEPS").unwrap_or(u64::MAX) {
        // Opening prunes and renames.
        let store = Store::open(&root, OpenOptions::default()).unwrap();
        let [a, b] = [(); 2].map(|()| format!("ns/m{}:T{}", random.below(3), random.below(2)));
        let step = match random.below(6) {
            0 => put_model(&store, &a, &weights("shared", 1 << 10)),
            1 => put_model(&store, &a, &weights(&b, 1 << 13)),
            2 => store.copy(&name(&a), &name(&b)),
            3 => store.delete(&name(&a)),
            4 => store.delete(&name("tiny")),
            _ => {
                let version = &embeddeds[random.below(2) as usize];
                store.install_embedded(&embedded("tiny", version)).map(drop)
            }
        };
        // Others remove models in between; nothing else may go wrong.
        match step {
            Ok(()) | Err(Error::NotFound { .. } | Error::MissingBlob { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A process that works on the store at `root` for `n_steps`, or until it is killed. It writes the
/// file `begun` when it begins.
fn worker(root: &Path, seed: u64, n_steps: Option<u64>, begun: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "kill::endless_worker", "--ignored"])
        .env("STORE_ROOT", root)
        .env("STORE_SEED", seed.to_string())
        .env("STORE_BEGUN", begun)
        .stdout(Stdio::null());
    if let Some(n_steps) = n_steps {
        command.env("STORE_STEPS", n_steps.to_string());
    }
    command
}

/// Checks everything in the store at `root` and returns the number of models.
fn check(root: &Path) -> usize {
    let blobs = root.join("blobs");
    for entry in fs::read_dir(&blobs).unwrap() {
        let path = entry.unwrap().path();
        if let Ok(digest) = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .parse::<Digest>()
        {
            assert_eq!(
                Digest::of(&fs::read(&path).unwrap()),
                digest,
                "a blob is what its name says"
            );
        }
    }
    let store = Store::open(root, OpenOptions::default()).unwrap();
    let mut found = listed(&store);
    found.retain(|model| model != "default:latest");
    let n_manifests = files(root).iter().filter(|path| is_manifest(path)).count();
    assert_eq!(
        found.len(),
        n_manifests,
        "every manifest is that of a whole model"
    );
    for model in &found {
        let manifest = store.model(&name(model)).unwrap().manifest;
        for layer in manifest.blobs() {
            let bytes = fs::read(store.blob_path(&layer.digest)).unwrap();
            assert_eq!(
                (Digest::of(&bytes), bytes.len() as u64),
                (layer.digest, layer.size)
            );
        }
    }
    found.len()
}

fn is_manifest(path: &str) -> bool {
    path.starts_with("manifests/") && !path.starts_with("manifests/.")
}

fn put_model(store: &Store, model: &str, weights: &[u8]) -> Result<(), Error> {
    let digest = Digest::of(weights);
    let size = store.put_blob(&digest, &mut Cursor::new(weights))?;
    let config = store.put_layer(LayerKind::Config, &mut Cursor::new(b"{}"))?;
    let manifest = Manifest::new(config, vec![Layer::new(LayerKind::Model, digest, size)]);
    store
        .put_manifest(&name(model), &manifest.to_bytes())
        .map(drop)
}

/// A model file of `n_rows` x 128 bytes and some more.
fn weights(name: &str, n_rows: usize) -> Vec<u8> {
    Gguf {
        architecture: "llama",
        name,
        n_rows,
        pools: false,
    }
    .bytes()
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !path.exists() {
        assert!(
            Instant::now() < deadline,
            "{} does not appear",
            path.display()
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// A linear congruential generator (Knuth's constants): the same numbers at every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
