//! The store through its public interface, over trees that other programs left behind.

use std::{
    env,
    fs::{self, Permissions},
    io::Cursor,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use llmsrv_store::{Digest, Error, Layer, LayerKind, Manifest, OpenOptions, Store};
use serde_json::json;

use crate::support::{
    CONFIG, Gguf, MODEL, Ollama, default_of, embedded, files, gguf, listed, name, set_age,
};

fn open(root: &Path) -> Store {
    Store::open(root, OpenOptions::default()).unwrap()
}

fn minutes(n: u64) -> Duration {
    Duration::from_mins(n)
}

/// A store with one model of every kind of layer, and names of every form.
fn ollama_store(root: &Path) -> Vec<u8> {
    let ollama = Ollama(root);
    let layer = |kind: &str, text: &str| {
        ollama.layer(
            &format!("application/vnd.ollama.image.{kind}"),
            text.as_bytes(),
        )
    };
    let config = ollama.layer(
        CONFIG,
        br#"{"model_format":"gguf","model_family":"llama","model_families":["llama","clip"],"model_type":"8.0B",
             "file_type":"Q4_K_M","architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}"#,
    );
    let layers = [
        ollama.layer(MODEL, &gguf("registry")),
        layer("template", "{{ .Prompt }}"),
        layer("params", r#"{"stop":["<|a|>","<|b|>"],"temperature":0.7}"#),
        layer("license", "First license"),
        layer("license", "Second license"),
        layer("system", "You are Ünïcode."),
        layer("projector", "projector bytes"),
        layer("messages", r#"[{"role":"user","content":"hi"}]"#),
    ];
    let manifest = ollama.manifest(
        "registry.ollama.ai/library/llama3/8b",
        minutes(4),
        &config,
        &layers,
    );
    ollama.plain_model("registry.ollama.ai/someone/Tuned/latest", 3, &gguf("tuned"));
    ollama.plain_model("hf.co/User/Repo-GGUF/Q4_K_M", 2, &gguf("hub"));
    ollama.plain_model("localhost:5000/team/model.v1/V2", 1, &gguf("own"));
    manifest
}

#[test]
fn a_store_of_ollama_works_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = ollama_store(folder.path());
    let store = open(folder.path());
    assert_eq!(
        listed(&store),
        [
            "localhost:5000/team/model.v1:V2",
            "hf.co/User/Repo-GGUF:Q4_K_M",
            "someone/Tuned:latest",
            "default:latest",
            "llama3:8b"
        ]
    );
    let model = store.model(&name("LLAMA3:8B")).unwrap();
    assert_eq!(
        model.entry.name.full(),
        "registry.ollama.ai/library/llama3:8b"
    );
    assert_eq!(model.entry.digest, Digest::of(&manifest));
    assert_eq!(model.entry.size, Manifest::parse(&manifest).unwrap().size());
    let config = &model.entry.config;
    assert_eq!(
        (config.family.as_str(), config.families.len()),
        ("llama", 2)
    );
    assert_eq!(
        (config.parameter_size.as_str(), config.quantization.as_str()),
        ("8.0B", "Q4_K_M")
    );
    assert_eq!(
        (config.context_length, config.embedding_length),
        (Some(4096), Some(32))
    );
    assert_eq!(fs::read(&model.weights).unwrap(), gguf("registry"));
    assert_eq!(fs::read(&model.projectors[0]).unwrap(), b"projector bytes");
    assert_eq!(model.template.as_deref(), Some("{{ .Prompt }}"));
    assert_eq!(model.system.as_deref(), Some("You are Ünïcode."));
    assert_eq!(model.license, ["First license", "Second license"]);
    assert_eq!(
        json!(model.parameters),
        json!({ "stop": ["<|a|>", "<|b|>"], "temperature": 0.7 })
    );
    assert_eq!(model.messages, [json!({ "role": "user", "content": "hi" })]);
    assert_eq!(store.manifest_bytes(&name("llama3:8b")).unwrap(), manifest);
}

#[test]
fn parts_with_too_many_values_are_refused_before_they_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    let values = format!("[{}[]]", "[],".repeat(1 << 20));
    for (kind, text) in [
        ("messages", values.clone()),
        ("params", format!(r#"{{"stop":{values}}}"#)),
    ] {
        let part = ollama.layer(
            &format!("application/vnd.ollama.image.{kind}"),
            text.as_bytes(),
        );
        let layers = [ollama.layer(MODEL, &gguf(kind)), part];
        let config = ollama.layer(CONFIG, b"{}");
        ollama.manifest(&format!("h/n/{kind}/t"), minutes(1), &config, &layers);
    }
    let store = open(folder.path());
    for kind in ["messages", "params"] {
        let error = store.model(&name(&format!("h/n/{kind}:t"))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("more than 100000 values"), "{text}");
    }
    let listed = listed(&store).join(" ");
    assert!(
        listed.contains("messages") && listed.contains("params"),
        "{listed}"
    );
}

#[test]
fn facts_come_from_the_weights_where_the_config_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    ollama.plain_model("registry.ollama.ai/library/text/latest", 2, &gguf("text"));
    let vectors = Gguf {
        architecture: "bert",
        name: "v",
        n_rows: 40_000,
        pools: true,
    };
    ollama.plain_model(
        "registry.ollama.ai/library/vectors/latest",
        1,
        &vectors.bytes(),
    );
    ollama.plain_model(
        "registry.ollama.ai/library/noise/latest",
        3,
        b"no model file at all",
    );
    let store = open(folder.path());
    for _ in 0..2 {
        let config = store.find(&name("text")).unwrap().config;
        assert_eq!(config.format, "gguf");
        assert_eq!(
            (config.family.as_str(), config.families),
            ("llama", vec!["llama".to_owned()])
        );
        assert_eq!(
            (config.parameter_size.as_str(), config.quantization.as_str()),
            ("2K", "F32")
        );
        assert_eq!(
            (config.context_length, config.embedding_length),
            (Some(4096), Some(32))
        );
        assert!(!config.embeds_only);
        let config = store.find(&name("vectors")).unwrap().config;
        assert_eq!(
            (config.family.as_str(), config.parameter_size.as_str()),
            ("bert", "1.28M")
        );
        assert!(config.embeds_only);
        assert_eq!(store.find(&name("noise")).unwrap().config.family, "");
    }
    assert_eq!(
        default_of(&store).as_deref(),
        Some("text:latest"),
        "the others give vectors, or nothing"
    );
}

#[test]
fn models_that_are_not_whole_are_left_out_but_can_be_removed() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    ollama.plain_model("h/n/whole/t", 1, b"whole");
    ollama.plain_model("h/n/cut/t", 1, b"cut short");
    ollama.plain_model("h/n/dangling/t", 1, b"gone");
    ollama.manifest(
        "h/n/tensors/t",
        minutes(1),
        &ollama.layer(CONFIG, b"{}"),
        &[],
    );
    ollama.manifest(
        "h/n/remote/t",
        minutes(1),
        &ollama.layer(CONFIG, br#"{"remote_host":"x"}"#),
        &[],
    );
    fs::write(folder.path().join("manifests/h/n/whole/broken"), "{").unwrap();
    fs::write(folder.path().join("manifests/h/n/whole/.DS_Store"), "x").unwrap();
    let blob = |content: &[u8]| {
        folder
            .path()
            .join("blobs")
            .join(Digest::of(content).file_name())
    };
    fs::remove_file(blob(b"gone")).unwrap();
    fs::write(blob(b"cut short"), "cut").unwrap();

    let store = open(folder.path());
    assert_eq!(listed(&store), ["default:latest", "h/n/whole:t"]);
    for (text, expected) in [
        ("h/n/cut:t", "damaged"),
        ("h/n/dangling:t", "damaged"),
        ("h/n/whole:broken", "damaged"),
        ("h/n/tensors:t", "cannot be used here"),
        ("h/n/remote:t", "not found"),
        ("h/n/none:t", "not found"),
    ] {
        let error = store.find(&name(text)).unwrap_err().to_string();
        assert!(
            error.contains(expected) && !error.contains(folder.path().to_str().unwrap()),
            "{text}: {error}"
        );
    }
    for text in [
        "h/n/cut:t",
        "h/n/dangling:t",
        "h/n/whole:broken",
        "h/n/tensors:t",
        "h/n/remote:t",
    ] {
        store.delete(&name(text)).unwrap();
    }
    assert_eq!(listed(&store), ["default:latest", "h/n/whole:t"]);
    store.delete(&name("h/n/whole:t")).unwrap();
    assert!(matches!(
        store.delete(&name("h/n/whole:t")),
        Err(Error::NotFound { .. })
    ));
    assert!(listed(&store).is_empty());
}

#[test]
fn a_model_is_made_of_blobs_and_a_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let weights = gguf("made");
    let digest = Digest::of(&weights);
    assert_eq!(store.blob_size(&digest).unwrap(), None);
    assert!(matches!(
        store.put_blob(&digest, &mut Cursor::new(b"other")),
        Err(Error::DigestMismatch { expected, .. }) if expected == digest
    ));
    let layer = Layer::new(LayerKind::Model, digest, weights.len() as u64);
    let config = store
        .put_layer(LayerKind::Config, &mut Cursor::new(b"{}"))
        .unwrap();
    let manifest = Manifest::new(config.clone(), vec![layer]);
    assert!(matches!(
        store.put_manifest(&name("made"), &manifest.to_bytes()),
        Err(Error::MissingBlob { digest: missing }) if missing == digest
    ));
    assert_eq!(
        store.put_blob(&digest, &mut Cursor::new(&weights)).unwrap(),
        weights.len() as u64
    );
    assert_eq!(
        store.blob_size(&digest).unwrap(),
        Some(weights.len() as u64)
    );
    assert_eq!(fs::read(store.blob_path(&digest)).unwrap(), weights);
    let wrong_size = Manifest::new(config, vec![Layer::new(LayerKind::Model, digest, 1)]);
    assert!(
        store
            .put_manifest(&name("made"), &wrong_size.to_bytes())
            .is_err()
    );
    assert!(store.put_manifest(&name("made"), b"no manifest").is_err());
    assert!(listed(&store).is_empty());

    // Odd spacing stays as it is: the digest is that of the bytes.
    let bytes = [b" ", manifest.to_bytes().as_slice(), b"\n"].concat();
    assert_eq!(
        store.put_manifest(&name("Made"), &bytes).unwrap(),
        Digest::of(&bytes)
    );
    assert_eq!(store.manifest_bytes(&name("made")).unwrap(), bytes);
    assert_eq!(listed(&store), ["default:latest", "Made:latest"]);
}

#[test]
fn copies_share_blobs_and_the_last_one_takes_them_along() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    ollama.plain_model("registry.ollama.ai/library/one/latest", 2, &gguf("one"));
    ollama.plain_model("registry.ollama.ai/library/two/latest", 1, &gguf("two"));
    let store = open(folder.path());
    let before = files(folder.path());
    store.copy(&name("ONE"), &name("one:latest")).unwrap();
    assert_eq!(files(folder.path()), before, "onto itself");
    assert!(matches!(
        store.copy(&name("none"), &name("x")),
        Err(Error::NotFound { .. })
    ));

    store.copy(&name("One"), &name("me/Copy:v1")).unwrap();
    let [one, copy] = ["one", "me/copy:V1"].map(|text| store.find(&name(text)).unwrap());
    assert_eq!((one.digest, one.size), (copy.digest, copy.size));
    assert!(copy.modified > one.modified);
    assert_eq!(copy.name.to_string(), "me/Copy:v1");

    // Replacing a model drops what only it needed.
    let blob_of = |text: &str| store.blob_path(&Digest::of(&gguf(text)));
    assert!(blob_of("two").exists());
    store.copy(&name("one"), &name("TWO")).unwrap();
    assert!(!blob_of("two").exists());
    assert_eq!(
        store.find(&name("two")).unwrap().name.to_string(),
        "two:latest"
    );

    for text in ["one", "two"] {
        store.delete(&name(text)).unwrap();
        assert!(blob_of("one").exists());
    }
    store.delete(&name("me/copy:v1")).unwrap();
    assert!(files(folder.path()).is_empty());
    assert_eq!(
        fs::read_dir(folder.path().join("manifests"))
            .unwrap()
            .count(),
        0,
        "empty folders go too"
    );
}

#[test]
fn opening_tidies_up() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    ollama.plain_model("h/n/m/t", 1, b"weights");
    let blobs = folder.path().join("blobs");
    let [kept, old, young] = [b"weights".as_slice(), b"old", b"young"].map(Digest::of);
    fs::rename(blobs.join(kept.file_name()), blobs.join(kept.to_string())).unwrap();
    ollama.layer("", b"old");
    ollama.layer("", b"young");
    set_age(&blobs.join(old.file_name()), minutes(90));

    let options = OpenOptions {
        prune: false,
        ..OpenOptions::default()
    };
    let store = Store::open(folder.path(), options).unwrap();
    assert_eq!(store.find(&name("h/n/m:t")).unwrap().size, 9);
    assert!(blobs.join(kept.file_name()).exists() && blobs.join(old.file_name()).exists());
    open(folder.path());
    assert!(!blobs.join(old.file_name()).exists());
    assert!(blobs.join(young.file_name()).exists());

    // A blob that somebody has just asked for is about to be used.
    set_age(&blobs.join(young.file_name()), minutes(90));
    assert_eq!(store.blob_size(&young).unwrap(), Some(5));
    open(folder.path());
    assert!(blobs.join(young.file_name()).exists());
}

#[test]
fn opening_keeps_what_has_come_of_a_blob() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let digest = Digest::of(b"weights");
    let receive = || store.partial_blob(&digest, 7, 4).unwrap().unwrap();
    let age = |end: &str| {
        let name = format!("{}-partial{end}", digest.file_name());
        set_age(&folder.path().join("blobs").join(name), minutes(90));
    };
    let partial = receive();
    partial.write(0, b"weig").unwrap();
    drop(partial);
    // The first part was complete long ago; bytes of others came just now.
    age("-0");
    open(folder.path());
    assert_eq!(store.partial_bytes(&digest, 7), 4);

    // A transfer that is held up.
    let partial = receive();
    ["", "-0", "-1"].into_iter().for_each(age);
    open(folder.path());
    partial.write(1, b"hts").unwrap();
    partial.commit().unwrap();
    assert_eq!(store.blob_size(&digest).unwrap(), Some(7));
}

#[test]
fn a_second_store_is_read_and_never_written() {
    let [own, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let theirs = Ollama(other.path());
    theirs.plain_model(
        "registry.ollama.ai/library/theirs/latest",
        2,
        &gguf("theirs"),
    );
    theirs.plain_model(
        "registry.ollama.ai/library/Both/latest",
        1,
        &gguf("their both"),
    );
    Ollama(own.path()).plain_model(
        "registry.ollama.ai/library/both/latest",
        3,
        &gguf("own both"),
    );
    let before = files(other.path());
    let options = OpenOptions {
        fallback: Some(other.path().to_owned()),
        ..OpenOptions::default()
    };
    let store = Store::open(own.path(), options.clone()).unwrap();

    assert_eq!(
        listed(&store),
        ["theirs:latest", "default:latest", "both:latest"]
    );
    let model = store.model(&name("theirs")).unwrap();
    assert!(model.entry.read_only && model.weights.starts_with(other.path()));
    assert!(!store.find(&name("both")).unwrap().read_only);
    assert!(matches!(
        store.delete(&name("theirs")),
        Err(Error::ReadOnly { .. })
    ));
    store.copy(&name("theirs"), &name("mine")).unwrap();
    store.copy(&name("theirs"), &name("theirs")).unwrap();
    store.delete(&name("both")).unwrap();
    assert!(
        store.find(&name("both")).unwrap().read_only,
        "theirs shows again"
    );
    assert_eq!(files(other.path()), before);

    // The copy outlives the other store.
    drop(other);
    assert_eq!(listed(&store), ["default:latest", "mine:latest"]);
    assert_eq!(
        fs::read(store.model(&name("mine")).unwrap().weights).unwrap(),
        gguf("theirs")
    );
    let same = OpenOptions {
        fallback: Some(own.path().join(".")),
        ..options
    };
    assert_eq!(
        listed(&Store::open(own.path(), same).unwrap()),
        ["default:latest", "mine:latest"]
    );
}

#[test]
fn default_stands_for_the_same_model_until_the_user_chooses_another() {
    let folder = tempfile::tempdir().unwrap();
    let ollama = Ollama(folder.path());
    let store = open(folder.path());
    assert!(listed(&store).is_empty());
    assert!(matches!(
        store.find(&name("default")),
        Err(Error::NotFound { .. })
    ));
    ollama.plain_model("registry.ollama.ai/library/old/latest", 9, &gguf("old"));
    ollama.plain_model("registry.ollama.ai/library/new/latest", 5, &gguf("new"));
    assert_eq!(default_of(&store).as_deref(), Some("old:latest"));
    let (default, new) = (
        store.model(&name("Default")).unwrap(),
        store.model(&name("old")).unwrap(),
    );
    assert_eq!(default.entry.name.to_string(), "default:latest");
    assert_eq!(
        (default.entry.digest, default.entry.size, default.weights),
        (new.entry.digest, new.entry.size, new.weights)
    );
    let error = store.delete(&name("default")).unwrap_err();
    assert!(
        matches!(&error, Error::Alias { target, .. } if **target == name("old")),
        "{error}"
    );
    store.copy(&name("default"), &name("old")).unwrap();
    assert_eq!(
        listed(&store),
        ["new:latest", "default:latest", "old:latest"]
    );

    // Neither a new model nor a copy changes it; choosing does, also over a model of that name.
    ollama.plain_model("registry.ollama.ai/library/default/latest", 2, &gguf("own"));
    assert_eq!(default_of(&store).as_deref(), Some("itself"));
    store.copy(&name("new"), &name("default")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("new:latest"));
    store.copy(&name("old"), &name("newest")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("new:latest"));
    // One that is removed is not stood for any more.
    store.delete(&name("newest")).unwrap();
    store.copy(&name("old"), &name("default")).unwrap();
    assert_eq!(
        default_of(&open(folder.path())).as_deref(),
        Some("old:latest")
    );
    assert_eq!(
        listed(&store),
        ["new:latest", "default:latest", "old:latest"]
    );

    let configured = |text: &str| {
        let options = OpenOptions {
            default_model: Some(name(text)),
            ..OpenOptions::default()
        };
        Store::open(folder.path(), options).unwrap()
    };
    assert_eq!(
        default_of(&configured("NEW")).as_deref(),
        Some("new:latest")
    );
    assert_eq!(default_of(&configured("missing")), None);
    assert_eq!(listed(&configured("missing")), ["new:latest", "old:latest"]);
    store.delete(&name("default")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("old:latest"));
}

#[test]
fn looking_at_a_store_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let look = |root: &std::path::Path| {
        let options = OpenOptions {
            look_only: true,
            ..OpenOptions::default()
        };
        listed(&Store::open(root, options).unwrap())
    };
    let (nowhere, empty) = (folder.path().join("nowhere"), folder.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    assert_eq!(look(&nowhere), [""; 0]);
    assert!(!nowhere.exists());
    assert_eq!(look(&empty), [""; 0]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    Ollama(&empty).plain_model("registry.ollama.ai/library/a/latest", 1, &gguf("a"));
    assert_eq!(look(&empty), ["default:latest", "a:latest"]);
    assert!(!empty.join(".llmsrv.lock").exists());
}

#[test]
fn a_place_where_no_store_can_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for root in [file.clone(), file.join("below")] {
        let error = Store::open(&root, OpenOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Open { .. }));
        assert!(error.to_string().contains(&root.display().to_string()));
    }
}

#[test]
fn a_store_that_may_only_be_read_is_read() {
    let folder = tempfile::tempdir().unwrap();
    ollama_store(folder.path());
    let set_modes = |folder_mode, file_mode| {
        let mut folders = vec![folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    fs::set_permissions(&path, Permissions::from_mode(file_mode)).unwrap();
                }
            }
            fs::set_permissions(&folder, Permissions::from_mode(folder_mode)).unwrap();
        }
    };
    set_modes(0o555, 0o444);
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", "store::read_only_worker", "--ignored"])
        .env("STORE_ROOT", folder.path());
    // Nothing is forbidden to root: be nobody.
    if fs::metadata(folder.path()).unwrap().uid() == 0 {
        child.uid(65534).gid(65534);
    }
    let output = child.output().unwrap();
    set_modes(0o755, 0o644);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
#[ignore = "the other process of a_store_that_may_only_be_read_is_read"]
fn read_only_worker() {
    let Some(root) = env::var_os("STORE_ROOT") else {
        return;
    };
    let store = open(Path::new(&root));
    assert_eq!(listed(&store).len(), 5);
    assert!(store.model(&name("llama3:8b")).is_ok());
    let weights = gguf("new");
    let tried = [
        store.copy(&name("llama3:8b"), &name("x")),
        store.delete(&name("llama3:8b")),
        store
            .put_blob(&Digest::of(&weights), &mut weights.as_slice())
            .map(drop),
        store
            .install_embedded(&embedded("tiny", &weights))
            .map(drop),
    ];
    for result in tried {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Io { .. })
                && !error.to_string().contains(store.root().to_str().unwrap()),
            "{error}"
        );
    }
    assert_eq!(listed(&store).len(), 5);
}

#[test]
fn a_file_becomes_a_blob_without_being_copied() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("store"));
    let file = folder.path().join("model.gguf");
    fs::write(&file, b"bytes").unwrap();
    set_age(&file, minutes(600));
    let link = folder.path().join("link.gguf");
    std::os::unix::fs::symlink("model.gguf", &link).unwrap();
    let digest = Digest::of(b"bytes");
    for path in [&link, &file] {
        store.link_blob(path, &digest).unwrap();
    }
    let metadata = fs::symlink_metadata(store.blob_path(&digest)).unwrap();
    assert_eq!(metadata.ino(), fs::metadata(&file).unwrap().ino());
    assert!(
        metadata.modified().unwrap().elapsed().unwrap() < minutes(1),
        "young enough for every prune"
    );
    let before = files(folder.path());
    for path in [
        folder.path(),
        &folder.path().join("none"),
        Path::new("/proc/version"),
    ] {
        assert!(
            store.link_blob(path, &Digest::of(b"other")).is_err(),
            "{}",
            path.display()
        );
    }
    assert_eq!(files(folder.path()), before);
}

#[test]
fn a_file_that_others_write_becomes_a_blob_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let file = store.blob_file().unwrap();
    fs::write(file.path(), b"bytes").unwrap();
    assert_eq!(file.commit().unwrap(), (Digest::of(b"bytes"), 5));
    assert_eq!(
        fs::read(store.blob_path(&Digest::of(b"bytes"))).unwrap(),
        b"bytes"
    );
    let before = files(folder.path());
    let abandoned = store.blob_file().unwrap();
    fs::write(abandoned.path(), b"other").unwrap();
    drop(abandoned);
    let lost = store.blob_file().unwrap();
    fs::remove_file(lost.path()).unwrap();
    assert!(matches!(lost.commit(), Err(Error::Io { .. })));
    assert_eq!(files(folder.path()), before);
}
