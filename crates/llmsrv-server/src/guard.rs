//! What is refused before a request is read: foreign web pages, foreign host names, missing keys,
//! bodies that are too large.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Instant,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::{
    app::{App, Settings},
    dialect::Family,
    error::ApiError,
};

/// Bodies of requests for text may carry images.
pub(crate) const TEXT_BODY_BYTES: usize = 128 << 20;
/// Bodies of everything else.
pub(crate) const BODY_BYTES: usize = 1 << 20;

/// Reads a body of bounded size.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(limit)),
        Err(_) => Err(ApiError::bad_request("the request body ended early")),
    }
}

/// Lets a request through, or answers it.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = admit(&app, request, next).await;
    let family = Family::of(&path);
    if family != Family::Native
        && let Some(error) = response.extensions_mut().remove::<ApiError>()
    {
        *response.body_mut() = Body::from(family.error(&error).to_string());
    }
    let ms = started.elapsed().as_millis() as u64;
    tracing::debug!(%method, path, status = response.status().as_u16(), ms, "request");
    response
}

async fn admit(app: &App, request: Request, next: Next) -> Response {
    let settings = &app.settings;
    let headers = request.headers();
    let host = request
        .uri()
        .authority()
        .map(|host| host.as_str().to_owned())
        .or_else(|| text(headers, &header::HOST));
    let host = host.unwrap_or_default();
    let origin = text(headers, &header::ORIGIN);
    // From elsewhere any name may lead here, but a browser tells its page's origin.
    if (settings.listens_on_loopback || origin.is_some()) && !host_is_ours(&host) {
        return StatusCode::FORBIDDEN.into_response();
    }
    if let Some(origin) = &origin
        && !origin_allowed(origin, &host, &settings.origins)
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    if request.method() == Method::OPTIONS {
        let mut response = StatusCode::NO_CONTENT.into_response();
        if let Some(origin) = &origin {
            allow(response.headers_mut(), origin, settings);
            let headers = response.headers_mut();
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static(ALLOWED_METHODS),
            );
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static(ALLOWED_HEADERS),
            );
            headers.insert(
                header::ACCESS_CONTROL_MAX_AGE,
                HeaderValue::from_static("43200"),
            );
        }
        return response;
    }
    let open = matches!(request.uri().path(), "/" | "/health");
    if !open && !settings.api_keys.is_empty() && !has_key(headers, &settings.api_keys) {
        return ApiError::unauthorized().into_response();
    }
    let mut response = next.run(request).await;
    if let Some(origin) = &origin {
        allow(response.headers_mut(), origin, settings);
    }
    response
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn allow(headers: &mut HeaderMap, origin: &str, settings: &Settings) {
    let all = settings.origins.iter().any(|pattern| pattern == "*");
    let allowed = if all {
        Ok(HeaderValue::from_static("*"))
    } else {
        HeaderValue::from_str(origin)
    };
    if let Ok(allowed) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Tells whether a page of this origin may speak to the server.
fn origin_allowed(origin: &str, host: &str, patterns: &[String]) -> bool {
    let same = [format!("http://{host}"), format!("https://{host}")];
    same.iter().any(|ours| ours.eq_ignore_ascii_case(origin))
        || BUILT_IN_ORIGINS
            .iter()
            .any(|pattern| matches(pattern, origin))
        || LOCAL_HOSTS.iter().any(|local| {
            ["http://", "https://"].iter().any(|scheme| {
                let rest = origin
                    .strip_prefix(scheme)
                    .and_then(|rest| rest.strip_prefix(local));
                rest.is_some_and(|rest| {
                    rest.is_empty()
                        || rest
                            .strip_prefix(':')
                            .is_some_and(|port| port.parse::<u16>().is_ok())
                })
            })
        })
        || patterns.iter().any(|pattern| matches(pattern, origin))
}

/// Compares with a pattern that may hold one `*` for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(text),
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

/// Tells whether a name can only mean this machine or its own network, so that no foreign name was
/// bent to this address.
fn host_is_ours(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return address_is_local(address);
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.is_empty()
        || name == "localhost"
        || [".localhost", ".local", ".internal"]
            .iter()
            .any(|end| name.ends_with(end))
        || own_name().is_some_and(|own| own == name)
}

fn address_is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => local_v4(address) || is_own(IpAddr::V4(address)),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => local_v4(v4),
            None => {
                v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local() || is_own(address)
            }
        },
    }
}

fn local_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_private() || address.is_unspecified()
}

/// Tells whether an address belongs to this machine: only then can something be bound to it.
fn is_own(address: IpAddr) -> bool {
    std::net::UdpSocket::bind((address, 0)).is_ok()
}

fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
}

/// Looks for a key where clients put it, comparing in a time that does not tell how much was right.
fn has_key(headers: &HeaderMap, keys: &[String]) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    });
    let given = [bearer, headers.get("x-api-key").map(HeaderValue::as_bytes)];
    let mut found = false;
    for given in given.into_iter().flatten() {
        for key in keys {
            found |= same(given.trim_ascii(), key.as_bytes());
        }
    }
    found
}

fn same(a: &[u8], b: &[u8]) -> bool {
    let difference = a
        .iter()
        .zip(b)
        .fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    a.len() == b.len() && difference == 0
}

const LOCAL_HOSTS: &[&str] = &["localhost", "127.0.0.1", "0.0.0.0"];
const BUILT_IN_ORIGINS: &[&str] = &[
    "app://*",
    "file://*",
    "tauri://*",
    "vscode-webview://*",
    "vscode-file://*",
];
const ALLOWED_METHODS: &str = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS";
const ALLOWED_HEADERS: &str = "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,OpenAI-Beta,\
    x-stainless-arch,x-stainless-async,x-stainless-custom-poll-interval,x-stainless-helper-method,x-stainless-lang,\
    x-stainless-os,x-stainless-package-version,x-stainless-poll-helper,x-stainless-retry-count,x-stainless-runtime,\
    x-stainless-runtime-version,x-stainless-timeout,x-api-key,anthropic-version,anthropic-beta,\
    anthropic-dangerous-direct-browser-access";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for ours in [
            "",
            "localhost",
            "localhost:11434",
            "LOCALHOST:1",
            "127.0.0.1:11434",
            "[::1]:80",
            "10.1.2.3",
            "192.168.0.9:1",
            "0.0.0.0",
            "box.local",
            "a.internal:8",
            "x.localhost",
        ] {
            assert!(host_is_ours(ours), "{ours}");
        }
        for foreign in [
            "evil.example",
            "evil.example:11434",
            "8.8.8.8",
            "localhost.evil.example",
            "[2001:4860::1]",
        ] {
            assert!(!host_is_ours(foreign), "{foreign}");
        }
    }

    #[test]
    fn origins() {
        let patterns = ["https://*.example.org".to_owned()];
        for allowed in [
            "http://localhost",
            "https://localhost:3000",
            "http://127.0.0.1:8080",
            "http://0.0.0.0",
            "app://x",
            "vscode-webview://abc",
            "http://here:1",
            "https://a.example.org",
        ] {
            assert!(origin_allowed(allowed, "here:1", &patterns), "{allowed}");
        }
        for refused in [
            "https://evil.example",
            "http://localhost.evil.example",
            "http://localhost:1evil",
            "null",
            "http://here:2",
            "https://example.org.evil",
        ] {
            assert!(!origin_allowed(refused, "here:1", &patterns), "{refused}");
        }
        assert!(origin_allowed(
            "https://anything",
            "here",
            &["*".to_owned()]
        ));
    }

    #[test]
    fn keys() {
        let keys = ["secret".to_owned()];
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            has_key(&headers, &keys)
        };
        assert!(with("authorization", "Bearer secret") && with("authorization", "bearer secret"));
        assert!(with("x-api-key", "secret"));
        assert!(!with("authorization", "Bearer secre") && !with("authorization", "Basic secret"));
        assert!(!with("x-api-key", "secretx") && !with("x-api-key", ""));
    }
}
