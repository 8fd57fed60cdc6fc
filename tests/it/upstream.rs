//! Other servers behind ours: two of ours, and llama.cpp's with `tests/run --peers`.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::util::{Sandbox, Server, TIMEOUT};

/// A front server with these tables in its settings.
fn front(sandbox: &Sandbox, tables: &str) -> Server {
    let folder = sandbox.path().join("config/llmsrv");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), tables).unwrap();
    sandbox.serve()
}

fn table(name: &str, url: &str, models: &str) -> String {
    format!(
        "[upstream.{name}]\nurl = \"{url}/v1\"\nmodels = {models}\nhealth_interval = \"1s\"\nidle_timeout = \"5s\"\n"
    )
}

fn chat(model: &str) -> Value {
    json!({"model": model, "stream": false, "options": {"temperature": 0}, "messages": [{"role": "user", "content": "Hello!"}]})
}

#[tokio::test]
async fn servers_die_idle_and_in_mid_stream_and_the_client_hears_of_it() {
    let (one, two, sandbox) = (Sandbox::new(), Sandbox::new(), Sandbox::new());
    let (first, second) = (one.serve(), two.serve());
    let tables = table("one", &first.url, "{ far = \"default\" }")
        + &table(
            "two",
            &second.url,
            "{ far = \"default\", long = \"default\" }",
        );
    let front = front(&sandbox, &tables);

    let direct = first.post("/api/chat", &chat("default")).await.ok();
    let expected = &direct["message"]["content"];
    for _ in 0..4 {
        let answer = front.post("/api/chat", &chat("far")).await.ok();
        assert_eq!(&answer["message"]["content"], expected);
    }
    let openai = json!({"model": "far", "temperature": 0, "messages": [{"role": "user", "content": "Hello!"}]});
    let answer = front.post("/v1/chat/completions", &openai).await.ok();
    assert_eq!(&answer["choices"][0]["message"]["content"], expected);

    // In mid-stream: the client gets a last line that says so, soon.
    // Seconds of text, whatever the model would say.
    let numbers = json!({"type": "array", "items": {"type": "integer"}, "minItems": 1000});
    let endless = json!({"model": "long", "format": numbers, "options": {"num_predict": 30000}, "messages": [{"role": "user", "content": "Count for ever"}]});
    let response = front
        .http
        .post(format!("{}/api/chat", front.url))
        .body(endless.to_string())
        .send()
        .await
        .unwrap();
    let mut stream = response.bytes_stream();
    let mut text = stream.next().await.unwrap().unwrap().to_vec();
    let killed = Instant::now();
    second.end("-KILL");
    while let Some(bytes) = stream.next().await {
        text.extend_from_slice(&bytes.unwrap());
    }
    assert!(killed.elapsed() < Duration::from_secs(20), "it hung");
    let text = String::from_utf8(text).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(
        last["error"].as_str().unwrap().contains("upstream two"),
        "{last}"
    );

    // While idle: the others go on.
    for _ in 0..3 {
        let answer = front.post("/api/chat", &chat("far")).await.ok();
        assert_eq!(&answer["message"]["content"], expected);
    }
    first.end("-KILL");
    let reply = front.post("/api/chat", &chat("far")).await;
    assert_eq!(reply.status, 502, "{reply:?}");
    assert!(
        reply.json()["error"]
            .as_str()
            .unwrap()
            .contains("cannot be reached")
    );
    let reply = front.post("/api/chat", &chat("long")).await;
    assert_eq!(reply.status, 502, "{reply:?}");
}

#[tokio::test]
#[ignore = "needs llama.cpp's server: tests/run --peers"]
async fn a_server_of_another_engine_gives_the_same_answer_and_takes_over() {
    let (one, sandbox) = (Sandbox::new(), Sandbox::new());
    let first = one.serve();
    let llama = Llama::start(&one).await;
    let tables = table("one", &first.url, "{ far = \"default\" }")
        + &table(
            "llama",
            &llama.url,
            "{ far = \"embedded\", theirs = \"embedded\" }",
        );
    let front = front(&sandbox, &tables);
    let direct = first.post("/api/chat", &chat("default")).await.ok();
    let expected = &direct["message"]["content"];
    let answer = front.post("/api/chat", &chat("theirs")).await.ok();
    assert_eq!(&answer["message"]["content"], expected);
    first.end("-KILL");
    let answer = front.post("/api/chat", &chat("far")).await.ok();
    assert_eq!(&answer["message"]["content"], expected);
}

/// The server of llama-cpp-python over the embedded model; killed when dropped.
struct Llama {
    child: Child,
    url: String,
}

impl Llama {
    async fn start(sandbox: &Sandbox) -> Llama {
        let peers = std::env::var_os("TEST_PEERS").map(PathBuf::from);
        let peers = peers.expect("TEST_PEERS is set by `tests/run --peers`");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/embedded/model.gguf");
        let mut command = Command::new(peers.join("bin/python"));
        command
            .args(["-m", "llama_cpp.server", "--host", "127.0.0.1"])
            .args(["--port", &port.to_string(), "--model_alias", "embedded"])
            .args(["--interrupt_requests", "false"])
            .args(["--n_threads", "1", "--model"])
            .arg(model)
            .current_dir(sandbox.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let llama = Llama {
            child: command.spawn().unwrap(),
            url: format!("http://127.0.0.1:{port}"),
        };
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while http
            .get(format!("{}/v1/models", llama.url))
            .send()
            .await
            .is_err()
        {
            assert!(
                Instant::now() < deadline,
                "llama.cpp's server does not start"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        llama
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
