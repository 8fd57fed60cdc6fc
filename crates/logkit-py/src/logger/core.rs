//! Takes entries: to the queue, to sinks written in Python, and to the console.

use std::{
    cell::RefCell,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use logkit::{Entry, SpanId, TempSink, lock::Mutex};
use pyo3::prelude::*;

use super::{
    console::{Console, Route},
    settings::Settings,
    target::Live,
};
use crate::{
    context,
    entry::log_entry,
    redaction::Redaction,
    render::Renderer,
    sinks::{Place, live::Tree, place},
    watched,
};

/// A logger as Python sees it, around a native one.
pub(crate) struct Core {
    native: logkit::Logger,
    pub(super) settings: Settings,
    pub(crate) redaction: Redaction,
    pub(crate) binary_meta: bool,
    pub(crate) root: Option<SpanId>,
    console: Option<Console>,
    members: Mutex<Vec<Member>>,
    /// Sinks of which some are written in Python.
    trees: ArcSwap<Vec<Arc<Tree>>>,
    has_trees: AtomicBool,
    has_native: AtomicBool,
    closed: AtomicBool,
    /// Entries that only sinks written in Python took, or only lines on the console.
    pub(super) n_alone: AtomicU64,
    /// Errors of sinks that are gone, and of entries that are none.
    n_errors: AtomicU64,
}

/// A sink of a logger.
struct Member {
    sink: Py<PyAny>,
    home: Home,
}

enum Home {
    /// The writer's thread has it until this is dropped.
    Writer(TempSink),
    Caller(Arc<Tree>),
}

thread_local! {
    /// The loggers that are handing an entry to Python code on this thread, by address.
    static BUSY: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives nothing that Python code of a sink does is logged by the logger itself.
struct Busy {
    _quiet: logkit::SilenceGuard,
}

impl Busy {
    fn new(core: &Core) -> Busy {
        BUSY.with_borrow_mut(|busy| busy.push(core.address()));
        Busy {
            _quiet: logkit::silence(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with_borrow_mut(Vec::pop);
    }
}

impl Core {
    pub(super) fn new(
        py: Python<'_>,
        mut settings: Settings,
        sinks: &[Bound<'_, PyAny>],
    ) -> PyResult<Arc<Core>> {
        let console = Console::new(py, &settings)?;
        let journal = settings.wishes(sinks);
        let core = Arc::new_cyclic(|weak: &Weak<Core>| {
            let (again, in_child) = (settings.clone(), weak.clone());
            let describe = move || {
                let mut builder = again.describe(None);
                if let Some(core) = in_child.upgrade() {
                    for sink in core.placed_again() {
                        builder = builder.sink(sink);
                    }
                }
                builder
            };
            let native = py.detach(|| settings.describe(journal).after_fork(describe).build());
            watched::watch(&native);
            Core {
                native,
                redaction: settings.redaction.clone(),
                binary_meta: settings.binary_meta,
                root: settings.root,
                console,
                settings,
                members: Mutex::default(),
                trees: ArcSwap::default(),
                has_trees: AtomicBool::new(false),
                has_native: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                n_alone: AtomicU64::new(0),
                n_errors: AtomicU64::new(0),
            }
        });
        for sink in sinks {
            core.add_sink(sink)?;
        }
        py.detach(|| core.native.recover());
        watch(&core);
        Ok(core)
    }

    pub(crate) fn native(&self) -> &logkit::Logger {
        &self.native
    }

    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.native.level_number()
    }

    #[inline]
    pub(crate) fn has_trees(&self) -> bool {
        self.has_trees.load(Acquire)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub(super) fn sinks(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        self.members
            .lock()
            .iter()
            .map(|member| member.sink.clone_ref(py))
            .collect()
    }

    pub(super) fn add_sink(&self, sink: &Bound<'_, PyAny>) -> PyResult<()> {
        let home = match place(sink)? {
            Place::Native(native) => {
                Home::Writer(sink.py().detach(|| self.native.temp_sink(native)))
            }
            Place::Object(tree) => Home::Caller(tree),
        };
        self.members.lock().push(Member {
            sink: sink.clone().unbind(),
            home,
        });
        self.settle();
        Ok(())
    }

    pub(super) fn remove_sink(&self, sink: &Bound<'_, PyAny>) {
        let gone = {
            let mut members = self.members.lock();
            let found = members.iter().position(|member| member.sink.is(sink));
            found.map(|idx| members.remove(idx))
        };
        let Some(gone) = gone else {
            return;
        };
        self.settle();
        match gone.home {
            Home::Writer(added) => sink.py().detach(|| drop(added)),
            Home::Caller(tree) => {
                tree.flush(sink.py());
                self.n_errors.fetch_add(tree.errors(), Relaxed);
            }
        }
    }

    /// Works out where entries go, after sinks have come or gone.
    fn settle(&self) {
        let members = self.members.lock();
        let mut trees = Vec::new();
        let mut has_native = false;
        for member in members.iter() {
            match &member.home {
                Home::Writer(_) => has_native = true,
                Home::Caller(tree) => trees.push(Arc::clone(tree)),
            }
        }
        let has_trees = !trees.is_empty();
        self.trees.store(Arc::new(trees));
        self.has_trees.store(has_trees, Release);
        self.has_native.store(has_native, Release);
    }

    /// The native sinks, for the logger of a process that this one forked.
    fn placed_again(&self) -> Vec<Box<dyn logkit::Sink>> {
        Python::try_attach(|py| {
            let sinks = self.sinks(py);
            let places = sinks.iter().filter_map(|sink| match place(sink.bind(py)) {
                Ok(Place::Native(sink)) => Some(sink),
                _ => None,
            });
            places.collect()
        })
        .unwrap_or_default()
    }

    /// Takes the entry of a call.
    pub(crate) fn emit<'py>(&self, py: Python<'py>, mut entry: Entry, live: &Live<'py>) {
        if !self.native.enabled(&entry.level) {
            return;
        }
        if self.has_trees() {
            self.native.fill_tags(&mut entry);
            let _busy = Busy::new(self);
            match live.log_entry(py, &entry) {
                Ok(live) => self.walk(&live, &entry),
                Err(error) => self.refused(&error),
            }
        }
        self.pass_on(py, entry);
    }

    /// Takes an entry that the user made.
    pub(super) fn emit_made(&self, py: Python<'_>, mut entry: Entry, live: &Bound<'_, PyAny>) {
        // A sink that hands entries back to its logger would never end.
        if BUSY.with_borrow(|busy| busy.contains(&self.address())) {
            return;
        }
        let has_trees = self.has_trees();
        let before = has_trees.then(|| entry.clone());
        if entry.span_id.is_none() && entry.parent_id.is_none() {
            entry.parent_id = context::innermost(py).or(self.root);
        }
        entry.fill_scope();
        let redactor = self.redaction.redactor.as_deref();
        context::fill(py, &mut entry, redactor);
        self.native.redact(&mut entry);
        self.native.fill_tags(&mut entry);
        if has_trees {
            let _busy = Busy::new(self);
            if before.as_ref() == Some(&entry) {
                self.walk(live, &entry);
            } else {
                match self.changed(live, &entry) {
                    Ok(live) => self.walk(&live, &entry),
                    Err(error) => self.refused(&error),
                }
            }
        }
        self.pass_on(py, entry);
    }

    /// A `LogEntry` like that one, with what the logger changed: the user's own stays as it is.
    fn changed<'py>(&self, live: &Bound<'py, PyAny>, entry: &Entry) -> PyResult<Bound<'py, PyAny>> {
        let py = live.py();
        let renderer = Renderer {
            redactor: self.redaction.redactor.clone(),
            judge: self.redaction.judge.clone(),
            ..Renderer::default()
        };
        let part = |name| renderer.blanked(live.getattr(name)?);
        let (args, kwargs) = (part("args")?, part("kwargs")?);
        log_entry(
            py,
            entry,
            Some(&args),
            Some(&kwargs),
            Some(&part("return_value")?),
        )
    }

    /// Hands an entry to the sinks written in Python.
    fn walk(&self, live: &Bound<'_, PyAny>, entry: &Entry) {
        if self.closed.load(Relaxed) {
            return;
        }
        for tree in self.trees.load_full().iter() {
            tree.write(live, entry);
        }
    }

    /// Hands an entry to the console and to the queue.
    #[inline]
    fn pass_on(&self, py: Python<'_>, entry: Entry) {
        let mut queue = self.has_native.load(Acquire);
        if let Some(console) = &self.console {
            match console.route(py) {
                Route::Native => {
                    console.switch(py, &self.native, true);
                    queue = true;
                }
                route => {
                    console.switch(py, &self.native, false);
                    let _busy = Busy::new(self);
                    console.write(py, &route, &entry);
                }
            }
        }
        // A logger without any sink counts what it would have written.
        if queue || (self.console.is_none() && !self.has_trees()) {
            if let Err(entry) = self.native.emit_unless_waiting(entry) {
                py.detach(|| self.native.emit(*entry));
            }
        } else if !self.closed.load(Relaxed) {
            self.n_alone.fetch_add(1, Relaxed);
        }
    }

    /// An entry could not be made: that is counted, and the first time told.
    pub(super) fn refused(&self, error: &PyErr) {
        if self.n_errors.fetch_add(1, Relaxed) == 0 {
            logkit::notice(&format!("an entry is lost: {error}"));
        }
    }

    pub(super) fn object_errors(&self) -> u64 {
        let trees = self.trees.load();
        self.n_errors.load(Relaxed) + trees.iter().map(|tree| tree.errors()).sum::<u64>()
    }

    pub(super) fn flush(&self, py: Python<'_>, timeout: Duration) -> bool {
        for tree in self.trees.load_full().iter() {
            let _busy = Busy::new(self);
            tree.flush(py);
        }
        py.detach(|| self.native.flush(timeout))
    }

    pub(crate) fn close(&self, py: Python<'_>) {
        self.close_trees(py);
        py.detach(|| self.native.close());
    }

    /// Closes the sinks written in Python.
    pub(crate) fn close_trees(&self, py: Python<'_>) {
        if self.closed.swap(true, AcqRel) {
            return;
        }
        let trees = self.trees.load_full();
        for (idx, tree) in trees.iter().enumerate() {
            let _busy = Busy::new(self);
            tree.flush(py);
            if !trees[..idx]
                .iter()
                .any(|before| before.is_same_object(tree))
            {
                tree.close(py);
            }
        }
    }
}

impl Drop for Core {
    /// The end of the native logger waits for its writer, which may want to call Python.
    fn drop(&mut self) {
        let members = std::mem::take(self.members.get_mut());
        let native = &self.native;
        let mut end = Some(move || {
            drop(members); // they are written first
            native.close();
        });
        Python::try_attach(|py| {
            if let Some(end) = end.take() {
                py.detach(end);
            }
        });
        if let Some(end) = end {
            end();
        }
    }
}

static CORES: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

/// Remembers a logger whose sinks written in Python are to be closed before the process ends.
fn watch(core: &Arc<Core>) {
    let mut cores = CORES.lock();
    cores.retain(|core| core.strong_count() > 0);
    cores.push(Arc::downgrade(core));
}

/// Returns the loggers there are.
pub(crate) fn cores() -> Vec<Arc<Core>> {
    CORES.lock().iter().filter_map(Weak::upgrade).collect()
}
