//! The model inside the program, unless it was built without one.

#[cfg(feature = "embedded-model")]
use llmsrv_store::Embedded;
use llmsrv_store::{ModelName, Store};

use crate::failure::Failure;

/// Puts the model into the store; does nothing when it is there already or was removed by the user.
#[cfg(feature = "embedded-model")]
pub fn install(store: &Store) -> Result<(), Failure> {
    let installed = store.install_embedded(&description()?)?;
    tracing::debug!(?installed, "embedded model");
    Ok(())
}

/// Returns the name of the model.
#[cfg(feature = "embedded-model")]
pub fn name() -> Result<Option<ModelName>, Failure> {
    Ok(Some(description()?.name))
}

/// This program was built without a model.
#[cfg(not(feature = "embedded-model"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature as with the feature"
)]
pub fn name() -> Result<Option<ModelName>, Failure> {
    Ok(None)
}

#[cfg(feature = "embedded-model")]
static WEIGHTS: &[u8] = include_bytes!("../assets/embedded/model.gguf");

/// Returns the file of the model.
pub fn weights() -> Option<&'static [u8]> {
    #[cfg(feature = "embedded-model")]
    let weights = Some(WEIGHTS);
    #[cfg(not(feature = "embedded-model"))]
    let weights = None;
    weights
}

/// Returns how large the model is.
pub fn size() -> Option<u64> {
    #[cfg(feature = "embedded-model")]
    let size = Some(WEIGHTS.len() as u64);
    #[cfg(not(feature = "embedded-model"))]
    let size = None;
    size
}

#[cfg(feature = "embedded-model")]
fn description() -> Result<Embedded<'static>, Failure> {
    const DESCRIPTION: &str = include_str!("../assets/embedded/manifest.toml");
    Ok(Embedded::parse(DESCRIPTION, WEIGHTS)?)
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
