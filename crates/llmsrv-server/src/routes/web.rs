//! The web app: a page at `/` for browsers, and its files. All are in the program, compressed by
//! `build.rs`; the path of a file has a version in it, so browsers keep it for good.

use std::io::Read as _;

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::read::GzDecoder;

include!(concat!(env!("OUT_DIR"), "/web.rs"));

/// `GET /`: the page for browsers; others get the text that clients look for.
pub(super) async fn root(headers: HeaderMap) -> Response {
    let mut response = if accepts(&headers, &header::ACCEPT, "text/html") {
        page(&headers)
    } else {
        "Ollama is running".into_response()
    };
    let vary = HeaderValue::from_static("Accept, Accept-Encoding");
    response.headers_mut().insert(header::VARY, vary);
    response
}

fn page(headers: &HeaderMap) -> Response {
    // Weak, since it is that of the compressed page, too.
    let tag = format!("W/\"{VERSION}\"");
    if accepts(headers, &header::IF_NONE_MATCH, &tag) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    let mut response = file(headers, "index.html");
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// `GET /app/{version}/{file}`
pub(super) async fn asset(
    Path((version, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    // A page of another version asks for files of that version.
    if version != VERSION || name == "index.html" {
        return (StatusCode::NOT_FOUND, "404 page not found").into_response();
    }
    let mut response = file(&headers, &name);
    if response.status() == StatusCode::OK {
        let headers = response.headers_mut();
        let for_good = HeaderValue::from_static("public, max-age=31536000, immutable");
        headers.insert(header::CACHE_CONTROL, for_good);
        let vary = HeaderValue::from_static("Accept-Encoding");
        headers.insert(header::VARY, vary);
    }
    response
}

/// Answers with a file of the app, compressed where the client says that it reads that.
fn file(headers: &HeaderMap, name: &str) -> Response {
    let Some((_, compressed)) = FILES.iter().find(|(known, _)| *known == name) else {
        return (StatusCode::NOT_FOUND, "404 page not found").into_response();
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let mut response = if accepts(headers, &header::ACCEPT_ENCODING, "gzip") {
        let body = Bytes::from_static(compressed);
        ([(header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        let mut text = Vec::new();
        // What `build.rs` has compressed can be decompressed.
        let _ = GzDecoder::new(*compressed).read_to_end(&mut text);
        text.into_response()
    };
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Tells whether one of the values in a header is this one, and not with a weight of 0.
fn accepts(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|value| {
        let mut parts = value.split(';').map(str::trim);
        let is_it = parts
            .next()
            .is_some_and(|it| it.eq_ignore_ascii_case(wanted));
        is_it && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Scripts and styles are the app's own files, and it talks to nobody but this server. Nothing makes
/// elements out of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
