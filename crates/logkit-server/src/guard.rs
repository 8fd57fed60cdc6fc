//! Who may call: keys, and pages of other origins.

use http::{HeaderMap, HeaderValue, Uri, header};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// What callers are held to.
pub(crate) struct Guard {
    /// Hashes of the keys; empty lets everybody in.
    keys: Vec<[u8; 32]>,
    origins: Vec<String>,
    /// Only this machine can reach the server: then a name of another host in a request is an
    /// attack through the browser of the owner (DNS rebinding).
    is_local: bool,
}

/// The caller's page is of an origin that is not allowed.
pub(crate) struct Foreign;

impl Guard {
    pub(crate) fn new(keys: &[String], origins: &[String], is_local: bool) -> Guard {
        let keys = keys.iter().filter(|key| !key.is_empty());
        Guard {
            keys: keys.map(|key| Sha256::digest(key).into()).collect(),
            origins: origins.to_vec(),
            is_local,
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// True if the caller has a key, or needs none. Takes the same time for all wrong keys.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        if self.keys.is_empty() {
            return true;
        }
        let bearer = headers
            .get(header::AUTHORIZATION)
            .map(|value| strip_bearer(value.as_bytes()));
        let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
        [bearer, plain]
            .into_iter()
            .flatten()
            .any(|key| self.is_key(key))
    }

    /// True if it is one of the keys.
    pub(crate) fn is_key(&self, key: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(key).into();
        let mut found = Choice::from(0);
        for key in &self.keys {
            found |= key.ct_eq(&given);
        }
        found.into()
    }

    /// Tells a page of another origin from everything else. An allowed one is given back.
    pub(crate) fn origin(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Result<Option<HeaderValue>, Foreign> {
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str));
        if self.is_local && host.is_some_and(|host| !is_local_name(host)) {
            return Err(Foreign);
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(None);
        };
        let text = origin.to_str().map_err(|_| Foreign)?;
        let own = text.split_once("://").map(|(_, host)| host);
        if own.is_some() && own == host {
            return Ok(None);
        }
        if self
            .origins
            .iter()
            .any(|allowed| allowed == "*" || allowed == text)
        {
            return Ok(Some(origin.clone()));
        }
        Err(Foreign)
    }
}

/// The key of `Bearer key`, or of `key` alone.
pub(crate) fn strip_bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case(b"bearer ") => key.trim_ascii(),
        _ => value,
    }
}

/// A name that only leads to this machine, or an address.
fn is_local_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn keys_come_in_either_header() {
        let guard = Guard::new(&["one".into(), "two".into()], &[], false);
        for (pairs, known) in [
            (&[][..], false),
            (&[("authorization", "Bearer one")], true),
            (&[("authorization", "bearer two")], true),
            (&[("authorization", "Bearer three")], false),
            (&[("authorization", "Bearer ")], false),
            (&[("x-api-key", "two")], true),
            (&[("x-api-key", "tw")], false),
            (
                &[("x-api-key", "two "), ("authorization", "Basic x")],
                false,
            ),
        ] {
            assert_eq!(guard.knows(&headers(pairs)), known, "{pairs:?}");
        }
        // A key that is set to nothing is no key.
        assert!(!Guard::new(&[String::new()], &[], false).has_keys());
    }

    #[test]
    fn pages_of_others_need_leave() {
        let guard = Guard::new(&[], &["https://ours.example".into()], true);
        let uri = Uri::from_static("/log");
        let check = |pairs: &[(&'static str, &'static str)]| {
            guard
                .origin(&headers(pairs), &uri)
                .map(|origin| origin.is_some())
                .ok()
        };
        assert_eq!(check(&[("host", "localhost:8080")]), Some(false));
        assert_eq!(check(&[("host", "[::1]:8080")]), Some(false));
        assert_eq!(check(&[("host", "evil.example:8080")]), None);
        let own = [("host", "127.0.0.1:80"), ("origin", "http://127.0.0.1:80")];
        assert_eq!(check(&own), Some(false));
        let other = [("host", "127.0.0.1:80"), ("origin", "http://evil.example")];
        assert_eq!(check(&other), None);
        let allowed = [("host", "127.0.0.1:80"), ("origin", "https://ours.example")];
        assert_eq!(check(&allowed), Some(true));
        assert_eq!(check(&[("host", "localhost"), ("origin", "null")]), None);
    }
}
