//! A very small HTTP server: `GET /metrics`, and 404 for anything else. One request for each
//! connection, a few connections at a time, and no time for those who send nothing.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::lock::Mutex;

use super::{MetricsFormat, registry::Registry};

/// Connections answered at the same time; one more is closed.
const MAX_CONNECTIONS: usize = 4;
/// From the first byte to the last one.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REQUEST: usize = 8 << 10;

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Server {
    pub(super) fn start(
        host: &str,
        port: u16,
        registry: Arc<Mutex<Registry>>,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind((host, port))?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stopped);
        thread::Builder::new()
            .name("logkit-metrics".into())
            .spawn(move || accept(&listener, &seen, &registry))?;
        Ok(Server { address, stopped })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, SeqCst);
        // The thread waits for a connection: this is one.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    }
}

fn accept(listener: &TcpListener, stopped: &AtomicBool, registry: &Arc<Mutex<Registry>>) {
    let n_open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stopped.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: they come back.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if n_open.fetch_add(1, SeqCst) >= MAX_CONNECTIONS {
            n_open.fetch_sub(1, SeqCst);
            continue;
        }
        let (counted, registry) = (Open(Arc::clone(&n_open)), Arc::clone(registry));
        let answering = move || {
            let _counted = counted;
            // Who asked has gone: nobody is left to tell.
            let _ = answer(stream, &registry);
        };
        let _ = thread::Builder::new()
            .name("logkit-metrics".into())
            .spawn(answering);
    }
}

/// Counts one connection until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn answer(mut stream: TcpStream, registry: &Mutex<Registry>) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = read_head(&mut stream, deadline)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split_ascii_whitespace();
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split('?').next();
    let (status, kind, body) = if method == Some("GET") && path == Some("/metrics") {
        let wants_open = lines.any(|line| {
            line.split_once(':').is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("accept")
                    && value
                        .to_ascii_lowercase()
                        .contains("application/openmetrics-text")
            })
        });
        let format = if wants_open {
            MetricsFormat::OpenMetrics
        } else {
            MetricsFormat::Prometheus
        };
        let text = registry.lock().text(format);
        ("200 OK", format.content_type(), text)
    } else {
        let text = "The metrics are at /metrics\n".to_owned();
        ("404 Not Found", "text/plain; charset=utf-8", text)
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // Until the peer has closed too: closing first could take the answer from it.
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let _ = stream.read(&mut [0; 64])?;
    Ok(())
}

/// Reads up to the empty line.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        let n_read = stream.read(&mut buffer)?;
        if n_read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..n_read]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
