//! Uploading files: stored whole or not at all.

use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Method;
use llmsrv_store::Digest;
use proptest::prelude::*;

use crate::host::{Host, host};

impl Host {
    /// Uploads bytes as what they are; returns the digest.
    pub(crate) async fn upload(&self, bytes: impl Into<Bytes>) -> String {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes).to_string();
        let path = format!("/api/blobs/{digest}");
        let (status, text) = self.text(Method::POST, &path, bytes).await;
        assert!(matches!(status, 200 | 201), "{text}");
        digest
    }

    /// Names of the files in the folder of blobs.
    pub(crate) fn blob_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("blobs")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_blob_is_created_once() {
    let host = host();
    let digest = Digest::of(b"hello");
    let path = format!("/api/blobs/{digest}");
    let head = async || host.text(Method::HEAD, &path, "").await;
    assert_eq!(head().await.0, 404);
    let post = async || host.text(Method::POST, &path, "hello").await;
    assert_eq!(post().await, (201, String::new()));
    assert_eq!(post().await, (200, String::new()));
    assert_eq!(head().await, (200, String::new()));
    let stored = host.folder.path().join("blobs").join(digest.file_name());
    assert_eq!(std::fs::read(stored).unwrap(), b"hello");
}

#[tokio::test]
async fn what_is_not_what_it_says_is_not_stored() {
    let host = host();
    let before = host.blob_files();
    let (wanted, given) = (Digest::of(b"hello"), Digest::of(b"hullo"));
    let path = format!("/api/blobs/{wanted}");
    let (status, text) = host.text(Method::POST, &path, "hullo").await;
    let expected =
        format!(r#"{{"error":"digest mismatch, expected \"{wanted}\", got \"{given}\""}}"#);
    assert_eq!((status, text), (400, expected));
    // A client that leaves in the middle.
    let parts = stream::iter([
        Ok(Bytes::from_static(b"hel")),
        Err(std::io::Error::other("gone")),
    ]);
    let (status, text) = host
        .text(Method::POST, &path, Body::from_stream(parts))
        .await;
    assert_eq!(status, 400, "{text}");
    assert_eq!(host.blob_files(), before);
}

#[tokio::test]
async fn an_upload_nobody_waits_for_leaves_nothing() {
    let host = host();
    let before = host.blob_files();
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![0; 3 << 20]))]);
    let body = Body::from_stream(first.chain(stream::pending()));
    let path = format!("/api/blobs/{}", Digest::of(b"x"));
    let upload = host.text(Method::POST, &path, body);
    let limit = std::time::Duration::from_millis(500);
    assert!(tokio::time::timeout(limit, upload).await.is_err());
    assert_eq!(host.blob_files(), before);
}

#[tokio::test]
async fn digests_that_are_none_are_refused() {
    let host = host();
    let hex = Digest::of(b"").hex();
    for digest in [
        "x".to_owned(),
        hex.clone(),
        format!("md5:{hex}"),
        format!("sha256:{hex}0"),
        "sha256:..%2F..%2F..%2Fetc%2Fpasswd".into(),
        "..%2F..%2Fmanifests".into(),
        format!("sha256:{hex}%00"),
        "%FF".into(),
    ] {
        for method in [Method::HEAD, Method::POST] {
            let path = format!("/api/blobs/{digest}");
            let (status, text) = host.text(method.clone(), &path, "x").await;
            assert_eq!(status, 400, "{method} {digest}: {text}");
            if method == Method::POST && digest != "%FF" {
                assert_eq!(text, r#"{"error":"invalid digest format"}"#, "{digest}");
            }
        }
    }
    for path in ["/api/blobs/../tags", "/api/blobs/a/b", "/api/blobs"] {
        let (status, _) = host.text(Method::POST, path, "x").await;
        assert_eq!(status, 404, "{path}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_bytes_in_any_pieces_are_stored_as_they_are(
        pieces in prop::collection::vec((any::<u8>(), 0..1_500_000_usize), 0..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let host = host();
            let pieces: Vec<Bytes> = pieces.iter().map(|(byte, n)| Bytes::from(vec![*byte; *n])).collect();
            let whole = pieces.concat();
            let digest = Digest::of(&whole);
            let body = Body::from_stream(stream::iter(pieces).map(Ok::<_, Infallible>));
            let path = format!("/api/blobs/{digest}");
            let (status, text) = host.text(Method::POST, &path, body).await;
            assert_eq!(status, 201, "{text}");
            let stored = host.folder.path().join("blobs").join(digest.file_name());
            assert_eq!(std::fs::read(stored).unwrap(), whole);
        });
    }
}
