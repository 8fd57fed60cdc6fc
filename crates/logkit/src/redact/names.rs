//! Names of what is secret.

/// A name is not longer than that; of longer ones the end counts.
pub(super) const MAX_NAME: usize = 128;

/// Words that make a name secret, alone or at the end of a longer word: `PGPASSWORD`, `authtoken`.
const ENDINGS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "passwds",
    "passphrase",
    "passphrases",
    "passcode",
    "passcodes",
    "secret",
    "secrets",
    "token",
    "apikey",
    "apikeys",
    "privatekey",
    "secretkey",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "accountkey",
    "sharedkey",
    "masterkey",
    "sshkey",
    "authkey",
    "sessionid",
    "credential",
    "credentials",
    // Other languages.
    "passwort",
    "kennwort",
    "wachtwoord",
    "contraseña",
    "contrasena",
    "senha",
    "motdepasse",
    "пароль",
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "비밀번호",
    "hasło",
    "heslo",
    "lösenord",
    "adgangskode",
    "salasana",
    "şifre",
];
/// Words that make a name secret.
const WORDS: &[&str] = &[
    "pwd",
    "pwds",
    "authorization",
    "cookie",
    "creds",
    "mnemonic",
    "jwt",
];
/// Two neighbours that make a name secret.
const PAIRS: &[(&[&str], &[&str])] = &[
    (
        &[
            "api",
            "private",
            "access",
            "secret",
            "signing",
            "encryption",
            "ssh",
            "client",
            "master",
            "account",
            "shared",
            "hmac",
            "deploy",
            "consumer",
            "license",
            "service",
            "jwt",
            "auth",
            "crypto",
            "aes",
            "rsa",
            "sas",
            "storage",
            "session",
            "decryption",
            "webhook",
        ],
        &["key", "keys"],
    ),
    (&["session"], &["id", "ids"]),
    (&["auth"], &["header"]),
    (&["recovery", "backup"], &["code", "codes"]),
    (&["amz", "goog"], &["signature"]),
    (&["pass"], &["word", "words", "phrase", "code"]),
    (
        &[
            "access", "refresh", "auth", "api", "bearer", "session", "user", "csrf", "secret",
            "service", "bot", "id", "device", "github", "gitlab", "slack", "personal", "login",
        ],
        &["tokens"],
    ),
    (&["de"], &["passe"]),
];
/// Names that are secret as a whole.
const WHOLE: &[&str] = &["pass", "auth", "cookies"];
/// Parameters of an address that are secret, though the same name elsewhere is not.
const PARAMETERS: &[&str] = &["key", "sig", "signature"];
/// Whatever is secret and ASCII holds one of these.
const PARTS: [&[u8]; 22] = [
    b"pass",
    b"pwd",
    b"secret",
    b"token",
    b"key",
    b"auth",
    b"cred",
    b"cookie",
    b"session",
    b"jwt",
    b"mnemonic",
    b"code",
    b"signature",
    b"kennwort",
    b"wachtwoord",
    b"contrasena",
    b"senha",
    b"heslo",
    b"salasana",
    b"kode",
    b"tokens",
    b"phrase",
];

/// True if what has that name is a secret, by the built-in rules.
pub fn is_sensitive_key(name: &str) -> bool {
    may_be_secret(name) && is_secret(&segments(name))
}

/// True if the parameter of an address with that name is a secret.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    PARAMETERS
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// True if the name may also be that of a number of things: `tokens: 15`.
pub(super) fn may_be_count(name: &str) -> bool {
    name.trim_end_matches(|c: char| !c.is_alphanumeric())
        .to_ascii_lowercase()
        .ends_with("tokens")
}

/// True if the rest of the line is its value, blanks included.
pub(super) fn takes_line(name: &str) -> bool {
    let segments = segments(name);
    match segments.as_slice() {
        [.., a, b] if a == "pass" && b == "phrase" => true,
        [.., last] => {
            matches!(last.as_str(), "cookie" | "authorization" | "mnemonic")
                || last.ends_with("passphrase")
        }
        [] => false,
    }
}

/// False for most names that are none of a secret, without an allocation.
pub(super) fn may_be_secret(name: &str) -> bool {
    // Other letters may have these as their lower case.
    !name.is_ascii()
        || (0..name.len()).any(|at| {
            let rest = &name.as_bytes()[at..];
            PARTS.iter().any(|part| {
                rest.len() >= part.len() && rest[..part.len()].eq_ignore_ascii_case(part)
            })
        })
}

/// Splits a name at `_`, `-`, `.` and changes of case; lower case.
pub(super) fn segments(name: &str) -> Vec<String> {
    let mut segments = Vec::new();
    let mut segment = String::new();
    let name = name.trim();
    let start = name.ceil_char_boundary(name.len().saturating_sub(MAX_NAME));
    let chars: Vec<char> = name[start..].chars().collect();
    for (idx, &c) in chars.iter().enumerate() {
        let is_separator = !c.is_alphanumeric();
        let before = idx.checked_sub(1).map(|idx| chars[idx]);
        let after = chars.get(idx + 1);
        let starts_word = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if (is_separator || starts_word) && !segment.is_empty() {
            segments.push(std::mem::take(&mut segment));
        }
        if !is_separator {
            segment.extend(c.to_lowercase());
        }
    }
    if !segment.is_empty() {
        segments.push(segment);
    }
    segments
}

pub(super) fn is_secret(segments: &[String]) -> bool {
    segments.iter().any(|segment| {
        WORDS.contains(&segment.as_str()) || ENDINGS.iter().any(|ending| segment.ends_with(ending))
    }) || segments.windows(2).any(|pair| {
        let holds = |words: &[&str], word: &String| words.contains(&word.as_str());
        PAIRS
            .iter()
            .any(|(first, second)| holds(first, &pair[0]) && holds(second, &pair[1]))
    }) || matches!(segments, [name] if WHOLE.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rule_is_lost_to_the_quick_look() {
        let pairs = PAIRS.iter().flat_map(|(first, second)| {
            first
                .iter()
                .flat_map(|a| second.iter().map(move |b| format!("{a}_{b}")))
        });
        let names = ENDINGS.iter().chain(WORDS).chain(WHOLE);
        for name in pairs.chain(names.map(|name| (*name).to_owned())) {
            assert!(is_sensitive_key(&name), "{name}");
            if name.is_ascii() {
                assert!(is_sensitive_key(&name.to_uppercase()), "{name}");
            }
        }
    }

    #[test]
    fn names_of_secrets() {
        for name in [
            "user_token",
            "apiKey",
            "DB_PASSWORD",
            "password",
            "X-API-Key",
            "APIKey",
            "sessionId",
            "aws.secret",
            "pass",
            "auth",
            "privateKey",
            "Set-Cookie",
            "client_secret",
            "dbpassword",
            "PGPASSWORD",
            "passwords",
            "api_keys",
            "refresh_tokens",
            "signing_key",
            "encryptionKey",
            "ssh_key",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "Passwort",
            "mot_de_passe",
        ] {
            assert!(is_sensitive_key(name), "{name}");
        }
        let long = format!("{}_password", "x".repeat(200));
        assert!(is_sensitive_key(&long));
        for name in [
            "max_tokens",
            "tokens",
            "prompt_tokens",
            "tokenizer",
            "tokenize",
            "author",
            "passenger",
            "session_count",
            "key",
            "bypass_auth",
            "passed",
            "",
            "keys",
            "primary_key",
            "public_key",
            "keyboard",
            "status_code",
            "secretary",
            "compass",
            "passport_count",
            "cookies_enabled",
        ] {
            assert!(!is_sensitive_key(name), "{name}");
        }
    }
}
