//! The classes of native sinks and wrappers.

mod alerts;
mod arguments;
mod files;
mod gate;
mod handle;
pub(crate) mod live;
mod metrics;
mod model;
mod native;
mod plain;
mod remote;
mod spec;
mod tee;
mod wrappers;

use std::{borrow::Cow, sync::Arc};

use logkit::{Durability, Entry, Sink, SinkError, Which};
use pyo3::prelude::*;

use handle::{Handle, Share, Traits};
use live::{Held, Object, ObjectSink, Tree, run_on_writer};
use native::NativeSink;

pub(crate) use gate::{ForkPause, before_fork};
pub(crate) use native::drain;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeSink>()?;
    files::register(module)?;
    plain::register(module)?;
    metrics::register(module)?;
    alerts::register(module)?;
    remote::register(module)?;
    model::register(module)?;
    wrappers::register(module)?;
    spec::register(module)
}

/// Where a logger puts a sink that Python gave it.
pub(crate) enum Place {
    /// All of it is native: it belongs to the writer's thread. Asked once per process: after a fork a
    /// logger asks for it again.
    Native(Box<dyn Sink>),
    /// Some of it is written in Python: it is walked in the caller's thread.
    Object(Arc<Tree>),
}

/// Says where that sink goes. Anything with a method `write` is a sink; else a `TypeError`.
pub(crate) fn place(sink: &Bound<'_, PyAny>) -> PyResult<Place> {
    let child = Child::of(sink)?;
    if child.traits().is_live {
        let held = match sink.cast::<NativeSink>() {
            Ok(native) => native.get().held(),
            Err(_) => Arc::new(Held::new(0)),
        };
        return Ok(Place::Object(Arc::new(Tree::new(child, held))));
    }
    Ok(Place::Native(Box::new(Root::new(&child))))
}

/// When entries of that sink are wanted to be safe, if it says so, and the file it writes.
pub(crate) fn wishes(sink: &Bound<'_, PyAny>) -> (Option<Durability>, Option<std::path::PathBuf>) {
    match sink.cast::<NativeSink>() {
        Ok(native) => {
            let traits = native.get().handle().traits().clone();
            (traits.durability, traits.file)
        }
        Err(_) => (None, None),
    }
}

/// Does something in native sinks, without the interpreter, unless the process forks just now.
pub(crate) fn in_sinks<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    py.detach(|| {
        let _inside = gate::enter();
        call()
    })
}

/// A sink that something hands entries to.
#[derive(Clone)]
pub(crate) enum Child {
    Native(Arc<Handle>),
    Object(Arc<Object>),
}

impl Child {
    /// The sink that a Python object is.
    pub(crate) fn of(sink: &Bound<'_, PyAny>) -> PyResult<Child> {
        match sink.cast::<NativeSink>() {
            Ok(native) if !native::is_overridden(native)? => {
                Ok(Child::Native(Arc::clone(native.get().handle())))
            }
            _ => Object::new(sink).map(Child::Object),
        }
    }

    /// For whoever hands entries to it.
    pub(crate) fn sink(&self) -> Box<dyn Sink> {
        match self {
            Child::Native(handle) => Box::new(Share::new(Arc::clone(handle))),
            Child::Object(object) => Box::new(ObjectSink(Arc::clone(object))),
        }
    }

    pub(crate) fn traits(&self) -> Cow<'_, Traits> {
        match self {
            Child::Native(handle) => Cow::Borrowed(handle.traits()),
            Child::Object(object) => Cow::Owned(Traits {
                is_live: !object.is_threaded(),
                ..Traits::default()
            }),
        }
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self {
            Child::Native(handle) => handle.name().into(),
            Child::Object(object) => object.name().into(),
        }
    }

    /// True if both are the same sink.
    pub(crate) fn is(&self, other: &Child) -> bool {
        match (self, other) {
            (Child::Native(ours), Child::Native(theirs)) => Arc::ptr_eq(ours, theirs),
            (Child::Object(ours), Child::Object(theirs)) => ours.is(theirs),
            _ => false,
        }
    }
}

/// A sink in a logger. What it wants to call in Python is called after each step.
struct Root {
    sink: Box<dyn Sink>,
    /// There is nothing native in it that could have kept an entry.
    is_object: bool,
}

impl Root {
    fn new(child: &Child) -> Root {
        Root {
            sink: child.sink(),
            is_object: matches!(child, Child::Object(_)),
        }
    }
}

impl Sink for Root {
    fn write_batch(&mut self, entries: &[Entry]) -> Result<(), SinkError> {
        self.write_which(entries, Which::All)
    }

    fn write_which(&mut self, entries: &[Entry], which: Which<'_>) -> Result<(), SinkError> {
        run_on_writer(self.sink.write_which(entries, which), self.is_object)
    }

    fn wrapped(&self) -> Option<&dyn Sink> {
        Some(&*self.sink)
    }

    fn wrapped_mut(&mut self) -> Option<&mut dyn Sink> {
        Some(&mut *self.sink)
    }

    fn poll(&mut self) -> Result<bool, SinkError> {
        run_on_writer(self.sink.poll(), self.is_object)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        run_on_writer(self.sink.flush(), self.is_object)
    }

    fn close(&mut self) -> Result<(), SinkError> {
        run_on_writer(self.sink.close(), self.is_object)
    }
}
