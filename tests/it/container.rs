//! The container's file: what it promises, without building it.

use std::{fs, path::Path};

use crate::util::{Output, Sandbox};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_container_runs_without_rights_and_says_how_it_is() {
    let text = fs::read_to_string(root().join("packaging/Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    let stages: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("FROM "))
        .collect();
    assert_eq!(stages.len(), 2, "one stage builds, one runs");
    let of = |lines: &[&str], word: &str| -> Vec<String> {
        let with = lines.iter().filter_map(|line| line.strip_prefix(word));
        with.map(|rest| rest.trim().to_owned()).collect()
    };
    let last = &lines[stages[1]..];
    let user = of(last, "USER ");
    let (uid, _) = user[0].split_once(':').unwrap();
    assert!(uid.parse::<u32>().unwrap() >= 1000, "{user:?}");
    assert_eq!(of(last, "STOPSIGNAL "), ["SIGTERM"]);
    assert_eq!(of(last, "EXPOSE "), ["11434"]);
    assert_eq!(of(last, "VOLUME "), ["/var/lib/llmsrv"]);
    let health = of(last, "HEALTHCHECK ");
    assert!(
        health[0].contains(r#"["/usr/bin/llmsrv", "status", "--quiet"]"#),
        "{health:?}"
    );
    for (word, json) in [
        ("ENTRYPOINT ", r#"["/usr/bin/llmsrv"]"#),
        ("CMD ", r#"["serve"]"#),
    ] {
        assert_eq!(of(last, word), [json]);
    }
    // The toolchain is the project's.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version = manifest.split("rust-version = \"").nth(1).unwrap();
    let version = version.split('"').next().unwrap();
    assert!(
        lines[stages[0]].contains(&format!("rust:{version}-")),
        "{}",
        lines[stages[0]]
    );
    // What is left out of the build must not be something it needs.
    for ignored in fs::read_to_string(root().join(".dockerignore"))
        .unwrap()
        .lines()
    {
        for needed in [
            "Cargo.toml",
            "Cargo.lock",
            "src",
            "crates",
            "assets",
            "benches",
            "packaging",
        ] {
            assert_ne!(ignored, needed);
        }
    }
}

/// What the container's health check does, with the settings of the container.
#[test]
fn status_finds_the_server_of_a_container() {
    let text = fs::read_to_string(root().join("packaging/Dockerfile")).unwrap();
    let sandbox = Sandbox::new();
    let home = sandbox.path().join("home");
    let settings: Vec<(String, String)> = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter(|(name, _)| name.starts_with("LLMSRV_"))
        .map(|(name, value)| {
            let value = value.replace("/var/lib/llmsrv", home.to_str().unwrap());
            (name.to_owned(), value.replace(":11434", ":0"))
        })
        .collect();
    assert_eq!(settings.len(), 4, "{settings:?}");
    let env: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let server = sandbox.serve_with(&[], &env);
    let status = |port: &str| {
        Output::of(
            sandbox
                .command()
                .envs(env.iter().copied())
                .env("LLMSRV_HOST", format!("0.0.0.0:{port}"))
                .args(["status", "--quiet"]),
        )
        .code
    };
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    assert_eq!(status(&port), 0);
    assert_eq!(server.end("-TERM"), 0);
    assert_eq!(status(&port), 3);
}
