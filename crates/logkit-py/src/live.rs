//! Entries with the objects of the call, for sinks written in Python.

mod entry;
mod held;
mod json;
mod object;
mod pending;
mod poller;
mod router;
mod tree;

pub(crate) use entry::{entry_of, log_entry};
pub(crate) use held::Held;
pub(crate) use object::{Object, ObjectSink, notice};
pub(crate) use pending::{Action, Context, is_draining_on_writer, later, run_on_writer};
pub(crate) use router::{Router, RouterPort};
pub(crate) use tree::Tree;
