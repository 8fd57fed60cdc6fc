//! The cryptography that every TLS connection of the program uses: ring. A second provider in one
//! process makes rustls panic at the first connection, so the choice is made here and nowhere else.

#![forbid(unsafe_code)]

/// Makes ring the provider of this process. Needed before the first HTTP client is built; calling
/// it again does nothing.
pub fn init() {
    // An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
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
