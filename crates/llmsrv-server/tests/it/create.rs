//! Making models: what can be asked, what is refused, and what is left in the store.

use http::Method;
use llmsrv_gguf::{Metadata, TensorType, Value as Meta, Writer};
use serde_json::{Value, json};

use crate::host::{Host, host};

/// A model file with some keys beside its architecture, and one tensor.
fn gguf(architecture: &str, keys: &[(&str, Meta)], tensor: &str, dtype: TensorType) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", architecture);
    for (key, value) in keys {
        metadata.set(*key, value.clone());
    }
    let mut writer = Writer::new(metadata);
    let n_bytes = dtype.bytes_for(256).unwrap() as usize;
    writer
        .tensor(tensor, &[256], dtype, vec![0; n_bytes])
        .unwrap();
    writer.to_bytes().unwrap()
}

pub(crate) fn model(name: &str) -> Vec<u8> {
    let keys = [
        ("general.name", name.into()),
        ("llama.block_count", 1_u32.into()),
        ("llama.context_length", 64_u32.into()),
    ];
    gguf("llama", &keys, "token_embd.weight", TensorType::F16)
}

fn projector() -> Vec<u8> {
    gguf("clip", &[], "v.patch_embd.weight", TensorType::F16)
}

fn adapter(architecture: &str) -> Vec<u8> {
    let keys = [("general.type", "adapter".into())];
    gguf(
        architecture,
        &keys,
        "blk.0.attn_q.weight.lora_a",
        TensorType::F32,
    )
}

impl Host {
    /// Asks for a model; returns the lines of progress.
    async fn create(&self, body: Value) -> Vec<String> {
        let (status, text) = self
            .text(Method::POST, "/api/create", body.to_string())
            .await;
        assert_eq!(status, 200, "{text}");
        text.lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                line["status"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{line}"))
                    .to_owned()
            })
            .collect()
    }

    async fn show(&self, model: &str) -> Value {
        let (status, shown) = self.post("/api/show", json!({ "model": model })).await;
        assert_eq!(status, 200, "{shown}");
        shown
    }

    /// The manifest of a model as it is in the store.
    fn manifest(&self, name: &str) -> Value {
        let path = self
            .folder
            .path()
            .join("manifests/registry.ollama.ai/library");
        let bytes = std::fs::read(path.join(name).join("latest")).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Kinds of the layers of a model: the ends of their media types.
    fn kinds(&self, name: &str) -> Vec<String> {
        let manifest = self.manifest(name);
        let layers = manifest["layers"].as_array().unwrap().iter();
        layers
            .map(|layer| {
                layer["mediaType"]
                    .as_str()
                    .unwrap()
                    .rsplit('.')
                    .next()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    }
}

#[tokio::test]
async fn a_model_made_from_another_shares_its_layers() {
    let host = host();
    let body = json!({
        "model": "mine", "from": "plain",
        "system": "You are brief.", "license": ["MIT", "MIT"],
        "parameters": {"temperature": 0.5, "num_ctx": null, "seed": 7},
        "messages": [{"role": "User", "content": "hi"}, {"role": "assistant", "content": "ho"}],
        "info": {"x": 1}, "unknown": true,
    });
    let lines = host.create(body.clone()).await;
    let used = |prefix: &str| lines.iter().filter(|line| line.starts_with(prefix)).count();
    assert_eq!(
        used("using existing layer sha256:"),
        2,
        "weights and template: {lines:?}"
    );
    assert_eq!(
        used("creating new layer sha256:"),
        4,
        "system, license, params, messages: {lines:?}"
    );
    assert_eq!(lines[lines.len() - 2..], ["writing manifest", "success"]);
    assert_eq!(
        host.kinds("mine"),
        [
            "model", "template", "system", "license", "params", "messages"
        ]
    );
    assert_eq!(
        host.manifest("mine")["layers"][0]["digest"],
        host.manifest("plain")["layers"][0]["digest"]
    );
    let shown = host.show("mine").await;
    assert_eq!(shown["system"], "You are brief.");
    assert_eq!(shown["messages"][0]["role"], "user");
    let parameters = shown["parameters"].as_str().unwrap();
    let expected = format!(
        "{:<30} 0.5\n{:<30} \"<|im_end|>\"\n{:<30} 7",
        "temperature", "stop", "seed"
    );
    assert_eq!(parameters, expected, "merged over those of the base");
    let (_, answer) = host.ask(json!({"model": "mine"})).await;
    assert_eq!(answer["done"], true);

    let manifest = host.manifest("mine");
    let again = host.create(body).await;
    assert!(
        !again.iter().any(|line| line.starts_with("creating")),
        "{again:?}"
    );
    assert_eq!(
        host.manifest("mine"),
        manifest,
        "the same order, the same model"
    );
}

#[tokio::test]
async fn a_new_version_drops_what_only_the_old_one_had() {
    let host = host();
    let before = host.blob_files();
    host.create(json!({"model": "mine", "from": "plain", "system": "one"}))
        .await;
    let with_one = host.blob_files();
    host.create(json!({"model": "mine", "from": "plain", "system": "two"}))
        .await;
    let with_two = host.blob_files();
    assert_eq!(with_one.len(), with_two.len());
    assert_ne!(with_one, with_two);
    let done = host
        .text(Method::DELETE, "/api/delete", r#"{"model":"mine"}"#)
        .await;
    assert_eq!(done.0, 200, "{done:?}");
    assert_eq!(host.blob_files(), before);
}

#[tokio::test]
async fn a_model_is_made_from_an_uploaded_file() {
    let host = host();
    let digest = host.upload(model("one")).await;
    let lines = host
        .create(json!({"name": "up", "files": {"a/model.gguf": digest}}))
        .await;
    assert_eq!(lines[0], "parsing GGUF");
    assert_eq!(lines[1], format!("using existing layer {digest}"));
    let shown = host.show("up").await;
    assert_eq!(shown["details"]["family"], "llama");
    assert_eq!(shown["details"]["quantization_level"], "F16");
    assert_eq!(shown["model_info"]["llama.context_length"], 64);
    // The same without a stream, found by its content.
    let whole = json!({"model": "up2", "files": {"anything": digest}, "stream": false});
    assert_eq!(
        host.post("/api/create", whole).await,
        (200, json!({"status": "success"}))
    );
    let listed = host.get("/api/tags").await;
    let names: Vec<&str> = listed["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"up:latest") && names.contains(&"up2:latest"),
        "{names:?}"
    );
}

#[tokio::test]
async fn projectors_and_adapters_are_known_by_their_metadata() {
    let host = host();
    let (weights, eyes) = (
        host.upload(model("m")).await,
        host.upload(projector()).await,
    );
    let lora = host.upload(adapter("llama")).await;
    let body = json!({
        "model": "seer", "files": {"b.gguf": eyes, "a.gguf": weights}, "adapters": {"lora.gguf": lora},
    });
    host.create(body).await;
    assert_eq!(host.kinds("seer"), ["model", "projector", "adapter"]);
    let families = &host.show("seer").await["details"]["families"];
    assert_eq!(*families, json!(["llama", "clip"]));
    // Beside a base, too.
    host.create(json!({"model": "seer2", "from": "plain", "files": {"eyes.gguf": eyes}}))
        .await;
    assert_eq!(
        host.kinds("seer2"),
        ["model", "template", "params", "projector"]
    );
}

#[tokio::test]
async fn a_split_model_is_joined() {
    let host = host();
    let part = |no: u16, tensor: &str| {
        let keys = [
            ("llama.block_count", 1_u32.into()),
            ("split.count", 2_u16.into()),
            ("split.no", no.into()),
            ("split.tensors.count", 2_i32.into()),
        ];
        gguf("llama", &keys, tensor, TensorType::F16)
    };
    let (first, second) = (
        host.upload(part(0, "a")).await,
        host.upload(part(1, "b")).await,
    );
    let lines = host
        .create(json!({"model": "whole", "files": {"2.gguf": second, "1.gguf": first}}))
        .await;
    assert!(lines.contains(&"joining 2 files".to_owned()), "{lines:?}");
    assert_eq!(host.kinds("whole"), ["model"]);
    let (_, shown) = host
        .post("/api/show", json!({"model": "whole", "verbose": true}))
        .await;
    let tensors = shown["tensors"].as_array().unwrap().iter();
    assert_eq!(
        tensors
            .map(|t| t["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert!(shown["model_info"].get("split.count").is_none());

    let body = json!({"model": "half", "files": {"2.gguf": second}, "stream": true});
    let (status, error) = host.post("/api/create", body).await;
    assert_eq!(status, 400);
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("split into 2 files, of which 1"),
        "{error}"
    );
}

#[tokio::test]
async fn weights_are_quantized() {
    let host = host();
    let digest = host.upload(model("floats")).await;
    let body = json!({"model": "small", "files": {"m.gguf": digest}, "quantize": "q8_0"});
    let lines = host.create(body).await;
    let quantizing = "quantizing F16 model to Q8_0".to_owned();
    assert!(lines.contains(&quantizing), "{lines:?}");
    assert_eq!(
        host.show("small").await["details"]["quantization_level"],
        "Q8_0"
    );
    // From a model of the store, by the older name of the member.
    host.create(json!({"model": "floats", "files": {"m.gguf": digest}}))
        .await;
    let lines = host
        .create(json!({"model": "small2", "from": "floats", "quantization": "Q4_0"}))
        .await;
    assert!(
        lines.contains(&"quantizing F16 model to Q4_0".to_owned()),
        "{lines:?}"
    );
    assert_eq!(
        host.show("small2").await["details"]["quantization_level"],
        "Q4_0"
    );
    // What has the type already is left alone.
    let lines = host
        .create(json!({"model": "small3", "from": "small", "quantize": "Q8_0"}))
        .await;
    assert!(
        !lines.iter().any(|line| line.starts_with("quantizing")),
        "{lines:?}"
    );
    assert_eq!(host.kinds("small3"), host.kinds("small"));
}

#[tokio::test]
async fn an_importance_matrix_is_used_or_refused() {
    let host = host();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("llama.block_count", 1_u32);
    let mut writer = Writer::new(metadata);
    let name = "blk.0.ffn_up.weight";
    let shape = [256, 2];
    writer
        .tensor(name, &shape, TensorType::F16, vec![0; 1024])
        .unwrap();
    let source = host.upload(writer.to_bytes().unwrap()).await;
    let matrix_of = |name: &str, width: usize| {
        let mut imatrix = llmsrv_convert::Imatrix::new(vec!["text".into()], 1, 512);
        imatrix.add(name, &vec![1.0; width], &[512]).unwrap();
        imatrix.to_bytes().unwrap()
    };
    let good = host.upload(matrix_of(name, 256)).await;
    let narrow = host.upload(matrix_of(name, 128)).await;
    let other = host.upload(matrix_of("blk.9.x.weight", 256)).await;
    let body = |more: &Value| {
        let mut body = json!({"model": "small", "files": {"m.gguf": source}, "stream": false});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    host.create(body(&json!({"quantize": "IQ2_XS", "imatrix": good})))
        .await;
    assert_eq!(
        host.show("small").await["details"]["quantization_level"],
        "IQ2_XS"
    );
    let missing = format!("sha256:{}", "0".repeat(64));
    for (more, status, text) in [
        (json!({"imatrix": good}), 400, "'quantize' is missing"),
        (
            json!({"quantize": "Q4_0", "imatrix": source}),
            400,
            "the file is no importance matrix",
        ),
        (
            json!({"quantize": "Q4_0", "imatrix": missing}),
            404,
            "not found",
        ),
        (
            json!({"quantize": "Q4_0", "imatrix": "x"}),
            400,
            "invalid digest format",
        ),
        (
            json!({"quantize": "Q4_0", "imatrix": other}),
            400,
            "it has none of this one's tensors",
        ),
        (
            json!({"quantize": "Q4_0", "imatrix": narrow}),
            400,
            "has 256 columns, and there it has 128",
        ),
        (
            json!({"quantize": "IQ2_XS"}),
            400,
            "IQ2_XS needs an importance matrix",
        ),
    ] {
        let body = body(&more).to_string();
        let (found, reply) = host.text(Method::POST, "/api/create", body).await;
        assert_eq!(found, status, "{more} {reply}");
        assert!(reply.contains(text), "{text}: {reply}");
    }
}

#[tokio::test]
async fn a_template_is_attached_where_only_the_vocabulary_shows_it() {
    let host = host();
    let tokens: Vec<&str> = vec!["<|im_start|>", "<|im_end|>", "a"];
    let with = |keys: &[(&str, Meta)]| {
        let tokens = [("tokenizer.ggml.tokens", tokens.clone().into())];
        gguf("llama", &[&tokens[..], keys].concat(), "t", TensorType::F16)
    };
    let digest = host.upload(with(&[])).await;
    let lines = host
        .create(json!({"model": "detected", "files": {"m.gguf": digest}}))
        .await;
    assert!(
        lines.contains(&"using autodetected template chatml".to_owned()),
        "{lines:?}"
    );
    assert_eq!(host.kinds("detected"), ["model", "template", "params"]);
    let shown = host.show("detected").await;
    assert!(
        shown["parameters"]
            .as_str()
            .unwrap()
            .contains("\"<|im_end|>\""),
        "{shown}"
    );

    let body = json!({
        "model": "chosen", "files": {"m.gguf": digest}, "template": "{{ .Prompt }}", "parameters": {"stop": ["x"]},
    });
    host.create(body).await;
    assert_eq!(host.show("chosen").await["template"], "{{ .Prompt }}");
    let own = [("tokenizer.chat_template", "{{ messages }}".into())];
    let digest = host.upload(with(&own)).await;
    host.create(json!({"model": "jinja", "files": {"m.gguf": digest}}))
        .await;
    assert_eq!(host.kinds("jinja"), ["model"]);
}

#[tokio::test]
async fn old_clients_send_the_modelfile() {
    let host = host();
    let digest = host.upload(model("old")).await;
    let text =
        format!("FROM @{digest}\nSYSTEM \"\"\"Be old.\"\"\"\nPARAMETER stop a\nPARAMETER stop b");
    host.create(json!({"name": "old", "modelfile": text, "system": "Be new."}))
        .await;
    let shown = host.show("old").await;
    assert_eq!(shown["system"], "Be new.", "the request is stronger");
    assert_eq!(shown["parameters"].as_str().unwrap().lines().count(), 2);
    host.create(json!({"name": "older", "modelfile": "from plain\nLICENSE MIT"}))
        .await;
    assert_eq!(host.show("older").await["license"], "MIT");
}

#[tokio::test]
async fn what_cannot_become_a_model_is_refused_with_a_status() {
    let host = host();
    let good = host.upload(model("good")).await;
    let other = host.upload(model("other")).await;
    let text = host.upload("this is no model").await;
    let cut = host.upload(model("cut")[..40].to_vec()).await;
    let eyes = host.upload(projector()).await;
    let lora = host.upload(adapter("llama")).await;
    let lora2 = host.upload(adapter("qwen2")).await;
    let packed = host.upload(gguf("llama", &[], "a", TensorType::Q4_0)).await;
    let absent = format!("sha256:{}", "0".repeat(64));
    let before = host.blob_files();
    let files = |name: &str, digest: &str| json!({ name: digest });
    for (body, status, error) in [
        (json!({}), 400, "model is required".to_owned()),
        (
            json!({"model": "../x", "from": "plain"}),
            400,
            "invalid model name".into(),
        ),
        (
            json!({"model": "a/../../b", "from": "plain"}),
            400,
            "invalid model name".into(),
        ),
        (
            json!({"model": "x", "from": "/etc/passwd"}),
            400,
            "invalid model name".into(),
        ),
        (
            json!({"model": "x", "from": "./plain"}),
            400,
            "invalid model name".into(),
        ),
        (
            json!({"model": "x"}),
            400,
            "neither 'from' or 'files' was specified".into(),
        ),
        (
            json!({"model": "x", "files": {}}),
            400,
            "no files provided to convert".into(),
        ),
        (
            json!({"model": "x", "files": files("/m.gguf", &good)}),
            400,
            "file path must be relative".into(),
        ),
        (
            json!({"model": "x", "files": files("../m.gguf", &good)}),
            400,
            "file path must be relative".into(),
        ),
        (
            json!({"model": "x", "files": files("a/..\\m.gguf", &good)}),
            400,
            "file path must be relative".into(),
        ),
        (
            json!({"model": "x", "files": files("", &good)}),
            400,
            "file path must be relative".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", "")}),
            400,
            "invalid digest format".into(),
        ),
        (
            json!({"model": "x", "files": {"m.gguf": 7}}),
            400,
            "invalid digest format".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", "sha256:../../x")}),
            400,
            "invalid digest format".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", &absent)}),
            404,
            format!("blob \"{absent}\" not found"),
        ),
        (
            json!({"model": "x", "files": files("m.bin", &text)}),
            400,
            "unknown type".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", &text)}),
            400,
            "supplied file was not in GGUF format".into(),
        ),
        (
            json!({"model": "x", "files": {"m.gguf": good, "n": text}}),
            400,
            "supplied file was not in GGUF format".into(),
        ),
        (
            json!({"model": "x", "files": {"m.gguf": good, "n.gguf": other}}),
            400,
            "the files hold several models; a model has one".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", &eyes)}),
            400,
            "the files hold no model, only what belongs to one".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "adapters": {"a.gguf": lora, "b.gguf": lora2}}),
            400,
            "only one adapter is currently supported".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "adapters": {"a.gguf": good}}),
            400,
            "the adapter is no LoRA adapter".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "adapters": {"a.gguf": lora2}}),
            400,
            "the adapter is for models of the architecture \"qwen2\", and this one is \"llama\""
                .into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", &packed), "quantize": "Q8_0"}),
            400,
            "quantization is only supported for F16, BF16 and F32 models, and this one has tensors of type Q4_0".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "parameters": {"num_ctx": "big"}}),
            400,
            "option \"num_ctx\" must be of type integer".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "license": [1]}),
            400,
            "license must be a string or a list of strings".into(),
        ),
        (
            json!({"model": "x", "modelfile": "FORM y"}),
            400,
            "(line 1): command must be one of".into(),
        ),
        (
            json!({"model": "x", "modelfile": "FROM /etc/passwd"}),
            400,
            "invalid model name".into(),
        ),
        (
            json!({"model": "x", "modelfile": "FROM plain\nADAPTER ../x"}),
            400,
            "invalid digest format".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "template": "{{ if }}"}),
            400,
            "template error: ".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "messages": ["x"]}),
            400,
            "messages must be objects".into(),
        ),
        (
            json!({"model": "x", "from": "plain", "quantize": "Q9"}),
            400,
            "unsupported quantization type Q9 - supported types are F32, F16, ".into(),
        ),
        (
            json!({"model": "x", "files": files("m.gguf", &cut)}),
            400,
            "invalid model file: the file ends ".into(),
        ),
    ] {
        for stream in [true, false] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let (given, answer) = host.post("/api/create", body.clone()).await;
            let text = answer["error"].as_str().unwrap_or_default();
            assert!(
                given == status
                    && (text == error || (error.len() < text.len() && text.starts_with(&error))),
                "{body}: {given} {answer}"
            );
        }
    }
    assert_eq!(host.blob_files(), before, "nothing is left behind");
    let (status, _) = host.post("/api/show", json!({"model": "x"})).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn many_can_make_and_remove_models_at_once() {
    let host = host();
    let work = (0..24).map(|at| {
        let host = &host;
        async move {
            let name = format!("m{}", at % 6);
            // All share one system text, which whoever removes a model may take along.
            let body = json!({"model": name, "from": "plain", "system": "shared", "stream": false});
            let (status, answer) = host.post("/api/create", body).await;
            assert_eq!(status, 200, "{answer}");
            let body = json!({ "model": name }).to_string();
            let (status, _) = host.text(Method::DELETE, "/api/delete", body).await;
            assert!(matches!(status, 200 | 404));
        }
    });
    futures_util::future::join_all(work).await;
    assert_eq!(host.ask(json!({})).await.0, 200);
}

#[tokio::test]
async fn work_nobody_waits_for_is_given_up() {
    let host = host();
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    let mut writer = Writer::new(metadata);
    for at in 0..64 {
        let data = vec![0x3c; 256 * 1024 * 4];
        let name = format!("blk.{at}.ffn_up.weight");
        writer
            .tensor(&name, &[256, 1024], TensorType::F32, data)
            .unwrap();
    }
    let digest = host.upload(writer.to_bytes().unwrap()).await;
    let before = host.blob_files();
    let body = json!({"model": "x", "files": {"m.gguf": digest}, "quantize": "Q4_K_M"});
    let response = host
        .send(Method::POST, "/api/create", &[], body.to_string())
        .await;
    let mut body = response.into_body();
    while host.blob_files() == before {
        // The first lines: until the file is begun.
        http_body_util::BodyExt::frame(&mut body)
            .await
            .unwrap()
            .unwrap();
    }
    drop(body);
    let started = std::time::Instant::now();
    while host.blob_files() != before {
        assert!(started.elapsed().as_secs() < 30, "{:?}", host.blob_files());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(host.post("/api/show", json!({"model": "x"})).await.0, 404);
}
