//! Sinks around other sinks.

pub(crate) mod diff;
pub(crate) mod env;
pub(crate) mod router;
pub(crate) mod scan;
