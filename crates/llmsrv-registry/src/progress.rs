//! What a transfer says about itself.

use llmsrv_store::Digest;
use serde::Serialize;

/// A step of a transfer, in the form the API gives it to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// What is being done.
    pub status: String,
    /// The blob it is done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Size of the blob in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub total: u64,
    /// Bytes of it that are done.
    #[serde(skip_serializing_if = "is_zero")]
    pub completed: u64,
}

impl Progress {
    /// A step without numbers.
    pub fn step(status: impl Into<String>) -> Progress {
        Progress {
            status: status.into(),
            digest: None,
            total: 0,
            completed: 0,
        }
    }

    /// How far the transfer of a blob is; `verb` is `pulling` or `pushing`.
    pub(crate) fn blob(verb: &str, digest: &Digest, total: u64, completed: u64) -> Progress {
        Progress {
            status: format!("{verb} {}", &digest.hex()[..12]),
            digest: Some(*digest),
            total,
            completed,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Time between two reports on one blob: about seven a second.
pub(crate) const REPORT_EVERY: std::time::Duration = std::time::Duration::from_millis(150);
