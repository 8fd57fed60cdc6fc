//! TLS, with the one choice of cryptography.

use std::sync::Arc;

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio_rustls::TlsAcceptor;

use crate::settings::{Error, TlsFiles};

/// Reads certificate and key.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Error> {
    llmsrv_tls::init();
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|source| Error::TlsFile {
            path: path.clone(),
            source,
        })
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&read(&files.certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|error| Error::Tls(format!("the certificate is not in PEM form: {error}")))?;
    if chain.is_empty() {
        return Err(Error::Tls("there is no certificate in PEM form".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| Error::Tls(format!("there is no usable private key: {error}")))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| {
            Error::Tls(format!(
                "certificate and key cannot be used together: {error}"
            ))
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
