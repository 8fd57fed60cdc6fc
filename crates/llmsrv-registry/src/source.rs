//! Where the bytes of a blob come from: an address of a registry which may send us elsewhere.

use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::{Response, StatusCode, Url, header};

use crate::{
    Error,
    hosts::{authority, check_redirect},
    http::{refusal, text_header},
    session::Session,
};

/// A blob at a registry.
pub(crate) struct Source {
    session: Arc<Session>,
    url: Url,
    size: u64,
    /// Where the registry sent us; good for some time.
    direct: Mutex<Option<Url>>,
}

/// The answer to a request for a range.
pub(crate) enum Bytes {
    /// The range that was asked for.
    Range(Response),
    /// The whole blob from its beginning: the server does not know ranges.
    Whole(Response),
}

impl Source {
    pub(crate) fn new(session: Arc<Session>, url: Url, size: u64) -> Source {
        Source {
            session,
            url,
            size,
            direct: Mutex::new(None),
        }
    }

    /// Returns host and port for messages.
    pub(crate) fn host(&self) -> String {
        authority(&self.url)
    }

    /// Asks for the bytes from `start` to `end` (exclusive).
    pub(crate) async fn open(&self, start: u64, end: u64) -> Result<Bytes, Error> {
        if let Some(direct) = self.direct() {
            let response = self.request(&direct, start, end).await?;
            if !matches!(response.status().as_u16(), 401 | 403 | 404 | 410) {
                return self.judge(response, start).await;
            }
            // Such an address is signed and expires; the registry knows a new one.
            tracing::debug!(status = %response.status(), "an address has expired");
            self.forget(&direct);
        }
        let mut url = self.url.clone();
        for _ in 0..MAX_REDIRECTS {
            let response = self.request(&url, start, end).await?;
            if !response.status().is_redirection() {
                if url != self.url && response.status().is_success() {
                    *self.lock() = Some(url);
                }
                return self.judge(response, start).await;
            }
            let target = text_header(&response, header::LOCATION)
                .and_then(|location| url.join(location).ok())
                .ok_or_else(|| self.unusable("it redirects nowhere".into()))?;
            check_redirect(&self.url, &target)?;
            url = target;
        }
        Err(self.unusable("it redirects too often".into()))
    }

    async fn request(&self, url: &Url, start: u64, end: u64) -> Result<Response, Error> {
        let range = format!("bytes={start}-{}", end - 1);
        self.session
            .send(|client| {
                client
                    .get(url.clone())
                    .header(header::RANGE, &range)
                    // A compressed answer would have other sizes and another digest.
                    .header(header::ACCEPT_ENCODING, "identity")
            })
            .await
    }

    async fn judge(&self, response: Response, start: u64) -> Result<Bytes, Error> {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = text_header(&response, header::CONTENT_RANGE).and_then(parse_range);
                match range {
                    Some((from, _)) if from != start => {
                        Err(self.unusable("it sends another range".into()))
                    }
                    Some((_, Some(total))) => {
                        self.check_size(total).map(|()| Bytes::Range(response))
                    }
                    _ => Ok(Bytes::Range(response)),
                }
            }
            StatusCode::OK => {
                if let Some(length) = response.content_length() {
                    self.check_size(length)?;
                }
                Ok(Bytes::Whole(response))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(self.unusable("the blob is smaller than the manifest says".into()))
            }
            _ => Err(refusal(response).await),
        }
    }

    fn check_size(&self, actual: u64) -> Result<(), Error> {
        if actual == self.size {
            return Ok(());
        }
        Err(self.unusable(format!(
            "the blob has {actual} bytes, the manifest says {}",
            self.size
        )))
    }

    fn direct(&self) -> Option<Url> {
        self.lock().clone()
    }

    fn forget(&self, expired: &Url) {
        let mut direct = self.lock();
        if direct.as_ref() == Some(expired) {
            *direct = None;
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<Url>> {
        self.direct.lock()
    }

    fn unusable(&self, reason: String) -> Error {
        Error::Answer {
            host: self.host(),
            reason,
        }
    }
}

/// Reads `bytes 5-9/20`: the first byte, and the size of the whole if it is known.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.trim().parse().ok()?, total.trim().parse().ok()))
}

const MAX_REDIRECTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("bytes 5-9/20"), Some((5, Some(20))));
        assert_eq!(parse_range("bytes 5-9/*"), Some((5, None)));
        for text in [
            "",
            "bytes",
            "bytes */20",
            "items 0-1/2",
            "bytes x-9/20",
            "bytes -1-9/20",
        ] {
            assert_eq!(parse_range(text), None, "{text}");
        }
    }
}
