//! Sinks written in Python: they get entries with the objects of the call.

mod held;
mod object;
mod pending;
mod poller;
mod router;
mod tree;

pub(crate) use held::Held;
pub(crate) use object::{Object, ObjectSink, notice};
pub(crate) use pending::{Action, Context, is_draining_on_writer, later, run_on_writer};
pub(crate) use router::{Router, RouterPort};
pub(crate) use tree::Tree;
