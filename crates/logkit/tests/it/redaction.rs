//! Secrets do not come through, and ordinary logs do.

use logkit::{Entry, REDACTED, Redactor};
use serde_json::json;

/// A text with `SECRET` in it, and what stands there. Put together here, so that no scanner of this
/// repository takes them for real ones.
fn probes() -> Vec<(String, String)> {
    let plain = "Zk3vQ9xT7mLp2wRb";
    let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let mut probes: Vec<(String, String)> = [
        // Names.
        "password=SECRET",
        "passwords: [SECRET]",
        "dbpassword=SECRET",
        "PGPASSWORD=SECRET psql -h db",
        "MYSQL_PWD=SECRET mysql",
        "api_keys = \"SECRET\"",
        "secrets: SECRET",
        "access_tokens: SECRET",
        "tokens: SECRET",
        "signing_key=SECRET",
        "encryption_key: SECRET",
        "ssh_key=SECRET",
        "client_key=SECRET",
        "ssh-keys: 'SECRET'",
        "AccountKey=SECRET;EndpointSuffix=core",
        "session_id=SECRET",
        "Passwort: SECRET",
        "contraseña=SECRET",
        "mot_de_passe: SECRET",
        "senha=SECRET",
        "пароль: SECRET",
        "密码: SECRET",
        "hasło=SECRET",
        "client_secret=SECRET&grant_type=password_grant",
        // Forms of pairs.
        "password => 'SECRET'",
        "password := \"SECRET\"",
        "{\"password\": \"SECRET\"}",
        "{\"a\": {\"b\": {\"c\": {\"d\": {\"e\": {\"f\": {\"token\": \"SECRET\"}}}}}}}",
        "{\"body\": \"{\\\"token\\\": \\\"SECRET\\\"}\"}",
        "{\"x\": \"{\\\"body\\\": \\\"{\\\\\\\"token\\\\\\\": \\\\\\\"SECRET\\\\\\\"}\\\"}\"}",
        "User { name: \"x\", password: Some(\"SECRET\") }",
        "password:\n  SECRET\nuser: me",
        "token: |\n  SECRET",
        "'password:\\n  SECRET\\nuser: me'",
        "passphrase: SECRET SECRET SECRET",
        "<password>SECRET</password>",
        "<ns:Password type=\"text\">SECRET</ns:Password>",
        "<add key=\"ApiToken\" value=\"SECRET\"/>",
        "{\"name\": \"password\", \"value\": \"SECRET\"}",
        "os.environ[\"API_TOKEN\"] = \"SECRET\"",
        "export AUTH_TOKEN=SECRET",
        "Set-Cookie: sid=SECRET; Path=/",
        "X-API-Key: SECRET",
        // Command lines.
        "curl --token SECRET https://x",
        "curl -u me:SECRET https://x",
        "curl -ume:SECRET https://x",
        "curl --user me:SECRET https://x",
        "('curl', '-u', 'me:SECRET')",
        "['login', '--password', 'SECRET']",
        "mysql -uroot -pSECRET db",
        "sshpass -pSECRET ssh host",
        // Addresses and headers.
        "postgres://me:SECRET@host/db",
        "postgres://me:ab/SECRET@host/db",
        "postgres://me:it'SECRET@host/db",
        "smtp://me@mail.example:SECRET@host",
        "https://SECRET@host/x.git",
        "redis://:SECRET@host:6379/0",
        "GET /v1?key=SECRET&x=1",
        "https://s3/x?X-Amz-Credential=SECRET&x=1",
        "https://s3/x?X-Amz-Signature=SECRET",
        "https://s3/x?X-Amz-Security-Token=SECRET",
        "https://blob/x?sv=1&sig=SECRET",
        "https://x/cb?access_token=SECRET",
        "Authorization: Bearer SECRET",
        "sent BEARER SECRET",
        "sent bearer SECRET",
        "Bearer q1w2e",
        "curl -H 'Authorization: Token SECRET'",
        // Keys.
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\\nSECRET\\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nSECRET\n-----END PGP PRIVATE KEY BLOCK-----",
        "-----BEGIN PRIVATE KEY-----\nSECRET",
    ]
    .into_iter()
    .map(|text| (text.replace("SECRET", plain), plain.to_owned()))
    .map(|(text, secret)| {
        if text.contains("q1w2e") {
            (text, "q1w2e".to_owned())
        } else {
            (text, secret)
        }
    })
    .collect();
    let upper = "Q7X2M9K4T1W8Z5R3";
    let hex = "0123456789abcdef0123456789abcdef0123456789abcdef";
    for (start, rest) in [
        ("llmsrv_", hex),
        ("AKIA", upper),
        ("ASIA", upper),
        ("AIza", long),
        ("ya29.", long),
        ("GOCSPX-", long),
        ("ghp_", long),
        ("gho_", long),
        ("ghs_", long),
        ("github_pat_", long),
        ("glpat-", long),
        ("sk-", long),
        ("sk-proj-", long),
        ("sk-ant-api03-", long),
        ("gsk_", long),
        ("hf_", long),
        ("xoxb-", long),
        ("xoxp-", long),
        ("xapp-", long),
        ("sk_live_", long),
        ("rk_test_", long),
        ("whsec_", long),
        ("npm_", long),
        ("pypi-", long),
        ("dckr_pat_", long),
        ("shpat_", long),
        ("SG.", long),
        ("hvs.", long),
        ("dop_v1_", hex),
        ("eyJhbGciOi.eyJzdWIiOi.", long),
    ] {
        let token = format!("{start}{rest}");
        probes.push((format!("deploy with {token} now"), token));
    }
    let basic = "bWU6WmszdlE5eFQ3"; // me:… in base64
    probes.push((format!("sent Basic {basic}=="), basic.to_owned()));
    probes.push((format!("Authorization: Basic {basic}=="), basic.to_owned()));
    probes
}

#[test]
fn no_probe_comes_through() {
    let redactor = Redactor::default();
    let probes = probes();
    assert!(probes.len() >= 100);
    let mut leaks = Vec::new();
    for (text, secret) in &probes {
        let blanked = redactor.redact_string(text);
        let is_lost = !blanked.contains(REDACTED);
        if blanked.contains(secret) || is_lost {
            leaks.push(format!("{text:?} -> {blanked:?}"));
        }
        let again = redactor.redact_string(&blanked);
        assert_eq!(again, blanked, "twice");
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn every_text_of_an_entry_is_looked_at() {
    let redactor = Redactor::default();
    for (text, secret) in probes() {
        for column in logkit::Entry::COLUMNS {
            let mut entry = Entry::default();
            let Some(place) = entry.text_mut(column) else {
                continue;
            };
            *place = text.clone().into();
            entry
                .extra
                .insert(text.clone(), json!([{ "note": text.clone() }]));
            redactor.redact_entry(&mut entry);
            let stored = format!("{entry:?}");
            assert!(!stored.contains(&secret), "{column}: {stored}");
        }
    }
    let deep = (0..60).fold(
        json!({"authToken": "Zk3vQ9xT7"}),
        |value, _| json!([{ "x": value }]),
    );
    let mut entry = Entry::default();
    entry.extra.insert("deep".into(), deep);
    redactor.redact_entry(&mut entry);
    assert!(!format!("{entry:?}").contains("Zk3vQ9xT7"));
}

#[test]
fn secrets_of_a_command_line_are_blanked() {
    let redactor = Redactor::default();
    for (program, args, secret) in [
        ("curl", &["-u", "me:q1w2e3r4", "https://x"][..], "q1w2e3r4"),
        ("curl", &["-ume:q1w2e3r4"], "q1w2e3r4"),
        ("/usr/bin/mysql", &["-uroot", "-pq1w2e3r4"], "q1w2e3r4"),
        ("env", &["PGPASSWORD=q1w2e3r4", "psql"], "q1w2e3r4"),
        ("sh", &["-c", "mysqldump -pq1w2e3r4 db"], "q1w2e3r4"),
        ("login", &["--api-key", "q1w2e3r4"], "q1w2e3r4"),
    ] {
        let blanked = redactor.redact_command(program, args).join(" ");
        assert!(!blanked.contains(secret), "{blanked}");
    }
    let kept = redactor.redact_command("docker", &["run", "-u", "1000:1000", "-p8080:80", "x"]);
    assert_eq!(kept.join(" "), "run -u 1000:1000 -p8080:80 x");
}

/// Lines as programs write them.
fn ordinary() -> Vec<String> {
    let mut lines: Vec<String> = include_str!("ordinary.log")
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    for n in 0..40_u64 {
        let hash = format!(
            "{:016x}{:016x}",
            n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            n * 7919 + 1
        );
        let short = &hash[..7];
        let path = ["/api/users", "/static/app.js", "/health", "/v1/models"][n as usize % 4];
        let millis = n * 13 % 97;
        lines.extend([
            format!("GET {path}?page={n}&sort=asc HTTP/1.1 200 {millis}ms"),
            format!(
                "10.0.{n}.7 - - [23/Nov/2026:06:{n:02}:11 +0000] \"POST {path} HTTP/1.1\" 201 {}",
                n * 31
            ),
            format!("commit {hash}{short} merged into main"),
            format!(
                "request {}-{}-4{}-a{}-{} done",
                &hash[..8],
                &hash[8..12],
                &hash[13..16],
                &hash[17..20],
                &hash[20..32]
            ),
            format!(
                "SELECT id, name FROM items WHERE owner_id = {n} ORDER BY created_at LIMIT {n}"
            ),
            format!(
                "tokens: {n}, prompt_tokens={}, max_tokens=4096, tokens_per_second={millis}.5",
                n * 3
            ),
            format!("  File \"/srv/app/worker_{n}.py\", line {millis}, in handle_session"),
            format!("cache hit for user:{n} key=item/{n} ttl={millis}s"),
        ]);
    }
    lines
}

#[test]
fn ordinary_logs_stay_as_they_are() {
    let redactor = Redactor::default();
    let lines = ordinary();
    assert!(lines.len() >= 400, "{}", lines.len());
    let changed: Vec<String> = lines
        .iter()
        .filter_map(|line| match redactor.redact_string(line) {
            std::borrow::Cow::Owned(blanked) if blanked != *line => Some(blanked),
            _ => None,
        })
        .collect();
    let most = lines.len() * 2 / 100;
    assert!(
        changed.len() <= most,
        "{} of {}: {changed:#?}",
        changed.len(),
        lines.len()
    );
    // Those written by hand are the hard ones.
    let hard: Vec<&String> = changed.iter().filter(|line| line.len() < 400).collect();
    assert!(hard.len() <= 3, "{hard:#?}");
}

#[test]
fn the_time_is_linear_in_the_text() {
    let redactor = Redactor::default();
    // Each of these once made some rule look at the rest of the text again and again.
    for part in [
        "a://",
        "password=${",
        "name=(",
        "<password>",
        "key=\"",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN X",
        "Bearer ",
        "-u a:",
        "password=\"",
        "eyJaaaaaaaa.",
        "token:\n",
        "\\\\\"",
        "--a",
        "xoxb-",
        "sk-",
        "eyJ-",
        "https://a:b",
        "&key=",
    ] {
        let text = part.repeat((64 << 10) / part.len());
        let _ = redactor.redact_string(&text);
    }
}
