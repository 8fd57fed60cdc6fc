//! The container image, made without a container engine, and the Dockerfile that says how it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    packaging::{packed, stripped},
    registry::DockerRegistry,
    util::{Output, Sandbox, Server},
};

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

/// Makes the image of the program under test.
fn image(sandbox: &Sandbox) -> PathBuf {
    packed(sandbox, "image", &stripped(sandbox), "image")
}

#[test]
fn the_image_goes_to_a_registry_with_the_settings_of_the_dockerfile() {
    let sandbox = Sandbox::new();
    let image = image(&sandbox);
    let registry = DockerRegistry::start();
    let skopeo = |args: &[&str]| {
        let mut command = Command::new("skopeo");
        command.env("HOME", sandbox.path()).args(args);
        Output::of(&mut command).ok()
    };
    let there = format!("docker://{}/team/llmsrv:1", registry.host);
    let here = image.display();
    for form in ["oci-archive", "docker-archive"] {
        let form = format!("{form}:{here}");
        skopeo(&[
            "copy",
            "--insecure-policy",
            "--dest-tls-verify=false",
            &form,
            &there,
        ]);
        let config = skopeo(&["inspect", "--config", "--tls-verify=false", &there]).json();
        let config = &config["config"];
        assert_eq!(config["User"], "10001:10001");
        assert_eq!(config["Entrypoint"], json!(["/usr/bin/llmsrv"]));
        assert_eq!(config["Cmd"], json!(["serve"]));
        assert_eq!(config["StopSignal"], "SIGTERM");
        assert_eq!(config["ExposedPorts"], json!({"11434/tcp": {}}));
        assert_eq!(config["Volumes"], json!({"/var/lib/llmsrv": {}}));
        let variables = config["Env"].as_array().unwrap();
        for variable in [
            "LLMSRV_HOST=0.0.0.0:11434",
            "NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility",
        ] {
            assert!(variables.contains(&json!(variable)), "{form}: {config:#}");
        }
    }
}

/// Runs the image as an engine would: its files, user, settings and command, and nothing of this system but `/proc`.
#[test]
#[ignore = "needs root: `tests/run` runs it"]
fn the_image_serves_is_healthy_and_writes_into_its_volume_alone() {
    let sandbox = Sandbox::new();
    let (unpacked, system) = (
        sandbox.path().join("unpacked"),
        sandbox.path().join("system"),
    );
    fs::create_dir(&unpacked).unwrap();
    fs::create_dir_all(system.join("proc")).unwrap();
    let tar = |options: &str, archive: &Path, folder: &Path| {
        Output::of(
            Command::new("tar")
                .arg(options)
                .arg(archive)
                .arg("-C")
                .arg(folder),
        )
        .ok();
    };
    tar("xf", &image(&sandbox), &unpacked);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(unpacked.join(name)).unwrap()).unwrap()
    };
    let manifest = read("manifest.json");
    for layer in manifest[0]["Layers"].as_array().unwrap() {
        tar("xzpf", &unpacked.join(layer.as_str().unwrap()), &system);
    }
    let config = read(manifest[0]["Config"].as_str().unwrap());
    let config = &config["config"];
    let texts = |value: &Value| -> Vec<String> {
        let values = value.as_array().unwrap().iter();
        values
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    };
    let inside = |args: &[String], host: &str| {
        let mut command = Command::new("/usr/bin/unshare");
        command.arg(format!("--mount-proc={}", system.join("proc").display()));
        command.args(["/usr/bin/setpriv", "--no-new-privs"]);
        command.args(["/usr/sbin/chroot", "--groups="]);
        command.arg(format!("--userspec={}", config["User"].as_str().unwrap()));
        command.arg(&system).args(args).env_clear();
        let variables = texts(&config["Env"]);
        command.envs(variables.iter().map(|each| each.split_once('=').unwrap()));
        // Only the port is another: something else may serve at the usual one.
        command.env("LLMSRV_HOST", host);
        command
    };
    let files = || {
        let listed = Command::new("find")
            .arg(&system)
            .args(["-xdev", "-printf", "%P %U %m\n"])
            .output()
            .unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    let before = files();
    let start = [texts(&config["Entrypoint"]), texts(&config["Cmd"])].concat();
    let server = Server::start(inside(&start, "127.0.0.1:0"));
    let health = texts(&config["Healthcheck"]["Test"]);
    assert_eq!(health[0], "CMD");
    let state = |host: &str| Output::of(&mut inside(&health[1..], host)).code;
    assert_eq!(state(server.host()), 0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let question = json!({"model": "default", "prompt": "Hello!", "stream": false});
    let answer = runtime
        .block_on(server.post("/api/generate", &question))
        .ok();
    assert!(answer["response"].as_str().unwrap().len() > 10, "{answer}");
    let host = server.host().to_owned();
    assert_eq!(server.end("-TERM"), 0);
    assert_eq!(state(&host), 3);
    let after = files();
    let old: Vec<&str> = before.lines().collect();
    for new in after.lines().filter(|line| !old.contains(line)) {
        assert!(new.starts_with("var/lib/llmsrv/"), "{new}");
    }
}
