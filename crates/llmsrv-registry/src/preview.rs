//! What a pull would do.

use std::{collections::HashSet, sync::Arc};

use llmsrv_store::ModelName;

use crate::{
    Error, Inner,
    pull::{check, plan},
    transfer::{Blob, space},
};

/// Sizes of a model that could be pulled, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// All of it.
    pub size: u64,
    /// What is not in the store yet.
    pub missing: u64,
    /// What the disk of the store has left.
    pub free: u64,
}

pub(crate) async fn preview(
    inner: &Arc<Inner>,
    name: &ModelName,
    insecure: bool,
) -> Result<Preview, Error> {
    inner.settings.check(name.host())?;
    let plan = plan(inner, name, insecure)
        .await
        .map_err(|error| Error::Manifest(Box::new(error)))?;
    check(&plan.parsed)?;
    let blobs: HashSet<Blob> = plan
        .parsed
        .blobs()
        .map(|layer| Blob {
            digest: layer.digest,
            size: layer.size,
        })
        .collect();
    let size = plan.parsed.size();
    let (missing, free) = space(inner, blobs.into_iter().collect()).await?;
    Ok(Preview {
        size,
        missing,
        free,
    })
}
