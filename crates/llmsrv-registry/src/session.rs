//! A conversation with one host: requests with the credentials it wants.
//!
//! Credentials are added here and only here, and only to requests for the very origin (scheme,
//! host, port) they belong to. Redirects are never followed by the HTTP library.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, Request, RequestBuilder, Response, StatusCode, Url, header};
use tokio::sync::Mutex;

use crate::{
    Error, Inner,
    auth::Challenge,
    blocking_key,
    hosts::{Base, Reach, authority, reach, reach_of_ip, same_origin},
    http::{failure, refusal, text_header, whole},
};

/// One host of a registry.
pub(crate) struct Session {
    pub(crate) inner: Arc<Inner>,
    base: Base,
    /// What goes into `Authorization: Bearer`.
    token: Mutex<Option<String>>,
    /// The host has answered from a public address.
    is_outside: AtomicBool,
}

/// How a token is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Anonymous,
    Signed,
}

impl Session {
    pub(crate) fn new(inner: Arc<Inner>, base: Base, token: Option<String>) -> Session {
        Session {
            inner,
            base,
            token: Mutex::new(token),
            is_outside: AtomicBool::new(false),
        }
    }

    /// Returns the base address, which ends with a slash.
    pub(crate) fn base(&self) -> &Url {
        &self.base.url
    }

    /// Returns host and port for messages.
    pub(crate) fn host(&self) -> String {
        authority(&self.base.url)
    }

    /// Returns an address below the base.
    pub(crate) fn url(&self, path: &str) -> Result<Url, Error> {
        self.base.url.join(path).map_err(|error| Error::Answer {
            host: self.host(),
            reason: error.to_string(),
        })
    }

    /// Sends what `make` builds and returns the answer, whatever its status is, but for 401: then
    /// a token is asked for and the request is sent again.
    pub(crate) async fn send(
        &self,
        make: impl Fn(&Client) -> RequestBuilder + Send + Sync,
    ) -> Result<Response, Error> {
        let stall = self.inner.settings.tuning.stall;
        self.send_within(stall, make).await
    }

    /// As [`Session::send`], where an answer may take `limit`.
    pub(crate) async fn send_within(
        &self,
        limit: Duration,
        make: impl Fn(&Client) -> RequestBuilder + Send + Sync,
    ) -> Result<Response, Error> {
        let used = self.token.lock().await.clone();
        let mut response = self.once(limit, &make, used.as_deref()).await?;
        if !self.is_challenge(&response) {
            return Ok(response);
        }
        for manner in self.manners() {
            // One request asks for a token; the others wait for it here and use it too.
            let token = {
                let mut token = self.token.lock().await;
                if *token == used || token.is_none() {
                    *token = Some(self.ask(&response, *manner).await?);
                }
                token.clone()
            };
            response = self.once(limit, &make, token.as_deref()).await?;
            if !self.is_challenge(&response) {
                return Ok(response);
            }
            *self.token.lock().await = None;
        }
        Err(Error::Unauthorized)
    }

    fn is_challenge(&self, response: &Response) -> bool {
        response.status() == StatusCode::UNAUTHORIZED && same_origin(response.url(), self.base())
    }

    async fn once(
        &self,
        limit: Duration,
        make: &(dyn Fn(&Client) -> RequestBuilder + Sync),
        token: Option<&str>,
    ) -> Result<Response, Error> {
        // Which client is right depends on the address, which any client can tell.
        let request = built(make(self.inner.http.client(&self.base.url, true)?))?;
        let url = request.url().clone();
        let own = same_origin(&url, self.base());
        let verify = self.base.verify || !(own || reach(&url) != Reach::Public);
        let client = self.client(&url, verify)?;
        let mut request = request;
        if let Some(token) = token.filter(|token| own && !token.is_empty()) {
            let mut value = header::HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| self.unusable("its token is no text"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let sent = tokio::time::timeout(limit, client.execute(request)).await;
        match sent {
            Ok(sent) => {
                let response = sent.map_err(|error| failure(&url, &error))?;
                // The address that answered tells more than the name, which may change its mind.
                let at = response.remote_addr();
                if own && at.is_some_and(|at| reach_of_ip(at.ip()) == Reach::Public) {
                    self.is_outside.store(true, Ordering::Relaxed);
                }
                Ok(response)
            }
            Err(_) => Err(Error::Stalled {
                host: authority(&url),
            }),
        }
    }

    /// Returns the client for an address that this host has named, or its own.
    pub(crate) fn client(&self, url: &Url, verify: bool) -> Result<&Client, Error> {
        let own = same_origin(url, self.base());
        // Nobody outside may make this machine ask around in its own network, by whatever name.
        if !own && self.is_outside.load(Ordering::Relaxed) {
            self.inner.http.client_outside(verify)
        } else {
            self.inner.http.client(url, verify)
        }
    }

    /// Returns how this host is asked for tokens. Ollama's registry and the hub know users by
    /// their keys; others mostly do not know such requests at all.
    fn manners(&self) -> &'static [Manner] {
        match self.base.url.host_str() {
            Some("registry.ollama.ai" | "hf.co" | "huggingface.co") => &[Manner::Signed],
            _ => &[Manner::Anonymous, Manner::Signed],
        }
    }

    /// Gets a token for what a refused request was about.
    async fn ask(&self, refused: &Response, manner: Manner) -> Result<String, Error> {
        let challenge = text_header(refused, header::WWW_AUTHENTICATE)
            .and_then(Challenge::parse)
            .ok_or(Error::Unauthorized)?;
        // Some say in words here that they know no tokens.
        let url = challenge.url().map_err(|_| Error::Unauthorized)?;
        let same_host = url.host() == self.base.url.host()
            && url.port_or_known_default() == self.base.url.port_or_known_default();
        if !same_host || url.scheme() != self.base.url.scheme() {
            return Err(Error::ForeignRealm {
                host: self.host(),
                realm: authority(&url),
            });
        }
        let (url, signature) = match manner {
            Manner::Anonymous => (url, None),
            Manner::Signed => {
                let (url, signature) = blocking_key(&self.inner, url).await?;
                (url, Some(signature))
            }
        };
        let client = self.inner.http.client(&url, self.base.verify)?;
        let mut request = client
            .get(url.clone())
            .timeout(self.inner.settings.tuning.stall);
        if let Some(signature) = signature {
            request = request.header(header::AUTHORIZATION, signature);
        }
        let response = request
            .send()
            .await
            .map_err(|error| failure(&url, &error))?;
        match response.status() {
            StatusCode::OK => {}
            // Whoever is refused here may still be known by a signature.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST
                if manner == Manner::Anonymous =>
            {
                return Ok(String::new());
            }
            StatusCode::FORBIDDEN => return Err(Error::Unauthorized),
            _ => return Err(refusal(response).await),
        }
        let answer: Answer = serde_json::from_slice(&whole(response, TOKEN_BYTES).await?)
            .map_err(|error| self.unusable(&format!("its token: {error}")))?;
        Ok(answer.token.or(answer.access_token).unwrap_or_default())
    }

    fn unusable(&self, reason: &str) -> Error {
        Error::Answer {
            host: self.host(),
            reason: reason.to_owned(),
        }
    }
}

fn built(request: RequestBuilder) -> Result<Request, Error> {
    request
        .build()
        .map_err(|error| Error::Internal(error.to_string()))
}

#[derive(serde::Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

const TOKEN_BYTES: usize = 64 << 10;
