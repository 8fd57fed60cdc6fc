//! Moving models between the program and registries: a real one, and one that is slow on purpose.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::util::{Output, Sandbox, TIMEOUT};

#[expect(dead_code, reason = "shared with another test crate")]
#[path = "../../crates/llmsrv-registry/tests/it/fake.rs"]
pub mod fake;
use fake::{Act, Fake};

/// Debian's registry on a free port of this machine, over a temporary folder.
pub struct DockerRegistry {
    child: Child,
    pub host: String,
    _folder: tempfile::TempDir,
}

impl DockerRegistry {
    pub fn start() -> DockerRegistry {
        DockerRegistry::start_with(None)
    }

    /// Starts it with a certificate and its key, both in one file.
    fn start_with(pem: Option<&Path>) -> DockerRegistry {
        let folder = tempfile::tempdir().unwrap();
        let host = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        let config = folder.path().join("config.yml");
        let storage = folder.path().join("storage");
        std::fs::write(
            &config,
            format!(
                "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
                 http:\n  addr: {host}\n  secret: test\n{}",
                storage.display(),
                pem.map_or_else(String::new, |pem| {
                    let pem = pem.display();
                    format!("  tls:\n    certificate: {pem}\n    key: {pem}\n")
                }),
            ),
        )
        .unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child
            .expect("the tests of registries need docker-registry, which `tests/run` installs");
        let deadline = Instant::now() + TIMEOUT;
        while std::net::TcpStream::connect(&host).is_err() {
            assert!(Instant::now() < deadline, "docker-registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        DockerRegistry {
            child,
            host,
            _folder: folder,
        }
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that may speak to any registry.
fn run(sandbox: &Sandbox, args: &[&str]) -> Output {
    Output::of(sandbox.command().env("LLMSRV_REGISTRIES", "").args(args))
}

/// Returns the digest of a model.
fn digest(sandbox: &Sandbox, name: &str) -> Option<String> {
    let listed: Value =
        serde_json::from_str(&sandbox.run(&["list", "--json"]).ok().stdout).unwrap();
    let models = listed["models"].as_array().unwrap().clone();
    let model = models.into_iter().find(|model| model["name"] == name)?;
    Some(model["digest"].as_str().unwrap().to_owned())
}

#[test]
fn a_model_goes_out_to_a_real_registry_and_comes_back_whole() {
    let registry = DockerRegistry::start();
    let name = format!("{}/team/little:v1", registry.host);
    let sandbox = Sandbox::new();
    sandbox.run(&["cp", "default", &name]).ok();
    let pushed = run(&sandbox, &["push", &name, "--json"]).ok();
    let steps: Vec<Value> = pushed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(steps[0], json!({"status": "retrieving manifest"}));
    assert_eq!(*steps.last().unwrap(), json!({"status": "success"}));
    assert_eq!(pushed.stderr, "");

    // Once more: nothing is sent, and people get lines.
    let again = run(&sandbox, &["push", &name]).ok();
    assert!(
        again.stderr.contains("pushing manifest\n") && again.stdout.is_empty(),
        "{again:?}"
    );

    let other = Sandbox::new();
    let pulled = run(&other, &["pull", &name]).ok();
    for step in [
        "pulling manifest\n",
        ": 100% of ",
        "verifying sha256 digest\n",
        "writing manifest\n",
        "success\n",
    ] {
        assert!(pulled.stderr.contains(step), "{step:?}: {pulled:?}");
    }
    assert!(!pulled.stderr.contains('\u{1b}'), "{pulled:?}");
    assert_eq!(digest(&other, &name), digest(&sandbox, &name));
    assert!(digest(&other, &name).is_some());
    let answer = other.run(&["run", &name, "Hello!"]).ok();
    assert!(answer.stdout.contains("llmsrv"), "{answer:?}");

    let unknown = run(
        &other,
        &["pull", &format!("{}/team/nobody:v1", registry.host)],
    );
    assert!(
        unknown.stderr.contains("no model of this name and tag"),
        "{unknown:?}"
    );
}

#[test]
fn running_a_model_that_is_not_here_pulls_it() {
    let registry = DockerRegistry::start();
    let name = format!("{}/team/little:v1", registry.host);
    let sandbox = Sandbox::new();
    sandbox.run(&["cp", "default", &name]).ok();
    run(&sandbox, &["push", &name]).ok();

    let other = Sandbox::new();
    let server = other.serve_with(&[], &[("LLMSRV_REGISTRIES", "")]);
    let answer = Output::of(
        other
            .command()
            .env("LLMSRV_HOST", server.host())
            .args(["run", &name, "Hello!"]),
    )
    .ok();
    assert!(answer.stdout.contains("llmsrv"), "{answer:?}");
    assert!(answer.stderr.contains("pulling it"), "{answer:?}");

    let missing = format!("{}/team/none", registry.host);
    let output = run(&other, &["run", &missing, "Hello!"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("file does not exist"), "{output:?}");
    let output = run(&other, &["pull", &missing, &name, &missing]);
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("2 models are not there"),
        "{output:?}"
    );
    let output = run(&other, &["pull", "--json", &missing]);
    assert_eq!(output.code, 1);
    assert_eq!(output.stdout, "{\"status\":\"pulling manifest\"}\n");
    let error: Value = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(error["code"], "failed", "{error}");
}

#[test]
fn certificates_are_verified_unless_the_user_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("registry.pem");
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=registry",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            "-",
            "-out",
            "-",
        ])
        .stderr(Stdio::null())
        .output()
        .expect("this test needs openssl, which `tests/run` installs");
    assert!(made.status.success());
    std::fs::write(&pem, made.stdout).unwrap();
    let registry = DockerRegistry::start_with(Some(&pem));
    let name = format!("{}/team/little:v1", registry.host);
    let sandbox = Sandbox::new();
    sandbox.run(&["cp", "default", &name]).ok();
    let trusting = |sandbox: &Sandbox, args: &[&str]| {
        let mut command = sandbox.command();
        command
            .env("LLMSRV_REGISTRIES", "")
            .env("SSL_CERT_FILE", &pem)
            .args(args);
        Output::of(&mut command)
    };
    trusting(&sandbox, &["push", &name]).ok();
    let other = Sandbox::new();
    let refused = run(&other, &["pull", &name]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("certificate") && refused.stderr.contains("insecure"),
        "{refused:?}"
    );
    assert!(digest(&other, &name).is_none());
    trusting(&other, &["pull", &name]).ok();
    assert!(digest(&other, &name).is_some());
    let third = Sandbox::new();
    run(&third, &["pull", "--insecure", &name]).ok();
    assert_eq!(digest(&third, &name), digest(&other, &name));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_environment_are_used() {
    let (proxy, sandbox) = (Fake::start().await, Sandbox::new());
    serve_model(&proxy, &sandbox);
    let name = "http://registry.example/a/b:t";
    let pull = |no_proxy: &'static str| {
        let mut command = sandbox.command();
        command
            .env("LLMSRV_REGISTRIES", "")
            .env("HTTP_PROXY", proxy.url(""))
            .env("NO_PROXY", no_proxy)
            .args(["pull", name]);
        tokio::task::spawn_blocking(move || Output::of(&mut command))
    };
    pull("").await.unwrap().ok();
    assert!(
        proxy
            .log()
            .iter()
            .all(|seen| seen.headers["host"] == "registry.example")
    );
    assert!(digest(&sandbox, "registry.example/a/b:t").is_some());
    let output = pull("registry.example").await.unwrap();
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("cannot reach registry.example"),
        "{output:?}"
    );
}

/// Serves the built-in model of a store as `a/b:t`; returns the size of its weights.
pub fn serve_model(fake: &Fake, sandbox: &Sandbox) -> u64 {
    let manifests = sandbox
        .models()
        .join("manifests/registry.ollama.ai/library");
    sandbox.run(&["cp", "default", "mine:t"]).ok();
    let manifest = std::fs::read(manifests.join("mine/t")).unwrap();
    fake.put("/v2/a/b/manifests/t", manifest.clone());
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    for layer in layers.iter().chain([&manifest["config"]]) {
        let digest = layer["digest"].as_str().unwrap();
        let file = sandbox
            .models()
            .join("blobs")
            .join(digest.replace(':', "-"));
        fake.put(
            format!("/v2/a/b/blobs/{digest}"),
            std::fs::read(file).unwrap(),
        );
    }
    layers
        .iter()
        .map(|layer| layer["size"].as_u64().unwrap())
        .max()
        .unwrap()
}

fn partial_bytes(blobs: &Path) -> u64 {
    let states = std::fs::read_dir(blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    states
        .filter(|path| path.to_str().unwrap().contains("-partial-"))
        .map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap())
        .map(|state| state["Completed"].as_u64().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_was_killed_goes_on_where_it_was() {
    let (fake, origin) = (Fake::start().await, Sandbox::new());
    let size = serve_model(&fake, &origin);
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(32 << 10, Duration::from_millis(15))
        } else {
            Act::Normal
        }
    });
    let sandbox = Sandbox::new();
    let env = [("LLMSRV_REGISTRIES", ""), ("LLMSRV_NO_EMBEDDED", "1")];
    let name = format!("{}/a/b:t", fake.host);
    let mut there = 0;
    for round in 0..3 {
        let server = sandbox.serve_with(&[], &env);
        let request = server
            .http
            .post(format!("{}/api/pull", server.url))
            .body(json!({"model": name}).to_string());
        let mut lines = request.send().await.unwrap().bytes_stream();
        let begun = Instant::now();
        // Until a second's worth of this round has come.
        while begun.elapsed() < Duration::from_secs(1) {
            let chunk = lines.next().await.unwrap().unwrap();
            assert!(
                !String::from_utf8_lossy(&chunk).contains("error"),
                "{chunk:?}"
            );
        }
        assert_eq!(server.end("-KILL"), -1);
        let now = partial_bytes(&sandbox.models().join("blobs"));
        assert!(
            now > there && now < size,
            "round {round}: {there} {now} {size}"
        );
        there = now;
        let listed = Output::of(sandbox.command().envs(env).args(["list", "--json"])).ok();
        assert!(!listed.stdout.contains("a/b"), "{listed:?}");
    }

    fake.behave();
    fake.forget();
    let pulled = {
        let mut command = sandbox.command();
        command.envs(env).args(["pull", &name]);
        tokio::task::spawn_blocking(move || Output::of(&mut command))
            .await
            .unwrap()
    };
    pulled.ok();
    let of_weights = fake
        .blob_requests()
        .into_iter()
        .filter(|seen| seen.range.unwrap().1 == size - 1);
    let asked: Vec<u64> = of_weights.map(|seen| seen.range.unwrap().0).collect();
    assert_eq!(asked, [there], "only what was missing was asked for");
    let answer = sandbox.run(&["run", &name, "Hello!"]).ok();
    assert!(answer.stdout.contains("llmsrv"), "{answer:?}");
    assert_eq!(digest(&sandbox, &name), digest(&origin, "mine:t"));
}
