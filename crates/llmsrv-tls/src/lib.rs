//! The cryptography that every TLS connection of the program uses: ring. A second provider in one
//! process makes rustls panic at the first connection, so the choice is made here and nowhere else.

#![forbid(unsafe_code)]

/// Makes ring the provider of this process. Needed before the first HTTP client is built; calling
/// it again does nothing.
pub fn init() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// What a client needs to talk to servers which the system trusts, and to those whose certificates are
/// in the PEM file `roots`, if one is given; then to no others.
#[cfg(feature = "client")]
pub fn client(roots: Option<&std::path::Path>) -> Result<rustls::ClientConfig, BadRoots> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    use rustls_platform_verifier::ConfigVerifierExt as _;

    init();
    let Some(path) = roots else {
        return rustls::ClientConfig::with_platform_verifier().map_err(BadRoots::Rustls);
    };
    let mut store = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(BadRoots::Pem)?;
    for certificate in certificates {
        let certificate = certificate.map_err(BadRoots::Pem)?;
        store.add(certificate).map_err(BadRoots::Rustls)?;
    }
    if store.is_empty() {
        return Err(BadRoots::Empty);
    }
    Ok(rustls::ClientConfig::builder()
        .with_root_certificates(store)
        .with_no_client_auth())
}

/// Why there is nothing that a client could trust.
#[cfg(feature = "client")]
#[derive(Debug, thiserror::Error)]
pub enum BadRoots {
    /// The file cannot be read, or is no PEM.
    #[error("{0}")]
    Pem(rustls::pki_types::pem::Error),
    /// It holds no certificate.
    #[error("the file holds no certificate")]
    Empty,
    /// A certificate is wrong, or those of the system cannot be read.
    #[error("{0}")]
    Rustls(rustls::Error),
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_provider_is_there_however_often_it_is_asked_for() {
        super::init();
        super::init();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }
}
