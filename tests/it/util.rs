//! A sandbox with its own home, and a server running in it.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::signals;

/// How long a test waits for something that should happen at once.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// A temporary home directory: nothing of the user's reaches the program under test.
pub struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    pub fn new() -> Sandbox {
        signals::reset();
        Sandbox {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The models directory used when nothing else is set.
    pub fn models(&self) -> PathBuf {
        self.path().join("data/llmsrv/models")
    }

    /// The binary under test with a cleared environment: another build of it where one is named.
    pub fn command(&self) -> Command {
        let named = std::env::var_os("LLMSRV_TEST_PROGRAM");
        let program = named.unwrap_or_else(|| env!("CARGO_BIN_EXE_llmsrv").into());
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            // Mesa compiles the kernels of GPUs once, not in each sandbox.
            .env(
                "MESA_SHADER_CACHE_DIR",
                concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
            )
            // No test asks a registry outside; those with one of their own say so.
            .env("LLMSRV_REGISTRIES", "registry.invalid")
            // Answers are those of the CPU, whatever the machine has; an empty value is none.
            .env("LLMSRV_GPU", "0")
            // Nothing listens here unless the test starts it.
            .env("LLMSRV_HOST", "127.0.0.1:9")
            .current_dir(self.path());
        command
    }

    /// Runs the binary to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        Output::of(self.command().args(args))
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[], &[])
    }

    /// Starts `llmsrv serve` on a free loopback port and waits until it listens.
    pub fn serve_with(&self, args: &[&str], env: &[(&str, &str)]) -> Server {
        let mut command = self.command();
        command
            .arg("serve")
            .args(args)
            .env("LLMSRV_HOST", "127.0.0.1:0")
            .envs(env.iter().copied());
        Server::start(command)
    }
}

/// What a finished command left.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn of(command: &mut Command) -> Output {
        let output = command.stdin(Stdio::null()).output().unwrap();
        Output {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn ok(self) -> Output {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// What was printed as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    log: Arc<Mutex<String>>,
    /// `http://127.0.0.1:<port>`, or https
    pub url: String,
    pub http: reqwest::Client,
}

impl Server {
    /// Starts a command that serves and waits until it says where.
    pub fn start(mut command: Command) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (found, address) = mpsc::channel();
        let log = Arc::new(Mutex::new(String::new()));
        let written = log.clone();
        std::thread::spawn(move || {
            // Reads to the end so that the server never blocks on a full pipe.
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("[server] {line}");
                written.lock().unwrap().extend([line.as_str(), "\n"]);
                // The logger names host and port alone.
                if let Some(rest) = line.strip_prefix("HTTP on 127.0.0.1:") {
                    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    let _ = found.send(format!("http://127.0.0.1:{port}"));
                }
                let start = ["http://127.0.0.1:", "https://127.0.0.1:"];
                if let Some(at) = start.iter().find_map(|start| line.find(start)) {
                    let url: String = line[at..]
                        .chars()
                        .take_while(|c| !c.is_whitespace() && *c != '\u{1b}')
                        .collect();
                    let _ = found.send(url.trim_end_matches(['/', '.', ',']).to_owned());
                }
            }
        });
        let url = address
            .recv_timeout(TIMEOUT)
            .expect("the server announces its address");
        llmsrv_tls::init();
        Server {
            child,
            log,
            url,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Host and port as `LLMSRV_HOST` takes them.
    pub fn host(&self) -> &str {
        let (_, host) = self.url.split_once("://").unwrap();
        host
    }

    /// What the server has written so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the server has written `text` for the `count`th time.
    pub fn wait_for_log(&self, text: &str, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        while self.log().matches(text).count() < count {
            assert!(Instant::now() < deadline, "no `{text}` in: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        Command::new("kill")
            .args([signal, &self.pid().to_string()])
            .status()
            .unwrap();
    }

    pub async fn get(&self, path: &str) -> Reply {
        Reply::of(self.http.get(format!("{}{path}", self.url))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        Reply::of(
            self.http
                .post(format!("{}{path}", self.url))
                .body(body.to_string()),
        )
        .await
    }

    /// Posts a streaming request and returns all lines.
    pub async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let reply = self.post(path, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.content_type, "application/x-ndjson");
        reply
            .text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Sends a signal and waits for the end; returns the exit code.
    pub fn end(mut self, signal: &str) -> i32 {
        self.signal(signal);
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(
                Instant::now() < deadline,
                "the server does not end after {signal}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An HTTP answer, read whole.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: String,
    pub text: String,
}

impl Reply {
    pub async fn of(request: reqwest::RequestBuilder) -> Reply {
        let response = request.send().await.unwrap();
        let content_type = response
            .headers()
            .get("content-type")
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default();
        Reply {
            status: response.status().as_u16(),
            content_type,
            text: response.text().await.unwrap(),
        }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }
}
