//! Which path asks for which role, and whether a caller has it. One table; a path that somebody
//! forgets to add needs the highest role.

use http::{HeaderMap, StatusCode};
use http_front::{Peer, sent_keys};

use crate::{
    error::ApiError,
    keys::{ApiKey, Role},
    settings::Settings,
};

/// What a path asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredRole {
    /// Nothing: probes of load balancers have no key.
    Nothing,
    /// A role, where keys are required.
    Role(Role),
}

/// Who calls a path that asks for a role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(pub(crate) Role);

const INFER: RequiredRole = RequiredRole::Role(Role::Infer);
const MANAGE: RequiredRole = RequiredRole::Role(Role::Manage);

/// By the pattern of the route, so that no way of writing a path leads past the table.
const TABLE: &[(&str, RequiredRole)] = &[
    ("/", RequiredRole::Nothing),
    ("/health", RequiredRole::Nothing),
    // Part of the program; it asks for a key where the server wants one.
    ("/app/{version}/{file}", RequiredRole::Nothing),
    // What is there.
    ("/api/version", INFER),
    ("/api/status", INFER),
    ("/api/tags", INFER),
    ("/api/ps", INFER),
    ("/api/show", INFER),
    ("/api/me", INFER),
    ("/api/signout", INFER),
    ("/api/experimental/web_search", INFER),
    ("/api/experimental/web_fetch", INFER),
    ("/api/experimental/model-recommendations", INFER),
    ("/v1/models", INFER),
    ("/v1/models/{model}", INFER),
    ("/v1/models/{*model}", INFER),
    ("/openapi.json", INFER),
    // Those who measure need no key that could do harm.
    ("/metrics", INFER),
    // Text and numbers from models.
    ("/api/generate", INFER),
    ("/api/chat", INFER),
    ("/api/embed", INFER),
    ("/api/embeddings", INFER),
    ("/api/rerank", INFER),
    ("/api/tokenize", INFER),
    ("/api/detokenize", INFER),
    ("/v1/chat/completions", INFER),
    ("/v1/completions", INFER),
    ("/v1/embeddings", INFER),
    ("/v1/responses", INFER),
    ("/v1/rerank", INFER),
    ("/v1/audio/transcriptions", INFER),
    ("/v1/messages", INFER),
    ("/v1/messages/count_tokens", INFER),
    // What changes the models of the machine or sends them elsewhere, and what helps to choose.
    ("/api/catalogue", MANAGE),
    // Who asked for what.
    ("/api/requests", MANAGE),
    ("/api/pull", MANAGE),
    ("/api/push", MANAGE),
    ("/api/create", MANAGE),
    ("/api/copy", MANAGE),
    ("/api/delete", MANAGE),
    ("/api/blobs/{digest}", MANAGE),
];

/// Returns what a route asks for. `None` is a path without a route: behind it is nothing, and those
/// who may call at all may learn that.
pub(crate) fn need(route: Option<&str>) -> RequiredRole {
    let Some(route) = route else { return INFER };
    let row = TABLE.iter().find(|(pattern, _)| *pattern == route);
    row.map_or(RequiredRole::Role(Role::Admin), |(_, need)| *need)
}

/// Finds the key that a request carries where clients put it, if it is one of ours.
pub(crate) fn key_of<'a>(headers: &HeaderMap, settings: &'a Settings) -> Option<&'a ApiKey> {
    sent_keys(headers)
        .filter_map(|sent| settings.keys.find(sent))
        .max_by_key(|key| key.role)
}

/// Tells whether the caller sits at this machine. A proxy on this machine speaks for others: what
/// says that there is one only ever takes rights away, so it needs no trust.
pub(crate) fn is_local(headers: &HeaderMap, peer: Option<Peer>, settings: &Settings) -> bool {
    let near = peer.map_or(settings.listens_on_loopback, |Peer(address)| {
        address.ip().to_canonical().is_loopback()
    });
    near && !FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// Returns what a caller may do. Call it only for those who have a key where one is required.
pub(crate) fn role(key: Option<&ApiKey>, local: bool, settings: &Settings) -> Role {
    match key {
        Some(key) => key.role,
        None if local || settings.config.allow_remote_management => Role::Admin,
        None => Role::Infer,
    }
}

/// Refuses a caller whose role is too low.
pub(crate) fn check(need: RequiredRole, role: Role, key: Option<&ApiKey>) -> Result<(), ApiError> {
    let RequiredRole::Role(needed) = need else {
        return Ok(());
    };
    if role >= needed {
        return Ok(());
    }
    let refused = match key {
        Some(key) => format!(
            "this needs a key with the role `{}`; the key `{}` has the role `{}`",
            needed.word(),
            key.name,
            role.word()
        ),
        None => format!(
            "without keys only callers on the server's own machine may do this; on it run `llmsrv key add NAME \
             --role {}` and send that key, or set LLMSRV_ALLOW_REMOTE_MANAGEMENT=true",
            needed.word()
        ),
    };
    Err(ApiError::refused(StatusCode::FORBIDDEN, refused))
}

/// What proxies add.
const FORWARDED: &[&str] = &["forwarded", "x-forwarded-for", "x-real-ip", "via"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_table_and_others_need_the_highest_role() {
        let router = include_str!("routes/mod.rs");
        let routes: Vec<&str> = router
            .split(".route(")
            .skip(1)
            .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
            .collect();
        assert!(routes.len() > 8, "{routes:?}");
        for route in routes {
            assert!(
                TABLE.iter().any(|(pattern, _)| *pattern == route),
                "{route} has no row: who may call it?"
            );
        }
        assert_eq!(
            need(Some("/api/forgotten")),
            RequiredRole::Role(Role::Admin)
        );
        assert_eq!(need(None), INFER);
    }

    #[test]
    fn who_is_local() {
        let settings = Settings {
            listens_on_loopback: false,
            ..Settings::default()
        };
        let from = |address: &str, header: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(name) = header {
                headers.insert(name, http::HeaderValue::from_static("127.0.0.1"));
            }
            is_local(&headers, Some(Peer(address.parse().unwrap())), &settings)
        };
        for near in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(from(near, None), "{near}");
            for header in FORWARDED {
                assert!(!from(near, Some(header)), "{near} through a proxy");
            }
        }
        for far in ["10.0.0.1:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!from(far, None), "{far}");
            // Nobody becomes local by saying so.
            assert!(!from(far, Some("x-forwarded-for")), "{far}");
        }
        assert!(!is_local(&HeaderMap::new(), None, &settings));
    }
}
