//! Python code that native sinks want to run.
//!
//! A native sink is behind a lock, and Python code may wait for anything. So what a sink wants to call
//! is put aside in its thread, and called when no lock is held any more.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::Arc,
};

use logkit::{Entry, SinkError};
use pyo3::{intern, prelude::*};

use super::{
    held::{Held, Key},
    object::{self, Object},
    router::Router,
};
use crate::entry::{log_entry, write_back};

/// Something to be done in Python.
pub(crate) enum Action {
    Write {
        object: Arc<Object>,
        entries: Vec<Entry>,
    },
    Flush(Arc<Object>),
    Close(Arc<Object>),
    Route {
        router: Arc<Router>,
        entries: Vec<Entry>,
    },
    /// A model said something.
    Analysis {
        told: Arc<Py<PyAny>>,
        entry: Box<Entry>,
    },
    /// Text for `sys.stderr`.
    Print(String),
}

thread_local! {
    static PENDING: RefCell<VecDeque<Action>> = const { RefCell::new(VecDeque::new()) };
    static ON_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// Puts that aside.
pub(crate) fn later(action: Action) {
    PENDING.with_borrow_mut(|pending| pending.push_back(action));
}

fn take() -> VecDeque<Action> {
    PENDING.with_borrow_mut(std::mem::take)
}

/// True within Python code that a writer's thread calls. Loggers cannot be waited for there.
pub(crate) fn is_draining_on_writer() -> bool {
    ON_WRITER.get()
}

/// Where the objects of entries are.
pub(crate) struct Context<'a, 'py> {
    current: Option<(&'a Bound<'py, PyAny>, Key)>,
    held: Option<&'a Held>,
    /// The current entry went where it goes, or nowhere; nobody holds it.
    is_done: Cell<bool>,
}

impl<'a, 'py> Context<'a, 'py> {
    /// Nowhere: entries are texts.
    pub(crate) fn texts() -> Context<'a, 'py> {
        Context {
            current: None,
            held: None,
            is_done: Cell::new(false),
        }
    }

    /// With those that wait.
    pub(crate) fn held(held: &'a Held) -> Context<'a, 'py> {
        Context {
            held: Some(held),
            ..Context::texts()
        }
    }

    /// In that entry, which is written now.
    pub(crate) fn current(
        live: &'a Bound<'py, PyAny>,
        entry: &Entry,
        held: &'a Held,
    ) -> Context<'a, 'py> {
        Context {
            current: Some((live, Key::of(entry))),
            ..Context::held(held)
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.is_done.get()
    }

    /// The entry with its objects if they are still there, and with what wrappers added. The last one
    /// who wants it takes it.
    fn live(&self, py: Python<'py>, entry: &Entry, is_last: bool) -> PyResult<Bound<'py, PyAny>> {
        let key = Key::of(entry);
        let found = match (self.current, self.held) {
            (Some((live, current)), _) if current == key => {
                if is_last {
                    self.is_done.set(true);
                }
                Some(live.clone())
            }
            (_, Some(held)) if is_last => held.take(py, key),
            (_, Some(held)) => held.get(py, key),
            (_, None) => None,
        };
        match found {
            Some(live) => {
                write_back(&live, entry)?;
                Ok(live)
            }
            None => log_entry(py, entry, None, None, None),
        }
    }
}

/// Does everything that was put aside in this thread. What fails is told to `failed`, with the name of
/// the sink.
pub(crate) fn run<'py>(
    py: Python<'py>,
    context: &Context<'_, 'py>,
    failed: &mut dyn FnMut(&str, String),
) {
    // Python code may come back here: it finds nothing of ours.
    let mut actions = take();
    while let Some(action) = actions.pop_front() {
        run_one(py, context, action, failed);
        actions.extend(take());
    }
}

fn run_one<'py>(
    py: Python<'py>,
    context: &Context<'_, 'py>,
    action: Action,
    failed: &mut dyn FnMut(&str, String),
) {
    let mut check = |object: &Object, outcome: PyResult<()>| {
        if let Err(error) = outcome {
            failed(object.name(), object::describe(py, &error));
        }
    };
    match action {
        Action::Write { object, entries } => {
            for entry in &entries {
                let outcome = context
                    .live(py, entry, true)
                    .and_then(|live| object.write(&live));
                check(&object, outcome);
            }
        }
        Action::Flush(object) => check(&object, object.flush(py)),
        Action::Close(object) => check(&object, object.close(py)),
        Action::Route { router, entries } => {
            for entry in &entries {
                route(py, context, &router, entry, failed);
            }
        }
        Action::Analysis { told, entry } => {
            // Its errors are its own.
            let outcome = context
                .live(py, &entry, false)
                .and_then(|live| told.bind(py).call1((live, &*entry.llm_analysis)).map(drop));
            if let Err(error) = outcome {
                let _ = object::describe(py, &error);
            }
        }
        Action::Print(text) => {
            let printed = py
                .import(intern!(py, "sys"))
                .and_then(|sys| sys.getattr(intern!(py, "stderr")))
                .and_then(|stderr| stderr.call_method1(intern!(py, "write"), (text,)));
            drop(printed);
        }
    }
}

/// Asks the rules of a router, and hands the entry to the sink they name.
fn route<'py>(
    py: Python<'py>,
    context: &Context<'_, 'py>,
    router: &Router,
    entry: &Entry,
    failed: &mut dyn FnMut(&str, String),
) {
    let target = match context.live(py, entry, false) {
        Ok(live) => router.target(&live),
        Err(error) => {
            failed("router", object::describe(py, &error));
            return;
        }
    };
    let wants_objects = target.is_some_and(|sink| sink.traits().is_live);
    if !wants_objects {
        let is_current = context
            .current
            .is_some_and(|(_, key)| key == Key::of(entry));
        if is_current {
            context.is_done.set(true);
        } else if let Some(held) = context.held {
            drop(held.take(py, Key::of(entry)));
        }
    }
    if let Some(sink) = target
        && let Err(error) = sink.write(py, entry)
    {
        failed(&sink.name(), error.to_string());
    }
}

/// Does what was put aside on a writer's thread; an error tells what went wrong.
pub(crate) fn run_on_writer<T>(
    outcome: Result<T, SinkError>,
    is_all: bool,
) -> Result<T, SinkError> {
    if PENDING.with_borrow(VecDeque::is_empty) {
        return outcome;
    }
    let mut errors = Vec::new();
    let ran = Python::try_attach(|py| {
        let before = ON_WRITER.replace(true);
        run(py, &Context::texts(), &mut |name, why| {
            errors.push(if is_all {
                why
            } else {
                format!("{name}: {why}")
            });
        });
        ON_WRITER.set(before);
    });
    if ran.is_none() {
        drop(take());
        errors.push("Python has ended".to_owned());
    }
    match outcome {
        Ok(_) if errors.is_empty() => outcome,
        Ok(_) if is_all => Err(SinkError::Other(errors.join("; "))),
        Ok(_) => Err(SinkError::Partly(errors.join("; "))),
        Err(error) => Err(error),
    }
}
