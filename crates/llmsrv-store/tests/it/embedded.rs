//! The embedded model: when it is put into the store, and when it is not.

use std::{fs, path::Path, time::Duration};

use llmsrv_store::{Digest, Embedded, Error, Installed, OpenOptions, Store};

use crate::support::{Ollama, default_of, embedded, files, gguf, listed, name, set_age};

fn open(root: &Path) -> Store {
    Store::open(root, OpenOptions::default()).unwrap()
}

/// A user's model: a copy with weights of its own.
fn add_user_model(root: &Path, model: &str) {
    Ollama(root).plain_model(
        &format!("registry.ollama.ai/library/{model}/latest"),
        1,
        &gguf(model),
    );
}

#[test]
fn the_model_of_this_program_is_what_its_description_says() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/embedded");
    let toml = fs::read_to_string(assets.join("manifest.toml")).unwrap();
    let file: toml::Table = toml.parse().unwrap();
    let weights = fs::read(assets.join(file["file"].as_str().unwrap())).unwrap();
    let embedded = Embedded::parse(&toml, &weights).unwrap();
    assert_eq!(
        embedded.digest,
        Digest::of(&weights),
        "the file and its digest belong together"
    );

    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert_eq!(store.install_embedded(&embedded).unwrap(), Installed::Added);
    let model = store.model(&name("default")).unwrap();
    assert_eq!(model.entry.stands_for, Some(embedded.name.clone()));
    assert_eq!(fs::read(&model.weights).unwrap(), weights);
    assert_eq!(model.parameters, embedded.parameters);
    assert_eq!(model.license.as_slice(), embedded.license.as_slice());
    let config = &model.entry.config;
    assert!(
        !config.family.is_empty()
            && !config.parameter_size.is_empty()
            && !config.quantization.is_empty()
    );
    assert!(config.context_length.is_some() && config.embedding_length.is_some());
}

#[test]
fn installing_again_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let weights = gguf("v1");
    let store = open(folder.path());
    assert_eq!(
        store.install_embedded(&embedded("tiny", &weights)).unwrap(),
        Installed::Added
    );
    assert_eq!(listed(&store), ["default:latest", "tiny:latest"]);
    let times = || -> Vec<_> {
        let paths = files(folder.path())
            .into_iter()
            .chain([".llmsrv-embedded.json".into()]);
        paths
            .map(|path| {
                fs::metadata(folder.path().join(&path))
                    .unwrap()
                    .modified()
                    .unwrap()
            })
            .collect()
    };
    let before = times();
    assert_eq!(
        open(folder.path())
            .install_embedded(&embedded("tiny", &weights))
            .unwrap(),
        Installed::Present
    );
    assert_eq!(times(), before);
}

#[test]
fn another_version_replaces_the_old_one_but_nothing_of_the_users() {
    let folder = tempfile::tempdir().unwrap();
    let [v1, v2, v3] = ["v1", "v2", "v3"].map(gguf);
    let store = open(folder.path());
    store.install_embedded(&embedded("tiny", &v1)).unwrap();
    assert_eq!(
        store.install_embedded(&embedded("tiny", &v2)).unwrap(),
        Installed::Replaced
    );
    assert_eq!(listed(&store), ["default:latest", "tiny:latest"]);
    assert!(!store.blob_path(&Digest::of(&v1)).exists());

    // Under another name: the old name goes.
    assert_eq!(
        store.install_embedded(&embedded("small", &v3)).unwrap(),
        Installed::Replaced
    );
    assert_eq!(listed(&store), ["default:latest", "small:latest"]);

    // A copy is the user's and stays; so does a model that took the name.
    store.copy(&name("small"), &name("mine")).unwrap();
    add_user_model(folder.path(), "user");
    store.copy(&name("user"), &name("small")).unwrap();
    assert_eq!(
        store.install_embedded(&embedded("small", &v1)).unwrap(),
        Installed::NameTaken
    );
    let digests = ["user", "small"].map(|text| store.find(&name(text)).unwrap().digest);
    assert_eq!(digests[0], digests[1]);
    assert!(store.find(&name("mine")).is_ok());
}

#[test]
fn a_removed_model_stays_removed_unless_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let [v1, v2] = ["v1", "v2"].map(gguf);
    let store = open(folder.path());
    store.install_embedded(&embedded("tiny", &v1)).unwrap();
    add_user_model(folder.path(), "user");
    assert_eq!(default_of(&store).as_deref(), Some("tiny:latest"));
    store.delete(&name("tiny")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("user:latest"));
    for (model, weights) in [("tiny", &v1), ("tiny", &v2), ("small", &v2)] {
        assert_eq!(
            store.install_embedded(&embedded(model, weights)).unwrap(),
            Installed::RemovedByUser
        );
    }
    assert_eq!(listed(&store), ["default:latest", "user:latest"]);
    store.delete(&name("user")).unwrap();
    assert!(listed(&store).is_empty());
    assert_eq!(
        store.install_embedded(&embedded("tiny", &v2)).unwrap(),
        Installed::Added
    );
    assert_eq!(default_of(&store).as_deref(), Some("tiny:latest"));
}

#[test]
fn default_is_the_embedded_model_until_another_one_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    add_user_model(folder.path(), "user");
    let weights = gguf("v1");
    let store = open(folder.path());
    store.install_embedded(&embedded("tiny", &weights)).unwrap();
    assert_eq!(
        listed(&store),
        ["default:latest", "tiny:latest", "user:latest"]
    );
    assert_eq!(default_of(&store).as_deref(), Some("tiny:latest"));
    store.copy(&name("user"), &name("default")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("user:latest"));
    store.copy(&name("tiny"), &name("default")).unwrap();
    assert_eq!(default_of(&store).as_deref(), Some("tiny:latest"));
}

#[test]
fn a_lost_blob_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let weights = gguf("v1");
    let store = open(folder.path());
    store.install_embedded(&embedded("tiny", &weights)).unwrap();
    fs::write(store.blob_path(&Digest::of(&weights)), "cut").unwrap();
    assert_eq!(
        store.install_embedded(&embedded("tiny", &weights)).unwrap(),
        Installed::Present
    );
    assert_eq!(
        fs::read(store.model(&name("tiny")).unwrap().weights).unwrap(),
        weights
    );
}

#[test]
fn every_interruption_is_completed_by_the_next_start() {
    let [v1, v2] = ["v1", "v2"].map(gguf);
    let finished = || {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        store.install_embedded(&embedded("tiny", &v1)).unwrap();
        store.install_embedded(&embedded("small", &v2)).unwrap();
        (folder, store)
    };
    let (folder, _) = finished();
    let wanted = files(folder.path());

    // Blobs only, as if the manifest had not come to be.
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store
        .put_blob(&Digest::of(&v2), &mut v2.as_slice())
        .unwrap();
    assert_eq!(
        store.install_embedded(&embedded("small", &v2)).unwrap(),
        Installed::Added
    );
    assert_eq!(files(folder.path()), wanted);

    // The new manifest is there; the old one and its marker too.
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let marker = folder.path().join(".llmsrv-embedded.json");
    store.install_embedded(&embedded("small", &v2)).unwrap();
    fs::remove_file(&marker).unwrap();
    store.install_embedded(&embedded("tiny", &v1)).unwrap();
    set_age(&marker, Duration::from_secs(9));
    assert_eq!(listed(&store).len(), 3);
    assert_eq!(
        store.install_embedded(&embedded("small", &v2)).unwrap(),
        Installed::Present
    );
    assert_eq!(files(folder.path()), wanted);
    assert_eq!(
        store.install_embedded(&embedded("small", &v2)).unwrap(),
        Installed::Present
    );

    // A marker that was damaged.
    let (folder, store) = finished();
    fs::write(folder.path().join(".llmsrv-embedded.json"), "{").unwrap();
    assert_eq!(
        store.install_embedded(&embedded("small", &v2)).unwrap(),
        Installed::Present
    );
    assert_eq!(files(folder.path()), wanted);
}

#[test]
fn mistakes_in_the_description_are_told() {
    let weights = gguf("v1");
    let hex = Digest::of(&weights).hex();
    let good = format!("name = 'a'\nfile = 'f'\nsha256 = '{hex}'\ndescription = ''\n");
    assert!(Embedded::parse(&good, &weights).is_ok());
    for (bad, expected) in [
        (good.replace("'a'", "'../a'"), "invalid model name"),
        (good.replace("file", "files"), "unknown field"),
        (good.replace("name = 'a'\n", ""), "missing field"),
        (good.replace(&hex, "00"), "digest"),
        ("name".into(), "invalid embedded model"),
    ] {
        let error = Embedded::parse(&bad, &weights).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let not_gguf = embedded("tiny", b"not a model");
    assert!(matches!(
        store.install_embedded(&not_gguf),
        Err(Error::InvalidEmbedded { .. })
    ));
    let mut wrong = embedded("tiny", &weights);
    wrong.digest = Digest::of(b"other");
    assert!(matches!(
        store.install_embedded(&wrong),
        Err(Error::DigestMismatch { .. })
    ));
    assert!(listed(&store).is_empty());
}
