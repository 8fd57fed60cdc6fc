//! One address that takes POST requests. Nothing that is said about it holds more than its host:
//! paths and credentials of web hooks are secrets.

use std::{
    fmt, io,
    io::Read,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use url::Url;

/// Requests with this header come from the logger itself: a server that logs with it skips them.
pub(crate) const ORIGIN: (&str, &str) = ("x-logkit-origin", "sink");

/// An address, and how to get there.
pub(crate) struct Endpoint {
    agent: ureq::Agent,
    url: Url,
    headers: Vec<(String, String)>,
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadUrl {
    #[error("the address must start with http:// or https:// and name a host")]
    NoHttp,
    #[error("the header '{0}' has a name or a value that cannot be sent")]
    Header(String),
}

/// What the peer said.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// When it wants to be asked again.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("no answer from {0} within {1} ms")]
    Timeout(String, u128),
    #[error("{0}: {1}")]
    Connect(String, String),
    #[error("the answer of {0} broke off")]
    BrokeOff(String),
    #[error("the answer of {0} is longer than {1} bytes")]
    TooLong(String, usize),
}

impl Endpoint {
    /// Reads an address. `http://:KEY@host` sends KEY as a bearer token, `http://user:pass@host`
    /// both as basic credentials.
    pub(crate) fn new(address: &str) -> Result<Endpoint, BadUrl> {
        let mut url = Url::parse(address.trim()).map_err(|_| BadUrl::NoHttp)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(BadUrl::NoHttp);
        }
        let mut headers = vec![("user-agent".to_owned(), USER_AGENT.to_owned())];
        if let Some(password) = url.password() {
            let decode = super::percent_decode;
            let value = match url.username() {
                "" => format!("Bearer {}", decode(password)),
                user => {
                    let both = format!("{}:{}", decode(user), decode(password));
                    format!("Basic {}", STANDARD.encode(both))
                }
            };
            headers.push(("authorization".to_owned(), value));
        }
        // These two fail for addresses without a host only.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        Ok(Endpoint {
            agent: agent(&url),
            url,
            headers,
        })
    }

    /// Adds a header to all requests, in place of one with that name.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Result<Endpoint, BadUrl> {
        let fits = ureq::http::HeaderName::try_from(name).is_ok()
            && ureq::http::HeaderValue::try_from(value).is_ok();
        if !fits {
            return Err(BadUrl::Header(name.to_owned()));
        }
        self.headers
            .retain(|(present, _)| !present.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// The address with `path` after its own.
    pub(crate) fn below(mut self, path: &str) -> Endpoint {
        let whole = format!("{}/{}", self.url.path().trim_end_matches('/'), path);
        self.url.set_path(&whole);
        self
    }

    /// The address with another path.
    #[cfg(feature = "otlp")]
    pub(crate) fn at(mut self, path: &str) -> Endpoint {
        self.url.set_path(path);
        self
    }

    /// The path of the address.
    #[cfg(feature = "otlp")]
    pub(crate) fn path(&self) -> &str {
        self.url.path()
    }

    /// Host name without port.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Whether credentials are sent.
    #[cfg(any(feature = "llm", feature = "remote"))]
    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(present, _)| present.eq_ignore_ascii_case(name))
    }

    /// Sends `body` and waits for the answer, of which at most `max_answer` bytes are taken.
    pub(crate) fn post(
        &self,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout: Duration,
        max_answer: usize,
    ) -> Result<Answer, NoAnswer> {
        let timeout = timeout.max(Duration::from_millis(1));
        let mut request = self
            .agent
            .post(self.url.as_str())
            .config()
            .timeout_global(Some(timeout))
            .build();
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request
            .send(body)
            .map_err(|error| self.no_answer(&error, timeout))?;
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok())
            .and_then(parse_retry_after);
        let status = response.status().as_u16();
        let mut answer = Vec::new();
        let read = response
            .body_mut()
            .as_reader()
            .take(max_answer as u64 + 1)
            .read_to_end(&mut answer);
        match read {
            Ok(n_read) if n_read > max_answer => {
                return Err(NoAnswer::TooLong(self.to_string(), max_answer));
            }
            Ok(_) => {}
            Err(error) => {
                let timed_out = matches!(
                    error.get_ref().and_then(|inner| inner.downcast_ref()),
                    Some(ureq::Error::Timeout(_))
                ) || error.kind() == io::ErrorKind::TimedOut;
                return Err(if timed_out {
                    NoAnswer::Timeout(self.to_string(), timeout.as_millis())
                } else {
                    NoAnswer::BrokeOff(self.to_string())
                });
            }
        }
        Ok(Answer {
            status,
            retry_after,
            body: answer,
        })
    }

    fn no_answer(&self, error: &ureq::Error, timeout: Duration) -> NoAnswer {
        let place = self.to_string();
        let what = match error {
            ureq::Error::Timeout(_) => {
                return NoAnswer::Timeout(place, timeout.as_millis());
            }
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                return NoAnswer::Timeout(place, timeout.as_millis());
            }
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return NoAnswer::BrokeOff(place);
            }
            ureq::Error::Io(error) => error.to_string(),
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            ureq::Error::Protocol(_) => "the answer is no HTTP".to_owned(),
            ureq::Error::Tls(what) => format!("TLS: {what}"),
            ureq::Error::Rustls(error) => format!("TLS: {error}"),
            // Their texts may hold the address.
            _ => "the request failed".to_owned(),
        };
        NoAnswer::Connect(place, what)
    }
}

/// Scheme, host and port; never the path, which may be a secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.url.scheme(), self.host())?;
        match self.url.port() {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

const USER_AGENT: &str = concat!("logkit/", env!("CARGO_PKG_VERSION"));
/// A peer that wants to be left alone for longer is asked again then.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

fn agent(url: &Url) -> ureq::Agent {
    llmsrv_tls::init();
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::PlatformVerifier)
        .build();
    let mut config = ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        // A POST that is redirected would lose its body, and credentials would go elsewhere.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(2)
        .max_idle_age(Duration::from_secs(10))
        .max_response_header_size(64 << 10);
    if is_local(url) {
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// No proxy reaches this machine's own addresses.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Seconds, or a date.
fn parse_retry_after(value: &str) -> Option<Duration> {
    let value = value.trim();
    let wait = if let Ok(seconds) = value.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let date = jiff::fmt::rfc2822::DateTimeParser::new()
            .parse_timestamp(value)
            .ok()?;
        let date = SystemTime::from(date);
        date.duration_since(SystemTime::now()).unwrap_or_default()
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_address_holds_no_secret() {
        let endpoint =
            Endpoint::new("https://u:pw@hooks.example.com:8443/T0/SECRET?k=v#f").unwrap();
        for text in [endpoint.to_string(), format!("{endpoint:?}")] {
            assert!(text.contains("https://hooks.example.com:8443"), "{text}");
            assert!(!text.contains("SECRET") && !text.contains("pw"), "{text}");
        }
        let (_, value) = endpoint.headers.last().unwrap();
        assert_eq!(value, "Basic dTpwdw==");
        let bearer = Endpoint::new("http://:a%2Bb@h").unwrap();
        assert_eq!(bearer.headers.last().unwrap().1, "Bearer a+b");
        assert_eq!(bearer.below("log/batch").url.as_str(), "http://h/log/batch");
    }

    #[test]
    fn only_http_is_an_address() {
        for bad in ["", "ftp://h", "h:80", "http://", "//h", "http:///x"] {
            assert!(
                Endpoint::new(bad).is_err() || bad == "http:///x",
                "{bad} is taken"
            );
        }
        let endpoint = Endpoint::new("http://h").unwrap();
        assert!(endpoint.header("x-a", "line\nbreak").is_err());
    }

    #[test]
    fn seconds_and_dates_to_come_back() {
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(
            parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(parse_retry_after("soon"), None);
    }
}
