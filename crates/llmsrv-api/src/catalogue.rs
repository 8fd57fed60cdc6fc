//! Answer of `GET /api/catalogue`, which is also what `llmsrv search --json` prints.

use serde::Serialize;
use utoipa::ToSchema;

/// Models that can be pulled, and what each would be like on the server's machine.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Catalogue {
    /// Year and month in which the list of the program was made.
    pub date: &'static str,
    /// The day on which `llmsrv search --refresh` was last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<String>,
    /// Bytes of memory that a process can have.
    pub memory_bytes: Option<u64>,
    /// What memory gives to all threads, in bytes per second.
    pub bytes_per_second: f64,
    /// Each size of each model, those that people pull most first.
    pub models: Vec<CatalogueModel>,
}

/// One size of a model.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CatalogueModel {
    /// What is pulled.
    pub name: String,
    /// Bytes to download.
    pub bytes: u64,
    /// Bytes of memory with a context of a few thousand tokens.
    pub memory_bytes: u64,
    /// Whether this build runs it.
    pub runs: bool,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<&'static str>,
    /// Whether its memory is there.
    pub fits: bool,
    /// The best size of this model for this machine: the largest that fits and is as fast as one
    /// reads, else the smallest that fits.
    pub suggested: bool,
    /// Tokens per second of decode, if memory bandwidth limits it; none for embedding models. Of models that
    /// were found with `--refresh`, as if a token read all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// What it is for, in a word.
    pub about: String,
    /// What it can do beside text, in the words of `/api/show`.
    pub capabilities: Vec<String>,
    /// The longest context in tokens, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
    /// `general.architecture` of its files, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// The licence of the weights, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
}
