//! Sending requests: one set of HTTP clients, errors in our words, answers of bounded size.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use reqwest::{
    Client, Response, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header,
    redirect::Policy,
};

use crate::{
    Error,
    hosts::{Reach, authority, reach, reach_of_ip},
};

/// The clients, made when first needed: reading the certificates of the system takes a while.
pub(crate) struct Http {
    connect: Duration,
    /// By: where it may lead, need not prove who it is.
    clients: [[OnceLock<Result<Client, String>>; 2]; 3],
}

impl Http {
    pub(crate) fn new(connect: Duration) -> Http {
        Http {
            connect,
            clients: Default::default(),
        }
    }

    /// Returns the client for an address. It follows no redirects: who gets credentials is decided
    /// by [`crate::session`].
    pub(crate) fn client(&self, url: &Url, verify: bool) -> Result<&Client, Error> {
        let way = match reach(url) {
            Reach::Loopback => Way::Here,
            Reach::Private | Reach::Public => Way::Anywhere,
        };
        self.client_for(way, verify)
    }

    /// Returns the client for an address that somebody outside has named: its name must not lead
    /// into the own network.
    pub(crate) fn client_outside(&self, verify: bool) -> Result<&Client, Error> {
        self.client_for(Way::Outside, verify)
    }

    fn client_for(&self, way: Way, verify: bool) -> Result<&Client, Error> {
        let cell = &self.clients[way as usize][usize::from(verify)];
        let made = cell.get_or_init(|| build(way, verify, self.connect));
        made.as_ref()
            .map_err(|reason| Error::Internal(reason.clone()))
    }
}

/// Where a client may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To this machine; by no proxy.
    Here,
    Anywhere,
    /// To public addresses only.
    Outside,
}

/// Leaves out addresses that are not public.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<_> = found
                .filter(|address| reach_of_ip(address.ip()) == Reach::Public)
                .collect();
            if public.is_empty() {
                let error = io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "its name leads to an address of a private network",
                );
                return Err(error.into());
            }
            let public: Addrs = Box::new(public.into_iter());
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(public)
        })
    }
}

fn build(way: Way, verify: bool, connect: Duration) -> Result<Client, String> {
    llmsrv_tls::init();
    let builder = || {
        let builder = Client::builder()
            .user_agent(USER_AGENT)
            .redirect(Policy::none())
            .connect_timeout(connect)
            // Parallel parts over one connection would wait for each other.
            .http1_only()
            .tls_danger_accept_invalid_certs(!verify);
        match way {
            Way::Here => builder.no_proxy(),
            Way::Anywhere => builder,
            Way::Outside => builder.dns_resolver(Arc::new(PublicOnly)),
        }
    };
    builder().build().or_else(|error| {
        // A system without certificates can still speak to itself.
        tracing::warn!(%error, "no certificates of the system: encrypted connections will fail");
        builder()
            .tls_certs_only([])
            .build()
            .map_err(|error| error.to_string())
    })
}

/// Puts what went wrong on the way into our words.
pub(crate) fn failure(url: &Url, error: &reqwest::Error) -> Error {
    let host = authority(url);
    let reason = root_cause(error);
    if error.is_connect() {
        let near = match reach(url) {
            Reach::Private => true,
            Reach::Loopback => reason.contains("certificate"),
            Reach::Public => false,
        };
        let hint = if near && url.scheme() == "https" {
            "; if it speaks plain http or has a certificate of its own, allow that with `insecure`"
        } else {
            ""
        };
        Error::Unreachable { host, reason, hint }
    } else {
        Error::Broken { host, reason }
    }
}

/// Makes an error of an answer that is none of the good ones.
pub(crate) async fn refusal(response: Response) -> Error {
    let status = response.status().as_u16();
    let retry_after = retry_after(&response);
    match status {
        401 => return Error::Unauthorized,
        404 => return Error::NotFound,
        _ => {}
    }
    let bytes = beginning(response, ERROR_BYTES).await;
    let text = String::from_utf8_lossy(&bytes);
    let body = text.trim().chars().filter(|c| !c.is_control()).collect();
    Error::Status {
        status,
        body,
        retry_after,
    }
}

/// Reads a body that must not be larger than `limit` bytes.
pub(crate) async fn whole(mut response: Response, limit: usize) -> Result<Bytes, Error> {
    let url = response.url().clone();
    let mut body = BytesMut::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| failure(&url, &error))?
    {
        if body.len() + chunk.len() > limit {
            return Err(Error::Answer {
                host: authority(&url),
                reason: format!("it is larger than {limit} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Returns the value of a header that is text.
pub(crate) fn text_header(response: &Response, name: impl header::AsHeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

/// Reads at most `limit` bytes, as far as they come.
async fn beginning(mut response: Response, limit: usize) -> BytesMut {
    let mut body = BytesMut::new();
    while body.len() < limit
        && let Ok(Ok(Some(chunk))) =
            tokio::time::timeout(Duration::from_secs(5), response.chunk()).await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(limit);
    body
}

/// Reads a pause in seconds; dates are as good as nothing said.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = text_header(response, header::RETRY_AFTER)?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

const USER_AGENT: &str = concat!("llmsrv/", env!("CARGO_PKG_VERSION"));
const ERROR_BYTES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_that_lead_into_the_own_network_are_not_followed_from_outside() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://localhost:{}/",
            listener.local_addr().unwrap().port()
        );
        let http = Http::new(Duration::from_secs(5));
        let sent = http.client_outside(true).unwrap().get(url).send().await;
        let error = sent.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
        assert!(root_cause(&error).contains("private network"), "{error:?}");
        let nobody_came = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody_came.is_err());
    }
}
