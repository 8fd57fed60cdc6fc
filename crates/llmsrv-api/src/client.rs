//! An asynchronous client for the native API: the calls any client makes, with typed errors.

use std::{fmt, io, marker::PhantomData, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream::BoxStream};
use reqwest::{Method, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Longest line of a stream, in bytes: a whole answer in one line still fits.
const MAX_LINE: usize = 16 << 20;
/// Longest body that is read whole, in bytes (`show` with all metadata is the largest).
const MAX_BODY: usize = 256 << 20;

/// What can go wrong with a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing answers at the address.
    #[error("no server answers at {url}: {reason}")]
    Unreachable {
        /// Base URL of the server.
        url: String,
        /// What the connection said.
        reason: String,
    },
    /// The address cannot be used.
    #[error("cannot use the address {url}: {reason}")]
    Address {
        /// Base URL of the server.
        url: String,
        /// What is wrong with the address, in words.
        reason: String,
    },
    /// The server refused or failed.
    #[error("{message}")]
    Status {
        /// HTTP status of the answer.
        status: u16,
        /// The server's own text.
        message: String,
    },
    /// The connection ended before the answer did.
    #[error("the connection to the server broke: {0}")]
    Broken(String),
    /// An error in the middle of a stream.
    #[error("{0}")]
    Stream(String),
    /// The server says something that is not of its API.
    #[error("the server's answer cannot be read: {0}")]
    Answer(String),
}

/// A server, by its address.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    key: Option<String>,
}

impl Client {
    /// Prepares calls to the server at `url` (`http://host:port` or `https://...`). `key` is
    /// sent as a bearer token. Proxies of the environment are not used for loopback addresses.
    pub fn new(url: &str, key: Option<String>) -> Result<Client, Error> {
        Client::build(url, key, None)
    }

    /// As [`Client::new`] for a server whose certificate is signed by a CA of `certificates` (PEM); those
    /// of the system are not asked.
    pub fn trusting(url: &str, key: Option<String>, certificates: &[u8]) -> Result<Client, Error> {
        Client::build(url, key, Some(certificates))
    }

    fn build(url: &str, key: Option<String>, trusted: Option<&[u8]>) -> Result<Client, Error> {
        let bad = |reason: String| Error::Address {
            url: url.to_owned(),
            reason,
        };
        let parsed = reqwest::Url::parse(url).map_err(|error| bad(error.to_string()))?;
        let encrypted = match parsed.scheme() {
            "http" => false,
            "https" => true,
            scheme => return Err(bad(format!("{scheme} is neither http nor https"))),
        };
        let loopback = match parsed.host_str() {
            Some("localhost" | "[::1]") => true,
            Some(host) => host.starts_with("127."),
            None => return Err(bad("it has no host".to_owned())),
        };
        // Only connecting is bounded: a model may think for hours.
        let mut builder = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
        if loopback {
            builder = builder.no_proxy();
        }
        llmsrv_tls::init();
        if !encrypted {
            // Reading the certificates of the system takes longer than most commands.
            builder = builder.tls_certs_only([]);
        } else if let Some(trusted) = trusted {
            let trusted = reqwest::Certificate::from_pem_bundle(trusted)
                .map_err(|error| bad(format!("the trusted certificates: {error}")))?;
            builder = builder.tls_certs_only(trusted);
        }
        let http = builder.build().map_err(|error| bad(error.to_string()))?;
        Ok(Client {
            http,
            url: url.trim_end_matches('/').to_owned(),
            key,
        })
    }

    /// Returns the base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Gets `path` and reads the JSON answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        read(self.send::<()>(Method::GET, path, None).await?).await
    }

    /// Gets `path` and reads the answer as text, such as `/metrics`.
    pub async fn text(&self, path: &str) -> Result<String, Error> {
        let body = whole(self.send::<()>(Method::GET, path, None).await?).await?;
        String::from_utf8(body.into()).map_err(|error| Error::Answer(error.to_string()))
    }

    /// Posts `body` to `path` and reads the JSON answer.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        read(self.send(Method::POST, path, Some(body)).await?).await
    }

    /// Posts `body` to `path` and reads the answer as a stream of JSON lines.
    pub async fn stream<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Lines<T>, Error> {
        Ok(Lines::new(
            self.send(Method::POST, path, Some(body))
                .await?
                .bytes_stream(),
        ))
    }

    /// Asks for the version of the server.
    pub async fn version(&self) -> Result<String, Error> {
        let answer: Value = self.get("/api/version").await?;
        match answer["version"].as_str() {
            Some(version) => Ok(version.to_owned()),
            None => Err(Error::Answer("it has no version".to_owned())),
        }
    }

    /// Unloads a model from memory; one that is not loaded is fine.
    pub async fn unload(&self, model: &str) -> Result<(), Error> {
        let request = json!({ "model": model, "keep_alive": 0, "stream": false });
        self.command(Method::POST, "/api/generate", &request).await
    }

    /// Gives a model a second name, `destination`.
    pub async fn copy(&self, source: &str, destination: &str) -> Result<(), Error> {
        self.command(
            Method::POST,
            "/api/copy",
            &json!({ "source": source, "destination": destination }),
        )
        .await
    }

    /// Deletes a model from the server's store.
    pub async fn delete(&self, model: &str) -> Result<(), Error> {
        self.command(Method::DELETE, "/api/delete", &json!({ "model": model }))
            .await
    }

    /// Tells whether the server has a blob.
    pub async fn has_blob(&self, digest: &str) -> Result<bool, Error> {
        let path = format!("/api/blobs/{digest}");
        match self.send::<()>(Method::HEAD, &path, None).await {
            Ok(_) => Ok(true),
            Err(Error::Status { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Uploads a blob, piece by piece.
    pub async fn upload(
        &self,
        digest: &str,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), Error> {
        let request = self
            .request(Method::POST, &format!("/api/blobs/{digest}"))
            .body(reqwest::Body::wrap_stream(content));
        self.answer(request).await.map(drop)
    }

    /// Sends a request whose answer has no body.
    async fn command(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<(), Error> {
        self.send(method, path, Some(body)).await.map(drop)
    }

    /// Sends a request; any status but a good one becomes an error with the server's text.
    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<reqwest::Response, Error> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answer(request).await
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<reqwest::Response, Error> {
        let response = request.send().await.map_err(|error| {
            if error.is_connect() || error.is_timeout() {
                Error::Unreachable {
                    url: self.url.clone(),
                    reason: reason(&error),
                }
            } else {
                broken(error)
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = whole(response).await.unwrap_or_default();
        Err(Error::Status {
            status: status.as_u16(),
            message: error_text(status, &body),
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

fn broken(error: reqwest::Error) -> Error {
    Error::Broken(reason(&error))
}

/// Says in plain words what libraries say in theirs.
fn reason(error: &reqwest::Error) -> String {
    let cause = root_cause(error);
    let has = |parts: &[&str]| parts.iter().any(|part| cause.contains(part));
    if has(&["InvalidContentType"]) {
        "it does not speak https; the address would begin with http://".to_owned()
    } else if has(&[
        "unexpected EOF",
        "connection closed before message completed",
        "unexpected end of file",
        "end of file before message length reached",
        "Connection reset",
    ]) {
        "it ended in the middle of the answer".to_owned()
    } else {
        cause
    }
}

/// Returns the innermost cause; the layers of libraries above it tell users nothing.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Finds the server's own words in the body of an error.
fn error_text(status: StatusCode, body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let text = json.as_ref().and_then(|json| match &json["error"] {
        Value::String(text) => Some(text.clone()),
        error => error["message"].as_str().map(str::to_owned),
    });
    let plain = || {
        let text = String::from_utf8_lossy(body);
        let line: String = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        if line.is_empty() {
            format!("the server answered {status}")
        } else {
            format!("the server answered {status}: {line}")
        }
    };
    text.filter(|text| !text.is_empty()).unwrap_or_else(plain)
}

async fn read<T: DeserializeOwned>(response: reqwest::Response) -> Result<T, Error> {
    serde_json::from_slice(&whole(response).await?)
        .map_err(|error| Error::Answer(error.to_string()))
}

/// Reads a body of bounded size.
async fn whole(response: reqwest::Response) -> Result<Bytes, Error> {
    let mut body = BytesMut::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(broken)?;
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Error::Answer(format!("it is longer than {MAX_BODY} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// A stream of JSON values, one in each line. A line `{"error": "..."}` is an error.
pub struct Lines<T> {
    chunks: BoxStream<'static, Result<Bytes, Error>>,
    buffer: BytesMut,
    /// Bytes of the buffer known to have no line end.
    searched: usize,
    ended: bool,
    item: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    fn new(chunks: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static) -> Lines<T> {
        Lines::of(chunks.map(|chunk| chunk.map_err(broken)))
    }

    fn of(chunks: impl Stream<Item = Result<Bytes, Error>> + Send + 'static) -> Lines<T> {
        Lines {
            chunks: chunks.boxed(),
            buffer: BytesMut::new(),
            searched: 0,
            ended: false,
            item: PhantomData,
        }
    }

    /// Returns the next value, or nothing at the end. After an error the stream is over.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        let line = match self.line().await? {
            Ok(line) => line,
            Err(error) => {
                self.ended = true;
                self.buffer.clear();
                return Some(Err(error));
            }
        };
        let value: Value = match serde_json::from_slice(&line) {
            Ok(value) => value,
            Err(error) => {
                self.ended = true;
                self.buffer.clear();
                return Some(Err(Error::Answer(error.to_string())));
            }
        };
        if let Some(error) = value.get("error") {
            self.ended = true;
            self.buffer.clear();
            let text = error
                .as_str()
                .map_or_else(|| error.to_string(), str::to_owned);
            return Some(Err(Error::Stream(text)));
        }
        Some(serde_json::from_value(value).map_err(|error| Error::Answer(error.to_string())))
    }

    /// Returns the next line that is not empty.
    async fn line(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            let end = self
                .buffer
                .iter()
                .skip(self.searched)
                .position(|byte| *byte == b'\n');
            if let Some(at) = end {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                    return Some(Ok(line.freeze()));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE {
                return Some(Err(Error::Answer(format!(
                    "a line is longer than {MAX_LINE} bytes"
                ))));
            }
            if self.ended {
                let rest = self.buffer.split();
                self.searched = 0;
                return rest
                    .iter()
                    .any(|byte| !byte.is_ascii_whitespace())
                    .then(|| Ok(rest.freeze()));
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                Some(Err(error)) => return Some(Err(error)),
                None => self.ended = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use proptest::prelude::*;

    use super::*;

    /// Reads chunks to the end; errors as text.
    async fn read_all(chunks: Vec<Bytes>) -> Vec<Result<Value, String>> {
        let mut lines: Lines<Value> = Lines::of(stream::iter(chunks.into_iter().map(Ok)));
        let mut read = Vec::new();
        while let Some(line) = lines.next().await {
            read.push(line.map_err(|error| error.to_string()));
        }
        read
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn lines_are_read_whatever_the_chunks() {
        let chunks = ["{\"a\"", ":1}\n{\"a\":2}\n\n", " \n{\"a\":3}"].map(Bytes::from);
        let read = block_on(read_all(chunks.to_vec()));
        let values: Vec<u64> = read
            .iter()
            .map(|value| value.as_ref().unwrap()["a"].as_u64().unwrap())
            .collect();
        assert_eq!(values, [1, 2, 3]);
    }

    #[test]
    fn an_error_ends_the_stream() {
        for (text, error) in [
            ("{\"a\":1}\n{\"error\":\"boom\"}\n{\"a\":2}\n", "boom"),
            ("{\"a\":1}\nnonsense\n{\"a\":2}\n", "cannot be read"),
        ] {
            let read = block_on(read_all(vec![Bytes::from(text)]));
            assert_eq!(read.len(), 2, "{read:?}");
            assert!(read[1].as_ref().unwrap_err().contains(error), "{read:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let chunk = Bytes::from(vec![b'x'; 1 << 20]);
        let read = block_on(read_all(vec![chunk; 20]));
        assert!(
            read.len() == 1 && read[0].as_ref().unwrap_err().contains("longer"),
            "{:?}",
            read.len()
        );
    }

    #[test]
    fn the_servers_own_words_are_found() {
        for (body, text) in [
            ("{\"error\":\"model 'x' not found\"}", "model 'x' not found"),
            ("{\"error\":{\"message\":\"no key\"}}", "no key"),
            (
                "404 page not found",
                "the server answered 404 Not Found: 404 page not found",
            ),
            ("", "the server answered 404 Not Found"),
        ] {
            assert_eq!(error_text(StatusCode::NOT_FOUND, body.as_bytes()), text);
        }
    }

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        for url in ["ftp://host", "nonsense", "http://", "http://a b"] {
            assert!(
                matches!(Client::new(url, None), Err(Error::Address { .. })),
                "{url}"
            );
        }
    }

    /// Asks a server that reads the beginning of a request and writes `said`; returns the error.
    fn told_by(scheme: &str, said: &'static [u8]) -> String {
        use std::io::{Read as _, Write as _};

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(said);
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = Client::new(&url, None).unwrap();
        let answer: Result<Value, Error> = runtime.block_on(client.get("/api/tags"));
        answer.unwrap_err().to_string()
    }

    #[test]
    fn broken_answers_are_told_in_plain_words() {
        let plain = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        let told = told_by("https", plain);
        assert!(told.contains("would begin with http://"), "{told}");
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"models\"";
        let told = told_by("http", half);
        assert!(told.contains("in the middle of the answer"), "{told}");
    }

    #[test]
    fn a_server_that_is_not_there_is_unreachable() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let client = Client::new(&format!("http://127.0.0.1:{port}"), None).unwrap();
        let error = runtime
            .block_on(client.get::<Value>("/api/version"))
            .unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(&port.to_string()));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(numbers in proptest::collection::vec(any::<u32>(), 0..10), cuts in proptest::collection::vec(0_usize..200, 0..10)) {
            let text = numbers.iter().map(|number| format!("{{\"n\":{number}}}\n")).collect::<Vec<_>>().concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let bytes = Bytes::from(text);
            let chunks = cuts.windows(2).map(|pair| bytes.slice(pair[0]..pair[1])).collect();
            let read = block_on(read_all(chunks));
            let values: Vec<u64> = read.iter().map(|value| value.as_ref().unwrap()["n"].as_u64().unwrap()).collect();
            prop_assert_eq!(values, numbers.iter().map(|number| u64::from(*number)).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_read_without_panic(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..6)) {
            block_on(read_all(chunks.into_iter().map(Bytes::from).collect()));
        }
    }
}
