//! What is refused before a request is read: foreign web pages, foreign host names, callers without
//! the right to call, and too many calls.

use std::{net::Ipv4Addr, time::Instant};

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_front::{
    MinRateBody, Peer, Reach, called_host, is_origin_of, is_own_host, is_same_origin,
};

pub(crate) use crate::body::{BODY_BYTES, TEXT_BODY_BYTES, read};
use crate::{
    access::{self, Caller, RequiredRole},
    app::App,
    dialect::Family,
    error::ApiError,
    keys::ApiKey,
    rate::Client,
    refusal::Refusal,
    request_log::{Line, Record},
    settings::Settings,
};

/// Lets a request through, or answers it; and logs it.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let route = request.extensions().get::<MatchedPath>();
    let need = access::need(route.map(MatchedPath::as_str));
    let key = access::key_of(request.headers(), &app.settings).cloned();
    let counted = app
        .metrics
        .request(route.map(MatchedPath::as_str), request.method());
    let record = Record {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        client: peer.map(|Peer(address)| address.ip()),
        key: key.as_ref().map(|key| key.name.clone()),
        started: Instant::now(),
        probe: need == RequiredRole::Nothing || asks_about_a_log(peer, request.headers()),
    };
    let line = Line::new(record, app.latest_requests.clone());
    let waits = request.headers().contains_key(header::EXPECT);
    let request = request.map(|body| Body::new(MinRateBody::new(body, waits)));
    let family = Family::of(request.uri().path());
    let mut response = admit(&app, request, need, key, next).await;
    if family != Family::Native
        && let Some(error) = response.extensions_mut().remove::<ApiError>()
    {
        *response.body_mut() = Body::from(family.error(&error).to_string());
    }
    counted.answered(response.status().as_u16());
    line.watch(response)
}

/// A logger on this machine asks a model about an error: a line about that could be an error to ask
/// about. Nobody else can make requests vanish from the log that way.
fn asks_about_a_log(peer: Option<Peer>, headers: &HeaderMap) -> bool {
    headers.contains_key("x-logkit-origin")
        && peer.is_some_and(|Peer(address)| address.ip().to_canonical().is_loopback())
}

async fn admit(
    app: &App,
    mut request: Request,
    need: RequiredRole,
    key: Option<ApiKey>,
    next: Next,
) -> Response {
    let settings = &app.settings;
    let headers = request.headers();
    let host = called_host(headers, request.uri()).into_owned();
    let origin = origin(headers);
    // A key is what no page of a bent name has. Probes know this server by any name.
    let known_by_key = settings.keys.are_required() && origin.is_none();
    let must_be_ours =
        settings.listens_on_loopback || !known_by_key && need != RequiredRole::Nothing;
    let reach = if settings.listens_on_loopback {
        Reach::Machine
    } else {
        Reach::Network
    };
    if must_be_ours && !is_own_host(&host, &settings.config.origins, reach) {
        return ApiError::forbidden(format!(
            "{host:?} is not a name of this server; call it by its address or by localhost, use keys, or set \
             LLMSRV_ORIGINS=http://{host}"
        ))
        .into_response();
    }
    if let Some(origin) = &origin
        && !origin_allowed(origin, &host, &settings.config.origins)
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    let mut response = if request.method() == Method::OPTIONS {
        preflight(origin.is_some())
    } else {
        let client = client(&request, key.as_ref());
        match entitled(app, &request, need, key.as_ref(), &client, &host) {
            Ok(caller) => {
                if let Some(caller) = caller {
                    request.extensions_mut().insert(caller);
                }
                client.answered(next.run(request)).await
            }
            Err(refusal) => refusal.into_response(),
        }
    };
    if let Some(origin) = &origin {
        allow(response.headers_mut(), origin, settings);
    }
    response
}

/// Returns who calls.
fn client(request: &Request, key: Option<&ApiKey>) -> Client {
    match (key, request.extensions().get::<Peer>()) {
        (Some(key), _) => Client::Key(key.name.clone()),
        (None, Some(Peer(address))) => Client::at(address.ip()),
        (None, None) => Client::at(Ipv4Addr::LOCALHOST.into()),
    }
}

/// Tells whether a page of this origin comes from elsewhere: neither from this machine nor, as a page
/// of this very server, from a name that is checked.
pub(crate) fn is_foreign(headers: &HeaderMap, host: &str) -> bool {
    origin(headers).is_some_and(|origin| !origin_allowed(&origin, host, &[]))
        || !headers.contains_key(header::ORIGIN)
            && headers
                .get("sec-fetch-site")
                .is_some_and(|site| site == "cross-site")
}

/// Decides by who calls, how often, and what for; returns as what, where the path asks for a role.
fn entitled(
    app: &App,
    request: &Request,
    need: RequiredRole,
    key: Option<&ApiKey>,
    client: &Client,
    host: &str,
) -> Result<Option<Caller>, Refusal> {
    let settings = &app.settings;
    if request.uri().path().len() > MAX_PATH_BYTES {
        let text = format!("the path is longer than {MAX_PATH_BYTES} bytes");
        return Err(ApiError::refused(StatusCode::URI_TOO_LONG, text).into());
    }
    if need == RequiredRole::Nothing {
        return Ok(None);
    }
    // On connections that were there before.
    if app.is_stopping() {
        return Err(ApiError::stopping().into());
    }
    let peer = request.extensions().get::<Peer>().copied();
    if let Some(limiter) = app.live.limiter() {
        limiter.check(client).map_err(Refusal::too_many)?;
    }
    if settings.keys.are_required() && key.is_none() {
        return Err(ApiError::unauthorized().into());
    }
    let local =
        access::is_local(request.headers(), peer, settings) && !is_foreign(request.headers(), host);
    let role = access::role(key, local, settings);
    access::check(need, role, key)?;
    Ok(Some(Caller(role)))
}

/// Answers the question of a browser whether a page may call.
fn preflight(has_origin: bool) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if has_origin {
        let headers = response.headers_mut();
        for (name, value) in [
            (header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
            (header::ACCESS_CONTROL_MAX_AGE, "43200"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

/// What is no text is no origin that is allowed.
fn origin(headers: &HeaderMap) -> Option<String> {
    let origin = headers.get(header::ORIGIN)?;
    Some(String::from_utf8_lossy(origin.as_bytes()).into_owned())
}

fn allow(headers: &mut HeaderMap, origin: &str, settings: &Settings) {
    let all = settings.config.origins.iter().any(|pattern| pattern == "*");
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
    is_same_origin(origin, host)
        || is_origin_of(BUILT_IN_ORIGINS, origin)
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
        || is_origin_of(patterns, origin)
}

/// Longer than any name of a model or digest.
const MAX_PATH_BYTES: usize = 8 * 1024;
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
}
