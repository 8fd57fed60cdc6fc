//! Making models with the real program: from the built-in one, from files, and being killed at it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use llmsrv_store::Digest;
use serde_json::{Value, json};

use crate::util::{Sandbox, Server, TIMEOUT};

const MODEL: &[u8] = include_bytes!("../../assets/embedded/model.gguf");
const SYSTEM: &str = "You are \"brief\".\nAnd polite.";

fn blobs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let entries = fs::read_dir(sandbox.models().join("blobs")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Every blob has the content its name says, and nothing else lies about.
fn assert_whole(sandbox: &Sandbox) {
    for path in blobs(sandbox) {
        let digest = Digest::of(&fs::read(&path).unwrap());
        assert_eq!(
            path.file_name().unwrap().to_str().unwrap(),
            digest.file_name()
        );
    }
}

fn show(sandbox: &Sandbox, model: &str) -> Value {
    serde_json::from_str(&sandbox.run(&["show", model, "--json"]).ok().stdout).unwrap()
}

fn write(sandbox: &Sandbox, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = sandbox.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_model_is_made_from_the_built_in_one_and_printed_again() {
    let sandbox = Sandbox::new();
    let text = format!(
        "# mine\nFROM default\nPARAMETER temperature 0\nPARAMETER stop \"<x> \"\nPARAMETER stop b\n\
         SYSTEM \"\"\"{SYSTEM}\"\"\"\nMESSAGE user hi\nMESSAGE assistant ho\nLICENSE MIT\n"
    );
    write(&sandbox, "Modelfile", &text);
    let made = sandbox.run(&["create", "mine"]).ok();
    assert_eq!(made.stdout, "");
    assert!(
        made.stderr.ends_with("writing manifest\nsuccess\n"),
        "{made:?}"
    );
    assert!(
        !made.stderr.contains('\u{1b}'),
        "no drawing where nobody looks: {made:?}"
    );
    let shown = show(&sandbox, "mine");
    assert_eq!(shown["system"], SYSTEM);
    assert_eq!(shown["messages"][1]["content"], "ho");
    let answer = sandbox.run(&["run", "mine", "Hello!"]).ok();
    assert!(!answer.stdout.trim().is_empty(), "{answer:?}");

    let printed = sandbox.run(&["show", "mine", "--modelfile"]).ok().stdout;
    write(&sandbox, "again/printed", &printed);
    sandbox
        .run(&["create", "again", "-f", "again/printed"])
        .ok();
    let mut again = show(&sandbox, "again");
    for part in ["modelfile", "modified_at"] {
        again[part] = shown[part].clone();
    }
    assert_eq!(again, shown, "{printed}");
    for (part, text) in [("--system", SYSTEM), ("--license", "MIT")] {
        let printed = sandbox.run(&["show", "mine", part]).ok().stdout;
        assert!(printed.contains(text), "{part}: {printed}");
    }
}

#[test]
fn what_a_modelfile_says_for_nothing_is_told() {
    let sandbox = Sandbox::new();
    write(&sandbox, "Modelfile", "FROM default\nDRAFT ./small.gguf\n");
    let made = sandbox.run(&["create", "mine"]).ok();
    let said =
        "DRAFT ./small.gguf has no effect: LLMSRV_DRAFT_MODEL names the draft models of a server";
    assert!(made.stderr.contains(said), "{made:?}");
}

#[test]
fn a_model_file_is_linked_or_copied_and_can_be_replaced() {
    let sandbox = Sandbox::new();
    let file = write(&sandbox, "models here/tiny.gguf", tiny("one"));
    write(
        &sandbox,
        "models here/Modelfile",
        "FROM ./tiny.gguf\nSYSTEM one\n",
    );
    let create = ["create", "tiny", "-q", "-f", "models here/Modelfile"];
    let made = sandbox.run(&create).ok();
    assert_eq!((made.stdout.as_str(), made.stderr.as_str()), ("", ""));
    assert_eq!(
        fs::metadata(&file).unwrap().nlink(),
        2,
        "linked into the store"
    );
    assert_eq!(show(&sandbox, "tiny")["system"], "one");
    assert_eq!(
        show(&sandbox, "tiny")["details"]["quantization_level"],
        "F16"
    );
    assert_whole(&sandbox);

    // The same name again: what only the old one had is gone.
    let before = blobs(&sandbox);
    fs::remove_file(&file).unwrap();
    write(&sandbox, "models here/tiny.gguf", tiny("two"));
    sandbox.run(&[&create[..], &["--copy"]].concat()).ok();
    assert_eq!(fs::metadata(&file).unwrap().nlink(), 1, "copied");
    let old = Digest::of(&tiny("one")).file_name();
    assert!(before.iter().any(|path| path.ends_with(&old)));
    assert!(!blobs(&sandbox).iter().any(|path| path.ends_with(&old)));
    assert_whole(&sandbox);
    sandbox
        .run(&["create", "small", "--from", "tiny", "--quantize", "q8_0"])
        .ok();
    assert_eq!(
        show(&sandbox, "small")["details"]["quantization_level"],
        "Q8_0"
    );
    sandbox.run(&["rm", "tiny", "small"]).ok();
    let whole = blobs(&sandbox).len();
    assert_eq!(
        whole,
        4,
        "weights, license, parameters and config of the built-in model: {:?}",
        blobs(&sandbox)
    );
}

#[tokio::test]
async fn a_running_server_gets_its_files_by_link_or_upload() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let file = write(&sandbox, "real.gguf", MODEL);
    let elsewhere = sandbox.path().join("elsewhere").display().to_string();
    for (name, models, n_links) in [
        ("uploaded", &elsewhere, 1),
        ("linked", &sandbox.models().display().to_string(), 1),
    ] {
        // The weights are those of the built-in model: the server has them, nothing is brought.
        let args = [
            "create",
            name,
            "--from",
            "real.gguf",
            "--host",
            server.host(),
            "--models",
            models,
        ];
        sandbox.run(&args).ok();
        assert_eq!(fs::metadata(&file).unwrap().nlink(), n_links, "{name}");
    }
    let file = write(&sandbox, "tiny.gguf", tiny("x"));
    let args = [
        "create",
        "tiny",
        "--from",
        "tiny.gguf",
        "--host",
        server.host(),
        "--models",
        &elsewhere,
    ];
    sandbox.run(&args).ok();
    assert_eq!(
        fs::metadata(&file).unwrap().nlink(),
        1,
        "uploaded to a store that is not ours"
    );
    let file = write(&sandbox, "tiny2.gguf", tiny("y"));
    let args = [
        "create",
        "tiny2",
        "--from",
        "tiny2.gguf",
        "--host",
        server.host(),
    ];
    sandbox.run(&args).ok();
    assert_eq!(
        fs::metadata(&file).unwrap().nlink(),
        2,
        "linked into the server's own store"
    );
    let request = json!({"model": "linked", "prompt": "Hello!", "stream": false});
    let answer = server.post("/api/generate", &request).await.ok();
    assert!(
        answer["response"].as_str().unwrap().contains("llmsrv"),
        "{answer}"
    );
    assert_whole(&sandbox);
}

#[test]
fn mistakes_are_one_line_and_make_nothing() {
    let sandbox = Sandbox::new();
    sandbox.run(&["cp", "default", "other"]).ok();
    let before = blobs(&sandbox);
    write(&sandbox, "id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----");
    write(&sandbox, "m/bad", "FROM default\nPARAMETER temprature 1\n");
    write(&sandbox, "m/key", "FROM ../id_rsa\n");
    write(&sandbox, "m/absent", "FROM ./none.gguf\n");
    write(&sandbox, "m/nofrom", "SYSTEM x\n");
    write(&sandbox, "m/two", "FROM default\nFROM other\n");
    write(&sandbox, "m/template", "FROM default\nTEMPLATE {{ if }}\n");
    for (args, text) in [
        (&["x"][..], "cannot open the Modelfile Modelfile"),
        (
            &["x", "-f", "m/bad"],
            "(line 2): unknown parameter 'temprature'",
        ),
        (&["x", "-f", "m/key"], "../id_rsa is not a GGUF file"),
        (&["x", "-f", "m/absent"], "cannot use ./none.gguf"),
        (&["x", "-f", "m/nofrom"], "no FROM line"),
        (&["x", "-f", "m/two"], "one other model"),
        (&["x", "-f", "m/template"], "template error"),
        (&["../x", "--from", "default"], "invalid model name"),
        (
            &["x", "--from", "nope"],
            "registry.ollama.ai is not allowed",
        ),
        (
            &["x", "--from", "default", "--quantize", "Q4_K_M"],
            "quantization is only supported",
        ),
    ] {
        let output = sandbox.run(&[&["create"], args].concat());
        assert_eq!(output.code, 1, "{args:?}: {output:?}");
        assert!(output.stderr.contains(text), "{args:?}: {output:?}");
    }
    assert_eq!(blobs(&sandbox), before);
}

/// A model file with one tensor.
fn tiny(name: &str) -> Vec<u8> {
    let mut metadata = llmsrv_gguf::Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("general.name", name);
    let mut writer = llmsrv_gguf::Writer::new(metadata);
    writer
        .tensor(
            "token_embd.weight",
            &[32, 2],
            llmsrv_gguf::TensorType::F16,
            vec![0; 128],
        )
        .unwrap();
    writer.to_bytes().unwrap()
}

/// Sends a part of a blob and waits until it is being written.
async fn begin_upload(server: &Server, models: &Path) -> std::net::TcpStream {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(server.host()).unwrap();
    let digest = Digest::of(b"whatever");
    let head = format!(
        "POST /api/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![7; 5 << 20]).unwrap();
    let deadline = std::time::Instant::now() + TIMEOUT;
    let being_written = || {
        let entries = fs::read_dir(models.join("blobs")).unwrap();
        let mut sizes = entries.filter_map(|entry| {
            let entry = entry.unwrap();
            let hidden = entry.file_name().to_str().unwrap().starts_with('.');
            hidden.then(|| entry.metadata().map_or(0, |metadata| metadata.len()))
        });
        sizes.any(|size| size >= 1 << 20)
    };
    while !being_written() {
        assert!(std::time::Instant::now() < deadline, "nothing is written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream
}

#[tokio::test]
async fn a_client_that_dies_in_mid_upload_leaves_nothing() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let before = blobs(&sandbox);
    let stream = begin_upload(&server, &sandbox.models()).await;
    drop(stream);
    let deadline = std::time::Instant::now() + TIMEOUT;
    while blobs(&sandbox) != before {
        assert!(
            std::time::Instant::now() < deadline,
            "{:?}",
            blobs(&sandbox)
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_server_killed_in_mid_upload_leaves_a_whole_store() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let before = blobs(&sandbox);
    let stream = begin_upload(&server, &sandbox.models()).await;
    server.end("-9");
    drop(stream);
    let left: Vec<PathBuf> = blobs(&sandbox);
    let strays: Vec<&PathBuf> = left.iter().filter(|path| !before.contains(path)).collect();
    assert_eq!(strays.len(), 1, "{left:?}");
    // It is no blob, and the next start removes it once it is old enough to belong to nobody.
    let hour_ago = std::time::SystemTime::now() - Duration::from_mins(61);
    fs::File::open(strays[0])
        .unwrap()
        .set_modified(hour_ago)
        .unwrap();
    let server = sandbox.serve();
    assert_eq!(blobs(&sandbox), before);
    assert_whole(&sandbox);
    server.get("/api/tags").await.ok();
}

/// Writes the files of a published model into a folder; its weights are all the same, of a type in the
/// words of safetensors.
fn publish(sandbox: &Sandbox, folder: &str, dtype: &str, weight: &[u8]) {
    let fixture: Value = serde_json::from_str(include_str!(
        "../../crates/llmsrv-convert/tests/fixtures/models.json"
    ))
    .unwrap();
    let case = &fixture["cases"]["qwen3"];
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for tensor in case["tensors"].as_array().unwrap() {
        let shape = tensor[1].as_array().unwrap();
        let n_values: u64 = shape.iter().map(|size| size.as_u64().unwrap()).product();
        let start = data.len();
        data.extend(weight.repeat(n_values as usize));
        let entry = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(tensor[0].as_str().unwrap().to_owned(), entry);
    }
    let header = Value::Object(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &data].concat();
    write(sandbox, &format!("{folder}/model.safetensors"), file);
    write(
        sandbox,
        &format!("{folder}/config.json"),
        case["config"].to_string(),
    );
    let bytes = (0..256_u32).map(|byte| format!("<0x{byte:02X}>"));
    let vocab: serde_json::Map<String, Value> = bytes
        .chain(["▁".to_owned(), "h".to_owned()])
        .zip(0..)
        .map(|(text, id)| (text, json!(id)))
        .collect();
    let tokenizer = json!({
        "added_tokens": [{"id": 299, "content": "<|end|>", "special": true}],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "model": {"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": []},
    });
    write(
        sandbox,
        &format!("{folder}/tokenizer.json"),
        tokenizer.to_string(),
    );
    write(
        sandbox,
        &format!("{folder}/README.md"),
        "not for the server",
    );
}

#[test]
fn a_published_model_is_converted_and_quantized() {
    let sandbox = Sandbox::new();
    // A hundredth.
    publish(&sandbox, "published", "BF16", &[0x24, 0x3c]);
    write(
        &sandbox,
        "Modelfile",
        "FROM ./published\nPARAMETER num_predict 3\n",
    );
    let made = sandbox.run(&["create", "mine", "--quantize", "q8_0"]).ok();
    for status in [
        "converting model\n",
        "quantizing BF16 model to Q8_0\n",
        "verifying conversion\n",
    ] {
        assert!(made.stderr.contains(status), "{made:?}");
    }
    assert!(!made.stderr.contains("README"), "{made:?}");
    let shown = show(&sandbox, "mine");
    assert_eq!(shown["details"]["family"], "qwen3");
    assert_eq!(shown["details"]["quantization_level"], "Q8_0");
    sandbox.run(&["run", "mine", "h"]).ok();
    fs::remove_file(sandbox.path().join("published/config.json")).unwrap();
    let refused = sandbox.run(&["create", "other"]);
    assert!(
        refused.code == 1 && refused.stderr.contains("config.json is missing"),
        "{refused:?}"
    );

    // More than half precision can say, which is not on the way then.
    publish(&sandbox, "single", "F32", &100_000_f32.to_le_bytes());
    write(&sandbox, "Modelfile", "FROM ./single\n");
    let made = sandbox.run(&["create", "exact", "--quantize", "f32"]).ok();
    assert!(!made.stderr.contains("quantizing"), "{made:?}");
    assert_eq!(
        show(&sandbox, "exact")["details"]["quantization_level"],
        "F32"
    );
    assert_whole(&sandbox);
}
