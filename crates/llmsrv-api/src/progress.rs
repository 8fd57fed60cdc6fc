//! Lines of long work: pull, push, create.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::native::is_zero;

/// A step of long work, and how much of it is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Progress {
    /// What is being done; `success` at the end.
    #[schema(required = false)]
    pub status: String,
    /// The file it is done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Size of the file in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub total: u64,
    /// Bytes that are done.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub completed: u64,
}

impl Progress {
    /// A step without numbers.
    pub fn step(status: impl Into<String>) -> Progress {
        Progress {
            status: status.into(),
            ..Progress::default()
        }
    }

    /// The end of work that was done.
    pub fn success() -> Progress {
        Progress::step(SUCCESS)
    }

    /// Tells whether this is the end of work that was done.
    pub fn is_success(&self) -> bool {
        self.status == SUCCESS
    }
}

const SUCCESS: &str = "success";
