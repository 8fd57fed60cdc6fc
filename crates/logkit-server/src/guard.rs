//! Who may call: keys, and pages of other origins.

use http::{HeaderMap, HeaderValue, Uri, header};
use http_front::{
    KeyDigest, Reach, called_host, is_origin_of, is_own_host, is_same_origin, sent_keys,
};

/// What callers are held to.
pub(crate) struct Guard {
    /// Empty lets everybody in.
    keys: Vec<KeyDigest>,
    origins: Vec<String>,
}

/// The caller's page is of an origin that is not allowed.
pub(crate) struct Foreign;

impl Guard {
    pub(crate) fn new(keys: &[String], origins: &[String]) -> Guard {
        let keys = keys.iter().filter(|key| !key.is_empty());
        Guard {
            keys: keys.map(|key| KeyDigest::of(key.as_bytes())).collect(),
            origins: origins.to_vec(),
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// True if the caller has a key, or needs none.
    pub(crate) fn knows(&self, headers: &HeaderMap) -> bool {
        self.keys.is_empty() || sent_keys(headers).any(|key| self.is_key(key))
    }

    /// True if it is one of the keys. Takes the same time for all wrong keys.
    pub(crate) fn is_key(&self, key: &[u8]) -> bool {
        let given = KeyDigest::of(key);
        let keys = self.keys.iter();
        keys.fold(false, |found, key| found | key.is_same(&given))
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
        let host = called_host(headers, uri);
        if !self.has_keys() && !is_own_host(&host, &self.origins, Reach::Machine) {
            return Err(Foreign);
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(None);
        };
        let text = origin.to_str().map_err(|_| Foreign)?;
        if is_same_origin(text, &host) {
            return Ok(None);
        }
        if is_origin_of(&self.origins, text) {
            return Ok(Some(origin.clone()));
        }
        Err(Foreign)
    }
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
    fn one_of_the_keys_is_enough() {
        let guard = Guard::new(&["one".into(), "two".into()], &[]);
        for (pairs, known) in [
            (&[][..], false),
            (&[("authorization", "Bearer one")], true),
            (&[("authorization", "bearer two")], true),
            (&[("authorization", "two")], false),
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
}
