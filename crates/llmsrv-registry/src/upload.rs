//! Sending one blob: ask whether it is there, mount it from another model, or send it in parts.

use std::{io, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use llmsrv_store::{Layer, ModelName};
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use reqwest::{Body, Response, StatusCode, Url, header};
use tokio::{
    io::{AsyncReadExt as _, AsyncSeekExt as _},
    sync::watch,
};

use crate::{
    Error,
    backoff::Backoff,
    hosts::{authority, check_redirect},
    http::{failure, refusal, text_header},
    session::Session,
};

/// A blob to be sent.
pub(crate) struct Upload<'a> {
    pub(crate) session: &'a Session,
    pub(crate) name: &'a ModelName,
    pub(crate) layer: &'a Layer,
    pub(crate) file: PathBuf,
    /// Bytes that were sent.
    pub(crate) sent: Arc<watch::Sender<u64>>,
    pub(crate) last: Arc<Mutex<LastBody>>,
}

/// The body that was made last. Where a redirect, a token or a refusal makes another one, the connection may
/// still read the one before.
#[derive(Default)]
pub(crate) struct LastBody {
    number: usize,
    /// Sum over its bytes.
    md5: Md5,
}

/// Asks a registry whether it has a blob.
pub(crate) async fn exists(
    session: &Session,
    name: &ModelName,
    layer: &Layer,
) -> Result<bool, Error> {
    let url = session.url(&format!("{}/{}", blobs(name), layer.digest))?;
    let response = session.send(|client| client.head(url.clone())).await?;
    match response.status() {
        // One that redirects to its storage has looked there before.
        status if status.is_success() || status.is_redirection() => Ok(true),
        StatusCode::NOT_FOUND => Ok(false),
        _ => Err(refusal(response).await),
    }
}

impl Upload<'_> {
    /// Sends the blob, unless it is there.
    pub(crate) async fn run(&self) -> Result<(), Error> {
        let mut backoff = Backoff::new(&self.session.inner.settings.tuning);
        loop {
            match self.once().await {
                Ok(()) => return Ok(()),
                Err(error) => backoff.after(error).await?,
            }
        }
    }

    async fn once(&self) -> Result<(), Error> {
        if exists(self.session, self.name, self.layer).await? {
            return Ok(());
        }
        let Some(mut url) = self.begin().await? else {
            return Ok(());
        };
        let size = self.layer.size;
        let part_bytes = self.session.inner.settings.tuning.part_bytes(size);
        let mut sums = Md5::new();
        let mut n_parts = 0;
        let mut start = 0;
        while start < size {
            let part = Part::new(self, start, part_bytes.min(size - start));
            match part.send(&url).await? {
                Sent::Next(next) => url = next,
                Sent::WholeOnly if start == 0 => return self.send_whole(&url).await,
                Sent::WholeOnly => return Err(self.unusable("it takes some parts and not others")),
            }
            sums.update(self.last.lock().md5.clone().finalize());
            n_parts += 1;
            start += part.size;
        }
        let etag = format!("{}-{n_parts}", hex::encode(sums.finalize()));
        url.query_pairs_mut()
            .append_pair("digest", &self.layer.digest.to_string())
            .append_pair("etag", &etag);
        let commit = self.session.inner.settings.tuning.commit;
        let finished = self.session.send_within(commit, |client| {
            client.put(url.clone()).header(header::CONTENT_LENGTH, 0)
        });
        self.accept(finished.await?).await
    }

    /// Begins an upload; nothing if the registry takes the blob from another model it has.
    async fn begin(&self) -> Result<Option<Url>, Error> {
        let mut url = self
            .session
            .url(&format!("{}/uploads/", blobs(self.name)))?;
        if let Some(from) = self.mountable() {
            url.query_pairs_mut()
                .append_pair("mount", &self.layer.digest.to_string())
                .append_pair("from", &from);
        }
        for _ in 0..MAX_REDIRECTS {
            let begun = self
                .session
                .send(|client| client.post(url.clone()).header(header::CONTENT_LENGTH, 0));
            let response = begun.await?;
            match response.status() {
                StatusCode::CREATED => return Ok(None),
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    url = self.location(&response, &url)?;
                }
                status if status.is_success() => return self.location(&response, &url).map(Some),
                _ => return Err(refusal(response).await),
            }
        }
        Err(self.unusable("it redirects too often"))
    }

    /// Returns the repository of the model that the layer was taken from, if it is of this
    /// registry.
    fn mountable(&self) -> Option<String> {
        let from: ModelName = self.layer.from.as_ref()?.parse().ok()?;
        let here = from.host().eq_ignore_ascii_case(self.name.host());
        here.then(|| format!("{}/{}", from.namespace(), from.model()))
    }

    /// For registries that know no parts.
    async fn send_whole(&self, url: &Url) -> Result<(), Error> {
        let part = Part::new(self, 0, self.layer.size);
        let mut url = url.clone();
        url.query_pairs_mut()
            .append_pair("digest", &self.layer.digest.to_string());
        let sent = self.session.send_within(Duration::MAX, |client| {
            client
                .put(url.clone())
                .header(header::CONTENT_TYPE, OCTETS)
                .header(header::CONTENT_LENGTH, part.size)
                .body(part.body())
        });
        self.accept(part.watched(&url, sent).await?).await
    }

    async fn accept(&self, response: Response) -> Result<(), Error> {
        if response.status().is_success() {
            Ok(())
        } else {
            Err(refusal(response).await)
        }
    }

    /// Returns where to go on.
    fn location(&self, response: &Response, base: &Url) -> Result<Url, Error> {
        let url = [UPLOAD_LOCATION, header::LOCATION.as_str()]
            .into_iter()
            .find_map(|name| base.join(text_header(response, name)?).ok())
            .ok_or_else(|| self.unusable("it does not say where to send the blob"))?;
        check_redirect(self.session.base(), &url)?;
        Ok(url)
    }

    fn unusable(&self, reason: &str) -> Error {
        Error::Answer {
            host: self.session.host(),
            reason: reason.to_owned(),
        }
    }
}

/// A part on its way.
struct Part<'a> {
    upload: &'a Upload<'a>,
    start: u64,
    size: u64,
}

/// What became of a part.
enum Sent {
    /// It is there; the next one goes here.
    Next(Url),
    /// The registry takes blobs in one piece only.
    WholeOnly,
}

impl<'a> Part<'a> {
    fn new(upload: &'a Upload<'a>, start: u64, size: u64) -> Part<'a> {
        Part {
            upload,
            start,
            size,
        }
    }

    /// Waits for the answer to a body as long as bytes of it are taken, and then until the registry has
    /// stored them.
    async fn watched(
        &self,
        url: &Url,
        answer: impl Future<Output = Result<Response, Error>>,
    ) -> Result<Response, Error> {
        let tuning = &self.upload.session.inner.settings.tuning;
        let end = self.start + self.size;
        let mut sent = self.upload.sent.subscribe();
        let silence = async {
            loop {
                let is_whole = *sent.borrow_and_update() >= end;
                let limit = if is_whole {
                    tuning.commit
                } else {
                    tuning.stall
                };
                let moved = tokio::time::timeout(limit, sent.changed()).await;
                if moved.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            answer = answer => answer,
            () = silence => Err(Error::Stalled { host: authority(url) }),
        }
    }

    async fn send(&self, url: &Url) -> Result<Sent, Error> {
        let upload = self.upload;
        let range = format!("{}-{}", self.start, self.start + self.size - 1);
        let sent = upload.session.send_within(Duration::MAX, |client| {
            client
                .patch(url.clone())
                .header(header::CONTENT_TYPE, OCTETS)
                .header(header::CONTENT_RANGE, &range)
                .header(header::CONTENT_LENGTH, self.size)
                .header("X-Redirect-Uploads", "1")
                .body(self.body())
        });
        let response = self.watched(url, sent).await?;
        match response.status() {
            StatusCode::TEMPORARY_REDIRECT => {
                let target = text_header(&response, header::LOCATION)
                    .and_then(|target| url.join(target).ok())
                    .ok_or_else(|| upload.unusable("it redirects nowhere"))?;
                check_redirect(upload.session.base(), &target)?;
                let next =
                    text_header(&response, UPLOAD_LOCATION).and_then(|next| url.join(next).ok());
                self.put(target).await?;
                Ok(Sent::Next(next.unwrap_or_else(|| url.clone())))
            }
            status if status.is_success() => Ok(Sent::Next(
                upload
                    .location(&response, url)
                    .unwrap_or_else(|_| url.clone()),
            )),
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => Ok(Sent::WholeOnly),
            _ => Err(refusal(response).await),
        }
    }

    /// Sends the part to a storage. The address itself is the permission: no credentials.
    async fn put(&self, target: Url) -> Result<(), Error> {
        let client = self.upload.session.client(&target, true)?;
        let request = client
            .put(target.clone())
            .header(header::CONTENT_LENGTH, self.size)
            .body(self.body());
        let sent = async {
            request
                .send()
                .await
                .map_err(|error| failure(&target, &error))
        };
        let response = self.watched(&target, sent).await?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(match refusal(response).await {
            // The storage speaks here, not the registry: its words are not those of the protocol.
            error @ Error::Status { .. } => error,
            error => Error::Answer {
                host: authority(&target),
                reason: error.to_string(),
            },
        })
    }

    /// Returns the bytes of the part as a body, from the beginning each time. Bodies that were made before end with
    /// an error.
    fn body(&self) -> Body {
        let reader = Reader::begin(
            self.upload.file.clone(),
            self.start..self.start + self.size,
            &self.upload.last,
            &self.upload.sent,
        );
        Body::wrap_stream(stream::try_unfold(reader, Reader::next))
    }
}

/// Reads a part of a file piece by piece.
struct Reader {
    path: PathBuf,
    file: Option<tokio::fs::File>,
    position: u64,
    end: u64,
    number: usize,
    last: Arc<Mutex<LastBody>>,
    sent: Arc<watch::Sender<u64>>,
}

impl Reader {
    fn begin(
        path: PathBuf,
        bytes: Range<u64>,
        last: &Arc<Mutex<LastBody>>,
        sent: &Arc<watch::Sender<u64>>,
    ) -> Reader {
        let mut body = last.lock();
        *body = LastBody {
            number: body.number + 1,
            md5: Md5::new(),
        };
        sent.send_replace(bytes.start);
        Reader {
            path,
            file: None,
            position: bytes.start,
            end: bytes.end,
            number: body.number,
            last: last.clone(),
            sent: sent.clone(),
        }
    }

    async fn next(mut self) -> io::Result<Option<(Bytes, Reader)>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let mut file = if let Some(file) = self.file.take() {
            file
        } else {
            let mut file = tokio::fs::File::open(&self.path).await?;
            file.seek(io::SeekFrom::Start(self.position)).await?;
            file
        };
        let wanted = (self.end - self.position).min(READ_BYTES) as usize;
        let mut bytes = vec![0; wanted];
        file.read_exact(&mut bytes).await?;
        self.file = Some(file);
        self.position += wanted as u64;
        {
            let mut body = self.last.lock();
            if body.number != self.number {
                return Err(io::Error::other("it is sent again"));
            }
            body.md5.update(&bytes);
            self.sent.send_replace(self.position);
        }
        Ok(Some((Bytes::from(bytes), self)))
    }
}

fn blobs(name: &ModelName) -> String {
    format!("v2/{}/{}/blobs", name.namespace(), name.model())
}

const UPLOAD_LOCATION: &str = "docker-upload-location";
const OCTETS: &str = "application/octet-stream";
const MAX_REDIRECTS: usize = 8;
const READ_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_is_sent_again_has_the_sum_of_its_last_body() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blob");
        let bytes: Vec<u8> = (0..3 * READ_BYTES).map(|at| (at / 1000) as u8).collect();
        std::fs::write(&file, &bytes).unwrap();
        let last = Arc::default();
        let (sent, watch) = watch::channel(0);
        let sent = Arc::new(sent);
        let begin = || Reader::begin(file.clone(), 0..bytes.len() as u64, &last, &sent);

        let (_, first) = begin().next().await.unwrap().unwrap();
        assert_eq!(*watch.borrow(), READ_BYTES);
        let mut second = begin();
        assert_eq!(*watch.borrow(), 0);
        // The connection reads on although an answer has come.
        assert!(first.next().await.is_err());
        while let Some((_, rest)) = second.next().await.unwrap() {
            second = rest;
        }
        assert_eq!(*watch.borrow(), bytes.len() as u64);
        assert_eq!(last.lock().md5.clone().finalize(), Md5::digest(&bytes));
    }
}
