//! The page and the description of the service: both are files in the program.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::header;
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("../page/index.html");
const OPENAPI: &str = include_str!("../page/openapi.json");

/// `GET /`
pub(super) async fn page() -> Response {
    (
        [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-cache"),
        ],
        PAGE,
    )
        .into_response()
}

/// `GET /openapi.json`
pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// Only the page's own style and script run, and they talk to nobody but this server.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; connect-src 'self'; img-src data:; style-src '{}'; \
         script-src '{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
        hash_of("style"),
        hash_of("script"),
    )
});

fn hash_of(tag: &str) -> String {
    let inside = PAGE
        .split_once(&format!("<{tag}>"))
        .and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")))
        .map_or("", |(inside, _)| inside);
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inside)))
}
