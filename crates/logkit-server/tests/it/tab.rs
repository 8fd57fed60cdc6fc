//! A tab of a real browser, driven over the protocol of its developer tools.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::Engine as _;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

/// A tab. The browser ends with the first one.
pub struct Tab {
    browser: Browser,
    socket: WebSocket<TcpStream>,
    next_id: u64,
    /// Exceptions, what was written to the console, and refused resources.
    pub errors: Vec<String>,
}

enum Browser {
    Own(
        Child,
        #[expect(dead_code, reason = "removed when dropped")] tempfile::TempDir,
        String,
    ),
    Shared(String),
}

impl Drop for Browser {
    fn drop(&mut self) {
        if let Browser::Own(process, ..) = self {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Tab {
    /// Starts a browser with an empty tab.
    pub fn open() -> Tab {
        let profile = tempfile::tempdir().unwrap();
        let started = Command::new("chromium")
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--no-proxy-server",
            ])
            .args([
                "--remote-debugging-port=0",
                "--window-size=1280,800",
                "about:blank",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut process =
            started.expect("the tests of pages need chromium, which `tests/run` installs");
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let address = lines
            .find_map(|line| Some(line.strip_prefix("DevTools listening on ws://")?.to_owned()))
            .expect("the browser starts");
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Tab::new(Browser::Own(process, profile, address))
    }

    /// Opens another tab of the same browser.
    #[allow(dead_code, reason = "not all test crates that share this need it")]
    pub fn beside(&self) -> Tab {
        let (Browser::Own(_, _, address) | Browser::Shared(address)) = &self.browser;
        Tab::new(Browser::Shared(address.clone()))
    }

    fn new(browser: Browser) -> Tab {
        let (Browser::Own(_, _, address) | Browser::Shared(address)) = &browser;
        let host = address.split('/').next().unwrap().to_owned();
        let connect = |address: &str| {
            let stream = TcpStream::connect(&host).unwrap();
            tungstenite::client(format!("ws://{address}"), stream)
                .unwrap()
                .0
        };
        let socket = connect(address);
        let mut tab = Tab {
            browser,
            socket,
            next_id: 0,
            errors: Vec::new(),
        };
        let target = tab.call("Target.createTarget", json!({"url": "about:blank"}));
        let id = target["targetId"].as_str().unwrap();
        tab.socket = connect(&format!("{host}/devtools/page/{id}"));
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            tab.call(domain, json!({}));
        }
        tab
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let request = json!({"id": id, "method": method, "params": parameters});
        self.socket
            .send(Message::text(request.to_string()))
            .unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            let told = matches!(
                message["method"].as_str(),
                Some("Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded")
            );
            if told && message["params"]["entry"]["level"] != "verbose" {
                self.errors.push(message["params"].to_string());
            }
        }
    }

    /// The value of an expression.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression has a value.
    #[track_caller]
    pub fn wait(&mut self, expression: &str, expected: impl Into<Value>) {
        let expected = expected.into();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let value = self.eval(expression);
            if value == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{expression} is {value}, not {expected}; errors: {:?}",
                self.errors
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens an address.
    pub fn goto(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait("document.readyState", "complete");
    }

    /// Presses a key and lets it go.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "ArrowUp" => (38, ""),
            key if key.chars().count() == 1 => (0, key),
            _ => (0, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let parameters =
                json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", parameters);
        }
    }

    /// Writes into what has the focus.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Keeps a picture if `TEST_PICTURES` names a folder.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("TEST_PICTURES") else {
            return;
        };
        let data = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let data = base64::engine::general_purpose::STANDARD
            .decode(data["data"].as_str().unwrap())
            .unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), data).unwrap();
    }

    /// Sets the width of the window.
    pub fn width(&mut self, width: u16) {
        let size = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Prefers light or dark colours.
    pub fn colours(&mut self, scheme: &str) {
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
    }
}
