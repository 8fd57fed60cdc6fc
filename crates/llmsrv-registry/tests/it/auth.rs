//! Tokens: who is asked for them and who gets them.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{
    fake::{Act, Fake},
    support::{House, Model},
};

#[tokio::test]
async fn a_token_is_fetched_once_and_sent_with_everything() {
    let (fake, model, house) = (Fake::start().await, Model::new(20), House::new());
    model.serve(&fake);
    let realm = fake.url("/token");
    fake.hook(move |seen| match () {
        () if seen.path == "/token"
            || seen.authorization.as_deref() == Some("Bearer secret-token") =>
        {
            Act::Normal
        }
        () => Act::challenge(&realm),
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    let tokens: Vec<_> = fake
        .log()
        .into_iter()
        .filter(|seen| seen.path == "/token")
        .collect();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!(
        tokens[0].query,
        "service=fake&scope=repository%3Aa%2Fb%3Apull"
    );
    assert_eq!(tokens[0].authorization, None, "anonymous is tried first");
    assert!(
        fake.blob_requests()
            .iter()
            .all(|seen| seen.authorization.is_some())
    );
}

#[tokio::test]
async fn a_registry_that_knows_keys_gets_a_signature_it_can_check() {
    let (fake, model, house) = (Fake::start().await, Model::new(21), House::new());
    model.serve(&fake);
    let realm = fake.url("/token");
    let base = fake.url("");
    fake.hook(move |seen| match &seen.authorization {
        Some(signed) if seen.path == "/token" => {
            let (public, signature) = signed.split_once(':').unwrap();
            let public =
                ssh_key::PublicKey::from_openssh(&format!("ssh-ed25519 {public}")).unwrap();
            let signature = BASE64_STANDARD.decode(signature).unwrap();
            let signature =
                ssh_key::Signature::new(ssh_key::Algorithm::Ed25519, signature).unwrap();
            let nothing = BASE64_STANDARD
                .encode("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
            let text = format!("GET,{base}{}?{},{nothing}", seen.path, seen.query);
            signature::Verifier::verify(&public, text.as_bytes(), &signature).unwrap();
            assert!(seen.query.contains("&ts=") && seen.query.contains("&nonce="));
            Act::Normal
        }
        None if seen.path == "/token" => Act::status(401),
        Some(token) if token == "Bearer secret-token" => Act::Normal,
        _ => Act::challenge(&realm),
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
    assert!(house.folder.path().join("key.pub").exists());
}

#[tokio::test]
async fn a_realm_elsewhere_gets_nothing() {
    let (fake, thief, house) = (Fake::start().await, Fake::start().await, House::new());
    Model::new(22).serve(&fake);
    for realm in [
        thief.url("/token"),
        fake.url("/token").replace("127.0.0.1", "localhost"),
        "file:///etc/passwd".into(),
    ] {
        fake.hook(move |_| Act::challenge(&realm));
        let error = house.pull(&fake).await.0.unwrap_err().to_string();
        assert!(error.contains("unauthorized"), "{error}");
    }
    assert!(thief.log().is_empty());
    assert!(
        fake.log()
            .iter()
            .all(|seen| seen.path != "/token" && seen.authorization.is_none())
    );
    assert!(!house.folder.path().join("key").exists());
}

#[tokio::test]
async fn a_token_that_does_not_help_is_the_end() {
    let (fake, house) = (Fake::start().await, House::new());
    Model::new(23).serve(&fake);
    let realm = fake.url("/token");
    fake.hook(move |seen| {
        if seen.path == "/token" {
            Act::Normal
        } else {
            Act::challenge(&realm)
        }
    });
    let error = house.pull(&fake).await.0.unwrap_err().to_string();
    assert_eq!(error, "pull model manifest: unauthorized: access denied");
    for header in ["Basic realm=\"x\"", "Bearer nonsense", "\"\\"] {
        fake.hook(move |_| {
            Act::Answer(
                401,
                vec![("www-authenticate", header.into())],
                String::new(),
            )
        });
        let error = house.pull(&fake).await.0.unwrap_err().to_string();
        assert_eq!(error, "pull model manifest: unauthorized: access denied");
    }
    house.assert_whole();
}

#[tokio::test]
async fn a_token_that_expires_in_between_is_renewed() {
    let (fake, model, house) = (Fake::start().await, Model::new(24), House::new());
    model.serve(&fake);
    let realm = fake.url("/token");
    let n_good = std::sync::atomic::AtomicUsize::new(0);
    fake.hook(move |seen| match () {
        () if seen.path == "/token" => {
            n_good.store(0, std::sync::atomic::Ordering::SeqCst);
            Act::Normal
        }
        // Good for three requests.
        () if seen.authorization.is_some()
            && n_good.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 3 =>
        {
            Act::Normal
        }
        () => Act::challenge(&realm),
    });
    house.pull(&fake).await.0.unwrap();
    house.assert_has(&fake, &model);
}
