//! A store, a model to move, and what must be true after every fault.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use llmsrv_api::progress::Progress;
use llmsrv_registry::{Error, Registry, Settings, Tuning};
use llmsrv_store::{Digest, Layer, LayerKind, Manifest, ModelName, OpenOptions, Store};

use crate::fake::Fake;

/// Waits for what must have an end.
pub async fn ended<T>(work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(30), work).await;
    ended.unwrap_or_else(|_| panic!("it has no end"))
}

/// Size of the weights in bytes, and of a part.
pub const SIZE: u64 = 1 << 20;
pub const PART: u64 = 128 << 10;

/// A model in memory.
pub struct Model {
    pub manifest: Vec<u8>,
    pub weights: Vec<u8>,
    pub blobs: Vec<(Digest, Vec<u8>)>,
}

impl Model {
    /// Makes a model whose weights depend on `seed`.
    pub fn new(seed: u64) -> Model {
        Model::with_size(seed, SIZE)
    }

    pub fn with_size(seed: u64, size: u64) -> Model {
        let mut state = seed.wrapping_mul(2) + 1;
        let mut weights = vec![0; size as usize];
        for byte in &mut weights {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 33) as u8;
        }
        let template = format!("{{{{ .Prompt }}}} {seed}").into_bytes();
        let config = br#"{"model_format":"gguf","model_family":"llama"}"#.to_vec();
        let layer = |kind, bytes: &[u8]| Layer::new(kind, Digest::of(bytes), bytes.len() as u64);
        let manifest = Manifest::new(
            layer(LayerKind::Config, &config),
            vec![
                layer(LayerKind::Model, &weights),
                layer(LayerKind::Template, &template),
            ],
        );
        // Bytes that no serializer of ours would write: they must be kept as they are.
        let mut bytes = manifest.to_bytes();
        bytes.extend_from_slice(b"\n ");
        let blobs = [weights.clone(), template, config];
        Model {
            manifest: bytes,
            weights,
            blobs: blobs
                .into_iter()
                .map(|bytes| (Digest::of(&bytes), bytes))
                .collect(),
        }
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.weights)
    }

    /// Puts the model into a registry as `a/b:t`.
    pub fn serve(&self, fake: &Fake) {
        fake.put("/v2/a/b/manifests/t", self.manifest.clone());
        for (digest, bytes) in &self.blobs {
            fake.put(format!("/v2/a/b/blobs/{digest}"), bytes.clone());
            fake.put(format!("/raw/{digest}"), bytes.clone());
        }
    }
}

/// A store and registries as seen from it.
pub struct House {
    pub folder: tempfile::TempDir,
    pub store: Arc<Store>,
    pub registry: Registry,
}

impl House {
    pub fn new() -> House {
        House::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> House {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("models"), OpenOptions::default()).unwrap();
        let store = Arc::new(store);
        let mut settings = Settings {
            key_files: vec![folder.path().join("key")],
            tuning: Tuning {
                part_min_bytes: PART,
                part_max_bytes: PART,
                parallel: 4,
                retries: 3,
                backoff: Duration::from_millis(20),
                stall: Duration::from_millis(400),
                commit: Duration::from_secs(20),
                connect: Duration::from_secs(5),
            },
            ..Settings::default()
        };
        change(&mut settings);
        House {
            registry: Registry::new(settings, store.clone()),
            store,
            folder,
        }
    }

    /// Pulls `a/b:t` and returns what was reported.
    pub async fn pull(&self, fake: &Fake) -> (Result<(), Error>, Vec<Progress>) {
        self.pull_named(&format!("{}/a/b:t", fake.host)).await
    }

    pub async fn pull_named(&self, name: &str) -> (Result<(), Error>, Vec<Progress>) {
        let reports = Mutex::new(Vec::new());
        let report = |progress| reports.lock().unwrap().push(progress);
        let result = self
            .registry
            .pull(&name.parse().unwrap(), false, &report)
            .await;
        (result, reports.into_inner().unwrap())
    }

    #[track_caller]
    pub fn assert_has(&self, fake: &Fake, model: &Model) {
        let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
        assert_eq!(self.store.manifest_bytes(&name).unwrap(), model.manifest);
        for (digest, bytes) in &model.blobs {
            assert_eq!(&fs::read(self.store.blob_path(digest)).unwrap(), bytes);
        }
        self.assert_whole();
        assert_eq!(self.strays(), Vec::<String>::new());
    }

    /// Whatever happened: each blob has the content of its name, and each manifest all its blobs.
    #[track_caller]
    pub fn assert_whole(&self) {
        for (name, path) in self.blob_files() {
            if let Ok(digest) = name.parse::<Digest>() {
                assert_eq!(Digest::of(&fs::read(path).unwrap()), digest);
            }
        }
        for entry in self.store.list().unwrap() {
            self.store.model(&entry.name).unwrap();
        }
    }

    /// Files among the blobs that are no blobs.
    pub fn strays(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .blob_files()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.retain(|name| name.parse::<Digest>().is_err());
        names.sort();
        names
    }

    fn blob_files(&self) -> Vec<(String, std::path::PathBuf)> {
        fs::read_dir(self.store.root().join("blobs"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
            .collect()
    }
}
