//! TLS: a certificate that can be replaced while connections are open.

use std::{convert::Infallible, io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// What is wrong with a certificate or its key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The certificates cannot be read.
    #[error("the certificate is not in PEM form: {0}")]
    Certificate(String),
    /// There is no certificate.
    #[error("there is no certificate in PEM form")]
    NoCertificate,
    /// The key cannot be read.
    #[error("there is no usable private key in PEM form (an encrypted one is not): {0}")]
    Key(String),
    /// They cannot be used together.
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(String),
}

/// The certificate of a server; clones share it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ArcSwap<ServerConfig>>,
}

impl Tls {
    /// Reads a chain of certificates, the server's own one first, and its key, both in PEM form.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Tls, TlsError> {
        let config = Arc::new(configure(certificates, key)?);
        Ok(Tls {
            config: Arc::new(ArcSwap::new(config)),
        })
    }

    /// Uses another certificate for connections from now on; open ones go on as they are. When it
    /// cannot be used the old one stays.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.config.store(Arc::new(configure(certificates, key)?));
        Ok(())
    }

    /// Uses what a certificate's files hold whenever that has changed, for ever. What cannot be used
    /// is reported, and the old certificate stays.
    pub async fn follow(self, mut files: PemFiles) -> Infallible {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let Some((certificates, key)) = files.changed().await else {
                continue;
            };
            match self.replace(&certificates, &key) {
                Ok(()) => tracing::info!("certificate read"),
                Err(error) => tracing::error!(%error, "the old certificate stays"),
            }
        }
    }

    /// Shakes hands with a client.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
                // A method where a handshake should be: say so instead of hanging up.
                stream.write_all(PLAIN_HTTP).await?;
                stream.shutdown().await?;
                return Err(io::Error::other("plain http to a port with TLS"));
            }
            TlsAcceptor::from(self.config.load_full())
                .accept(stream)
                .await
        };
        tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// The files of a certificate and its key, and what they held.
pub struct PemFiles {
    certificates: PathBuf,
    key: PathBuf,
    used: Option<Pair>,
    seen: Option<Pair>,
}

/// Certificates and key, both in PEM form.
type Pair = (Vec<u8>, Vec<u8>);

impl PemFiles {
    /// Names files of which `used` was read.
    pub fn new(certificates: PathBuf, key: PathBuf, used: Pair) -> PemFiles {
        PemFiles {
            certificates,
            key,
            used: Some(used.clone()),
            seen: Some(used),
        }
    }

    /// Returns what the files hold if that is new. What is still being written, or a pair of which one
    /// half is new, is not: it has to look the same twice.
    async fn changed(&mut self) -> Option<Pair> {
        let read = async {
            let certificates = tokio::fs::read(&self.certificates).await.ok()?;
            Some((certificates, tokio::fs::read(&self.key).await.ok()?))
        };
        let now = read.await;
        let has_settled = now == self.seen;
        self.seen = now;
        if !has_settled || self.seen == self.used {
            return None;
        }
        self.used.clone_from(&self.seen);
        self.used.clone()
    }
}

fn configure(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|error| TlsError::Key(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| TlsError::Pair(error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 31\r\nConnection: close\r\n\r\nThis server speaks https only.\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let ((certificate, key), (other, _)) = (pair(), pair());
        assert!(Tls::new(certificate.as_bytes(), key.as_bytes()).is_ok());
        let text = |certificate: &str, key: &str| {
            Tls::new(certificate.as_bytes(), key.as_bytes())
                .err()
                .unwrap()
                .to_string()
        };
        assert!(text("", &key).contains("no certificate"));
        assert!(text(&key, &key).contains("no certificate"));
        assert!(text(&certificate, "").contains("private key"));
        assert!(text(&certificate, &certificate).contains("private key"));
        assert!(text(&other, &key).contains("cannot be used"));
        let broken = certificate.replace("MII", "!!!");
        assert!(text(&broken, &key).contains("PEM"));
    }

    #[test]
    fn the_answer_to_plain_http_has_the_length_it_says() {
        let text = String::from_utf8(PLAIN_HTTP.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
}
