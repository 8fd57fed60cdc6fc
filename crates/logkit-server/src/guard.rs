//! Who may call: keys, and pages of other origins.

use std::net::{IpAddr, UdpSocket};

use http::{HeaderMap, HeaderValue, Uri, header};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

/// What callers are held to.
pub(crate) struct Guard {
    /// Hashes of the keys; empty lets everybody in.
    keys: Vec<[u8; 32]>,
    origins: Vec<String>,
    /// Names of this machine, lower case.
    names: Vec<String>,
}

/// The caller's page is of an origin that is not allowed.
pub(crate) struct Foreign;

impl Guard {
    pub(crate) fn new(keys: &[String], origins: &[String]) -> Guard {
        let keys = keys.iter().filter(|key| !key.is_empty());
        // Whoever lets a page of that name call knows that it leads here.
        let allowed = origins
            .iter()
            .filter_map(|origin| origin.split_once("://"))
            .map(|(_, host)| name_of(host).to_ascii_lowercase());
        Guard {
            keys: keys.map(|key| Sha256::digest(key).into()).collect(),
            origins: origins.to_vec(),
            names: own_names().into_iter().chain(allowed).collect(),
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
    ///
    /// Without keys a foreign name of this server is refused as well: then a page of that name was
    /// led here (DNS rebinding), and its browser takes it for our own.
    pub(crate) fn origin(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Result<Option<HeaderValue>, Foreign> {
        let host = match headers.get(header::HOST) {
            Some(host) => Some(host.to_str().map_err(|_| Foreign)?),
            None => uri.authority().map(http::uri::Authority::as_str),
        };
        if !self.has_keys() && host.is_some_and(|host| !self.is_own(host)) {
            return Err(Foreign);
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(None);
        };
        let text = origin.to_str().map_err(|_| Foreign)?;
        let own = text.split_once("://").map(|(_, host)| host);
        if let (Some(own), Some(host)) = (own, host)
            && own.eq_ignore_ascii_case(host)
        {
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

impl Guard {
    /// True if that can only mean this machine or its own network.
    fn is_own(&self, host: &str) -> bool {
        let name = name_of(host);
        if let Ok(address) = name.parse::<IpAddr>() {
            return is_near(address);
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name.is_empty()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
    }
}

/// The host without its port and the brackets of an address.
fn name_of(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// An address of this machine or of a private network.
fn is_near(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_near = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local(),
    };
    // Nothing can be bound to the address of another machine.
    is_near || UdpSocket::bind((address, 0)).is_ok()
}

/// The name of this machine, as it is and as its neighbours look for it.
fn own_names() -> Vec<String> {
    let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") else {
        return Vec::new();
    };
    let full = name.trim().trim_end_matches('.').to_ascii_lowercase();
    let short = full.split('.').next().unwrap_or_default();
    if short.is_empty() {
        return Vec::new();
    }
    let mut names = vec![short.to_owned()];
    names.extend(["local", "internal"].map(|end| format!("{short}.{end}")));
    names.push(full);
    names
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
        let guard = Guard::new(&["one".into(), "two".into()], &[]);
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
        assert!(!Guard::new(&[String::new()], &[]).has_keys());
    }

    #[test]
    fn pages_of_others_need_leave() {
        let guard = Guard::new(&[], &["https://ours.example".into()]);
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
        // A page that was led here believes to be at home.
        let led = [
            ("host", "evil.example:80"),
            ("origin", "http://evil.example:80"),
        ];
        assert_eq!(check(&led), None);
        // Who has a key may come by any name, through a proxy for example.
        let guarded = Guard::new(&["key".into()], &[]);
        assert!(guarded.origin(&headers(&led), &uri).is_ok());
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let mut guard = Guard::new(&[], &["https://logs.example:9000".into()]);
        guard.names.push("box.local".into());
        for own in [
            "",
            "localhost",
            "LOCALHOST:1",
            "x.localhost",
            "localhost.",
            "127.0.0.1:8080",
            "[::1]:80",
            "10.1.2.3",
            "192.168.0.9:1",
            "0.0.0.0",
            "[fd00::1]",
            "[::ffff:127.0.0.1]:1",
            "box.local:8080",
            "logs.example",
        ] {
            assert!(guard.is_own(own), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "8.8.8.8",
            "[2001:4860::1]",
            "localhost.evil.example",
            "evil.local",
            "evil.internal:8080",
            "127.0.0.1.evil.example",
            "[::ffff:8.8.8.8]",
        ] {
            assert!(!guard.is_own(foreign), "{foreign}");
        }
    }
}
