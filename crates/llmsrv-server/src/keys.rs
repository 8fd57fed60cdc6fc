//! API keys: who calls, and as what. Only hashes are held; a key is compared by its hash in a time
//! that does not tell how much of it was right.

use std::sync::Arc;

use http_front::KeyDigest;
pub use llmsrv_config::keys::Role;

/// A key that the server accepts.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Who has it; the request log names it.
    pub name: Arc<str>,
    /// What it allows.
    pub role: Role,
    /// What [`digest`] makes of the key.
    pub digest: [u8; 32],
}

impl ApiKey {
    /// Makes keys that allow everything, called `#1`, `#2` and so on, of their texts.
    pub fn plain<'a>(keys: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = ApiKey> {
        let numbered = keys.into_iter().enumerate();
        numbered.map(|(key_idx, key)| ApiKey {
            name: format!("#{}", key_idx + 1).into(),
            role: Role::Admin,
            digest: digest(key.as_bytes()),
        })
    }
}

/// The keys of a server.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// `None`: nobody needs a key.
    accepted: Option<Vec<ApiKey>>,
}

impl Keys {
    /// Every caller needs one of these keys; of none at all, nobody gets in.
    pub fn required(accepted: Vec<ApiKey>) -> Keys {
        Keys {
            accepted: Some(accepted),
        }
    }

    /// Every caller needs one of these, which allow everything.
    pub fn plain<'a>(keys: impl IntoIterator<Item = &'a str>) -> Keys {
        Keys::required(ApiKey::plain(keys).collect())
    }

    /// Tells whether callers need a key.
    pub fn are_required(&self) -> bool {
        self.accepted.is_some()
    }

    /// Returns how many keys are accepted.
    pub fn count(&self) -> usize {
        self.accepted.as_ref().map_or(0, Vec::len)
    }

    /// Finds the key that a caller sent. Looks at all of them, so that the time tells nothing.
    pub(crate) fn find(&self, sent: &[u8]) -> Option<&ApiKey> {
        let accepted = self.accepted.as_ref()?;
        let sent = KeyDigest::of(sent);
        let mut found = None;
        for key in accepted {
            if KeyDigest(key.digest).is_same(&sent) {
                found = Some(key);
            }
        }
        found
    }
}

/// Returns the hash that stands for a key.
pub fn digest(key: &[u8]) -> [u8; 32] {
    KeyDigest::of(key).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_is_the_key() {
        let keys = Keys::plain(["secret", "other"]);
        assert_eq!(&*keys.find(b"secret").unwrap().name, "#1");
        assert_eq!(&*keys.find(b"other").unwrap().name, "#2");
        for wrong in ["", "secre", "Secret"] {
            assert!(keys.find(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn no_keys_at_all_lets_nobody_in_and_no_requirement_everybody() {
        assert!(Keys::required(Vec::new()).are_required());
        assert!(Keys::required(Vec::new()).find(b"").is_none());
        assert!(!Keys::default().are_required());
    }
}
