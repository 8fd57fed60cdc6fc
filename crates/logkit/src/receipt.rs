//! The promise that entries will be written, kept when they are.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::lock::{Condvar, Mutex};

/// The entries are written: with a database, committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Row id of the first entry; the others follow it. `None` without a database.
    pub first_id: Option<i64>,
    /// How many entries were written together.
    pub n_entries: usize,
}

/// The entries were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// The level is below the logger's.
    #[error("the level is below the logger's")]
    Filtered,
    /// There was no room in the queue.
    #[error("the queue is full")]
    QueueFull,
    /// The logger is closed.
    #[error("the logger is closed")]
    Closed,
    /// No sink took them; the text says why.
    #[error("{0}")]
    Failed(Arc<str>),
    /// It takes longer than the caller waits; the entries may still be written.
    #[error("not written in time")]
    Late,
}

type Outcome = Result<Ack, NotWritten>;

/// Resolves when the entries are written: wait for it, or await it in any runtime.
#[derive(Debug)]
pub struct Receipt(Arc<Slot>);

#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Slot {
    pub(crate) fn resolve(&self, outcome: Outcome) {
        let waker = {
            let mut state = self.state.lock();
            if state.outcome.is_none() {
                state.outcome = Some(outcome);
            }
            state.waker.take()
        };
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Receipt {
    pub(crate) fn new() -> (Receipt, Arc<Slot>) {
        let slot = Arc::new(Slot::default());
        (Receipt(Arc::clone(&slot)), slot)
    }

    /// A receipt which has its answer.
    pub(crate) fn resolved(outcome: Outcome) -> Receipt {
        let (receipt, slot) = Receipt::new();
        slot.resolve(outcome);
        receipt
    }

    /// Blocks until the entries are written, at most that long.
    ///
    /// # Errors
    ///
    /// [`NotWritten::Late`] if it takes longer; every other variant says that the entries are lost, and
    /// why.
    pub fn wait(self, timeout: Duration) -> Outcome {
        let deadline = Instant::now() + timeout;
        let mut state = self.0.state.lock();
        while state.outcome.is_none() {
            if self.0.done.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.outcome.clone().unwrap_or(Err(NotWritten::Late))
    }
}

impl Future for Receipt {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}
