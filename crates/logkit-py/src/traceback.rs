//! Tracebacks as text.
