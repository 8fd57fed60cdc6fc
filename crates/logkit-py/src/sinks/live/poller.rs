//! The thread that asks for answers of models and networks, as long as some are awaited.

use std::{thread, time::Duration};

use logkit::lock::Mutex;
use pyo3::prelude::*;

use super::tree::Tree;

/// Locked by threads only that hold the interpreter, and never for long, so no fork finds it locked.
static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    trees: Vec::new(),
    runs_in: None,
});

struct Watched {
    trees: Vec<Tree>,
    /// The process whose thread asks.
    runs_in: Option<u32>,
}

const EVERY: Duration = Duration::from_millis(50);

/// Asks the sinks of that tree until nothing is awaited. Called with the interpreter.
pub(crate) fn watch(tree: &Tree) {
    let mut watched = WATCHED.lock();
    let this = std::process::id();
    if watched.runs_in != Some(this) {
        // Those of the process that forked this one are its own.
        std::mem::forget(std::mem::take(&mut watched.trees));
    }
    if !watched.trees.iter().any(|known| known.is(tree)) {
        watched.trees.push(tree.clone());
    }
    if watched.runs_in != Some(this) {
        let thread = thread::Builder::new().name("logkit-poll".into()).spawn(run);
        // Without a thread the next entry asks again.
        watched.runs_in = thread.is_ok().then_some(this);
    }
}

fn run() {
    loop {
        thread::sleep(EVERY);
        match Python::try_attach(ask) {
            Some(true) => {}
            Some(false) | None => return,
        }
    }
}

/// False if nothing is awaited any more.
fn ask(py: Python<'_>) -> bool {
    let trees = WATCHED.lock().trees.clone();
    let mut settled = Vec::new();
    for tree in trees {
        if !tree.poll(py) {
            settled.push(tree);
        }
    }
    let mut watched = WATCHED.lock();
    watched
        .trees
        .retain(|tree| !settled.iter().any(|done| done.is(tree)));
    if watched.trees.is_empty() {
        watched.runs_in = None;
        return false;
    }
    true
}
