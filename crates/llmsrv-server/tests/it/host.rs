//! A server over a store of tiny models, and short ways to ask it.

use std::{path::Path, sync::Arc};

use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use llmsrv_config::ServerConfig;
use llmsrv_engine::{
    LoadError, Loader,
    fake::{self, Answer, FakeOptions},
};
use llmsrv_gguf::{GgufFile, Metadata, ModelFacts, Writer};
use llmsrv_server::{App, Keys, Settings};
use llmsrv_store::{Layer, LayerKind, Manifest, OpenOptions, Store};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// A server over a temporary store.
pub(crate) struct Host {
    pub(crate) app: App,
    pub(crate) folder: tempfile::TempDir,
}

const TEMPLATES: &[(&str, &str)] = &[
    (
        "plain",
        "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}<|im_start|>assistant\n",
    ),
    (
        "speaker",
        "{{ range .Messages }}[{{ .Role }}:{{ .Content }}]{{ end }}",
    ),
    ("broken", "{{ .Prompt }}"),
    ("seer", "{{ .Prompt }}"),
    ("filler", "<pre>{{ .Prompt }}<suf>{{ .Suffix }}<mid>"),
    (
        "thinker",
        "{{ range .Messages }}{{ .Role }}:{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}\n{{ end }}",
    ),
    (
        "caller",
        "{{ if .Tools }}{{ .Tools }}{{ end }}{{ range .Messages }}{{ .Role }}:{{ .Content }}{{ range .ToolCalls }}<tool_call>{\"name\":\"{{ .Function.Name }}\",\"arguments\":{{ .Function.Arguments }}}</tool_call>{{ end }}\n{{ end }}",
    ),
];

pub(crate) fn settings() -> Settings {
    let mut settings = Settings {
        version: "0.33.0-llmsrv.test".into(),
        ..Settings::default()
    };
    settings.config.load_timeout = None;
    settings
}

/// The same with other values of the table.
pub(crate) fn configured(change: impl FnOnce(&mut ServerConfig)) -> Settings {
    let mut settings = settings();
    change(&mut settings.config);
    settings
}

/// The same with keys.
pub(crate) fn keyed(keys: Keys) -> Settings {
    Settings { keys, ..settings() }
}

pub(crate) fn host_with(
    settings: Settings,
    options: impl Fn() -> FakeOptions + Send + Sync + 'static,
) -> Host {
    let loader: Loader = Arc::new(move |path, _| {
        let file = llmsrv_gguf::GgufFile::open(path).unwrap();
        if file.metadata().str("general.basename") == Some("broken") {
            return Err(LoadError::Io(std::io::Error::other(format!(
                "{} is gone",
                path.display()
            ))));
        }
        Ok(fake::loaded(options()))
    });
    host_loading(settings, loader)
}

/// Reads the facts about a model as a loader does that knows all architectures but `blind`.
fn read_facts(path: &Path) -> Result<ModelFacts, llmsrv_gguf::Error> {
    let file = GgufFile::open(path)?;
    let mut facts = ModelFacts::of(file.header());
    let architecture = &facts.architecture;
    let metadata = file.metadata();
    let number = |key: &str| metadata.usize(&format!("{architecture}.{key}"));
    facts.sees = architecture != "blind" && number("vision.block_count").is_some();
    let heads = (
        number("attention.head_count"),
        number("attention.head_count_kv"),
    );
    if let (Some(n_layers), Some(width), (Some(heads), Some(kv_heads))) =
        (number("block_count"), number("embedding_length"), heads)
    {
        facts.kv_heads = vec![(kv_heads, width / heads); n_layers];
    }
    Ok(facts)
}

/// A server whose models are loaded by `loader`.
pub(crate) fn host_loading(settings: Settings, loader: Loader) -> Host {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        read_facts,
        ..OpenOptions::default()
    };
    let store = Store::open(folder.path(), options).unwrap();
    for (name, template) in TEMPLATES {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", "llama");
        metadata.set("general.basename", *name);
        metadata.set("tokenizer.ggml.model", "gpt2");
        metadata.set("tokenizer.ggml.tokens", vec!["a", "b", "c", "d", "e", "f"]);
        metadata.set("tokenizer.ggml.merges", Vec::<&str>::new());
        let gguf = Writer::new(metadata).to_bytes().unwrap();
        let put = |kind, bytes: &[u8]| -> Layer { store.put_layer(kind, &mut &bytes[..]).unwrap() };
        let mut layers = vec![
            put(LayerKind::Model, &gguf),
            put(LayerKind::Template, template.as_bytes()),
            put(
                LayerKind::Parameters,
                br#"{"temperature":0,"stop":["<|im_end|>"]}"#,
            ),
        ];
        if *name == "seer" {
            let mut metadata = Metadata::new();
            metadata.set("general.architecture", "clip");
            metadata.set("clip.projector_type", "mlp");
            let gguf = Writer::new(metadata).to_bytes().unwrap();
            layers.push(put(LayerKind::Projector, &gguf));
        }
        if *name == "speaker" {
            layers.push(put(LayerKind::System, b"Own."));
            layers.push(put(
                LayerKind::Messages,
                br#"[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]"#,
            ));
        }
        let config = put(LayerKind::Config, br#"{"model_format":"gguf","model_family":"llama","model_type":"1B","file_type":"F16"}"#);
        store
            .put_manifest(
                &name.parse().unwrap(),
                &Manifest::new(config, layers).to_bytes(),
            )
            .unwrap();
    }
    Host {
        app: App::new(settings, store, loader),
        folder,
    }
}

pub(crate) fn host() -> Host {
    host_with(settings(), FakeOptions::default)
}

/// A server that also has `embedder`, a model that makes nothing but vectors.
pub(crate) fn embedding(options: impl Fn() -> FakeOptions + Send + Sync + 'static) -> Host {
    let host = host_with(settings(), options);
    let store = Store::open(host.folder.path(), OpenOptions::default()).unwrap();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "bert");
    metadata.set("bert.pooling_type", 1u32);
    metadata.set("tokenizer.ggml.tokens", vec!["a", "b"]);
    let gguf = Writer::new(metadata).to_bytes().unwrap();
    let put = |kind, bytes: &[u8]| -> Layer { store.put_layer(kind, &mut &bytes[..]).unwrap() };
    let layers = vec![put(LayerKind::Model, &gguf)];
    let config = put(
        LayerKind::Config,
        br#"{"model_format":"gguf","model_family":"bert","model_type":"23M","file_type":"F16"}"#,
    );
    let manifest = Manifest::new(config, layers).to_bytes();
    store
        .put_manifest(&"embedder".parse().unwrap(), &manifest)
        .unwrap();
    host
}

pub(crate) fn saying(text: &'static str) -> Host {
    host_with(settings(), move || FakeOptions {
        answer: Answer::Text(text.into()),
        ..FakeOptions::default()
    })
}

impl Host {
    /// Puts a model file into the store.
    pub(crate) fn put(&self, name: &str, gguf: &[u8]) {
        self.put_layers(name, "{}", &[(LayerKind::Model, gguf)]);
    }

    /// Puts a model into the store, as it comes from a registry.
    pub(crate) fn put_layers(&self, name: &str, config: &str, layers: &[(LayerKind, &[u8])]) {
        let store = Store::open(self.folder.path(), OpenOptions::default()).unwrap();
        let put = |kind, mut bytes: &[u8]| store.put_layer(kind, &mut bytes).unwrap();
        let config = put(LayerKind::Config, config.as_bytes());
        let layers = layers.iter().map(|(kind, bytes)| put(*kind, bytes));
        let manifest = Manifest::new(config, layers.collect()).to_bytes();
        store
            .put_manifest(&name.parse().unwrap(), &manifest)
            .unwrap();
    }

    /// Returns the names of the loaded models, sorted.
    pub(crate) async fn loaded(&self) -> Vec<String> {
        let ps = self.get("/api/ps").await;
        let models = ps["models"].as_array().unwrap();
        let mut names: Vec<String> = models
            .iter()
            .map(|model| model["name"].as_str().unwrap().replace(":latest", ""))
            .collect();
        names.sort();
        names
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost:11434");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        llmsrv_server::router(&self.app)
            .oneshot(request.body(body.into()).unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn text(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Body>,
    ) -> (u16, String) {
        let response = self.send(method, path, &[], body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(Method::GET, path, "").await.1).unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, text) = self.text(Method::POST, path, body.to_string()).await;
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    /// Asks `plain` or another model for a whole answer.
    pub(crate) async fn ask(&self, mut body: Value) -> (u16, Value) {
        if body.get("model").is_none() {
            body["model"] = json!("plain");
        }
        if body.get("prompt").is_none() {
            body["prompt"] = json!("x");
        }
        body["stream"] = json!(false);
        self.post("/api/generate", body).await
    }
}
