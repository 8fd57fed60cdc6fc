//! What strangers may write to a connection that is no request, or more than one.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Bytes that are written, and what they are.
pub fn all() -> Vec<(&'static str, Vec<u8>)> {
    let http1 = |text: String| text.into_bytes();
    let head = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\n";
    let get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    vec![
        ("nothing", Vec::new()),
        ("noise", (0..200_000_u32).map(|n| (n * 31) as u8).collect()),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(1000),
        ),
        (
            "a long line",
            http1(format!("GET /{} HTTP/1.1\r\n", "a".repeat(1 << 20))),
        ),
        (
            "a long header",
            http1(format!("{head}X: {}\r\n\r\n", "a".repeat(1 << 20))),
        ),
        (
            "many headers",
            http1(format!("{head}{}\r\n", "X: y\r\n".repeat(100_000))),
        ),
        (
            "folded headers",
            http1(format!("{head}X: y\r\n{}\r\n", " z\r\n".repeat(10_000))),
        ),
        (
            "two lengths",
            http1(format!(
                "{head}Content-Length: 4\r\nContent-Length: 5\r\n\r\n{{}}"
            )),
        ),
        (
            "a negative length",
            http1(format!("{head}Content-Length: -1\r\n\r\n{{}}")),
        ),
        (
            "a large length",
            http1(format!(
                "{head}Content-Length: 99999999999999999999\r\n\r\n{{}}"
            )),
        ),
        (
            "a length and chunks",
            http1(format!(
                "{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{get}"
            )),
        ),
        (
            "a chunk that lies",
            http1(format!(
                "{head}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{{}}"
            )),
        ),
        (
            "chunks of one byte",
            http1(format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{}",
                "1;x=y\r\n{\r\n".repeat(50_000)
            )),
        ),
        (
            "a body that waits",
            http1(format!(
                "{head}Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
            )),
        ),
        ("many requests", http1(get.repeat(1000))),
        (
            "many hosts",
            http1(format!(
                "GET / HTTP/1.1\r\n{}\r\n",
                "Host: localhost\r\n".repeat(99)
            )),
        ),
        (
            "an upgrade",
            http1(format!(
                "{head}Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n"
            )),
        ),
        (
            "HTTP/2: reset at once",
            http2((0..5000).flat_map(|n| {
                let id = 2 * n + 1;
                [request(id, 0x4), frame(3, 0, id, &[0, 0, 0, 8])].concat()
            })),
        ),
        (
            "HTTP/2: headers without end",
            http2(
                [request(1, 0)]
                    .concat()
                    .into_iter()
                    .chain(frame(9, 0, 1, &[0; 16_000]).repeat(500)),
            ),
        ),
        (
            "HTTP/2: empty continuations",
            http2(
                request(1, 0)
                    .into_iter()
                    .chain(frame(9, 0, 1, &[]).repeat(100_000)),
            ),
        ),
        (
            "HTTP/2: pings",
            http2(frame(6, 0, 0, &[0; 8]).repeat(100_000).into_iter()),
        ),
        (
            "HTTP/2: settings",
            http2(
                frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])
                    .repeat(100_000)
                    .into_iter(),
            ),
        ),
        (
            "HTTP/2: a large window",
            http2(
                frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])
                    .repeat(2)
                    .into_iter(),
            ),
        ),
        (
            "HTTP/2: no window",
            http2(
                frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])
                    .into_iter()
                    .chain((0..500).flat_map(|n| request(2 * n + 1, 0x5))),
            ),
        ),
        (
            "HTTP/2: streams that stay open",
            http2((0..5000).flat_map(|n| request(2 * n + 1, 0x4))),
        ),
        (
            "HTTP/2: empty data",
            http2(
                request(1, 0x4)
                    .into_iter()
                    .chain(frame(0, 0, 1, &[]).repeat(100_000)),
            ),
        ),
        (
            "HTTP/2: a large table",
            http2(frame(1, 0x4, 1, &[0x3f, 0xe1, 0xff, 0xff, 0xff, 0x0f]).into_iter()),
        ),
        (
            "HTTP/2: a frame that lies",
            http2([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1].into_iter()),
        ),
    ]
}

/// Writes it and reads what comes back, until the server ends the connection or says nothing more.
pub async fn send(address: &str, bytes: &[u8]) {
    let talk = async {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            return;
        };
        let (mut reader, mut writer) = stream.split();
        let write = async {
            // The server may well end the connection in the middle.
            let _ = writer.write_all(bytes).await;
        };
        let read = async {
            let mut buffer = vec![0; 64 << 10];
            while reader.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
        };
        tokio::join!(write, read);
    };
    let _ = tokio::time::timeout(QUIET, talk).await;
}

/// How long a connection is looked at that the server keeps open.
const QUIET: Duration = Duration::from_millis(500);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The head of a request, with names and values of the static table.
fn request(stream: u32, flags: u8) -> Vec<u8> {
    let host = b"\x41\x09localhost";
    // :method GET, :scheme http, :path /, :authority localhost
    frame(1, flags, stream, &[&[0x82, 0x86, 0x84], &host[..]].concat())
}

fn http2(frames: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frames);
    bytes
}
