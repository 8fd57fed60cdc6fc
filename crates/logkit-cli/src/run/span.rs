//! Where a command stands among others: its trace, its own id, and the command it was started by.

use std::{
    ffi::OsString,
    hash::{BuildHasher, RandomState},
    num::NonZeroU64,
};

use llmsrv_config::LogkitConfig;
use logkit::SpanId;

/// The place of a command in its trace.
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) id: SpanId,
    pub(crate) parent_id: Option<SpanId>,
    /// Version tag, empty if nothing says it.
    pub(crate) version: String,
}

impl Span {
    /// Takes the trace that the environment names, or begins one.
    pub(crate) fn new(config: &LogkitConfig) -> Span {
        let ambient = &config.ambient;
        let id = random_id();
        let trace_id = config.trace_id.clone().or_else(|| ambient.trace_id.clone());
        let version = config.version.clone().or_else(|| ambient.version.clone());
        Span {
            trace_id: trace_id.unwrap_or_else(logkit::generate_trace_id),
            id,
            parent_id: config.parent_id.as_deref().and_then(|id| id.parse().ok()),
            version: version.unwrap_or_default(),
        }
    }

    /// Tells the command, so that what it logs hangs below it.
    pub(crate) fn hand_down(&self, environment: &mut Vec<(String, OsString)>) {
        environment.push(("LOGKIT_TRACE_ID".into(), self.trace_id.clone().into()));
        environment.push(("LOGKIT_PARENT_ID".into(), self.id.to_string().into()));
    }
}

fn random_id() -> SpanId {
    // The keys of the standard library's hash tables are random.
    let number = RandomState::new().hash_one(std::process::id());
    SpanId(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
}
