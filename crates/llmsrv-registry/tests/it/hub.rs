//! The Hugging Face hub, as its documentation describes it.

use llmsrv_store::{Digest, ModelName};
use serde_json::json;

use crate::{
    fake::{Act, Fake},
    support::{House, Model, SIZE},
};

fn file(path: &str, bytes: &[u8]) -> serde_json::Value {
    let oid = Digest::of(bytes).hex();
    json!({"type": "file", "path": path, "size": bytes.len(), "oid": "0123", "lfs": {"oid": oid, "size": bytes.len(), "pointerSize": 134}})
}

fn house(hub: &Fake) -> House {
    let url = hub.url("");
    House::with(|settings| {
        settings.hub_url = url.parse().unwrap();
        settings.hub_token = Some("hf_secret".into());
    })
}

#[tokio::test]
async fn the_registry_protocol_comes_first() {
    let (hub, model) = (Fake::start().await, Model::new(40));
    hub.put("/v2/u/r/manifests/Q4_K_M", model.manifest.clone());
    for (digest, bytes) in &model.blobs {
        hub.put(format!("/v2/u/r/blobs/{digest}"), bytes.clone());
    }
    let house = house(&hub);
    house.pull_named("hf.co/u/r:Q4_K_M").await.0.unwrap();
    let name: ModelName = "hf.co/u/r:Q4_K_M".parse().unwrap();
    assert_eq!(house.store.manifest_bytes(&name).unwrap(), model.manifest);
    assert!(
        hub.log()
            .iter()
            .all(|seen| seen.authorization.as_deref() == Some("Bearer hf_secret"))
    );
}

#[tokio::test]
async fn a_mirror_of_the_hub_gets_no_token() {
    let (hub, mirror, model) = (Fake::start().await, Fake::start().await, Model::new(44));
    for (path, bytes) in model
        .blobs
        .iter()
        .map(|(digest, bytes)| (format!("/v2/u/r/blobs/{digest}"), bytes))
    {
        mirror.put(path.clone(), bytes.clone());
        hub.put(path, bytes.clone());
    }
    mirror.put("/v2/u/r/manifests/latest", model.manifest.clone());
    hub.put("/v2/u/r/manifests/latest", model.manifest.clone());
    let (url, entry) = (hub.url(""), format!("hf.co={}", mirror.url("")));
    let settings = move |settings: &mut llmsrv_registry::Settings| {
        settings.hub_url = url.parse().unwrap();
        settings.hub_token = Some("hf_secret".into());
        settings.mirrors = vec![entry.parse().unwrap()];
    };
    House::with(settings.clone())
        .pull_named("hf.co/u/r")
        .await
        .0
        .unwrap();
    assert!(mirror.log().len() > 3 && hub.log().is_empty());

    // The hub stands by, and knows who asks.
    mirror.hook(|seen| {
        if seen.is_blob() {
            Act::status(404)
        } else {
            Act::Normal
        }
    });
    House::with(settings)
        .pull_named("hf.co/u/r")
        .await
        .0
        .unwrap();
    let told = |fake: &Fake| {
        fake.log()
            .iter()
            .filter(|seen| seen.authorization.is_some())
            .count()
    };
    assert_eq!((told(&mirror), told(&hub)), (0, hub.log().len()));
    assert!(hub.log().len() > 2);
}

#[tokio::test]
async fn otherwise_the_files_are_taken_with_all_their_pieces() {
    let (hub, storage) = (Fake::start().await, Fake::start().await);
    let (one, two, projector) = (
        Model::new(41).weights,
        Model::new(42).weights,
        Model::with_size(43, 1000).weights,
    );
    let names = [
        "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf",
        "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf",
        "mmproj-m-f16.gguf",
    ];
    let contents = [&one, &two, &projector];
    for (name, bytes) in names.into_iter().zip(contents) {
        hub.put(format!("/u/r/resolve/main/{name}"), bytes.clone());
        storage.put(format!("/raw/{name}"), bytes.clone());
    }
    hub.put("/u/r/resolve/main/system", "You are a test.");
    let page = json!([file("m-Q8_0.gguf", b"another"), {"type": "directory", "path": "Q4_K_M", "size": 0, "oid": "0"}, file(names[1], &two)]);
    let rest = json!([file(names[0], &one), file(names[2], &projector), {"type": "file", "path": "system", "size": 15, "oid": "0"}]);
    hub.put("/api/models/u/r/tree/main", page.to_string());
    hub.put("/page2", rest.to_string());
    let (at, next) = (storage.url("/raw/"), hub.url("/page2"));
    let first_page = page.to_string();
    hub.hook(
        move |seen| match seen.path.strip_prefix("/u/r/resolve/main/") {
            Some(name) if name != "system" => Act::Answer(
                302,
                vec![("location", format!("{at}{name}"))],
                String::new(),
            ),
            None if seen.path.starts_with("/api/") => Act::Answer(
                200,
                vec![("link", format!("<{next}>; rel=\"next\""))],
                first_page.clone(),
            ),
            None if seen.is_manifest() => Act::Answer(
                400,
                Vec::new(),
                "The specified tag is not available in the repository".into(),
            ),
            _ => Act::Normal,
        },
    );
    let house = house(&hub);
    let (result, reports) = house.pull_named("hf.co/u/r").await;
    result.unwrap();
    let steps: Vec<&str> = reports
        .iter()
        .map(|report| report.status.as_str())
        .collect();
    assert_eq!(
        (steps[0], *steps.last().unwrap()),
        ("pulling manifest", "writing manifest")
    );

    let stored = house.store.model(&"hf.co/u/r".parse().unwrap()).unwrap();
    assert_eq!(std::fs::read(&stored.weights).unwrap(), one);
    assert_eq!(stored.shards.len(), 1);
    assert_eq!(std::fs::read(&stored.shards[0]).unwrap(), two);
    assert_eq!(std::fs::read(&stored.projectors[0]).unwrap(), projector);
    assert_eq!(stored.system.as_deref(), Some("You are a test."));
    assert_eq!(stored.entry.size, stored.manifest.size());
    assert!(stored.entry.size > 2 * SIZE);
    assert!(
        storage
            .log()
            .iter()
            .all(|seen| seen.authorization.is_none())
    );
    assert!(
        hub.log()
            .iter()
            .all(|seen| seen.authorization.as_deref() == Some("Bearer hf_secret"))
    );
    house.assert_whole();
}

#[tokio::test]
async fn what_cannot_be_had_is_told() {
    let hub = Fake::start().await;
    let house = house(&hub);
    let error = house.pull_named("hf.co/u/r:Q2_K").await.0.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pull model manifest: file does not exist"
    );
    hub.put(
        "/api/models/u/r/tree/main",
        json!([file("m-Q8_0.gguf", b"x"), file("m-F16.gguf", b"y")]).to_string(),
    );
    let error = house
        .pull_named("hf.co/u/r:Q2_K")
        .await
        .0
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Q2_K") && error.contains("f16, q8_0"),
        "{error}"
    );
    hub.put(
        "/api/models/u/r/tree/main",
        json!([{"type": "file", "path": "m-Q8_0.gguf", "size": 1}]).to_string(),
    );
    let error = house
        .pull_named("hf.co/u/r")
        .await
        .0
        .unwrap_err()
        .to_string();
    assert!(error.contains("SHA-256"), "{error}");
    hub.hook(|_| {
        Act::Answer(
            401,
            vec![(
                "www-authenticate",
                "Bearer realm=\"Authentication required\"".into(),
            )],
            String::new(),
        )
    });
    let error = house
        .pull_named("hf.co/u/r")
        .await
        .0
        .unwrap_err()
        .to_string();
    assert!(error.contains("HF_TOKEN"), "{error}");
    house.assert_whole();
}
