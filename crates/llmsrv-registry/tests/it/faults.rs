//! Registries that misbehave. After every fault the store is whole and the next pull goes on where
//! the last one was.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use llmsrv_registry::Error;

use crate::{
    fake::{Act, Fake, Seen},
    support::{House, Model, PART, SIZE, ended},
};

/// A registry with a model, and a store without it.
async fn setting(seed: u64) -> (Fake, Model, House) {
    let (fake, model, house) = (Fake::start().await, Model::new(seed), House::new());
    model.serve(&fake);
    (fake, model, house)
}

fn weights(model: &Model) -> impl Fn(&Seen) -> bool + Send + Sync + 'static {
    let digest = model.digest().to_string();
    move |seen| seen.is_blob() && seen.path.ends_with(&digest)
}

#[tokio::test]
async fn cut_connections_are_continued_where_they_broke() {
    let (fake, model, house) = setting(10).await;
    let is_weights = weights(&model);
    fake.hook(move |seen| {
        if is_weights(seen) {
            Act::Cut(40 << 10)
        } else {
            Act::Normal
        }
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let resumed = fake
        .blob_requests()
        .iter()
        .filter(|seen| seen.range.unwrap().0 % PART != 0)
        .count();
    assert!(resumed >= 8, "{resumed}");
}

#[tokio::test]
async fn a_pull_that_failed_goes_on_later() {
    let (fake, model, house) = setting(11).await;
    let is_weights = weights(&model);
    fake.hook(move |seen| match seen.before {
        _ if !is_weights(seen) => Act::Normal,
        0..3 => Act::Normal,
        3..5 => Act::Cut(60 << 10),
        _ => Act::status(500),
    });
    let error = house.pull(&fake).await.0.unwrap_err();
    assert!(error.to_string().starts_with("500"), "{error}");
    house.assert_whole();
    assert!(house.store.list().unwrap().is_empty());
    let there = house.store.partial_bytes(&model.digest(), SIZE);
    assert!(there >= 3 * PART, "{there}");

    fake.behave();
    fake.forget();
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let small: u64 = model.blobs[1..]
        .iter()
        .map(|(_, bytes)| bytes.len() as u64)
        .sum();
    assert!(fake.bytes_asked() <= SIZE - there + small);
}

#[tokio::test]
async fn wrong_bytes_never_become_a_blob() {
    let (fake, model, house) = setting(12).await;
    let is_weights = weights(&model);
    fake.hook(move |seen| {
        if is_weights(seen) {
            Act::Corrupt
        } else {
            Act::Normal
        }
    });
    let (result, reports) = house.pull(&fake).await;
    let error = result.unwrap_err().to_string();
    assert!(
        error.starts_with("digest mismatch, file must be downloaded again: want sha256:"),
        "{error}"
    );
    assert_eq!(reports.last().unwrap().status, "verifying sha256 digest");
    house.assert_whole();
    assert!(house.strays().is_empty(), "{:?}", house.strays());
    fake.behave();
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_when_it_wants() {
    let (fake, model, house) = setting(13).await;
    fake.hook(|seen| match seen.before {
        0 if seen.is_manifest() || seen.range.is_some_and(|range| range.0 == 0) => {
            Act::Answer(429, vec![("retry-after", "1".into())], "slow down".into())
        }
        _ => Act::Normal,
    });
    let begun = Instant::now();
    house.pull(&fake).await.0.unwrap();
    // The manifest and three blobs were refused once each.
    assert!(begun.elapsed() >= Duration::from_secs(4));
    house.assert_has(&fake, &model);

    let (fake, _, house) = setting(14).await;
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::status(503)
        } else {
            Act::Normal
        }
    });
    let error = house.pull(&fake).await.0.unwrap_err();
    assert_eq!(error.to_string(), "503: {\"fault\":503}");
    assert_eq!(fake.blob_requests().len(), 4, "one attempt and three more");
    house.assert_whole();
}

#[tokio::test]
async fn storage_elsewhere_gets_no_credentials() {
    let (fake, model, house) = setting(15).await;
    let storage = Fake::start().await;
    model.serve(&storage);
    let (at, realm) = (storage.url("/raw/"), fake.url("/token"));
    fake.hook(move |seen| match () {
        () if seen.path == "/token" => Act::Normal,
        () if seen.authorization.as_deref() != Some("Bearer secret-token") => {
            Act::challenge(&realm)
        }
        () if seen.is_blob() => {
            Act::redirect(format!("{at}{}", seen.path.rsplit('/').next().unwrap()))
        }
        () => Act::Normal,
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let asked = storage.log();
    assert!(asked.len() as u64 >= SIZE / PART);
    assert!(
        asked.iter().all(|seen| seen.authorization.is_none()),
        "{asked:?}"
    );
    // Where the storage is has to be asked once for each blob.
    assert_eq!(fake.blob_requests().len(), 3);
}

#[tokio::test]
async fn an_expired_address_is_asked_for_again() {
    let (fake, model, house) = setting(16).await;
    let storage = Fake::start().await;
    model.serve(&storage);
    let (at, n_given) = (storage.url("/raw/"), AtomicUsize::new(0));
    fake.hook(move |seen| {
        if !seen.is_blob() {
            return Act::Normal;
        }
        let n = n_given.fetch_add(1, Ordering::SeqCst);
        Act::redirect(format!(
            "{at}{}?ticket={n}",
            seen.path.rsplit('/').next().unwrap()
        ))
    });
    // Each ticket is good for three requests.
    let used = Arc::new(std::sync::Mutex::new(std::collections::HashMap::<
        String,
        usize,
    >::new()));
    storage.hook(move |seen| {
        let mut used = used.lock().unwrap();
        let n = used.entry(seen.query.clone()).or_default();
        *n += 1;
        if *n > 3 {
            Act::status(403)
        } else {
            Act::Normal
        }
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    assert!(fake.blob_requests().len() > 4);
}

#[tokio::test]
async fn a_server_without_ranges_will_do() {
    let (fake, model, house) = setting(17).await;
    let is_weights = weights(&model);
    fake.hook(move |seen| match seen.before {
        _ if !seen.is_blob() => Act::Normal,
        // The first answer ends early, too.
        0 if is_weights(seen) => Act::Answer(200, Vec::new(), String::new()),
        _ => Act::IgnoreRange,
    });
    let error = house.pull(&fake).await.0.unwrap_err();
    assert!(
        error.to_string().contains("the blob has 0 bytes"),
        "{error}"
    );
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::IgnoreRange
        } else {
            Act::Normal
        }
    });
    fake.forget();
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let n_weights = fake
        .blob_requests()
        .iter()
        .filter(|seen| weights(&model)(seen))
        .count();
    assert_eq!(n_weights, 1);
}

#[tokio::test]
async fn slow_is_fine_and_silent_is_begun_again() {
    let (fake, model, house) = setting(18).await;
    let is_weights = weights(&model);
    fake.hook(move |seen| match seen.range {
        // Slower than the limit for silence, all in all.
        Some((0, _)) if is_weights(seen) => Act::Drip(16 << 10, Duration::from_millis(100)),
        Some((from, _)) if is_weights(seen) && from % PART == 0 => Act::Silence(8 << 10),
        _ => Act::Normal,
    });
    let begun = Instant::now();
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    assert!(begun.elapsed() >= Duration::from_millis(800));
    let starts: Vec<u64> = fake
        .blob_requests()
        .iter()
        .filter(|seen| weights(&model)(seen))
        .map(|seen| seen.range.unwrap().0)
        .collect();
    assert_eq!(
        starts.iter().filter(|from| **from < PART).count(),
        1,
        "the slow part came in one go: {starts:?}"
    );
    assert!(
        starts.iter().any(|from| from % PART == 8 << 10),
        "{starts:?}"
    );
}

#[tokio::test]
async fn a_registry_that_says_nothing_is_given_up() {
    let (fake, _, house) = setting(20).await;
    fake.hook(|_| Act::Mute);
    let silent = format!("{} sends nothing", fake.host);
    let error = ended(house.pull(&fake)).await.0.unwrap_err().to_string();
    assert_eq!(error, format!("pull model manifest: {silent}"));
    assert_eq!(fake.log().len(), 4, "one attempt and three more");

    fake.forget();
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Mute
        } else {
            Act::Normal
        }
    });
    let error = ended(house.pull(&fake)).await.0.unwrap_err().to_string();
    assert_eq!(error, silent);
    assert_eq!(fake.blob_requests().len(), 4);
    house.assert_whole();
}

#[tokio::test]
async fn a_mirror_that_says_nothing_makes_way_for_the_registry() {
    let cases: [fn(&Seen) -> bool; 3] = [
        |_| true,
        Seen::is_blob,
        // All parts but the first.
        |seen| seen.range.is_some_and(|range| range.0 >= PART),
    ];
    for (at, mutes) in cases.into_iter().enumerate() {
        let (fake, mirror, model) = (Fake::start().await, Fake::start().await, Model::new(21));
        model.serve(&fake);
        model.serve(&mirror);
        mirror.hook(move |seen| if mutes(seen) { Act::Mute } else { Act::Normal });
        let entry = format!("{}={}", fake.host, mirror.url(""));
        let house = House::with(|settings| settings.mirrors = vec![entry.parse().unwrap()]);
        ended(house.pull(&fake)).await.0.unwrap();
        house.assert_has(&fake, &model);
        let asked = mirror.log();
        let once: HashSet<_> = asked.iter().map(|seen| (&seen.path, seen.range)).collect();
        assert_eq!(once.len(), asked.len(), "case {at}: {asked:?}");
        let came = fake.bytes_asked() < SIZE;
        assert_eq!(came, at == 2, "what has come of a blob stays");
    }
}

#[tokio::test]
async fn redirects_in_circles_and_to_nowhere_end() {
    for target in ["", "/v2/a/b/blobs/again", "gopher://x/y"] {
        let (fake, _, house) = setting(19).await;
        fake.hook(move |seen| {
            if seen.is_blob() {
                Act::redirect(target)
            } else {
                Act::Normal
            }
        });
        let error = house.pull(&fake).await.0.unwrap_err();
        assert!(
            matches!(error, Error::Answer { .. } | Error::Redirect { .. }),
            "{target}: {error}"
        );
        assert!(fake.log().len() < 20);
        house.assert_whole();
    }
}
