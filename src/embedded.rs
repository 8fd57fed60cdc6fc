//! The model inside the program, unless it was built without one.

#[cfg(feature = "embedded-model")]
use llmsrv_store::Embedded;
use llmsrv_store::Store;

use crate::failure::Failure;

/// Puts the model into the store; does nothing when it is there already or was removed by the user.
#[cfg(feature = "embedded-model")]
pub fn install(store: &Store) -> Result<(), Failure> {
    const DESCRIPTION: &str = include_str!("../assets/embedded/manifest.toml");
    static WEIGHTS: &[u8] = include_bytes!("../assets/embedded/model.gguf");
    let installed = store.install_embedded(&Embedded::parse(DESCRIPTION, WEIGHTS)?)?;
    tracing::debug!(?installed, "embedded model");
    Ok(())
}

/// This program was built without a model.
#[cfg(not(feature = "embedded-model"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as with the feature"
)]
pub fn install(_store: &Store) -> Result<(), Failure> {
    Ok(())
}

#[cfg(all(test, feature = "embedded-model"))]
mod tests {
    use super::*;

    #[test]
    fn the_model_goes_into_an_empty_store_and_is_its_default() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), llmsrv_store::OpenOptions::default()).unwrap();
        install(&store).unwrap();
        install(&store).unwrap();
        store.model(&"default".parse().unwrap()).unwrap();
    }
}
