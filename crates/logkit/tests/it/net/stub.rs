//! An HTTP server on loopback that answers as a script says and keeps what it was sent.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, further header lines, body.
    Say(u16, &'static str, String),
    /// Says nothing for that long.
    Stall(Duration),
    /// Promises a body and closes in the middle.
    BreakOff,
    /// Closes at once.
    Close,
}

impl Reply {
    pub(crate) fn ok(body: &str) -> Reply {
        Reply::Say(200, "", body.to_owned())
    }

    pub(crate) fn status(status: u16) -> Reply {
        Reply::Say(status, "", String::new())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(present, _)| present == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// Answers as `script` says, then with `rest` for ever.
    pub(crate) fn start(script: Vec<Reply>, rest: Reply) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, script, rest) = (Arc::clone(&kept), Arc::clone(&script), rest.clone());
                thread::spawn(move || answer(stream.unwrap(), &kept, &script, &rest));
            }
        });
        Stub { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    kept: &Mutex<Vec<Request>>,
    script: &Mutex<VecDeque<Reply>>,
    rest: &Reply,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request {
        path,
        headers,
        body: Vec::new(),
        at: Instant::now(),
    };
    let length = request.header("content-length")?.parse().ok()?;
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).ok()?;
    kept.lock().unwrap().push(request);
    let reply = script.lock().unwrap().pop_front();
    match reply.as_ref().unwrap_or(rest) {
        Reply::Say(status, headers, body) => {
            let text = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).ok()
        }
        Reply::Stall(time) => {
            thread::sleep(*time);
            None
        }
        Reply::BreakOff => {
            let text = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"message\":";
            stream.write_all(text.as_bytes()).ok()
        }
        Reply::Close => None,
    }
}
