//! A server of a test's own, and its clients.

use std::{path::PathBuf, time::Duration};

use logkit::query::{Filter, Reader, Row};
use logkit_proto::{tonic::transport::Channel, v1::logkit_logger_client::LogkitLoggerClient};
use logkit_server::{Server, Settings};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) client: reqwest::Client,
    pub(crate) folder: TempDir,
}

pub(crate) async fn start(change: impl FnOnce(&mut Settings)) -> Running {
    llmsrv_tls::init();
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings {
        http: ("127.0.0.1".into(), 0),
        grpc: Some(("127.0.0.1".into(), 0)),
        database: folder.path().join("data/central.db"),
        ..Settings::default()
    };
    change(&mut settings);
    Running {
        server: Server::start(settings).await.unwrap(),
        client: client(),
        folder,
    }
}

pub(crate) fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().timeout(Duration::from_secs(30));
    builder.no_proxy().build().unwrap()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl Running {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.bound().http)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("data/central.db")
    }

    /// The rows of the database, as they were written.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let reader = Reader::open(self.database(), "logs").unwrap();
        reader
            .for_each(&Filter::default(), |row| {
                rows.push(row);
                true
            })
            .unwrap();
        rows
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.unwrap(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.client.get(self.url(path))).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.client.post(self.url(path)).body(body)).await
    }

    pub(crate) async fn log(&self, body: Value) -> Value {
        let answer = self.post("/log", body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    pub(crate) async fn grpc(&self) -> LogkitLoggerClient<Channel> {
        let address = format!("http://{}", self.server.bound().grpc.unwrap());
        let channel = Channel::from_shared(address)
            .unwrap()
            .connect()
            .await
            .unwrap();
        LogkitLoggerClient::new(channel)
    }
}

/// A script of the repository's examples, and other files of the root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
