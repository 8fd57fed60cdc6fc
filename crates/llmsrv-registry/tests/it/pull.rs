//! Pulls that go well, and what they share.

use std::time::Duration;

use llmsrv_registry::{Error, Mirror};
use llmsrv_store::{Digest, ModelName};

use crate::{
    fake::{Act, Fake},
    support::{House, Model, PART, SIZE},
};

#[tokio::test]
async fn a_model_comes_in_parts_and_is_kept_byte_for_byte() {
    let (fake, model, house) = (Fake::start().await, Model::new(1), House::new());
    model.serve(&fake);
    let (result, reports) = house.pull(&fake).await;
    result.unwrap();
    house.assert_has(&fake, &model);

    let statuses: Vec<&str> = reports.iter().map(|r| r.status.as_str()).collect();
    let mut steps = statuses.clone();
    steps.dedup();
    let pulling: Vec<String> = [2, 0, 1]
        .map(|at: usize| format!("pulling {}", &model.blobs[at].0.hex()[..12]))
        .to_vec();
    let expected = [
        "pulling manifest",
        &pulling[0],
        &pulling[1],
        &pulling[2],
        "verifying sha256 digest",
        "writing manifest",
    ];
    assert_eq!(steps, expected);
    let last = reports
        .iter()
        .rfind(|r| r.digest == Some(model.digest().to_string()))
        .unwrap();
    assert_eq!((last.total, last.completed), (SIZE, SIZE));

    let weights: Vec<_> = fake
        .blob_requests()
        .into_iter()
        .filter(|seen| seen.path.ends_with(&model.digest().to_string()))
        .collect();
    assert_eq!(weights.len() as u64, SIZE / PART);
    assert!(weights.iter().all(|seen| {
        let (from, to) = seen.range.unwrap();
        from % PART == 0 && to - from + 1 == PART
    }));

    // Again: only the manifest is asked for.
    fake.forget();
    house.pull(&fake).await.0.unwrap();
    assert_eq!(fake.log().len(), 1);
}

#[tokio::test]
async fn an_oci_manifest_is_as_good() {
    let (fake, model, house) = (Fake::start().await, Model::new(2), House::new());
    model.serve(&fake);
    let oci = String::from_utf8(model.manifest.clone()).unwrap().replace(
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
    );
    fake.put("/v2/a/b/manifests/t", oci.clone());
    house.pull(&fake).await.0.unwrap();
    let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
    assert_eq!(house.store.manifest_bytes(&name).unwrap(), oci.as_bytes());
}

#[tokio::test]
async fn what_is_no_model_is_refused_before_it_is_received() {
    let (fake, house) = (Fake::start().await, House::new());
    let digest = Digest::of(b"x");
    let layer = |kind: &str, size: u64| serde_json::json!({"mediaType": format!("application/vnd.ollama.image.{kind}"), "digest": digest, "size": size});
    for (manifest, says) in [
        (serde_json::json!("text"), "cannot be used"),
        (
            serde_json::json!({"layers": [layer("license", 1)]}),
            "no weights",
        ),
        (
            serde_json::json!({"layers": [layer("model", 1 << 60)]}),
            "not enough space",
        ),
        (
            serde_json::json!({"layers": [layer("model", u64::MAX), layer("model", 5)]}),
            "not enough space",
        ),
        (
            serde_json::json!({"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}),
            "list of images",
        ),
    ] {
        fake.put("/v2/a/b/manifests/t", manifest.to_string());
        let error = house.pull(&fake).await.0.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(fake.blob_requests().is_empty());
        assert!(house.strays().is_empty());
    }
    let (result, reports) = house.pull_named(&format!("{}/a/none", fake.host)).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "pull model manifest: file does not exist"
    );
    assert_eq!(reports.len(), 1);
}

#[tokio::test]
async fn only_allowed_registries_are_asked() {
    let (fake, model) = (Fake::start().await, Model::new(3));
    model.serve(&fake);
    let house = House::with(|settings| settings.allowed = vec!["hf.co".into()]);
    let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
    assert!(matches!(
        house.pull(&fake).await.0,
        Err(Error::NotAllowed { .. })
    ));
    assert!(matches!(
        house.registry.push(&name, true, &|_| {}).await,
        Err(Error::NotAllowed { .. })
    ));
    assert!(fake.log().is_empty());
}

#[tokio::test]
async fn a_mirror_comes_first_and_the_registry_stands_by() {
    let (fake, mirror, model) = (Fake::start().await, Fake::start().await, Model::new(4));
    model.serve(&fake);
    model.serve(&mirror);
    let settings = |url: String| {
        let entry: Mirror = format!("{}={url}", fake.host).parse().unwrap();
        House::with(|settings| settings.mirrors = vec![entry])
    };
    let house = settings(mirror.url(""));
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    assert!(fake.log().is_empty());

    // A mirror with the manifest and a broken blob; then one that is not there at all.
    let digest = model.digest().to_string();
    mirror.hook(move |seen| {
        if seen.path.ends_with(&digest) {
            Act::Corrupt
        } else {
            Act::Normal
        }
    });
    let house = settings(mirror.url("/"));
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let house = settings("http://127.0.0.1:9/".into());
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
}

#[tokio::test]
async fn two_pulls_share_one_download_which_ends_with_the_last() {
    let (fake, model, house) = (Fake::start().await, Model::new(5), House::new());
    model.serve(&fake);
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(16 << 10, Duration::from_millis(60))
        } else {
            Act::Normal
        }
    });
    let name: ModelName = format!("{}/a/b:t", fake.host).parse().unwrap();
    let pull = || {
        let (registry, name) = (house.registry.clone(), name.clone());
        tokio::spawn(async move { registry.pull(&name, false, &|_| {}).await })
    };
    let until = async |what: &str, is_so: &dyn Fn() -> bool| {
        let so = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let so = tokio::time::timeout(Duration::from_secs(20), so).await;
        so.unwrap_or_else(|_| panic!("{what}"));
    };
    let (first, second) = (pull(), pull());
    // Each asks for the manifest before it joins the download.
    let n_manifests = || fake.log().iter().filter(|seen| seen.is_manifest()).count();
    let both = || n_manifests() == 2 && fake.bytes_sent() > 0;
    until("both pull", &both).await;
    first.abort();
    second.await.unwrap().unwrap();
    house.assert_has(&fake, &model);
    let of_weights = |seen: &crate::fake::Seen| seen.path.ends_with(&model.digest().to_string());
    let n_asked = |fake: &Fake| {
        fake.blob_requests()
            .iter()
            .filter(|seen| of_weights(seen))
            .count()
    };
    assert_eq!(n_asked(&fake) as u64, SIZE / PART);

    // Both leave: the transfer stops, and what came stays.
    house.store.delete(&name).unwrap();
    fake.forget();
    let (first, second) = (pull(), pull());
    let some = || house.store.partial_bytes(&model.digest(), SIZE) > 0;
    until("something came", &some).await;
    first.abort();
    second.abort();
    fake.quiet().await;
    let there = house.store.partial_bytes(&model.digest(), SIZE);
    assert!(there > 0 && there < SIZE, "{there}");
    house.assert_whole();

    fake.behave();
    fake.forget();
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    // What those who left had asked for may have come late, so no byte counts twice.
    let seen = fake.blob_requests().into_iter().filter(of_weights);
    let mut ranges: Vec<(u64, u64)> = seen.filter_map(|seen| seen.range).collect();
    ranges.sort_unstable();
    let (mut asked, mut end) = (0, 0);
    for &(from, to) in &ranges {
        asked += (to + 1).saturating_sub(from.max(end));
        end = end.max(to + 1);
    }
    assert!(asked <= SIZE - there, "{there} were there: {ranges:?}");
}

/// Gigabytes that cannot be used are not received first.
#[tokio::test]
async fn an_architecture_that_does_not_run_is_refused_before_its_weights_come() {
    let (fake, model) = (Fake::start().await, Model::new(7));
    model.serve(&fake);
    let house = House::with(|settings| {
        settings.refusal = Some(|family| Some(format!("{family} does not run here")));
    });
    let error = house.pull(&fake).await.0.unwrap_err();
    assert_eq!(error.to_string(), "llama does not run here");
    let config = model.blobs[2].0.to_string();
    let asked = fake.blob_requests();
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|seen| seen.path.ends_with(&config)));
    assert_eq!(house.strays(), Vec::<String>::new());
    // One that runs comes as always.
    let house = House::with(|settings| settings.refusal = Some(|_| None));
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
}
