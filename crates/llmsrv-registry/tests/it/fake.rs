//! A registry in this process. It keeps a log of what it was asked, and a hook decides request by
//! request whether to behave.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt as _, stream};

/// What was asked.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub authorization: Option<String>,
    /// First and last byte.
    pub range: Option<(u64, u64)>,
    pub headers: HashMap<String, String>,
    /// Number of requests for the same path and method before this one.
    pub before: usize,
}

impl Seen {
    pub fn is_blob(&self) -> bool {
        self.method == "GET" && (self.path.contains("/blobs/") || self.path.starts_with("/raw/"))
    }

    pub fn is_manifest(&self) -> bool {
        self.path.contains("/manifests/")
    }
}

/// What to do with a request.
pub enum Act {
    Normal,
    /// This status with these headers and this body.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The right answer, but the connection breaks after so many bytes.
    Cut(usize),
    /// The right answer, or the body that is sent, so many bytes at a time.
    Drip(usize, Duration),
    /// The right answer, but nothing more after so many bytes.
    Silence(usize),
    /// No answer at all, and nothing of a body is read.
    Mute,
    /// The right answer after so long.
    Late(Duration),
    /// 200 and everything, whatever range is asked for.
    IgnoreRange,
    /// The right answer with one wrong byte.
    Corrupt,
}

impl Act {
    pub fn status(status: u16) -> Act {
        Act::Answer(status, Vec::new(), format!("{{\"fault\":{status}}}"))
    }

    pub fn redirect(location: impl Into<String>) -> Act {
        Act::Answer(307, vec![("location", location.into())], String::new())
    }

    pub fn challenge(realm: &str) -> Act {
        let value =
            format!("Bearer realm=\"{realm}\",service=\"fake\",scope=\"repository:a/b:pull\"");
        Act::Answer(401, vec![("www-authenticate", value)], String::new())
    }
}

type Hook = Box<dyn Fn(&Seen) -> Act + Send + Sync>;

#[derive(Default)]
struct Inner {
    content: Mutex<HashMap<String, Bytes>>,
    uploads: Mutex<HashMap<String, Vec<u8>>>,
    log: Mutex<Vec<Seen>>,
    hook: Mutex<Option<Hook>>,
    n_uploads: AtomicUsize,
    bytes_sent: AtomicUsize,
    /// Bodies that are being sent.
    n_sending: AtomicUsize,
}

/// A body that is being sent.
struct Sending(Arc<Inner>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.n_sending.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The registry. It ends with the runtime of the test.
#[derive(Clone)]
pub struct Fake {
    inner: Arc<Inner>,
    /// `127.0.0.1:<port>`
    pub host: String,
}

impl Fake {
    pub async fn start() -> Fake {
        let inner = Arc::new(Inner::default());
        let router = Router::new().fallback(handle).with_state(inner.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Fake { inner, host }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// Serves `bytes` at `path`.
    pub fn put(&self, path: impl Into<String>, bytes: impl Into<Bytes>) {
        self.inner
            .content
            .lock()
            .unwrap()
            .insert(path.into(), bytes.into());
    }

    pub fn content(&self, path: &str) -> Option<Bytes> {
        self.inner.content.lock().unwrap().get(path).cloned()
    }

    pub fn hook(&self, hook: impl Fn(&Seen) -> Act + Send + Sync + 'static) {
        *self.inner.hook.lock().unwrap() = Some(Box::new(hook));
    }

    pub fn behave(&self) {
        *self.inner.hook.lock().unwrap() = None;
    }

    pub fn log(&self) -> Vec<Seen> {
        self.inner.log.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.inner.log.lock().unwrap().clear();
        self.inner.bytes_sent.store(0, Ordering::SeqCst);
    }

    /// Bytes of bodies that were handed to the network.
    pub fn bytes_sent(&self) -> usize {
        self.inner.bytes_sent.load(Ordering::SeqCst)
    }

    /// Waits until no body is being sent any more.
    pub async fn quiet(&self) {
        let quiet = async {
            while self.inner.n_sending.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let quiet = tokio::time::timeout(Duration::from_secs(20), quiet).await;
        quiet.expect("bodies are still being sent");
    }

    /// Requests for blobs.
    pub fn blob_requests(&self) -> Vec<Seen> {
        self.log().into_iter().filter(Seen::is_blob).collect()
    }

    /// Bytes of blobs that were asked for, by their ranges.
    pub fn bytes_asked(&self) -> u64 {
        self.blob_requests()
            .iter()
            .filter_map(|seen| seen.range)
            .map(|(from, to)| to - from + 1)
            .sum()
    }
}

async fn handle(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut seen = Seen {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        authorization: text(&parts.headers, "authorization"),
        range: text(&parts.headers, "range").and_then(|range| parse_range(&range)),
        headers: parts
            .headers
            .keys()
            .map(|name| {
                (
                    name.to_string(),
                    text(&parts.headers, name.as_str()).unwrap_or_default(),
                )
            })
            .collect(),
        before: 0,
    };
    let act = {
        let mut log = inner.log.lock().unwrap();
        seen.before = log
            .iter()
            .filter(|other| other.path == seen.path && other.method == seen.method)
            .count();
        log.push(seen.clone());
        let hook = inner.hook.lock().unwrap();
        hook.as_ref().map_or(Act::Normal, |hook| hook(&seen))
    };
    match act {
        Act::Mute => std::future::pending().await,
        Act::Answer(status, headers, text) => {
            let mut response = (StatusCode::from_u16(status).unwrap(), text).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        act if seen.method == "GET" || seen.method == "HEAD" => get(&inner, &seen, act),
        act => {
            let body = match act {
                Act::Drip(step, pause) => slowly(body, step, pause).await,
                Act::Late(pause) => {
                    tokio::time::sleep(pause).await;
                    body
                }
                _ => body,
            };
            write(&inner, &seen, body).await
        }
    }
}

/// Reads a body with a pause after so many bytes.
async fn slowly(body: Body, step: usize, pause: Duration) -> Body {
    let (mut chunks, mut read, mut next) = (body.into_data_stream(), Vec::new(), step);
    while let Some(Ok(chunk)) = chunks.next().await {
        read.extend_from_slice(&chunk);
        if read.len() >= next {
            next += step;
            tokio::time::sleep(pause).await;
        }
    }
    read.into()
}

fn get(inner: &Arc<Inner>, seen: &Seen, act: Act) -> Response {
    if seen.path == "/token" {
        return "{\"token\":\"secret-token\"}".into_response();
    }
    let Some(mut content) = inner.content.lock().unwrap().get(&seen.path).cloned() else {
        return (
            StatusCode::NOT_FOUND,
            "{\"errors\":[{\"code\":\"UNKNOWN\"}]}",
        )
            .into_response();
    };
    if matches!(act, Act::Corrupt) {
        let mut wrong = content.to_vec();
        let middle = wrong.len() / 2;
        wrong[middle] ^= 1;
        content = wrong.into();
    }
    let total = content.len() as u64;
    let mut response = Response::builder();
    let range = seen.range.filter(|_| !matches!(act, Act::IgnoreRange));
    if let Some((from, to)) = range {
        if from >= total {
            return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
        }
        let to = to.min(total - 1);
        content = content.slice(from as usize..=to as usize);
        response = response
            .status(206)
            .header("content-range", format!("bytes {from}-{to}/{total}"));
    }
    response = response.header(header::CONTENT_LENGTH, content.len());
    if seen.is_manifest() {
        let json: serde_json::Value = serde_json::from_slice(&content).unwrap_or_default();
        response = response.header(
            "content-type",
            json["mediaType"].as_str().unwrap_or("text/plain"),
        );
    }
    if seen.method == "HEAD" {
        return response.body(Body::empty()).unwrap();
    }
    let (step, pause, limit) = match act {
        Act::Cut(limit) => (4 << 10, Duration::ZERO, Some((limit, true))),
        Act::Silence(limit) => (4 << 10, Duration::ZERO, Some((limit, false))),
        Act::Drip(step, pause) => (step, pause, None),
        _ => (64 << 10, Duration::ZERO, None),
    };
    inner.n_sending.fetch_add(1, Ordering::SeqCst);
    let sending = Sending(inner.clone());
    let chunks = stream::unfold((content, 0, sending), move |(mut rest, sent, sending)| {
        async move {
            if let Some((limit, cut)) = limit
                && sent >= limit
            {
                if cut {
                    // Lets what was written leave first.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    return Some((Err(std::io::Error::other("cut")), (rest, sent, sending)));
                }
                std::future::pending::<()>().await;
            }
            if rest.is_empty() {
                return None;
            }
            tokio::time::sleep(pause).await;
            let chunk = rest.split_to(step.min(rest.len()));
            let bytes_sent = &sending.0.bytes_sent;
            bytes_sent.fetch_add(chunk.len(), Ordering::SeqCst);
            let sent = sent + chunk.len();
            Some((Ok(chunk), (rest, sent, sending)))
        }
    });
    response.body(Body::from_stream(chunks.boxed())).unwrap()
}

/// Receives manifests and blobs as a registry does.
async fn write(inner: &Arc<Inner>, seen: &Seen, body: Body) -> Response {
    let Ok(body) = axum::body::to_bytes(body, 1 << 30).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let location = |path: String| [(header::LOCATION, path)];
    match seen.method.as_str() {
        "POST" => {
            let id = inner.n_uploads.fetch_add(1, Ordering::SeqCst);
            let path = format!("{}{id}", seen.path);
            inner
                .uploads
                .lock()
                .unwrap()
                .insert(path.clone(), Vec::new());
            (StatusCode::ACCEPTED, location(format!("{path}?state=0"))).into_response()
        }
        "PATCH" => {
            let mut uploads = inner.uploads.lock().unwrap();
            let upload = uploads.entry(seen.path.clone()).or_default();
            let expected = format!("{}-{}", upload.len(), upload.len() + body.len() - 1);
            if seen.headers["content-range"] != expected {
                return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            }
            upload.extend_from_slice(&body);
            let next = format!("{}?state={}", seen.path, upload.len());
            (StatusCode::ACCEPTED, location(next)).into_response()
        }
        "PUT" if seen.is_manifest() || seen.path.starts_with("/storage/") => {
            inner
                .content
                .lock()
                .unwrap()
                .insert(seen.path.clone(), body);
            StatusCode::CREATED.into_response()
        }
        "PUT" => {
            let digest = seen
                .query
                .split('&')
                .find_map(|pair| pair.strip_prefix("digest="));
            let digest = digest.unwrap().replace("%3A", ":");
            let mut bytes = inner
                .uploads
                .lock()
                .unwrap()
                .remove(&seen.path)
                .unwrap_or_default();
            bytes.extend_from_slice(&body);
            let repository = seen.path.split("/uploads/").next().unwrap();
            inner
                .content
                .lock()
                .unwrap()
                .insert(format!("{repository}/{digest}"), bytes.into());
            StatusCode::CREATED.into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.strip_prefix("bytes=")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}
