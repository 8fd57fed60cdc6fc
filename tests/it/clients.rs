//! The clients that people use, unmodified: official ones of three APIs, frameworks, coding agents.
//!
//! `tests/run` installs them and names the folder in `TEST_CLIENTS`; without it these tests fail.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    gpu::{GPU, workers},
    util::{Output, Sandbox, Server},
};

fn clients() -> PathBuf {
    std::env::var_os("TEST_CLIENTS")
        .expect("the clients are missing, which `tests/run` installs")
        .into()
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(name)
}

/// Starts a server with the built-in model, and as `caller` the same under a template that knows tools.
async fn serve(sandbox: &Sandbox, env: &[(&str, &str)]) -> Server {
    let server = sandbox.serve_with(&[], env);
    let template = "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}{{ range .ToolCalls }}<tool_call>\n{\"name\": \"{{ .Function.Name }}\", \"arguments\": {{ .Function.Arguments }}}\n</tool_call>{{ end }}<|im_end|>\n{{ end }}<|im_start|>assistant\n";
    let template = format!("{{{{ if .Tools }}}}{{{{ end }}}}{template}");
    let body = json!({"model": "caller", "from": "default", "template": template, "stream": false});
    server.post("/api/create", &body).await.ok();
    server
}

/// Runs a script of ours that drives a client; returns what it printed. Without `parts` all are run.
async fn drive(server: &Server, name: &str, parts: &[&str]) -> String {
    let clients = clients();
    // Modules of JavaScript are looked for beside the script. Each server has its own copy.
    let copy = clients.join(format!("{}-{name}", server.pid()));
    let mut command = if Path::new(name).extension().is_some_and(|end| end == "py") {
        let mut command = Command::new(clients.join("venv/bin/python"));
        command
            .args(["-X", "dev", "-W", "ignore"])
            .arg(script(name));
        command
    } else {
        fs::copy(script(name), &copy).unwrap();
        let mut command = Command::new("node");
        command.arg(&copy);
        command
    };
    command
        .args(parts)
        .env("OLLAMA_HOST", &server.url)
        .env("LLMSRV_URL", &server.url);
    // Our own connection sees meanwhile when the server closes it.
    let running = tokio::task::spawn_blocking(move || Output::of(&mut command));
    let output = running.await.unwrap();
    let _ = fs::remove_file(copy);
    output.ok().stdout
}

/// Runs all parts of such a script against a server of its own; the last one is called `last`.
async fn client(name: &str, last: &str) {
    let sandbox = Sandbox::new();
    let server = serve(&sandbox, &[]).await;
    let said = drive(&server, name, &[]).await;
    assert!(said.contains(&format!("ok {last}")), "{said}");
}

#[tokio::test]
async fn the_official_python_client_works_unmodified() {
    client("python_client.py", "concurrent").await;
}

#[tokio::test]
async fn the_openai_sdk_works_unmodified() {
    client("openai_sdk.py", "concurrent").await;
}

#[tokio::test]
async fn the_anthropic_sdk_works_unmodified() {
    client("anthropic_sdk.py", "errors").await;
}

#[tokio::test]
async fn langchain_works_unmodified() {
    client("langchain_client.py", "batch").await;
}

#[tokio::test]
async fn the_official_javascript_client_works_unmodified() {
    client("js_client.mjs", "errors").await;
}

/// One server whose models a GPU computes: texts, streams, formats, calls of tools and vectors, each by one client at
/// least.
#[tokio::test]
async fn the_official_clients_work_unmodified_on_a_gpu() {
    let sandbox = Sandbox::new();
    let server = serve(&sandbox, &GPU).await;
    for (script, parts) in [
        ("python_client.py", &["generate", "embeddings"][..]),
        ("openai_sdk.py", &["structured", "tools", "embeddings"]),
        ("anthropic_sdk.py", &["stream"]),
        ("js_client.mjs", &["embeddings"]),
    ] {
        let said = drive(&server, script, parts).await;
        for part in parts {
            assert!(said.contains(&format!("ok {part}\n")), "{script}: {said}");
        }
        let running: Value = server.get("/api/ps").await.ok();
        for model in running["models"].as_array().unwrap() {
            assert_eq!(model["gpu_layers"], model["layers"], "{script}: {running}");
        }
        assert!(!workers(server.pid()).is_empty(), "{script}");
    }
}

/// A server with the built-in model, with `caller`, the same under a template that knows tools, and
/// with `script`, a model behind another server that calls tools by a script.
struct Scripted {
    script: Child,
    server: Server,
    sandbox: Sandbox,
}

impl Scripted {
    async fn start() -> Scripted {
        let mut script = Command::new("python3")
            .arg(self::script("script.py"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut stdout = BufReader::new(script.stdout.take().unwrap());
        stdout.read_line(&mut port).unwrap();
        let sandbox = Sandbox::new();
        let folder = sandbox.path().join("config/llmsrv");
        fs::create_dir_all(&folder).unwrap();
        let table = format!(
            "[upstream.script]\nurl = \"http://127.0.0.1:{}/v1\"\nmodels = {{ script = \"script\" }}\n",
            port.trim()
        );
        fs::write(folder.join("config.toml"), table).unwrap();
        let server = serve(&sandbox, &[]).await;
        Scripted {
            script,
            server,
            sandbox,
        }
    }

    /// A program in an environment of its own, which knows no other address than the server's.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.sandbox.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // Whoever asks somebody else gets no answer.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1,localhost")
            .env("LLMSRV_URL", &self.server.url)
            .current_dir(self.sandbox.path());
        command
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

async fn framework_of_python(name: &str) {
    let clients = clients();
    let scripted = Scripted::start().await;
    let output = Output::of(
        scripted
            .command(&clients.join("frameworks/bin/python"))
            .arg(script("frameworks.py"))
            .arg(name),
    )
    .ok();
    assert!(output.stdout.contains(&format!("ok {name}")), "{output:?}");
}

async fn framework_of_javascript(name: &str) {
    let clients = clients();
    let scripted = Scripted::start().await;
    // Modules are looked for beside the script.
    let copy = clients.join(format!("{name}.mjs"));
    fs::copy(script("frameworks.mjs"), &copy).unwrap();
    let output = Output::of(scripted.command(Path::new("node")).arg(&copy).arg(name)).ok();
    assert!(output.stdout.contains(&format!("ok {name}")), "{output:?}");
}

#[tokio::test]
async fn litellm_works_unmodified() {
    framework_of_python("litellm").await;
}

#[tokio::test]
async fn llama_index_works_unmodified() {
    framework_of_python("llama-index").await;
}

#[tokio::test]
async fn instructor_works_unmodified() {
    framework_of_python("instructor").await;
}

#[tokio::test]
async fn pydantic_ai_works_unmodified() {
    framework_of_python("pydantic-ai").await;
}

#[tokio::test]
async fn the_providers_of_the_ai_sdk_work_unmodified() {
    for provider in ["openai", "openai-compatible", "anthropic", "ollama"] {
        framework_of_javascript(&format!("ai-sdk-{provider}")).await;
    }
}

#[tokio::test]
async fn genkit_works_unmodified() {
    framework_of_javascript("genkit").await;
}

/// What an agent is asked, and what it must come to know: it is the tool that says it.
const TASK: &str = "Use your shell to say something, then tell me what it said.";
const SAID: &str = "said-by-tool";

/// An agent as `llmsrv launch` starts it.
fn launched(scripted: &Scripted, clients: &Path, agent: &str) -> Command {
    let program = scripted.sandbox.command();
    let mut command = scripted.command(Path::new(program.get_program()));
    let own = clients.join("node_modules/.bin");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .env("PATH", format!("{}:{path}", own.display()))
        .args(["launch", agent, "-m", "script", "--host"])
        .args([&scripted.server.url, "--"]);
    command
}

#[tokio::test]
async fn claude_code_works_unmodified() {
    let clients = clients();
    let scripted = Scripted::start().await;
    let output = Output::of(
        launched(&scripted, &clients, "claude")
            .args(["-p", TASK, "--output-format", "json"])
            .args(["--allowedTools", "Bash"])
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    )
    .ok();
    let answer = output.json();
    let result = answer["result"].as_str().unwrap();
    assert!(result.contains(SAID), "{output:?}");

    let output = Output::of(
        launched(&scripted, &clients, "claude")
            .args(["-p", TASK, "--output-format", "json"])
            .args(["--json-schema", &schema()])
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    )
    .ok();
    assert_eq!(
        output.json()["structured_output"],
        json!({"city": "Paris"}),
        "{output:?}"
    );

    // By the file that `launch --write` makes, too.
    let mut write = scripted.sandbox.command();
    write.args([
        "launch", "claude", "-m", "script", "--write", "--yes", "--host",
    ]);
    Output::of(write.arg(&scripted.server.url)).ok();
    let output = Output::of(
        scripted
            .command(&clients.join("node_modules/.bin/claude"))
            .args(["-p", TASK, "--output-format", "json"])
            .args(["--allowedTools", "Bash"])
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    )
    .ok();
    let answer = output.json();
    assert!(
        answer["result"].as_str().unwrap().contains(SAID),
        "{output:?}"
    );
}

/// What a structured answer of an agent must be like.
fn schema() -> String {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": false,
    })
    .to_string()
}

#[tokio::test]
async fn codex_works_unmodified() {
    let clients = clients();
    let scripted = Scripted::start().await;
    let output = Output::of(
        launched(&scripted, &clients, "codex")
            .args(["exec", "--skip-git-repo-check"])
            .args(["--dangerously-bypass-approvals-and-sandbox", TASK])
            .env("CODEX_HOME", scripted.sandbox.path()),
    )
    .ok();
    assert!(output.stdout.contains(SAID), "{output:?}");

    let file = scripted.sandbox.path().join("schema.json");
    fs::write(&file, schema()).unwrap();
    let output = Output::of(
        launched(&scripted, &clients, "codex")
            .args(["exec", "--skip-git-repo-check", "--output-schema"])
            .arg(&file)
            .args(["--dangerously-bypass-approvals-and-sandbox", TASK])
            .env("CODEX_HOME", scripted.sandbox.path()),
    )
    .ok();
    assert!(output.stdout.contains(r#"{"city": "Paris"}"#), "{output:?}");

    // Tools of other processes are in a namespace.
    let server = format!("[{:?}]", script("mcp.py"));
    let output = Output::of(
        launched(&scripted, &clients, "codex")
            .args(["-c", "mcp_servers.sky.command=python3", "-c"])
            .arg(format!("mcp_servers.sky.args={server}"))
            .args(["exec", "--skip-git-repo-check"])
            .args(["--dangerously-bypass-approvals-and-sandbox", TASK])
            .env("CODEX_HOME", scripted.sandbox.path()),
    )
    .ok();
    assert!(output.stdout.contains("It rains in Paris."), "{output:?}");

    // By the file that `launch --write` makes, too.
    let home = scripted.sandbox.path().to_path_buf();
    let mut write = scripted.sandbox.command();
    write.args([
        "launch", "codex", "-m", "script", "--write", "--yes", "--host",
    ]);
    Output::of(write.arg(&scripted.server.url)).ok();
    let output = Output::of(
        scripted
            .command(&clients.join("node_modules/.bin/codex"))
            .args(["--profile", "llmsrv", "exec", "--skip-git-repo-check"])
            .args(["--dangerously-bypass-approvals-and-sandbox", TASK])
            .env("CODEX_HOME", home.join(".codex")),
    )
    .ok();
    assert!(output.stdout.contains(SAID), "{output:?}");
}
