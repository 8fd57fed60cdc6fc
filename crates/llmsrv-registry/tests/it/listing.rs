//! What places offer: the hub by its search, registries by their catalog.

use llmsrv_registry::{Error, Offer};
use serde_json::{Value, json};

use crate::{
    fake::{Act, Fake},
    support::{House, Model},
};

fn house(hub: &Fake) -> House {
    let url = hub.url("");
    House::with(|settings| settings.hub_url = url.parse().unwrap())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn file(path: &str, size: u64) -> Value {
    json!({"type": "file", "path": path, "size": size, "lfs": {"oid": "0".repeat(64), "size": size}})
}

#[tokio::test]
async fn the_hub_is_asked_for_what_is_pulled_most() {
    let hub = Fake::start().await;
    let found = json!([
        {
            "id": "someone/Some-4B-GGUF", "pipeline_tag": "image-text-to-text",
            "tags": ["gguf", "license:apache-2.0"],
            "gguf": {"architecture": "qwen3", "context_length": 40960, "total": 4,
                "chat_template": "{% if tools %}<think>{% endif %}"},
        },
        {"id": "someone/gone", "tags": []},
        {"id": "../nonsense", "gguf": {"architecture": "llama"}},
        {"id": "someone/Embed-GGUF", "pipeline_tag": "feature-extraction"},
    ]);
    hub.put("/api/models", found.to_string());
    let files = json!([
        file("Some-4B-Q8_0.gguf", 4_000),
        file("Some-4B-Q4_K_M.gguf", 2_000),
        file("mmproj-F16.gguf", 100),
        file("README.md", 1),
    ]);
    hub.put(
        "/api/models/someone/Some-4B-GGUF/tree/main",
        files.to_string(),
    );
    let files = json!([file("embed-F16.gguf", 700)]);
    hub.put(
        "/api/models/someone/Embed-GGUF/tree/main",
        files.to_string(),
    );
    let house = house(&hub);
    let seen = std::sync::Mutex::new(Vec::new());
    let report = |done, all| seen.lock().unwrap().push((done, all));
    let asked_for = words(&["some", "4b"]);
    let offers = house.registry.offers("hf.co", &asked_for, false, &report);
    let offers = offers.await.unwrap();

    let asked = &hub.log()[0];
    assert_eq!(asked.path, "/api/models");
    assert!(
        asked.query.contains("search=some+4b&sort=downloads"),
        "{asked:?}"
    );
    let some = |quantization: &str, bytes| Offer {
        name: format!("hf.co/someone/Some-4B-GGUF:{quantization}"),
        bytes,
        architecture: Some("qwen3".into()),
        context: Some(40_960),
        licence: Some("apache-2.0".into()),
        capabilities: words(&["tools", "thinking", "vision"]),
    };
    let embeds = Offer {
        name: "hf.co/someone/Embed-GGUF:F16".into(),
        bytes: 700,
        capabilities: words(&["embedding"]),
        ..Offer::default()
    };
    assert_eq!(offers, [some("Q4_K_M", 2_100), some("Q8_0", 4_100), embeds]);
    assert_eq!(seen.lock().unwrap().last(), Some(&(4, 4)));
}

#[tokio::test]
async fn a_registry_is_read_page_by_page() {
    let (registry, model) = (Fake::start().await, Model::new(50));
    model.serve(&registry);
    let next = registry.url("/more");
    registry.hook(move |seen| match seen.path.as_str() {
        "/v2/_catalog" => Act::Answer(
            200,
            vec![("link", format!("<{next}>; rel=\"next\""))],
            r#"{"repositories": ["a/b", "an/image", "a/b/c", "x/y"]}"#.to_owned(),
        ),
        _ => Act::Normal,
    });
    registry.put("/more", r#"{"repositories": ["a/last"]}"#);
    registry.put(
        "/v2/a/b/tags/list",
        r#"{"name": "a/b", "tags": ["t", "gone", "no/tag"]}"#,
    );
    registry.put(
        "/v2/a/last/tags/list",
        r#"{"name": "a/last", "tags": null}"#,
    );
    let image = json!({"schemaVersion": 2, "layers": []}).to_string();
    registry.put("/v2/an/image/manifests/1", image);
    registry.put("/v2/an/image/tags/list", r#"{"tags": ["1"]}"#);
    let house = House::new();
    let asked_for = words(&["a"]);
    let offers = house
        .registry
        .offers(&registry.host, &asked_for, false, &|_, _| {});
    let offers = offers.await.unwrap();
    let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
    assert_eq!(names, [format!("{}/a/b:t", registry.host)]);
    assert!(offers[0].bytes >= model.weights.len() as u64);
    assert_eq!(offers[0].architecture.as_deref(), Some("llama"));
    let paths: Vec<String> = registry.log().into_iter().map(|seen| seen.path).collect();
    assert!(!paths.iter().any(|path| path.contains("x/y")), "{paths:?}");
}

#[tokio::test]
async fn places_that_list_nothing_or_nonsense_are_named() {
    let place = Fake::start().await;
    let house = house(&place);
    let ask = |host: String| {
        let registry = house.registry.clone();
        async move { registry.offers(&host, &[], false, &|_, _| {}).await }
    };
    let error = ask(place.host.clone()).await.unwrap_err();
    assert!(matches!(error, Error::NoList { .. }), "{error}");
    for nonsense in ["{", "7", "{\"repositories\": 7}"] {
        place.put("/v2/_catalog", nonsense);
        let error = ask(place.host.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
    }
    place.put("/api/models", "[{\"id\": 7}]");
    let error = ask("hf.co".into()).await.unwrap_err();
    assert!(matches!(error, Error::Answer { .. }), "{error}");
    let error = ask("no host".into()).await.unwrap_err();
    assert!(matches!(error, Error::Host { .. }), "{error}");
}
