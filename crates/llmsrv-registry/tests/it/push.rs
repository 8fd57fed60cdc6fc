//! Models going out.

use std::{sync::Mutex, time::Duration};

use llmsrv_registry::Error;
use llmsrv_store::{Digest, Layer, LayerKind, Manifest, ModelName};
use md5::{Digest as _, Md5};

use crate::{
    fake::{Act, Fake},
    support::{House, Model, PART, SIZE, ended},
};

/// Puts a model into the store under the name it has at `fake`.
fn keep(house: &House, fake: &Fake, model: &Model) -> ModelName {
    let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
    for (digest, bytes) in &model.blobs {
        house.store.put_blob(digest, &mut &bytes[..]).unwrap();
    }
    house.store.put_manifest(&name, &model.manifest).unwrap();
    name
}

async fn push(house: &House, name: &ModelName) -> (Result<(), Error>, Vec<String>) {
    let statuses = Mutex::new(Vec::new());
    let report =
        |progress: llmsrv_api::progress::Progress| statuses.lock().unwrap().push(progress.status);
    let result = house.registry.push(name, false, &report).await;
    let mut statuses = statuses.into_inner().unwrap();
    statuses.dedup();
    (result, statuses)
}

#[tokio::test]
async fn what_was_pushed_can_be_pulled() {
    let (fake, model, house) = (Fake::start().await, Model::new(30), House::new());
    let name = keep(&house, &fake, &model);
    let (result, statuses) = push(&house, &name).await;
    result.unwrap();
    let pushing = |at: usize| format!("pushing {}", &model.blobs[at].0.hex()[..12]);
    assert_eq!(
        statuses,
        [
            "retrieving manifest".into(),
            pushing(0),
            pushing(1),
            pushing(2),
            "pushing manifest".into()
        ]
    );
    assert_eq!(fake.content("/v2/a/b/manifests/t").unwrap(), model.manifest);
    let patches = fake
        .log()
        .iter()
        .filter(|seen| seen.method == "PATCH")
        .count();
    assert_eq!(patches as u64, SIZE / PART + 2);

    let other = House::new();
    other.pull(&fake).await.0.unwrap();
    other.assert_has(&fake, &model);

    // Again: everything is there.
    fake.forget();
    push(&house, &name).await.0.unwrap();
    assert!(
        fake.log()
            .iter()
            .all(|seen| seen.method == "HEAD" || seen.is_manifest())
    );
}

#[tokio::test]
async fn parts_go_where_the_registry_says_without_credentials() {
    let (fake, storage, model, house) = (
        Fake::start().await,
        Fake::start().await,
        Model::new(31),
        House::new(),
    );
    let name = keep(&house, &fake, &model);
    let (at, realm) = (storage.url("/storage/"), fake.url("/token"));
    fake.hook(move |seen| match seen.method.as_str() {
        _ if seen.path == "/token" => Act::Normal,
        _ if seen.authorization.is_none() => Act::challenge(&realm),
        "PATCH" => {
            assert_eq!(seen.headers["x-redirect-uploads"], "1");
            let to = format!(
                "{at}{}-{}",
                seen.path.replace('/', "_"),
                seen.headers["content-range"]
            );
            Act::Answer(
                307,
                vec![
                    ("location", to),
                    ("docker-upload-location", format!("{}?next", seen.path)),
                ],
                String::new(),
            )
        }
        _ => Act::Normal,
    });
    push(&house, &name).await.0.unwrap();
    let stored = storage.log();
    assert_eq!(stored.len() as u64, SIZE / PART + 2);
    assert!(
        stored
            .iter()
            .all(|seen| seen.method == "PUT" && seen.authorization.is_none())
    );

    let sums: Vec<u8> = model
        .weights
        .chunks(PART as usize)
        .flat_map(|part| Md5::digest(part).to_vec())
        .collect();
    let etag = format!("etag={}-{}", hex::encode(Md5::digest(sums)), SIZE / PART);
    let finished: Vec<String> = fake
        .log()
        .into_iter()
        .filter(|seen| seen.method == "PUT" && !seen.is_manifest())
        .map(|seen| seen.query)
        .collect();
    assert_eq!(finished.len(), 3);
    let digest = model.digest().to_string().replace(':', "%3A");
    assert!(
        finished[0].contains(&etag) && finished[0].contains(&format!("digest={digest}")),
        "{finished:?} {etag}"
    );
}

#[tokio::test]
async fn a_layer_of_another_model_is_mounted() {
    let (fake, house) = (Fake::start().await, House::new());
    let weights = house
        .store
        .put_layer(LayerKind::Model, &mut &b"weights"[..])
        .unwrap();
    let config = house
        .store
        .put_layer(LayerKind::Config, &mut &b"{}"[..])
        .unwrap();
    let from = |from: String| Layer {
        from: Some(from),
        ..weights.clone()
    };
    for (source, mounts) in [
        (format!("{}/other/base:x", fake.host), true),
        ("elsewhere.example/other/base".into(), false),
    ] {
        let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
        let manifest = Manifest::new(config.clone(), vec![from(source)]);
        house
            .store
            .put_manifest(&name, &manifest.to_bytes())
            .unwrap();
        fake.forget();
        fake.hook(|seen| {
            if seen.query.contains("mount=") {
                Act::status(201)
            } else {
                Act::Normal
            }
        });
        push(&house, &name).await.0.unwrap();
        let posts: Vec<String> = fake
            .log()
            .into_iter()
            .filter(|seen| seen.method == "POST")
            .map(|seen| seen.query)
            .collect();
        let digest = weights.digest.to_string().replace(':', "%3A");
        let expected = if mounts {
            format!("mount={digest}&from=other%2Fbase")
        } else {
            String::new()
        };
        assert_eq!(posts[0], expected);
    }
}

#[tokio::test]
async fn registries_that_know_no_parts_get_the_whole() {
    let (fake, model, house) = (Fake::start().await, Model::new(32), House::new());
    let name = keep(&house, &fake, &model);
    fake.hook(|seen| {
        if seen.method == "PATCH" {
            Act::status(405)
        } else {
            Act::Normal
        }
    });
    push(&house, &name).await.0.unwrap();
    fake.behave();
    let other = House::new();
    other.pull(&fake).await.0.unwrap();
    other.assert_has(&fake, &model);
}

/// Weights that no buffers of a connection hold, sent in one part.
const LARGE: u64 = 16 << 20;

fn house_of_large_parts(retries: u32) -> House {
    House::with(|settings| {
        settings.tuning.part_min_bytes = LARGE;
        settings.tuning.part_max_bytes = LARGE;
        settings.tuning.retries = retries;
        settings.tuning.stall = Duration::from_secs(1);
    })
}

#[tokio::test]
async fn a_registry_may_take_its_time_with_a_blob() {
    let fake = Fake::start().await;
    let (model, house) = (Model::with_size(35, LARGE), house_of_large_parts(0));
    let name = keep(&house, &fake, &model);
    // Longer than a silence may be: the bytes of a part all in all, and the answer to the whole.
    fake.hook(|seen| match seen.method.as_str() {
        "PATCH" => Act::Drip(1 << 20, Duration::from_millis(100)),
        "PUT" if seen.is_manifest() || seen.path.ends_with("/uploads/0") => {
            Act::Late(Duration::from_millis(1500))
        }
        _ => Act::Normal,
    });
    ended(push(&house, &name)).await.0.unwrap();
    let n_asked = |method: &str| {
        fake.log()
            .iter()
            .filter(|seen| seen.method == method)
            .count()
    };
    assert_eq!((n_asked("PATCH"), n_asked("PUT")), (3, 3 + 1));
    assert_eq!(fake.content("/v2/a/b/manifests/t").unwrap(), model.manifest);
}

#[tokio::test]
async fn a_place_that_takes_no_bytes_is_given_up() {
    for (way, method) in [("registry", "PATCH"), ("whole", "PUT"), ("storage", "PUT")] {
        let (fake, storage) = (Fake::start().await, Fake::start().await);
        let (model, house) = (Model::with_size(36, LARGE), house_of_large_parts(1));
        let name = keep(&house, &fake, &model);
        storage.hook(|_| Act::Mute);
        let at = storage.url("/storage/part");
        fake.hook(move |seen| match (way, seen.method.as_str()) {
            ("storage", "PATCH") => Act::redirect(at.clone()),
            ("whole", "PATCH") => Act::status(405),
            (_, "PATCH" | "PUT") => Act::Mute,
            _ => Act::Normal,
        });
        let error = ended(push(&house, &name)).await.0.unwrap_err().to_string();
        let mute = if way == "storage" { &storage } else { &fake };
        assert_eq!(error, format!("{} sends nothing", mute.host), "{way}");
        let n_asked = mute
            .log()
            .iter()
            .filter(|seen| seen.method == method)
            .count();
        assert_eq!(n_asked, 2, "{way}");
    }
}

#[tokio::test]
async fn a_push_that_breaks_is_tried_again_and_refusals_are_told() {
    let (fake, model, house) = (Fake::start().await, Model::new(33), House::new());
    let name = keep(&house, &fake, &model);
    fake.hook(|seen| {
        if seen.method == "PATCH" && seen.path.ends_with("/uploads/0") && seen.before == 2 {
            Act::status(502)
        } else {
            Act::Normal
        }
    });
    push(&house, &name).await.0.unwrap();

    let (fake, house) = (Fake::start().await, House::new());
    let name = keep(&house, &fake, &model);
    fake.hook(|seen| {
        if seen.method == "POST" {
            Act::Answer(403, Vec::new(), "read only".into())
        } else {
            Act::Normal
        }
    });
    assert_eq!(
        push(&house, &name).await.0.unwrap_err().to_string(),
        "403: read only"
    );
    house.assert_whole();

    let missing: ModelName = format!("{}/a/none", fake.host).parse().unwrap();
    let (result, statuses) = push(&house, &missing).await;
    assert!(result.unwrap_err().to_string().contains("not found"));
    assert_eq!(
        statuses,
        ["retrieving manifest", "couldn't retrieve manifest"]
    );
}

#[test]
fn digests_are_those_of_the_store() {
    let model = Model::new(34);
    assert_eq!(model.digest(), Digest::of(&model.weights));
}
