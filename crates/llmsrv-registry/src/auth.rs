//! Proving who asks: challenges, the key that signs requests for tokens, and the tokens.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use parking_lot::Mutex;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use signature::Signer as _;
use ssh_key::{Algorithm, LineEnding, PrivateKey, rand_core::OsRng};

use crate::Error;

/// What a registry wants to see: `WWW-Authenticate: Bearer realm="..",service="..",scope=".."`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) realm: String,
    pub(crate) service: String,
    pub(crate) scope: String,
}

impl Challenge {
    /// Reads the value of the header; nothing if it asks for something else than a token.
    pub(crate) fn parse(header: &str) -> Option<Challenge> {
        let (scheme, mut rest) = header.trim_start().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut challenge = Challenge::default();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = value(after)?;
            match name
                .trim_matches([' ', ',', '\t'])
                .to_ascii_lowercase()
                .as_str()
            {
                "realm" => challenge.realm = value,
                "service" => challenge.service = value,
                "scope" => challenge.scope = value,
                _ => {}
            }
            rest = after;
        }
        (!challenge.realm.is_empty()).then_some(challenge)
    }

    /// Returns where a token is to be had.
    pub(crate) fn url(&self) -> Result<Url, url::ParseError> {
        let mut url = Url::parse(&self.realm)?;
        {
            let mut query = url.query_pairs_mut();
            if !self.service.is_empty() {
                query.append_pair("service", &self.service);
            }
            for scope in self.scope.split_whitespace() {
                query.append_pair("scope", scope);
            }
        }
        Ok(url)
    }
}

/// Splits a value, quoted or not, from what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// The key, read or made when first needed.
pub(crate) struct Keys {
    files: Vec<PathBuf>,
    key: Mutex<Option<PrivateKey>>,
}

impl Keys {
    pub(crate) fn new(files: Vec<PathBuf>) -> Keys {
        Keys {
            files,
            key: Mutex::new(None),
        }
    }

    /// Adds the time and a random number to the address of a token and signs it. Returns the
    /// address and the value of `Authorization`. Reads files: call it where that may take a while.
    pub(crate) fn sign(&self, mut url: Url) -> Result<(Url, String), Error> {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let nonce: [u8; 16] = rand::random();
        url.query_pairs_mut()
            .append_pair("ts", &seconds.to_string())
            .append_pair("nonce", &BASE64_URL_SAFE_NO_PAD.encode(nonce));
        let mut key = self.key.lock();
        let key = match &mut *key {
            Some(key) => key,
            none => none.insert(load_or_make(&self.files)?),
        };
        let authorization = signed(key, &format!("GET,{url},{}", hash_of_nothing()))
            .map_err(|error| Error::Key(error.to_string()))?;
        Ok((url, authorization))
    }
}

/// Returns `<public key>:<signature>`, both in base64.
fn signed(key: &PrivateKey, text: &str) -> Result<String, ssh_key::Error> {
    let line = key.public_key().to_openssh()?;
    let public = line.split(' ').nth(1).unwrap_or_default();
    let signature = key.try_sign(text.as_bytes())?;
    Ok(format!(
        "{public}:{}",
        BASE64_STANDARD.encode(signature.as_bytes())
    ))
}

/// The body of a `GET` in the text that is signed: base64 of the hexadecimal SHA-256 of nothing.
fn hash_of_nothing() -> String {
    BASE64_STANDARD.encode(hex::encode(Sha256::digest(b"")))
}

fn load_or_make(files: &[PathBuf]) -> Result<PrivateKey, Error> {
    for file in files {
        match fs::read(file) {
            Ok(pem) => return read(&pem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::Key(error.kind().to_string())),
        }
    }
    let file = files
        .first()
        .ok_or_else(|| Error::Key("there is no place for one".into()))?;
    match make(file) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(&fs::read(file).map_err(|error| Error::Key(error.kind().to_string()))?)
        }
        made => made.map_err(|error| Error::Key(error.to_string())),
    }
}

fn read(pem: &[u8]) -> Result<PrivateKey, Error> {
    let key = PrivateKey::from_openssh(pem).map_err(|error| Error::Key(error.to_string()))?;
    if key.is_encrypted() {
        return Err(Error::Key("it is protected by a passphrase".into()));
    }
    if key.algorithm() != Algorithm::Ed25519 {
        return Err(Error::Key("it is no ed25519 key".into()));
    }
    Ok(key)
}

/// Makes a key and its public half beside it; never replaces a file.
fn make(file: &Path) -> io::Result<PrivateKey> {
    let key = PrivateKey::random(&mut OsRng, Algorithm::Ed25519).map_err(io::Error::other)?;
    let pem = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?;
    if let Some(folder) = file.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let create = |path: &Path, mode, text: &str| {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)?
            .write_all(text.as_bytes())
    };
    create(file, 0o600, &pem)?;
    let public = key.public_key().to_openssh().map_err(io::Error::other)?;
    // For the user, who may give it to a registry; nobody here reads it.
    if let Err(error) = create(&file.with_extension("pub"), 0o644, &format!("{public}\n")) {
        tracing::debug!(%error, "the public half of the key is not written");
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn challenges_are_read() {
        let parse = |text| Challenge::parse(text).map(|c| (c.realm, c.service, c.scope));
        let all = |a: &str, b: &str, c: &str| Some((a.into(), b.into(), c.into()));
        assert_eq!(
            parse(
                r#"Bearer realm="https://r/token",service="r",scope="repository:a/b:pull,push x""#
            ),
            all("https://r/token", "r", "repository:a/b:pull,push x")
        );
        assert_eq!(
            parse(r#"bearer service=r , realm=https://r/t, error="a\"b, c=d""#),
            all("https://r/t", "r", "")
        );
        for none in [
            "",
            "Basic realm=\"x\"",
            "Bearer",
            "Bearer x",
            "Bearer realm=\"",
            "Bearer service=\"s\"",
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
        let challenge = Challenge {
            realm: "https://r/token?x=1".into(),
            service: "a b".into(),
            scope: "s1 s2".into(),
        };
        assert_eq!(
            challenge.url().unwrap().as_str(),
            "https://r/token?x=1&service=a+b&scope=s1&scope=s2"
        );
    }

    #[test]
    fn a_key_is_made_once_and_signs_so_that_others_can_check() {
        let folder = tempfile::tempdir().unwrap();
        let files = vec![folder.path().join("new/id"), folder.path().join("other")];
        let (url, authorization) = Keys::new(files.clone())
            .sign(Url::parse("https://r/token?service=r").unwrap())
            .unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files[0]), 0o600);
        assert_eq!(mode(files[0].parent().unwrap()), 0o700);

        let (public, signature) = authorization.split_once(':').unwrap();
        let public = ssh_key::PublicKey::from_openssh(&format!("ssh-ed25519 {public}")).unwrap();
        let signature = ssh_key::Signature::new(
            Algorithm::Ed25519,
            BASE64_STANDARD.decode(signature).unwrap(),
        )
        .unwrap();
        let text = format!(
            "GET,{url},ZTNiMGM0NDI5OGZjMWMxNDlhZmJmNGM4OTk2ZmI5MjQyN2FlNDFlNDY0OWI5MzRjYTQ5NTk5MWI3ODUyYjg1NQ=="
        );
        signature::Verifier::verify(&public, text.as_bytes(), &signature).unwrap();

        let again = Keys::new(files).sign(url).unwrap().1;
        assert_eq!(again.split(':').next(), authorization.split(':').next());
    }

    #[test]
    fn a_file_that_is_no_key_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("id");
        fs::write(&file, "mine").unwrap();
        let keys = Keys::new(vec![file.clone()]);
        assert!(matches!(
            keys.sign(Url::parse("https://r/").unwrap()),
            Err(Error::Key(_))
        ));
        assert_eq!(fs::read(file).unwrap(), b"mine");
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(text in "(?i)bearer \\PC{0,40}|\\PC{0,40}") {
            drop(Challenge::parse(&text));
        }

        #[test]
        fn quoted_values_come_back(realm in "[a-z]{1,5}", scope in "[^\"\\\\\\p{C}]{0,20}") {
            let header = format!("Bearer realm=\"{realm}\",scope=\"{scope}\"");
            let challenge = Challenge::parse(&header).unwrap();
            prop_assert_eq!((challenge.realm, challenge.scope), (realm, scope));
        }
    }
}
