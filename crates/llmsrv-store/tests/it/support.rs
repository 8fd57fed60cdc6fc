//! What the tests of the store share: small model files, and a store as Ollama leaves it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use llmsrv_store::{Digest, Embedded, ModelEntry, ModelName, Store};

/// A GGUF file of one tensor with `n_rows` rows of 32 numbers.
pub(crate) struct Gguf<'a> {
    pub(crate) architecture: &'a str,
    pub(crate) name: &'a str,
    pub(crate) n_rows: usize,
    pub(crate) pools: bool,
}

impl Gguf<'_> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        let text = |key: &str, value: &str| {
            [string(key), 8_u32.to_le_bytes().into(), string(value)].concat()
        };
        let number = |key: &str, value: u32| {
            [
                string(key),
                4_u32.to_le_bytes().into(),
                value.to_le_bytes().into(),
            ]
            .concat()
        };
        let of_architecture = |key: &str| format!("{}.{key}", self.architecture);
        let mut members = vec![
            text("general.architecture", self.architecture),
            text("general.name", self.name),
            number("general.file_type", 0),
            number(&of_architecture("context_length"), 4096),
            number(&of_architecture("embedding_length"), 32),
        ];
        if self.pools {
            members.push(number(&of_architecture("pooling_type"), 1));
        }
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend((members.len() as u64).to_le_bytes());
        bytes.extend(members.concat());
        bytes.extend(string("output.weight"));
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(32_u64.to_le_bytes());
        bytes.extend((self.n_rows as u64).to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.resize(bytes.len() + self.n_rows * 32 * 4, 1);
        bytes
    }
}

/// A small text model whose name makes its bytes its own.
pub(crate) fn gguf(name: &str) -> Vec<u8> {
    Gguf {
        architecture: "llama",
        name,
        n_rows: 64,
        pools: false,
    }
    .bytes()
}

/// An embedded model called `name`.
pub(crate) fn embedded<'a>(name: &str, gguf: &'a [u8]) -> Embedded<'a> {
    let toml = format!(
        "name = '{name}'\nfile = 'x.gguf'\nsha256 = '{}'\ndescription = 'A test.'\nlicense = 'MIT'\n\
         [parameters]\ntemperature = 0.5\n",
        Digest::of(gguf).hex()
    );
    Embedded::parse(&toml, gguf).unwrap()
}

/// Writes files as Ollama does, without the code under test.
pub(crate) struct Ollama<'a>(pub(crate) &'a Path);

impl Ollama<'_> {
    /// Writes a blob and returns it as a member of a manifest.
    pub(crate) fn layer(&self, media_type: &str, bytes: &[u8]) -> String {
        let hex = Digest::of(bytes).hex();
        fs::create_dir_all(self.0.join("blobs")).unwrap();
        fs::write(self.0.join("blobs").join(format!("sha256-{hex}")), bytes).unwrap();
        format!(
            r#"{{"mediaType":"{media_type}","digest":"sha256:{hex}","size":{}}}"#,
            bytes.len()
        )
    }

    /// Writes a manifest at `path` below the folder of manifests; `age` makes the order certain.
    pub(crate) fn manifest(
        &self,
        path: &str,
        age: Duration,
        config: &str,
        layers: &[String],
    ) -> Vec<u8> {
        let json = format!(
            concat!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","#,
                "\"config\":{},\"layers\":[{}]}}\n"
            ),
            config,
            layers.join(",")
        );
        let path = self.0.join("manifests").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &json).unwrap();
        set_age(&path, age);
        json.into_bytes()
    }

    /// Writes a model of weights and config only.
    pub(crate) fn plain_model(&self, path: &str, age_minutes: u64, weights: &[u8]) -> Vec<u8> {
        let config = self.layer(CONFIG, b"{}");
        let model = self.layer(MODEL, weights);
        self.manifest(
            path,
            Duration::from_secs(60 * age_minutes),
            &config,
            &[model],
        )
    }
}

pub(crate) const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub(crate) const MODEL: &str = "application/vnd.ollama.image.model";

pub(crate) fn set_age(path: &Path, age: Duration) {
    File::open(path)
        .unwrap()
        .set_modified(SystemTime::now() - age)
        .unwrap();
}

pub(crate) fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// Names in the order of the list.
pub(crate) fn listed(store: &Store) -> Vec<String> {
    store
        .list()
        .unwrap()
        .iter()
        .map(|entry| entry.name.to_string())
        .collect()
}

/// What `default` stands for.
pub(crate) fn default_of(store: &Store) -> Option<String> {
    let entry: ModelEntry = store.find(&name("default")).ok()?;
    Some(
        entry
            .stands_for
            .map_or("itself".into(), |target| target.to_string()),
    )
}

/// All files of the store, relative to its root, without those that only we write.
pub(crate) fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let relative = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !relative.starts_with('.') {
                found.push(relative);
            }
        }
    }
    found.sort();
    found
}
